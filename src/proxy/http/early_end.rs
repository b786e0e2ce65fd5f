//! Requests that end early: by a refusal while the body is still arriving, or by a panic.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use http::header::EXPECT;
use http::request;
use hyper::body::{Body as _, Incoming};

use super::BoxedRefusal;

/// The maximum size of a refused request's body that is read and dropped, so that the connection
/// can be reused.
const MAX_DISCARD: u64 = 64 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(1);

/// Reads and drops a small body of a refused request, so that the connection can be reused;
/// otherwise hyper closes it.
///
/// A client that sent `Expect` waits for permission to send the body, and gets the refusal instead.
pub(super) async fn discard_body(
    refusal: impl Into<BoxedRefusal>,
    parts: &request::Parts,
    mut body: Incoming,
) -> BoxedRefusal {
    let small = body
        .size_hint()
        .exact()
        .is_none_or(|length| length <= MAX_DISCARD);
    let is_sending = !parts.headers.contains_key(EXPECT);
    if small && is_sending && !body.is_end_stream() {
        let mut remaining = MAX_DISCARD;
        let read = poll_fn(|cx| {
            loop {
                match std::task::ready!(pin!(&mut body).poll_frame(cx)) {
                    Some(Ok(frame)) => {
                        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                        let Some(rest) = remaining.checked_sub(length) else {
                            return Poll::Ready(());
                        };
                        remaining = rest;
                    }
                    Some(Err(_)) | None => return Poll::Ready(()),
                }
            }
        });
        let _ = tokio::time::timeout(DISCARD_TIME, read).await;
    }
    refusal.into()
}

/// A panic in the wrapped future.
pub(crate) struct CaughtPanic;

/// Runs a future and catches a panic in it. The panic hook has counted it by then. The future is
/// taken by reference: moving one future into another would double its size there.
pub(crate) async fn catch_panic<F: Future>(
    mut future: Pin<&mut F>,
) -> Result<F::Output, CaughtPanic> {
    poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(polled) => polled.map(Ok),
            Err(_) => Poll::Ready(Err(CaughtPanic)),
        },
    )
    .await
}
