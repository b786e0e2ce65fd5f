//! Lint: rules that cannot do what their author wants, found by plain reasoning on conditions (policy.md section 9).
//!
//! What is claimed is proved, for URLs whose stages are run one after the other: a rule that is called dead never
//! decides about one, and without it no decision would differ. What cannot be proved is not claimed. Of tunnels,
//! which hide URLs, nothing is said: a dead rule may leave one undecided.
//!
//! [`logic`] knows what follows from conditions, [`view`] which rule is met before which; [`dead`] and [`late_allow`] put
//! the two together.

mod dead;
mod late_allow;
mod lint_view;
mod logic;
mod overlap;
mod text_logic;
mod tunnels;
mod witness;

use std::cell::Cell;

use super::Policy;
use super::source::tree::{SourceRule, SourceRuleBody};
use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;

use dead::DeadReason;
use lint_view::LintView;

/// What is doubtful about the rules of a policy; `sources` are its rules as they were written, in the same order.
///
/// Of what else is wrong with the policy `errors` tells: rules with errors stand in for others that nobody knows, so
/// that nothing is claimed of them or because of them.
pub(crate) fn lint(policy: &Policy, sources: &[&SourceRule], errors: &Problems) -> Vec<Problem> {
    let view = LintView::new(policy, errors);
    let budget = WorkBudget::default();
    let mut problems = Vec::new();
    let mut dead_until = 0;
    for at in 0..policy.rules.len() {
        let (Some(rule), Some(source)) = (policy.rules.get(at), sources.get(at)) else {
            continue;
        };
        // What stands in a dead group is dead with it; of the global space the first rule that fits decides a code.
        if at < dead_until || !view.is_sound(at) || !view.is_live(at) {
            continue;
        }
        if let Some(death) = dead::find_reason(&view, at, &budget) {
            dead_until = rule.end.0 as usize;
            problems.push(
                dead_rule_problem(&view, at, source, &death, sources).with_rule(Some(&rule.id)),
            );
        } else if let Some(refusing) = late_allow::find_earlier_refusal(&view, at, &budget) {
            problems.push(
                late_allow_problem(&view, source, refusing, sources).with_rule(Some(&rule.id)),
            );
        }
    }
    let overlaps = overlap::find_overlaps(&view, &budget);
    problems.extend(
        overlaps
            .iter()
            .filter_map(|overlap| overlap_problem(&view, overlap, sources)),
    );
    problems
}

/// How much work is done, so that a policy of many thousand rules still loads in no time. Beyond that nothing is found,
/// and nothing is claimed.
#[derive(Debug)]
struct WorkBudget(Cell<usize>);

impl Default for WorkBudget {
    fn default() -> Self {
        Self(Cell::new(4_000_000))
    }
}

impl WorkBudget {
    /// Whether two rules may be compared.
    fn try_compare(&self) -> bool {
        self.try_spend(20)
    }

    /// Whether so many rules may be looked at.
    fn try_visit(&self, rules: usize) -> bool {
        self.try_spend(rules)
    }

    fn try_spend(&self, work: usize) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(work));
        left > 0
    }
}

fn rule_place(source: &SourceRule) -> &SourceLocation {
    source.id.as_ref().map_or(&source.place, |id| &id.place)
}

/// A rule by its name and its place.
fn describe_rule(view: &LintView<'_>, at: usize, sources: &[&SourceRule]) -> String {
    let id = view.rule(at).map_or("", |rule| rule.id.as_str());
    match sources.get(at) {
        Some(source) => format!("rule `{id}` ({})", rule_place(source)),
        None => format!("rule `{id}`"),
    }
}

fn dead_rule_problem(
    view: &LintView<'_>,
    at: usize,
    source: &SourceRule,
    death: &DeadReason,
    sources: &[&SourceRule],
) -> Problem {
    let name = |other: usize| describe_rule(view, other, sources);
    let (message, help) = match *death {
        DeadReason::Contradiction => (
            "can never decide: its condition cannot hold".to_owned(),
            None,
        ),
        DeadReason::ContradictsParents => (
            "can never decide: its condition contradicts those of the rules around it".to_owned(),
            None,
        ),
        DeadReason::AfterStop(other) => {
            let message = format!(
                "can never decide: {} stops before it is reached",
                name(other)
            );
            (
                message,
                Some("put it before that rule, or take `stop` away"),
            )
        }
        DeadReason::AfterSibling(other) => {
            let message = format!(
                "can never decide: {} of the same `match: first` list is taken instead",
                name(other)
            );
            (message, Some("put the narrower rule first"))
        }
        DeadReason::Filtered(other) => {
            let message = format!(
                "can never decide: {} filters all that it applies to",
                name(other)
            );
            (message, Some(after_filter_help(source)))
        }
        DeadReason::Overwritten(other) => {
            let message = format!(
                "can never decide: {} applies as well and sets all of it again",
                name(other)
            );
            (
                message,
                Some("the last assignment wins: put the wider rule first"),
            )
        }
    };
    let example = death.cause().and_then(|_| witness::find_url(view, at));
    let message = example.iter().fold(message, |message, url| {
        format!("{message}; for example {url}")
    });
    let problem = Problem::warning(rule_place(source), message);
    help.into_iter()
        .fold(problem, |problem, help| problem.with_help(help))
}

fn after_filter_help(source: &SourceRule) -> &'static str {
    match source.body {
        SourceRuleBody::Filter(_) => "leave it out, or make the other rule narrower",
        SourceRuleBody::Group(_) => {
            "what is filtered stays filtered: an exception belongs into that rule's condition"
        }
    }
}

fn overlap_problem(
    view: &LintView<'_>,
    overlap: &overlap::SpaceOverlap,
    sources: &[&SourceRule],
) -> Option<Problem> {
    let [first, second] = &overlap.spaces;
    let message = format!(
        "the spaces `{first}` and `{second}` overlap: {} allows {} too, and both crawlers fetch it",
        describe_rule(view, overlap.first, sources),
        overlap.url
    );
    let problem = Problem::warning(rule_place(sources.get(overlap.second)?), message);
    let problem = problem.with_help(
        "leave it to one of them, or write the options that differ under `spaces.NAME.options`",
    );
    Some(problem.with_rule(view.rule(overlap.second).map(|rule| &rule.id)))
}

fn late_allow_problem(
    view: &LintView<'_>,
    source: &SourceRule,
    refusing: late_allow::EarlierRefusal,
    sources: &[&SourceRule],
) -> Problem {
    let by = match refusing.by {
        Some(rule) => describe_rule(view, rule, sources),
        None => "the default".to_owned(),
    };
    let then = match &source.body {
        SourceRuleBody::Group(group) => group.then.as_ref().map(|then| &then.place),
        SourceRuleBody::Filter(_) => None,
    };
    let stage = refusing.stage.as_str();
    let message = format!(
        "allows in vain: {by} has refused all of it at the {stage} stage, and a refusal is final"
    );
    let instead =
        format!("allow it at the {stage} stage, and `forbid` or `require` by what is known later");
    Problem::warning(then.unwrap_or_else(|| rule_place(source)), message).with_help(instead)
}
