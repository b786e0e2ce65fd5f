//! Usage preferences: what a site says that its content may be used for. The words of one statement, and how statements
//! combine; where they stand in a robots.txt is in `extension`.
//!
//! Two spellings are read alike: `Content-Usage` (draft-ietf-aipref-attach and -vocab: a structured dictionary,
//! `train-ai=n, search=y`) and `Content-Signal` (Cloudflare: `ai-train=no, search=yes`). Both are read more forgivingly
//! than the drafts have it, member by member and in any case, so that one slip does not undo what else a site asks for:
//! a member that cannot be read says nothing.

/// What a site says of one kind of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsagePreference {
    /// Nothing.
    Unset,
    /// It may be used so.
    Allow,
    /// It may not.
    Deny,
}

impl UsagePreference {
    /// Every preference; of two statements about one use the later one of this order holds.
    pub const ALL: [Self; 3] = [Self::Unset, Self::Allow, Self::Deny];

    /// The value of the field `usage.NAME`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unset => "unset",
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }

    /// Reads the value of the field `usage.NAME`.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.as_str() == word)
    }
}

/// How a statement is written, which decides what holds if it names a use twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageSyntax {
    /// `Content-Usage`: the last member of a name holds (RFC 9651 section 3.2).
    ContentUsage,
    /// `Content-Signal`: the strictest does.
    ContentSignal,
}

/// The uses of one statement that are shown.
pub const MAX_MEMBERS: usize = 16;
/// The bytes of a use's name that are read; a longer one is none.
const MAX_NAME: usize = 64;

/// The name by which a use is known here, in lower case; `ai-train` is `train-ai`. `None` if it is no name of a use.
///
/// Names are open (draft-ietf-aipref-vocab section 6.1): any of letters, digits, `_`, `-`, `.` and `*`.
pub fn normalise_purpose(name: &str) -> Option<Box<str>> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'*');
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(fits) {
        return None;
    }
    if name.eq_ignore_ascii_case("ai-train") {
        return Some("train-ai".into());
    }
    Some(name.to_ascii_lowercase().into())
}

/// What a statement says of each use that it names, each once: of the first ones, to be shown.
pub fn parse_statement(spelling: UsageSyntax, text: &str) -> Vec<(Box<str>, UsagePreference)> {
    let mut said: Vec<(Box<str>, UsagePreference)> = Vec::new();
    for (written, preference) in text.split(',').map(parse_member) {
        let room = said.len() < MAX_MEMBERS;
        match said
            .iter_mut()
            .find(|(known, _)| is_same_purpose(written, known))
        {
            Some((_, known)) => *known = combine(spelling, *known, preference),
            None if room => said.extend(normalise_purpose(written).map(|name| (name, preference))),
            None => {}
        }
    }
    said
}

/// What a statement says of one use, which is given as [`normalise_purpose`] writes it; wherever in it that stands.
pub fn find_preference(spelling: UsageSyntax, text: &str, name: &str) -> UsagePreference {
    let said = text
        .split(',')
        .map(parse_member)
        .filter(|(written, _)| is_same_purpose(written, name));
    let said = said.map(|(_, said)| said);
    said.reduce(|known, next| combine(spelling, known, next))
        .unwrap_or(UsagePreference::Unset)
}

/// Whether what is written is that use.
fn is_same_purpose(written: &str, name: &str) -> bool {
    written.eq_ignore_ascii_case(name)
        || name == "train-ai" && written.eq_ignore_ascii_case("ai-train")
}

fn combine(
    spelling: UsageSyntax,
    known: UsagePreference,
    next: UsagePreference,
) -> UsagePreference {
    match spelling {
        UsageSyntax::ContentUsage => next,
        UsageSyntax::ContentSignal => known.max(next),
    }
}

/// `name=value;parameters`: the name as written, and what the value says. One other than a word for yes or no, as text in
/// quotes, says nothing.
fn parse_member(text: &str) -> (&str, UsagePreference) {
    let item = text.split(';').next().unwrap_or(text);
    let (name, value) = item.split_once('=').unwrap_or((item, ""));
    let value = value.trim();
    let is = |words: [&str; 2]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
    let preference = match () {
        () if is(["y", "yes"]) => UsagePreference::Allow,
        () if is(["n", "no"]) => UsagePreference::Deny,
        () => UsagePreference::Unset,
    };
    (name.trim(), preference)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spelling: UsageSyntax, text: &str, expected: &str) {
        let said = parse_statement(spelling, text);
        let said: Vec<String> = said
            .iter()
            .map(|(name, p)| format!("{name} {}", p.as_str()))
            .collect();
        assert_eq!(said.join(", "), expected, "{text:?}");
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
