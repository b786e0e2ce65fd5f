//! Requests about which two policies decide differently.
//!
//! Rules are matched by id. Where the condition of a rule has the same value in both policies, and
//! so do those around it, the rule cannot be the reason of a difference. Elsewhere the rule may
//! still have no effect, because of the other rules; that is proved for each policy on its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::policy::Policy;
use crate::policy::cases::CaseFacts;
use crate::policy::compare::{PolicyDiff, rule_aspects};
use crate::policy::decide::{Decision, Verdict};
use crate::policy::field::Field;
use crate::policy::rule::EnforcementMode;

use super::formula::Formula;
use super::question::{Example, Solution, Solver};
use super::regions::AnalysedPolicy;
use super::unreached::Reach;

/// The maximum number of examples for each kind of difference.
const MAX_EXAMPLES: usize = 3;
/// The maximum number of searches for one rule.
const MAX_ROUNDS: usize = 12;

/// The kinds of differences between two decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceKind {
    /// Refused by the old policy, admitted by the new one.
    NewAccess,
    /// Admitted by the old policy, refused by the new one.
    NewRefusal,
    /// Equal verdicts by another rule, or for another reason.
    Cause,
}

impl DifferenceKind {
    /// The word in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NewAccess => "new-access",
            Self::NewRefusal => "new-refusal",
            Self::Cause => "cause",
        }
    }
}

/// The differences between the decisions of two policies.
#[derive(Debug, Default)]
pub struct ExactDifference {
    /// Requests that the policies decide differently, up to three of each kind.
    pub examples: BTreeMap<DifferenceKind, Vec<Example>>,
    /// The changes of which it is not decided whether they matter, each with the reason.
    pub undecided: Vec<(String, &'static str)>,
}

impl ExactDifference {
    /// Compares two policies.
    pub fn between(old: &Policy, new: &Policy) -> Self {
        let mut difference = Self::default();
        match Solver::new() {
            Ok(solver) => Comparison {
                old: AnalysedPolicy::new(old),
                new: AnalysedPolicy::new(new),
                solver,
                difference: &mut difference,
            }
            .run(),
            Err(reason) => difference.undecided.push(("the policies".into(), reason)),
        }
        difference
    }

    /// Returns `true` if it is proved that no decision differs.
    pub fn is_equivalent(&self) -> bool {
        self.examples.is_empty() && self.undecided.is_empty()
    }
}

struct Comparison<'p, 'd> {
    old: AnalysedPolicy<'p>,
    new: AnalysedPolicy<'p>,
    solver: Solver,
    difference: &'d mut ExactDifference,
}

/// One of the two policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Old,
    New,
}

impl Comparison<'_, '_> {
    fn run(mut self) {
        let diff = PolicyDiff::between(self.old.policy, self.new.policy);
        let everything = Formula::Constant(true);
        if !diff.options.is_empty() {
            self.search(
                "options",
                &everything,
                "an option of the document or a space changed",
            );
        }
        let lists: BTreeSet<&str> = diff.lists.iter().map(|change| &*change.name).collect();
        for (id, old, new) in self.changed_rules(&diff, !lists.is_empty()) {
            self.compare_rule(&id, old, new);
        }
    }

    /// Returns the changed rules with their positions in both policies.
    fn changed_rules(
        &self,
        diff: &PolicyDiff,
        with_lists: bool,
    ) -> Vec<(String, Option<usize>, Option<usize>)> {
        let position =
            |policy: &Policy, id: &str| policy.rules.iter().position(|rule| rule.id.as_str() == id);
        let named = diff.rules.iter().map(|change| change.name.clone());
        let mut ids: Vec<String> = named.collect();
        if with_lists {
            let with_list = self
                .new
                .policy
                .rules
                .iter()
                .filter(|rule| rule.condition().is_some_and(uses_list));
            ids.extend(with_list.map(|rule| rule.id.to_string()));
        }
        let mut seen = BTreeSet::new();
        ids.retain(|id| seen.insert(id.clone()));
        ids.into_iter()
            .map(|id| {
                let old = position(self.old.policy, &id);
                let new = position(self.new.policy, &id);
                (id, old, new)
            })
            .collect()
    }

    fn compare_rule(&mut self, id: &str, old: Option<usize>, new: Option<usize>) {
        let before = old.map_or(Formula::Constant(false), |at| self.region(Side::Old, at));
        let after = new.map_or(Formula::Constant(false), |at| self.region(Side::New, at));
        if self.has_same_effect(old, new) {
            let lost = Formula::all([before.clone(), after.clone().negate()]);
            let gained = Formula::all([after, before.negate()]);
            self.compare_region(id, Side::Old, old, &lost);
            self.compare_region(id, Side::New, new, &gained);
        } else {
            self.compare_region(id, Side::Old, old, &before);
            self.compare_region(id, Side::New, new, &after);
        }
    }

    /// Searches a difference among requests to which a rule applies in one policy only.
    fn compare_region(&mut self, id: &str, side: Side, at: Option<usize>, region: &Formula) {
        let Some(at) = at.filter(|_| *region != Formula::Constant(false)) else {
            return;
        };
        let policy = match side {
            Side::Old => &self.old,
            Side::New => &self.new,
        };
        if !policy.view.is_live(at) {
            return;
        }
        // A rule without effect can be removed.
        match policy.reach(&mut self.solver, at, region) {
            Reach::Never(_) => {}
            Reach::Decides(..) => self.search(id, region, "the decisions that were tried agree"),
            Reach::Undecided(reason) => self.search(id, region, reason),
        }
    }

    /// Searches requests that the policies decide differently.
    fn search(&mut self, id: &str, region: &Formula, reason: &'static str) {
        let mut left = region.clone();
        let mut found = false;
        for _ in 0..MAX_ROUNDS {
            let example = match self.solver.solve(&left, &|_| true) {
                Solution::Example(example) => example,
                Solution::Never | Solution::Undecided(_) => break,
            };
            let host = host_of(&example);
            if let Some(kind) = self.difference(&example.facts) {
                found = true;
                let examples = self.difference.examples.entry(kind).or_default();
                if examples.len() < MAX_EXAMPLES {
                    examples.push(*example);
                }
            }
            let seen = self.solver.table.exact(&Field::Host, &host);
            left = Formula::all([left, seen.negate()]);
        }
        if !found {
            self.difference.undecided.push((id.to_owned(), reason));
        }
    }

    fn difference(&self, facts: &CaseFacts) -> Option<DifferenceKind> {
        let facts = facts.facts();
        let (_, before) = self.old.policy.decide(&facts);
        let (_, after) = self.new.policy.decide(&facts);
        let cause = |policy: &Policy, decision: &Decision| {
            let cause = super::verdicts::cause_of(decision);
            cause.and_then(|at| Some(policy.rules.get(at)?.id.to_string()))
        };
        match (before.verdict, after.verdict) {
            (Verdict::Reject(_), Verdict::Admit) => Some(DifferenceKind::NewAccess),
            (Verdict::Admit, Verdict::Reject(_)) => Some(DifferenceKind::NewRefusal),
            (old, new) => (old != new
                || cause(self.old.policy, &before) != cause(self.new.policy, &after))
            .then_some(DifferenceKind::Cause),
        }
    }

    fn region(&mut self, side: Side, at: usize) -> Formula {
        match side {
            Side::Old => self.old.region(&mut self.solver, at),
            Side::New => self.new.region(&mut self.solver, at),
        }
    }

    /// Returns `true` if two versions of a rule differ in nothing but the value of conditions.
    fn has_same_effect(&self, old: Option<usize>, new: Option<usize>) -> bool {
        let (Some(old), Some(new)) = (old, new) else {
            return false;
        };
        let (Some(before), Some(after)) = (self.old.view.rule(old), self.new.view.rule(new)) else {
            return false;
        };
        let aspects = rule_aspects(self.old.policy, before)
            .into_iter()
            .zip(rule_aspects(self.new.policy, after));
        let same_aspects = aspects
            .filter(|((name, _), _)| !matches!(*name, "condition" | "about"))
            .all(|((_, old), (_, new))| old == new);
        same_aspects
            && before.mode == EnforcementMode::Enforce
            && before.condition_key() == after.condition_key()
            && before.class == after.class
            && before.content_only == after.content_only
            && before.header_stages == after.header_stages
            && before.earliest_stage == after.earliest_stage
            && before.active_stages == after.active_stages
            && !self.has_moved(before.id.as_str())
    }

    /// Returns `true` if a rule has another place among the rules of both policies.
    fn has_moved(&self, id: &str) -> bool {
        let before = |policy: &Policy, other: &Policy| -> Vec<String> {
            let ids: BTreeSet<&str> = other.rules.iter().map(|rule| rule.id.as_str()).collect();
            let common = policy.rules.iter().map(|rule| rule.id.as_str());
            common
                .filter(|id| ids.contains(id))
                .take_while(|other| *other != id)
                .map(str::to_owned)
                .collect()
        };
        let mut old = before(self.old.policy, self.new.policy);
        let mut new = before(self.new.policy, self.old.policy);
        old.sort_unstable();
        new.sort_unstable();
        old != new
    }
}

fn host_of(example: &Example) -> String {
    let rest = example.url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or(rest);
    match authority.rsplit_once(':') {
        Some((host, _)) if !authority.ends_with(']') => host.to_owned(),
        Some(_) | None => authority.to_owned(),
    }
}

fn uses_list(condition: &crate::policy::condition::Condition) -> bool {
    use crate::policy::condition::{AtomTest, Condition};
    match condition {
        Condition::Always => false,
        Condition::All(parts) | Condition::Any(parts) => parts.iter().any(uses_list),
        Condition::Not(part) => uses_list(part),
        Condition::Atom(atom) => matches!(atom.test, AtomTest::InList(_)),
    }
}
