//! The series of rules in `/metrics`: which rules have a label of their own, and what the others add up to.
//!
//! The exact counts are elsewhere ([`CounterSlab`]). Here each count is exported once: in the series of its rule, or in
//! those of [`OTHER_RULES`]. A rule's part in the latter is fixed when it gets a label, and its own part is fixed when it
//! loses one to another rule. Therefore the sum over all labels is exact, and no series goes backwards while it is
//! exported: `rate()` and `increase()` are right over a change of labels. A series begins at 0 in the scrape that gives
//! out the label, so that nothing which it counts is missed.
//!
//! Labels are given out when a policy is loaded, in the order of its rules, as far as they are enough. After that, at
//! each scrape, a rule takes the label of another if it has counted more than twice as much. So a place changes hands
//! only as often as counts double, and not with every request at the border.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use prometheus::{IntCounter, IntCounterVec};

use crate::metrics::families::MetricFamilies;
use crate::metrics::labels::{RuleKind, RuleMode, VerdictLabel};

use super::OTHER_RULES;
use super::counters::{CounterSlab, CounterSlot, RuleTally, SlotUse};
use super::rules::PolicyRules;
use super::series::RETENTION;

/// The labels of rules, and the series of each.
pub(super) struct RuleLabels {
    families: RuleFamilies,
    /// The most rules in effect that have a label; as many that are not in effect, or lost theirs, keep it for a while.
    limit: usize,
    own: BTreeMap<CounterSlot, OwnLabel>,
    others: BTreeMap<RuleMode, OtherRules>,
}

/// The families of rule counters.
struct RuleFamilies {
    matched: IntCounterVec,
    decided: IntCounterVec,
}

/// The series of a label and mode.
struct LabelSeries {
    label: Box<str>,
    mode: RuleMode,
    matched: IntCounter,
    /// A filter has none before it decides about a tunnel.
    allowed: Option<IntCounter>,
    rejected: IntCounter,
}

/// The label of a rule.
struct OwnLabel {
    series: LabelSeries,
    /// The part of the rule's counts that is exported with those of other rules. Fixed but in [`LabelState::Replaced`].
    shared: RuleTally,
    state: LabelState,
}

#[derive(Clone, Copy)]
enum LabelState {
    /// The rule is in effect.
    Live,
    /// The rule is in no policy in effect since this time. Requests in progress may still count.
    Removed(Instant),
    /// Another rule took its place at this time. Its series show these counts for the time of [`RETENTION`], so that
    /// every scraper sees the last ones.
    Replaced { at: Instant, own: RuleTally },
}

/// The rules of a mode that have no label.
#[derive(Default)]
struct OtherRules {
    /// Created with the first of them, and exported ever after.
    series: Option<LabelSeries>,
    /// The counts of rules that no longer exist, less those that were exported in series that no longer exist. It wraps
    /// below zero; what is exported does not.
    carried: RuleTally,
}

/// The ranking of rules by what they have counted.
struct Ranking {
    /// The rules that have a label, those that counted least last.
    live: Vec<(u64, CounterSlot)>,
    candidates: Vec<(CounterSlot, SlotUse, RuleTally)>,
}

impl RuleLabels {
    pub(super) fn new(families: &MetricFamilies, limit: usize) -> Self {
        Self {
            families: RuleFamilies {
                matched: families.rule_matched.clone(),
                decided: families.rule_decided.clone(),
            },
            limit,
            own: BTreeMap::new(),
            others: BTreeMap::new(),
        }
    }

    /// Gives the free labels to rules of a policy, in their order.
    pub(super) fn grant_free(&mut self, slab: &CounterSlab, rules: &PolicyRules) {
        let mut free = self.limit.saturating_sub(self.live_count());
        for (name, slot) in rules.named_slots() {
            if free == 0 {
                return;
            }
            if let Some(slot_use) = slab.slot_use(slot)
                && !self.is_live(slot)
            {
                self.grant(slot, slot_use, slab.tally(slot), name);
                free -= 1;
            }
        }
    }

    /// Marks the labels of rules that are in no policy in effect; call [`Self::trim`] after it.
    pub(super) fn retire(&mut self, slab: &CounterSlab, now: Instant) {
        for (slot, label) in &mut self.own {
            let in_effect = slab
                .slot_use(*slot)
                .is_some_and(|slot_use| slot_use.in_effect);
            if matches!(label.state, LabelState::Live) && !in_effect {
                label.state = LabelState::Removed(now);
            }
        }
    }

    /// Ends the label of a rule whose counts are deleted, and keeps them in the sum of the others.
    pub(super) fn forget(&mut self, slot: CounterSlot, mode: RuleMode, tally: RuleTally) {
        self.end(slot);
        let others = self.others.entry(mode).or_default();
        others.carried = others.carried.plus(tally);
    }

    /// Brings all series up to date, and then gives labels to the rules of the policies in effect that have counted most.
    pub(super) fn publish(&mut self, slab: &CounterSlab, policies: &[&PolicyRules], now: Instant) {
        let ended = self.trim(now);
        let mut live = Vec::with_capacity(self.limit.min(self.own.len()));
        for (slot, label) in &mut self.own {
            let tally = slab.tally(*slot);
            label.series.raise(&self.families, label.own_part(tally));
            if matches!(label.state, LabelState::Live) {
                live.push((tally.weight(), *slot));
            }
        }
        live.sort_unstable_by_key(|(weight, slot)| Reverse((*weight, Reverse(*slot))));
        let mut candidates = self.publish_others(slab, self.least_weight(&live));
        // A series that ended now must be missing once, before it may begin anew.
        candidates.retain(|(slot, ..)| !ended.contains(slot));
        self.rank(Ranking { live, candidates }, slab, policies, now);
    }

    /// Returns the weight that a rule must exceed to get a label; `None` if a label is free.
    fn least_weight(&self, live: &[(u64, CounterSlot)]) -> Option<u64> {
        let weakest = live.last().map_or(u64::MAX, |(weight, _)| *weight);
        (live.len() >= self.limit).then(|| weakest.saturating_mul(2))
    }

    /// Brings the series of the other rules up to date, and returns those of them that may get a label.
    fn publish_others(
        &mut self,
        slab: &CounterSlab,
        least_weight: Option<u64>,
    ) -> Vec<(CounterSlot, SlotUse, RuleTally)> {
        let mut candidates = Vec::new();
        let mut sums: BTreeMap<RuleMode, RuleTally> = BTreeMap::new();
        let mut labels = self.own.iter().peekable();
        for (slot, slot_use, tally) in slab.used() {
            let label = labels.next_if(|(labelled, _)| **labelled == slot);
            let is_live = label.is_some_and(|(_, label)| matches!(label.state, LabelState::Live));
            let is_heavy = least_weight.is_none_or(|least| tally.weight() > least);
            if slot_use.in_effect && !is_live && is_heavy {
                candidates.push((slot, slot_use, tally));
            }
            let part = label.map_or(tally, |(_, label)| label.other_part(tally));
            if (label.is_none() && slot_use.in_effect) || part != RuleTally::default() {
                let sum = sums.entry(slot_use.mode).or_default();
                *sum = sum.plus(part);
            }
        }
        for mode in sums.keys() {
            self.others.entry(*mode).or_default();
        }
        for (mode, others) in &mut self.others {
            let sum = sums.get(mode).copied();
            others.publish(&self.families, *mode, sum);
        }
        candidates
    }

    /// Gives labels to candidates, as long as there are free ones, or ones of rules that have counted less than half.
    fn rank(
        &mut self,
        ranking: Ranking,
        slab: &CounterSlab,
        policies: &[&PolicyRules],
        now: Instant,
    ) {
        let Ranking {
            mut live,
            mut candidates,
        } = ranking;
        candidates.sort_by_key(|(slot, _, tally)| (Reverse(tally.weight()), *slot));
        let mut free = self.limit.saturating_sub(live.len());
        let mut replaceable = self
            .limit
            .saturating_sub(self.own.len().saturating_sub(live.len()));
        let mut granted = BTreeMap::new();
        for (slot, slot_use, tally) in candidates {
            if free > 0 {
                free -= 1;
            } else if let Some((weight, weakest)) = live.pop()
                && replaceable > 0
                && tally.weight() > weight.saturating_mul(2)
            {
                replaceable -= 1;
                self.replace(weakest, slab.tally(weakest), now);
            } else {
                break;
            }
            granted.insert(slot, (slot_use, tally));
        }
        self.grant_all(granted, policies);
    }

    fn grant_all(
        &mut self,
        mut granted: BTreeMap<CounterSlot, (SlotUse, RuleTally)>,
        policies: &[&PolicyRules],
    ) {
        for (name, slot) in policies.iter().flat_map(|rules| rules.named_slots()) {
            if granted.is_empty() {
                return;
            }
            if let Some((slot_use, tally)) = granted.remove(&slot) {
                self.grant(slot, slot_use, tally, name);
            }
        }
    }

    /// Gives a rule a label. What it has counted so far is exported with the other rules, and its series begin at 0.
    fn grant(&mut self, slot: CounterSlot, slot_use: SlotUse, tally: RuleTally, name: &str) {
        let label = self.own.entry(slot).or_insert_with(|| OwnLabel {
            series: LabelSeries::new(&self.families, name, slot_use.mode, slot_use.kind),
            shared: tally,
            state: LabelState::Live,
        });
        label.shared = label.other_part(tally);
        label.state = LabelState::Live;
    }

    /// Takes the label of a rule. Its series keep what they show now.
    fn replace(&mut self, slot: CounterSlot, tally: RuleTally, now: Instant) {
        if let Some(label) = self.own.get_mut(&slot) {
            let own = label.own_part(tally);
            label.series.raise(&self.families, own);
            label.state = LabelState::Replaced { at: now, own };
        }
    }

    /// Ends the labels that were taken a while ago, and the oldest of those that are kept, if they are too many. Returns the
    /// places of the counters of their rules.
    pub(super) fn trim(&mut self, now: Instant) -> BTreeSet<CounterSlot> {
        let mut kept = Vec::new();
        let mut ended = BTreeSet::new();
        for (slot, label) in &self.own {
            match label.state {
                LabelState::Live => {}
                LabelState::Replaced { at, .. }
                    if now.saturating_duration_since(at) >= RETENTION =>
                {
                    ended.insert(*slot);
                }
                LabelState::Removed(at) | LabelState::Replaced { at, .. } => kept.push((at, *slot)),
            }
        }
        kept.sort_unstable();
        let excess = kept.len().saturating_sub(self.limit);
        ended.extend(kept.into_iter().take(excess).map(|(_, slot)| slot));
        for slot in &ended {
            self.end(*slot);
        }
        ended
    }

    /// Removes the series of a rule. What they showed is not exported with the other rules, too; what was counted since
    /// the last scrape is.
    fn end(&mut self, slot: CounterSlot) {
        let Some(label) = self.own.remove(&slot) else {
            return;
        };
        let others = self.others.entry(label.series.mode).or_default();
        others.carried = others.carried.minus(label.series.shown());
        label.series.remove(&self.families);
    }

    fn is_live(&self, slot: CounterSlot) -> bool {
        let label = self.own.get(&slot);
        label.is_some_and(|label| matches!(label.state, LabelState::Live))
    }

    fn live_count(&self) -> usize {
        let labels = self.own.values();
        labels
            .filter(|label| matches!(label.state, LabelState::Live))
            .count()
    }
}

impl OwnLabel {
    /// Returns the part of the rule's counts that its own series show.
    fn own_part(&self, tally: RuleTally) -> RuleTally {
        match self.state {
            LabelState::Live | LabelState::Removed(_) => tally.minus(self.shared),
            LabelState::Replaced { own, .. } => own,
        }
    }

    /// Returns the part of the rule's counts that is exported with those of other rules.
    fn other_part(&self, tally: RuleTally) -> RuleTally {
        match self.state {
            LabelState::Live | LabelState::Removed(_) => self.shared,
            LabelState::Replaced { own, .. } => tally.minus(own),
        }
    }
}

impl OtherRules {
    /// Brings the series up to date; `sum` is `None` as long as every rule in effect has a label.
    fn publish(&mut self, families: &RuleFamilies, mode: RuleMode, sum: Option<RuleTally>) {
        let total = self.carried.plus(sum.unwrap_or_default());
        if sum.is_none() && total == RuleTally::default() && self.series.is_none() {
            return;
        }
        self.series
            .get_or_insert_with(|| LabelSeries::new(families, OTHER_RULES, mode, RuleKind::Group))
            .raise(families, total);
    }
}

impl LabelSeries {
    fn new(families: &RuleFamilies, label: &str, mode: RuleMode, kind: RuleKind) -> Self {
        let allowed = match kind {
            RuleKind::Group => Some(families.decided(label, mode, VerdictLabel::Allow)),
            RuleKind::Filter => None,
        };
        Self {
            matched: families.matched.with_label_values(&[label, mode.as_str()]),
            allowed,
            rejected: families.decided(label, mode, VerdictLabel::Reject),
            label: label.into(),
            mode,
        }
    }

    /// Raises the series to these counts. They never fall.
    fn raise(&mut self, families: &RuleFamilies, tally: RuleTally) {
        raise(&self.matched, tally.matched);
        raise(&self.rejected, tally.rejected);
        if tally.allowed > 0 || self.allowed.is_some() {
            let allowed = self.allowed.get_or_insert_with(|| {
                families.decided(&self.label, self.mode, VerdictLabel::Allow)
            });
            raise(allowed, tally.allowed);
        }
    }

    /// Returns the values at the last scrape.
    fn shown(&self) -> RuleTally {
        RuleTally {
            matched: self.matched.get(),
            allowed: self.allowed.as_ref().map_or(0, IntCounter::get),
            rejected: self.rejected.get(),
        }
    }

    fn remove(&self, families: &RuleFamilies) {
        let (label, mode) = (&*self.label, self.mode.as_str());
        let _ = families.matched.remove_label_values(&[label, mode]);
        for verdict in [VerdictLabel::Allow, VerdictLabel::Reject] {
            let _ = families
                .decided
                .remove_label_values(&[label, mode, verdict.as_str()]);
        }
    }
}

fn raise(counter: &IntCounter, count: u64) {
    counter.inc_by(count.saturating_sub(counter.get()));
}

impl RuleFamilies {
    fn decided(&self, label: &str, mode: RuleMode, verdict: VerdictLabel) -> IntCounter {
        self.decided
            .with_label_values(&[label, mode.as_str(), verdict.as_str()])
    }
}
