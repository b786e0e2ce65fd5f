//! Requests that get a verdict.

use crate::model::disposition::Disposition;
use crate::model::reason::Reason;
use crate::model::words::words;
use crate::policy::cases::CaseFacts;
use crate::policy::decide::{Cause, Decision, Verdict};
use crate::policy::field::Field;
use crate::policy::lint::late_allow::allows;
use crate::policy::options::{OptionIndex, OptionSetter, OptionValue, schema};
use crate::policy::rule::{EnforcementMode, PolicyStage, Rule, RuleBody};

use super::formula::Formula;
use super::question::{Solution, Solver};
use super::regions::AnalysedPolicy;

/// The maximum number of examples for one source of a verdict.
const MAX_ROUNDS: usize = 60;

/// Options that refuse requests, besides `disposition` and `traps`.
const REFUSING_OPTIONS: [OptionIndex; 6] = [
    schema::HTML_ONLY,
    schema::MAX_BODY,
    schema::MAX_DEPTH,
    schema::NOINDEX,
    schema::NONCANONICAL,
    schema::ROBOTS_USAGE,
];

words! {
    /// A verdict that is searched.
    pub enum WantedVerdict {
        /// The request is admitted.
        Allow = "allow",
        /// The request is refused.
        Reject = "reject",
    }
}

impl WantedVerdict {
    /// Returns the other verdict.
    pub fn opposite(self) -> Self {
        match self {
            Self::Allow => Self::Reject,
            Self::Reject => Self::Allow,
        }
    }

    /// Returns `true` if a decision has the verdict.
    pub fn matches(self, decision: &Decision) -> bool {
        match decision.verdict {
            Verdict::Admit => self == Self::Allow,
            Verdict::Reject(_) => self == Self::Reject,
            Verdict::Undecided => false,
        }
    }
}

/// The source of a verdict: a rule, or the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VerdictSource {
    Rule(usize),
    Default,
}

impl AnalysedPolicy<'_> {
    /// Searches a request with a verdict, caused by a rule if one is given, as a part of a question.
    pub(super) fn find_verdict(
        &self,
        solver: &mut Solver,
        wanted: WantedVerdict,
        rule: Option<usize>,
        within: &Formula,
    ) -> Solution {
        let asked = rule.and_then(|rule| self.policy.rules.get(rule));
        if asked.is_some_and(|rule| !may_give(rule, wanted)) {
            return Solution::Never;
        }
        let sources = match rule {
            Some(rule) => vec![VerdictSource::Rule(rule)],
            None => self.sources(wanted),
        };
        let mut undecided = self.hidden_reason(wanted, rule);
        for source in sources {
            match self.find_from(solver, wanted, rule, source, within) {
                Solution::Example(example) => return Solution::Example(example),
                Solution::Undecided(reason) => undecided = Some(reason),
                Solution::Never => {}
            }
        }
        undecided.map_or(Solution::Never, Solution::Undecided)
    }

    /// Returns the reason why requests may be refused that no rule and no default refuses.
    fn hidden_reason(&self, wanted: WantedVerdict, rule: Option<usize>) -> Option<&'static str> {
        let is_hidden =
            self.policy.traps.is_some() || REFUSING_OPTIONS.iter().any(|option| self.sets(*option));
        (wanted == WantedVerdict::Reject && rule.is_none() && is_hidden)
            .then_some("options such as `traps` and `max_depth` refuse requests, too")
    }

    /// Returns `true` if decisions depend on the depth of a URL.
    pub(super) fn depends_on_depth(&self) -> bool {
        let mut tests_depth = false;
        let conditions = self.policy.rules.iter().filter_map(Rule::condition);
        for condition in conditions {
            condition.for_each_field(&mut |field| tests_depth |= *field == Field::Depth);
        }
        tests_depth || self.sets(schema::MAX_DEPTH)
    }

    /// Returns `true` if the document, a space or a rule sets an option.
    fn sets(&self, option: OptionIndex) -> bool {
        let entry = self.policy.options.get(option);
        let mut spaces = self.policy.spaces().all().iter();
        let mut rules = self.policy.rules.iter();
        entry.is_some_and(|entry| entry.set_by != OptionSetter::BuiltIn)
            || spaces.any(|space| space.value(option).is_some())
            || rules.any(|rule| match &rule.body {
                RuleBody::Group(group) => group
                    .assignments
                    .iter()
                    .any(|assignment| assignment.index == option),
                RuleBody::Filter(_) => false,
            })
    }

    fn sources(&self, wanted: WantedVerdict) -> Vec<VerdictSource> {
        let rules = self.policy.rules.iter().enumerate();
        let rules = rules.filter(|(at, rule)| {
            let gives = match &rule.body {
                RuleBody::Filter(_) => wanted == WantedVerdict::Reject,
                RuleBody::Group(_) => {
                    allows(rule).is_some_and(|allows| allows == (wanted == WantedVerdict::Allow))
                }
            };
            gives && self.view.is_live(*at)
        });
        let mut sources: Vec<VerdictSource> =
            rules.map(|(at, _)| VerdictSource::Rule(at)).collect();
        if self.default_may_be(wanted) {
            sources.insert(0, VerdictSource::Default);
        }
        sources
    }

    /// Returns `true` if the default disposition of the document or of a space has a verdict.
    fn default_may_be(&self, wanted: WantedVerdict) -> bool {
        let document = self.policy.options.entries.first().map(|entry| &entry.base);
        let spaces = self.policy.spaces().all().iter();
        let mut values = spaces
            .filter_map(|space| space.value(schema::DISPOSITION))
            .chain(document);
        values.any(|value| {
            let allows = *value == OptionValue::Disposition(Disposition::Allow);
            allows == (wanted == WantedVerdict::Allow)
        })
    }

    fn find_from(
        &self,
        solver: &mut Solver,
        wanted: WantedVerdict,
        rule: Option<usize>,
        source: VerdictSource,
        within: &Formula,
    ) -> Solution {
        let region = match source {
            VerdictSource::Rule(at) => self.region(solver, at),
            VerdictSource::Default => Formula::Constant(true),
        };
        let mut left = Formula::all([region, within.clone()]);
        let mut doubt = None;
        for _ in 0..MAX_ROUNDS {
            let confirms = |facts: &CaseFacts| match source {
                VerdictSource::Rule(at) => self.holds(at, facts),
                VerdictSource::Default => true,
            };
            let example = match solver.solve(&left, &confirms) {
                Solution::Example(example) => example,
                Solution::Never => return doubt.map_or(Solution::Never, Solution::Undecided),
                Solution::Undecided(reason) => return Solution::Undecided(doubt.unwrap_or(reason)),
            };
            let (_, decision) = self.policy.decide(&example.facts.facts());
            let is_cause = rule.is_none_or(|rule| cause_of(&decision) == Some(rule));
            if wanted.matches(&decision) && is_cause {
                return Solution::Example(example);
            }
            let other = self
                .other_verdicts(solver, &decision)
                .filter(|_| !wanted.matches(&decision));
            let excluded = other.unwrap_or_else(|| {
                doubt = Some("it depends on the order of stages, stops or later rules");
                match cause_of(&decision).filter(|_| is_by_rule(&decision)) {
                    Some(cause) if rule.is_none() || Some(cause) != rule => {
                        self.region(solver, cause)
                    }
                    Some(_) | None => solver.table.exact(&Field::Url, &example.url),
                }
            });
            left = Formula::all([left, excluded.negate()]);
        }
        Solution::Undecided("too many rules apply")
    }

    /// Returns requests with the same verdict as the one that was decided, by the same rule.
    fn other_verdicts(&self, solver: &mut Solver, decision: &Decision) -> Option<Formula> {
        match (decision.verdict, cause_of(decision)) {
            (Verdict::Reject(Reason::Rule), Some(cause)) => self.certain_refusals(solver, cause),
            // The default refuses all requests that no rule allows.
            (Verdict::Reject(Reason::Default), None)
                if !self.default_may_be(WantedVerdict::Allow) =>
            {
                let allowed = self.allowing_regions(solver, 0);
                Some(allowed.negate())
            }
            // An option, such as `traps`, refuses only some of the requests for which it is set.
            (Verdict::Reject(_) | Verdict::Admit | Verdict::Undecided, _) => None,
        }
    }

    /// Returns requests that a rule, or another one, certainly refuses; `None` if that is not
    /// certain.
    fn certain_refusals(&self, solver: &mut Solver, cause: usize) -> Option<Formula> {
        let path = self.view.path(cause);
        let is_certain = self.view.is_sound(cause)
            && self.view.has_fixed_stage(cause)
            && path.iter().all(|at| {
                !self.view.is_in_first_match(*at)
                    && self
                        .view
                        .rule(*at)
                        .is_some_and(|rule| rule.stage == PolicyStage::Request)
            })
            && self
                .view
                .stops()
                .iter()
                .take_while(|stop| **stop < cause)
                .all(|stop| path.contains(stop));
        if !is_certain {
            return None;
        }
        let region = self.region(solver, cause);
        match &self.view.rule(cause)?.body {
            RuleBody::Filter(_) => Some(region),
            // Another option of the group, such as `html_only`, may have refused the request.
            RuleBody::Group(_) if allows(self.view.rule(cause)?) != Some(false) => None,
            RuleBody::Group(_) => {
                let allowed_again = self.allowing_regions(solver, cause + 1);
                Some(Formula::all([region, allowed_again.negate()]))
            }
        }
    }

    /// Returns the requests to which an allowing group may apply.
    fn allowing_regions(&self, solver: &mut Solver, from: usize) -> Formula {
        let groups = self.policy.rules.iter().enumerate().skip(from);
        let regions: Vec<Formula> = groups
            .filter(|(_, rule)| rule.mode == EnforcementMode::Enforce && allows(rule) == Some(true))
            .map(|(at, _)| self.region(solver, at))
            .collect();
        Formula::any(regions)
    }
}

/// Returns `true` if a rule can be the cause of a verdict: a filter refuses, and a group gives its disposition or
/// refuses by another option.
fn may_give(rule: &Rule, wanted: WantedVerdict) -> bool {
    let RuleBody::Group(group) = &rule.body else {
        return wanted == WantedVerdict::Reject;
    };
    let sets_refusing_option = group.assignments.iter().any(|assignment| {
        assignment.index == schema::TRAPS || REFUSING_OPTIONS.contains(&assignment.index)
    });
    let by_disposition =
        allows(rule).is_some_and(|allows| allows == (wanted == WantedVerdict::Allow));
    by_disposition || wanted == WantedVerdict::Reject && sets_refusing_option
}

/// Returns `true` if a decision has the disposition or the filter of its cause.
fn is_by_rule(decision: &Decision) -> bool {
    matches!(
        decision.verdict,
        Verdict::Admit | Verdict::Undecided | Verdict::Reject(Reason::Rule)
    )
}

/// The rule that caused a decision.
pub(super) fn cause_of(decision: &Decision) -> Option<usize> {
    match decision.cause {
        Cause::Rule(rule) => Some(rule.0 as usize),
        Cause::Default => None,
    }
}
