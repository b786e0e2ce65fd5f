//! The number of bytes that a connection may read in one poll.
//!
//! A peer that always has something to say must not keep its task from being interrupted: hyper
//! reads on while it finds no whole message, for example in a chunk size without end. When the
//! allowance is spent, the connection pretends that nothing is readable, and is polled again after
//! all other tasks. Its timers are polled in between.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::{Context, Poll};

/// The maximum size of one read, and of what one poll reads before it is interrupted.
pub(crate) const MAX_READ: usize = 64 * 1024;

/// The allowance of a connection. All users run in the task of the connection.
#[derive(Debug)]
pub(crate) struct ReadAllowance {
    remaining: AtomicUsize,
    interrupted: AtomicBool,
}

impl Default for ReadAllowance {
    fn default() -> Self {
        Self {
            remaining: AtomicUsize::new(MAX_READ),
            interrupted: AtomicBool::new(false),
        }
    }
}

impl ReadAllowance {
    /// Renews the allowance before the connection is polled.
    pub(crate) fn renew(&self) {
        self.remaining.store(MAX_READ, Relaxed);
        self.interrupted.store(false, Relaxed);
    }

    /// Pending once if the allowance is spent; then the task is woken at once.
    pub(crate) fn poll_available(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.remaining.load(Relaxed) > 0 {
            return Poll::Ready(());
        }
        self.renew();
        self.interrupted.store(true, Relaxed);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Returns `true` if the allowance was spent in this poll, and more was to be read.
    pub(crate) fn was_interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }

    /// Subtracts bytes that were read.
    pub(crate) fn spend(&self, bytes: usize) {
        let remaining = self.remaining.load(Relaxed).saturating_sub(bytes);
        self.remaining.store(remaining, Relaxed);
    }
}
