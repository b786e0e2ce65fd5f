//! The sweep: after a change of the crawl spaces, every URL that is remembered is judged again, and those that fell out
//! of their crawler's space are told of: 760 leaves the index, 761 stays, since another crawler has it (policy.md
//! section 6).
//!
//! It runs behind the requests, a part at a time, no faster than it is told to. How far it is stands in the ledger, with
//! what it has noted: after a restart it goes on there, and what it looks at twice is told of once. No request waits for
//! it.
//!
//! What is noted under a policy that is not in force any more may come when the sweep has passed: `pass_again`.

mod evaluation;
mod progress;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::ledger::key::LedgerKey;
use crate::ledger::record::{LedgerRecord, UnixMillis};
use crate::policy::Policy;
use crate::store::ledger::{Ledger, LedgerUnavailable, LedgerUpdate};

use super::schedules::unix_time;
use super::snapshot::ActivePolicy;
use evaluation::SweepVerdict;
pub use progress::{SweepGap, SweepMode, SweepPhase, SweepProgress};

/// So many parts a second.
const PARTS_PER_SECOND: u64 = 10;
/// The most URLs of one part.
const MAX_PART_SIZE: usize = 1_000;
/// How long a disk that fails is left alone.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The most gaps that are listed.
const MAX_GAPS: usize = 1_000;

/// Sweeps a ledger. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LedgerSweeper(Arc<SweeperInner>);

#[derive(Debug)]
struct SweeperInner {
    clock: Clock,
    /// URLs a second.
    rate: u64,
    state: Mutex<SweepState>,
    order_notify: Notify,
}

#[derive(Debug, Default)]
struct SweepState {
    progress: Option<SweepProgress>,
    /// What is asked for and has not begun.
    order: Option<SweepProgress>,
}

/// A sweep is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepInProgress;

/// Whether a sweep goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SweepStep {
    More,
    Done,
}

impl LedgerSweeper {
    /// One that looks at so many URLs a second at most.
    pub fn new(rate: u64, clock: Clock) -> Self {
        let (state, ordered) = (Mutex::default(), Notify::new());
        Self(Arc::new(SweeperInner {
            clock,
            rate: rate.max(1),
            state,
            order_notify: ordered,
        }))
    }

    /// Asks for a sweep under the policy in force, of this revision, of about so many URLs.
    ///
    /// # Errors
    /// If one is under way, or asked for.
    pub fn order(&self, mode: SweepMode, revision: &str, urls: u64) -> Result<(), SweepInProgress> {
        let mut known = self.lock_state();
        let running = known
            .progress
            .as_ref()
            .is_some_and(|progress| progress.state == SweepPhase::Running);
        if running || known.order.is_some() {
            return Err(SweepInProgress);
        }
        known.order = Some(SweepProgress::new(mode, revision, urls));
        drop(known);
        self.0.order_notify.notify_one();
        Ok(())
    }

    /// The sweep that runs, or the one that is asked for and runs next, or the last one that did; `None` if none ever has.
    pub fn progress(&self) -> Option<SweepProgress> {
        let known = self.lock_state();
        let running = known
            .progress
            .as_ref()
            .filter(|progress| progress.state == SweepPhase::Running);
        running
            .or(known.order.as_ref())
            .or(known.progress.as_ref())
            .cloned()
    }

    /// Sweeps whenever another policy with crawl spaces takes force, or it is asked for; begins with what a restart broke
    /// off. `ledger` says which one is in use. Ends with the task that it runs in.
    pub async fn serve(&self, in_force: &ActivePolicy, ledger: impl Fn() -> Option<Ledger>) {
        let mut changes = in_force.subscribe();
        let mut order = None;
        loop {
            changes.mark_unchanged();
            let policy = Arc::clone(&in_force.load().policy);
            let sweep = async {
                match (ledger(), order) {
                    (Some(ledger), Some(how)) => self.sweep(&ledger, &policy, how).await,
                    (Some(ledger), None) if !policy.spaces().all().is_empty() => {
                        self.resume(&ledger, &policy).await;
                    }
                    (Some(ledger), None) => progress::reset_for_policy(&ledger, policy.revision()),
                    (None, _) => self.abandon(),
                }
                self.0.order_notify.notified().await;
            };
            order = tokio::select! {
                // Before an order of the same moment, which would be taken for the sweep that the new policy needs.
                biased;
                // Another policy makes what is under way pointless.
                changed = changes.changed() => {
                    self.abandon();
                    if changed.is_err() {
                        return;
                    }
                    // What was asked for meanwhile comes behind the sweep that the new policy needs.
                    None
                }
                () = sweep => self.take_order(),
            };
        }
    }

    /// What was asked for begins.
    fn take_order(&self) -> Option<SweepMode> {
        let mut known = self.lock_state();
        let order = known.order.take()?;
        let how = order.mode;
        known.progress = Some(order);
        Some(how)
    }

    /// What was under way has ended without an end.
    fn abandon(&self) {
        let mut known = self.lock_state();
        known
            .progress
            .take_if(|progress| progress.state == SweepPhase::Running);
    }

    /// Sweeps from the first URL.
    pub async fn sweep(&self, ledger: &Ledger, policy: &Arc<Policy>, mode: SweepMode) {
        let total = ledger.stats().urls.values().sum();
        self.run(
            ledger,
            policy,
            SweepProgress::new(mode, policy.revision(), total),
        )
        .await;
    }

    /// Sweeps for good, unless that was done under this policy; from where it was broken off, if it was.
    pub async fn resume(&self, ledger: &Ledger, policy: &Arc<Policy>) {
        let kept = progress::load(ledger).filter(|kept| &*kept.revision == policy.revision());
        match kept {
            None => self.sweep(ledger, policy, SweepMode::ForGood).await,
            Some(done) if done.state == SweepPhase::Done => self.lock_state().progress = Some(done),
            Some(broken_off) => self.run(ledger, policy, broken_off).await,
        }
    }

    async fn run(&self, ledger: &Ledger, policy: &Arc<Policy>, mut progress: SweepProgress) {
        let (how, revision) = (progress.mode, &*progress.revision.clone());
        tracing::info!(?how, revision, urls = progress.total, "the ledger is swept");
        self.lock_state().progress = Some(progress.clone());
        if how == SweepMode::ForGood {
            progress::save(ledger, &progress);
        }
        loop {
            let (ledger_of, policy_of, most) =
                (ledger.clone(), Arc::clone(policy), self.part_size());
            let after = progress.resume_after;
            let part = tokio::task::spawn_blocking(move || {
                evaluate_part(&ledger_of, &policy_of, after, most)
            });
            let part = match part.await {
                Ok(Ok(part)) => part,
                // Not the end: it only cannot be read now.
                Ok(Err(LedgerUnavailable)) => {
                    tokio::time::sleep(RETRY_DELAY).await;
                    continue;
                }
                Err(_) => return self.abandon(),
            };
            let (next, rows) = (
                if part.len() < most {
                    SweepStep::Done
                } else {
                    SweepStep::More
                },
                part.len(),
            );
            self.record_part(ledger, policy, &mut progress, part).await;
            if next == SweepStep::Done {
                progress.state = SweepPhase::Done;
            }
            if how == SweepMode::ForGood {
                progress::save(ledger, &progress);
            }
            self.lock_state().progress = Some(progress.clone());
            if next == SweepStep::Done {
                break;
            }
            tokio::time::sleep(self.pause(rows)).await;
        }
        let (removed, moved, allowed) = (progress.removed, progress.moved, progress.allowed);
        tracing::info!(
            ?how,
            revision,
            removed,
            moved,
            allowed,
            "the ledger was swept"
        );
    }

    /// Counts what was found, and notes it.
    async fn record_part(
        &self,
        ledger: &Ledger,
        policy: &Policy,
        progress: &mut SweepProgress,
        part: Vec<(LedgerKey, Arc<LedgerRecord>, SweepVerdict)>,
    ) {
        let at = UnixMillis(
            u64::try_from(unix_time(self.0.clock.wall_time()).as_millis()).unwrap_or(u64::MAX),
        );
        for (key, record, found) in part {
            progress.resume_after = Some(key);
            let seen = evaluation::to_observation(policy, &record, &found, at);
            progress.count(&record, &found, evaluation::record_change(&record, &seen));
            if progress.mode == SweepMode::DryRun || is_unchanged(&record, &found) {
                continue;
            }
            ledger
                .record_with_retry(LedgerUpdate {
                    key,
                    observation: seen,
                    content_key: None,
                })
                .await;
        }
    }

    fn part_size(&self) -> usize {
        usize::try_from(self.0.rate.div_ceil(PARTS_PER_SECOND))
            .unwrap_or(MAX_PART_SIZE)
            .min(MAX_PART_SIZE)
    }

    /// How long so many URLs must have taken.
    fn pause(&self, rows: usize) -> Duration {
        Duration::from_secs(1).mul_f64(rows as f64 / self.0.rate as f64)
    }

    fn lock_state(&self) -> MutexGuard<'_, SweepState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the sweep under this policy would have done, had it found a URL as it is now: for what was judged under another
/// one and has only now been noted. A policy without crawl spaces sweeps nothing.
pub(crate) fn sweep_late_record(ledger: &Ledger, policy: &Policy, key: LedgerKey, at: UnixMillis) {
    if policy.spaces().all().is_empty() {
        return;
    }
    let Some(record) = ledger.look_up(key) else {
        return;
    };
    let found = evaluation::evaluate_record(policy, &record);
    if !is_unchanged(&record, &found) {
        let seen = evaluation::to_observation(policy, &record, &found, at);
        ledger.record(LedgerUpdate {
            key,
            observation: seen,
            content_key: None,
        });
    }
}

/// What is as it was is not written again.
fn is_unchanged(record: &LedgerRecord, verdict: &SweepVerdict) -> bool {
    *verdict == SweepVerdict::Allowed && record.code.is_none()
}

/// The next URLs, judged. Blocks.
fn evaluate_part(
    ledger: &Ledger,
    policy: &Policy,
    after: Option<LedgerKey>,
    most: usize,
) -> Result<Vec<(LedgerKey, Arc<LedgerRecord>, SweepVerdict)>, LedgerUnavailable> {
    let records = ledger.records(after, most)?.into_iter();
    Ok(records
        .map(|(key, record)| {
            (
                key,
                Arc::clone(&record),
                evaluation::evaluate_record(policy, &record),
            )
        })
        .collect())
}
