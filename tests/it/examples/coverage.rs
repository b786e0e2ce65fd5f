//! Which branches of a policy's rules its cases reach: what a rule did is read from the trail of each case.

use std::collections::BTreeSet;

use crawlgate::gate::trial::Trial;
use crawlgate::policy::cases::Case;
use crawlgate::policy::compile::Compiled;
use crawlgate::policy::condition::{Condition, Truth};
use crawlgate::policy::rule::{Guard, Mode, Rule, RuleBody, RuleIndex, Sense};
use crawlgate::policy::space::GlobalSpace;
use crawlgate::policy::trail::State;

use super::{compiled_file, worked_examples};

/// The branches that no case reaches, as `RULE: yes` and `RULE: no`.
fn unreached(compiled: &Compiled) -> Vec<String> {
    let policy = &compiled.policy;
    let trials: Vec<(&Case, Trial<'_>)> =
        compiled.cases.iter().map(|case| (case, Trial::new(policy, &case.facts, case.profile))).collect();
    let live = policy.rules().iter().zip(0..).filter(|(rule, _)| rule.mode == Mode::Enforce);
    live.flat_map(|(rule, at)| {
        let at = RuleIndex(at);
        let reached = trials.iter().filter_map(|(case, trial)| match policy.spaces().global() {
            GlobalSpace::Rules(range) if range.contains(at) => global_branch(rule, at, case, trial),
            GlobalSpace::Rules(_) | GlobalSpace::Union | GlobalSpace::Undefined => {
                branch(trial.trail.state(at))
            }
        });
        let reached: BTreeSet<&str> = reached.collect();
        let missing = branches(rule).iter().filter(move |branch| !reached.contains(*branch));
        missing.map(|branch| format!("{}: {branch}", rule.id.as_str()))
    })
    .collect()
}

fn branch(state: State) -> Option<&'static str> {
    match state {
        State::Matched => Some("yes"),
        State::NoMatch => Some("no"),
        State::Pending | State::Cut | State::Undecided => None,
    }
}

/// Rules of the global space leave no trail: they are asked for the code of a refusal only.
fn global_branch(rule: &Rule, at: RuleIndex, case: &Case, trial: &Trial<'_>) -> Option<&'static str> {
    let facts = case.facts.facts();
    let exclusion = trial.policy.exclusion(&trial.trail, &trial.decision, &facts)?;
    let fits = |condition: &Condition| condition.evaluate(&facts, &[]);
    let applies = match condition_of(rule) {
        Some((condition, Negated::No)) => fits(condition),
        Some((condition, Negated::Yes)) => fits(condition).negated(),
        None => Truth::Yes,
    };
    match applies {
        Truth::Yes => (exclusion.global == Some(at)).then_some("yes"),
        Truth::No => Some("no"),
        Truth::Unknown => None,
    }
}

/// Whether a rule applies where its condition does not hold.
enum Negated {
    No,
    Yes,
}

fn condition_of(rule: &Rule) -> Option<(&Condition, Negated)> {
    match &rule.body {
        RuleBody::Filter(filter) => match filter.sense {
            Sense::Forbid => Some((&filter.condition, Negated::No)),
            Sense::Require => Some((&filter.condition, Negated::Yes)),
        },
        RuleBody::Group(group) => match &group.guard {
            Guard::Always => None,
            Guard::When(condition) => Some((condition, Negated::No)),
            Guard::Unless(condition) => Some((condition, Negated::Yes)),
        },
    }
}

/// The branches that a rule has; one that asks nothing has only one.
fn branches(rule: &Rule) -> &'static [&'static str] {
    match condition_of(rule).map(|(condition, _)| condition) {
        None | Some(Condition::Always) => &["yes"],
        Some(Condition::All(_) | Condition::Any(_) | Condition::Not(_) | Condition::Atom(_)) => {
            &["yes", "no"]
        }
    }
}

#[test]
fn the_worked_examples_reach_both_branches_of_every_rule() {
    let mut missing = vec![];
    for path in worked_examples() {
        let compiled = compiled_file(&path).unwrap_or_else(|said| panic!("{said}"));
        missing.extend(unreached(&compiled).into_iter().map(|line| format!("{}: {line}", path.display())));
    }
    assert!(missing.is_empty(), "no case reaches\n{}", missing.join("\n"));
}
