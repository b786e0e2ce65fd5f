//! The series of rules: shared by all loaded policies that have the rule, and kept for a while when it is gone.
//!
//! A rule that is gone keeps its series for [`RETENTION`], so that Prometheus sees its last counts: `rate()` over a reload would
//! else miss what came after the last scrape. A rule that is back by then goes on counting. What policies are loaded is
//! not known here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use prometheus::{IntCounter, IntCounterVec};

use crate::clock::Clock;
use crate::metrics::labels::{MetricsMode, RuleKind, RuleMode, VerdictLabel};
use crate::metrics::names;
use crate::metrics::series::{Error, Registrar};

use super::{RULE_LABELS, RuleCounts};

/// How long the series of a rule that is gone are kept; longer than anybody waits between two scrapes.
pub const RETENTION: Duration = Duration::from_secs(600);
/// How many rules that are gone have theirs kept; over that the oldest lose theirs sooner. A rule that is back is none of
/// them.
const MAX_RETIRED: usize = RULE_LABELS;

/// A label and a mode.
type RuleSeriesKey = (Box<str>, RuleMode);

/// The families of rules, and their series.
pub(super) struct RuleCounterFamilies {
    matched: IntCounterVec,
    decided: IntCounterVec,
    counting: MetricsMode,
    /// The clock of the policies, and when the first was loaded.
    clock: OnceLock<(Clock, Instant)>,
    table: Mutex<RuleSeriesTable>,
}

#[derive(Default)]
struct RuleSeriesTable {
    series: BTreeMap<RuleSeriesKey, RuleSeriesEntry>,
    /// Those without users, and since when; none that has been claimed since.
    retired: BTreeSet<(Instant, RuleSeriesKey)>,
}

struct RuleSeriesEntry {
    counters: Arc<RuleCounters>,
    /// How many living policies have it.
    users: usize,
    /// Since when it has none.
    retired_since: Option<Instant>,
}

impl RuleCounterFamilies {
    pub(super) fn register(new: &Registrar<'_>, counting: MetricsMode) -> Result<Self, Error> {
        Ok(Self {
            matched: new.counters(&names::RULE_MATCHED)?,
            decided: new.counters(&names::RULE_DECIDED)?,
            counting,
            clock: OnceLock::new(),
            table: Mutex::default(),
        })
    }

    /// Goes by this clock from now on; the first one stays.
    pub(super) fn set_clock(&self, clock: &Clock) {
        self.clock.get_or_init(|| (clock.clone(), clock.now()));
    }

    /// Resolves the series of a rule, and notes one more user of them. `None` if nothing is counted.
    pub(super) fn acquire(
        &self,
        rule: &str,
        mode: RuleMode,
        kind: RuleKind,
    ) -> Option<Arc<RuleCounters>> {
        if self.counting == MetricsMode::Nothing || mode == RuleMode::Disabled {
            return None;
        }
        let counters = self.with_table(|shelf| {
            let key: RuleSeriesKey = (rule.into(), mode);
            let series = shelf.series.entry(key.clone()).or_insert_with(|| {
                let matched = self.matched.with_label_values(&[rule, mode.as_str()]);
                RuleSeriesEntry {
                    counters: Arc::new(RuleCounters::new(matched)),
                    users: 0,
                    retired_since: None,
                }
            });
            series.users += 1;
            if let Some(since) = series.retired_since.take() {
                shelf.retired.remove(&(since, key));
            }
            Arc::clone(&series.counters)
        });
        for verdict in kind.verdicts() {
            self.verdict_counter(&counters, rule, mode, *verdict);
        }
        Some(counters)
    }

    /// Notes one user less of each; with the last, the time of a series begins to run out. All of a policy at once: it
    /// may be a request that drops it.
    pub(super) fn release<'r>(&self, rules: impl Iterator<Item = (&'r str, RuleMode)>) {
        let Some((clock, _)) = self.clock.get() else {
            return;
        };
        let now = clock.now();
        // The texts are copied before anybody is kept waiting.
        let keys: Vec<RuleSeriesKey> = rules.map(|(rule, mode)| (rule.into(), mode)).collect();
        self.with_table(|shelf| {
            keys.into_iter().for_each(|key| shelf.release(key, now));
            self.sweep_table(shelf, now);
        });
    }

    /// Removes the series whose time is over.
    pub(super) fn sweep(&self) {
        let Some((clock, _)) = self.clock.get() else {
            return;
        };
        self.with_table(|shelf| self.sweep_table(shelf, clock.now()));
    }

    fn sweep_table(&self, shelf: &mut RuleSeriesTable, now: Instant) {
        let over = |at: Instant, count: usize| {
            count > MAX_RETIRED || now.saturating_duration_since(at) >= RETENTION
        };
        while shelf
            .retired
            .first()
            .is_some_and(|(at, _)| over(*at, shelf.retired.len()))
        {
            let Some((_, key)) = shelf.retired.pop_first() else {
                return;
            };
            shelf.series.remove(&key);
            self.remove_series(&key);
        }
    }

    fn remove_series(&self, (rule, mode): &RuleSeriesKey) {
        let _ = self.matched.remove_label_values(&[rule, mode.as_str()]);
        for verdict in RuleKind::Group.verdicts() {
            let _ = self
                .decided
                .remove_label_values(&[rule, mode.as_str(), verdict.as_str()]);
        }
    }

    /// Counts a match, in a request that ended `at` this time.
    pub(super) fn record_match(&self, counters: &RuleCounters, at: Instant) {
        counters.matched.inc();
        if let Some((_, first)) = self.clock.get() {
            counters.set_last_match(at.saturating_duration_since(*first));
        }
    }

    /// The counter of a verdict. A filter has none of allows until a tunnel passes that it might have refused.
    pub(super) fn verdict_counter<'c>(
        &self,
        counters: &'c RuleCounters,
        rule: &str,
        mode: RuleMode,
        verdict: VerdictLabel,
    ) -> &'c IntCounter {
        let place = match verdict {
            VerdictLabel::Allow | VerdictLabel::ShadowReject => &counters.allowed,
            VerdictLabel::Reject => &counters.rejected,
        };
        place.get_or_init(|| {
            self.decided
                .with_label_values(&[rule, mode.as_str(), verdict.as_str()])
        })
    }

    /// What was counted so far.
    pub(super) fn counts(&self, counters: &RuleCounters) -> RuleCounts {
        let count = |counter: &OnceLock<IntCounter>| counter.get().map_or(0, IntCounter::get);
        RuleCounts {
            matched: counters.matched.get(),
            allowed: count(&counters.allowed),
            rejected: count(&counters.rejected),
            last_match: self.wall_time(counters.last_match.load(Ordering::Relaxed)),
        }
    }

    /// Reckoned back from now, so that a wall clock that was set meanwhile does not matter.
    fn wall_time(&self, last_match: u32) -> Option<SystemTime> {
        let since = Duration::from_secs(u64::from(last_match.checked_sub(1)?));
        let (clock, first) = self.clock.get()?;
        let ago = clock
            .now()
            .saturating_duration_since(*first)
            .saturating_sub(since);
        clock.wall_time().checked_sub(ago)
    }

    fn with_table<T>(&self, work: impl FnOnce(&mut RuleSeriesTable) -> T) -> T {
        work(&mut self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl RuleSeriesTable {
    fn release(&mut self, key: RuleSeriesKey, now: Instant) {
        let Some(series) = self.series.get_mut(&key) else {
            return;
        };
        series.users = series.users.saturating_sub(1);
        if series.users == 0 {
            series.retired_since = Some(now);
            self.retired.insert((now, key));
        }
    }
}

/// What is counted of one label and mode.
pub(super) struct RuleCounters {
    matched: IntCounter,
    allowed: OnceLock<IntCounter>,
    rejected: OnceLock<IntCounter>,
    /// Whole seconds from the first load to the last match, and one; 0 before the first match.
    last_match: AtomicU32,
}

impl RuleCounters {
    fn new(matched: IntCounter) -> Self {
        let (allowed, rejected) = (OnceLock::new(), OnceLock::new());
        Self {
            matched,
            allowed,
            rejected,
            last_match: AtomicU32::new(0),
        }
    }

    /// Written once a second at most, so that threads do not take the line from each other.
    fn set_last_match(&self, time: Duration) {
        let second = u32::try_from(time.as_secs())
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        if self.last_match.load(Ordering::Relaxed) != second {
            self.last_match.store(second, Ordering::Relaxed);
        }
    }
}
