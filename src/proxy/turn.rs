//! The turn of a task: one poll, in which it does a limited amount of work before other tasks run.
//!
//! A limit that each call of a body or a stream checks for itself is not enough: hyper polls a body
//! again, in the same poll of its task, after it has written what came before. tokio gives each poll
//! of a task a budget (`tokio::task::coop`), without which no socket is ready. So a turn ends by
//! using up the budget.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::coop::{has_budget_remaining, poll_proceed};
use tokio::task::yield_now;

/// More units than the budget of a task has.
const MAX_BUDGET: usize = 256;

/// Ends the turn of the current task: for the rest of this poll its sockets are not ready. The task
/// is polled again after the others.
pub(crate) fn end_turn(cx: &mut Context<'_>) {
    for _ in 0..MAX_BUDGET {
        match poll_proceed(cx) {
            Poll::Ready(unit) => unit.made_progress(),
            // tokio wakes the task after this poll.
            Poll::Pending => return,
        }
    }
    // Nothing limits this task, for example because it is not tokio's.
    cx.waker().wake_by_ref();
}

/// Returns `true` if the turn of the current task is over.
pub(crate) fn is_turn_over() -> bool {
    !has_budget_remaining()
}

/// The work of a turn that no call of a socket limits: decoding, hashing and parsing. A few compressed
/// bytes can stand for megabytes.
#[derive(Debug, Default)]
pub(crate) struct TurnWork {
    done: usize,
}

impl TurnWork {
    /// The work of a turn, in bytes that are decoded and hashed.
    pub(crate) const MAX: usize = 128 * 1024;
    /// The time of a turn, for work that no number of bytes bounds.
    pub(crate) const MAX_TIME: Duration = Duration::from_micros(200);
    /// The work of parsing a byte of HTML.
    pub(crate) const HTML: usize = 32;

    /// Adds work. Returns `true` if the turn should end.
    pub(crate) fn add(&mut self, work: usize) -> bool {
        self.done += work;
        self.is_enough()
    }

    /// The work of this turn so far.
    pub(crate) fn done(&self) -> usize {
        self.done
    }

    /// Records that the work since it was `before` took this time, some of which may have been added
    /// already. Returns `true` if the turn should end.
    pub(crate) fn raise_by_time(&mut self, before: usize, time: Duration) -> bool {
        let part = Self::MAX as u128 * time.as_nanos() / Self::MAX_TIME.as_nanos();
        let part = usize::try_from(part).map_or(Self::MAX, |part| part.min(Self::MAX));
        self.done = self.done.max(before + part);
        self.is_enough()
    }

    /// Returns `true` if no more work should be done in this turn.
    pub(crate) fn is_enough(&self) -> bool {
        self.done >= Self::MAX || is_turn_over()
    }

    /// Pending if no more work should be done in this turn, which ends it.
    pub(crate) fn poll_allowed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_enough() {
            self.end_turn(cx);
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Pending once if no more work of this kind should be done in this turn. The task may do other
    /// work, and is polled again after the others.
    pub(crate) fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_enough() {
            self.restart();
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Lets other tasks run, and begins with the work of another turn.
    pub(crate) async fn pause(&mut self) {
        self.restart();
        yield_now().await;
    }

    /// Ends the turn of the current task.
    pub(crate) fn end_turn(&mut self, cx: &mut Context<'_>) {
        self.restart();
        end_turn(cx);
    }

    /// Begins with the work of another turn.
    pub(crate) fn restart(&mut self) {
        self.done = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn nothing_is_ready_until_the_next_turn() {
        let (mut near, mut far) = tokio::io::duplex(64);
        far.write_all(b"ab").await.unwrap();
        let mut turns = 0;
        poll_fn(|cx| {
            turns += 1;
            if turns > 1 {
                return Poll::Ready(());
            }
            assert!(!is_turn_over());
            end_turn(cx);
            assert!(is_turn_over());
            let mut read = std::pin::pin!(near.read_u8());
            assert!(read.as_mut().poll(cx).is_pending());
            Poll::Pending
        })
        .await;
        assert_eq!(turns, 2);
        assert_eq!(near.read_u8().await.unwrap(), b'a');
    }

    #[test]
    fn a_task_without_a_budget_is_woken() {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        end_turn(&mut cx);
        assert!(!is_turn_over());
    }
}
