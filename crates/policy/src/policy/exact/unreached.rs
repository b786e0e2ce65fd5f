//! Rules that can never decide, because of one or several other rules.
//!
//! The proof is refined by examples: a request that the rule applies to is evaluated; the rules
//! that applied to it instead, and for certain keep the rule from any effect, are excluded from
//! the next search. If nothing is left, they are the cause together. If the rule decides, the
//! request is the example for it.

use crate::policy::condition::Condition;
use crate::policy::decide::{Cause, Decision};
use crate::policy::field::Field;
use crate::policy::lint::dead::{self, ADMITTED_ONLY_OPTIONS, DeadReason};
use crate::policy::options::OptionSetter;
use crate::policy::rule::{Rule, RuleBody, RuleIndex};
use crate::policy::trail::{RuleState, Trail};

use super::formula::Formula;
use super::question::{Example, Solution, Solver};
use super::regions::AnalysedPolicy;
use super::verdicts::cause_of;

/// The maximum number of examples for one rule.
const MAX_ROUNDS: usize = 24;

/// The maximum number of examples on which it is not known which rule keeps the rule from an effect. Other
/// examples may be nearly the same.
const MAX_UNEXPLAINED: usize = 4;
/// The reason of an answer if a rule that is not certainly the cause was excluded.
const DEPENDS_ON_ORDER: &str = "it depends on the order of stages, stops or later rules";

/// The requests about which a rule decides.
#[derive(Clone, Debug)]
pub(super) enum Reach {
    /// It decides about this request. The other rules are those that decide about earlier
    /// examples.
    Decides(Box<Example>, Vec<usize>),
    /// There is no such request, for these reasons: one for each rule that is a cause, or a
    /// contradiction.
    Never(Vec<DeadReason>),
    Undecided(&'static str),
}

impl AnalysedPolicy<'_> {
    /// Searches a request about which a rule decides.
    pub(super) fn reach(&self, solver: &mut Solver, at: usize, within: &Formula) -> Reach {
        solver.begin_question();
        let region = Formula::all([self.region(solver, at), within.clone()]);
        let mut causes: Vec<DeadReason> = Vec::new();
        let mut left = region;
        // Set if an excluded rule is not a certain cause.
        let mut doubt = None;
        let mut unexplained = 0;
        for _ in 0..MAX_ROUNDS {
            let confirms = |facts: &crate::policy::cases::CaseFacts| self.holds(at, facts);
            let example = match solver.solve(&left, &confirms) {
                Solution::Example(example) => example,
                Solution::Never => {
                    return match doubt {
                        Some(reason) => Reach::Undecided(reason),
                        None if causes.is_empty() => {
                            Reach::Never(vec![self.contradiction(solver, at)])
                        }
                        None => Reach::Never(causes),
                    };
                }
                Solution::Undecided(reason) => return Reach::Undecided(doubt.unwrap_or(reason)),
            };
            let (trail, decision) = self.policy.decide(&example.facts.facts());
            if self.takes_effect(at, &trail, &decision) {
                let others = causes.iter().filter_map(|cause| cause.cause()).collect();
                return Reach::Decides(example, others);
            }
            let reason = self.certain_cause(at, &trail);
            let cause = reason.and_then(|reason| Some((reason, reason.cause()?)));
            let covered = if let Some((reason, cause)) = cause {
                causes.push(reason);
                self.assertions(solver, self.view.unshared_path(cause, at))
            } else {
                doubt = Some(DEPENDS_ON_ORDER);
                if let Some(other) = self.deciding_instead(at, &trail, &decision) {
                    self.region(solver, other)
                } else if unexplained < MAX_UNEXPLAINED {
                    unexplained += 1;
                    solver.table.exact(&Field::Url, &example.url)
                } else {
                    return Reach::Undecided(DEPENDS_ON_ORDER);
                }
            };
            left = Formula::all([left, covered.negate()]);
        }
        Reach::Undecided(doubt.unwrap_or("too many other rules apply"))
    }

    /// Returns the rule that decides about a request, or sets an option, instead of a rule that
    /// applies to it.
    fn deciding_instead(&self, at: usize, trail: &Trail, decision: &Decision) -> Option<usize> {
        let group = match &self.view.rule(at)?.body {
            RuleBody::Filter(_) => None,
            RuleBody::Group(group) => Some(group),
        };
        let setter = group
            .filter(|_| trail.first_filter.is_none())
            .and_then(|group| group.assignments.first())
            .map(|assignment| trail.set_by(self.policy, assignment.index));
        let instead = match setter {
            Some(OptionSetter::Rule(rule)) => Some(rule.0 as usize),
            Some(
                OptionSetter::BuiltIn
                | OptionSetter::Document
                | OptionSetter::Space(_)
                | OptionSetter::Host(_),
            ) => None,
            None => cause_of(decision),
        };
        instead.filter(|other| *other != at)
    }

    /// Returns a rule that matched and keeps a rule from any effect wherever it applies.
    fn certain_cause(&self, at: usize, trail: &Trail) -> Option<DeadReason> {
        self.certain_causes(at, trail).next()
    }

    /// Returns the rules that matched and keep a rule from any effect wherever they apply.
    pub(super) fn certain_causes(
        &self,
        at: usize,
        trail: &Trail,
    ) -> impl Iterator<Item = DeadReason> {
        let first = self.view.first_stage(at);
        let matched = trail.matched_rules().iter().map(|rule| rule.0 as usize);
        let matched = matched.filter(move |other| *other != at);
        let known = matched.filter(move |other| {
            // When the rule has an effect, it is known whether the other one applies.
            self.view.unshared_path(*other, at).iter().all(|at| {
                self.view
                    .rule(*at)
                    .and_then(Rule::condition)
                    .and_then(Condition::stage)
                    .is_none_or(|stage| first.is_some_and(|first| stage <= first))
            })
        });
        let known = known.filter(move |_| first.is_some());
        known.filter_map(move |other| dead::reason_where_applied(&self.view, at, other))
    }

    fn contradiction(&self, solver: &mut Solver, at: usize) -> DeadReason {
        let own = self.assertions(solver, &[at]);
        match solver.solve(&own, &|_| false) {
            Solution::Never => DeadReason::Contradiction,
            Solution::Example(_) | Solution::Undecided(_) => DeadReason::ContradictsParents,
        }
    }

    /// Returns `true` if a rule has an effect on a request.
    fn takes_effect(&self, at: usize, trail: &Trail, decision: &Decision) -> bool {
        let Some((index, rule)) = u32::try_from(at)
            .ok()
            .map(RuleIndex)
            .zip(self.view.rule(at))
        else {
            return true;
        };
        let RuleBody::Group(group) = &rule.body else {
            return decision.cause == Cause::Rule(index);
        };
        if trail.state(index) != RuleState::Matched {
            return false;
        }
        if group.stop || !self.view.is_leaf(at) || self.view.is_in_first_match(at) {
            return true;
        }
        let is_refused = trail.first_filter.is_some();
        group.assignments.iter().any(|assignment| {
            let matters = !is_refused || !ADMITTED_ONLY_OPTIONS.contains(&assignment.index);
            matters && trail.set_by(self.policy, assignment.index) == OptionSetter::Rule(index)
        })
    }

    /// Searches a request to which a rule applies and another one does not, as far as their conditions
    /// tell.
    pub(super) fn find_outside(&self, solver: &mut Solver, at: usize, other: usize) -> Solution {
        solver.begin_question();
        let inside = self.region(solver, at);
        let outside = self.region(solver, other).negate();
        let left = Formula::all([inside, outside]);
        solver.solve(&left, &|_| false)
    }
}
