//! What the rules have done so far with one request: the memory that its stages share.
//!
//! A guard is evaluated once and remembered for nested rules of later stages; an option remembers only the rule
//! that last assigned it. Both are flat arrays of small numbers, kept in place for policies of usual size.

use smallvec::SmallVec;

use crate::model::disposition::Disposition;
use crate::model::intent::Intent;

use super::Policy;
use super::options::{OptionSetter, OptionSlot, OptionValue, schema};
use super::rule::{RuleBody, RuleIndex};
use super::space::{RuleRange, SpaceIndex};
use super::traps::Trap;

/// What became of a rule so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleState {
    /// Its stage has not come, or a group around it did not apply.
    #[default]
    Pending,
    /// A group that applied, or a filter that hit.
    Matched,
    /// Its condition says no, or it judges other responses.
    NoMatch,
    /// A `stop`, or an earlier child of its `match: first` list, cut it off.
    Skipped,
    /// It depends on facts that will not become known.
    Undecided,
}

/// The memory of one request under one policy.
#[derive(Clone, Debug)]
pub struct Trail {
    states: SmallVec<[RuleState; 64]>,
    /// For each option that rules assign 0, or 1 + the rule that last did.
    set_by: SmallVec<[u32; 16]>,
    matched: SmallVec<[RuleIndex; 8]>,
    /// The crawler's space.
    pub(crate) space: Option<SpaceIndex>,
    pub(crate) first_filter: Option<RuleIndex>,
    /// The first filter with `as` that hit.
    pub(crate) soft_error: Option<RuleIndex>,
    pub(crate) log: bool,
    /// The first rule on which a tunnel's verdict might depend.
    pub(crate) first_doubt: Option<RuleIndex>,
    /// Inside a tunnel: which dispositions the URL may have, one bit each.
    pub(crate) possible_dispositions: u8,
    /// The first undecided rule that may have changed the disposition since it was last certain.
    pub(crate) uncertain_rule: Option<RuleIndex>,
    /// The trap that caught the URL.
    pub(crate) trap: Option<Trap>,
    /// Whose disposition does not count any more.
    cleared_disposition: Option<OptionSetter>,
}

impl Trail {
    /// Before the first rule, for a request of this crawler.
    pub fn new(policy: &Policy, crawler: &str) -> Self {
        Self::for_space(policy, policy.spaces.for_crawler(crawler))
    }

    /// Before the first rule, for a request of any crawler of a space.
    pub(crate) fn for_space(policy: &Policy, space: Option<SpaceIndex>) -> Self {
        let mut trail = Self {
            states: SmallVec::from_elem(RuleState::Pending, policy.rules.len()),
            set_by: SmallVec::from_elem(0, policy.options.assigned_count()),
            matched: SmallVec::new(),
            space,
            first_filter: None,
            soft_error: None,
            log: false,
            first_doubt: None,
            possible_dispositions: 0,
            uncertain_rule: None,
            trap: None,
            cleared_disposition: None,
        };
        trail.possible_dispositions = disposition_bit(trail.disposition(policy));
        trail
    }

    /// What became of a rule.
    pub fn state(&self, rule: RuleIndex) -> RuleState {
        self.states
            .get(rule.0 as usize)
            .copied()
            .unwrap_or_default()
    }

    /// The rules that matched, in the order in which they did.
    pub fn matched_rules(&self) -> &[RuleIndex] {
        &self.matched
    }

    /// Who set an option's value.
    pub fn set_by(&self, policy: &Policy, slot: OptionSlot) -> OptionSetter {
        match self.last_assigning_rule(policy, slot) {
            Some(rule) => OptionSetter::Rule(rule),
            None => self.space_set_by(policy, slot).unwrap_or_else(|| {
                policy
                    .options
                    .entries
                    .get(usize::from(slot.0))
                    .map_or(OptionSetter::BuiltIn, |e| e.set_by)
            }),
        }
    }

    /// An option's value.
    pub fn value<'p>(&self, policy: &'p Policy, slot: OptionSlot) -> &'p OptionValue {
        let assigned = self
            .last_assigning_rule(policy, slot)
            .and_then(|rule| policy.assigned_value(rule, slot));
        let base = || {
            policy
                .options
                .entries
                .get(usize::from(slot.0))
                .map_or(&OptionValue::None, |e| &e.base)
        };
        let of_space = || policy.spaces.get(self.space?)?.value(slot);
        assigned.or_else(of_space).unwrap_or_else(base)
    }

    /// The trap that caught the URL, if one did.
    pub fn trap(&self) -> Option<Trap> {
        self.trap
    }

    /// The crawler's space.
    pub fn space(&self) -> Option<SpaceIndex> {
        self.space
    }

    /// The crawler's space, if its options set this one.
    fn space_set_by(&self, policy: &Policy, slot: OptionSlot) -> Option<OptionSetter> {
        let index = self.space?;
        policy
            .spaces
            .get(index)?
            .value(slot)
            .map(|_| OptionSetter::Space(index))
    }

    /// The option `disposition`.
    pub fn disposition(&self, policy: &Policy) -> Disposition {
        let value = self.value(policy, schema::DISPOSITION);
        // `compile` lets no other value into this slot; the safe reading of one would be to refuse.
        if let OptionValue::Disposition(value) = value {
            *value
        } else {
            Disposition::Disallow
        }
    }

    /// Forgets what has rejected the request so far: later stages count from here.
    pub fn clear_rejection(&mut self, policy: &Policy) {
        self.first_filter = None;
        self.soft_error = None;
        self.log = false;
        self.cleared_disposition = Some(self.set_by(policy, schema::DISPOSITION));
    }

    /// Whether the option `disposition` rejects, unless it is one that was pardoned.
    pub(crate) fn is_rejected_by_disposition(&self, policy: &Policy) -> bool {
        let pardoned = self.cleared_disposition == Some(self.set_by(policy, schema::DISPOSITION));
        !pardoned && self.disposition(policy).rejects()
    }

    /// The option `reject`.
    pub fn reject_intent(&self, policy: &Policy) -> Option<Intent> {
        if let OptionValue::Intent(intent) = self.value(policy, schema::REJECT) {
            Some(*intent)
        } else {
            None
        }
    }

    /// An option with a whole number or a size.
    pub fn number(&self, policy: &Policy, slot: OptionSlot) -> Option<u64> {
        let value = self.value(policy, slot);
        if let OptionValue::Integer(number) = value {
            return u64::try_from(*number).ok();
        }
        if let OptionValue::Size(bytes) = value {
            Some(*bytes)
        } else {
            None
        }
    }

    /// Whether an option is `true`.
    pub fn is_on(&self, policy: &Policy, slot: OptionSlot) -> bool {
        matches!(self.value(policy, slot), OptionValue::Bool(true))
    }

    /// The word of an option with a closed set of them.
    pub fn word(&self, policy: &Policy, slot: OptionSlot) -> Option<&'static str> {
        if let OptionValue::Word(word) = self.value(policy, slot) {
            Some(word)
        } else {
            None
        }
    }

    pub(crate) fn set_state(&mut self, rule: RuleIndex, state: RuleState) {
        if let Some(place) = self.states.get_mut(rule.0 as usize) {
            *place = state;
        }
        if state == RuleState::Matched {
            self.matched.push(rule);
        }
    }

    /// Takes over what became of the rules of a stretch in another walk.
    pub(crate) fn copy_states(&mut self, other: &Self, range: RuleRange) {
        let (from, to) = (range.from as usize, range.to as usize);
        let theirs = other.states.get(from..to).unwrap_or(&[]);
        for (state, theirs) in self.states.iter_mut().skip(from).zip(theirs) {
            *state = *theirs;
        }
    }

    pub(crate) fn record_assignment(&mut self, policy: &Policy, slot: OptionSlot, rule: RuleIndex) {
        if let Some(place) = policy
            .options
            .assigned_index(slot)
            .and_then(|seat| self.set_by.get_mut(seat))
        {
            *place = rule.0 + 1;
        }
    }

    /// The rule that last assigned an option.
    fn last_assigning_rule(&self, policy: &Policy, slot: OptionSlot) -> Option<RuleIndex> {
        let last = self.set_by.get(policy.options.assigned_index(slot)?)?;
        last.checked_sub(1).map(RuleIndex)
    }

    pub(crate) fn record_doubt(&mut self, rule: RuleIndex) {
        self.first_doubt.get_or_insert(rule);
    }
}

/// The bit of a disposition in [`Trail::possible_dispositions`].
pub(crate) fn disposition_bit(disposition: Disposition) -> u8 {
    1 << disposition as u8
}

impl Policy {
    /// The value that a rule assigns to an option, if it does.
    pub(crate) fn assigned_value(&self, rule: RuleIndex, slot: OptionSlot) -> Option<&OptionValue> {
        let RuleBody::Group(group) = &self.rules.get(rule.0 as usize)?.body else {
            return None;
        };
        // The last of two assignments to one slot wins, also within a rule.
        group
            .assignments
            .iter()
            .rev()
            .find(|a| a.slot == slot)
            .map(|a| &a.value)
    }
}
