//! Other forms of a URL's text: normalised, and as read by a server that decodes too early.

use std::borrow::Cow;

/// Normalises escapes: upper case, and those of unreserved characters are decoded (RFC 3986 section
/// 6.2.2). The form that `norm: true` compares.
pub fn normalise_text(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut normal = String::with_capacity(text.len());
    for_each_piece(text, |piece| match piece {
        EscapePiece::Plain(plain) => normal.push_str(plain),
        EscapePiece::Escape(byte, _) if is_unreserved(byte) => normal.push(char::from(byte)),
        EscapePiece::Escape(_, escape) => normal.push_str(&escape.to_ascii_uppercase()),
    });
    Cow::Owned(normal)
}

/// Returns the path as read by a server that decodes before it resolves; `None` if that does not
/// change it.
pub(super) fn decode_leniently(path: &str) -> Option<String> {
    if !path.contains('%') {
        return None;
    }
    let mut changes = false;
    for_each_escape(path, |byte| changes |= is_decoded_early(byte));
    if !changes {
        return None;
    }
    let mut decoded = String::with_capacity(path.len());
    for_each_piece(path, |piece| match piece {
        EscapePiece::Escape(b'\\', _) => decoded.push('/'),
        EscapePiece::Escape(byte, _) if is_decoded_early(byte) => decoded.push(char::from(byte)),
        EscapePiece::Plain(text) | EscapePiece::Escape(_, text) => decoded.push_str(text),
    });
    Some(if decoded.contains("/.") {
        remove_dot_segments(&decoded)
    } else {
        decoded
    })
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn is_decoded_early(byte: u8) -> bool {
    is_unreserved(byte) || matches!(byte, b'/' | b'\\' | b';' | b'%' | 0)
}

fn for_each_escape(text: &str, mut visit: impl FnMut(u8)) {
    for_each_piece(text, |piece| match piece {
        EscapePiece::Plain(_) => {}
        EscapePiece::Escape(byte, _) => visit(byte),
    });
}

enum EscapePiece<'a> {
    Plain(&'a str),
    /// The byte and its escape.
    Escape(u8, &'a str),
}

fn for_each_piece(text: &str, mut visit: impl FnMut(EscapePiece<'_>)) {
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        let (plain, from) = rest.split_at_checked(at).unwrap_or((rest, ""));
        visit(EscapePiece::Plain(plain));
        let escape = from.get(..3).and_then(|escape| {
            let byte = u8::from_str_radix(escape.get(1..)?, 16).ok()?;
            // `from_str_radix` accepts a sign, which is not a digit in a URL.
            escape
                .as_bytes()
                .get(1)?
                .is_ascii_hexdigit()
                .then_some((byte, escape))
        });
        let used = match escape {
            Some((byte, escape)) => {
                visit(EscapePiece::Escape(byte, escape));
                3
            }
            None => {
                visit(EscapePiece::Plain("%"));
                1
            }
        };
        rest = from.get(used..).unwrap_or("");
    }
    visit(EscapePiece::Plain(rest));
}

/// Removes dot segments by RFC 3986 section 5.2.4.
fn remove_dot_segments(path: &str) -> String {
    let mut resolved: Vec<&str> = Vec::new();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let last = segments.len().saturating_sub(1);
    for (at, segment) in segments.into_iter().enumerate() {
        match segment {
            "." => {}
            ".." => {
                resolved.pop();
            }
            _ => resolved.push(segment),
        }
        if at == last && matches!(segment, "." | "..") {
            resolved.push("");
        }
    }
    format!("/{}", resolved.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_decoding() {
        for (path, decoded) in [
            ("/a%2f..%2fb", Some("/b")),
            ("/%63gi-bin/x", Some("/cgi-bin/x")),
            ("/a%5cb", Some("/a/b")),
            ("/a%2541", Some("/a%41")),
            ("/a%3bx", Some("/a;x")),
            ("/a%2F..", Some("/a/..").map(|_| "/")),
            ("/a%20b", None),
            ("/plain", None),
            ("/bad%zz%2", None),
            ("/%+1", None),
        ] {
            assert_eq!(decode_leniently(path).as_deref(), decoded, "{path}");
        }
    }

    #[test]
    fn normal_forms() {
        assert_eq!(normalise_text("/%7euser%2fx%C3"), "/~user%2Fx%C3");
        assert_eq!(normalise_text("/plain"), "/plain");
        assert_eq!(normalise_text("100%"), "100%");
    }
}
