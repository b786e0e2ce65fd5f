//! Readings of a URL by servers that decode and resolve more than RFC 3986 allows.
//!
//! The proxy sends the canonical form. A lax server may answer with another resource than the one
//! that the policy was asked about; these forms name that resource.

use crate::model::words::words;

use super::decode::{is_unreserved, split_hex};

words! {
    /// The ways in which lax servers read URLs, in the order in which they are evaluated.
    pub enum LaxReading {
        /// Escapes are decoded, slashes merged and dot segments resolved, in this order: nginx,
        /// Apache.
        Decoded = "decoded",
        /// Path parameters (`;…`) are removed before that: servlet containers.
        WithoutParameters = "without_parameters",
        /// Escapes of escapes are decoded, too: two servers in a row of which both decode.
        DecodedTwice = "decoded_twice",
    }
}

impl LaxReading {
    /// The servers that read URLs in this way, for messages.
    pub fn servers(self) -> &'static str {
        match self {
            Self::Decoded => "servers that decode escapes and merge slashes",
            Self::WithoutParameters => "servers that remove path parameters (`;…`)",
            Self::DecodedTwice => "servers that decode escapes twice",
        }
    }

    /// Returns a canonical path in this reading.
    pub(super) fn path(self, path: &str) -> String {
        let decoded = match self {
            Self::Decoded => decode(path, DecodingDepth::Once, is_decoded_in_path),
            Self::WithoutParameters => {
                let path = remove_parameters(path);
                decode(&path, DecodingDepth::Once, is_decoded_in_path)
            }
            Self::DecodedTwice => decode_twice(path, is_decoded_in_path),
        };
        // A C string ends at NUL. A backslash separates segments on Windows.
        let end = decoded.find('\0').unwrap_or(decoded.len());
        let path = decoded.get(..end).unwrap_or("").replace('\\', "/");
        remove_dot_segments(&merge_slashes(&path))
    }

    /// Returns a canonical query in this reading. Reserved characters stay escaped, since decoded
    /// they would separate other parameters.
    pub(super) fn query(self, query: &str) -> String {
        match self {
            Self::Decoded | Self::WithoutParameters => {
                decode(query, DecodingDepth::Once, is_unreserved)
            }
            Self::DecodedTwice => decode_twice(query, is_unreserved),
        }
    }
}

/// Returns `true` if at least one reading of a URL differs from its canonical path and query.
pub(super) fn has_readings(path: &str, query: &str) -> bool {
    path.contains("//")
        || path.contains(';')
        || has_decodable_escape(path, is_decoded_in_path)
        || has_decodable_escape(query, is_unreserved)
}

fn has_decodable_escape(text: &str, is_decoded: fn(u8) -> bool) -> bool {
    text.match_indices('%').any(|(at, _)| {
        let escape = text.get(at..).unwrap_or("");
        split_escape(escape, DecodingDepth::Twice, is_decoded).is_some()
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DecodingDepth {
    /// `%41`
    Once,
    /// `%41` and `%2541`
    Twice,
}

/// Decodes escapes of escapes, in the order in which two servers would: `%25%34%31`, too.
fn decode_twice(text: &str, is_decoded: fn(u8) -> bool) -> String {
    let once = decode(text, DecodingDepth::Twice, is_decoded);
    decode(&once, DecodingDepth::Twice, is_decoded)
}

/// Decodes the escapes of some bytes, which are all ASCII.
fn decode(text: &str, depth: DecodingDepth, is_decoded: fn(u8) -> bool) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, _)) = rest.split_once('%') {
        decoded.push_str(plain);
        let escape = rest.get(plain.len()..).unwrap_or("");
        if let Some((byte, after)) = split_escape(escape, depth, is_decoded) {
            decoded.push(char::from(byte));
            rest = after;
        } else {
            decoded.push('%');
            rest = escape.get(1..).unwrap_or("");
        }
    }
    decoded.push_str(rest);
    decoded
}

/// Splits an escape that is to be decoded off the front: the byte, and the text after it.
fn split_escape(
    text: &str,
    depth: DecodingDepth,
    is_decoded: fn(u8) -> bool,
) -> Option<(u8, &str)> {
    let (byte, after) = split_hex(text.strip_prefix('%')?)?;
    if is_decoded(byte) {
        return Some((byte, after));
    }
    let is_escaped_again = byte == b'%' && depth == DecodingDepth::Twice;
    split_hex(after).filter(|(byte, _)| is_escaped_again && is_decoded(*byte))
}

/// Returns `true` for what a path may contain unescaped, and for separators. The rest of ASCII is
/// escaped in every form of a path, and so it is in policies.
fn is_decoded_in_path(byte: u8) -> bool {
    match byte {
        b'\\' | 0 => true,
        b'"' | b'#' | b'%' | b'<' | b'>' | b'?' | b'`' | b'{' | b'}' => false,
        _ => byte.is_ascii_graphic(),
    }
}

/// Removes what follows `;` in each segment. The `;` may be escaped.
fn remove_parameters(path: &str) -> String {
    let path = path.replace("%3B", ";").replace("%3b", ";");
    let segments: Vec<&str> = path
        .split('/')
        .map(|segment| segment.split(';').next().unwrap_or(segment))
        .collect();
    segments.join("/")
}

fn merge_slashes(path: &str) -> String {
    let mut merged = String::with_capacity(path.len());
    for c in path.chars() {
        if c != '/' || !merged.ends_with('/') {
            merged.push(c);
        }
    }
    merged
}

/// Removes dot segments by RFC 3986 section 5.2.4.
fn remove_dot_segments(path: &str) -> String {
    let mut resolved: Vec<&str> = Vec::new();
    let mut ends_in_dots = false;
    for segment in path.split('/').skip(1) {
        ends_in_dots = matches!(segment, "." | "..");
        match segment {
            "." => {}
            ".." => {
                resolved.pop();
            }
            _ => resolved.push(segment),
        }
    }
    if ends_in_dots {
        resolved.push("");
    }
    format!("/{}", resolved.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_as_lax_servers_read_them() {
        // The path; its readings, each empty if it is that path.
        for (path, decoded, without_parameters, decoded_twice) in [
            ("/plain/a%20b", "", "", ""),
            ("/bad%zz%2", "", "", ""),
            ("/%+1", "", "", ""),
            ("/%63gi-bin/x", "/cgi-bin/x", "/cgi-bin/x", "/cgi-bin/x"),
            ("/%40me/$%24", "/@me/$$", "/@me/$$", "/@me/$$"),
            ("/a%2f..%2Fb", "/b", "/b", "/b"),
            ("/a%2F..", "/", "/", "/"),
            ("/a%5cb", "/a/b", "/a/b", "/a/b"),
            ("//cgi-bin//x", "/cgi-bin/x", "/cgi-bin/x", "/cgi-bin/x"),
            ("/%2e//x", "/x", "/x", "/x"),
            ("/a/%2e%2e//x", "/x", "/x", "/x"),
            ("/a.zip%00.html", "/a.zip", "/a.zip", "/a.zip"),
            ("/a;b=c/x", "", "/a/x", ""),
            ("/a/..;/x", "", "/x", ""),
            ("/.;/x", "", "/x", ""),
            ("/a;x%2Fy/b", "/a;x/y/b", "/a/b", "/a;x/y/b"),
            ("/a%3bx", "/a;x", "/a", "/a;x"),
            ("/a%2541", "", "", "/aA"),
            ("/%252e%252e/x", "", "", "/x"),
            ("/%25252e/x", "", "", ""),
            ("/%25%34%31", "/%2541", "/%2541", "/A"),
            ("/%3%35", "/%35", "/%35", "/5"),
            ("/%3Fa%23", "", "", ""),
        ] {
            let expected = [decoded, without_parameters, decoded_twice];
            for (reading, expected) in LaxReading::ALL.into_iter().zip(expected) {
                let expected = if expected.is_empty() { path } else { expected };
                assert_eq!(reading.path(path), expected, "{path} {reading:?}");
            }
            let differs = expected.iter().any(|reading| !reading.is_empty());
            assert_eq!(has_readings(path, ""), differs, "{path}");
        }
    }

    #[test]
    fn queries_as_lax_servers_read_them() {
        for (query, decoded, decoded_twice) in [
            ("a=b%20c", "", ""),
            ("%73id=1", "sid=1", "sid=1"),
            ("%2573id=1", "", "sid=1"),
            ("a%3Db%26c", "", ""),
            ("u=http%253A%252F%252Fx", "", ""),
        ] {
            let once = if decoded.is_empty() { query } else { decoded };
            let twice = if decoded_twice.is_empty() {
                query
            } else {
                decoded_twice
            };
            assert_eq!(LaxReading::Decoded.query(query), once, "{query}");
            assert_eq!(LaxReading::WithoutParameters.query(query), once, "{query}");
            assert_eq!(LaxReading::DecodedTwice.query(query), twice, "{query}");
            assert_eq!(has_readings("/", query), query != twice, "{query}");
        }
    }
}
