//! Turns the head of an HTTP/2 request into the form of an HTTP/1.1 request, or refuses it by the
//! rules of the head reader.
//!
//! `h2` refuses, with an error of the stream or the connection: fields of a connection, `te` other
//! than `trailers`, names in upper case, characters that are not allowed in names and values,
//! pseudo-fields that are unknown, repeated, empty or follow other fields, a request without
//! `:method` or `:scheme`, bytes in `:path` and `:authority` that are not allowed in a URL, and a
//! `content-length` that is not the length of the body. What it accepts and HTTP/1 does not is
//! refused here.

use http::header::{CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Uri};

use crate::proxy::head::{HeadError, HeadLimits};

/// The bytes of a field line in HTTP/1 apart from name and value.
const LINE_OVERHEAD: usize = 4;

/// Checks a request, and adapts the fields that have another form in HTTP/1.1: `Host`, which is
/// `:authority`, and `Cookie`, which may be divided (RFC 9113 sections 8.3.1 and 8.2.3).
///
/// # Errors
/// Returns the cause for which the request is refused.
pub(super) fn normalize(parts: &mut Parts, limits: HeadLimits) -> Result<(), HeadError> {
    check_size(parts, limits)?;
    check_target(parts)?;
    check_length(&parts.headers)?;
    if parts.headers.values().any(has_outer_space) {
        return Err(HeadError::Malformed(
            "a field value that begins or ends with a space",
        ));
    }
    join_cookies(&mut parts.headers);
    if let Some(authority) = parts.uri.authority()
        && !parts.headers.contains_key(HOST)
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        parts.headers.insert(HOST, host);
    }
    Ok(())
}

/// Returns the declared length of a body.
pub(super) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Applies the limits of a head, as if it had arrived over HTTP/1.
fn check_size(parts: &Parts, limits: HeadLimits) -> Result<(), HeadError> {
    let target = target_length(&parts.uri);
    if target > limits.target {
        return Err(HeadError::TargetTooLong);
    }
    let fields = parts
        .headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + LINE_OVERHEAD);
    let bytes = fields.sum::<usize>() + parts.method.as_str().len() + target;
    if bytes > limits.bytes || parts.headers.len() > limits.fields {
        return Err(HeadError::TooLarge);
    }
    Ok(())
}

fn target_length(uri: &Uri) -> usize {
    uri.scheme_str().map_or(0, |scheme| scheme.len() + 3)
        + uri.authority().map_or(0, |host| host.as_str().len())
        + uri.path_and_query().map_or(0, |path| path.as_str().len())
}

fn check_target(parts: &Parts) -> Result<(), HeadError> {
    let authority = parts.uri.authority().map(|host| host.as_str());
    if authority.is_some_and(|authority| authority.contains('@')) {
        return Err(HeadError::Malformed("a user in :authority"));
    }
    if parts.method == Method::CONNECT {
        return Ok(());
    }
    match parts.uri.path_and_query().map(|path| path.as_str()) {
        Some(path) if path.starts_with('/') => Ok(()),
        Some("*") if parts.method == Method::OPTIONS => Ok(()),
        Some(_) => Err(HeadError::Malformed("a :path that does not begin with /")),
        None => Err(HeadError::Malformed("no :path")),
    }
}

/// Refuses a repeated length, even if both are equal, as on HTTP/1.
fn check_length(headers: &HeaderMap) -> Result<(), HeadError> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let is_number = |length: &HeaderValue| {
        let digits = length.as_bytes();
        !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
    };
    match (lengths.next(), lengths.next()) {
        (Some(_), Some(_)) => Err(HeadError::Malformed("more than one Content-Length")),
        (Some(length), None) if !is_number(length) => Err(HeadError::Malformed(
            "a Content-Length that is not a number",
        )),
        (Some(_) | None, _) => Ok(()),
    }
}

/// Returns `true` for a value with white space at an end (RFC 9113 section 8.2.1).
fn has_outer_space(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    is_space(bytes.first()) || is_space(bytes.last())
}

fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let crumbs: Vec<&[u8]> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if let Ok(cookie) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        headers.insert(COOKIE, cookie);
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const LIMITS: HeadLimits = HeadLimits {
        bytes: 256,
        fields: 4,
        target: 64,
    };

    fn normalized(method: &str, uri: &str, fields: &[(&str, &str)]) -> Result<Parts, HeadError> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        normalize(&mut parts, LIMITS).map(|()| parts)
    }

    #[test]
    fn a_request_gets_the_form_of_http_1() {
        let fields = [("cookie", "a=1"), ("accept", "*/*"), ("cookie", "b=2; c=3")];
        let parts = normalized("GET", "https://h.test:8443/a?b", &fields).unwrap();
        assert_eq!(parts.headers[HOST], "h.test:8443");
        let cookies: Vec<_> = parts.headers.get_all(COOKIE).iter().collect();
        assert_eq!(cookies, ["a=1; b=2; c=3"]);
        let named = normalized("GET", "https://h.test/", &[("host", "H.test")]).unwrap();
        assert_eq!(named.headers[HOST], "H.test");
        assert!(normalized("OPTIONS", "*", &[("host", "h.test")]).is_ok());
        assert!(normalized("CONNECT", "h.test:443", &[]).is_ok());
    }

    #[test]
    fn what_http_1_refuses_is_refused() {
        let long = format!("https://h.test/{}", "a".repeat(64));
        let large = "a".repeat(256);
        let many = [("a", "1"); 5];
        for (method, uri, fields, expected) in [
            ("GET", long.as_str(), &[][..], HeadError::TargetTooLong),
            (
                "GET",
                "https://h.test/",
                &[("a", &*large)],
                HeadError::TooLarge,
            ),
            ("GET", "https://h.test/", &many, HeadError::TooLarge),
            (
                "GET",
                "https://u:p@h.test/",
                &[],
                HeadError::Malformed("a user in :authority"),
            ),
            (
                "GET",
                "*",
                &[],
                HeadError::Malformed("a :path that does not begin with /"),
            ),
            (
                "POST",
                "https://h.test/",
                &[("content-length", "1"), ("content-length", "1")],
                HeadError::Malformed("more than one Content-Length"),
            ),
            (
                "POST",
                "https://h.test/",
                &[("content-length", "+1")],
                HeadError::Malformed("a Content-Length that is not a number"),
            ),
            (
                "GET",
                "https://h.test/",
                &[("a", "b ")],
                HeadError::Malformed("a field value that begins or ends with a space"),
            ),
        ] {
            let refused = normalized(method, uri, fields).map(|parts| parts.uri);
            assert_eq!(refused, Err(expected), "{method} {uri} {fields:?}");
        }
    }
}
