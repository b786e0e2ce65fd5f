//! The number of bytes that a connection may read in one poll.
//!
//! A peer that always has something to say must not keep its task from being interrupted: hyper
//! reads on while it finds no whole message, for example in a chunk size without end. When the
//! allowance is spent, the connection pretends that nothing is readable, and is polled again after
//! all other tasks. Its timers are polled in between.
//!
//! hyper parses chunk framing (sizes with leading zeros, spaces after them) byte by byte. 64 KiB of
//! it take milliseconds. So the allowance of an origin begins small, and grows with the data that
//! the origin sends. An origin that alternates data and zeros still gets the whole allowance.

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

    /// Creates the allowance of a connection to an origin, which grows with the data that it sends.
    pub(crate) fn for_origin() -> Self {
        Self::new(MAX_PARSED)
    }

    /// Lowers the limit of later polls: the bytes are not known to be data.
    pub(crate) fn record_unparsed(&self, bytes: usize) {
        let limit = self.limit.load(Relaxed).saturating_sub(bytes);
        self.limit.store(limit.max(MAX_PARSED), Relaxed);
    }

    /// Raises the limit of later polls by twice these bytes, which grows it if most of what arrives
    /// is data.
    pub(crate) fn record_data(&self, bytes: usize) {
        let limit = self.limit.load(Relaxed).saturating_add(2 * bytes);
        self.limit.store(limit.min(MAX_READ), Relaxed);
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

    /// Reads as much as one poll may, of which this share is data; returns its size.
    fn poll_origin(allowance: &ReadAllowance, share: f64) -> usize {
        allowance.renew();
        let read = allowance.remaining();
        allowance.spend(read);
        allowance.record_unparsed(read);
        allowance.record_data((read as f64 * share) as usize);
        read
    }

    #[test]
    fn the_allowance_of_an_origin_grows_with_its_data() {
        let allowance = ReadAllowance::for_origin();
        let sizes: Vec<_> = (0..4).map(|_| poll_origin(&allowance, 1.0)).collect();
        assert_eq!(sizes, [16_384, 49_152, 65_536, 65_536]);
        // A poll without data, and those after it.
        let sizes: Vec<_> = (0..3).map(|_| poll_origin(&allowance, 0.0)).collect();
        assert_eq!(sizes, [65_536, 16_384, 16_384]);
        for _ in 0..20 {
            assert!(poll_origin(&allowance, 0.1) <= 2 * MAX_PARSED);
        }
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
