//! Reloading the policy: one attempt at a time, triggered by a signal, by a changed file or by the admin API.
//!
//! The caller supplies what an attempt does (reading, compiling, running the cases, activating). This module has the
//! queue of requests for it, and the outcome of the last attempt. While attempts fail, the old policy stays active.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::clock::Clock;
use crate::diagnostics::problem::Problem;

/// The maximum number of pending requests. Those beyond are covered by the pending ones.
const MAX_PENDING_REQUESTS: usize = 64;

/// The trigger of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadTrigger {
    /// SIGHUP.
    Signal,
    /// The policy's files have changed.
    Files,
    /// The admin API.
    Api,
}

impl fmt::Display for ReloadTrigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signal => "signal",
            Self::Files => "files",
            Self::Api => "api",
        })
    }
}

/// The outcome of an attempt.
#[derive(Clone, Debug)]
pub enum ReloadOutcome {
    /// Another policy is active.
    Loaded {
        /// The revision that was active until then.
        previous_revision: String,
        /// The warnings about the new policy.
        warnings: Vec<Problem>,
    },
    /// The files are those of the active policy.
    Unchanged,
    /// The active policy has no files.
    NoSource,
    /// The active policy stays, because of these problems.
    Refused(Vec<Problem>),
}

impl ReloadOutcome {
    /// Returns the errors or warnings.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Loaded {
                warnings: problems, ..
            }
            | Self::Refused(problems) => problems,
            Self::Unchanged | Self::NoSource => &[],
        }
    }
}

/// The outcomes of an attempt for the active policy and its shadow policy.
#[derive(Clone, Debug)]
pub struct ReloadOutcomes {
    /// The outcome for the active policy.
    pub live: ReloadOutcome,
    /// The outcome for the shadow policy; `None` without a shadow policy.
    pub shadow: Option<ReloadOutcome>,
}

impl From<ReloadOutcome> for ReloadOutcomes {
    fn from(live: ReloadOutcome) -> Self {
        Self { live, shadow: None }
    }
}

/// One attempt to reload.
#[derive(Clone, Debug)]
pub struct ReloadAttempt {
    /// The time at which it ended.
    pub at: SystemTime,
    pub trigger: ReloadTrigger,
    pub outcome: ReloadOutcome,
    /// The outcome for the shadow policy, if there is one. A mistake in it keeps the old shadow policy and does not
    /// affect the active one.
    pub shadow: Option<ReloadOutcome>,
}

/// The last attempt, and the start of the one in progress.
#[derive(Debug, Default)]
struct ReloadState {
    last: Option<Arc<ReloadAttempt>>,
    started_at: Option<Instant>,
}

/// A handle that triggers reloads and has the outcome of the last one. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReloadHandle {
    requests: mpsc::Sender<ReloadRequest>,
    state: Arc<Mutex<ReloadState>>,
    clock: Clock,
}

/// The receiver of the requests, which makes the attempts.
#[derive(Debug)]
pub struct Reloader {
    requests: mpsc::Receiver<ReloadRequest>,
    state: Arc<Mutex<ReloadState>>,
    clock: Clock,
}

#[derive(Debug)]
struct ReloadRequest {
    trigger: ReloadTrigger,
    reply: oneshot::Sender<Arc<ReloadAttempt>>,
}

impl ReloadHandle {
    /// Creates both ends.
    pub fn new(clock: Clock) -> (Self, Reloader) {
        let (sender, receiver) = mpsc::channel(MAX_PENDING_REQUESTS);
        let state = Arc::default();
        (
            Self {
                requests: sender,
                state: Arc::clone(&state),
                clock: clock.clone(),
            },
            Reloader {
                requests: receiver,
                state,
                clock,
            },
        )
    }

    /// Requests an attempt that begins after this call, and waits for it. Requests during an attempt share the next
    /// one. `None` if the proxy is shutting down.
    pub async fn reload(&self, trigger: ReloadTrigger) -> Option<Arc<ReloadAttempt>> {
        let (reply, attempt) = oneshot::channel();
        self.requests
            .send(ReloadRequest { trigger, reply })
            .await
            .ok()?;
        attempt.await.ok()
    }

    /// Returns the last attempt; `None` if there was none.
    pub fn last_attempt(&self) -> Option<Arc<ReloadAttempt>> {
        self.state.lock().last.clone()
    }

    /// Returns the duration of the attempt in progress; `None` if none is in progress.
    pub fn running_for(&self) -> Option<Duration> {
        let started_at = self.state.lock().started_at?;
        Some(self.clock.now().saturating_duration_since(started_at))
    }
}

impl Reloader {
    /// Makes attempts until all handles are dropped.
    pub async fn serve<F: Future<Output: Into<ReloadOutcomes>>>(
        mut self,
        attempt: impl Fn(ReloadTrigger) -> F,
    ) {
        while let Some(first) = self.requests.recv().await {
            let mut requests = vec![first];
            while let Ok(more) = self.requests.try_recv() {
                requests.push(more);
            }
            let trigger = requests
                .first()
                .map_or(ReloadTrigger::Api, |request| request.trigger);
            self.state.lock().started_at = Some(self.clock.now());
            let ReloadOutcomes { live, shadow } = attempt(trigger).await.into();
            let attempt = Arc::new(ReloadAttempt {
                at: self.clock.wall_time(),
                trigger,
                outcome: live,
                shadow,
            });
            *self.state.lock() = ReloadState {
                last: Some(Arc::clone(&attempt)),
                started_at: None,
            };
            for request in requests {
                // The client may have left.
                let _ = request.reply.send(Arc::clone(&attempt));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_burst_shares_one_attempt_that_begins_after_the_one_in_progress() {
        let (clock, manual_clock) = Clock::manual();
        let (reloads, reloader) = ReloadHandle::new(clock);
        assert_eq!(reloads.running_for(), None);
        let attempts = Arc::new(AtomicUsize::new(0));
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        let server = tokio::spawn({
            let attempts = Arc::clone(&attempts);
            let gate = Arc::clone(&gate);
            reloader.serve(move |_| {
                let attempts = Arc::clone(&attempts);
                let gate = Arc::clone(&gate);
                async move {
                    attempts.fetch_add(1, Ordering::Relaxed);
                    gate.acquire().await.unwrap().forget();
                    ReloadOutcome::Unchanged
                }
            })
        });
        assert!(reloads.last_attempt().is_none());
        let spawn_reload = |trigger| {
            let reloads = reloads.clone();
            tokio::spawn(async move { reloads.reload(trigger).await })
        };
        let first = spawn_reload(ReloadTrigger::Signal);
        while attempts.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        let a_minute = Duration::from_mins(1);
        manual_clock.advance(a_minute);
        assert_eq!(reloads.running_for(), Some(a_minute));
        let burst: Vec<_> = (0..10).map(|_| spawn_reload(ReloadTrigger::Api)).collect();
        while reloads.requests.capacity() > MAX_PENDING_REQUESTS - 10 {
            tokio::task::yield_now().await;
        }
        gate.add_permits(2);
        assert_eq!(first.await.unwrap().unwrap().trigger, ReloadTrigger::Signal);
        for reload in burst {
            assert_eq!(reload.await.unwrap().unwrap().trigger, ReloadTrigger::Api);
        }
        assert_eq!(attempts.load(Ordering::Relaxed), 2);
        assert_eq!(reloads.running_for(), None);
        assert!(matches!(
            reloads.last_attempt().unwrap().outcome,
            ReloadOutcome::Unchanged
        ));
        drop(reloads);
        server.await.unwrap();
    }
}
