//! The rules that differ between two policies, and the requests that they may concern.

use std::collections::{BTreeMap, BTreeSet};

use crate::policy::Policy;
use crate::policy::compare::{PolicyDiff, rule_aspects};
use crate::policy::condition::Condition;
use crate::policy::rule::{EnforcementMode, PolicyStage, Rule, RuleBody};

use super::condition_equality::ConditionEquality;
use super::formula::Formula;
use super::question::{Solution, Solver};
use super::regions::AnalysedPolicy;
use super::verdict_changes::VerdictChanges;

/// The maximum number of rules that a moved rule passed for which they are considered one by one.
const MAX_PASSED: usize = 40;

/// The positions of a rule that both policies have.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommonRule {
    pub(super) old: usize,
    pub(super) new: usize,
}

/// A rule that differs between two policies, by its positions.
#[derive(Clone, Copy, Debug)]
pub(super) enum ChangedRule {
    Removed(usize),
    Added(usize),
    Changed(CommonRule),
}

/// The requests that the change of a rule may concern.
pub(super) struct ChangedRequests {
    /// Only the old version applies to them.
    pub(super) lost: Formula,
    /// Only the new version applies to them.
    pub(super) gained: Formula,
    /// Both versions apply to them, and their effects or the rules before them differ.
    pub(super) changed: Formula,
    /// The rules that come before the rule in one policy and after it in the other, and apply to
    /// some of these requests.
    pub(super) passed: Vec<CommonRule>,
}

/// Two policies, with the rules that both have.
pub(super) struct PolicyPair<'p> {
    pub(super) old: AnalysedPolicy<'p>,
    pub(super) new: AnalysedPolicy<'p>,
    common: Vec<CommonRule>,
}

impl<'p> PolicyPair<'p> {
    pub(super) fn new(old: &'p Policy, new: &'p Policy) -> Self {
        let positions: BTreeMap<&str, usize> = old
            .rules
            .iter()
            .enumerate()
            .map(|(at, rule)| (rule.id.as_str(), at))
            .collect();
        let rules = new.rules.iter().enumerate();
        let common = rules.filter_map(|(at, rule)| {
            let old = *positions.get(rule.id.as_str())?;
            Some(CommonRule { old, new: at })
        });
        Self {
            common: common.collect(),
            old: AnalysedPolicy::new(old),
            new: AnalysedPolicy::new(new),
        }
    }

    /// Returns the ids of the rules that changed, or whose lists did.
    pub(super) fn changed_rules(&self, diff: &PolicyDiff) -> Vec<(String, ChangedRule)> {
        let named: BTreeSet<&str> = diff.rules.iter().map(|change| &*change.name).collect();
        let mut equality = ConditionEquality::new(&self.old.policy.lists, &self.new.policy.lists);
        let changed = self.common.iter().copied().filter(|rule| {
            rule_name(self.new.policy, rule.new).is_some_and(|name| named.contains(name))
                || !self.has_equal_conditions(*rule, &mut equality)
                || !self.runs_alike(*rule)
        });
        let changed = changed.map(|rule| (self.new.policy, rule.new, ChangedRule::Changed(rule)));
        let in_old: BTreeSet<usize> = self.common.iter().map(|rule| rule.old).collect();
        let in_new: BTreeSet<usize> = self.common.iter().map(|rule| rule.new).collect();
        let added = (0..self.new.policy.rules.len())
            .filter(|at| !in_new.contains(at))
            .map(|at| (self.new.policy, at, ChangedRule::Added(at)));
        let removed = (0..self.old.policy.rules.len())
            .filter(|at| !in_old.contains(at))
            .map(|at| (self.old.policy, at, ChangedRule::Removed(at)));
        let all = changed.chain(added).chain(removed);
        all.filter_map(|(policy, at, rule)| Some((rule_name(policy, at)?.to_owned(), rule)))
            .collect()
    }

    /// Returns the requests that the change of a rule may concern. Rules that are not enforced
    /// concern none.
    pub(super) fn changed_requests(
        &self,
        solver: &mut Solver,
        rule: ChangedRule,
    ) -> ChangedRequests {
        let (old, new) = rule.positions();
        let before = region(&self.old, solver, old);
        let after = region(&self.new, solver, new);
        let both = Formula::all([before.clone(), after.clone()]);
        let (changed, passed) = match rule {
            ChangedRule::Changed(rule) if self.has_same_place(rule) => {
                let (passed, region) = self.passed(solver, rule, &both);
                let changed = if self.has_same_effect(rule) {
                    Formula::all([both, region])
                } else {
                    both
                };
                (changed, passed)
            }
            ChangedRule::Changed(_) | ChangedRule::Added(_) | ChangedRule::Removed(_) => {
                return ChangedRequests {
                    lost: before,
                    gained: after,
                    changed: Formula::Constant(false),
                    passed: Vec::new(),
                };
            }
        };
        ChangedRequests {
            lost: Formula::all([before.clone(), after.clone().negate()]),
            gained: Formula::all([after, before.negate()]),
            changed,
            passed,
        }
    }

    /// Returns the changes of verdicts that the change of a rule may cause, among requests that are
    /// lost, gained or changed.
    pub(super) fn possible_verdicts(
        &self,
        rule: ChangedRule,
        [lost, gained, changed]: [bool; 3],
        passed: &[CommonRule],
    ) -> VerdictChanges {
        let (old, new) = rule.positions();
        let is_plain = |policy: &AnalysedPolicy<'_>, at: Option<usize>| {
            at.is_none_or(|at| policy.view.is_leaf(at) && !policy.view.is_in_first_match(at))
        };
        if !is_plain(&self.old, old) || !is_plain(&self.new, new) {
            return VerdictChanges::BOTH;
        }
        let mut verdicts = VerdictChanges::NONE;
        let old = old.and_then(|at| Some((self.old.policy, self.old.view.rule(at)?)));
        let new = new.and_then(|at| Some((self.new.policy, self.new.view.rule(at)?)));
        if let Some((policy, rule)) = old.filter(|_| lost) {
            verdicts = verdicts.union(VerdictChanges::of_removed(policy, rule));
        }
        if let Some((policy, rule)) = new.filter(|_| gained) {
            verdicts = verdicts.union(VerdictChanges::of_added(policy, rule));
        }
        if let (Some(old), Some(new), true) = (old, new, changed) {
            verdicts = verdicts.union(VerdictChanges::of_changed(old, new));
            if !passed.is_empty() {
                verdicts = verdicts.union(VerdictChanges::of_moved(new.0, new.1));
            }
            let stops = self.new.view.stops();
            if passed.iter().any(|other| stops.contains(&other.new)) {
                verdicts = VerdictChanges::BOTH;
            }
        }
        verdicts
    }

    /// Returns `true` if two versions of a rule differ in nothing but their conditions, effects and
    /// the order among other rules.
    fn has_same_place(&self, rule: CommonRule) -> bool {
        let (Some(before), Some(after)) =
            (self.old.view.rule(rule.old), self.new.view.rule(rule.new))
        else {
            return false;
        };
        let same_kind = matches!(
            (&before.body, &after.body),
            (RuleBody::Filter(_), RuleBody::Filter(_)) | (RuleBody::Group(_), RuleBody::Group(_))
        );
        same_kind
            && self.runs_alike(rule)
            && before.active_stages == after.active_stages
            && self.have_same_aspects(rule, &["inside", "stage", "mode"])
    }

    fn has_same_effect(&self, rule: CommonRule) -> bool {
        self.have_same_aspects(rule, &["does"])
    }

    /// Returns `true` if a version of a changed rule has tests that are known at different stages. Then
    /// equal regions do not prove equal decisions: `header.x-a: …` may be true of the same requests
    /// as `any: [header.x-a: …, path: …]`, but is known later.
    pub(super) fn has_tests_of_several_stages(&self, rule: ChangedRule) -> bool {
        let ChangedRule::Changed(rule) = rule else {
            return false;
        };
        let versions = [self.old.view.rule(rule.old), self.new.view.rule(rule.new)];
        versions.into_iter().flatten().any(|version| {
            let mut stages = BTreeSet::new();
            if let Some(condition) = version.condition() {
                add_stages(condition, &mut stages);
            }
            stages.len() > 1
        })
    }

    fn have_same_aspects(&self, rule: CommonRule, names: &[&str]) -> bool {
        let (Some(before), Some(after)) =
            (self.old.view.rule(rule.old), self.new.view.rule(rule.new))
        else {
            return false;
        };
        rule_aspects(self.old.policy, before)
            .into_iter()
            .zip(rule_aspects(self.new.policy, after))
            .filter(|((name, _), _)| names.contains(name))
            .all(|((_, old), (_, new))| old == new)
    }

    fn has_equal_conditions(&self, rule: CommonRule, equality: &mut ConditionEquality<'_>) -> bool {
        let old = self.old.view.rule(rule.old).and_then(Rule::condition);
        let new = self.new.view.rule(rule.new).and_then(Rule::condition);
        match (old, new) {
            (Some(old), Some(new)) => equality.are_equal(old, new),
            (old, new) => old.is_none() && new.is_none(),
        }
    }

    /// Returns `true` if two versions of a rule run for the same crawlers, stages and responses, as
    /// far as their conditions do not say it.
    fn runs_alike(&self, rule: CommonRule) -> bool {
        let (Some(before), Some(after)) =
            (self.old.view.rule(rule.old), self.new.view.rule(rule.new))
        else {
            return false;
        };
        let space = |policy: &AnalysedPolicy<'p>, at: usize| {
            let space = policy
                .policy
                .spaces()
                .all()
                .get(policy.view.space_of(at)?)?;
            Some(space.name.clone())
        };
        before.class == after.class
            && before.content_only == after.content_only
            && before.header_stages == after.header_stages
            && before.earliest_stage == after.earliest_stage
            && space(&self.old, rule.old) == space(&self.new, rule.new)
    }

    /// Returns the rules that come before a rule in one policy and after it in the other, and the
    /// requests to which they apply; rules that apply to none of the given requests are left out.
    fn passed(
        &self,
        solver: &mut Solver,
        rule: CommonRule,
        within: &Formula,
    ) -> (Vec<CommonRule>, Formula) {
        let others = self.common.iter().copied();
        let mut passed: Vec<CommonRule> = others
            .filter(|other| (other.old < rule.old) != (other.new < rule.new))
            .collect();
        if passed.len() > MAX_PASSED {
            return (passed, Formula::Constant(true));
        }
        let mut regions = Vec::new();
        passed.retain(|other| {
            let before = region(&self.old, solver, Some(other.old));
            let after = region(&self.new, solver, Some(other.new));
            let region = Formula::any([before, after]);
            solver.begin_question();
            let overlap = Formula::all([within.clone(), region.clone()]);
            let overlaps = !matches!(solver.solve(&overlap, &|_| true), Solution::Never);
            if overlaps {
                regions.push(region);
            }
            overlaps
        });
        (passed, Formula::any(regions))
    }
}

impl ChangedRule {
    /// Returns the positions in the old and in the new policy.
    pub(super) fn positions(self) -> (Option<usize>, Option<usize>) {
        match self {
            Self::Removed(old) => (Some(old), None),
            Self::Added(new) => (None, Some(new)),
            Self::Changed(rule) => (Some(rule.old), Some(rule.new)),
        }
    }
}

fn rule_name(policy: &Policy, at: usize) -> Option<&str> {
    policy.rules.get(at).map(|rule| rule.id.as_str())
}

/// Returns the requests to which a rule applies; none if it is not enforced.
fn region(policy: &AnalysedPolicy<'_>, solver: &mut Solver, at: Option<usize>) -> Formula {
    let enforced = at.filter(|at| {
        policy
            .view
            .rule(*at)
            .is_some_and(|rule| rule.mode == EnforcementMode::Enforce)
    });
    enforced.map_or(Formula::Constant(false), |at| policy.region(solver, at))
}

/// Adds the stages at which the tests of a condition are known.
fn add_stages(condition: &Condition, stages: &mut BTreeSet<PolicyStage>) {
    match condition {
        Condition::Always => {}
        Condition::All(parts) | Condition::Any(parts) => {
            parts.iter().for_each(|part| add_stages(part, stages));
        }
        Condition::Not(part) => add_stages(part, stages),
        Condition::Atom(atom) => {
            stages.insert(atom.field.stage());
        }
    }
}
