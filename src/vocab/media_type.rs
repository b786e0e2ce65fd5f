//! The type and subtype in a `Content-Type`, read as tolerantly as browsers do (Fetch, "extract a MIME type").

use std::borrow::Cow;

/// Type and subtype in lower case, without parameters; empty if there is no valid one.
///
/// Real servers send `text/html;charset=x␠`, `text/html ;…` and `text/html, text/html`: a rule on the type must see
/// `text/html` in all of them. Of several values the last valid one counts, as it does for browsers. Nothing is
/// allocated if the text is in lower case already.
pub fn essence(value: &str) -> Cow<'_, str> {
    let found = members(value).filter_map(valid_essence).last().unwrap_or("");
    if found.bytes().any(|b| b.is_ascii_uppercase()) {
        Cow::Owned(found.to_ascii_lowercase())
    } else {
        Cow::Borrowed(found)
    }
}

/// The values between commas; those inside a quoted parameter part nothing.
fn members(value: &str) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    value.split(move |c: char| {
        let parts = c == ',' && !quoted;
        quoted ^= c == '"' && !escaped;
        escaped = c == '\\' && quoted && !escaped;
        parts
    })
}

fn valid_essence(value: &str) -> Option<&str> {
    let essence = value.split(';').next()?.trim_matches([' ', '\t', '\r', '\n']);
    let (kind, subtype) = essence.split_once('/')?;
    (is_token(kind) && is_token(subtype) && essence != "*/*").then_some(essence)
}

/// RFC 9110 section 5.6.2.
fn is_token(text: &str) -> bool {
    let is_token_byte = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(is_token_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messy_values_still_show_their_type() {
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
            ("", ""),
        ] {
            assert_eq!(essence(value), expected, "{value:?}");
        }
    }
}
