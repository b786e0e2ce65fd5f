//! Compiled patterns of Allow and Disallow lines, and their matching with a path and query.

use super::escape::{append_normal, decode_query_delimiters, has_query_delimiter};

/// A `*` in a compiled pattern: a byte that no normal form contains.
pub(super) const WILDCARD: u8 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PatternEnd {
    Open,
    /// The pattern ended with `$`.
    Anchored,
}

/// The form of the URL that a pattern matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum UrlForm {
    Normal,
    /// The normal form with the delimiters of the query decoded, for patterns that contain such
    /// delimiters after a `?`.
    QueryDecoded,
}

/// A compiled pattern.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RobotsPattern {
    /// The normal form without the closing `$`. Each run of `*` is one [`WILDCARD`].
    pub(super) bytes: Vec<u8>,
    /// The length of the literal prefix that both forms of a URL must have.
    pub(super) prefix: usize,
    /// The number of octets in the normal form. The longest match wins (RFC 9309 section 2.2.2).
    pub(super) octets: usize,
    pub(super) end: PatternEnd,
    pub(super) form: UrlForm,
}

impl RobotsPattern {
    /// Compiles a pattern; `None` if it cannot match any path, for example because it is empty.
    pub(super) fn compile(pattern: &[u8]) -> Option<Self> {
        if !matches!(pattern.first(), Some(b'/' | b'*')) {
            return None;
        }
        let (open, end) = match pattern.strip_suffix(b"$") {
            Some(open) => (open, PatternEnd::Anchored),
            None => (pattern, PatternEnd::Open),
        };
        let (normal, stars) = compile_wildcards(open);
        let octets = normal.len() + stars + usize::from(end == PatternEnd::Anchored);
        let form = if has_query_delimiter(&normal) {
            UrlForm::QueryDecoded
        } else {
            UrlForm::Normal
        };
        let bytes = match form {
            UrlForm::Normal => normal,
            UrlForm::QueryDecoded => decode_query_delimiters(&normal).into_owned(),
        };
        let prefix = common_prefix(&bytes, form);
        Some(Self {
            bytes,
            prefix,
            octets,
            end,
            form,
        })
    }
}

/// Returns the normal form with a [`WILDCARD`] for each run of `*`, and the number of stars that
/// this omits.
fn compile_wildcards(pattern: &[u8]) -> (Vec<u8>, usize) {
    let mut out = Vec::with_capacity(pattern.len());
    let mut left_out = 0;
    for (nth, piece) in pattern.split(|&b| b == b'*').enumerate() {
        if nth > 0 && out.last() == Some(&WILDCARD) {
            left_out += 1;
        } else if nth > 0 {
            out.push(WILDCARD);
        }
        append_normal(piece, &mut out);
    }
    (out, left_out)
}

fn common_prefix(bytes: &[u8], form: UrlForm) -> usize {
    let literal = memchr::memchr(WILDCARD, bytes).unwrap_or(bytes.len());
    match form {
        UrlForm::Normal => literal,
        UrlForm::QueryDecoded => literal.min(memchr::memchr(b'?', bytes).unwrap_or(literal)),
    }
}

/// Returns `true` if the rest of a pattern matches the rest of a text, both without their common
/// prefix.
///
/// Each piece between two stars is searched once, after the end of the previous one. The leftmost
/// match leaves the most text to the other pieces, so there is no backtracking and the cost is
/// linear.
pub(super) fn matches_rest(pattern: &[u8], end: PatternEnd, text: &[u8]) -> bool {
    let mut pieces = pattern.split(|&b| b == WILDCARD);
    let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let Some(mut piece) = pieces.next() else {
        return end == PatternEnd::Open || rest.is_empty();
    };
    for next in pieces {
        let Some(after) = text_after(rest, piece) else {
            return false;
        };
        rest = after;
        piece = next;
    }
    match end {
        PatternEnd::Open => text_after(rest, piece).is_some(),
        PatternEnd::Anchored => rest.ends_with(piece),
    }
}

/// Returns the text after the first occurrence of `piece`.
fn text_after<'a>(text: &'a [u8], piece: &[u8]) -> Option<&'a [u8]> {
    let at = memchr::memmem::find(text, piece)?;
    text.get(at + piece.len()..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, text: &str, expected: bool) {
        let compiled = RobotsPattern::compile(pattern.as_bytes()).unwrap();
        assert_eq!(
            matches_rest(&compiled.bytes, compiled.end, text.as_bytes()),
            expected,
            "{pattern} on {text}"
        );
    }

    #[test]
    fn stars_and_ends() {
        for (pattern, text, expected) in [
            ("/", "/a", true),
            ("/a$", "/a", true),
            ("/a$", "/ab", false),
            ("/a*$", "/ab", true),
            ("/*.php$", "/x.php.php", true),
            ("/*.php$", "/x.php?", false),
            ("/a*ab$", "/ab", false),
            ("/a*ab$", "/aab", true),
            ("/a**b*c", "/axbxc", true),
            ("*/b", "/a/b/c", true),
            ("/a$b", "/a$bc", true),
            ("/a%2A", "/a*", true),
            ("/a%24", "/a$x", true),
            ("/*a*a*a*b", "/aaaaaaa", false),
        ] {
            check(pattern, text, expected);
        }
        assert_eq!(RobotsPattern::compile(b""), None);
        assert_eq!(RobotsPattern::compile(b"cgi-bin"), None);
    }

    #[test]
    fn octets_count_what_was_written() {
        for (pattern, octets) in [
            ("/a", 2),
            ("/a**$", 5),
            ("/***", 4),
            ("/%61", 2),
            ("/\u{e1}", 7),
        ] {
            assert_eq!(
                RobotsPattern::compile(pattern.as_bytes()).unwrap().octets,
                octets,
                "{pattern}"
            );
        }
    }
}
