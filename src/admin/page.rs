//! The forms of the admin listener's answers: a page, or a problem document (RFC 9457).

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use http_body_util::Full;

pub(super) const PLAIN: &str = "text/plain; charset=utf-8";
const PROBLEM: &str = "application/problem+json";

/// A page that nobody stores.
pub(super) fn page(status: StatusCode, content_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(text));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// Why there is no page. `detail` is a text of ours; nothing of the request is repeated.
pub(super) fn problem(status: StatusCode, detail: &'static str) -> Response<Full<Bytes>> {
    let document = serde_json::json!({
        "type": "about:blank",
        "title": status.canonical_reason().unwrap_or_default(),
        "status": status.as_u16(),
        "detail": detail,
    });
    page(status, PROBLEM, format!("{document}\n"))
}

/// 405 with what would be allowed (RFC 9110 section 15.5.6).
pub(super) fn only_get() -> Response<Full<Bytes>> {
    let mut answer = problem(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed here");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    answer
}
