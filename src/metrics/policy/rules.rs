//! The rules of a policy as its counters see them: a name and the place of the counters of each, by index.

use crate::metrics::labels::{RuleKind, RuleMode};
use crate::model::rule_id::RuleId;

use super::counters::{CounterBlock, CounterSlot, RuleCounters};

/// The names of rules, one after the other in one text: beside its characters, a name takes four bytes.
pub(super) struct RuleNames {
    text: Box<str>,
    /// The end of each name in the text.
    ends: Box<[u32]>,
}

/// The rules of a loaded policy.
pub(super) struct PolicyRules {
    names: RuleNames,
    /// The place of each rule's counters; `None` if it is disabled, or if nothing is counted.
    slots: Box<[Option<CounterSlot>]>,
    blocks: Box<[CounterBlock]>,
}

impl RuleNames {
    /// Collects the names of rules, each after the prefix, and returns what else is known of each.
    pub(super) fn collect<'r>(
        prefix: &str,
        rules: impl Iterator<Item = (&'r RuleId, RuleMode, RuleKind)>,
    ) -> (Self, Vec<(RuleMode, RuleKind)>) {
        let mut text = String::new();
        let mut ends = Vec::new();
        let mut marks = Vec::new();
        for (id, mode, kind) in rules {
            text.push_str(prefix);
            text.push_str(id.as_str());
            // Names beyond 4 GiB of text are empty.
            ends.push(u32::try_from(text.len()).unwrap_or(u32::MAX));
            marks.push((mode, kind));
        }
        let names = Self {
            text: text.into(),
            ends: ends.into(),
        };
        (names, marks)
    }

    pub(super) fn get(&self, rule: usize) -> Option<&str> {
        let end = *self.ends.get(rule)?;
        let before = rule.checked_sub(1).and_then(|before| self.ends.get(before));
        let start = before.copied().unwrap_or_default();
        self.text.get(start as usize..end as usize)
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).map(|rule| self.get(rule).unwrap_or_default())
    }
}

impl PolicyRules {
    pub(super) fn new(
        names: RuleNames,
        slots: Box<[Option<CounterSlot>]>,
        blocks: Box<[CounterBlock]>,
    ) -> Self {
        Self {
            names,
            slots,
            blocks,
        }
    }

    /// Returns the number of rules.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn name(&self, rule: u32) -> Option<&str> {
        self.names.get(rule as usize)
    }

    /// Returns the counters of a rule, if it is counted.
    pub(super) fn counters(&self, rule: u32) -> Option<&RuleCounters> {
        self.slots
            .get(rule as usize)
            .copied()
            .flatten()?
            .counters(&self.blocks)
    }

    /// Returns the places of the counters, in the order of the rules.
    pub(super) fn slots(&self) -> impl Iterator<Item = CounterSlot> {
        self.slots.iter().copied().flatten()
    }

    /// Returns the name and the place of the counters of each counted rule.
    pub(super) fn named_slots(&self) -> impl Iterator<Item = (&str, CounterSlot)> {
        let rules = self.names.iter().zip(&self.slots);
        rules.filter_map(|(name, slot)| Some((name, (*slot)?)))
    }
}
