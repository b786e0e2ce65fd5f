//! The sweep: after a change of the policy, every URL in the ledger is evaluated again. Those that it refuses get their
//! status, and those that are no longer in their crawler's space an event: with code 760 the URL leaves the index, with
//! 761 it stays, since another crawler has it (docs/policy/reference.md "Crawl spaces").
//!
//! It runs in the background in small parts, at a limited rate. Its progress is kept in the ledger, together with what
//! it has recorded: after a restart it resumes there, and a URL that is examined twice gets one event. No request waits
//! for it.
//!
//! A record under a policy that is no longer active may be written after the sweep has passed it: see
//! `sweep_late_record`.

pub mod candidate;
mod evaluation;
mod progress;
pub mod removals;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::ledger::key::LedgerKey;
use crate::ledger::record::{LedgerRecord, UnixMillis};
use crate::policy::Policy;
use crate::store::ledger::{Ledger, LedgerUnavailable, LedgerUpdate};

use super::schedules::unix_time;
use super::snapshot::ActivePolicy;
use evaluation::{RecordChange, SweepVerdict};
pub use progress::{SweepGap, SweepMode, SweepPhase, SweepProgress};

/// The number of parts in a second.
const PARTS_PER_SECOND: u64 = 10;
/// The maximum number of URLs in a part.
const MAX_PART_SIZE: usize = 1_000;
/// The pause after a failure of the disk.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The maximum number of gaps in a report.
const MAX_GAPS: usize = 1_000;

/// The sweep of a ledger. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LedgerSweeper(Arc<SweeperInner>);

#[derive(Debug)]
struct SweeperInner {
    clock: Clock,
    /// The number of URLs in a second.
    rate: u64,
    state: Mutex<SweepState>,
    order_notify: Notify,
}

#[derive(Debug, Default)]
struct SweepState {
    progress: Option<SweepProgress>,
    /// The sweep that was ordered and has not begun.
    order: Option<SweepProgress>,
}

/// The error that a sweep is already running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepInProgress;

/// `More` if a sweep continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SweepStep {
    More,
    Done,
}

impl LedgerSweeper {
    /// Creates a sweeper that examines at most `rate` URLs in a second.
    pub fn new(rate: u64, clock: Clock) -> Self {
        let state = Mutex::default();
        let ordered = Notify::new();
        Self(Arc::new(SweeperInner {
            clock,
            rate: rate.max(1),
            state,
            order_notify: ordered,
        }))
    }

    /// Orders a sweep under the active policy, which has this revision, of about `urls` URLs.
    ///
    /// # Errors
    /// If a sweep is running or ordered.
    pub fn order(&self, mode: SweepMode, revision: &str, urls: u64) -> Result<(), SweepInProgress> {
        let mut state = self.lock_state();
        let running = state
            .progress
            .as_ref()
            .is_some_and(|progress| progress.state == SweepPhase::Running);
        if running || state.order.is_some() {
            return Err(SweepInProgress);
        }
        state.order = Some(SweepProgress::new(mode, revision, urls));
        drop(state);
        self.0.order_notify.notify_one();
        Ok(())
    }

    /// Returns the progress of the sweep that is running, or is ordered and runs next, or was the last; `None` if there
    /// has been none.
    pub fn progress(&self) -> Option<SweepProgress> {
        let state = self.lock_state();
        let running = state
            .progress
            .as_ref()
            .filter(|progress| progress.state == SweepPhase::Running);
        running
            .or(state.order.as_ref())
            .or(state.progress.as_ref())
            .cloned()
    }

    /// Sweeps after each change of the policy, and on order; begins with a sweep that a restart
    /// interrupted. `ledger` returns the ledger in use. Runs until its task is dropped.
    pub async fn serve(&self, active_policy: &ActivePolicy, ledger: impl Fn() -> Option<Ledger>) {
        let mut changes = active_policy.subscribe();
        let mut order = None;
        loop {
            changes.mark_unchanged();
            let policy = Arc::clone(&active_policy.load().policy);
            let sweep = async {
                match (ledger(), order) {
                    (Some(ledger), Some(mode)) => self.sweep(&ledger, &policy, mode).await,
                    (Some(ledger), None) => self.resume(&ledger, &policy).await,
                    (None, _) => self.abandon(),
                }
                self.0.order_notify.notified().await;
            };
            order = tokio::select! {
                // A change comes before an order of the same moment, which would otherwise count as the sweep that the
                // new policy needs.
                biased;
                // Another policy makes the running sweep pointless.
                changed = changes.changed() => {
                    self.abandon();
                    if changed.is_err() {
                        return;
                    }
                    // A sweep that was ordered meanwhile runs after the one that the new policy needs.
                    None
                }
                () = sweep => self.take_order(),
            };
        }
    }

    /// Begins the sweep that was ordered.
    fn take_order(&self) -> Option<SweepMode> {
        let mut state = self.lock_state();
        let order = state.order.take()?;
        let mode = order.mode;
        state.progress = Some(order);
        Some(mode)
    }

    /// Forgets the running sweep, which was interrupted.
    fn abandon(&self) {
        let mut state = self.lock_state();
        state
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

    /// Sweeps and records the results, unless that was done under this policy already; resumes an interrupted sweep.
    pub async fn resume(&self, ledger: &Ledger, policy: &Arc<Policy>) {
        let saved = progress::load(ledger).filter(|saved| &*saved.revision == policy.revision());
        match saved {
            None => self.sweep(ledger, policy, SweepMode::ForGood).await,
            Some(done) if done.state == SweepPhase::Done => self.lock_state().progress = Some(done),
            Some(broken_off) => self.run(ledger, policy, broken_off).await,
        }
    }

    async fn run(&self, ledger: &Ledger, policy: &Arc<Policy>, mut progress: SweepProgress) {
        let mode = progress.mode;
        let revision = &*progress.revision.clone();
        tracing::info!(
            how = mode.as_str(),
            revision,
            urls = progress.total,
            "the ledger is swept"
        );
        self.lock_state().progress = Some(progress.clone());
        if mode == SweepMode::ForGood {
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
                // The ledger is unavailable at the moment, so this is not its end.
                Ok(Err(LedgerUnavailable)) => {
                    tokio::time::sleep(RETRY_DELAY).await;
                    continue;
                }
                Err(_) => return self.abandon(),
            };
            let next = if part.len() < most {
                SweepStep::Done
            } else {
                SweepStep::More
            };
            let rows = part.len();
            self.record_part(ledger, policy, &mut progress, part).await;
            if next == SweepStep::Done {
                progress.state = SweepPhase::Done;
            }
            if mode == SweepMode::ForGood {
                progress::save(ledger, &progress);
            }
            self.lock_state().progress = Some(progress.clone());
            if next == SweepStep::Done {
                break;
            }
            tokio::time::sleep(self.pause(rows)).await;
        }
        let removed = progress.removed;
        let moved = progress.moved;
        let allowed = progress.allowed;
        tracing::info!(
            how = mode.as_str(),
            revision,
            to_remove = removed,
            moved,
            allowed,
            "the ledger was swept"
        );
    }

    /// Counts and records the results of a part.
    async fn record_part(
        &self,
        ledger: &Ledger,
        policy: &Policy,
        progress: &mut SweepProgress,
        part: Vec<(LedgerKey, Arc<LedgerRecord>, SweepVerdict)>,
    ) {
        let at = wall_millis(&self.0.clock);
        for (key, record, found) in part {
            progress.resume_after = Some(key);
            let (effect, observation) = evaluation::observe(policy, &record, &found, at);
            progress.count(&record, &found, effect);
            let is_unchanged = effect.change == RecordChange::None;
            let Some(observation) = observation else {
                continue;
            };
            if progress.mode == SweepMode::DryRun || is_unchanged {
                continue;
            }
            ledger
                .record_with_retry(LedgerUpdate {
                    key,
                    observation,
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

    /// Returns the least time for a number of URLs.
    fn pause(&self, rows: usize) -> Duration {
        Duration::from_secs(1).mul_f64(rows as f64 / self.0.rate as f64)
    }

    fn lock_state(&self) -> MutexGuard<'_, SweepState> {
        self.0.state.lock()
    }
}

/// Records what the sweep under the active policy would have recorded for one URL: for an outcome under another policy
/// that was written only now.
pub(crate) fn sweep_late_record(ledger: &Ledger, policy: &Policy, key: LedgerKey, at: UnixMillis) {
    let Some(record) = ledger.look_up(key) else {
        return;
    };
    let found = evaluation::evaluate_record(policy, &record);
    let (effect, observation) = evaluation::observe(policy, &record, &found, at);
    if let Some(observation) = observation
        && effect.change != RecordChange::None
    {
        ledger.record(LedgerUpdate {
            key,
            observation,
            content_key: None,
        });
    }
}

/// Returns the wall time of a clock.
fn wall_millis(clock: &Clock) -> UnixMillis {
    let millis = unix_time(clock.wall_time()).as_millis();
    UnixMillis(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// Evaluates the next URLs. Blocks.
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
