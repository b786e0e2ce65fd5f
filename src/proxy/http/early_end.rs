//! What ends a request early: a refusal, whose body is still on its way, and a panic.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use http::header::EXPECT;
use http::request;
use hyper::body::{Body as _, Incoming};

use super::BoxedRefusal;

/// What a refused client's unread body may have, to be read and dropped so that its connection is kept.
const MAX_DISCARD: u64 = 64 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(1);

/// Reads and drops a small body of a refused request, so that its connection can be kept; hyper closes it otherwise.
///
/// Not for a client that waits to be told to send it: it is told the refusal.
pub(super) async fn discard_body(
    refusal: impl Into<BoxedRefusal>,
    parts: &request::Parts,
    mut body: Incoming,
) -> BoxedRefusal {
    let small = body
        .size_hint()
        .exact()
        .is_none_or(|length| length <= MAX_DISCARD);
    let unasked = !parts.headers.contains_key(EXPECT);
    if small && unasked && !body.is_end_stream() {
        let mut left = MAX_DISCARD;
        let read = poll_fn(|cx| {
            loop {
                match std::task::ready!(pin!(&mut body).poll_frame(cx)) {
                    Some(Ok(frame)) => {
                        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                        let Some(rest) = left.checked_sub(length) else {
                            return Poll::Ready(());
                        };
                        left = rest;
                    }
                    Some(Err(_)) | None => return Poll::Ready(()),
                }
            }
        });
        let _ = tokio::time::timeout(DISCARD_TIME, read).await;
    }
    refusal.into()
}

/// A panic of the wrapped future.
pub(crate) struct CaughtPanic;

/// Runs a future so that a panic in it ends only it; the panic hook has counted it by then. By reference: a future that is
/// moved into another takes its room twice there.
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
