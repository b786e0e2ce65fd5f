//! Determines the character encoding of a document as in the HTML standard, from its first 1,024
//! bytes.

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252, X_USER_DEFINED};
use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// The number of bytes within which a document must declare its encoding (HTML, section 13.2.3.2).
pub(super) const PRESCAN: usize = 1024;

/// Returns the encoding that `Content-Type` names.
pub(super) fn from_content_type(headers: &HeaderMap) -> Option<&'static Encoding> {
    let value = headers.get_all(CONTENT_TYPE).iter().next_back()?;
    let value = String::from_utf8_lossy(value.as_bytes());
    let named = value.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("charset")
            .then(|| value.trim().trim_matches(['"', '\'']).to_owned())
    });
    Encoding::for_label(named?.as_bytes())
}

/// Determines the encoding: from a byte order mark; else `declared`, the one that `Content-Type`
/// names; else from a `<meta>` element; else UTF-8.
pub(super) fn detect(first: &[u8], declared: Option<&'static Encoding>) -> &'static Encoding {
    let by_mark = Encoding::for_bom(first).map(|(encoding, _)| encoding);
    by_mark
        .or(declared)
        .or_else(|| from_meta(first))
        .unwrap_or(UTF_8)
}

/// Returns the encoding of the first `<meta>` that names a known one. Comments are skipped.
fn from_meta(first: &[u8]) -> Option<&'static Encoding> {
    let mut rest = first.get(..PRESCAN).unwrap_or(first);
    while let Some(at) = memchr::memchr(b'<', rest) {
        rest = rest.get(at..)?;
        if rest.starts_with(b"<!--") {
            let end = memchr::memmem::find(rest.get(2..)?, b"-->")?;
            rest = rest.get(2 + end + 3..)?;
            continue;
        }
        let end = memchr::memchr(b'>', rest).unwrap_or(rest.len());
        let tag = rest.get(..end)?;
        let is_meta = tag
            .get(1..5)
            .is_some_and(|name| name.eq_ignore_ascii_case(b"meta"));
        if let Some(encoding) = tag.get(5..).filter(|_| is_meta).and_then(parse_charset) {
            return Some(encoding);
        }
        rest = rest.get(1..)?;
    }
    None
}

/// Parses `charset=…` anywhere in a tag: as an attribute, or within the `content` attribute for
/// `http-equiv`.
fn parse_charset(tag: &[u8]) -> Option<&'static Encoding> {
    let lower = tag.to_ascii_lowercase();
    let at = memchr::memmem::find(&lower, b"charset")? + b"charset".len();
    let value = lower
        .get(at..)?
        .trim_ascii_start()
        .strip_prefix(b"=")?
        .trim_ascii_start();
    let value = value
        .strip_prefix(b"\"")
        .or_else(|| value.strip_prefix(b"'"))
        .unwrap_or(value);
    let label = value
        .split(|b| matches!(b, b'"' | b'\'' | b';' | b'/') || b.is_ascii_whitespace())
        .next()?;
    let encoding = Encoding::for_label(label)?;
    // A document in which ASCII is readable uses neither of the first two.
    Some(if encoding == UTF_16BE || encoding == UTF_16LE {
        UTF_8
    } else if encoding == X_USER_DEFINED {
        WINDOWS_1252
    } else {
        encoding
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(content_type: &str, first: &[u8]) -> &'static str {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
        detect(first, from_content_type(&headers)).name()
    }

    #[test]
    fn charsets_are_found_in_their_order() {
        for (content_type, first, name) in [
            ("text/html", &b"<title>x"[..], "UTF-8"),
            (
                "text/html; charset=ISO-8859-2",
                b"<meta charset=utf-8>",
                "ISO-8859-2",
            ),
            ("text/html; Charset=\"KOI8-R\"", b"", "KOI8-R"),
            (
                "text/html; charset=nonsense",
                b"<meta charset=shift_jis>",
                "Shift_JIS",
            ),
            ("text/html; charset=koi8-r", b"\xef\xbb\xbf<p>", "UTF-8"),
            ("text/html", b"\xff\xfe<\0p\0", "UTF-16LE"),
            (
                "text/html",
                b"<META name=x><meta CHARSET = 'koi8-r' >",
                "KOI8-R",
            ),
            (
                "text/html",
                b"<meta http-equiv=Content-Type content=\"text/html; charset=windows-1251\">",
                "windows-1251",
            ),
            (
                "text/html",
                b"<!-- <meta charset=koi8-r> --><meta charset=utf-16>",
                "UTF-8",
            ),
            ("text/html", b"<!-- <meta charset=koi8-r>", "UTF-8"),
            ("text/html", b"<p title='charset=koi8-r'>", "UTF-8"),
        ] {
            assert_eq!(found(content_type, first), name, "{content_type} {first:?}");
        }
    }
}
