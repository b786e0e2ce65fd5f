//! Usage preferences: the purposes for which a site allows or denies the use of its content. This
//! module parses and combines statements; `extension` finds them in a robots.txt.
//!
//! Two syntaxes are supported: `Content-Usage` (draft-ietf-aipref-attach and -vocab: a structured
//! dictionary, `train-ai=n, search=y`) and `Content-Signal` (Cloudflare:
//! `ai-train=no, search=yes`). Both are parsed more leniently than the drafts, member by member and
//! regardless of case, so that one mistake does not invalidate the rest: a member that cannot be
//! parsed has no effect.
//!
//! `tdm-reservation` (the TDM Reservation Protocol of a W3C community group) denies two purposes at
//! once.

use crate::model::words::words;

words! {
    /// The preference of a site for one purpose: the value of the field `usage.NAME`. Of two
    /// statements the later one in this order wins.
    pub enum UsagePreference {
        /// No preference.
        Unset = "unset",
        /// The site allows the use.
        Allow = "allow",
        /// The site denies the use.
        Deny = "deny",
    }
}

/// The syntax of a statement, which determines the effect of a duplicate purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageSyntax {
    /// `Content-Usage`: the last member with a name wins (RFC 9651 section 3.2).
    ContentUsage,
    /// `Content-Signal`: the strictest wins.
    ContentSignal,
}

/// The maximum number of purposes that are listed for a statement.
pub const MAX_MEMBERS: usize = 16;
/// The maximum length of a purpose's name in bytes; longer ones are ignored.
const MAX_NAME: usize = 64;

/// Returns the name of a purpose in lower case, with `train-ai` for `ai-train`; `None` if it is not
/// a valid name.
///
/// The set of names is open (draft-ietf-aipref-vocab section 6.1): letters, digits, `_`, `-`, `.`
/// and `*`.
pub fn normalize_purpose(name: &str) -> Option<Box<str>> {
    let valid = (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_name_byte);
    if !valid {
        return None;
    }
    if name.eq_ignore_ascii_case("ai-train") {
        return Some("train-ai".into());
    }
    Some(name.to_ascii_lowercase().into())
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'*')
}

/// Returns the preferences of a statement, one per purpose. The list is limited and meant for
/// display.
pub fn parse_statement(syntax: UsageSyntax, text: &str) -> Vec<(Box<str>, UsagePreference)> {
    let mut found: Vec<(Box<str>, UsagePreference)> = Vec::new();
    for (name, preference) in text.split(',').map(parse_member) {
        let has_room = found.len() < MAX_MEMBERS;
        match found
            .iter_mut()
            .find(|(known, _)| is_same_purpose(name, known))
        {
            Some((_, known)) => *known = combine(syntax, *known, preference),
            None if has_room => {
                found.extend(normalize_purpose(name).map(|name| (name, preference)));
            }
            None => {}
        }
    }
    found
}

/// Returns the preference of a statement for one purpose, with a name as in [`normalize_purpose`].
pub fn find_preference(syntax: UsageSyntax, text: &str, name: &str) -> UsagePreference {
    text.split(',')
        .map(parse_member)
        .filter(|(written, _)| is_same_purpose(written, name))
        .map(|(_, preference)| preference)
        .reduce(|known, next| combine(syntax, known, next))
        .unwrap_or(UsagePreference::Unset)
}

/// Returns `true` if a written name denotes a purpose.
fn is_same_purpose(written: &str, name: &str) -> bool {
    written.eq_ignore_ascii_case(name)
        || name == "train-ai" && written.eq_ignore_ascii_case("ai-train")
}

/// Returns the preference that a `tdm-reservation` (TDM Reservation Protocol) states for a purpose:
/// 1 reserves the rights of text and data mining, which training is a case of, and 0 does not.
pub fn tdm_preference(reservation: &str, name: &str) -> UsagePreference {
    match reservation.trim() {
        "1" if is_text_and_data_mining(name) => UsagePreference::Deny,
        "0" if is_text_and_data_mining(name) => UsagePreference::Allow,
        _ => UsagePreference::Unset,
    }
}

fn is_text_and_data_mining(name: &str) -> bool {
    matches!(name, "tdm" | "train-ai")
}

fn combine(syntax: UsageSyntax, known: UsagePreference, next: UsagePreference) -> UsagePreference {
    match syntax {
        UsageSyntax::ContentUsage => next,
        UsageSyntax::ContentSignal => known.max(next),
    }
}

/// Parses `name=value;parameters` into the name as written and the preference. Values other than
/// yes and no, such as quoted strings, have no effect.
fn parse_member(text: &str) -> (&str, UsagePreference) {
    let item = text.split(';').next().unwrap_or(text);
    let (name, value) = item.split_once('=').unwrap_or((item, ""));
    let value = value.trim();
    let preference = if is_one_of(value, ["y", "yes"]) {
        UsagePreference::Allow
    } else if is_one_of(value, ["n", "no"]) {
        UsagePreference::Deny
    } else {
        UsagePreference::Unset
    };
    (name.trim(), preference)
}

fn is_one_of(value: &str, words: [&str; 2]) -> bool {
    words.iter().any(|word| value.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spelling: UsageSyntax, text: &str, expected: &str) {
        let statement = parse_statement(spelling, text);
        let statement: Vec<String> = statement
            .iter()
            .map(|(name, p)| format!("{name} {}", p.as_str()))
            .collect();
        assert_eq!(statement.join(", "), expected, "{text:?}");
    }

    #[test]
    fn statements() {
        for (text, expected) in [
            ("train-ai=n, search=y", "train-ai deny, search allow"),
            ("train-ai=n,search=y,", "train-ai deny, search allow"),
            ("Train-AI = N", "train-ai deny"),
            (
                "search=yes, ai-input=no, ai-train=no",
                "search allow, ai-input deny, train-ai deny",
            ),
            ("train-ai=n;x=1;y", "train-ai deny"),
            ("train-ai;n", "train-ai unset"),
            ("train-ai", "train-ai unset"),
            ("train-ai=", "train-ai unset"),
            ("train-ai=\"n\"", "train-ai unset"),
            ("train-ai=?0, search=1", "train-ai unset, search unset"),
            ("train-ai=nn, x=maybe", "train-ai unset, x unset"),
            ("unknown.use*=n", "unknown.use* deny"),
            ("=n, ,;, a b=n, \u{e4}=n, search=n", "search deny"),
            ("train-ai=n=y", "train-ai unset"),
            ("train-ai:n", ""),
            ("", ""),
        ] {
            check(UsageSyntax::ContentUsage, text, expected);
            check(UsageSyntax::ContentSignal, text, expected);
        }
    }

    #[test]
    fn a_use_that_is_named_twice() {
        for (text, usage, signal) in [
            ("train-ai=n, train-ai=y", "train-ai allow", "train-ai deny"),
            ("train-ai=y, train-ai=n", "train-ai deny", "train-ai deny"),
            ("train-ai=y, train-ai", "train-ai unset", "train-ai allow"),
            ("ai-train=no, train-ai=y", "train-ai allow", "train-ai deny"),
        ] {
            check(UsageSyntax::ContentUsage, text, usage);
            check(UsageSyntax::ContentSignal, text, signal);
        }
    }

    #[test]
    fn reservations() {
        for (value, name, expected) in [
            ("1", "tdm", UsagePreference::Deny),
            (" 1 ", "train-ai", UsagePreference::Deny),
            ("0", "tdm", UsagePreference::Allow),
            ("1", "search", UsagePreference::Unset),
            ("1", "ai-input", UsagePreference::Unset),
            ("2", "tdm", UsagePreference::Unset),
            ("1, 0", "tdm", UsagePreference::Unset),
            ("", "tdm", UsagePreference::Unset),
        ] {
            assert_eq!(tdm_preference(value, name), expected, "{value:?} {name}");
        }
    }

    #[test]
    fn statements_are_bounded() {
        let many: String = (0..10_000).map(|n| format!("use-{n}=n,")).collect();
        assert_eq!(
            parse_statement(UsageSyntax::ContentUsage, &many).len(),
            MAX_MEMBERS
        );
        assert_eq!(
            parse_statement(UsageSyntax::ContentUsage, &format!("{}=n", "a".repeat(65))),
            []
        );
        assert_eq!(
            find_preference(UsageSyntax::ContentUsage, "a=y, search=n", "search"),
            UsagePreference::Deny
        );
        assert_eq!(
            find_preference(UsageSyntax::ContentUsage, "a=y", "search"),
            UsagePreference::Unset
        );
        let last = format!("{many} AI-Train=No");
        assert_eq!(
            find_preference(UsageSyntax::ContentUsage, &last, "train-ai"),
            UsagePreference::Deny,
            "however late"
        );
    }
}
