//! Polling with a deadline.

use std::thread;
use std::time::{Duration, Instant};

/// Longer than any single step takes on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Polls a condition until it holds.
///
/// # Panics
/// If it does not hold within [`TIMEOUT`]; the message names the condition.
#[track_caller]
pub(crate) fn wait_until(condition: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "timed out waiting: {condition}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// [`wait_until`] on a thread that may block, for tests on a tokio runtime.
pub(crate) async fn wait_until_async(
    condition: &str,
    holds: impl FnMut() -> bool + Send + 'static,
) {
    let condition = condition.to_owned();
    tokio::task::spawn_blocking(move || wait_until(&condition, holds))
        .await
        .unwrap();
}

/// Returns a runtime whose time advances only while all tasks sleep.
pub(crate) fn paused_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
}
