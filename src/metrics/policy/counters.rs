//! The counters of rules, one for each rule and mode that a loaded policy contains or a removed one contained a short
//! time ago.
//!
//! They are in blocks that never move, so that a request counts by two array lookups and an atomic add. A rule takes 32
//! bytes here, at whatever number of policies contain it. Only [`CounterSlab`] assigns slots, under the lock of its
//! owner.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::metrics::labels::{RuleKind, RuleMode, VerdictLabel};

/// The number of rules in a block.
const BLOCK_LEN: usize = 1_024;

/// Counters at fixed addresses.
pub(super) type CounterBlock = Arc<[RuleCounters]>;

/// The counters of a rule.
#[derive(Default)]
pub(super) struct RuleCounters {
    matched: AtomicU64,
    allowed: AtomicU64,
    rejected: AtomicU64,
    /// The number of whole seconds from the first load to the last match, plus one; 0 before the first match.
    last_match: AtomicU32,
}

/// The values of a rule's counters, or sums and differences of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RuleTally {
    pub(super) matched: u64,
    pub(super) allowed: u64,
    pub(super) rejected: u64,
}

/// The place of a rule's counters. Counted from 1, so that the lack of one takes no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CounterSlot(NonZeroU32);

/// All counters, and what they are used for.
#[derive(Default)]
pub(super) struct CounterSlab {
    blocks: Vec<CounterBlock>,
    /// The use of each slot, in their order.
    uses: Vec<SlotUse>,
    free: Vec<CounterSlot>,
}

/// The use of a slot.
#[derive(Clone, Copy)]
pub(super) struct SlotUse {
    pub(super) mode: RuleMode,
    pub(super) kind: RuleKind,
    /// `true` if the rule is in a policy in effect, active or shadow.
    pub(super) in_effect: bool,
    /// The number of policies that contain the rule, loaded or kept for a while after that.
    policies: u32,
}

impl RuleCounters {
    pub(super) fn record_match(&self) {
        self.matched.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn record_verdict(&self, verdict: VerdictLabel) {
        let counter = match verdict {
            VerdictLabel::Allow | VerdictLabel::ShadowReject => &self.allowed,
            VerdictLabel::Reject => &self.rejected,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Written at most once a second, so that threads do not contend for the cache line.
    pub(super) fn set_last_match(&self, time: Duration) {
        let second = u32::try_from(time.as_secs())
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        if self.last_match.load(Ordering::Relaxed) != second {
            self.last_match.store(second, Ordering::Relaxed);
        }
    }

    /// Returns the time of the last match, in whole seconds from the first load.
    pub(super) fn last_match(&self) -> Option<Duration> {
        let second = self.last_match.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Duration::from_secs(u64::from(second)))
    }

    pub(super) fn tally(&self) -> RuleTally {
        RuleTally {
            matched: self.matched.load(Ordering::Relaxed),
            allowed: self.allowed.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
        }
    }

    fn reset(&self) {
        for counter in [&self.matched, &self.allowed, &self.rejected] {
            counter.store(0, Ordering::Relaxed);
        }
        self.last_match.store(0, Ordering::Relaxed);
    }
}

impl RuleTally {
    /// Returns the number by which rules are ranked. A decision counts on top of the match that caused it.
    pub(super) fn weight(self) -> u64 {
        self.matched + self.allowed + self.rejected
    }

    /// Adds each count. It wraps: a sum of differences may be below zero for a moment.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            matched: self.matched.wrapping_add(other.matched),
            allowed: self.allowed.wrapping_add(other.allowed),
            rejected: self.rejected.wrapping_add(other.rejected),
        }
    }

    /// Subtracts each count, and wraps like [`Self::plus`].
    pub(super) fn minus(self, other: Self) -> Self {
        Self {
            matched: self.matched.wrapping_sub(other.matched),
            allowed: self.allowed.wrapping_sub(other.allowed),
            rejected: self.rejected.wrapping_sub(other.rejected),
        }
    }
}

impl CounterSlot {
    /// Returns the slot of this index; `None` beyond 2^32 - 1 rules.
    fn from_index(index: usize) -> Option<Self> {
        let number = u32::try_from(index).ok()?.checked_add(1)?;
        NonZeroU32::new(number).map(Self)
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }

    /// Returns the counters in this slot.
    pub(super) fn counters(self, blocks: &[CounterBlock]) -> Option<&RuleCounters> {
        blocks
            .get(self.index() / BLOCK_LEN)?
            .get(self.index() % BLOCK_LEN)
    }
}

impl CounterSlab {
    /// Returns all blocks; those that are added later are for slots that are assigned later.
    pub(super) fn blocks(&self) -> Box<[CounterBlock]> {
        self.blocks.as_slice().into()
    }

    /// Assigns a slot, which no policy uses yet and whose counters are zero.
    pub(super) fn allocate(&mut self, mode: RuleMode, kind: RuleKind) -> Option<CounterSlot> {
        let slot_use = SlotUse {
            mode,
            kind,
            in_effect: false,
            policies: 0,
        };
        if let Some(slot) = self.free.pop() {
            if let Some(known) = self.slot_use_mut(slot) {
                *known = slot_use;
            }
            return Some(slot);
        }
        let slot = CounterSlot::from_index(self.uses.len())?;
        if self.uses.len().is_multiple_of(BLOCK_LEN) {
            self.blocks
                .push((0..BLOCK_LEN).map(|_| RuleCounters::default()).collect());
        }
        self.uses.push(slot_use);
        Some(slot)
    }

    /// Adds a policy that uses the slot.
    pub(super) fn add_policy(&mut self, slot: CounterSlot) {
        if let Some(slot_use) = self.slot_use_mut(slot) {
            slot_use.policies += 1;
        }
    }

    /// Removes a policy that uses the slot, and returns `true` if it was the last one; then call [`Self::free`].
    pub(super) fn remove_policy(&mut self, slot: CounterSlot) -> bool {
        let Some(slot_use) = self.slot_use_mut(slot) else {
            return false;
        };
        slot_use.policies = slot_use.policies.saturating_sub(1);
        slot_use.policies == 0
    }

    /// Returns `true` if one policy uses the slot.
    pub(super) fn has_one_policy(&self, slot: CounterSlot) -> bool {
        self.uses
            .get(slot.index())
            .is_some_and(|slot_use| slot_use.policies == 1)
    }

    /// Frees a slot that no policy uses, for another rule.
    pub(super) fn free(&mut self, slot: CounterSlot) {
        if let Some(counters) = slot.counters(&self.blocks) {
            counters.reset();
        }
        self.free.push(slot);
    }

    /// Marks a slot as that of a rule in a policy in effect, or not.
    pub(super) fn set_in_effect(&mut self, slot: CounterSlot, in_effect: bool) {
        if let Some(slot_use) = self.slot_use_mut(slot) {
            slot_use.in_effect = in_effect;
        }
    }

    pub(super) fn slot_use(&self, slot: CounterSlot) -> Option<SlotUse> {
        self.uses.get(slot.index()).copied()
    }

    fn slot_use_mut(&mut self, slot: CounterSlot) -> Option<&mut SlotUse> {
        self.uses.get_mut(slot.index())
    }

    /// Returns the counts in a slot.
    pub(super) fn tally(&self, slot: CounterSlot) -> RuleTally {
        slot.counters(&self.blocks)
            .map_or_else(RuleTally::default, RuleCounters::tally)
    }

    /// Returns each slot that a policy uses, with its use and its counts.
    pub(super) fn used(&self) -> impl Iterator<Item = (CounterSlot, SlotUse, RuleTally)> {
        let counters = self.blocks.iter().flat_map(|block| block.iter());
        let slots = self.uses.iter().zip(counters).enumerate();
        slots
            .filter(|(_, (slot_use, _))| slot_use.policies > 0)
            .filter_map(|(index, (slot_use, counters))| {
                Some((CounterSlot::from_index(index)?, *slot_use, counters.tally()))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rule takes 44 bytes in all, and its name with four bytes more: 100,000 rules less than 5 MB and their names.
    #[test]
    fn a_rule_takes_little_memory() {
        let counters = size_of::<RuleCounters>() + size_of::<SlotUse>();
        assert_eq!((counters, size_of::<Option<CounterSlot>>()), (40, 4));
        let mut slab = CounterSlab::default();
        for _ in 0..100_000 {
            slab.allocate(RuleMode::Enforce, RuleKind::Filter);
        }
        let held: usize = slab.blocks.iter().map(|block| block.len()).sum();
        assert_eq!(held, 100_000_usize.next_multiple_of(BLOCK_LEN));
    }

    #[test]
    fn a_slot_is_assigned_again_only_when_nothing_uses_it() {
        let mut slab = CounterSlab::default();
        let allocate = |slab: &mut CounterSlab| {
            let slot = slab.allocate(RuleMode::Enforce, RuleKind::Filter).unwrap();
            slab.add_policy(slot);
            slot
        };
        let first = allocate(&mut slab);
        let counters = first.counters(&slab.blocks).unwrap();
        counters.record_match();
        counters.set_last_match(Duration::ZERO);
        slab.add_policy(first);
        assert!(!slab.remove_policy(first));
        assert_ne!(allocate(&mut slab), first);
        assert!(slab.remove_policy(first));
        slab.free(first);
        assert_eq!(allocate(&mut slab), first);
        assert_eq!(slab.tally(first), RuleTally::default());
        assert_eq!(first.counters(&slab.blocks).unwrap().last_match(), None);
        assert_eq!(slab.used().count(), 2);
    }
}
