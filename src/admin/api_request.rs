//! What a request to the API brings with it: a body of bounded length, or a mistake; and work that it asks for.

use std::error::Error;
use std::future::Future;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use serde_json::json;

use super::response::{problem, problem_with};

/// The longest part of a mistake that is told.
const MAX_MESSAGE_CHARS: usize = 200;

/// Why a request is not understood.
pub(super) enum ApiRequestError {
    /// The body is longer than so many bytes.
    TooLarge(usize),
    /// The body ended before its end.
    Incomplete,
    /// What is wrong, in words.
    Invalid(String),
}

impl ApiRequestError {
    /// 400 or 413.
    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        match self {
            Self::TooLarge(limit) => {
                let detail = format!("the body is longer than {} KiB", limit >> 10);
                problem_with(StatusCode::PAYLOAD_TOO_LARGE, &json!({ "detail": detail }))
            }
            Self::Incomplete => problem(StatusCode::BAD_REQUEST, "the body ended before its end"),
            Self::Invalid(detail) => {
                problem_with(StatusCode::BAD_REQUEST, &json!({ "detail": detail }))
            }
        }
    }
}

/// The beginning of a mistake's words: they may repeat what was sent.
pub(super) fn shorten_message(message: &impl ToString) -> String {
    message
        .to_string()
        .chars()
        .take(MAX_MESSAGE_CHARS)
        .collect()
}

/// The whole body, if it is no longer than it may be.
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

/// Runs what waits for the disk, or computes for long, apart from the threads that serve; `None` if it broke down
/// (then [`super::response::broken`] says so).
pub(super) fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Option<T>> {
    let task = tokio::task::spawn_blocking(work);
    async { task.await.ok() }
}
