//! Request bodies of bounded length, errors in requests, and work on blocking threads.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::response::{internal_error, problem, problem_with};

/// The longest error message that is repeated, in characters.
const MAX_MESSAGE_CHARS: usize = 200;

/// The body of a request.
pub(super) type RequestBody = UnsyncBoxBody<Bytes, hyper::Error>;

/// The response of a handler.
pub(super) type ApiResult = Result<Response<Full<Bytes>>, ApiError>;

/// An error that a request is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ApiError {
    /// The body is longer than this limit, in bytes.
    TooLarge(usize),
    /// The body is truncated.
    Incomplete,
    /// Any other error in the request, in words.
    Invalid(String),
    /// A bug in this program.
    Internal,
}

impl ApiError {
    /// Returns a 400, 413 or 500 response.
    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        match self {
            Self::TooLarge(limit) => {
                let detail = match limit >> 20 {
                    0 => format!("the body is longer than {} KiB", limit >> 10),
                    mebibytes => format!("the body is longer than {mebibytes} MiB"),
                };
                problem_with(StatusCode::PAYLOAD_TOO_LARGE, &json!({ "detail": detail }))
            }
            Self::Incomplete => problem(StatusCode::BAD_REQUEST, "the body is truncated"),
            Self::Invalid(detail) => {
                problem_with(StatusCode::BAD_REQUEST, &json!({ "detail": detail }))
            }
            Self::Internal => internal_error(),
        }
    }
}

/// Returns the beginning of an error message, which may quote the request.
pub(super) fn shorten_message(message: &impl ToString) -> String {
    message
        .to_string()
        .chars()
        .take(MAX_MESSAGE_CHARS)
        .collect()
}

/// Reads a whole body of at most `limit` bytes.
pub(super) async fn read_body(body: RequestBody, limit: usize) -> Result<Bytes, ApiError> {
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::TooLarge(limit)),
        Err(_) => Err(ApiError::Incomplete),
    }
}

/// Reads a body that is a JSON object; `content` describes it in the error ("with `reason`").
pub(super) async fn read_object<T: DeserializeOwned>(
    body: RequestBody,
    limit: usize,
    content: &str,
) -> Result<T, ApiError> {
    parse_object(&read_body(body, limit).await?, content)
}

/// Parses a JSON object; `content` describes it in the error.
pub(super) fn parse_object<T: DeserializeOwned>(body: &[u8], content: &str) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| {
        let error = shorten_message(&error);
        ApiError::Invalid(format!("the body is not a JSON object {content}: {error}"))
    })
}

/// Runs work that blocks on the disk or computes for long on a thread of its own. A panic is an internal error.
pub(super) fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, ApiError>> {
    let task = tokio::task::spawn_blocking(work);
    async { task.await.map_err(|_| ApiError::Internal) }
}
