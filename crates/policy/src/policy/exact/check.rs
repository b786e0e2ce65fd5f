//! `crawlgate check --exact`: what is proved about the rules of a policy.

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::policy::cases::CaseFacts;
use crate::policy::compile::CompiledPolicy;
use crate::policy::lint::dead::DeadReason;
use crate::policy::rule::{FilterRule, RuleBody};

use super::formula::Formula;
use super::question::{Example, Solution, Solver};
use super::regions::AnalysedPolicy;
use super::unreached::Reach;
use super::verdicts::WantedVerdict;

/// The results of the exact analysis of a policy.
#[derive(Debug, Default)]
pub struct ExactCheck {
    /// The findings, in the order of the rules.
    pub problems: Vec<Problem>,
    /// The questions whose answer is a proof.
    pub proved: usize,
    /// The questions whose answer is a request.
    pub refuted: usize,
    /// The questions that are not decided. Each has an advice in the problems.
    pub undecided: usize,
}

impl ExactCheck {
    /// Analyses the rules of a policy.
    pub fn new(compiled: &CompiledPolicy) -> Self {
        let mut check = Self::default();
        let analysed = AnalysedPolicy::new(&compiled.policy);
        let place = compiled
            .rule_places
            .first()
            .map(|place| SourceLocation::for_file(&place.file));
        match Solver::new() {
            Ok(solver) => RuleChecks {
                analysed,
                solver,
                compiled,
                check: &mut check,
            }
            .run(),
            Err(reason) => {
                check.undecided += 1;
                check
                    .problems
                    .extend(place.map(|place| Problem::advice(&place, reason)));
            }
        }
        compiled.texts.add_excerpts(&mut check.problems);
        check
    }
}

struct RuleChecks<'c> {
    analysed: AnalysedPolicy<'c>,
    solver: Solver,
    compiled: &'c CompiledPolicy,
    check: &'c mut ExactCheck,
}

impl RuleChecks<'_> {
    fn run(mut self) {
        let mut dead_until = 0;
        for at in 0..self.compiled.policy.rules.len() {
            if at < dead_until || !self.is_checked(at) {
                continue;
            }
            if self.check_rule(at) {
                let end = self
                    .analysed
                    .view
                    .rule(at)
                    .map_or(at + 1, |rule| rule.end.0 as usize);
                dead_until = end;
            }
        }
        self.check_access();
    }

    fn is_checked(&self, at: usize) -> bool {
        let view = &self.analysed.view;
        let has_effect = view.rule(at).is_some_and(|rule| match &rule.body {
            RuleBody::Filter(_) => true,
            RuleBody::Group(group) => {
                group.stop || !group.assignments.is_empty() || !view.is_leaf(at)
            }
        });
        view.is_sound(at)
            && view.is_live(at)
            && has_effect
            && crate::policy::lint::dead::can_be_dead(view, at)
    }

    /// Checks a rule. Returns `true` if it can never decide.
    fn check_rule(&mut self, at: usize) -> bool {
        // Every load reports these, with one cause.
        if self.compiled.dead_rules.contains(&at) {
            self.check.proved += 1;
            let wider = self.wider_filters_of_dead(at);
            self.report_redundant(at, &wider);
            return true;
        }
        let everything = Formula::Constant(true);
        match self.analysed.reach(&mut self.solver, at, &everything) {
            Reach::Never(reasons) => {
                self.check.proved += 1;
                let mut message = self.describe_reasons(&reasons);
                let is_cause = |other| reasons.iter().any(|reason| reason.cause() == Some(other));
                let mut others = self.wider_filters_of_dead(at);
                others.retain(|other| !is_cause(*other));
                let (blockers, later): (Vec<usize>, Vec<usize>) =
                    others.into_iter().partition(|other| *other < at);
                if !blockers.is_empty() {
                    self.check.proved += blockers.len();
                    message = format!("{message}; so would {}", self.describe_rules(&blockers));
                }
                self.report(at, Problem::warning, format!("can never decide: {message}"));
                self.report_redundant(at, &later);
                true
            }
            Reach::Undecided(reason) => {
                self.check.undecided += 1;
                let message = format!("not decided whether it can ever decide: {reason}");
                self.report(at, Problem::advice, message);
                false
            }
            Reach::Decides(example, others) => {
                self.check.refuted += 1;
                self.report_near_miss(at, &example, &others);
                let wider = self.wider_filters(at, &example);
                self.report_redundant(at, &wider);
                false
            }
        }
    }

    fn report(
        &mut self,
        at: usize,
        severity: fn(&SourceLocation, String) -> Problem,
        message: String,
    ) {
        let Some(place) = self.compiled.rule_places.get(at) else {
            return;
        };
        let rule = self.analysed.view.rule(at).map(|rule| &rule.id);
        self.check
            .problems
            .push(severity(place, message).with_rule(rule));
    }

    fn report_near_miss(&mut self, at: usize, example: &Example, others: &[usize]) {
        if others.is_empty() {
            return;
        }
        let message = format!(
            "decides only where {} do not apply; for example {}{}",
            self.describe_rules(others),
            example.url,
            example.describe_details()
        );
        self.report(at, Problem::advice, message);
    }

    /// Reports the filters that refuse everything that a filter refuses.
    fn report_redundant(&mut self, at: usize, wider: &[usize]) {
        if wider.is_empty() {
            return;
        }
        self.check.proved += wider.len();
        let verb = if wider.len() == 1 {
            "refuses"
        } else {
            "each refuse"
        };
        let message = format!(
            "redundant: {} {verb} everything that it refuses",
            self.describe_rules(wider)
        );
        self.report(at, Problem::advice, message);
    }

    /// Returns the filters that refuse everything that a filter refuses, which refuses the example.
    fn wider_filters(&mut self, at: usize, example: &Example) -> Vec<usize> {
        let Some(filter) = filter_of(self.compiled, at) else {
            return Vec::new();
        };
        let (trail, _) = self.compiled.policy.decide(&example.facts.facts());
        let others = trail.matched_rules().iter().map(|rule| rule.0 as usize);
        let mut others: Vec<usize> = others
            .filter(|other| *other != at && self.refuses_alike(*other, at, filter))
            .collect();
        others.retain(|other| self.analysed.is_within(&mut self.solver, at, *other));
        others
    }

    /// Returns the filters that refuse everything that a filter refuses, although it never decides.
    fn wider_filters_of_dead(&mut self, at: usize) -> Vec<usize> {
        if filter_of(self.compiled, at).is_none() {
            return Vec::new();
        }
        self.solver.begin_question();
        let region = self.analysed.region(&mut self.solver, at);
        let confirms = |facts: &CaseFacts| self.analysed.holds(at, facts);
        match self.solver.solve(&region, &confirms) {
            Solution::Example(example) => self.wider_filters(at, &example),
            Solution::Never | Solution::Undecided(_) => Vec::new(),
        }
    }

    /// Returns `true` if another filter refuses in the same way, whenever it matches.
    fn refuses_alike(&self, other: usize, at: usize, filter: &FilterRule) -> bool {
        let view = &self.analysed.view;
        let Some(second) = filter_of(self.compiled, other) else {
            return false;
        };
        let same_effect = second.log == filter.log
            && second.reject_intent == filter.reject_intent
            && second.reject_status == filter.reject_status
            && second.soft_error == filter.soft_error;
        let same_stage =
            view.rule(other).map(|rule| rule.stage) == view.rule(at).map(|rule| rule.stage);
        same_effect
            && same_stage
            && view.is_comparable(other, at)
            && view.is_reached_with(other, at)
            && !view.is_in_first_match(at)
    }

    /// Reports a policy that refuses everything.
    fn check_access(&mut self) {
        let everything = Formula::Constant(true);
        let answer =
            self.analysed
                .find_verdict(&mut self.solver, WantedVerdict::Allow, None, &everything);
        let place = self.compiled.rule_places.first();
        let Some(place) = place.map(|place| SourceLocation::for_file(&place.file)) else {
            return;
        };
        match answer {
            Solution::Example(_) => self.check.refuted += 1,
            Solution::Never => {
                self.check.proved += 1;
                let problem = Problem::warning(&place, "the policy refuses every URL");
                self.check.problems.push(problem);
            }
            Solution::Undecided(reason) => {
                self.check.undecided += 1;
                let message = format!("not decided whether any URL is allowed: {reason}");
                self.check.problems.push(Problem::advice(&place, message));
            }
        }
    }

    fn describe_rules(&self, rules: &[usize]) -> String {
        let names: Vec<String> = rules
            .iter()
            .map(|at| {
                let id = self
                    .analysed
                    .view
                    .rule(*at)
                    .map_or("", |rule| rule.id.as_str());
                match self.compiled.rule_places.get(*at) {
                    Some(place) => format!("rule `{id}` ({place})"),
                    None => format!("rule `{id}`"),
                }
            })
            .collect();
        match names.split_last() {
            None => String::new(),
            Some((only, [])) => only.clone(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
        }
    }

    fn describe_reasons(&self, reasons: &[DeadReason]) -> String {
        let rules = |wanted: fn(&DeadReason) -> bool| {
            let causes = reasons.iter().filter(|reason| wanted(reason));
            causes
                .filter_map(|reason| reason.cause())
                .collect::<Vec<usize>>()
        };
        let kinds: [(Vec<usize>, [&str; 2]); 4] = [
            (
                rules(|reason| matches!(reason, DeadReason::AfterStop(_))),
                ["stops before it is reached", "stop before it is reached"],
            ),
            (
                rules(|reason| matches!(reason, DeadReason::AfterSibling(_))),
                [
                    "of the same `match: first` list always matches first",
                    "of the same `match: first` list always match first",
                ],
            ),
            (
                rules(|reason| matches!(reason, DeadReason::Filtered(_))),
                [
                    "filters everything that it matches",
                    "together filter everything that it matches",
                ],
            ),
            (
                rules(|reason| matches!(reason, DeadReason::Overwritten(_))),
                [
                    "matches as well and overwrites all its options",
                    "together overwrite all its options",
                ],
            ),
        ];
        let mut texts: Vec<String> = kinds
            .iter()
            .filter(|(rules, _)| !rules.is_empty())
            .map(|(rules, [one, several])| {
                let verb = if rules.len() == 1 { one } else { several };
                format!("{} {verb}", self.describe_rules(rules))
            })
            .collect();
        for reason in reasons {
            match reason {
                DeadReason::Contradiction => {
                    texts.push("no request meets its condition".to_owned());
                }
                DeadReason::ContradictsParents => texts.push(
                    "no request meets its condition and those of the rules around it".to_owned(),
                ),
                DeadReason::AfterStop(_)
                | DeadReason::AfterSibling(_)
                | DeadReason::Filtered(_)
                | DeadReason::Overwritten(_) => {}
            }
        }
        texts.join("; ")
    }
}

fn filter_of(compiled: &CompiledPolicy, at: usize) -> Option<&FilterRule> {
    match &compiled.policy.rules.get(at)?.body {
        RuleBody::Filter(filter) => Some(filter),
        RuleBody::Group(_) => None,
    }
}
