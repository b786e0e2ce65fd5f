//! The number of bytes that a connection may read in one poll.
//!
//! A peer that always has something to say must not keep its task from being interrupted: hyper
//! reads on while it finds no whole message, for example in a chunk size without end. When the
//! allowance is spent, the connection pretends that nothing is readable, and is polled again after
//! all other tasks. Its timers are polled in between.
//!
//! hyper parses chunk framing (sizes with leading zeros, spaces after them) byte by byte. 64 KiB of
//! it take milliseconds. So an origin's connection reads small parts, except of a body whose length
//! is known: that one has no framing.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::{Context, Poll};

/// The maximum size of one read, and of what one poll reads before it is interrupted.
pub(crate) const MAX_READ: usize = 64 * 1024;

/// The maximum number of bytes that one poll reads if they may be chunk framing.
pub(crate) const MAX_PARSED: usize = MAX_READ / 4;

/// The allowance of a connection. All users run in the task of the connection.
#[derive(Debug)]
pub(crate) struct ReadAllowance {
    /// The number of bytes after a renewal.
    limit: AtomicUsize,
    remaining: AtomicUsize,
    interrupted: AtomicBool,
}

impl Default for ReadAllowance {
    fn default() -> Self {
        Self::new(MAX_READ)
    }
}

impl ReadAllowance {
    fn new(limit: usize) -> Self {
        Self {
            limit: AtomicUsize::new(limit),
            remaining: AtomicUsize::new(limit),
            interrupted: AtomicBool::new(false),
        }
    }

    /// Creates the allowance of a connection to an origin.
    pub(crate) fn for_origin() -> Self {
        Self::new(MAX_PARSED)
    }

    /// Raises the limit of later polls: only data arrives until [`Self::expect_framing`].
    pub(crate) fn expect_data(&self) {
        self.limit.store(MAX_READ, Relaxed);
    }

    /// Lowers the limit of later polls: what arrives may be heads or chunk framing.
    pub(crate) fn expect_framing(&self) {
        self.limit.store(MAX_PARSED, Relaxed);
    }

    /// Renews the allowance before the connection is polled.
    pub(crate) fn renew(&self) {
        self.remaining.store(self.limit.load(Relaxed), Relaxed);
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

    /// Returns the number of bytes that may still be read in this poll.
    pub(crate) fn remaining(&self) -> usize {
        self.remaining.load(Relaxed)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_data_is_read_in_large_parts() {
        let allowance = ReadAllowance::for_origin();
        let read_of_a_poll = || {
            allowance.renew();
            allowance.remaining()
        };
        assert_eq!(read_of_a_poll(), MAX_PARSED);
        allowance.expect_data();
        assert_eq!(read_of_a_poll(), MAX_READ);
        allowance.expect_framing();
        assert_eq!(read_of_a_poll(), MAX_PARSED);
    }

    #[test]
    fn a_spent_allowance_interrupts_one_poll() {
        let allowance = ReadAllowance::default();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        allowance.spend(MAX_READ - 1);
        assert!(allowance.poll_available(&mut cx).is_ready());
        allowance.spend(1);
        assert!(allowance.poll_available(&mut cx).is_pending());
        assert!(allowance.was_interrupted());
        assert!(allowance.poll_available(&mut cx).is_ready());
        assert_eq!(allowance.remaining(), MAX_READ);
    }
}
