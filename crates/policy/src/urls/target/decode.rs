//! The normalized form of a URL's text.

use std::borrow::Cow;

/// Normalizes escapes: upper case, and those of unreserved characters are decoded (RFC 3986 section
/// 6.2.2). The form that `norm: true` compares.
pub fn normalize_text(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut normal = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, after_percent)) = rest.split_once('%') {
        normal.push_str(plain);
        rest = after_percent;
        let Some((byte, after)) = split_hex(after_percent) else {
            normal.push('%');
            continue;
        };
        if is_unreserved(byte) {
            normal.push(char::from(byte));
        } else {
            normal.push_str(&format!("%{byte:02X}"));
        }
        rest = after;
    }
    normal.push_str(rest);
    Cow::Owned(normal)
}

pub(super) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Splits two hex digits off the front: their value, and the text after them.
pub(super) fn split_hex(text: &str) -> Option<(u8, &str)> {
    let (digits, after) = text.split_at_checked(2)?;
    // `from_str_radix` accepts a sign, too.
    let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    let byte = u8::from_str_radix(digits, 16).ok()?;
    is_hex.then_some((byte, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_forms() {
        assert_eq!(normalize_text("/%7euser%2fx%C3"), "/~user%2Fx%C3");
        assert_eq!(normalize_text("/plain"), "/plain");
        assert_eq!(normalize_text("100%"), "100%");
        assert_eq!(normalize_text("%+1%zz"), "%+1%zz");
    }
}
