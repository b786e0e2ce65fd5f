//! Checks of whole rules and of the policy as a whole (policy.md section 9).

use std::collections::HashMap;

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::model::stage::Stage;
use crate::policy::Policy;
use crate::policy::cases::{Case, ExpectedVerdict};
use crate::policy::decide::Verdict;
use crate::policy::field::Field;
use crate::policy::rule::FilterKind;
use crate::policy::source::tree::SourceFilter;

use super::drafts::RuleDrafts;

/// Ids are unique; a rule without one is known by its position, which changes whenever rules move.
pub(super) fn check_ids(drafts: &RuleDrafts<'_>, problems: &mut Problems) {
    let mut seen: HashMap<&str, &SourceLocation> = HashMap::new();
    let mut nameless: Vec<&SourceLocation> = Vec::new();
    for draft in &drafts.all {
        let rule = draft.source;
        let place = rule.id.as_ref().map_or(&rule.place, |id| &id.place);
        if rule.id.is_none() {
            nameless.push(place);
        }
        if let Some(first) = seen.insert(rule.name().as_str(), place) {
            let message = format!("this id is taken: another rule has it at {first}");
            let problem = Problem::error(place, message).with_found(rule.name().as_str());
            problems.push(problem.with_rule(Some(rule.name())));
        }
    }
    // Of a policy that is refused the ids may be what is wrong.
    if let Some(first) = nameless.first().filter(|_| !problems.has_errors()) {
        let message = match nameless.len() {
            1 => {
                "a rule without an id: its name in headers, logs and metrics is its position".into()
            }
            n => format!(
                "{n} rules without an id: their names in headers, logs and metrics are their positions"
            ),
        };
        problems.push(Problem::advice(first, message).with_help("write `id: a-name`"));
    }
}

/// `require` filters where its condition does not hold, also because nobody knows the fact.
pub(super) fn check_filter(filter: &SourceFilter, problems: &mut Problems) {
    if filter.sense != FilterKind::Require {
        return;
    }
    let mut found = Vec::new();
    filter.condition.for_each_atom(&mut |atom| {
        if matches!(
            atom.field,
            Some(Field::Depth | Field::Referer | Field::Dest)
        ) {
            found.push(atom);
        }
    });
    for atom in found {
        let message = format!(
            "`require` on `{}` filters every request that does not tell it",
            atom.word
        );
        let problem = Problem::warning(&atom.place, message).with_found(&*atom.word);
        problems.push(problem.with_help("write `forbid` with what is not wanted"));
    }
}

/// Cases name rules that exist, and give a status where it can count.
pub(super) fn check_cases(policy: &Policy, cases: &[Case], problems: &mut Problems) {
    let ids = || policy.rules.iter().map(|rule| rule.id.as_str());
    for case in cases {
        if let Some(rule) = case
            .expect
            .rule
            .as_deref()
            .filter(|rule| !ids().any(|id| id == *rule))
        {
            problems.push(
                Problem::error(&case.place, "the case expects a rule that does not exist")
                    .with_found(rule)
                    .with_suggestion_from(ids()),
            );
        }
    }
    // What the policy would say means nothing while it has errors.
    if problems.has_errors() {
        return;
    }
    for case in cases
        .iter()
        .filter(|case| expects_answer_status(policy, case))
    {
        let message =
            "`status` is the origin's, and the case is refused before the origin is asked";
        let problem = Problem::warning(&case.place, message);
        problems.push(problem.with_help(
            "for the status of the answer write `expect: { verdict: reject, status: … }`",
        ));
    }
}

/// Whether the author seems to have meant the status of the answer.
fn expects_answer_status(policy: &Policy, case: &Case) -> bool {
    if case.expect.verdict != ExpectedVerdict::Reject || !case.facts.has_only_status() {
        return false;
    }
    let (_, decision) = policy.decide(&case.facts.facts());
    matches!(decision.verdict, Verdict::Reject(_)) && decision.stage < Stage::Response
}
