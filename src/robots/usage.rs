//! Usage preferences: what a site says that its content may be used for. The words of one statement, and how statements
//! combine; where they stand in a robots.txt is in `extension`.
//!
//! Two spellings are read alike: `Content-Usage` (draft-ietf-aipref-attach and -vocab: a structured dictionary,
//! `train-ai=n, search=y`) and `Content-Signal` (Cloudflare: `ai-train=no, search=yes`). Both are read more forgivingly
//! than the drafts have it, member by member and in any case, so that one slip does not undo what else a site asks for:
//! a member that cannot be read says nothing.

/// What a site says of one kind of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preference {
    /// Nothing.
    Unset,
    /// It may be used so.
    Allow,
    /// It may not.
    Deny,
}

impl Preference {
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
pub enum Spelling {
    /// `Content-Usage`: the last member of a name holds (RFC 9651 section 3.2).
    Usage,
    /// `Content-Signal`: the strictest does.
    Signal,
}

/// The uses of one statement that are shown.
pub const MAX_MEMBERS: usize = 16;
/// The bytes of a use's name that are read; a longer one is none.
const MAX_NAME: usize = 64;

/// The name by which a use is known here, in lower case; `ai-train` is `train-ai`. `None` if it is no name of a use.
///
/// Names are open (draft-ietf-aipref-vocab section 6.1): any of letters, digits, `_`, `-`, `.` and `*`.
pub fn purpose(name: &str) -> Option<Box<str>> {
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
pub fn statement(spelling: Spelling, text: &str) -> Vec<(Box<str>, Preference)> {
    let mut said: Vec<(Box<str>, Preference)> = Vec::new();
    for (written, preference) in text.split(',').map(member) {
        let room = said.len() < MAX_MEMBERS;
        match said.iter_mut().find(|(known, _)| is_named(written, known)) {
            Some((_, known)) => *known = repeated(spelling, *known, preference),
            None if room => said.extend(purpose(written).map(|name| (name, preference))),
            None => {}
        }
    }
    said
}

/// What a statement says of one use, which is given as [`purpose`] writes it; wherever in it that stands.
pub fn preference(spelling: Spelling, text: &str, name: &str) -> Preference {
    let said = text
        .split(',')
        .map(member)
        .filter(|(written, _)| is_named(written, name));
    let said = said.map(|(_, said)| said);
    said.reduce(|known, next| repeated(spelling, known, next))
        .unwrap_or(Preference::Unset)
}

/// Whether what is written is that use.
fn is_named(written: &str, name: &str) -> bool {
    written.eq_ignore_ascii_case(name)
        || name == "train-ai" && written.eq_ignore_ascii_case("ai-train")
}

fn repeated(spelling: Spelling, known: Preference, next: Preference) -> Preference {
    match spelling {
        Spelling::Usage => next,
        Spelling::Signal => known.max(next),
    }
}

/// `name=value;parameters`: the name as written, and what the value says. One other than a word for yes or no, as text in
/// quotes, says nothing.
fn member(text: &str) -> (&str, Preference) {
    let item = text.split(';').next().unwrap_or(text);
    let (name, value) = item.split_once('=').unwrap_or((item, ""));
    let value = value.trim();
    let is = |words: [&str; 2]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
    let preference = match () {
        () if is(["y", "yes"]) => Preference::Allow,
        () if is(["n", "no"]) => Preference::Deny,
        () => Preference::Unset,
    };
    (name.trim(), preference)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spelling: Spelling, text: &str, expected: &str) {
        let said = statement(spelling, text);
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
            check(Spelling::Usage, text, expected);
            check(Spelling::Signal, text, expected);
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
            check(Spelling::Usage, text, usage);
            check(Spelling::Signal, text, signal);
        }
    }

    #[test]
    fn statements_are_bounded() {
        let many: String = (0..10_000).map(|n| format!("use-{n}=n,")).collect();
        assert_eq!(statement(Spelling::Usage, &many).len(), MAX_MEMBERS);
        assert_eq!(
            statement(Spelling::Usage, &format!("{}=n", "a".repeat(65))),
            []
        );
        assert_eq!(
            preference(Spelling::Usage, "a=y, search=n", "search"),
            Preference::Deny
        );
        assert_eq!(
            preference(Spelling::Usage, "a=y", "search"),
            Preference::Unset
        );
        let last = format!("{many} AI-Train=No");
        assert_eq!(
            preference(Spelling::Usage, &last, "train-ai"),
            Preference::Deny,
            "however late"
        );
    }
}
