//! Options that become header fields: the names and values that are allowed, and every value that a
//! policy can choose.
//!
//! The fields are built once when a policy is loaded, so that a request only looks them up.
//! Independent of HTTP types.

use super::schema::{self, META, SET_HEADERS};

/// The maximum length of a field name, or of a part of one.
const MAX_NAME: usize = 64;
/// The maximum length of `source`.
const MAX_SOURCE: usize = 128;
/// The maximum length of the value of a `Crawl-Meta-` field.
const MAX_META_VALUE: usize = 1_024;
/// The maximum length of the value of a field that is sent to origins.
const MAX_FIELD_VALUE: usize = 4_096;

/// Fields that frame or route a message, or that belong to one connection: policies cannot change
/// them.
const RESERVED_HEADERS: [&str; 12] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "te",
    "upgrade",
    "via",
    "trailer",
    "keep-alive",
    "expect",
    "http2-settings",
    "max-forwards",
];

/// Returns the reason why a key is not allowed in an open map.
pub fn invalid_key_reason(map: &str, key: &str) -> Option<&'static str> {
    if map == SET_HEADERS {
        return invalid_name_reason(key);
    }
    let fits = is_short(key) && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    (!fits).then_some(
        "not valid at the end of a `Crawl-Meta-` header name: use letters, digits and `-`, at most 64",
    )
}

/// Returns the reason why `request_headers` may not change a field.
pub fn invalid_name_reason(name: &str) -> Option<&'static str> {
    let fits = is_short(name)
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if !fits {
        return Some("not a valid header name: use letters, digits, `-` and `_`, at most 64");
    }
    let lower = name.to_ascii_lowercase();
    if lower.starts_with("crawl-") || lower.starts_with("proxy-") {
        return Some("a header reserved for the proxy, which is never sent to origins");
    }
    RESERVED_HEADERS
        .contains(&lower.as_str())
        .then_some("the proxy sets this header itself, since it frames or routes the message")
}

/// Returns the reason why a text cannot be the value of the header field that an option sets.
pub fn invalid_value_reason(path: &str, text: &str) -> Option<&'static str> {
    let most = match schema::split_open_key(path) {
        Some((map, _)) if map.path == META => MAX_META_VALUE,
        Some(_) => MAX_FIELD_VALUE,
        None => MAX_SOURCE,
    };
    if text.len() > most {
        return Some("too long for a header value");
    }
    if text != text.trim_matches([' ', '\t']) {
        return Some("a header value must not begin or end with a space");
    }
    let fits = text.bytes().all(|b| matches!(b, b'\t' | b' '..=b'~'));
    (!fits).then_some("a header value may contain only visible ASCII characters and spaces; percent-encode others (%C3%A9)")
}

fn is_short(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_frame_or_route_are_never_changed() {
        for name in [
            "Host",
            "TE",
            "Via",
            "Proxy-Authorization",
            "Crawl-Depth",
            "Content-Length",
            "",
            "a b",
            "x:y",
        ] {
            assert!(invalid_name_reason(name).is_some(), "{name:?}");
        }
        for name in ["User-Agent", "Authorization", "X_Y-1", "Cookie"] {
            assert_eq!(invalid_name_reason(name), None, "{name:?}");
        }
        assert_eq!(invalid_key_reason(META, "Team-1"), None);
        assert!(invalid_key_reason(META, "a_b").is_some());
    }

    #[test]
    fn values_are_one_line_of_ascii() {
        for text in ["", "a b\tc", "~!\"\\"] {
            assert_eq!(invalid_value_reason("meta.x", text), None, "{text:?}");
        }
        for text in ["a\r\nb", "a\0", "é", " a", "a\t", "\u{7f}"] {
            assert!(invalid_value_reason("meta.x", text).is_some(), "{text:?}");
        }
        for (path, most) in [
            ("source", MAX_SOURCE),
            ("meta.x", MAX_META_VALUE),
            ("request_headers.set.x", MAX_FIELD_VALUE),
        ] {
            assert_eq!(
                invalid_value_reason(path, &"x".repeat(most)),
                None,
                "{path}"
            );
            assert!(
                invalid_value_reason(path, &"x".repeat(most + 1)).is_some(),
                "{path}"
            );
        }
    }
}
