//! Reloading the policy: one attempt at a time, asked for by a signal, by a changed file or through the admin API.
//!
//! What an attempt does (reading, compiling, running the cases, putting in force) is handed in. Here is who asks, who
//! waits, and what became of the last attempt. While attempts fail the old policy stays in force.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tokio::sync::{mpsc, oneshot};

use crate::clock::Clock;
use crate::diagnostics::problem::Problem;

/// So many may ask at once; who comes beyond is covered by those.
const MAX_PENDING_REQUESTS: usize = 64;

/// What asked for an attempt.
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

/// What became of an attempt.
#[derive(Clone, Debug)]
pub enum ReloadOutcome {
    /// Another policy is in force.
    Loaded {
        /// The revision that was in force until then.
        previous_revision: String,
        /// What is doubtful in the new one.
        warnings: Vec<Problem>,
    },
    /// The files say what is in force already.
    Unchanged,
    /// No file stands behind the policy in force.
    NoSource,
    /// The policy in force stays, for these problems.
    Refused(Vec<Problem>),
}

impl ReloadOutcome {
    /// What was found wrong or doubtful.
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

/// What became of an attempt, for the policy in force and the one in its shadow.
#[derive(Clone, Debug)]
pub struct ReloadOutcomes {
    /// The policy in force.
    pub live: ReloadOutcome,
    /// The shadow policy; `None` if there is none.
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
    /// When it ended.
    pub at: SystemTime,
    /// What asked for it.
    pub trigger: ReloadTrigger,
    /// What became of it.
    pub outcome: ReloadOutcome,
    /// What became of the shadow policy, if there is one. A mistake in it keeps the old one, and nothing else from
    /// being loaded.
    pub shadow: Option<ReloadOutcome>,
}

/// Asks for reloads, and knows how the last one went. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReloadHandle {
    requests: mpsc::Sender<ReloadRequest>,
    last: Arc<Mutex<Option<Arc<ReloadAttempt>>>>,
}

/// The other end: makes the attempts.
#[derive(Debug)]
pub struct Reloader {
    requests: mpsc::Receiver<ReloadRequest>,
    last: Arc<Mutex<Option<Arc<ReloadAttempt>>>>,
    clock: Clock,
}

#[derive(Debug)]
struct ReloadRequest {
    trigger: ReloadTrigger,
    reply: oneshot::Sender<Arc<ReloadAttempt>>,
}

impl ReloadHandle {
    /// Both ends.
    pub fn new(clock: Clock) -> (Self, Reloader) {
        let (ask, asked) = mpsc::channel(MAX_PENDING_REQUESTS);
        let last = Arc::default();
        (
            Self {
                requests: ask,
                last: Arc::clone(&last),
            },
            Reloader {
                requests: asked,
                last,
                clock,
            },
        )
    }

    /// Asks for an attempt that begins from now on, and waits for it. Those who ask while one is under way share the
    /// next. `None` if the proxy is going down.
    pub async fn reload(&self, trigger: ReloadTrigger) -> Option<Arc<ReloadAttempt>> {
        let (answer, answered) = oneshot::channel();
        self.requests
            .send(ReloadRequest {
                trigger,
                reply: answer,
            })
            .await
            .ok()?;
        answered.await.ok()
    }

    /// The last attempt; `None` if nobody has asked for one yet.
    pub fn last_attempt(&self) -> Option<Arc<ReloadAttempt>> {
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Reloader {
    /// Makes attempts for as long as somebody can ask for one.
    pub async fn serve<F: Future<Output: Into<ReloadOutcomes>>>(
        mut self,
        attempt: impl Fn(ReloadTrigger) -> F,
    ) {
        while let Some(first) = self.requests.recv().await {
            let mut asks = vec![first];
            while let Ok(more) = self.requests.try_recv() {
                asks.push(more);
            }
            let trigger = asks.first().map_or(ReloadTrigger::Api, |ask| ask.trigger);
            let ReloadOutcomes { live, shadow } = attempt(trigger).await.into();
            let made = Arc::new(ReloadAttempt {
                at: self.clock.wall_time(),
                trigger,
                outcome: live,
                shadow,
            });
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&made));
            for ask in asks {
                // Who asked may have left.
                let _ = ask.reply.send(Arc::clone(&made));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_burst_shares_one_attempt_that_begins_behind_the_one_under_way() {
        let (reloads, reloader) = ReloadHandle::new(Clock::system());
        let made = Arc::new(AtomicUsize::new(0));
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        let server = tokio::spawn({
            let (made, gate) = (Arc::clone(&made), Arc::clone(&gate));
            reloader.serve(move |_| {
                let (made, gate) = (Arc::clone(&made), Arc::clone(&gate));
                async move {
                    made.fetch_add(1, Ordering::Relaxed);
                    gate.acquire().await.unwrap().forget();
                    ReloadOutcome::Unchanged
                }
            })
        });
        assert!(reloads.last_attempt().is_none());
        let ask = |trigger| {
            let reloads = reloads.clone();
            tokio::spawn(async move { reloads.reload(trigger).await })
        };
        let first = ask(ReloadTrigger::Signal);
        while made.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        let burst: Vec<_> = (0..10).map(|_| ask(ReloadTrigger::Api)).collect();
        while reloads.requests.capacity() > MAX_PENDING_REQUESTS - 10 {
            tokio::task::yield_now().await;
        }
        gate.add_permits(2);
        assert_eq!(first.await.unwrap().unwrap().trigger, ReloadTrigger::Signal);
        for asked in burst {
            assert_eq!(asked.await.unwrap().unwrap().trigger, ReloadTrigger::Api);
        }
        assert_eq!(made.load(Ordering::Relaxed), 2);
        assert!(matches!(
            reloads.last_attempt().unwrap().outcome,
            ReloadOutcome::Unchanged
        ));
        drop(reloads);
        server.await.unwrap();
    }
}
