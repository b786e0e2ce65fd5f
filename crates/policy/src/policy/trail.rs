//! The state of the rules for one request, shared by the stages.
//!
//! The condition of a group is evaluated once, and its result is used for nested rules at later stages. For an
//! option only the rule that last assigned it is stored. Both are small numbers, stored inline for
//! the few rules that a request usually reaches.

use smallvec::SmallVec;

use crate::model::disposition::Disposition;
use crate::model::intent::Intent;

use super::Policy;
use super::fact::Facts;
use super::host_pace::HostPaceIndex;
use super::options::checks::LinksOnly;
use super::options::{OptionEntry, OptionIndex, OptionSetter, OptionValue, schema};
use super::rule::RuleIndex;
use super::space::{RuleRange, SpaceIndex};
use super::traps::Trap;

/// The state of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleState {
    /// The rule has not been reached: its stage has not been evaluated, a group around it did not
    /// apply, or the index ruled it out.
    #[default]
    Pending,
    /// The group applied, or the filter matched.
    Matched,
    /// The condition does not hold, or the rule does not match this response.
    NoMatch,
    /// The rule was skipped by a `stop` or by an earlier match in its `match: first` list.
    Skipped,
    /// The condition depends on facts that will not become known.
    Undecided,
}

/// The state of one request under one policy.
#[derive(Clone, Debug)]
pub struct Trail {
    states: RuleStates,
    /// `true` if every rule is evaluated, including those that the index rules out, so that each has a
    /// state.
    pub(crate) every_rule: bool,
    /// For each option that rules assign: 0, or 1 + the index of the rule that assigned it last.
    set_by: SmallVec<[u32; 16]>,
    matched: SmallVec<[RuleIndex; 8]>,
    /// The crawler's space.
    pub(crate) space: Option<SpaceIndex>,
    /// The entry of `hosts` that sets the pace.
    host_pace: Option<HostPaceIndex>,
    /// The first filter that matched.
    pub(crate) first_filter: Option<RuleIndex>,
    /// The first filter with `as` that matched.
    pub(crate) soft_error: Option<RuleIndex>,
    /// `true` if a filter that matched has `log`.
    pub(crate) log: bool,
    /// The first rule because of which the decision on a tunnel depends on what the tunnel hides.
    pub(crate) first_doubt: Option<RuleIndex>,
    /// The possible dispositions of a URL in a tunnel, one bit each. No bit is set if the decision depends on what the
    /// tunnel hides because of an option that no rule has set.
    pub(crate) possible_dispositions: u8,
    /// The first rule with an undecided condition that may have changed the disposition since it was last certain.
    pub(crate) uncertain_rule: Option<RuleIndex>,
    /// The trap that matched the URL.
    pub(crate) trap: Option<Trap>,
    /// The setter of the disposition that [`Trail::clear_rejection`] has cleared.
    cleared_disposition: Option<OptionSetter>,
    /// `true` if the response is a document with links that may be followed; recorded only if a check
    /// may withhold the rest.
    pub(crate) has_links: bool,
    /// The check because of which only the links of the document are passed on.
    links_only: Option<LinksOnly>,
}

/// The part of a trail that determines the values of all options.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OptionsKey {
    set_by: SmallVec<[u32; 16]>,
    space: Option<SpaceIndex>,
    host_pace: Option<HostPaceIndex>,
    links_only: Option<LinksOnly>,
}

/// The values of `index` and `enforce_index` for a document of which only the links are passed on.
const NO_INDEX: OptionValue = OptionValue::Bool(false);
const STRIP: OptionValue = OptionValue::Word(schema::STRIP_WORD);

impl Trail {
    /// Creates the state before the first rule, for a crawler.
    pub fn new(policy: &Policy, crawler: &str) -> Self {
        Self::for_space(policy, policy.spaces.for_crawler(crawler))
    }

    /// Creates the state before the first rule, for a request: its host may have an entry in `hosts`.
    pub(crate) fn for_request(policy: &Policy, facts: &Facts<'_>) -> Self {
        Self {
            host_pace: policy.host_paces.find(facts.target.host()),
            ..Self::new(policy, facts.crawler)
        }
    }

    /// Records the state of every rule, including those that the index rules out: for explanations and
    /// coverage.
    pub(crate) fn with_every_rule(self) -> Self {
        Self {
            every_rule: true,
            ..self
        }
    }

    /// Creates the state before the first rule, for a space.
    pub(crate) fn for_space(policy: &Policy, space: Option<SpaceIndex>) -> Self {
        let mut trail = Self {
            states: RuleStates::default(),
            every_rule: false,
            set_by: SmallVec::from_elem(0, policy.options.assigned_count()),
            matched: SmallVec::new(),
            space,
            host_pace: None,
            first_filter: None,
            soft_error: None,
            log: false,
            first_doubt: None,
            possible_dispositions: 0,
            uncertain_rule: None,
            trap: None,
            cleared_disposition: None,
            has_links: false,
            links_only: None,
        };
        trail.possible_dispositions = disposition_bit(trail.disposition(policy));
        trail
    }

    /// The state of a rule.
    pub fn state(&self, rule: RuleIndex) -> RuleState {
        self.states.get(rule)
    }

    /// Forgets the states of the rules, which no later stage needs: for a decision that is kept.
    #[must_use]
    pub fn without_states(mut self) -> Self {
        self.states = RuleStates::default();
        self
    }

    /// The number of rules that are not pending.
    pub fn evaluated_rule_count(&self) -> usize {
        self.states.0.len()
    }

    /// Returns `true` if every rule was evaluated, including those that the index rules out.
    pub fn has_every_rule(&self) -> bool {
        self.every_rule
    }

    /// The rules that were reached and have another state than this one, in document order.
    pub(crate) fn reached_rules_except(&self, state: RuleState) -> impl Iterator<Item = RuleIndex> {
        self.states
            .iter()
            .filter(move |(_, other)| *other != state)
            .map(|(rule, _)| rule)
    }

    /// The rules with this state, in document order.
    pub(crate) fn rules_in_state(&self, state: RuleState) -> impl Iterator<Item = RuleIndex> {
        self.states.iter_in(state)
    }

    /// Returns `true` if a rule in this range was reached; `to` is not part of the range.
    pub(crate) fn has_reached_within(&self, from: RuleIndex, to: RuleIndex) -> bool {
        self.states.has_any_within(from, to)
    }

    /// The rules that matched, in order.
    pub fn matched_rules(&self) -> &[RuleIndex] {
        &self.matched
    }

    /// The setter of an option's value.
    pub fn set_by(&self, policy: &Policy, index: OptionIndex) -> OptionSetter {
        if let (Some(check), Some(_)) = (self.links_only, self.links_only_value(index)) {
            return self.set_by(policy, check.option());
        }
        if let Some((setter, _)) = self.host_pace_option(policy, index) {
            return setter;
        }
        let Some(entry) = policy.options.get(index) else {
            return OptionSetter::BuiltIn;
        };
        match self.last_assigning_rule(entry) {
            Some(rule) => OptionSetter::Rule(rule),
            None => self.space_set_by(policy, index).unwrap_or(entry.set_by),
        }
    }

    /// The value of an option.
    pub fn value<'p>(&self, policy: &'p Policy, index: OptionIndex) -> &'p OptionValue {
        if let Some(value) = self.links_only_value(index) {
            return value;
        }
        if let Some((_, value)) = self.host_pace_option(policy, index) {
            return value;
        }
        let Some(entry) = policy.options.get(index) else {
            return &OptionValue::None;
        };
        let assigned = self
            .last_assigning_rule(entry)
            .and_then(|rule| policy.assigned_value(rule, index));
        if let Some(value) = assigned {
            return value;
        }
        let space = self.space.and_then(|space| policy.spaces.get(space));
        let value = space.and_then(|space| space.value(index));
        value.unwrap_or(&entry.base)
    }

    /// Returns what determines the values of all options. Two trails of one policy with equal keys have equal values of all
    /// options.
    pub fn options_key(&self) -> OptionsKey {
        OptionsKey {
            set_by: self.set_by.clone(),
            space: self.space,
            host_pace: self.host_pace,
            links_only: self.links_only,
        }
    }

    /// The entry of `hosts` that sets the pace of the host, if there is one.
    pub fn host_pace(&self) -> Option<HostPaceIndex> {
        self.host_pace
    }

    /// Returns the setter and the value of an option of the pace, if `hosts` has an entry.
    fn host_pace_option<'p>(
        &self,
        policy: &'p Policy,
        index: OptionIndex,
    ) -> Option<(OptionSetter, &'p OptionValue)> {
        policy.host_pace_option(self.host_pace?, index)
    }

    /// Returns the value that an option always has if only the document's links are passed on.
    fn links_only_value(&self, index: OptionIndex) -> Option<&'static OptionValue> {
        self.links_only?;
        match index {
            schema::INDEX => Some(&NO_INDEX),
            schema::ENFORCE_INDEX => Some(&STRIP),
            _ => None,
        }
    }

    /// The check because of which only the links of the document are passed on.
    pub fn links_only_check(&self) -> Option<LinksOnly> {
        self.links_only
    }

    /// Passes on only the links of the document. Returns `false`, and changes nothing, if it has none that may be followed.
    pub fn pass_links_only(&mut self, check: LinksOnly) -> bool {
        if self.has_links {
            self.links_only.get_or_insert(check);
        }
        self.has_links
    }

    /// The trap that matched the URL, if any.
    pub fn trap(&self) -> Option<Trap> {
        self.trap
    }

    /// The crawl space of the crawler, if the policy has one for it.
    pub fn space(&self) -> Option<SpaceIndex> {
        self.space
    }

    /// Returns the crawler's space if its options set this one.
    fn space_set_by(&self, policy: &Policy, index: OptionIndex) -> Option<OptionSetter> {
        let space = self.space?;
        policy
            .spaces
            .get(space)?
            .value(index)
            .map(|_| OptionSetter::Space(space))
    }

    /// The value of the option `disposition`.
    pub fn disposition(&self, policy: &Policy) -> Disposition {
        let value = self.value(policy, schema::DISPOSITION);
        // `compile` allows no other type of value here.
        if let OptionValue::Disposition(value) = value {
            *value
        } else {
            Disposition::Disallow
        }
    }

    /// Clears the rejection so far: later stages start from an admitted request.
    pub fn clear_rejection(&mut self, policy: &Policy) {
        self.first_filter = None;
        self.soft_error = None;
        self.log = false;
        self.cleared_disposition = Some(self.set_by(policy, schema::DISPOSITION));
    }

    /// Returns `true` if the option `disposition` rejects and was not cleared.
    pub(crate) fn is_rejected_by_disposition(&self, policy: &Policy) -> bool {
        let cleared = self.cleared_disposition == Some(self.set_by(policy, schema::DISPOSITION));
        !cleared && self.disposition(policy).rejects()
    }

    /// The value of the option `reject`.
    pub fn reject_intent(&self, policy: &Policy) -> Option<Intent> {
        if let OptionValue::Intent(intent) = self.value(policy, schema::REJECT) {
            Some(*intent)
        } else {
            None
        }
    }

    /// The value of an option with a whole number or a size.
    pub fn number(&self, policy: &Policy, index: OptionIndex) -> Option<u64> {
        let value = self.value(policy, index);
        if let OptionValue::Integer(number) = value {
            return u64::try_from(*number).ok();
        }
        if let OptionValue::Size(bytes) = value {
            Some(*bytes)
        } else {
            None
        }
    }

    /// Returns `true` if an option is `true`.
    pub fn is_on(&self, policy: &Policy, index: OptionIndex) -> bool {
        matches!(self.value(policy, index), OptionValue::Bool(true))
    }

    /// The value of an option with a closed set of words.
    pub fn word(&self, policy: &Policy, index: OptionIndex) -> Option<&'static str> {
        if let OptionValue::Word(word) = self.value(policy, index) {
            Some(word)
        } else {
            None
        }
    }

    /// The value of an option with a text.
    pub fn text<'p>(&'p self, policy: &'p Policy, index: OptionIndex) -> Option<&'p str> {
        if let OptionValue::Text(text) = self.value(policy, index) {
            Some(text)
        } else {
            None
        }
    }

    pub(crate) fn set_state(&mut self, rule: RuleIndex, state: RuleState) {
        self.states.set(rule, state);
        if state == RuleState::Matched {
            self.matched.push(rule);
        }
    }

    /// Copies the states of a range of rules from another trail.
    pub(crate) fn copy_states(&mut self, other: &Self, range: RuleRange) {
        for (rule, state) in other.states.iter() {
            if range.contains(rule) {
                self.states.set(rule, state);
            }
        }
    }

    pub(crate) fn record_assignment(
        &mut self,
        policy: &Policy,
        index: OptionIndex,
        rule: RuleIndex,
    ) {
        if let Some(last) = policy
            .options
            .get(index)
            .and_then(OptionEntry::assigned_index)
            .and_then(|index| self.set_by.get_mut(index))
        {
            *last = rule.0 + 1;
        }
    }

    /// The rule that assigned an option last.
    fn last_assigning_rule(&self, entry: &OptionEntry) -> Option<RuleIndex> {
        let last = self.set_by.get(entry.assigned_index()?)?;
        last.checked_sub(1).map(RuleIndex)
    }

    pub(crate) fn record_doubt(&mut self, rule: RuleIndex) {
        self.first_doubt.get_or_insert(rule);
    }
}

/// The states of the rules that are not pending, sorted by rule.
///
/// An entry is a rule's index and, in the lowest bits, its state: the future of a request holds a
/// trail, so its size matters.
#[derive(Clone, Debug, Default)]
struct RuleStates(SmallVec<[u32; 16]>);

const STATE_BITS: u32 = 3;

impl RuleStates {
    fn get(&self, rule: RuleIndex) -> RuleState {
        match self.find(rule) {
            Ok(at) => self.0.get(at).map_or(RuleState::Pending, |e| unpack(*e).1),
            Err(_) => RuleState::Pending,
        }
    }

    fn set(&mut self, rule: RuleIndex, state: RuleState) {
        let entry = rule.0 << STATE_BITS | state as u32;
        match self.find(rule) {
            Ok(at) => {
                if let Some(slot) = self.0.get_mut(at) {
                    *slot = entry;
                }
            }
            Err(at) => self.0.insert(at, entry),
        }
    }

    fn has_any_within(&self, from: RuleIndex, to: RuleIndex) -> bool {
        let (Ok(at) | Err(at)) = self.find(from);
        self.0.get(at).is_some_and(|entry| unpack(*entry).0 < to)
    }

    fn iter(&self) -> impl Iterator<Item = (RuleIndex, RuleState)> {
        self.0.iter().copied().map(unpack)
    }

    fn iter_in(&self, state: RuleState) -> impl Iterator<Item = RuleIndex> {
        self.iter()
            .filter(move |(_, other)| *other == state)
            .map(|(rule, _)| rule)
    }

    /// Returns the place of a rule, or the place where it is to be inserted.
    fn find(&self, rule: RuleIndex) -> Result<usize, usize> {
        match self.0.last() {
            // Rules are mostly reached in document order.
            Some(last) if *last >> STATE_BITS >= rule.0 => {
                self.0.binary_search_by_key(&rule.0, |e| e >> STATE_BITS)
            }
            Some(_) | None => Err(self.0.len()),
        }
    }
}

fn unpack(entry: u32) -> (RuleIndex, RuleState) {
    let states = [
        RuleState::Pending,
        RuleState::Matched,
        RuleState::NoMatch,
        RuleState::Skipped,
        RuleState::Undecided,
    ];
    let state = entry & ((1 << STATE_BITS) - 1);
    let found = states.into_iter().find(|other| *other as u32 == state);
    (RuleIndex(entry >> STATE_BITS), found.unwrap_or_default())
}

/// The bit of a disposition in [`Trail::possible_dispositions`].
pub(crate) fn disposition_bit(disposition: Disposition) -> u8 {
    1 << disposition as u8
}

impl Policy {
    /// The value that a rule assigns to an option, if any.
    pub(crate) fn assigned_value(
        &self,
        rule: RuleIndex,
        index: OptionIndex,
    ) -> Option<&OptionValue> {
        self.rules.get(rule.0 as usize)?.assigned_value(index)
    }
}
