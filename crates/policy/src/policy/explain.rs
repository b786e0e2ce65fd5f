//! Why a decision is what it is: what became of every rule, and which rule set every option.
//!
//! What became of rules and options is read from the request's [`Trail`]; only [`ground`]s ask conditions again.

pub mod decisive_test;
pub mod test_description;

use serde_json::{Value as Json, json};

use super::Policy;
use super::condition::{Condition, Truth};
use super::fact::{Fact, Facts};
use super::list::PolicyList;
use super::options::{OptionSetter, OptionSlot, OptionValue};
use super::rule::{EnforcementMode, PolicyStage, Rule, RuleIndex};
use super::trail::{RuleState, Trail};
use decisive_test::{DecisiveTest, ObservedValue};
use test_description::{CONTENT_KIND, TestDescription};

/// What became of a rule; the words that `crawlgate explain` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleStatus {
    /// A group that applied, or a filter that hit.
    Matched,
    /// It ran, and its condition says no.
    NoMatch,
    /// A `stop`, or an earlier child of its `match: first` list, cut it off.
    Stopped,
    /// `enabled: false` or `mode: shadow`, its own or of a group around it.
    Disabled,
    /// A group around it did not apply, or it belongs to a space of other crawlers.
    Parent,
    /// It waits for facts that are not given.
    Undecided,
}

impl RuleStatus {
    /// The words of operations.md.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Matched => "matched",
            Self::NoMatch => "no match",
            Self::Stopped => "skipped: stopped",
            Self::Disabled => "skipped: disabled",
            Self::Parent => "skipped: parent",
            Self::Undecided => "undecided",
        }
    }
}

/// One rule in an explanation.
#[derive(Clone, Copy, Debug)]
pub struct RuleExplanation<'p> {
    /// The rule.
    pub rule: &'p Rule,
    /// How many groups it stands in.
    pub depth: usize,
    /// What became of it.
    pub status: RuleStatus,
}

/// One option in an explanation.
#[derive(Clone, Debug)]
pub struct OptionExplanation<'p> {
    /// Its path: `politeness.delay`.
    pub path: &'p str,
    /// Its value.
    pub value: &'p OptionValue,
    /// Who set it.
    pub set_by: OptionSetter,
}

impl Policy {
    /// Every rule with what became of it, in document order.
    pub fn explain_rules<'p>(
        &'p self,
        trail: &'p Trail,
    ) -> impl Iterator<Item = RuleExplanation<'p>> {
        self.rules
            .iter()
            .enumerate()
            .map(move |(at, rule)| RuleExplanation {
                rule,
                depth: self.parents(rule).count(),
                status: self.rule_status(
                    trail,
                    RuleIndex(u32::try_from(at).unwrap_or(u32::MAX)),
                    rule,
                ),
            })
    }

    /// Every option with its value and who set it.
    pub fn explain_options<'p>(
        &'p self,
        trail: &'p Trail,
    ) -> impl Iterator<Item = OptionExplanation<'p>> {
        self.options
            .entries
            .iter()
            .enumerate()
            .map(move |(at, entry)| {
                let slot = OptionSlot(u16::try_from(at).unwrap_or(u16::MAX));
                OptionExplanation {
                    path: &entry.path,
                    value: trail.value(self, slot),
                    set_by: trail.set_by(self, slot),
                }
            })
    }

    /// Every option with its value as one JSON object, maps nested: the `options` of `crawlgate decide`.
    pub fn options_json(&self, trail: &Trail) -> Json {
        let mut all = json!({});
        for line in self.explain_options(trail) {
            insert_at_path(&mut all, line.path, line.value.to_json());
        }
        all
    }

    /// Why a rule matched, did not match, or is undecided; nothing of rules that were skipped, and of those without a
    /// condition.
    pub fn decisive_tests(
        &self,
        line: &RuleExplanation<'_>,
        facts: &Facts<'_>,
    ) -> Vec<DecisiveTest> {
        let asked = match line.status {
            RuleStatus::Matched | RuleStatus::NoMatch | RuleStatus::Undecided => true,
            RuleStatus::Stopped | RuleStatus::Disabled | RuleStatus::Parent => false,
        };
        let Some(condition) = line.rule.condition().filter(|_| asked) else {
            return Vec::new();
        };
        match content_clause_test(line, condition, facts, &self.lists) {
            Some(ground) => vec![ground],
            None => condition.decisive_tests(facts, &self.lists),
        }
    }

    /// The paths of all options, in the order of their slots.
    pub fn option_paths(&self) -> impl Iterator<Item = &str> {
        self.options.entries.iter().map(|entry| &*entry.path)
    }

    /// The place of an option; `None` of a key of an open map that the policy does not name.
    pub fn option_slot(&self, path: &str) -> Option<OptionSlot> {
        let at = self.option_paths().position(|known| known == path)?;
        u16::try_from(at).ok().map(OptionSlot)
    }

    /// The path of an option.
    pub fn option_path(&self, slot: OptionSlot) -> &str {
        self.options
            .entries
            .get(usize::from(slot.0))
            .map_or("", |entry| &entry.path)
    }

    /// The condition of a rule in one line; `None` of a group without one.
    pub fn describe_condition(&self, rule: &Rule) -> Option<String> {
        rule.condition()
            .map(|condition| condition.describe(&self.lists))
    }

    /// What a rule does when it matches, in one line; `None` of one that only filters, or only groups others.
    pub fn describe_effect(&self, rule: &Rule) -> Option<String> {
        Some(super::compare::effect_text(self, rule)).filter(|does| !does.is_empty())
    }

    /// The value of an option before the first rule.
    pub fn base_value(&self, path: &str) -> Option<&OptionValue> {
        self.options
            .entries
            .iter()
            .find(|entry| *entry.path == *path)
            .map(|entry| &entry.base)
    }

    /// The id of a rule.
    pub fn rule_id(&self, rule: RuleIndex) -> Option<&str> {
        self.rules.get(rule.0 as usize).map(|r| r.id.as_str())
    }

    fn rule_status(&self, trail: &Trail, at: RuleIndex, rule: &Rule) -> RuleStatus {
        if rule.mode != EnforcementMode::Enforce {
            return RuleStatus::Disabled;
        }
        match trail.state(at) {
            RuleState::Matched => RuleStatus::Matched,
            RuleState::NoMatch => RuleStatus::NoMatch,
            RuleState::Skipped => RuleStatus::Stopped,
            RuleState::Undecided => RuleStatus::Undecided,
            RuleState::Pending if !self.spaces.runs_rule(at, trail.space()) => RuleStatus::Parent,
            RuleState::Pending => self.rule_status_by_parents(trail, rule),
        }
    }

    /// A rule that never ran shares the fate of the nearest group that did.
    fn rule_status_by_parents(&self, trail: &Trail, rule: &Rule) -> RuleStatus {
        let fate = self
            .parents(rule)
            .find_map(|parent| match trail.state(parent) {
                RuleState::NoMatch => Some(RuleStatus::Parent),
                RuleState::Skipped => Some(RuleStatus::Stopped),
                RuleState::Pending | RuleState::Matched | RuleState::Undecided => None,
            });
        fate.unwrap_or(RuleStatus::Undecided)
    }

    fn parents<'p>(&'p self, rule: &'p Rule) -> impl Iterator<Item = RuleIndex> + 'p {
        let parent_of = |index: &RuleIndex| self.rules.get(index.0 as usize).and_then(|r| r.parent);
        std::iter::successors(rule.parent, parent_of)
    }
}

impl RuleExplanation<'_> {
    /// The stage that the rule waits for, if it is undecided only because that stage was not run.
    pub fn pending_stage(&self) -> Option<PolicyStage> {
        (self.status == RuleStatus::Undecided).then_some(self.rule.stage)
    }
}

/// A rule on type or size passes by what is no success with content, whatever its condition says.
fn content_clause_test(
    line: &RuleExplanation<'_>,
    condition: &Condition,
    facts: &Facts<'_>,
    lists: &[PolicyList],
) -> Option<DecisiveTest> {
    let Fact::Known(response) = facts.response else {
        return None;
    };
    let passed_by = line.status == RuleStatus::NoMatch
        && line.rule.content_only
        && !response.is_success_with_content()
        && condition.evaluate(facts, lists) != line.rule.neutral_truth();
    passed_by.then(|| DecisiveTest {
        field: "status".into(),
        observed: ObservedValue::Value(response.status.to_string()),
        test: TestDescription {
            kind: CONTENT_KIND,
            values: Vec::new(),
        },
        truth: Truth::No,
    })
}

/// Puts a value at a dotted path, making the objects on its way.
fn insert_at_path(object: &mut Json, path: &str, value: Json) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    match path.split_once('.') {
        None => {
            map.insert(path.into(), value);
        }
        Some((head, rest)) => {
            insert_at_path(map.entry(head).or_insert_with(|| json!({})), rest, value)
        }
    }
}
