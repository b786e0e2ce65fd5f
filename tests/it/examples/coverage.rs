//! Which branches of a policy's rules its cases reach: what a rule did is read from the trail of each case.

use std::collections::BTreeSet;

use crawlgate::gate::trial::Trial;
use crawlgate::policy::compile::Compiled;
use crawlgate::policy::condition::Condition;
use crawlgate::policy::rule::{Guard, Mode, Rule, RuleBody, RuleIndex};
use crawlgate::policy::trail::State;

use super::{compiled_file, worked_examples};

/// The branches that no case reaches, as `RULE: yes` and `RULE: no`.
fn unreached(compiled: &Compiled) -> Vec<String> {
    let trials: Vec<Trial<'_>> =
        compiled.cases.iter().map(|case| Trial::new(&compiled.policy, &case.facts, case.profile)).collect();
    let live = compiled.policy.rules().iter().zip(0..).filter(|(rule, _)| rule.mode == Mode::Enforce);
    live.flat_map(|(rule, at)| {
        let states = trials.iter().map(|trial| trial.trail.state(RuleIndex(at)));
        let reached: BTreeSet<&str> = states.filter_map(branch).collect();
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

/// The branches that a rule has; one that asks nothing has only one.
fn branches(rule: &Rule) -> &'static [&'static str] {
    let condition = match &rule.body {
        RuleBody::Filter(filter) => Some(&filter.condition),
        RuleBody::Group(group) => match &group.guard {
            Guard::Always => None,
            Guard::When(condition) | Guard::Unless(condition) => Some(condition),
        },
    };
    match condition {
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
