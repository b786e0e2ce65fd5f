//! The sweep: after a change of the crawl spaces, every URL that is remembered is judged again, and those that fell out
//! of their crawler's space are told of: 760 leaves the index, 761 stays, since another crawler has it (policy.md
//! section 6).
//!
//! It runs behind the requests, a part at a time, no faster than it is told to. How far it is stands in the ledger, with
//! what it has noted: after a restart it goes on there, and what it looks at twice is told of once. No request waits for
//! it.
//!
//! What is noted under a policy that is not in force any more may come when the sweep has passed: `pass_again`.

mod judge;
mod progress;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::ledger::key::Key;
use crate::ledger::record::{At, Record};
use crate::policy::Policy;
use crate::store::ledger::{Failed, Ledger, Note};

use super::schedules::since_1970;
use super::snapshot::InForce;
use judge::Found;
pub use progress::{Gap, How, Progress, State};

/// So many parts a second.
const PARTS: u64 = 10;
/// The most URLs of one part.
const MOST: usize = 1_000;
/// How long a disk that fails is left alone.
const AGAIN: Duration = Duration::from_secs(1);
/// The most gaps that are listed.
const GAPS: usize = 1_000;

/// Sweeps a ledger. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sweeper(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    /// URLs a second.
    rate: u64,
    state: Mutex<Known>,
    ordered: Notify,
}

#[derive(Debug, Default)]
struct Known {
    progress: Option<Progress>,
    /// What is asked for and has not begun.
    order: Option<Progress>,
}

/// A sweep is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// Whether a sweep goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    More,
    Done,
}

impl Sweeper {
    /// One that looks at so many URLs a second at most.
    pub fn new(rate: u64, clock: Clock) -> Self {
        let (state, ordered) = (Mutex::default(), Notify::new());
        Self(Arc::new(Shared {
            clock,
            rate: rate.max(1),
            state,
            ordered,
        }))
    }

    /// Asks for a sweep under the policy in force, of this revision, of about so many URLs.
    ///
    /// # Errors
    /// If one is under way, or asked for.
    pub fn order(&self, how: How, revision: &str, urls: u64) -> Result<(), Busy> {
        let mut known = self.known();
        let running = known
            .progress
            .as_ref()
            .is_some_and(|progress| progress.state == State::Running);
        if running || known.order.is_some() {
            return Err(Busy);
        }
        known.order = Some(Progress::new(how, revision, urls));
        drop(known);
        self.0.ordered.notify_one();
        Ok(())
    }

    /// The sweep that runs, or the one that is asked for and runs next, or the last one that did; `None` if none ever has.
    pub fn progress(&self) -> Option<Progress> {
        let known = self.known();
        let running = known
            .progress
            .as_ref()
            .filter(|progress| progress.state == State::Running);
        running
            .or(known.order.as_ref())
            .or(known.progress.as_ref())
            .cloned()
    }

    /// Sweeps whenever another policy with crawl spaces takes force, or it is asked for; begins with what a restart broke
    /// off. `ledger` says which one is in use. Ends with the task that it runs in.
    pub async fn serve<C>(&self, in_force: &InForce<C>, ledger: impl Fn() -> Option<Ledger>) {
        let mut changes = in_force.changes();
        let mut order = None;
        loop {
            changes.mark_unchanged();
            let policy = Arc::clone(&in_force.load().policy);
            let sweep = async {
                match (ledger(), order) {
                    (Some(ledger), Some(how)) => self.sweep(&ledger, &policy, how).await,
                    (Some(ledger), None) if !policy.spaces().all().is_empty() => {
                        self.go_on(&ledger, &policy).await;
                    }
                    (Some(ledger), None) => progress::begin(&ledger, policy.revision()),
                    (None, _) => self.break_off(),
                }
                self.0.ordered.notified().await;
            };
            order = tokio::select! {
                // Before an order of the same moment, which would be taken for the sweep that the new policy needs.
                biased;
                // Another policy makes what is under way pointless.
                changed = changes.changed() => {
                    self.break_off();
                    if changed.is_err() {
                        return;
                    }
                    // What was asked for meanwhile comes behind the sweep that the new policy needs.
                    None
                }
                () = sweep => self.ordered(),
            };
        }
    }

    /// What was asked for begins.
    fn ordered(&self) -> Option<How> {
        let mut known = self.known();
        let order = known.order.take()?;
        let how = order.how;
        known.progress = Some(order);
        Some(how)
    }

    /// What was under way has ended without an end.
    fn break_off(&self) {
        let mut known = self.known();
        known
            .progress
            .take_if(|progress| progress.state == State::Running);
    }

    /// Sweeps from the first URL.
    pub async fn sweep(&self, ledger: &Ledger, policy: &Arc<Policy>, how: How) {
        let total = ledger.stats().urls.values().sum();
        self.run(ledger, policy, Progress::new(how, policy.revision(), total))
            .await;
    }

    /// Sweeps for good, unless that was done under this policy; from where it was broken off, if it was.
    pub async fn go_on(&self, ledger: &Ledger, policy: &Arc<Policy>) {
        let kept = progress::kept(ledger).filter(|kept| &*kept.revision == policy.revision());
        match kept {
            None => self.sweep(ledger, policy, How::ForGood).await,
            Some(done) if done.state == State::Done => self.known().progress = Some(done),
            Some(broken_off) => self.run(ledger, policy, broken_off).await,
        }
    }

    async fn run(&self, ledger: &Ledger, policy: &Arc<Policy>, mut progress: Progress) {
        let (how, revision) = (progress.how, &*progress.revision.clone());
        tracing::info!(?how, revision, urls = progress.total, "the ledger is swept");
        self.known().progress = Some(progress.clone());
        if how == How::ForGood {
            progress::keep(ledger, &progress);
        }
        loop {
            let (ledger_of, policy_of, most) = (ledger.clone(), Arc::clone(policy), self.part());
            let after = progress.after;
            let part =
                tokio::task::spawn_blocking(move || part(&ledger_of, &policy_of, after, most));
            let part = match part.await {
                Ok(Ok(part)) => part,
                // Not the end: it only cannot be read now.
                Ok(Err(Failed)) => {
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
                Err(_) => return self.break_off(),
            };
            let (next, rows) = (
                if part.len() < most {
                    Next::Done
                } else {
                    Next::More
                },
                part.len(),
            );
            self.take(ledger, policy, &mut progress, part).await;
            if next == Next::Done {
                progress.state = State::Done;
            }
            if how == How::ForGood {
                progress::keep(ledger, &progress);
            }
            self.known().progress = Some(progress.clone());
            if next == Next::Done {
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
    async fn take(
        &self,
        ledger: &Ledger,
        policy: &Policy,
        progress: &mut Progress,
        part: Vec<(Key, Arc<Record>, Found)>,
    ) {
        let at = At(u64::try_from(since_1970(self.0.clock.wall()).as_millis()).unwrap_or(u64::MAX));
        for (key, record, found) in part {
            progress.after = Some(key);
            let seen = judge::seen(policy, &record, &found, at);
            progress.count(&record, &found, judge::change(&record, &seen));
            if progress.how == How::DryRun || says_nothing_new(&record, &found) {
                continue;
            }
            ledger
                .insist(Note {
                    key,
                    seen,
                    content: None,
                })
                .await;
        }
    }

    fn part(&self) -> usize {
        usize::try_from(self.0.rate.div_ceil(PARTS))
            .unwrap_or(MOST)
            .min(MOST)
    }

    /// How long so many URLs must have taken.
    fn pause(&self, rows: usize) -> Duration {
        Duration::from_secs(1).mul_f64(rows as f64 / self.0.rate as f64)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the sweep under this policy would have done, had it found a URL as it is now: for what was judged under another
/// one and has only now been noted. A policy without crawl spaces sweeps nothing.
pub(in crate::gate) fn pass_again(ledger: &Ledger, policy: &Policy, key: Key, at: At) {
    if policy.spaces().all().is_empty() {
        return;
    }
    let Some(record) = ledger.look_up(key) else {
        return;
    };
    let found = judge::found(policy, &record);
    if !says_nothing_new(&record, &found) {
        let seen = judge::seen(policy, &record, &found, at);
        ledger.note(Note {
            key,
            seen,
            content: None,
        });
    }
}

/// What is as it was is not written again.
fn says_nothing_new(record: &Record, found: &Found) -> bool {
    *found == Found::Allowed && record.code.is_none()
}

/// The next URLs, judged. Blocks.
fn part(
    ledger: &Ledger,
    policy: &Policy,
    after: Option<Key>,
    most: usize,
) -> Result<Vec<(Key, Arc<Record>, Found)>, Failed> {
    let records = ledger.records(after, most)?.into_iter();
    Ok(records
        .map(|(key, record)| (key, Arc::clone(&record), judge::found(policy, &record)))
        .collect())
}
