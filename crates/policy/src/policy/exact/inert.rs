//! Rules that can never act, because their values match no canonical URL.

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::policy::Policy;

use super::formula::Formula;
use super::question::{Solution, Solver};
use super::regions::AnalysedPolicy;

/// Returns an error for each rule that can never act because of a value that no URL matches. Only
/// the rules at `suspects` have such values.
pub(crate) fn find_inert_rules(
    policy: &Policy,
    places: &[&SourceLocation],
    suspects: &[usize],
) -> Vec<Problem> {
    if suspects.is_empty() {
        return Vec::new();
    }
    let Ok(mut solver) = Solver::new() else {
        return Vec::new();
    };
    let analysed = AnalysedPolicy::new(policy);
    let mut inert = Vec::new();
    for at in suspects.iter().copied() {
        let rule = policy.rules.get(at).filter(|_| analysed.view.is_live(at));
        let Some((rule, place)) = rule.zip(places.get(at)) else {
            continue;
        };
        solver.begin_question();
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
