//! Rules that can never act, because their values match no canonical URL.

use std::collections::BTreeSet;

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::policy::Policy;

use super::formula::Formula;
use super::question::{Solution, Solver};
use super::regions::AnalysedPolicy;

/// The beginning of the message of a warning about such a value.
pub(crate) const MATCHES_NOTHING: &str = "matches nothing";

/// Returns an error for each rule that can never act because of a value that no URL matches.
/// `problems` are those of the policy: only rules with a warning about such a value are analysed.
pub(crate) fn find_inert_rules(
    policy: &Policy,
    places: &[&SourceLocation],
    problems: &[Problem],
) -> Vec<Problem> {
    let suspects: BTreeSet<&str> = problems
        .iter()
        .filter(|problem| problem.message.starts_with(MATCHES_NOTHING))
        .filter_map(|problem| problem.rule.as_ref().map(|rule| rule.as_str()))
        .collect();
    if suspects.is_empty() {
        return Vec::new();
    }
    let Ok(mut solver) = Solver::new() else {
        return Vec::new();
    };
    let analysed = AnalysedPolicy::new(policy);
    let mut inert = Vec::new();
    for (at, rule) in policy.rules.iter().enumerate() {
        let is_suspect = suspects.contains(rule.id.as_str()) && analysed.view.is_live(at);
        let Some(place) = places.get(at).filter(|_| is_suspect) else {
            continue;
        };
        let own = analysed.assertions(&mut solver, &[at]);
        let never = own == Formula::Constant(false)
            || matches!(solver.solve(&own, &|_| false), Solution::Never);
        if never {
            let key = rule.condition_key().unwrap_or("when");
            let message = format!("`{key}` never has an effect: nothing matches its values");
            inert.push(Problem::error(place, message).with_rule(Some(&rule.id)));
        }
    }
    inert
}
