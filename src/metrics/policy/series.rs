//! The counters of all loaded policies: shared by those that contain the same rule, and kept for a while after the last.
//!
//! A removed rule keeps its counters for [`RETENTION`], so that Prometheus sees its last counts: otherwise `rate()` over a
//! reload would miss what was counted after the last scrape. A rule that returns within that time keeps its counts.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, MutexGuard};

use crate::clock::Clock;
use crate::metrics::MetricsExtent;
use crate::metrics::families::MetricFamilies;
use crate::metrics::labels::{MetricsMode, RuleKind, RuleMode};
use crate::model::rule_id::RuleId;

use super::RuleCounts;
use super::counters::{CounterSlab, CounterSlot, RuleCounters};
use super::labels::RuleLabels;
use super::rules::{PolicyRules, RuleNames};

/// The time for which the counters of a removed rule are kept; longer than any scrape interval.
pub const RETENTION: Duration = Duration::from_secs(600);
/// The number of removed policies that are kept; beyond that, the oldest are dropped sooner.
const MAX_RETIRED: usize = 64;
/// The number of rules in them, apart from the last one, which is always kept so that it can come back.
const MAX_RETIRED_RULES: usize = 100_000;

/// The counters of rules, and their series.
pub(super) struct RuleCounterFamilies {
    mode: MetricsMode,
    /// The clock of the policies, and the time of the first load.
    clock: OnceLock<(Clock, Instant)>,
    /// Locked by loads and scrapes; requests count without it.
    table: Mutex<RuleSeriesTable>,
    /// The policies that were dropped since the table was last locked, and when. A request may be the one that drops a policy,
    /// and must not do work for each of its rules.
    released: Mutex<Vec<(Instant, Arc<PolicyRules>)>>,
}

/// The place of a policy in the proxy: there is one in effect in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyRole {
    Active,
    Shadow,
}

struct RuleSeriesTable {
    slab: CounterSlab,
    labels: RuleLabels,
    /// The policies whose requests may still count.
    loaded: Vec<CountedPolicy>,
    /// The policies that were dropped, and when.
    retired: VecDeque<(Instant, Arc<PolicyRules>)>,
}

struct CountedPolicy {
    rules: Arc<PolicyRules>,
    role: PolicyRole,
    /// `false` once another policy took its place.
    in_effect: bool,
}

impl RuleCounterFamilies {
    pub(super) fn new(families: &MetricFamilies, extent: MetricsExtent) -> Self {
        Self {
            mode: extent.mode,
            clock: OnceLock::new(),
            table: Mutex::new(RuleSeriesTable {
                slab: CounterSlab::default(),
                labels: RuleLabels::new(families, extent.rule_labels),
                loaded: Vec::new(),
                retired: VecDeque::new(),
            }),
            released: Mutex::default(),
        }
    }

    /// Finds or creates the counters of a policy's rules, which takes effect in place of the previous one of its role.
    /// Each rule is named by the prefix and its id.
    pub(super) fn register<'r>(
        &self,
        role: PolicyRole,
        prefix: &str,
        rules: impl Iterator<Item = (&'r RuleId, RuleMode, RuleKind)>,
        clock: &Clock,
    ) -> Arc<PolicyRules> {
        let now = clock.now();
        self.clock.get_or_init(|| (clock.clone(), now));
        let (names, marks) = RuleNames::collect(prefix, rules);
        let mut table = self.lock_table();
        table.sweep(now);
        let slots = match self.mode {
            MetricsMode::All => table.find_slots(&names, &marks),
            MetricsMode::EssentialOnly => marks.iter().map(|_| None).collect(),
        };
        let rules = Arc::new(PolicyRules::new(names, slots, table.slab.blocks()));
        table.put_into_effect(role, &rules, now);
        rules
    }

    /// Ends the use of a policy's counters; their retention time begins. The next load or scrape does the work.
    pub(super) fn release(&self, rules: &Arc<PolicyRules>) {
        if let Some((clock, _)) = self.clock.get() {
            let released = (clock.now(), Arc::clone(rules));
            self.released.lock().push(released);
        }
    }

    /// Locks the table, after the policies that were dropped are retired.
    fn lock_table(&self) -> MutexGuard<'_, RuleSeriesTable> {
        let mut table = self.table.lock();
        let released = mem::take(&mut *self.released.lock());
        for (at, rules) in released {
            table.release(&rules, at);
        }
        table
    }

    /// Brings the series up to date and removes those whose retention time is over.
    pub(super) fn publish(&self) {
        if let Some((clock, _)) = self.clock.get() {
            self.lock_table().publish(clock.now());
        }
    }

    /// Counts a match, in a request that ended at `at`.
    pub(super) fn record_match(&self, counters: &RuleCounters, at: Instant) {
        counters.record_match();
        if let Some((_, first)) = self.clock.get() {
            counters.set_last_match(at.saturating_duration_since(*first));
        }
    }

    /// Returns the counts so far.
    pub(super) fn counts(&self, counters: &RuleCounters) -> RuleCounts {
        let tally = counters.tally();
        RuleCounts {
            matched: tally.matched,
            allowed: tally.allowed,
            rejected: tally.rejected,
            last_match: counters.last_match().and_then(|at| self.wall_time(at)),
        }
    }

    /// Computed back from now, so that later changes of the wall clock do not matter.
    fn wall_time(&self, last_match: Duration) -> Option<SystemTime> {
        let (clock, first) = self.clock.get()?;
        let age = clock
            .now()
            .saturating_duration_since(*first)
            .saturating_sub(last_match);
        clock.wall_time().checked_sub(age)
    }
}

impl RuleSeriesTable {
    /// Returns the slots of rules: known ones of rules in loaded and removed policies, and new ones.
    fn find_slots(
        &mut self,
        names: &RuleNames,
        marks: &[(RuleMode, RuleKind)],
    ) -> Box<[Option<CounterSlot>]> {
        let policies: Vec<Arc<PolicyRules>> = self.policies().map(Arc::clone).collect();
        // Made for this load only, since nothing else is looked up by name.
        let mut known = HashMap::with_capacity(policies.iter().map(|rules| rules.len()).sum());
        for (name, slot) in policies.iter().flat_map(|rules| rules.named_slots()) {
            if let Some(slot_use) = self.slab.slot_use(slot) {
                known.insert((name, slot_use.mode), slot);
            }
        }
        let slots = marks.iter().enumerate().map(|(rule, (mode, kind))| {
            if *mode == RuleMode::Disabled {
                return None;
            }
            let known = known.get(&(names.get(rule)?, *mode)).copied();
            let slot = known.or_else(|| self.slab.allocate(*mode, *kind))?;
            self.slab.add_policy(slot);
            Some(slot)
        });
        slots.collect()
    }

    fn policies(&self) -> impl Iterator<Item = &Arc<PolicyRules>> {
        let retired = self.retired.iter().map(|(_, rules)| rules);
        retired.chain(self.loaded.iter().map(|policy| &policy.rules))
    }

    fn put_into_effect(&mut self, role: PolicyRole, rules: &Arc<PolicyRules>, now: Instant) {
        let previous = self.loaded.iter_mut();
        for policy in previous.filter(|policy| policy.role == role && policy.in_effect) {
            policy.in_effect = false;
            set_in_effect(&mut self.slab, &policy.rules, false);
        }
        set_in_effect(&mut self.slab, rules, true);
        self.loaded.push(CountedPolicy {
            rules: Arc::clone(rules),
            role,
            in_effect: true,
        });
        self.labels.retire(&self.slab, now);
        // First, so that no series ends only to begin anew.
        self.labels.grant_free(&self.slab, rules);
        self.labels.trim(now);
    }

    fn release(&mut self, rules: &Arc<PolicyRules>, now: Instant) {
        let index = self
            .loaded
            .iter()
            .position(|policy| Arc::ptr_eq(&policy.rules, rules));
        let Some(policy) = index.map(|index| self.loaded.remove(index)) else {
            return;
        };
        if policy.in_effect {
            set_in_effect(&mut self.slab, rules, false);
            self.labels.retire(&self.slab, now);
            self.labels.trim(now);
        }
        self.retired.push_back((now, policy.rules));
        self.sweep(now);
        self.limit_retired();
    }

    fn publish(&mut self, now: Instant) {
        self.sweep(now);
        let in_effect = self.loaded.iter().filter(|policy| policy.in_effect);
        let policies: Vec<&PolicyRules> = in_effect.map(|policy| &*policy.rules).collect();
        self.labels.publish(&self.slab, &policies, now);
    }

    /// Drops the removed policies whose retention time is over, and the counters that only they contain.
    fn sweep(&mut self, now: Instant) {
        while let Some((at, _)) = self.retired.front()
            && now.saturating_duration_since(*at) >= RETENTION
        {
            let Some((_, rules)) = self.retired.pop_front() else {
                return;
            };
            self.forget(&rules);
        }
    }

    /// Drops removed policies if they are too many: first those that keep no counters, since other policies do.
    fn limit_retired(&mut self) {
        if !self.has_too_many_retired() {
            return;
        }
        for (at, rules) in mem::take(&mut self.retired) {
            let needed = rules.slots().any(|slot| self.slab.has_one_policy(slot));
            if needed {
                self.retired.push_back((at, rules));
            } else {
                self.forget(&rules);
            }
        }
        while self.has_too_many_retired()
            && let Some((_, rules)) = self.retired.pop_front()
        {
            self.forget(&rules);
        }
    }

    fn has_too_many_retired(&self) -> bool {
        let sizes = self.retired.iter().map(|(_, rules)| rules.len());
        self.retired.len() > MAX_RETIRED
            || (self.retired.len() > 1 && sizes.sum::<usize>() > MAX_RETIRED_RULES)
    }

    fn forget(&mut self, rules: &PolicyRules) {
        for slot in rules.slots() {
            if self.slab.remove_policy(slot) {
                self.free(slot);
            }
        }
    }

    fn free(&mut self, slot: CounterSlot) {
        if let Some(slot_use) = self.slab.slot_use(slot) {
            let tally = self.slab.tally(slot);
            self.labels.forget(slot, slot_use.mode, tally);
            self.slab.free(slot);
        }
    }
}

fn set_in_effect(slab: &mut CounterSlab, rules: &PolicyRules, in_effect: bool) {
    for slot in rules.slots() {
        slab.set_in_effect(slot, in_effect);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::metrics::Metrics;

    /// A scrape locks the table for as long as it takes to read all rules.
    #[test]
    fn the_drop_of_a_policy_waits_for_no_scrape() {
        let metrics = Metrics::new(&[], &[]).unwrap();
        let (clock, _) = Clock::manual();
        let policy = metrics.register_policy("p", "0", [], &clock);
        let counters = &metrics.0.policies.rule_counters;
        let scrape = counters.table.lock();
        let (sender, dropped) = mpsc::channel();
        thread::spawn(move || {
            drop(policy);
            let _ = sender.send(());
        });
        assert_eq!(dropped.recv_timeout(Duration::from_secs(30)), Ok(()));
        assert_eq!((scrape.loaded.len(), scrape.retired.len()), (1, 0));
        drop(scrape);
        counters.publish();
        let table = counters.table.lock();
        assert_eq!((table.loaded.len(), table.retired.len()), (0, 1));
    }
}
