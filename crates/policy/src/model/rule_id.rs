//! Names that are used in headers, labels and logs, validated once so that they never need
//! escaping.

use std::fmt;
use std::sync::Arc;

/// The id of a rule: `[A-Za-z0-9_.-]+`, 1 to 128 bytes.
///
/// The character set rules out header injection. A rule without an explicit id gets its position,
/// such as `rules.3.1`, which fits the same set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(Arc<str>);

impl RuleId {
    /// Validates the text. Returns `None` if it is empty, too long or contains another character.
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
    /// Validates the text. Returns `None` if it does not have the form.
    pub fn new(text: &str) -> Option<Self> {
        let valid = text.len() <= 64
            && text.bytes().next().is_some_and(is_slug_start)
            && text.bytes().all(|b| is_slug_start(b) || b == b'-');
        valid.then(|| Self(text.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, shared.
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

fn is_slug_start(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
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
