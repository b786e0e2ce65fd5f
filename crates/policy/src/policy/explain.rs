//! Explanations of decisions: the outcome of each rule, and the rule that set each option.
//!
//! Outcomes and options are read from the request's [`Trail`]. Only [`Policy::decisive_tests`]
//! evaluates conditions again.

pub mod decisive_test;
pub mod test_description;

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use crate::model::words::words;

use super::Policy;
use super::condition::{Condition, Truth};
use super::fact::{Fact, Facts};
use super::list::PolicyList;
use super::options::{OptionIndex, OptionSetter, OptionValue};
use super::rule::{EnforcementMode, PolicyStage, Rule, RuleIndex};
use super::space::Space;
use super::trail::{RuleState, Trail};
use decisive_test::{DecisiveTest, ObservedValue};
use test_description::{CONTENT_KIND, TestDescription};

words! {
    /// The outcome of a rule, in the words of `crawlgate explain`.
    pub enum RuleStatus {
        /// A group that applied, or a filter that matched.
        Matched = "matched",
        /// The condition does not hold.
        NoMatch = "no match",
        /// Skipped by a `stop` or by an earlier match in its `match: first` list.
        Stopped = "skipped: stopped",
        /// `enabled: false` or `mode: shadow` on the rule or on a group around it.
        Disabled = "skipped: disabled",
        /// A group around it did not apply, or it belongs to another space.
        Parent = "skipped: parent",
        /// Facts that the condition needs are unknown.
        Undecided = "undecided",
    }
}

/// The number of rules up to which an explanation has all of them.
pub const MAX_RULES: usize = 200;

/// The rules of an explanation, in document order.
#[derive(Clone, Debug)]
pub struct ExplainedRules<'p> {
    pub rules: Vec<RuleExplanation<'p>>,
    /// The number of rules that are left out.
    pub left_out: usize,
}

/// A rule in an explanation.
#[derive(Clone, Copy, Debug)]
pub struct RuleExplanation<'p> {
    pub rule: &'p Rule,
    /// The number of groups around it.
    pub depth: usize,
    pub status: RuleStatus,
    /// The space that it is part of; `None` for the document's own rules.
    pub space: Option<&'p Space>,
    /// `true` if the space is not the crawler's, so that the rule does not apply.
    pub is_foreign: bool,
}

/// An option in an explanation.
#[derive(Clone, Debug)]
pub struct OptionExplanation<'p> {
    /// The path: `politeness.delay`.
    pub path: &'p str,
    pub value: &'p OptionValue,
    pub set_by: OptionSetter,
}

impl Policy {
    /// Returns all rules with their outcomes, in document order.
    pub fn explain_rules<'p>(
        &'p self,
        trail: &'p Trail,
    ) -> impl Iterator<Item = RuleExplanation<'p>> {
        self.rules.iter().enumerate().map(move |(at, rule)| {
            let at = RuleIndex(u32::try_from(at).unwrap_or(u32::MAX));
            self.explain_rule(trail, at, rule)
        })
    }

    /// Returns the rules that matter for a decision: all if every rule was evaluated, else those that
    /// matched, others that the index did not rule out, up to [`MAX_RULES`], and the groups around
    /// them.
    pub fn explain_relevant_rules<'p>(&'p self, trail: &'p Trail) -> ExplainedRules<'p> {
        if trail.has_every_rule() {
            return ExplainedRules {
                rules: self.explain_rules(trail).collect(),
                left_out: 0,
            };
        }
        let others = trail
            .reached_rules_except(RuleState::Matched)
            .take(MAX_RULES.saturating_sub(trail.matched_rules().len()));
        let shown: BTreeSet<RuleIndex> = trail
            .matched_rules()
            .iter()
            .copied()
            .chain(others)
            .flat_map(|at| {
                let around = self.rule(at).map(|rule| self.parents(rule));
                std::iter::once(at).chain(around.into_iter().flatten())
            })
            .collect();
        let rules: Vec<_> = shown
            .into_iter()
            .filter_map(|at| Some(self.explain_rule(trail, at, self.rule(at)?)))
            .collect();
        ExplainedRules {
            left_out: self.rules.len() - rules.len(),
            rules,
        }
    }

    fn explain_rule<'p>(
        &'p self,
        trail: &Trail,
        at: RuleIndex,
        rule: &'p Rule,
    ) -> RuleExplanation<'p> {
        let space = self.spaces.for_rule(at);
        RuleExplanation {
            rule,
            depth: self.parents(rule).count(),
            status: self.rule_status(trail, at, rule),
            space: space.and_then(|space| self.spaces.get(space)),
            is_foreign: space.is_some() && space != trail.space(),
        }
    }

    /// Returns all options with their values and setters.
    pub fn explain_options<'p>(
        &'p self,
        trail: &'p Trail,
    ) -> impl Iterator<Item = OptionExplanation<'p>> {
        self.options
            .entries
            .iter()
            .enumerate()
            .map(move |(at, entry)| {
                let index = OptionIndex(u16::try_from(at).unwrap_or(u16::MAX));
                OptionExplanation {
                    path: &entry.path,
                    value: trail.value(self, index),
                    set_by: trail.set_by(self, index),
                }
            })
    }

    /// Returns all options as one nested JSON object: the `options` of `crawlgate decide`.
    pub fn options_json(&self, trail: &Trail) -> Json {
        let mut all = json!({});
        for line in self.explain_options(trail) {
            insert_at_path(&mut all, line.path, line.value.to_json());
        }
        all
    }

    /// Returns the tests that decided a rule. Skipped rules and rules without a condition have
    /// none.
    pub fn decisive_tests(
        &self,
        line: &RuleExplanation<'_>,
        facts: &Facts<'_>,
    ) -> Vec<DecisiveTest> {
        let was_evaluated = match line.status {
            RuleStatus::Matched | RuleStatus::NoMatch | RuleStatus::Undecided => true,
            RuleStatus::Stopped | RuleStatus::Disabled | RuleStatus::Parent => false,
        };
        let Some(condition) = line.rule.condition().filter(|_| was_evaluated) else {
            return Vec::new();
        };
        match content_clause_test(line, condition, facts, &self.lists) {
            Some(test) => vec![test],
            None => condition.decisive_tests(facts, &self.lists),
        }
    }

    /// The paths of all options, by index.
    pub fn option_paths(&self) -> impl Iterator<Item = &str> {
        self.options.entries.iter().map(|entry| &*entry.path)
    }

    /// Returns the index of an option; `None` if the policy does not have it.
    pub fn option_index(&self, path: &str) -> Option<OptionIndex> {
        let at = self.option_paths().position(|known| known == path)?;
        u16::try_from(at).ok().map(OptionIndex)
    }

    /// The path of an option.
    pub fn option_path(&self, index: OptionIndex) -> &str {
        self.options.get(index).map_or("", |entry| &entry.path)
    }

    /// Describes a rule's condition in one line; `None` if it has none.
    pub fn describe_condition(&self, rule: &Rule) -> Option<String> {
        rule.condition()
            .map(|condition| condition.describe(&self.lists))
    }

    /// Describes a rule's effect in one line; `None` if it only filters or only groups others.
    pub fn describe_effect(&self, rule: &Rule) -> Option<String> {
        Some(super::compare::effect_text(self, rule)).filter(|effect| !effect.is_empty())
    }

    /// The initial value of an option.
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

    /// Returns the outcome of a rule that was not reached: that of the nearest evaluated group
    /// around it.
    fn rule_status_by_parents(&self, trail: &Trail, rule: &Rule) -> RuleStatus {
        self.parents(rule)
            .find_map(|parent| match trail.state(parent) {
                RuleState::NoMatch => Some(RuleStatus::Parent),
                RuleState::Skipped => Some(RuleStatus::Stopped),
                RuleState::Pending | RuleState::Matched | RuleState::Undecided => None,
            })
            .unwrap_or(RuleStatus::Undecided)
    }

    fn parents<'p>(&'p self, rule: &'p Rule) -> impl Iterator<Item = RuleIndex> + 'p {
        std::iter::successors(rule.parent, |index| self.rule(*index)?.parent)
    }
}

impl RuleExplanation<'_> {
    /// The stage that would decide the rule, if it is undecided because that stage was not run.
    pub fn pending_stage(&self) -> Option<PolicyStage> {
        (self.status == RuleStatus::Undecided).then_some(self.rule.stage)
    }
}

/// Returns the status as the test if a rule on type or size did not match because the response is
/// not a success with content.
fn content_clause_test(
    line: &RuleExplanation<'_>,
    condition: &Condition,
    facts: &Facts<'_>,
    lists: &[PolicyList],
) -> Option<DecisiveTest> {
    let Fact::Known(response) = facts.response else {
        return None;
    };
    let is_decisive = line.status == RuleStatus::NoMatch
        && line.rule.content_only
        && !response.is_success_with_content()
        && condition.evaluate(facts, lists) != line.rule.neutral_truth();
    is_decisive.then(|| DecisiveTest {
        field: "status".into(),
        observed: ObservedValue::Value(response.status.to_string()),
        test: TestDescription {
            kind: CONTENT_KIND,
            values: Vec::new(),
        },
        truth: Truth::No,
    })
}

/// Inserts a value at a dotted path and creates the objects on the way.
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
