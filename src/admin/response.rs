//! The responses of the admin listener: a document, or a problem document (RFC 9457).

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::Value as Json;

pub(super) const TEXT_PLAIN: &str = "text/plain; charset=utf-8";
const PROBLEM_JSON: &str = "application/problem+json";

/// Returns a document that caches must not store.
pub(super) fn text_response(
    status: StatusCode,
    content_type: &'static str,
    text: String,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Returns a JSON document of the API.
pub(super) fn json(status: StatusCode, document: &Json) -> Response<Full<Bytes>> {
    text_response(status, "application/json", format!("{document}\n"))
}

/// Returns a 302 response that leads to another path.
pub(super) fn redirect(path: &'static str) -> Response<Full<Bytes>> {
    let mut response = text_response(StatusCode::FOUND, TEXT_PLAIN, format!("{path}\n"));
    response
        .headers_mut()
        .insert(LOCATION, HeaderValue::from_static(path));
    response
}

/// Returns a problem document. `detail` is a constant, so that it cannot repeat anything of the request.
pub(super) fn problem(status: StatusCode, detail: &'static str) -> Response<Full<Bytes>> {
    problem_with(status, &serde_json::json!({ "detail": detail }))
}

/// Returns a 500 response for a bug in this program.
pub(super) fn internal_error() -> Response<Full<Bytes>> {
    problem(
        StatusCode::INTERNAL_SERVER_ERROR,
        "this request failed because of a bug in crawlgate; please report it",
    )
}

/// Returns a 503 response for a request of the API above the limit.
pub(super) fn too_many_requests() -> Response<Full<Bytes>> {
    let mut response = problem(
        StatusCode::SERVICE_UNAVAILABLE,
        "too many requests of this client, or of all clients, are in progress on the admin listener",
    );
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Returns a problem document with these additional members.
pub(super) fn problem_with(status: StatusCode, members: &Json) -> Response<Full<Bytes>> {
    let mut document = serde_json::json!({
        "type": "about:blank",
        "title": status.canonical_reason().unwrap_or_default(),
        "status": status.as_u16(),
    });
    extend(&mut document, members);
    text_response(status, PROBLEM_JSON, format!("{document}\n"))
}

/// Adds the members of one object to another.
pub(super) fn extend(document: &mut Json, members: &Json) {
    if let (Some(document), Some(members)) = (document.as_object_mut(), members.as_object()) {
        document.extend(members.clone());
    }
}

/// Returns a 405 response that lists the allowed methods (RFC 9110 section 15.5.6).
pub(super) fn method_not_allowed(allowed: &'static str) -> Response<Full<Bytes>> {
    let mut response = problem(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path does not support the method; see Allow",
    );
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allowed));
    response
}
