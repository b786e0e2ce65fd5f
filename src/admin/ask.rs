//! What a request to the API brings with it: a body of bounded length, or a mistake; and work that it asks for.

use std::error::Error;
use std::future::Future;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use serde_json::json;

use super::page::{problem, problem_with};

/// The longest part of a mistake that is told.
const LONGEST: usize = 200;

/// Why a request is not understood.
pub(super) enum Mistake {
    /// The body is longer than so many bytes.
    TooLarge(usize),
    /// The body ended before its end.
    Broken,
    /// What is wrong, in words.
    Words(String),
}

impl Mistake {
    /// 400 or 413.
    pub(super) fn answer(self) -> Response<Full<Bytes>> {
        match self {
            Self::TooLarge(limit) => {
                let detail = format!("the body is longer than {} KiB", limit >> 10);
                problem_with(StatusCode::PAYLOAD_TOO_LARGE, &json!({ "detail": detail }))
            }
            Self::Broken => problem(StatusCode::BAD_REQUEST, "the body ended before its end"),
            Self::Words(detail) => {
                problem_with(StatusCode::BAD_REQUEST, &json!({ "detail": detail }))
            }
        }
    }
}

/// The beginning of a mistake's words: they may repeat what was sent.
pub(super) fn beginning(words: &impl ToString) -> String {
    words.to_string().chars().take(LONGEST).collect()
}

/// The whole body, if it is no longer than it may be.
pub(super) async fn received<B>(body: B, limit: usize) -> Result<Bytes, Mistake>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Mistake::TooLarge(limit)),
        Err(_) => Err(Mistake::Broken),
    }
}

/// Runs what waits for the disk, or computes for long, apart from the threads that serve; `None` if it broke down
/// (then [`super::page::broken`] says so).
pub(super) fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Option<T>> {
    let task = tokio::task::spawn_blocking(work);
    async { task.await.ok() }
}
