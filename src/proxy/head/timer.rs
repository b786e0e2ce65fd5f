//! A timer that costs nothing while things move.

use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use tokio::task::coop::has_budget_remaining;
use tokio::time::{Sleep, sleep, sleep_until};

/// A length is slept in so many parts.
const PARTS: u32 = 4;

/// Goes off after a length in which nothing was noted.
///
/// Noting takes no look at a clock: the length is slept in parts, and begins anew behind each in which something
/// moved. So it lasts one length and at most a part more.
#[derive(Debug)]
pub(crate) struct LazyTimer {
    length: Duration,
    sleep: Option<TrackedSleep>,
    moved: bool,
    /// Parts in which nothing moved, one behind the other.
    still_parts: u32,
}

impl LazyTimer {
    /// A timer of this length that does not run yet: the first poll starts it.
    pub(crate) fn new(length: Duration) -> Self {
        Self {
            length,
            sleep: None,
            moved: false,
            still_parts: 0,
        }
    }

    /// Something moved.
    pub(crate) fn record_progress(&mut self) {
        self.moved = true;
    }

    /// Starts anew with another length, now.
    pub(crate) fn restart(&mut self, length: Duration) {
        self.length = length;
        (self.moved, self.still_parts) = (false, 0);
        if let Some(timer) = &mut self.sleep {
            timer.set(sleep(length / PARTS));
        }
    }

    /// Has another length from now on; nothing happens if it is the same.
    pub(crate) fn set_length(&mut self, length: Duration) {
        if self.length != length {
            *self = Self::new(length);
        }
    }

    /// Lengthens or shortens what the next setting will be, as something moved.
    pub(crate) fn relax(&mut self, length: Duration) {
        self.length = length;
        self.moved = true;
    }

    /// Ready once this length has passed since a moment: exact, and set anew only when it goes off.
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

    /// Ready once this length has passed since the first call, whatever moves meanwhile and whoever polls.
    pub(crate) fn poll_once(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let length = self.length;
        self.sleep
            .get_or_insert_with(|| TrackedSleep::new(sleep(length)))
            .poll(cx)
    }

    /// Ready once it has gone off.
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

/// A sleep, and who is woken at its end.
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

    /// Who will be woken is not told to the runtime again: timers are polled far more often than they go off.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let known = self
            .waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()));
        if known && !self.sleep.is_elapsed() {
            return Poll::Pending;
        }
        // A task that has used up its turn is told `Pending` before the runtime hears of the timer (tokio's `coop`).
        let told = has_budget_remaining();
        let slept = self.sleep.as_mut().poll(cx);
        self.waker = (told && slept.is_pending()).then(|| cx.waker().clone());
        slept
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::clock::Clock;

    const LENGTH: Duration = Duration::from_millis(800);

    #[tokio::test]
    async fn it_goes_off_a_length_after_the_last_movement_and_little_more() {
        let mut timer = LazyTimer::new(LENGTH);
        for wait in [LENGTH / 10, LENGTH / 2] {
            let going_off = tokio::time::timeout(wait, poll_fn(|cx| timer.poll(cx)));
            assert!(going_off.await.is_err(), "after {wait:?}");
            timer.record_progress();
        }
        let clock = Clock::system();
        let still = clock.now();
        poll_fn(|cx| timer.poll(cx)).await;
        let took = clock.now() - still;
        assert!(LENGTH <= took && took < LENGTH * 8 / 5, "{took:?}");
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
        // Nobody polls it meanwhile.
        tokio::time::sleep(LENGTH / 4 + Duration::from_millis(5)).await;
        timer.record_progress();
        assert!(
            poll_fn(|cx| Poll::Ready(timer.poll_once(cx)))
                .await
                .is_ready()
        );
        assert!(clock.now() - began >= LENGTH / 4);
    }

    /// Polls when the task has no turn left, as a socket that moves fast leaves it.
    fn poll_spent(timer: &mut LazyTimer, cx: &mut Context<'_>) -> Poll<()> {
        while let Poll::Ready(spent) = tokio::task::coop::poll_proceed(cx) {
            spent.made_progress();
        }
        assert!(timer.poll_once(cx).is_pending());
        Poll::Ready(())
    }

    #[tokio::test(start_paused = true)]
    async fn it_goes_off_though_the_task_had_no_turn_left() {
        let mut timer = LazyTimer::new(LENGTH);
        poll_fn(|cx| poll_spent(&mut timer, cx)).await;
        tokio::task::yield_now().await;
        let going_off = tokio::time::timeout(2 * LENGTH, poll_fn(|cx| timer.poll_once(cx)));
        assert!(going_off.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn it_wakes_whoever_polls_it_last() {
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
            "woken by the timer, not by what watches it"
        );
    }
}
