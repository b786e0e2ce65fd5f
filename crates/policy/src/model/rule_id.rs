//! Names that reach headers, labels and logs, checked once so that nothing has to be escaped later.

use std::fmt;
use std::sync::Arc;

/// The id of a rule: `[A-Za-z0-9_.-]+`, 1 to 128 bytes.
///
/// The character set makes header injection and unbounded labels impossible by type. A rule without an id of
/// its own gets its position, `rules.3.1`, which fits the same set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(Box<str>);

impl RuleId {
    /// Checks the text; `None` if it is empty, too long or has another character.
    pub fn new(text: &str) -> Option<Self> {
        let fits = !text.is_empty() && text.len() <= 128 && text.bytes().all(is_id_byte);
        fits.then(|| Self(text.into()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-')
}

/// A name such as the policy's: `[a-z0-9][a-z0-9-]*`, 1 to 64 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slug(Arc<str>);

impl Slug {
    /// Checks the text; `None` if it does not fit the form.
    pub fn new(text: &str) -> Option<Self> {
        let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let first = text.bytes().next().is_some_and(alphanumeric);
        let fits = first && text.len() <= 64 && text.bytes().all(|b| alphanumeric(b) || b == b'-');
        fits.then(|| Self(text.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same, to be kept without a copy.
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl fmt::Display for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_safe_characters_become_ids() {
        assert!(RuleId::new("rules.3.1").is_some());
        for bad in ["", "a b", "a\r\nX: y", "é", "a\"", &"x".repeat(129)] {
            assert!(RuleId::new(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn slugs_begin_with_a_letter_or_digit() {
        assert!(Slug::new("acme-2").is_some());
        for bad in ["", "-acme", "Acme", "a_b", &"x".repeat(65)] {
            assert!(Slug::new(bad).is_none(), "{bad:?}");
        }
    }
}
