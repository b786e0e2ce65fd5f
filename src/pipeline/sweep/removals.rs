//! The ordering of pending removals: after the grace time, and as many as the guard permits.
//!
//! A removal whose cause may concern many URLs is first recorded as pending (`crate::ledger::removal`). Here those that
//! are due are ordered, unless their cause no longer applies:
//!
//! - Removals by a policy are ordered only while this policy is active and after it was swept for, so that every URL has
//!   been evaluated under it. The sweep of another policy cancels them, or makes them its own.
//! - A removal by robots.txt is ordered if the file still forbids the URL, and canceled if it allows it. The file must have
//!   been fetched after it first forbade the URL; while it is unknown the removal stays pending.
//! - A removal by robots.txt or noindex is canceled if the option `removal` of the active policy keeps such pages.
//!
//! If one cause would remove too large a share of the index, the rest is held until an operator confirms it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use prost::Message as _;

use crate::clock::Clock;
use crate::ledger::key::LedgerKey;
use crate::ledger::observation::{ObservationOutcome, UrlObservation};
use crate::ledger::record::{LedgerRecord, UnixMillis};
use crate::ledger::removal::{
    HeldRemovals, PendingRemoval, RemovalAccount, RemovalCause, RemovalDecision, RemovalGuard,
    RemovalGuardSettings, RemovalPermit,
};
use crate::model::crawler::Crawler;
use crate::model::removal::RemovalAction;
use crate::model::rule_id::Slug;
use crate::pipeline::admission::AdmissionQueue;
use crate::pipeline::robots_fetch::RobotsProvider;
use crate::pipeline::snapshot::{ActivePolicy, PolicySnapshot};
use crate::pipeline::stage::robots::{self, RobotsConfirmation};
use crate::store::ledger::{Ledger, LedgerUnavailable, LedgerUpdate, PendingCause, PendingUrl};
use crate::urls::target::UrlTarget;

use super::{MAX_PART_SIZE, evaluation, progress, wall_millis};

/// The key of the guard in the ledger.
const NAME: &str = "removals";
/// The interval of checks for removals that are due.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The time by which the wall clock may differ from the monotonic one over a grace time.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);
/// The time for which the number of URLs in the index is not counted again.
const INDEX_SIZE_VALIDITY: Duration = Duration::from_secs(3600);

/// Orders pending removals. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RemovalScheduler(Arc<SchedulerInner>);

#[derive(Debug)]
struct SchedulerInner {
    settings: RemovalGuardSettings,
    /// The number of URLs in a second.
    rate: u64,
    crawlers: Arc<[Crawler]>,
    clock: Clock,
    state: Mutex<SchedulerState>,
}

#[derive(Debug, Default)]
struct SchedulerState {
    /// `None` until it was read from the ledger.
    guard: Option<RemovalGuard>,
    /// The number of URLs that an index had before the removals of the last 24 hours, and when it was counted.
    index_size: Option<(u64, UnixMillis)>,
    /// The number of pending removals of held accounts, and the number of all of this kind at that time.
    held_counts: BTreeMap<RemovalAccount, (u64, u64)>,
}

/// Removals that are held until an operator confirms them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldAccount {
    pub account: RemovalAccount,
    pub held: HeldRemovals,
    /// The number of URLs.
    pub count: u64,
}

/// Where the robots.txt of hosts is known from, and what fetches it.
#[derive(Debug)]
pub struct RobotsSource<'a, R> {
    pub robots: &'a R,
    pub admission: &'a Arc<AdmissionQueue>,
}

/// The removals that are due, and what their decision depends on.
struct RemovalPass<'a, R> {
    ledger: &'a Ledger,
    snapshot: &'a Arc<PolicySnapshot>,
    source: &'a RobotsSource<'a, R>,
    now: UnixMillis,
    /// `true` if the option `removal` may differ by response.
    removal_depends_on_response: bool,
}

/// A file that is unknown in this pass: its base URL, and the crawler, since the policy may obey it for that one only.
type UnknownFile = (Box<str>, Arc<str>);

impl RemovalScheduler {
    /// Creates a scheduler that examines at most `rate` URLs in a second. `crawlers` are those of the configuration.
    pub fn new(
        settings: RemovalGuardSettings,
        rate: u64,
        crawlers: Arc<[Crawler]>,
        clock: Clock,
    ) -> Self {
        Self(Arc::new(SchedulerInner {
            settings,
            rate: rate.max(1),
            crawlers,
            clock,
            state: Mutex::default(),
        }))
    }

    /// Orders removals when they are due. `ledger` returns the ledger in use. Runs until its task is dropped.
    pub async fn serve<R: RobotsProvider>(
        &self,
        active_policy: &ActivePolicy,
        ledger: impl Fn() -> Option<Ledger>,
        source: &RobotsSource<'_, R>,
    ) {
        let mut changes = active_policy.subscribe();
        let mut interval = tokio::time::interval(CHECK_INTERVAL);
        loop {
            interval.tick().await;
            let Some(ledger) = ledger() else { continue };
            changes.mark_unchanged();
            let snapshot = active_policy.load();
            tokio::select! {
                biased;
                // Nothing more is ordered under a policy that is no longer active.
                changed = changes.changed() => if changed.is_err() { return },
                // A disk that fails is tried again.
                _ = self.order_due(&ledger, &snapshot, source) => {}
            }
        }
    }

    /// Orders the removals that are due now.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn order_due<R: RobotsProvider>(
        &self,
        ledger: &Ledger,
        snapshot: &Arc<PolicySnapshot>,
        source: &RobotsSource<'_, R>,
    ) -> Result<(), LedgerUnavailable> {
        if self.lock_state().guard.is_none() {
            let guard = load_guard(ledger);
            self.lock_state().guard.get_or_insert(guard);
        }
        let now = wall_millis(&self.0.clock);
        let causes = if ledger.has_pending_removals() {
            read_blocking(ledger, Ledger::pending_causes).await?
        } else {
            Vec::new()
        };
        self.forget_settled(ledger, &causes, now);
        if causes.is_empty() {
            return self.count_held(ledger).await;
        }
        let pass = RemovalPass {
            ledger,
            snapshot,
            source,
            now,
            removal_depends_on_response: evaluation::removal_depends_on_response(&snapshot.policy),
        };
        for pending in causes {
            if self.is_due(&pass, &pending) {
                self.order_cause(&pass, &pending.cause).await?;
            }
        }
        self.count_held(ledger).await
    }

    /// Confirms the held removals of one account, or of all, and returns their causes.
    pub fn confirm(&self, ledger: &Ledger, only: Option<&RemovalAccount>) -> Vec<RemovalCause> {
        let mut state = self.lock_state();
        let Some(guard) = &mut state.guard else {
            return Vec::new();
        };
        let causes = guard.confirm(only, wall_millis(&self.0.clock));
        if !causes.is_empty() {
            save_guard(ledger, guard);
        }
        causes
    }

    /// Returns the removals that are held.
    pub fn held(&self) -> Vec<HeldAccount> {
        let state = self.lock_state();
        let Some(guard) = &state.guard else {
            return Vec::new();
        };
        let rows = guard.held().iter().map(|(account, held)| HeldAccount {
            account: account.clone(),
            held: held.clone(),
            count: state
                .held_counts
                .get(account)
                .map_or(0, |(count, _)| *count),
        });
        rows.collect()
    }

    /// Returns the settings of the guard.
    pub fn settings(&self) -> RemovalGuardSettings {
        self.0.settings
    }

    fn forget_settled(&self, ledger: &Ledger, causes: &[PendingCause], now: UnixMillis) {
        let mut state = self.lock_state();
        let Some(guard) = &mut state.guard else {
            return;
        };
        let is_pending = |account: &RemovalAccount| {
            causes
                .iter()
                .any(|pending| pending.cause.account().as_ref() == Some(account))
        };
        if guard.forget_settled(is_pending, now) {
            save_guard(ledger, guard);
        }
    }

    /// Returns `true` if the oldest removal by a cause is due and may be ordered under the active policy.
    fn is_due<R>(&self, pass: &RemovalPass<'_, R>, pending: &PendingCause) -> bool {
        let may_be_ordered = match &pending.cause {
            RemovalCause::Policy { revision } => {
                **revision == *pass.snapshot.policy.revision()
                    && progress::is_done(pass.ledger, revision)
            }
            RemovalCause::RobotsTxt { .. } | RemovalCause::Noindex { .. } => true,
            RemovalCause::Page => true,
        };
        may_be_ordered && pending.oldest <= self.due_before(pass.now)
    }

    /// Returns the latest time of a removal that is due.
    fn due_before(&self, now: UnixMillis) -> UnixMillis {
        let grace = u64::try_from(self.0.settings.grace.as_millis()).unwrap_or(u64::MAX);
        UnixMillis(now.0.saturating_sub(grace))
    }

    /// Orders the removals of one cause that are due, as many as the guard permits.
    async fn order_cause<R: RobotsProvider>(
        &self,
        pass: &RemovalPass<'_, R>,
        cause: &RemovalCause,
    ) -> Result<(), LedgerUnavailable> {
        let Some(account) = cause.account() else {
            return Ok(());
        };
        let upto = self.due_before(pass.now);
        let mut unknown = HashSet::new();
        let mut after = None;
        loop {
            let of = cause.clone();
            let due = read_blocking(pass.ledger, move |ledger| {
                ledger.pending_removals(&of, upto, after, MAX_PART_SIZE)
            })
            .await?;
            if due.is_empty() {
                return Ok(());
            }
            let (of, now) = (account.clone(), pass.now);
            let ordered =
                read_blocking(pass.ledger, move |ledger| ledger.ordered_removals(&of, now)).await?;
            let (decision, most) = match self.permit(pass, cause, ordered) {
                RemovalPermit::Held => return Ok(()),
                RemovalPermit::NeedsIndexSize => {
                    self.count_index(pass, ordered).await?;
                    continue;
                }
                RemovalPermit::Confirmed => (RemovalDecision::OrderConfirmed, u64::MAX),
                RemovalPermit::AtMost(most) => (RemovalDecision::Order, most),
            };
            let examined = self
                .order_part(pass, cause, &due, decision, most, &mut unknown)
                .await;
            // Those that stay pending hold up no others.
            after = examined.or(after);
            tokio::time::sleep(self.pause(due.len())).await;
        }
    }

    /// Orders at most `most` removals, and waits until they are on disk. Returns the last one that was examined.
    async fn order_part<R: RobotsProvider>(
        &self,
        pass: &RemovalPass<'_, R>,
        cause: &RemovalCause,
        due: &[PendingUrl],
        decision: RemovalDecision,
        most: u64,
        unknown: &mut HashSet<UnknownFile>,
    ) -> Option<PendingUrl> {
        let mut remaining = most;
        let mut examined = None;
        for url in due {
            if remaining == 0 {
                break;
            }
            examined = Some(*url);
            let record = pass.ledger.look_up(url.key);
            let Some((record, pending)) = record.as_deref().and_then(|record| {
                let pending = record.pending_removal.as_deref()?;
                (pending.cause == *cause && pending.since == url.since).then_some((record, pending))
            }) else {
                pass.ledger.delete_stale_entry(cause, *url);
                continue;
            };
            let decision = match self.confirm_cause(pass, record, pending, unknown) {
                RobotsConfirmation::Allowed => RemovalDecision::Cancel,
                RobotsConfirmation::Refused => {
                    remaining -= 1;
                    decision
                }
                RobotsConfirmation::Unknown => continue,
            };
            let update = decided_update(pass.now, url.key, record, pending, decision);
            pass.ledger.record_with_retry(update).await;
        }
        pass.ledger.flush().await;
        examined
    }

    /// Checks whether the cause of a removal still applies. The robots.txt of a host can change unnoticed; what a response has
    /// stated is confirmed by the next response alone. For both, the policy may keep such pages by now.
    fn confirm_cause<R: RobotsProvider>(
        &self,
        pass: &RemovalPass<'_, R>,
        record: &LedgerRecord,
        pending: &PendingRemoval,
        unknown: &mut HashSet<UnknownFile>,
    ) -> RobotsConfirmation {
        match &pending.cause {
            RemovalCause::RobotsTxt { .. } | RemovalCause::Noindex { .. } => {}
            RemovalCause::Policy { .. } | RemovalCause::Page => {
                return RobotsConfirmation::Refused;
            }
        }
        let Ok(target) = UrlTarget::parse(&record.url) else {
            return RobotsConfirmation::Refused;
        };
        let file = (Box::from(target.base()), Arc::clone(&record.crawler));
        if pending.status.is_none() && unknown.contains(&file) {
            return RobotsConfirmation::Unknown;
        }
        let crawler = self.crawler(&record.crawler);
        let user_agent = pending.user_agent.as_deref();
        let evaluation =
            evaluation::evaluate_request(pass.snapshot, target, record, crawler, user_agent);
        let is_stated_by_response = pending.status.is_some();
        if evaluation::removal_action(&evaluation, &pending.cause) == Some(RemovalAction::Keep)
            && !(is_stated_by_response && pass.removal_depends_on_response)
        {
            return RobotsConfirmation::Allowed;
        }
        if is_stated_by_response {
            return RobotsConfirmation::Refused;
        }
        let RobotsSource { robots, admission } = *pass.source;
        let newer_than = self.confirming_time(pending.since);
        let confirmation = robots::confirm_refusal(&evaluation, newer_than, robots, admission);
        // That of a URL which the policy refuses is not fetched, that of another URL may be.
        if confirmation == RobotsConfirmation::Unknown && evaluation.ensure_admitted().is_ok() {
            unknown.insert(file);
        }
        confirmation
    }

    /// Returns the time after which a robots.txt must have been fetched to confirm a removal; `None` if any will do, since
    /// the site is given no time to correct it.
    fn confirming_time(&self, since: UnixMillis) -> Option<Instant> {
        if self.0.settings.grace.is_zero() {
            return None;
        }
        let age = wall_millis(&self.0.clock).duration_since(since);
        let age = age.saturating_sub(CLOCK_TOLERANCE);
        self.0.clock.now().checked_sub(age)
    }

    /// Returns a crawler by its name, if possible that of the configuration, which knows its product token.
    fn crawler(&self, name: &str) -> Crawler {
        let mut configured = self.0.crawlers.iter();
        configured
            .find(|crawler| crawler.as_str() == name)
            .cloned()
            .or_else(|| Slug::new(name).as_ref().map(Crawler::new))
            .unwrap_or_else(Crawler::anonymous)
    }

    /// Asks the guard, and reports an account that is held from now on.
    fn permit<R>(
        &self,
        pass: &RemovalPass<'_, R>,
        cause: &RemovalCause,
        ordered: u64,
    ) -> RemovalPermit {
        let mut state = self.lock_state();
        let index_size = state.index_size.and_then(|(size, at)| {
            (pass.now.duration_since(at) < INDEX_SIZE_VALIDITY).then_some(size)
        });
        let guard = state.guard.get_or_insert_default();
        let was_held = guard.held().len();
        let permit = guard.permit(self.0.settings, cause, ordered, index_size, pass.now);
        let newly_held = guard.held().len() > was_held;
        let held = cause
            .account()
            .and_then(|account| guard.held().get(&account));
        if let Some(held) = held.filter(|_| newly_held) {
            save_guard(pass.ledger, guard);
            tracing::warn!(
                cause = %cause,
                ordered = held.ordered,
                limit = held.limit,
                "further removals are held: this cause has removed as many URLs within 24 hours as \
                 ledger.removal_guard.hold permits. Correct the cause, or confirm the removals with: \
                 crawlgate ledger sweep --confirm"
            );
        }
        permit
    }

    /// Counts the URLs that an index may have, and adds the removals that were ordered.
    async fn count_index<R>(
        &self,
        pass: &RemovalPass<'_, R>,
        ordered: u64,
    ) -> Result<(), LedgerUnavailable> {
        let mut size = ordered;
        let mut after = None;
        loop {
            let records = read_blocking(pass.ledger, move |ledger| {
                ledger.records(after, MAX_PART_SIZE)
            })
            .await?;
            size += records
                .iter()
                .filter(|(_, record)| record.may_leave_index())
                .count() as u64;
            after = records.last().map(|(key, _)| *key);
            if records.len() < MAX_PART_SIZE {
                break;
            }
            tokio::time::sleep(self.pause(records.len())).await;
        }
        self.lock_state().index_size = Some((size, pass.now));
        Ok(())
    }

    /// Counts the removals of held accounts, if the number of pending ones has changed.
    async fn count_held(&self, ledger: &Ledger) -> Result<(), LedgerUnavailable> {
        let pending = ledger.stats().pending_removals;
        for HeldAccount { account, held, .. } in self.held() {
            let total = pending.get(&account.kind()).copied().unwrap_or(0);
            let known = self.lock_state().held_counts.get(&account).copied();
            if known.is_some_and(|(_, before)| before == total) {
                continue;
            }
            let count = read_blocking(ledger, move |ledger| {
                ledger.count_pending_removals(&held.cause)
            })
            .await?;
            self.lock_state()
                .held_counts
                .insert(account, (count, total));
        }
        let mut state = self.lock_state();
        let SchedulerState {
            guard: Some(guard),
            held_counts,
            ..
        } = &mut *state
        else {
            return Ok(());
        };
        held_counts.retain(|account, _| guard.held().contains_key(account));
        Ok(())
    }

    /// Returns the least time for a number of URLs.
    fn pause(&self, rows: usize) -> Duration {
        Duration::from_secs(1).mul_f64(rows as f64 / self.0.rate as f64)
    }

    fn lock_state(&self) -> MutexGuard<'_, SchedulerState> {
        self.0.state.lock()
    }
}

/// Returns the observation that a pending removal is ordered or canceled.
fn decided_update(
    at: UnixMillis,
    key: LedgerKey,
    record: &LedgerRecord,
    pending: &PendingRemoval,
    decision: RemovalDecision,
) -> LedgerUpdate {
    LedgerUpdate {
        key,
        observation: UrlObservation {
            at,
            url: Arc::clone(&record.url),
            crawler: Arc::clone(&record.crawler),
            space: record.space.clone(),
            depth: None,
            address: None,
            source: None,
            revision: Arc::clone(&pending.revision),
            rule: pending.rule.clone(),
            intent: None,
            user_agent: None,
            outcome: ObservationOutcome::PendingRemoval(Box::new(pending.clone()), decision),
        },
        content_key: None,
    }
}

/// Reads from the ledger on a thread that may block.
async fn read_blocking<T: Send + 'static>(
    ledger: &Ledger,
    read: impl FnOnce(&Ledger) -> Result<T, LedgerUnavailable> + Send + 'static,
) -> Result<T, LedgerUnavailable> {
    let ledger = ledger.clone();
    tokio::task::spawn_blocking(move || read(&ledger))
        .await
        .unwrap_or(Err(LedgerUnavailable))
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredGuard {
    #[prost(message, repeated, tag = "1")]
    held: Vec<StoredHeldRemovals>,
    #[prost(message, repeated, tag = "2")]
    confirmed: Vec<StoredConfirmation>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredHeldRemovals {
    #[prost(string, tag = "1")]
    cause: String,
    #[prost(uint64, tag = "2")]
    since: u64,
    #[prost(uint64, tag = "3")]
    ordered: u64,
    #[prost(uint64, tag = "4")]
    limit: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredConfirmation {
    #[prost(string, tag = "1")]
    cause: String,
    #[prost(uint64, tag = "2")]
    until: u64,
}

fn save_guard(ledger: &Ledger, guard: &RemovalGuard) {
    let held = guard.held().values().map(|held| StoredHeldRemovals {
        cause: held.cause.to_string(),
        since: held.since.0,
        ordered: held.ordered,
        limit: held.limit,
    });
    let confirmed = guard
        .confirmed()
        .iter()
        .map(|(cause, until)| StoredConfirmation {
            cause: cause.to_string(),
            until: until.0,
        });
    let stored = StoredGuard {
        held: held.collect(),
        confirmed: confirmed.collect(),
    };
    ledger.store_value(NAME, stored.encode_to_vec());
}

fn load_guard(ledger: &Ledger) -> RemovalGuard {
    let stored = ledger
        .load_value(NAME)
        .and_then(|bytes| StoredGuard::decode(&*bytes).ok())
        .unwrap_or_default();
    RemovalGuard::from_parts(
        stored.held.into_iter().filter_map(|held| {
            Some(HeldRemovals {
                cause: RemovalCause::from_text(&held.cause)?,
                since: UnixMillis(held.since),
                ordered: held.ordered,
                limit: held.limit,
            })
        }),
        stored.confirmed.into_iter().filter_map(|confirmation| {
            let cause = RemovalCause::from_text(&confirmation.cause)?;
            Some((cause, UnixMillis(confirmation.until)))
        }),
    )
}
