//! Coverage of a policy's rules by trails.
//!
//! A rule has two outcomes, and a policy is fully covered if each of them is reached. Rules that
//! are not enforced, and outcomes that a constant condition cannot have, are not counted.

use super::Policy;
use super::cases::Case;
use super::condition::{Condition, Polarity};
use super::rule::{ChildOrder, EnforcementMode, Rule, RuleBody, RuleIndex};
use super::trail::{RuleState, Trail};

/// The number of times that each rule of a policy had each outcome.
#[derive(Clone, Debug)]
pub struct Coverage {
    reached: Box<[[u64; 2]]>,
}

/// An outcome of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// `applied` or `not applied` for a group; `hit` or `passed` for a filter; `taken` or
    /// `not taken` in `match: first`.
    pub name: &'static str,
    /// The number of trails that reached it.
    pub reached: u64,
}

/// A rule with its possible outcomes.
#[derive(Clone, Debug)]
pub struct RuleCoverage<'p> {
    /// The index in [`Policy::rules`].
    pub index: usize,
    pub rule: &'p Rule,
    /// One or two outcomes, the effective one first.
    pub branches: Vec<Branch>,
}

impl RuleCoverage<'_> {
    /// Returns the outcomes that no trail reached.
    pub fn missed_branches(&self) -> impl Iterator<Item = &Branch> {
        self.branches.iter().filter(|branch| branch.reached == 0)
    }
}

/// A number of items and the part of them that was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoverageRatio {
    pub reached: usize,
    pub total: usize,
}

impl CoverageRatio {
    /// Returns the percentage, truncated to one decimal place: 100 only if all were reached. Zero
    /// items give 100.
    pub fn percent(self) -> f64 {
        match self.total {
            0 => 100.0,
            of => (self.reached as f64 * 1000.0 / of as f64).floor() / 10.0,
        }
    }

    fn record(&mut self, reached: bool) {
        self.reached += usize::from(reached);
        self.total += 1;
    }
}

impl Coverage {
    /// Creates coverage without any trails.
    pub fn new(policy: &Policy) -> Self {
        Self {
            reached: vec![[0, 0]; policy.rules.len()].into(),
        }
    }

    /// Returns the coverage by test cases, regardless of their expectations.
    pub fn from_cases<'c>(policy: &Policy, cases: impl IntoIterator<Item = &'c Case>) -> Self {
        let mut coverage = Self::new(policy);
        for case in cases {
            let (trail, _) = policy.decide_every_rule(&case.facts.facts());
            coverage.record(&trail);
        }
        coverage
    }

    /// Adds the outcomes of a request.
    pub fn record(&mut self, trail: &Trail) {
        for (reached, at) in self.reached.iter_mut().zip(0..) {
            let [did, did_not] = reached;
            match trail.state(RuleIndex(at)) {
                RuleState::Matched => *did += 1,
                RuleState::NoMatch => *did_not += 1,
                RuleState::Pending | RuleState::Skipped | RuleState::Undecided => {}
            }
        }
    }

    /// Returns the coverage of each enforced rule, in document order.
    pub fn rule_coverage<'p>(&self, policy: &'p Policy) -> Vec<RuleCoverage<'p>> {
        let rules = policy.rules.iter().zip(self.reached.iter()).enumerate();
        rules
            .filter(|(_, (rule, _))| rule.mode == EnforcementMode::Enforce)
            .map(|(at, (rule, reached))| RuleCoverage {
                index: at,
                rule,
                branches: possible_branches(policy, rule, *reached),
            })
            .collect()
    }

    /// Returns the number of rules with all outcomes reached.
    pub fn rule_ratio(&self, policy: &Policy) -> CoverageRatio {
        let mut ratio = CoverageRatio::default();
        for rule in self.rule_coverage(policy) {
            ratio.record(rule.missed_branches().next().is_none());
        }
        ratio
    }

    /// Returns the number of outcomes reached.
    pub fn branch_ratio(&self, policy: &Policy) -> CoverageRatio {
        let mut ratio = CoverageRatio::default();
        for branch in self
            .rule_coverage(policy)
            .iter()
            .flat_map(|rule| &rule.branches)
        {
            ratio.record(branch.reached > 0);
        }
        ratio
    }
}

fn possible_branches(policy: &Policy, rule: &Rule, [did, did_not]: [u64; 2]) -> Vec<Branch> {
    let (yes, no) = branch_names(policy, rule);
    let possible = match constant_effect(rule) {
        Some(true) => vec![(yes, did)],
        Some(false) => vec![(no, did_not)],
        None => vec![(yes, did), (no, did_not)],
    };
    possible
        .into_iter()
        .map(|(name, reached)| Branch { name, reached })
        .collect()
}

fn branch_names(policy: &Policy, rule: &Rule) -> (&'static str, &'static str) {
    let parent = rule
        .parent
        .and_then(|parent| policy.rules.get(parent.0 as usize))
        .map(|parent| &parent.body);
    let chosen = match parent {
        Some(RuleBody::Group(group)) => group.order != ChildOrder::All,
        Some(RuleBody::Filter(_)) | None => false,
    };
    match &rule.body {
        RuleBody::Filter(_) => ("hit", "passed"),
        RuleBody::Group(_) if chosen => ("taken", "not taken"),
        RuleBody::Group(_) => ("applied", "not applied"),
    }
}

/// Returns whether a rule with a constant condition always or never takes effect; `None` if its
/// condition is not constant.
fn constant_effect(rule: &Rule) -> Option<bool> {
    let Some(assertion) = rule.assertion() else {
        return Some(true);
    };
    let value = constant_value(assertion.condition)?;
    Some(value == (assertion.polarity == Polarity::Yes))
}

/// Returns the value of a condition that does not depend on the facts.
fn constant_value(condition: &Condition) -> Option<bool> {
    match condition {
        Condition::Always => Some(true),
        Condition::Not(part) => constant_value(part).map(|value| !value),
        Condition::All(parts) => constant_value_of_parts(parts, false),
        Condition::Any(parts) => constant_value_of_parts(parts, true),
        Condition::Atom(_) => None,
    }
}

fn constant_value_of_parts(parts: &[Condition], deciding: bool) -> Option<bool> {
    let values: Vec<Option<bool>> = parts.iter().map(constant_value).collect();
    if values.contains(&Some(deciding)) {
        return Some(deciding);
    }
    values.iter().all(Option::is_some).then_some(!deciding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::compile;
    use crate::policy::source::MemoryFileSystem;

    /// Checks the branches of a policy with these rules and cases, each with the number of times it
    /// is reached.
    fn check(rules: &str, cases: &[&str], expected: &[(&str, &str, u64)]) {
        let cases: String = cases
            .iter()
            .map(|url| format!("  - {{ url: \"{url}\", expect: allow }}\n"))
            .collect();
        let text = format!(
            "policy: 1\nname: p\noptions: {{ disposition: allow }}\nrules:\n{rules}\ncases:\n{cases}"
        );
        let compiled = compile::load(&MemoryFileSystem::new().with_file("p", text), "p").unwrap();
        let coverage = Coverage::from_cases(&compiled.policy, &compiled.cases);
        let covered = coverage.rule_coverage(&compiled.policy);
        let found: Vec<(&str, &str, u64)> = covered
            .iter()
            .flat_map(|rule| {
                rule.branches
                    .iter()
                    .map(|b| (rule.rule.id.as_str(), b.name, b.reached))
            })
            .collect();
        assert_eq!(found, expected);
        let share = coverage.branch_ratio(&compiled.policy);
        let reached = expected.iter().filter(|(.., reached)| *reached > 0).count();
        assert_eq!(
            share,
            CoverageRatio {
                reached,
                total: expected.len()
            }
        );
    }

    #[test]
    fn both_outcomes_of_groups_and_filters() {
        check(
            "  - id: g\n    when: { host: a }\n    set: { max_depth: 1 }\n    rules:\n      - { id: f, forbid: { under: /x } }\n  \
             - { id: off, enabled: false, forbid: { always: true } }\n",
            &["http://a/", "http://a/y", "http://b/x"],
            &[
                ("g", "applied", 2),
                ("g", "not applied", 1),
                ("f", "hit", 0),
                ("f", "passed", 2),
            ],
        );
    }

    #[test]
    fn a_constant_condition_has_one_outcome_and_a_stop_none() {
        check(
            "  - { id: s, when: { host: a }, then: allow, stop: true }\n  - { id: all, set: { max_depth: 1 } }\n  \
             - { id: never, forbid: { all: [{ host: a }, { not: { always: true } }] } }\n",
            &["http://a/"],
            &[
                ("s", "applied", 1),
                ("s", "not applied", 0),
                ("all", "applied", 0),
                ("never", "passed", 0),
            ],
        );
    }

    #[test]
    fn children_of_a_first_list_are_taken() {
        check(
            "  - id: list\n    match: first\n    rules:\n      - { id: one, when: { host: a }, then: allow }\n      \
             - { id: two, when: { host: b }, then: allow }\n",
            &["http://a/", "http://c/"],
            &[
                ("list", "applied", 2),
                ("one", "taken", 1),
                ("one", "not taken", 1),
                ("two", "taken", 0),
                ("two", "not taken", 1),
            ],
        );
    }

    #[test]
    fn only_all_is_a_hundred_percent() {
        assert_eq!(
            CoverageRatio {
                reached: 9_999,
                total: 10_000
            }
            .percent(),
            99.9
        );
        assert_eq!(
            CoverageRatio {
                reached: 3,
                total: 3
            }
            .percent(),
            100.0
        );
        assert_eq!(CoverageRatio::default().percent(), 100.0);
    }
}
