//! The normal form in which rules and URLs are compared (RFC 9309 section 2.2.2). It is not sent to
//! origins.

use std::borrow::Cow;

/// The normal form of an unescaped byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PlainEncoding {
    Unchanged,
    Escaped,
}

/// The normal form of an escaped byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EscapeEncoding {
    Decoded,
    Unchanged,
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Returns the normal form of a path and query: escapes are in upper case, those of unreserved
/// characters and of `*` and `$` are decoded, and bytes that are not allowed in URLs are escaped.
///
/// `*` and `$` are decoded because a rule writes them as `%2A` and `%24` to mean the literal
/// characters (section 2.2.3). The result is borrowed if the text is in normal form already, which
/// is the common case.
pub fn normal_form(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = text
        .iter()
        .position(|&b| b == b'%' || plain_encoding(b) == PlainEncoding::Escaped)
    else {
        return Cow::Borrowed(text);
    };
    let (clean, rest) = text.split_at_checked(first).unwrap_or((text, &[]));
    let mut out = Vec::with_capacity(text.len() + 8);
    out.extend_from_slice(clean);
    append_normal(rest, &mut out);
    Cow::Owned(out)
}

/// Appends the normal form of a text.
pub(super) fn append_normal(mut text: &[u8], out: &mut Vec<u8>) {
    while let Some((&byte, rest)) = text.split_first() {
        text = match read_escape(byte, rest) {
            Some((value, after)) => {
                append_escape(value, out);
                after
            }
            None => {
                append_plain(byte, out);
                rest
            }
        };
    }
}

/// Decodes `:`, `/`, `@`, `[` and `]` after the first `?` of a normal form, where they delimit
/// nothing.
///
/// The result is borrowed if nothing changes.
pub(super) fn decode_query_delimiters(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(query) = memchr::memchr(b'?', text) else {
        return Cow::Borrowed(text);
    };
    let (path, query) = text.split_at_checked(query).unwrap_or((text, &[]));
    if memchr::memchr(b'%', query).is_none() {
        return Cow::Borrowed(text);
    }
    let mut out = path.to_vec();
    append_query_decoded(query, &mut out);
    Cow::Owned(out)
}

fn append_query_decoded(mut text: &[u8], out: &mut Vec<u8>) {
    while let Some((&byte, rest)) = text.split_first() {
        text = match read_escape(byte, rest) {
            Some((value, after)) if is_query_delimiter(value) => {
                out.push(value);
                after
            }
            Some(_) | None => {
                out.push(byte);
                rest
            }
        };
    }
}

/// Returns `true` if a normal form contains one of the characters of [`decode_query_delimiters`]
/// after a `?`, escaped or not.
pub(super) fn has_query_delimiter(text: &[u8]) -> bool {
    let Some(query) = memchr::memchr(b'?', text).and_then(|at| text.get(at..)) else {
        return false;
    };
    query.iter().any(|&b| is_query_delimiter(b))
        || query.windows(3).any(|escape| match escape {
            [b, rest @ ..] => {
                read_escape(*b, rest).is_some_and(|(value, _)| is_query_delimiter(value))
            }
            [] => false,
        })
}

fn is_query_delimiter(byte: u8) -> bool {
    matches!(byte, b':' | b'/' | b'@' | b'[' | b']')
}

fn append_plain(byte: u8, out: &mut Vec<u8>) {
    match plain_encoding(byte) {
        PlainEncoding::Unchanged => out.push(byte),
        PlainEncoding::Escaped => append_hex(byte, out),
    }
}

fn append_escape(value: u8, out: &mut Vec<u8>) {
    match escape_encoding(value) {
        EscapeEncoding::Decoded => out.push(value),
        EscapeEncoding::Unchanged => append_hex(value, out),
    }
}

fn append_hex(value: u8, out: &mut Vec<u8>) {
    out.extend([b'%', hex_digit(value >> 4), hex_digit(value & 0xF)]);
}

fn hex_digit(nibble: u8) -> u8 {
    HEX.get(usize::from(nibble)).copied().unwrap_or(b'0')
}

/// A stray `%` is unchanged, so that it matches itself.
fn plain_encoding(byte: u8) -> PlainEncoding {
    match byte {
        b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => PlainEncoding::Escaped,
        0x21..=0x7E => PlainEncoding::Unchanged,
        _ => PlainEncoding::Escaped,
    }
}

fn escape_encoding(value: u8) -> EscapeEncoding {
    match value {
        b'-' | b'.' | b'_' | b'~' | b'*' | b'$' => EscapeEncoding::Decoded,
        _ if value.is_ascii_alphanumeric() => EscapeEncoding::Decoded,
        _ => EscapeEncoding::Unchanged,
    }
}

/// Returns the byte that `%XX` encodes, and the text after it.
fn read_escape(byte: u8, rest: &[u8]) -> Option<(u8, &[u8])> {
    let (b'%', [high, low, after @ ..]) = (byte, rest) else {
        return None;
    };
    Some((hex_value(*high)? << 4 | hex_value(*low)?, after))
}

fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|n| u8::try_from(n).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_forms() {
        for (text, normal) in [
            ("/a/b?c=d:e", "/a/b?c=d:e"),
            ("/%62%61%7A", "/baz"),
            ("/%7e%2a%24%2f", "/~*$%2F"),
            ("/á", "/%C3%A1"),
            ("/a b|<>", "/a%20b%7C%3C%3E"),
            ("/100%/%4/%zz%", "/100%/%4/%zz%"),
            ("/%e3%83%84", "/%E3%83%84"),
        ] {
            assert_eq!(normal_form(text.as_bytes()), normal.as_bytes(), "{text}");
        }
        assert!(matches!(normal_form(b"/a/b?c=d"), Cow::Borrowed(_)));
    }

    #[test]
    fn delimiters_of_a_query() {
        for (text, decoded) in [
            ("/a%3A?b=%3A%2F%26", "/a%3A?b=:/%26"),
            ("/a%2F", "/a%2F"),
            ("/a?b=:", "/a?b=:"),
        ] {
            assert_eq!(
                decode_query_delimiters(text.as_bytes()),
                decoded.as_bytes(),
                "{text}"
            );
        }
        for (text, has) in [
            ("/a:?b", false),
            ("/a?b:", true),
            ("/a?%3A", true),
            ("/a?%26", false),
            ("/a", false),
        ] {
            assert_eq!(has_query_delimiter(text.as_bytes()), has, "{text}");
        }
    }
}
