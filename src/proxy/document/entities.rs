//! Character references in titles and attributes: numeric ones, and the named ones that are common
//! there.
//!
//! HTML defines 2,231 names. References that are not in this list are left as written.

use std::borrow::Cow;

const NAMED: [(&str, &str); 24] = [
    ("amp", "&"),
    ("lt", "<"),
    ("gt", ">"),
    ("quot", "\""),
    ("apos", "'"),
    ("nbsp", "\u{a0}"),
    ("ndash", "\u{2013}"),
    ("mdash", "\u{2014}"),
    ("hellip", "\u{2026}"),
    ("laquo", "\u{ab}"),
    ("raquo", "\u{bb}"),
    ("lsquo", "\u{2018}"),
    ("rsquo", "\u{2019}"),
    ("ldquo", "\u{201c}"),
    ("rdquo", "\u{201d}"),
    ("middot", "\u{b7}"),
    ("bull", "\u{2022}"),
    ("copy", "\u{a9}"),
    ("reg", "\u{ae}"),
    ("auml", "\u{e4}"),
    ("ouml", "\u{f6}"),
    ("uuml", "\u{fc}"),
    ("szlig", "\u{df}"),
    ("eacute", "\u{e9}"),
];

/// Resolves the character references in a text.
pub(super) fn decode_references(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        out.push_str(before);
        match parse_reference(after) {
            Some((character, rest_after)) => {
                out.push_str(&character);
                rest = rest_after;
            }
            None => {
                out.push('&');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Parses the text after an ampersand: returns the character, and the text after the semicolon.
fn parse_reference(after: &str) -> Option<(Cow<'static, str>, &str)> {
    let (name, rest) = after.split_once(';').filter(|(name, _)| name.len() <= 10)?;
    if let Some(number) = name.strip_prefix('#') {
        let hex = number.strip_prefix(['x', 'X']);
        let code = hex
            .map_or_else(|| number.parse(), |hex| u32::from_str_radix(hex, 16))
            .ok()?;
        let character = char::from_u32(code)
            .filter(|c| *c != '\0')
            .unwrap_or('\u{fffd}');
        return Some((character.to_string().into(), rest));
    }
    let (_, character) = NAMED.iter().find(|(known, _)| *known == name)?;
    Some(((*character).into(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_and_others_stay() {
        for (text, expected) in [
            ("plain", "plain"),
            ("a &amp; b", "a & b"),
            (
                "404 &#8211; not&nbsp;found &#x21;",
                "404 \u{2013} not\u{a0}found !",
            ),
            ("?a=1&b=2&amp;c=3", "?a=1&b=2&c=3"),
            (
                "&unknown; &; & &#; &#xzz; &#0;",
                "&unknown; &; & &#; &#xzz; \u{fffd}",
            ),
            ("&amp;lt;", "&lt;"),
        ] {
            assert_eq!(decode_references(text), expected, "{text}");
        }
    }
}
