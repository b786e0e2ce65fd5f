//! The pace that an upload must keep while other requests wait for its host.

use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::pipeline::admission::HostSlot;
use crate::proxy::body::{UploadProgress, UploadWatch};
use crate::proxy::head::timer::LazyTimer;

/// The time over which the pace is measured.
const WINDOW: Duration = Duration::from_secs(10);
/// The number of bytes that a client must send in this time: 1 KiB/s.
const MIN_BYTES: u64 = 10 * 1024;

/// Measures the pace of a client's upload. Time in which the origin accepts nothing does not count.
#[derive(Debug)]
pub(super) struct UploadPace {
    watch: UploadWatch,
    window: Option<PaceWindow>,
    timer: LazyTimer,
}

/// A time in which the upload waits for the client, and the bytes before it.
#[derive(Clone, Copy, Debug)]
struct PaceWindow {
    since: Instant,
    bytes: u64,
}

impl UploadPace {
    pub(super) fn new(watch: UploadWatch) -> Self {
        Self {
            watch,
            window: None,
            timer: LazyTimer::new(WINDOW),
        }
    }

    /// Returns the progress of the upload since the previous call.
    pub(super) fn take_progress(&mut self) -> UploadProgress {
        let progress = self.watch.take_progress();
        if progress != UploadProgress::AwaitingClient {
            self.window = None;
        }
        progress
    }

    /// Ready if the client sends too slowly while other requests wait for the slot.
    pub(super) fn poll_too_slow(
        &mut self,
        slot: &HostSlot,
        clock: &Clock,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let bytes = self.watch.byte_counter().load(Relaxed);
        loop {
            let window = *self.window.get_or_insert_with(|| PaceWindow {
                since: clock.now(),
                bytes,
            });
            ready!(self.timer.poll_since(window.since, cx));
            if bytes - window.bytes < MIN_BYTES && slot.has_waiters() {
                return Poll::Ready(());
            }
            self.window = None;
        }
    }
}
