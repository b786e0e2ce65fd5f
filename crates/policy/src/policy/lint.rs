//! Lint: rules that cannot have the effect that their author intends, found by reasoning on
//! conditions.
//!
//! Every finding is proved, for URLs whose stages are run in order: a rule reported as dead never
//! decides about a URL, and without it no decision would differ. Tunnels are not covered: since
//! they hide URLs, a dead rule may make one undecided.
//!
//! [`logic`] derives implications between conditions, [`lint_view`] the order in which rules are
//! met; [`dead`] and [`late_allow`] combine them.

pub(crate) mod dead;
mod fixed_pace;
pub(crate) mod late_allow;
pub(crate) mod lint_view;
pub(crate) mod logic;
mod overlap;
mod text_logic;
mod tunnels;
pub(crate) mod witness;

use std::cell::Cell;
use std::collections::BTreeSet;

use super::Policy;
use super::source::tree::{SourceRule, SourceRuleBody};
use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;

use dead::DeadReason;
use lint_view::LintView;

/// The findings about the rules of a policy.
#[derive(Debug, Default)]
pub(crate) struct LintReport {
    pub(crate) problems: Vec<Problem>,
    /// The rules that can never decide, without those inside them.
    pub(crate) dead_rules: BTreeSet<usize>,
    /// The warning among the problems that not all rules were compared with the others.
    pub(crate) incomplete: Option<Problem>,
}

/// Returns warnings about the rules of a policy. `sources` are the rules as written, in the same
/// order.
///
/// `errors` are the errors of the policy. Nothing is reported about rules with errors, or because
/// of them, since their compiled form is a placeholder.
pub(crate) fn lint(policy: &Policy, sources: &[&SourceRule], errors: &Problems) -> LintReport {
    let view = LintView::new(policy, errors);
    let budget = WorkBudget::default();
    let mut report = LintReport::default();
    let problems = &mut report.problems;
    let mut dead_until = 0;
    let mut compared = 0;
    for at in 0..policy.rules.len() {
        if budget.is_left() {
            compared = at + 1;
        }
        let (Some(rule), Some(source)) = (policy.rules.get(at), sources.get(at)) else {
            continue;
        };
        // The children of a dead group are dead, too.
        if at < dead_until || !view.is_sound(at) || !view.is_live(at) {
            continue;
        }
        if let Some(problem) = fixed_pace::find_problem(&view, at, source) {
            problems.push(problem.with_rule(Some(&rule.id)));
        }
        if let Some(reason) = dead::find_reason(&view, at, &budget) {
            dead_until = rule.end.0 as usize;
            report.dead_rules.insert(at);
            problems.push(
                dead_rule_problem(&view, at, source, &reason, sources).with_rule(Some(&rule.id)),
            );
        } else if let Some(refusing) = late_allow::find_earlier_refusal(&view, at, &budget) {
            problems.push(
                late_allow_problem(&view, source, refusing, sources).with_rule(Some(&rule.id)),
            );
        }
    }
    report.incomplete = incomplete_problem(compared, policy.rules.len(), sources);
    problems.extend(report.incomplete.clone());
    let overlaps = overlap::find_overlaps(&view, &budget);
    problems.extend(
        overlaps
            .iter()
            .filter_map(|overlap| overlap_problem(&view, overlap, sources)),
    );
    report
}

/// The remaining work, limited so that a policy with many thousand rules loads quickly. When it is
/// used up, nothing more is proved, which is reported.
#[derive(Debug)]
pub(crate) struct WorkBudget(Cell<usize>);

impl Default for WorkBudget {
    fn default() -> Self {
        Self(Cell::new(4_000_000))
    }
}

impl WorkBudget {
    /// Spends the work of comparing two rules. Returns `false` if none is left.
    fn try_compare(&self) -> bool {
        self.try_spend(20)
    }

    /// Spends the work of visiting rules. Returns `false` if none is left.
    fn try_visit(&self, rules: usize) -> bool {
        self.try_spend(rules)
    }

    /// Returns `true` if work is left.
    fn is_left(&self) -> bool {
        self.0.get() > 0
    }

    fn try_spend(&self, work: usize) -> bool {
        let remaining = self.0.get();
        self.0.set(remaining.saturating_sub(work));
        remaining > 0
    }
}

/// Returns a warning if not all rules were compared with the others.
fn incomplete_problem(compared: usize, rules: usize, sources: &[&SourceRule]) -> Option<Problem> {
    let place = &sources.first().filter(|_| compared < rules)?.place;
    let message = format!(
        "only the first {compared} of {rules} rules were compared with the others to find those that can never decide"
    );
    let file = SourceLocation::for_file(&place.file);
    Some(Problem::warning(&file, message).with_help("run `crawlgate check --exact`"))
}

/// The place of a rule's id, or of the rule itself.
fn rule_place(source: &SourceRule) -> &SourceLocation {
    source.id.as_ref().map_or(&source.place, |id| &id.place)
}

/// Returns the id and the place of a rule.
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
    reason: &DeadReason,
    sources: &[&SourceRule],
) -> Problem {
    let (cause, help) = match *reason {
        DeadReason::Contradiction => ("its condition cannot hold".to_owned(), None),
        DeadReason::ContradictsParents => (
            "its condition contradicts those of the rules around it".to_owned(),
            None,
        ),
        DeadReason::AfterStop(other) => (
            format!(
                "{} stops before it is reached",
                describe_rule(view, other, sources)
            ),
            Some("put it before that rule, or remove `stop`"),
        ),
        DeadReason::AfterSibling(other) => (
            format!(
                "{} of the same `match: first` list always matches first",
                describe_rule(view, other, sources)
            ),
            Some("put the narrower rule first"),
        ),
        DeadReason::Filtered(other) => (
            format!(
                "{} filters everything that it matches",
                describe_rule(view, other, sources)
            ),
            Some(after_filter_help(source)),
        ),
        DeadReason::Overwritten(other) => (
            format!(
                "{} matches as well and overwrites all its options",
                describe_rule(view, other, sources)
            ),
            Some("the last assignment wins: put the wider rule first"),
        ),
    };
    let message = format!("can never decide: {cause}");
    let example = reason.cause().and_then(|_| witness::find_url(view, at));
    let message = example.iter().fold(message, |message, url| {
        format!("{message}; for example {url}")
    });
    let problem = Problem::warning(rule_place(source), message);
    help.into_iter()
        .fold(problem, |problem, help| problem.with_help(help))
}

fn after_filter_help(source: &SourceRule) -> &'static str {
    match source.body {
        SourceRuleBody::Filter(_) => "remove it, or make the other rule narrower",
        SourceRuleBody::Group(_) => {
            "a filter is final: put the exception into the condition of that rule"
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
        "the spaces `{first}` and `{second}` overlap: {} also allows {}, so both crawlers fetch it",
        describe_rule(view, overlap.first, sources),
        overlap.url
    );
    let problem = Problem::warning(rule_place(sources.get(overlap.second)?), message);
    let problem = problem.with_help(
        "exclude it from one of them, or set different options under `spaces.NAME.options`; with one index for both, \
         `global_space: union` keeps a URL in it that one of them drops",
    );
    Some(problem.with_rule(view.rule(overlap.second).map(|rule| &rule.id)))
}

fn late_allow_problem(
    view: &LintView<'_>,
    source: &SourceRule,
    refusing: late_allow::EarlierRefusal,
    sources: &[&SourceRule],
) -> Problem {
    let cause = match refusing.by {
        Some(rule) => describe_rule(view, rule, sources),
        None => "the default".to_owned(),
    };
    let then = match &source.body {
        SourceRuleBody::Group(group) => group.then.as_ref().map(|then| &then.place),
        SourceRuleBody::Filter(_) => None,
    };
    let stage = refusing.stage.as_str();
    let message = format!(
        "allows without effect: {cause} has refused all of it at the {stage} stage, and a refusal is final"
    );
    let instead =
        format!("allow it at the {stage} stage, and use `forbid` or `require` on later facts");
    Problem::warning(then.unwrap_or_else(|| rule_place(source)), message).with_help(instead)
}
