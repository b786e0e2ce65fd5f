//! `GET /api/v1/openapi.json`: the description of every path of the admin listener, in OpenAPI 3.1.
//!
//! The document is written by hand beside this file; a test holds it against the table of paths and against real answers.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;

use super::response::text_response;

/// The document.
pub(super) const DOCUMENT: &str = include_str!("openapi.json");

/// The document as it stands.
pub(super) fn response() -> Response<Full<Bytes>> {
    text_response(StatusCode::OK, "application/json", DOCUMENT.to_owned())
}
