//! One pattern of an Allow or Disallow line, compiled to bytes, and whether it matches a path and query.

use super::escape::{append_normal, has_query_delimiter, query_decoded};

/// `*` in a compiled pattern: a byte that no normal form has.
pub(super) const ANY: u8 = 0;

/// Where a match has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    Open,
    /// The pattern ended with `$`.
    Fixed,
}

/// In which form of the URL a pattern looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// The normal form.
    Written,
    /// The normal form with the delimiters of the query decoded: the pattern has such behind its own `?`.
    Query,
}

/// A pattern on its way into the table of rules.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Compiled {
    /// The normal form with runs of `*` as one [`ANY`], without the closing `$`.
    pub(super) bytes: Vec<u8>,
    /// Bytes at the beginning that both forms of a URL must have.
    pub(super) prefix: usize,
    /// Octets of the normal form: the longest match wins (RFC 9309 section 2.2.2).
    pub(super) octets: usize,
    pub(super) end: End,
    pub(super) form: Form,
}

impl Compiled {
    /// Compiles a pattern; `None` if it can match no path, as when it is empty.
    pub(super) fn new(pattern: &[u8]) -> Option<Self> {
        if !matches!(pattern.first(), Some(b'/' | b'*')) {
            return None;
        }
        let (open, end) = match pattern.strip_suffix(b"$") {
            Some(open) => (open, End::Fixed),
            None => (pattern, End::Open),
        };
        let (normal, stars) = wildcards(open);
        let octets = normal.len() + stars + usize::from(end == End::Fixed);
        let form = if has_query_delimiter(&normal) {
            Form::Query
        } else {
            Form::Written
        };
        let bytes = match form {
            Form::Written => normal,
            Form::Query => query_decoded(&normal).into_owned(),
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

/// The normal form with [`ANY`] for each run of `*`, and how many stars it has left out.
fn wildcards(pattern: &[u8]) -> (Vec<u8>, usize) {
    let (mut out, mut left_out) = (Vec::with_capacity(pattern.len()), 0);
    for (nth, piece) in pattern.split(|&b| b == b'*').enumerate() {
        if nth > 0 && out.last() == Some(&ANY) {
            left_out += 1;
        } else if nth > 0 {
            out.push(ANY);
        }
        append_normal(piece, &mut out);
    }
    (out, left_out)
}

fn common_prefix(bytes: &[u8], form: Form) -> usize {
    let literal = memchr::memchr(ANY, bytes).unwrap_or(bytes.len());
    match form {
        Form::Written => literal,
        Form::Query => literal.min(memchr::memchr(b'?', bytes).unwrap_or(literal)),
    }
}

/// Whether the rest of a pattern matches the rest of a text, each without the prefix that they share.
///
/// Each piece between two stars is looked for once, from where the one before it ended: the leftmost place leaves
/// the most to the others, so nothing is tried twice and the cost is linear.
pub(super) fn matches_rest(pattern: &[u8], end: End, text: &[u8]) -> bool {
    let mut pieces = pattern.split(|&b| b == ANY);
    let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let Some(mut piece) = pieces.next() else {
        return end == End::Open || rest.is_empty();
    };
    for next in pieces {
        let Some(after) = after(rest, piece) else {
            return false;
        };
        (rest, piece) = (after, next);
    }
    match end {
        End::Open => after(rest, piece).is_some(),
        End::Fixed => rest.ends_with(piece),
    }
}

/// What follows the first place of `piece`.
fn after<'a>(text: &'a [u8], piece: &[u8]) -> Option<&'a [u8]> {
    let at = memchr::memmem::find(text, piece)?;
    text.get(at + piece.len()..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, text: &str, expected: bool) {
        let compiled = Compiled::new(pattern.as_bytes()).unwrap();
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
        assert_eq!(Compiled::new(b""), None);
        assert_eq!(Compiled::new(b"cgi-bin"), None);
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
                Compiled::new(pattern.as_bytes()).unwrap().octets,
                octets,
                "{pattern}"
            );
        }
    }
}
