//! The series of rules: shared by all loaded policies that contain the rule, and kept for a while after the last.
//!
//! A removed rule keeps its series for [`RETENTION`], so that Prometheus sees its last counts: otherwise `rate()` over a
//! reload would miss what was counted after the last scrape. A rule that returns within that time keeps its counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use prometheus::{IntCounter, IntCounterVec};

use crate::clock::Clock;
use crate::metrics::families::MetricFamilies;
use crate::metrics::labels::{MetricsMode, RuleKind, RuleMode, VerdictLabel};

use super::{RULE_LABELS, RuleCounts};

/// The time for which the series of a removed rule are kept; longer than any scrape interval.
pub const RETENTION: Duration = Duration::from_secs(600);
/// The number of removed rules whose series are kept; beyond that, the oldest are dropped sooner.
const MAX_RETIRED: usize = RULE_LABELS;

/// A label and a mode.
type RuleSeriesKey = (Box<str>, RuleMode);

/// The families of rule counters, and their series.
pub(super) struct RuleCounterFamilies {
    matched: IntCounterVec,
    decided: IntCounterVec,
    metrics_mode: MetricsMode,
    /// The clock of the policies, and the time of the first load.
    clock: OnceLock<(Clock, Instant)>,
    table: Mutex<RuleSeriesTable>,
}

#[derive(Default)]
struct RuleSeriesTable {
    series: BTreeMap<RuleSeriesKey, RuleSeriesEntry>,
    /// The series without users, and since when.
    retired: BTreeSet<(Instant, RuleSeriesKey)>,
}

struct RuleSeriesEntry {
    counters: Arc<RuleCounters>,
    /// The number of loaded policies that use it.
    users: usize,
    /// The time since which it has no users.
    retired_since: Option<Instant>,
}

impl RuleCounterFamilies {
    pub(super) fn new(families: &MetricFamilies, mode: MetricsMode) -> Self {
        Self {
            matched: families.rule_matched.clone(),
            decided: families.rule_decided.clone(),
            metrics_mode: mode,
            clock: OnceLock::new(),
            table: Mutex::default(),
        }
    }

    /// Sets the clock; only the first call has an effect.
    pub(super) fn set_clock(&self, clock: &Clock) {
        self.clock.get_or_init(|| (clock.clone(), clock.now()));
    }

    /// Resolves the series of a rule and adds a user. `None` if nothing is counted.
    pub(super) fn acquire(
        &self,
        rule: &str,
        mode: RuleMode,
        kind: RuleKind,
    ) -> Option<Arc<RuleCounters>> {
        if self.metrics_mode == MetricsMode::EssentialOnly || mode == RuleMode::Disabled {
            return None;
        }
        let counters = {
            let mut table = self.table.lock();
            let table = &mut *table;
            let key: RuleSeriesKey = (rule.into(), mode);
            let series = table.series.entry(key.clone()).or_insert_with(|| {
                let matched = self.matched.with_label_values(&[rule, mode.as_str()]);
                RuleSeriesEntry {
                    counters: Arc::new(RuleCounters::new(matched)),
                    users: 0,
                    retired_since: None,
                }
            });
            series.users += 1;
            if let Some(since) = series.retired_since.take() {
                table.retired.remove(&(since, key));
            }
            Arc::clone(&series.counters)
        };
        for verdict in kind.verdicts() {
            self.verdict_counter(&counters, rule, mode, *verdict);
        }
        Some(counters)
    }

    /// Removes a user of each series; without users, its retention time begins. A whole policy is released at once,
    /// since a request may be the one that drops it.
    pub(super) fn release<'r>(&self, rules: impl Iterator<Item = (&'r str, RuleMode)>) {
        let Some((clock, _)) = self.clock.get() else {
            return;
        };
        let now = clock.now();
        // The keys are copied before the lock is taken.
        let keys: Vec<RuleSeriesKey> = rules.map(|(rule, mode)| (rule.into(), mode)).collect();
        let mut table = self.table.lock();
        for key in keys {
            table.release(key, now);
        }
        self.sweep_table(&mut table, now);
    }

    /// Removes the series whose retention time is over.
    pub(super) fn sweep(&self) {
        let Some((clock, _)) = self.clock.get() else {
            return;
        };
        self.sweep_table(&mut self.table.lock(), clock.now());
    }

    fn sweep_table(&self, table: &mut RuleSeriesTable, now: Instant) {
        while let Some((at, _)) = table.retired.first()
            && (table.retired.len() > MAX_RETIRED
                || now.saturating_duration_since(*at) >= RETENTION)
        {
            let Some((_, key)) = table.retired.pop_first() else {
                return;
            };
            table.series.remove(&key);
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

    /// Counts a match, in a request that ended at `at`.
    pub(super) fn record_match(&self, counters: &RuleCounters, at: Instant) {
        counters.matched.inc();
        if let Some((_, first)) = self.clock.get() {
            counters.set_last_match(at.saturating_duration_since(*first));
        }
    }

    /// Returns the counter of a verdict. A filter has one of allows only once it decides about a tunnel.
    pub(super) fn verdict_counter<'c>(
        &self,
        counters: &'c RuleCounters,
        rule: &str,
        mode: RuleMode,
        verdict: VerdictLabel,
    ) -> &'c IntCounter {
        let counter = match verdict {
            VerdictLabel::Allow | VerdictLabel::ShadowReject => &counters.allowed,
            VerdictLabel::Reject => &counters.rejected,
        };
        counter.get_or_init(|| {
            self.decided
                .with_label_values(&[rule, mode.as_str(), verdict.as_str()])
        })
    }

    /// Returns the counts so far.
    pub(super) fn counts(&self, counters: &RuleCounters) -> RuleCounts {
        RuleCounts {
            matched: counters.matched.get(),
            allowed: counters.allowed.get().map_or(0, IntCounter::get),
            rejected: counters.rejected.get().map_or(0, IntCounter::get),
            last_match: self.wall_time(counters.last_match.load(Ordering::Relaxed)),
        }
    }

    /// Computed back from now, so that later changes of the wall clock do not matter.
    fn wall_time(&self, last_match: u32) -> Option<SystemTime> {
        let since = Duration::from_secs(u64::from(last_match.checked_sub(1)?));
        let (clock, first) = self.clock.get()?;
        let age = clock
            .now()
            .saturating_duration_since(*first)
            .saturating_sub(since);
        clock.wall_time().checked_sub(age)
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

/// The counters of a label and mode.
pub(super) struct RuleCounters {
    matched: IntCounter,
    allowed: OnceLock<IntCounter>,
    rejected: OnceLock<IntCounter>,
    /// The number of whole seconds from the first load to the last match, plus one; 0 before the first match.
    last_match: AtomicU32,
}

impl RuleCounters {
    fn new(matched: IntCounter) -> Self {
        Self {
            matched,
            allowed: OnceLock::new(),
            rejected: OnceLock::new(),
            last_match: AtomicU32::new(0),
        }
    }

    /// Written at most once a second, so that threads do not contend for the cache line.
    fn set_last_match(&self, time: Duration) {
        let second = u32::try_from(time.as_secs())
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        if self.last_match.load(Ordering::Relaxed) != second {
            self.last_match.store(second, Ordering::Relaxed);
        }
    }
}
