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
use super::work::Work;

/// The work for a rule, as that of this number of questions: one whether it decides, and one for each
/// other rule that may be a reason alone.
const QUESTIONS_PER_RULE: usize = 4;

/// The results of the exact analysis of a policy.
#[derive(Debug, Default)]
pub struct ExactCheck {
    /// The findings, in the order of the rules.
    pub problems: Vec<Problem>,
    /// The rules for which there is a request that they decide.
    pub deciding_rules: usize,
    /// The rules that can provably never decide.
    pub dead_rules: usize,
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
        self.solver.begin_questions(QUESTIONS_PER_RULE);
        // Every load reports these, with one cause.
        if self.compiled.dead_rules.contains(&at) {
            self.check.proved += 1;
            self.check.dead_rules += 1;
            self.report_reasons_of_dead(at);
            return true;
        }
        let everything = Formula::Constant(true);
        match self.analysed.reach(&mut self.solver, at, &everything) {
            Reach::Never(reasons) => {
                self.check.proved += 1;
                self.check.dead_rules += 1;
                self.report_dead(at, reasons);
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
                self.check.deciding_rules += 1;
                self.report_near_miss(at, &example, &others);
                let wider = self.wider_filters(at, &example);
                self.report_redundant(at, &wider);
                false
            }
        }
    }

    /// Reports a rule that can never decide, with the rules that are the reason together, and those
    /// each of which is enough.
    fn report_dead(&mut self, at: usize, mut reasons: Vec<DeadReason>) {
        let (mut alone, mut wider) = self.other_reasons(at);
        if let (true, Some(first)) = (reasons.len() > 1, alone.first()) {
            reasons = vec![*first];
        }
        let is_enough = |rule: usize| {
            let mut enough = alone.iter().filter_map(|reason| reason.cause());
            enough.any(|cause| cause == rule)
        };
        wider.retain(|rule| !is_enough(*rule));
        alone.retain(|reason| !reasons.contains(reason));
        self.check.proved += alone.len();
        let mut message = format!("can never decide: {}", self.describe_reasons(&reasons));
        let is_alike = |reason: &DeadReason| reasons.iter().all(|other| reason.is_like(*other));
        if !alone.is_empty() && alone.iter().all(is_alike) {
            let rules: Vec<usize> = alone.iter().filter_map(|reason| reason.cause()).collect();
            message = format!("{message}; so would {}", self.describe_rules(&rules));
        } else if !alone.is_empty() {
            let others = self.describe_each(&alone);
            message = format!("{message}; it would be enough that {others}");
        }
        self.report(at, Problem::warning, message);
        self.report_redundant(at, &wider);
    }

    /// Reports the reasons why a rule can never decide, of which every load reports one.
    fn report_reasons_of_dead(&mut self, at: usize) {
        let (alone, wider) = self.other_reasons(at);
        self.report_redundant(at, &wider);
        if filter_of(self.compiled, at).is_none() && alone.len() > 1 {
            self.check.proved += alone.len();
            let message = format!(
                "has several reasons why it can never decide; each is enough: {}",
                self.describe_each(&alone)
            );
            self.report(at, Problem::advice, message);
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
        let verb = if others.len() == 1 {
            "does not apply"
        } else {
            "do not apply"
        };
        let message = format!(
            "decides only where {} {verb}; for example {}{}",
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
        self.retain_wider(at, &mut others, |other| *other);
        others
    }

    /// Keeps the rules that apply wherever a rule does. That the work was not enough for all of them
    /// is reported.
    fn retain_wider<T>(&mut self, at: usize, rules: &mut Vec<T>, index: fn(&T) -> usize) {
        let mut limit = None;
        rules.retain(|rule| {
            let outside = self
                .analysed
                .find_outside(&mut self.solver, at, index(rule));
            match outside {
                Solution::Never => true,
                Solution::Undecided(reason) if Work::is_limit(reason) => {
                    limit = Some(reason);
                    false
                }
                Solution::Example(_) | Solution::Undecided(_) => false,
            }
        });
        if let Some(reason) = limit {
            self.check.undecided += 1;
            let message = format!("not decided which other rules apply wherever it does: {reason}");
            self.report(at, Problem::advice, message);
        }
    }

    /// Returns the reasons each of which alone keeps a rule from ever deciding, and the filters that
    /// refuse everything that it refuses, if it is a filter.
    fn other_reasons(&mut self, at: usize) -> (Vec<DeadReason>, Vec<usize>) {
        let Some(example) = self.example_of(at) else {
            return (Vec::new(), Vec::new());
        };
        let (trail, _) = self.compiled.policy.decide(&example.facts.facts());
        let mut alone: Vec<DeadReason> = self.analysed.certain_causes(at, &trail).collect();
        alone.retain(|reason| reason.cause().is_some());
        self.retain_wider(at, &mut alone, |reason| reason.cause().unwrap_or_default());
        (alone, self.wider_filters(at, &example))
    }

    /// Returns a request to which a rule applies, as far as its condition and those around it tell.
    fn example_of(&mut self, at: usize) -> Option<Box<Example>> {
        self.solver.begin_question();
        let region = self.analysed.region(&mut self.solver, at);
        let confirms = |facts: &CaseFacts| self.analysed.holds(at, facts);
        match self.solver.solve(&region, &confirms) {
            Solution::Example(example) => Some(example),
            Solution::Never | Solution::Undecided(_) => None,
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
        self.solver.begin_questions(1);
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

    /// Describes reasons one by one, each of which is enough.
    fn describe_each(&self, reasons: &[DeadReason]) -> String {
        let reasons = reasons.iter();
        let texts: Vec<String> = reasons
            .map(|reason| self.describe_reasons(&[*reason]))
            .collect();
        texts.join(", or ")
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
