//! The number of bytes that a connection may read in one poll.
//!
//! A peer that always has something to say must not keep its task from being interrupted: hyper
//! reads on while it finds no whole message, for example in a chunk size without end. When the
//! allowance is spent, the connection pretends that nothing is readable, and the turn of the task
//! ends. Its timers are polled in between.
//!
//! hyper parses chunk framing (sizes with leading zeros, spaces after them) byte by byte. 64 KiB of
//! it take milliseconds. So an origin's connection reads small parts, except of a body whose length
//! is known: that one has no framing.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::{Context, Poll};

use super::turn::{end_turn, is_turn_over};

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
    paused: AtomicBool,
    /// `false` if the same task writes to the peer after it has read, which it must be able to do.
    ends_turn: bool,
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
            paused: AtomicBool::new(false),
            ends_turn: false,
        }
    }

    /// Creates the allowance of an HTTP/2 connection to an origin.
    pub(crate) fn for_origin() -> Self {
        Self::new(MAX_PARSED)
    }

    /// Creates the allowance of an HTTP/1 connection to an origin. When it is spent, the turn of the
    /// task ends: hyper polls a body more than once in a turn.
    pub(crate) fn for_http1_origin() -> Self {
        Self {
            ends_turn: true,
            ..Self::new(MAX_PARSED)
        }
    }

    /// Raises the limit of later polls: only data arrives until [`Self::expect_framing`].
    pub(crate) fn expect_data(&self) {
        self.limit.store(MAX_READ, Relaxed);
    }

    /// Lowers the limit of later polls: what arrives may be heads or chunk framing.
    pub(crate) fn expect_framing(&self) {
        self.limit.store(MAX_PARSED, Relaxed);
    }

    /// Renews the allowance before the connection is polled, unless the turn of the task is over.
    pub(crate) fn renew(&self) {
        if !is_turn_over() {
            self.remaining.store(self.limit.load(Relaxed), Relaxed);
        }
    }

    /// Pending if the allowance is spent; the task is polled again after the others.
    pub(crate) fn poll_available(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.remaining.load(Relaxed) > 0 && !self.is_paused() {
            return Poll::Ready(());
        }
        if !is_turn_over() {
            self.renew();
            self.interrupted.store(true, Relaxed);
            self.paused.store(true, Relaxed);
        }
        if self.ends_turn {
            end_turn(cx);
        } else {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Returns `true` if the allowance was spent in this turn.
    fn is_paused(&self) -> bool {
        if !self.paused.load(Relaxed) {
            return false;
        }
        let is_paused = is_turn_over();
        self.paused.store(is_paused, Relaxed);
        is_paused
    }

    /// Returns the number of bytes that may still be read in this poll.
    pub(crate) fn remaining(&self) -> usize {
        self.remaining.load(Relaxed)
    }

    /// Returns `true` once after the allowance was spent and more was to be read.
    pub(crate) fn take_interruption(&self) -> bool {
        self.interrupted.load(Relaxed) && self.interrupted.swap(false, Relaxed)
    }

    /// Subtracts bytes that were read.
    pub(crate) fn spend(&self, bytes: usize) {
        let remaining = self.remaining.load(Relaxed).saturating_sub(bytes);
        self.remaining.store(remaining, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

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

    #[tokio::test]
    async fn a_spent_allowance_ends_the_turn() {
        let allowance = ReadAllowance::for_http1_origin();
        allowance.expect_data();
        let mut turns = 0;
        poll_fn(|cx| {
            turns += 1;
            allowance.renew();
            assert_eq!(allowance.remaining(), MAX_READ);
            if turns == 2 {
                return Poll::Ready(());
            }
            allowance.spend(MAX_READ - 1);
            assert!(allowance.poll_available(cx).is_ready());
            allowance.spend(1);
            assert!(allowance.poll_available(cx).is_pending());
            assert!(allowance.take_interruption());
            // Another call in the same turn reads nothing, and is no further interruption.
            allowance.renew();
            assert!(allowance.poll_available(cx).is_pending());
            assert!(!allowance.take_interruption());
            Poll::Pending
        })
        .await;
        assert_eq!(turns, 2);
    }
}
