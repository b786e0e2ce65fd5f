//! A timer that costs nothing while things move.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep, sleep_until};

/// Goes off after a length in which nothing was noted; set anew only when it goes off, so within one to two lengths.
#[derive(Debug)]
pub(in crate::proxy) struct LazyTimer {
    length: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    moved: bool,
}

impl LazyTimer {
    /// A timer of this length that does not run yet: the first poll starts it.
    pub(in crate::proxy) fn new(length: Duration) -> Self {
        Self { length, sleep: None, moved: false }
    }

    /// Something moved.
    pub(in crate::proxy) fn note(&mut self) {
        self.moved = true;
    }

    /// Starts anew, exactly, with another length.
    pub(in crate::proxy) fn restart(&mut self, length: Duration) {
        self.length = length;
        self.moved = false;
        if let Some(timer) = &mut self.sleep {
            timer.set(sleep(length));
        }
    }

    /// Lengthens or shortens what the next setting will be, as something moved.
    pub(in crate::proxy) fn relax(&mut self, length: Duration) {
        self.length = length;
        self.moved = true;
    }

    /// Ready once this length has passed since a moment: exact, and set anew only when it goes off.
    pub(in crate::proxy) fn poll_since(&mut self, since: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let due = tokio::time::Instant::from_std(since) + self.length;
        let timer = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(due)));
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= due {
                return Poll::Ready(());
            }
            timer.set(sleep_until(due));
        }
    }

    /// Ready once it has gone off.
    pub(in crate::proxy) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let length = self.length;
        let timer = self.sleep.get_or_insert_with(|| Box::pin(sleep(length)));
        loop {
            ready!(timer.as_mut().poll(cx));
            if !self.moved {
                return Poll::Ready(());
            }
            self.moved = false;
            timer.set(sleep(length));
        }
    }
}
