//! A timer that costs nothing while data moves.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use tokio::task::coop::unconstrained;
use tokio::time::{Sleep, sleep, sleep_until};

/// The number of parts into which the length is divided.
const PARTS: u32 = 4;

/// Expires after a time without recorded progress.
///
/// Recording progress does not read the clock: the timer sleeps in parts, and starts again after
/// each part in which there was progress. It expires after its length plus at most one part.
#[derive(Debug)]
pub(crate) struct LazyTimer {
    length: Duration,
    sleep: Option<TrackedSleep>,
    moved: bool,
    /// The number of consecutive parts without progress.
    still_parts: u32,
}

impl LazyTimer {
    /// Creates a timer of this length. The first poll starts it.
    pub(crate) fn new(length: Duration) -> Self {
        Self {
            length,
            sleep: None,
            moved: false,
            still_parts: 0,
        }
    }

    pub(crate) fn record_progress(&mut self) {
        self.moved = true;
    }

    /// Restarts the timer with another length.
    pub(crate) fn restart(&mut self, length: Duration) {
        self.length = length;
        self.moved = false;
        self.still_parts = 0;
        if let Some(timer) = &mut self.sleep {
            timer.set(sleep(length / PARTS));
        }
    }

    /// Sets another length, which restarts the timer; does nothing if the length is the same.
    pub(crate) fn set_length(&mut self, length: Duration) {
        if self.length != length {
            *self = Self::new(length);
        }
    }

    /// Records progress, and sets the length for the next time that the timer is set.
    pub(crate) fn set_next_length(&mut self, length: Duration) {
        self.length = length;
        self.moved = true;
    }

    /// Ready when the length has passed since `since`. Exact; the timer is reset only when it
    /// expires.
    pub(crate) fn poll_since(&mut self, since: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let due = tokio::time::Instant::from_std(since) + self.length;
        let timer = self
            .sleep
            .get_or_insert_with(|| TrackedSleep::new(sleep_until(due)));
        loop {
            ready!(timer.poll(cx));
            if timer.sleep.deadline() >= due {
                return Poll::Ready(());
            }
            timer.set(sleep_until(due));
        }
    }

    /// Ready when the length has passed since the first call, regardless of progress and of the
    /// polling task.
    pub(crate) fn poll_once(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let length = self.length;
        self.sleep
            .get_or_insert_with(|| TrackedSleep::new(sleep(length)))
            .poll(cx)
    }

    /// Returns `true` if the time of [`Self::poll_once`] is over. For tasks that are never idle: the
    /// runtime may be late with its timers then.
    pub(crate) fn is_past(&self, now: Instant) -> bool {
        self.sleep
            .as_ref()
            .is_some_and(|timer| timer.sleep.deadline().into_std() <= now)
    }

    /// Ready when the timer has expired.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let part = self.length / PARTS;
        let timer = self
            .sleep
            .get_or_insert_with(|| TrackedSleep::new(sleep(part)));
        while self.still_parts < PARTS {
            ready!(timer.poll(cx));
            self.still_parts = if std::mem::take(&mut self.moved) {
                0
            } else {
                self.still_parts + 1
            };
            timer.set(sleep(part));
        }
        Poll::Ready(())
    }
}

/// A sleep and the waker that is registered for it.
#[derive(Debug)]
struct TrackedSleep {
    sleep: Pin<Box<Sleep>>,
    waker: Option<Waker>,
}

impl TrackedSleep {
    fn new(sleep: Sleep) -> Self {
        Self {
            sleep: Box::pin(sleep),
            waker: None,
        }
    }

    fn set(&mut self, sleep: Sleep) {
        self.sleep.set(sleep);
        self.waker = None;
    }

    /// Skips the registration if the waker is already registered: timers are polled far more often
    /// than they expire.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_armed = self
            .waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()));
        if is_armed && !self.sleep.is_elapsed() {
            return Poll::Pending;
        }
        // A task that always has something to read has no budget left when its timers are polled
        // (tokio's `coop`). Without budget the runtime would not look at the timer.
        let sleep = pin!(unconstrained(self.sleep.as_mut())).poll(cx);
        self.waker = sleep.is_pending().then(|| cx.waker().clone());
        sleep
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::clock::Clock;

    const LENGTH: Duration = Duration::from_millis(800);

    #[tokio::test]
    async fn it_expires_after_the_last_progress_plus_at_most_a_part() {
        let mut timer = LazyTimer::new(LENGTH);
        for wait in [LENGTH / 10, LENGTH / 2] {
            let expiry = tokio::time::timeout(wait, poll_fn(|cx| timer.poll(cx)));
            assert!(expiry.await.is_err(), "after {wait:?}");
            timer.record_progress();
        }
        let clock = Clock::system();
        let started = clock.now();
        poll_fn(|cx| timer.poll(cx)).await;
        let elapsed = clock.now() - started;
        assert!(LENGTH <= elapsed && elapsed < LENGTH * 8 / 5, "{elapsed:?}");
    }

    #[tokio::test]
    async fn a_whole_length_is_not_prolonged() {
        let mut timer = LazyTimer::new(LENGTH / 4);
        let clock = Clock::system();
        let began = clock.now();
        assert!(
            poll_fn(|cx| Poll::Ready(timer.poll_once(cx)))
                .await
                .is_pending()
        );
        // The timer is not polled meanwhile.
        tokio::time::sleep(LENGTH / 4 + Duration::from_millis(5)).await;
        timer.record_progress();
        assert!(
            poll_fn(|cx| Poll::Ready(timer.poll_once(cx)))
                .await
                .is_ready()
        );
        assert!(clock.now() - began >= LENGTH / 4);
    }

    /// Polls while the task has no budget left, as after much I/O.
    fn poll_spent(timer: &mut LazyTimer, cx: &mut Context<'_>) -> Poll<()> {
        while let Poll::Ready(spent) = tokio::task::coop::poll_proceed(cx) {
            spent.made_progress();
        }
        assert!(timer.poll_once(cx).is_pending());
        Poll::Ready(())
    }

    #[tokio::test(start_paused = true)]
    async fn it_expires_although_the_task_had_no_budget_left() {
        let mut timer = LazyTimer::new(LENGTH);
        poll_fn(|cx| poll_spent(&mut timer, cx)).await;
        tokio::task::yield_now().await;
        let expiry = tokio::time::timeout(2 * LENGTH, poll_fn(|cx| timer.poll_once(cx)));
        assert!(expiry.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn it_wakes_the_task_that_polled_it_last() {
        let mut timer = LazyTimer::new(LENGTH);
        assert!(
            poll_fn(|cx| Poll::Ready(timer.poll_once(cx)))
                .await
                .is_pending()
        );
        let clock = Clock::from_runtime();
        let began = clock.now();
        let other = tokio::spawn(async move {
            poll_fn(|cx| poll_spent(&mut timer, cx)).await;
            tokio::task::yield_now().await;
            tokio::time::timeout(2 * LENGTH, poll_fn(|cx| timer.poll_once(cx))).await
        });
        assert!(other.await.unwrap().is_ok());
        assert!(
            clock.now() - began < 2 * LENGTH,
            "woken by the timer, not by the surrounding timeout"
        );
    }
}
