//! Request bodies of bounded length, errors in requests, and work on blocking threads.

use std::error::Error;
use std::future::Future;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use serde_json::json;

use super::response::{problem, problem_with};

/// The longest error message that is repeated, in characters.
const MAX_MESSAGE_CHARS: usize = 200;

pub(super) enum ApiRequestError {
    /// The body is longer than this limit, in bytes.
    TooLarge(usize),
    /// The body is truncated.
    Incomplete,
    /// Any other error, in words.
    Invalid(String),
}

impl ApiRequestError {
    /// Returns a 400 or 413 response.
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
pub(super) async fn read_body<B>(body: B, limit: usize) -> Result<Bytes, ApiRequestError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiRequestError::TooLarge(limit)),
        Err(_) => Err(ApiRequestError::Incomplete),
    }
}

/// Runs work that blocks on the disk or computes for long on a thread of its own. Returns `None` if it panics; answer
/// with [`super::response::internal_error`] then.
pub(super) fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Option<T>> {
    let task = tokio::task::spawn_blocking(work);
    async { task.await.ok() }
}
