//! Product tokens: the names by which crawlers find their groups in a robots.txt. Not the whole
//! `User-Agent`.

/// Returns the product token at the beginning of a text: letters, digits, `-` and `_`; empty if
/// the text begins with another character.
///
/// RFC 9309 section 2.2.1 does not allow digits, but real crawlers (`MJ12bot`, `360Spider`) and
/// files use them.
pub fn product_token(text: &str) -> &str {
    let end = text
        .bytes()
        .position(|b| !is_token_byte(b))
        .unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// Returns `true` if the whole text is a product token.
pub fn is_product_token(text: &str) -> bool {
    !text.is_empty() && product_token(text) == text
}

/// Returns the length of the token at the beginning of a line's value.
pub(super) fn token_length(value: &[u8]) -> usize {
    value
        .iter()
        .position(|&b| !is_token_byte(b))
        .unwrap_or(value.len())
}

/// Returns `true` for `*`, possibly followed by white space and other text: the group for all other
/// crawlers.
pub(super) fn is_wildcard_agent(value: &[u8]) -> bool {
    match value {
        [b'*'] => true,
        [b'*', next, ..] => next.is_ascii_whitespace(),
        _ => false,
    }
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens() {
        for (text, token) in [
            ("MJ12bot/v1.4.8 (http://mj12bot.com/)", "MJ12bot"),
            ("Foo_Bar-x y", "Foo_Bar-x"),
            ("360Spider", "360Spider"),
            ("ツ", ""),
            ("", ""),
        ] {
            assert_eq!(product_token(text), token, "{text}");
        }
        assert!(
            is_wildcard_agent(b"*")
                && is_wildcard_agent(b"* all")
                && !is_wildcard_agent(b"*bot")
                && !is_wildcard_agent(b"")
        );
    }
}
