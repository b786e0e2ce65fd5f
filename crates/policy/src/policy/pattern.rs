//! Tests of a single value: texts, ranges of numbers, networks.
//!
//! The values are in canonical form already: `compile` converts them to the form of the fields.

mod value_index;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ipnet::IpNet;
use memchr::{memchr2_iter, memmem};

use crate::model::words::words;
use crate::urls::target::normalize_text;

use super::expression::Expression;
use value_index::{ValueIndex, folded};

/// The case sensitivity of a text test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CaseSensitivity {
    Sensitive,
    /// ASCII letters are equal in upper and lower case.
    Insensitive,
}

/// The form of the text that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TextForm {
    Canonical,
    /// `norm: true`: escapes are in upper case, those of unreserved characters are decoded.
    Normalized,
}

#[derive(Clone, Debug)]
pub struct TextTest {
    pub kind: TextKind,
    /// The case sensitivity. Regular expressions and globs include it in the expression.
    pub case: CaseSensitivity,
    pub form: TextForm,
    /// The index of the values, if there are many.
    index: Option<Arc<ValueIndex>>,
}

/// The kinds of text tests. A test with several values holds if any of them matches.
#[derive(Clone, Debug)]
pub enum TextKind {
    /// A comparison with plain texts.
    Literal(LiteralTestKind, Box<[Box<str>]>),
    /// Regular expressions, including compiled globs.
    Regex(Box<[Expression]>),
    /// A number of characters or parts.
    Count(CountTestKind, Ranges),
}

words! {
    /// The comparisons of a text with a plain text.
    pub enum LiteralTestKind {
        /// Equality.
        Exact = "exact",
        /// The beginning of the text.
        Prefix = "prefix",
        /// The end of the text.
        Suffix = "suffix",
        /// A substring.
        Contains = "contains",
        /// The host is the value or a subdomain of it.
        Domain = "domain",
        /// The path ends in `.` and the value, regardless of case.
        Ext = "ext",
        /// The path is the value or below it.
        Under = "under",
        /// The SURT form of the URL, without the scheme, begins with the value.
        Surt = "surt",
    }
}

/// The quantities that a test can count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountTestKind {
    /// The characters.
    Length,
    /// The non-empty segments of `path`.
    Segments,
    /// The occurrences of the most frequent segment of `path`.
    Repeats,
    /// The parameters of `query`.
    Params,
}

impl TextTest {
    /// Creates a test, with an index if it has many values.
    pub fn new(kind: TextKind, case: CaseSensitivity, form: TextForm) -> Self {
        let index = ValueIndex::new(&kind, case).map(Arc::new);
        Self {
            kind,
            case,
            form,
            index,
        }
    }

    /// Returns `true` if the text passes the test.
    pub fn matches(&self, text: &str) -> bool {
        match self.form {
            TextForm::Canonical => self.matches_form(text),
            TextForm::Normalized => self.matches_form(&normalize_text(text)),
        }
    }

    fn matches_form(&self, text: &str) -> bool {
        match &self.index {
            Some(index) => index.matches(&self.kind, self.case, text),
            None => self.kind.matches(text, self.case),
        }
    }

    /// The expressions that every ASCII text is compared with: not those that an index finds by
    /// their literals. Empty for tests without expressions.
    pub(crate) fn unselective_expressions(&self) -> Vec<&Expression> {
        let all = self.kind.expressions();
        match self.index.as_deref().and_then(ValueIndex::unselective) {
            Some(positions) => positions.iter().filter_map(|at| all.get(*at)).collect(),
            None => all.iter().collect(),
        }
    }

    /// Returns the index of the first value that the text matches.
    pub fn first_matching_value(&self, text: &str) -> Option<usize> {
        match self.form {
            TextForm::Canonical => self.kind.first_match(text, self.case),
            TextForm::Normalized => self.kind.first_match(&normalize_text(text), self.case),
        }
    }

    /// Returns `true` if a text begins with a value of a test with plain texts.
    pub(crate) fn has_prefix_of(&self, text: &str) -> bool {
        match self.index.as_deref().and_then(ValueIndex::prefixes) {
            Some(values) => values.has_prefix_of(&folded(text, self.case)),
            None => {
                let mut values = self.kind.texts().iter();
                values.any(|value| self.case.starts_with(text, value))
            }
        }
    }

    /// Returns `true` if a value of a test with plain texts begins with this text. Of a test of the
    /// beginning, a value does not count if the text begins with another, shorter one.
    pub(crate) fn has_value_starting_with(&self, text: &str) -> bool {
        match self.index.as_deref().and_then(ValueIndex::prefixes) {
            Some(values) => values.has_any_starting_with(&folded(text, self.case)),
            None => {
                let mut values = self.kind.texts().iter();
                values.any(|value| self.case.starts_with(value, text))
            }
        }
    }
}

impl TextKind {
    /// The values that are plain texts; empty for other tests.
    pub(crate) fn texts(&self) -> &[Box<str>] {
        match self {
            Self::Literal(_, values) => values,
            Self::Regex(_) | Self::Count(..) => &[],
        }
    }

    /// The regular expressions; empty for other tests.
    pub(crate) fn expressions(&self) -> &[Expression] {
        match self {
            Self::Regex(all) => all,
            Self::Literal(..) | Self::Count(..) => &[],
        }
    }

    /// Compares a text with the values one after the other.
    fn matches(&self, text: &str, case: CaseSensitivity) -> bool {
        match self {
            Self::Count(kind, ranges) => ranges.contains(kind.count(text)),
            Self::Literal(..) | Self::Regex(_) => self.first_match(text, case).is_some(),
        }
    }

    /// Returns the index of the first value that a text matches; `None` for tests of a count.
    fn first_match(&self, text: &str, case: CaseSensitivity) -> Option<usize> {
        match self {
            Self::Literal(kind, values) => kind.first_match(values, text, case),
            Self::Regex(all) => all.iter().position(|expression| expression.is_match(text)),
            Self::Count(..) => None,
        }
    }

    /// Returns the number that a counting test computes; `None` for other tests.
    pub fn count(&self, text: &str) -> Option<u64> {
        match self {
            Self::Count(kind, _) => Some(kind.count(text)),
            Self::Literal(..) | Self::Regex(_) => None,
        }
    }
}

impl LiteralTestKind {
    fn first_match(self, values: &[Box<str>], text: &str, case: CaseSensitivity) -> Option<usize> {
        let mut values = values.iter();
        match self {
            Self::Exact => values.position(|v| case.equals(text, v)),
            Self::Prefix => values.position(|v| case.starts_with(text, v)),
            Self::Suffix => values.position(|v| case.ends_with(text, v)),
            Self::Contains => values.position(|v| case.contains(text, v)),
            Self::Domain => values.position(|v| is_in_domain(text, v)),
            Self::Ext => values.position(|v| has_extension(text, v)),
            Self::Under => values.position(|v| is_under(text, v, case)),
            Self::Surt => {
                let surt = to_surt(text)?;
                values.position(|v| surt.starts_with(&**v))
            }
        }
    }
}

impl CountTestKind {
    fn count(self, text: &str) -> u64 {
        match self {
            Self::Length => text.chars().count() as u64,
            Self::Segments => segments(text).count() as u64,
            Self::Repeats => max_segment_repeats(text),
            Self::Params => count_params(text),
        }
    }
}

impl CaseSensitivity {
    fn equals(self, text: &str, value: &str) -> bool {
        match self {
            Self::Sensitive => text == value,
            Self::Insensitive => text.eq_ignore_ascii_case(value),
        }
    }

    fn starts_with(self, text: &str, value: &str) -> bool {
        let head = text.as_bytes().get(..value.len());
        head.is_some_and(|head| self.equals_bytes(head, value))
    }

    fn ends_with(self, text: &str, value: &str) -> bool {
        let from = text.len().checked_sub(value.len());
        let tail = from.and_then(|from| text.as_bytes().get(from..));
        tail.is_some_and(|tail| self.equals_bytes(tail, value))
    }

    fn contains(self, text: &str, value: &str) -> bool {
        match self {
            Self::Sensitive => memmem::find(text.as_bytes(), value.as_bytes()).is_some(),
            Self::Insensitive => contains_ignoring_case(text.as_bytes(), value.as_bytes()),
        }
    }

    fn equals_bytes(self, text: &[u8], value: &str) -> bool {
        match self {
            Self::Sensitive => text == value.as_bytes(),
            Self::Insensitive => text.eq_ignore_ascii_case(value.as_bytes()),
        }
    }
}

fn contains_ignoring_case(text: &[u8], value: &[u8]) -> bool {
    let Some((first, rest)) = value.split_first() else {
        return true;
    };
    memchr2_iter(first.to_ascii_lowercase(), first.to_ascii_uppercase(), text).any(|at| {
        let tail = text.get(at + 1..at + value.len());
        tail.is_some_and(|tail| tail.eq_ignore_ascii_case(rest))
    })
}

fn is_in_domain(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn has_extension(path: &str, extension: &str) -> bool {
    let dot = path.len().checked_sub(extension.len() + 1);
    let tail = dot.and_then(|at| path.as_bytes().get(at..));
    tail.and_then(<[u8]>::split_first)
        .is_some_and(|(dot, rest)| *dot == b'.' && rest.eq_ignore_ascii_case(extension.as_bytes()))
}

fn is_under(path: &str, directory: &str, case: CaseSensitivity) -> bool {
    let follows = path
        .as_bytes()
        .get(directory.len())
        .is_none_or(|next| *next == b'/');
    case.starts_with(path, directory) && follows
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|s| !s.is_empty())
}

fn max_segment_repeats(path: &str) -> u64 {
    let mut all: Vec<&str> = segments(path).collect();
    all.sort_unstable();
    all.chunk_by(|a, b| a == b)
        .map(|run| run.len() as u64)
        .max()
        .unwrap_or(0)
}

fn count_params(query: &str) -> u64 {
    query.split('&').filter(|p| !p.is_empty()).count() as u64
}

/// Returns the SURT form of a URL without its scheme: `http://www.example.com/a` gives
/// `com,example,www,)/a`.
///
/// As the Internet Archive writes them, an address keeps its order, `192.0.2.7)/`, and the port of an
/// authority follows its labels, `com,example,:8080)/`.
pub fn to_surt(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let slash = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(slash)?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_address = host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok();
    let mut form: String = if is_address {
        host.to_owned()
    } else {
        host.rsplit('.').flat_map(|label| [label, ","]).collect()
    };
    if let Some(port) = port {
        form.push(':');
        form.push_str(port);
    }
    form.push(')');
    form.push_str(path);
    Some(form)
}

/// Inclusive ranges of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges(pub Box<[(u64, u64)]>);

impl Ranges {
    /// Returns `true` if the number is in a range.
    pub fn contains(&self, number: u64) -> bool {
        self.0
            .iter()
            .any(|(from, to)| (*from..=*to).contains(&number))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Networks(pub Box<[IpNet]>);

impl Networks {
    /// Returns `true` if the address is in a network. An IPv4-mapped IPv6 address counts as its
    /// IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let plain = address.to_canonical();
        self.0.iter().any(|n| n.contains(&plain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(kind: LiteralTestKind, value: &str, case: CaseSensitivity, text: &str) -> bool {
        let kind = TextKind::Literal(kind, [value.into()].into());
        TextTest::new(kind, case, TextForm::Canonical).matches(text)
    }

    #[test]
    fn shortcuts_respect_boundaries() {
        use CaseSensitivity::Sensitive as D;
        assert!(test(LiteralTestKind::Domain, "foo.com", D, "a.foo.com"));
        assert!(!test(LiteralTestKind::Domain, "foo.com", D, "afoo.com"));
        assert!(test(LiteralTestKind::Under, "/old", D, "/old"));
        assert!(test(LiteralTestKind::Under, "/old", D, "/old/x"));
        assert!(!test(LiteralTestKind::Under, "/old", D, "/older"));
        assert!(test(LiteralTestKind::Under, "", D, "/anything"));
        assert!(test(LiteralTestKind::Ext, "tar.gz", D, "/a/b.TAR.gz"));
        assert!(!test(LiteralTestKind::Ext, "gif", D, "/gif"));
        assert!(!test(LiteralTestKind::Ext, "gif", D, "/agif"));
    }

    #[test]
    fn case_is_ignored_only_if_configured() {
        for (kind, value) in [
            (LiteralTestKind::Exact, "/Ab"),
            (LiteralTestKind::Prefix, "/A"),
            (LiteralTestKind::Suffix, "B"),
            (LiteralTestKind::Contains, "A"),
        ] {
            assert!(test(kind, value, CaseSensitivity::Insensitive, "/aB"));
            assert!(
                !test(kind, value, CaseSensitivity::Sensitive, "/ab"),
                "{value}"
            );
        }
    }

    #[test]
    fn a_search_that_ignores_case_finds_what_a_search_in_lower_case_finds() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut word = |longest| -> String {
            (0..random.usize(0..=longest))
                .map(|_| *random.choice(&['a', 'A', 'b', '/', 'é', '[', '{']).unwrap())
                .collect()
        };
        let mut found = 0;
        for _ in 0..20_000 {
            let (text, value) = (word(8), word(3));
            let expected = text
                .to_ascii_lowercase()
                .contains(&value.to_ascii_lowercase());
            let kind = LiteralTestKind::Contains;
            assert_eq!(
                test(kind, &value, CaseSensitivity::Insensitive, &text),
                expected,
                "{value:?} in {text:?}"
            );
            found += u32::from(expected);
        }
        assert!((5_000..15_000).contains(&found), "{found}");
    }

    #[test]
    fn counts() {
        let counted = |kind: CountTestKind, n: u64, text: &str| {
            let kind = TextKind::Count(kind, Ranges([(n, n)].into()));
            TextTest::new(kind, CaseSensitivity::Sensitive, TextForm::Canonical).matches(text)
        };
        assert!(
            counted(CountTestKind::Length, 2, "/é"),
            "characters, not bytes"
        );
        assert!(counted(CountTestKind::Segments, 2, "//a/b/"));
        assert!(counted(CountTestKind::Repeats, 2, "/a/b/a"));
        assert!(counted(CountTestKind::Params, 2, "a=1&&b"));
        assert!(counted(CountTestKind::Params, 0, ""));
    }

    #[test]
    fn surts() {
        assert_eq!(
            to_surt("http://www.example.com/a?b").unwrap(),
            "com,example,www,)/a?b"
        );
        assert_eq!(
            to_surt("http://example.com:8080/").unwrap(),
            "com,example,:8080)/"
        );
        assert_eq!(to_surt("http://192.0.2.7/").unwrap(), "192.0.2.7)/");
        assert_eq!(to_surt("http://[::1]:81/").unwrap(), "[::1]:81)/");
    }
}
