//! The type and subtype of a `Content-Type`, parsed as leniently as browsers do (Fetch, "extract a
//! MIME type").

use std::borrow::Cow;

use memchr::memchr;

/// Returns the type and subtype in lower case, without parameters; empty if there is no valid one.
///
/// Real servers send `text/html;charset=x␠`, `text/html ;…` and `text/html, text/html`: a rule on
/// the type must see `text/html` in all of them. Of several values the last valid one counts, as in
/// browsers. Does not allocate if the text is already in lower case.
pub fn essence(value: &str) -> Cow<'_, str> {
    // Nearly all fields have a single value.
    let found = match memchr(b',', value.as_bytes()) {
        None => valid_essence(value),
        Some(_) => split_values(value).filter_map(valid_essence).last(),
    };
    let found = found.unwrap_or("");
    if found.bytes().any(|b| b.is_ascii_uppercase()) {
        Cow::Owned(found.to_ascii_lowercase())
    } else {
        Cow::Borrowed(found)
    }
}

/// Splits at commas outside quoted parameters.
fn split_values(value: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let mut escaped = false;
    value.split(move |c: char| {
        let separator = c == ',' && !quoted;
        quoted ^= c == '"' && !escaped;
        escaped = c == '\\' && quoted && !escaped;
        separator
    })
}

fn valid_essence(value: &str) -> Option<&str> {
    let parameters = memchr(b';', value.as_bytes()).unwrap_or(value.len());
    let essence = value
        .get(..parameters)?
        .trim_matches([' ', '\t', '\r', '\n']);
    let slash = memchr(b'/', essence.as_bytes())?;
    let kind = essence.get(..slash)?;
    let subtype = essence.get(slash + 1..)?;
    (is_token(kind) && is_token(subtype) && essence != "*/*").then_some(essence)
}

/// Returns `true` for a token of RFC 9110 section 5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| TOKEN_BYTES.get(usize::from(b)).is_some_and(|is| *is))
}

const TOKEN_BYTES: [bool; 256] = token_bytes();

#[allow(
    clippy::indexing_slicing,
    reason = "an index out of bounds here would not compile"
)]
const fn token_bytes() -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut others: &[u8] = b"!#$%&'*+-.^_`|~";
    while let [first, rest @ ..] = others {
        table[*first as usize] = true;
        others = rest;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_values_are_parsed_leniently() {
        for (value, expected) in [
            ("text/html", "text/html"),
            ("Text/HTML; charset=utf-8 ", "text/html"),
            ("text/html ;charset=x", "text/html"),
            (" text/html", "text/html"),
            ("text/html, text/html", "text/html"),
            ("bogus, image/png", "image/png"),
            ("text/html, image/png", "image/png"),
            ("image/png, bogus", "image/png"),
            ("image/png, */*", "image/png"),
            ("text/html; x=\"a,image/png,b\"", "text/html"),
            ("text/html;;a=b", "text/html"),
            ("text", ""),
            ("/html", ""),
            ("text/h tml", ""),
            ("a!#$%&'*+-.^_`|~z/Z9", "a!#$%&'*+-.^_`|~z/z9"),
            ("a(/b", ""),
            ("a/b\u{e9}", ""),
            ("a/b/c", ""),
            ("", ""),
        ] {
            assert_eq!(essence(value), expected, "{value:?}");
        }
    }
}
