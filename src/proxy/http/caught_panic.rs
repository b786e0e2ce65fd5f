//! Requests that end by a panic.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

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
