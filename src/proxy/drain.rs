//! Graceful shutdown: stops accepting connections, closes idle ones, finishes open requests, and
//! cuts them off after `timeouts.drain`.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// The time in which tasks must end after they were cut off.
const CUT_OFF_TIMEOUT: Duration = Duration::from_secs(2);

/// Starts a drain. It begins at most once.
#[derive(Clone, Debug)]
pub struct Drain(Arc<DrainState>);

/// Observes the beginning and the end of a drain. The drain waits until every watch is dropped.
///
/// A poll costs one comparison and one load if nothing changed, so a connection may check on every
/// poll.
#[derive(Debug)]
pub struct DrainWatch {
    shared: Arc<DrainState>,
    /// The waker and the stage for which the notification is registered, and the notification of
    /// the next stage.
    notified: Option<(Waker, DrainStage, Pin<Box<OwnedNotified>>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DrainStage {
    /// The drain has not begun.
    Serving,
    /// No connection is accepted; open requests are finished.
    Draining,
    /// Open requests are aborted.
    CutOff,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainOutcome {
    /// Everything was finished.
    Finished,
    /// This number of connections and other tasks was cut off.
    CutOff(usize),
}

#[derive(Debug)]
struct DrainState {
    stage: AtomicU8,
    changed: Arc<Notify>,
    watches: AtomicUsize,
    all_dropped: Notify,
}

impl Drain {
    /// Creates a drain that has not begun, and its first watch.
    pub fn new() -> (Self, DrainWatch) {
        let shared = DrainState {
            stage: AtomicU8::new(DrainStage::Serving as u8),
            changed: Arc::default(),
            watches: AtomicUsize::new(0),
            all_dropped: Notify::new(),
        };
        let drain = Self(Arc::new(shared));
        let watch = drain.watch();
        (drain, watch)
    }

    /// Returns another watch.
    pub fn watch(&self) -> DrainWatch {
        DrainWatch::new(&self.0)
    }

    /// Begins the drain. Further calls have no effect.
    pub fn begin(&self) {
        self.0.advance(DrainStage::Draining);
    }

    /// Aborts everything that is still open.
    pub fn cut_off(&self) {
        self.0.advance(DrainStage::CutOff);
    }

    /// Waits until all watches are dropped, which means that every connection has ended.
    pub async fn wait_finished(&self) {
        loop {
            let all_dropped = self.0.all_dropped.notified();
            if self.0.watches.load(Ordering::Acquire) == 0 {
                return;
            }
            all_dropped.await;
        }
    }

    /// Runs the whole drain: waits for `timeouts.drain_delay`, so that load balancers notice;
    /// begins; waits at most `timeouts.drain` (`timeout`) for open requests; and cuts off the
    /// rest.
    pub async fn run(&self, delay: Duration, timeout: Duration) -> DrainOutcome {
        tokio::time::sleep(delay).await;
        self.begin();
        if tokio::time::timeout(timeout, self.wait_finished())
            .await
            .is_ok()
        {
            return DrainOutcome::Finished;
        }
        let remaining = self.0.watches.load(Ordering::Acquire);
        self.cut_off();
        // A task that is blocked cannot be cut off.
        let _ = tokio::time::timeout(CUT_OFF_TIMEOUT, self.wait_finished()).await;
        if remaining == 0 {
            DrainOutcome::Finished
        } else {
            DrainOutcome::CutOff(remaining)
        }
    }
}

impl DrainState {
    /// Notifies the watches of each stage once: a watch that has been notified waits for another
    /// stage, and would miss the stage after a repeated one.
    fn advance(&self, stage: DrainStage) {
        if self.stage.fetch_max(stage as u8, Ordering::AcqRel) < stage as u8 {
            self.changed.notify_waiters();
        }
    }

    fn stage(&self) -> DrainStage {
        match self.stage.load(Ordering::Acquire) {
            0 => DrainStage::Serving,
            1 => DrainStage::Draining,
            _ => DrainStage::CutOff,
        }
    }
}

impl DrainWatch {
    fn new(shared: &Arc<DrainState>) -> Self {
        shared.watches.fetch_add(1, Ordering::AcqRel);
        Self {
            shared: Arc::clone(shared),
            notified: None,
        }
    }

    /// Waits until the drain has begun.
    pub async fn wait_begun(&mut self) {
        poll_fn(|cx| match self.poll_stage(cx) {
            DrainStage::Serving => Poll::Pending,
            DrainStage::Draining | DrainStage::CutOff => Poll::Ready(()),
        })
        .await;
    }

    /// Returns the current stage. The task is woken when the next one is reached.
    pub fn poll_stage(&mut self, cx: &mut Context<'_>) -> DrainStage {
        let now = self.shared.stage();
        if let Some((waker, stage, _)) = &self.notified
            && waker.will_wake(cx.waker())
            && *stage == now
        {
            return now;
        }
        // Created before the stage is read, so that a change in between is not missed.
        let mut notified = Box::pin(Arc::clone(&self.shared.changed).notified_owned());
        let now = self.shared.stage();
        if notified.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        self.notified = Some((cx.waker().clone(), now, notified));
        now
    }
}

impl Clone for DrainWatch {
    fn clone(&self) -> Self {
        Self::new(&self.shared)
    }
}

impl Drop for DrainWatch {
    fn drop(&mut self) {
        if self.shared.watches.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.all_dropped.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const NEVER: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn it_begins_for_all_and_ends_when_the_last_watch_is_gone() {
        let (drain, mut first) = Drain::new();
        let mut second = first.clone();
        let waiting = tokio::spawn(async move { second.wait_begun().await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drain.begin();
        waiting.await.unwrap();
        first.wait_begun().await;
        drain.begin();
        assert!(
            tokio::time::timeout(SOON, drain.wait_finished())
                .await
                .is_err()
        );
        drop(first);
        drain.wait_finished().await;
        drain.watch().wait_begun().await;
    }

    #[tokio::test]
    async fn a_drain_that_begins_twice_is_still_cut_off() {
        let (drain, mut watch) = Drain::new();
        let task = tokio::spawn(poll_fn(move |cx| match watch.poll_stage(cx) {
            DrainStage::CutOff => Poll::Ready(()),
            DrainStage::Serving | DrainStage::Draining => Poll::Pending,
        }));
        for _ in 0..3 {
            drain.begin();
            tokio::task::yield_now().await;
        }
        drain.cut_off();
        tokio::time::timeout(NEVER, task)
            .await
            .expect("the watch is notified")
            .unwrap();
    }

    #[tokio::test]
    async fn tasks_that_do_not_finish_are_cut_off() {
        let (drain, mut watch) = Drain::new();
        let stubborn = tokio::spawn(async move {
            watch.wait_begun().await;
            poll_fn(|cx| {
                if watch.poll_stage(cx) == DrainStage::CutOff {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
        });
        assert_eq!(
            drain.run(Duration::ZERO, SOON).await,
            DrainOutcome::CutOff(1)
        );
        stubborn.await.unwrap();
        let (drain, watch) = Drain::new();
        let blocked = tokio::time::timeout(NEVER, drain.run(Duration::ZERO, SOON));
        assert_eq!(blocked.await, Ok(DrainOutcome::CutOff(1)));
        drop(watch);
        let (drain, watch) = Drain::new();
        drop(watch);
        assert_eq!(drain.run(SOON, NEVER).await, DrainOutcome::Finished);
    }
}
