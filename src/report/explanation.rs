//! An explanation as one JSON object: all that the text says, and what it folds.

use serde_json::{Map, Value as Json, json};

use crate::gate::trial::Trial;
use crate::policy::cases::CaseFacts;
use crate::policy::condition::Truth;
use crate::policy::explain::ground::Ground;
use crate::policy::explain::{OptionLine, RuleLine};
use crate::policy::options::SetBy;
use crate::policy::rule::{ChildOrder, Group, Mode, RuleBody};

use crate::vocab::profile::Profile;

use super::decision;
use super::wire::{Answers, Wire};

/// `url`, `rules`, `options`, `decision` as `decide` writes it, and `answer`, one of `answers` to the same trial.
pub fn of(trial: &Trial<'_>, facts: &CaseFacts, answers: &Answers<'_>) -> Json {
    let rules: Vec<Json> = trial
        .policy
        .rule_lines(&trial.trail)
        .map(|line| rule(trial, facts, &line))
        .collect();
    let options: Vec<Json> = trial
        .policy
        .option_lines(&trial.trail)
        .map(|line| option(trial, &line))
        .collect();
    json!({
        "url": facts.url(),
        "rules": rules,
        "options": options,
        "decision": decision::to_json(trial, facts),
        "answer": answer(answers, trial.profile),
    })
}

/// The answer to a crawler of each profile.
pub fn to_all(answers: &Answers<'_>) -> Vec<Json> {
    Profile::ALL
        .into_iter()
        .map(|profile| answer(answers, profile))
        .collect()
}

fn rule(trial: &Trial<'_>, facts: &CaseFacts, line: &RuleLine<'_>) -> Json {
    let grounds = trial.policy.grounds(line, &facts.facts());
    json!({
        "rule": line.rule.id.as_str(),
        "about": line.rule.about,
        "depth": line.depth,
        "shadow": line.rule.mode == Mode::Shadow,
        "key": line.rule.key(),
        "condition": trial.policy.condition_in_words(line.rule),
        "status": line.status.as_str(),
        "stage": line.rule.stage.as_str(),
        "waits_for": line.waits_for().map(|stage| stage.as_str()),
        "because": grounds.iter().map(ground).collect::<Vec<_>>(),
        "does": does(trial, &line.rule.body),
    })
}

/// `value` is null where there is none or none is known, `holds` where that is not known.
fn ground(ground: &Ground) -> Json {
    let holds = match ground.truth {
        Truth::Yes => Some(true),
        Truth::No => Some(false),
        Truth::Unknown => None,
    };
    json!({
        "field": ground.field,
        "value": ground.seen.value(),
        "kind": ground.test.kind,
        "operands": ground.test.values,
        "holds": holds,
        "text": ground.to_string(),
    })
}

/// What the rule does when it matches.
fn does(trial: &Trial<'_>, body: &RuleBody) -> Json {
    match body {
        RuleBody::Filter(filter) => json!({
            "filters": true,
            "log": filter.log,
            "reject": filter.reject.map(|intent| intent.as_str()),
            "reject_status": filter.reject_status,
        }),
        RuleBody::Group(group) => json!({
            "assigns": assigns(trial, group),
            "stop": group.stop,
            "match": if group.order == ChildOrder::All { "all" } else { "first" },
        }),
    }
}

fn assigns(trial: &Trial<'_>, group: &Group) -> Json {
    let one = |a: &crate::policy::options::Assignment| {
        (
            trial.policy.option_path(a.slot).to_owned(),
            a.value.to_json(),
        )
    };
    group.assign.iter().map(one).collect::<Map<_, _>>().into()
}

fn option(trial: &Trial<'_>, line: &OptionLine<'_>) -> Json {
    json!({ "option": line.path, "value": line.value.to_json(), "set_by": set_by(trial, line) })
}

/// The rule's id, or where else the value comes from.
pub fn set_by<'p>(trial: &Trial<'p>, line: &OptionLine<'p>) -> &'p str {
    match line.set_by {
        SetBy::BuiltIn => "built-in",
        SetBy::Document => "options",
        SetBy::Space(space) => trial.policy.space_options(space),
        SetBy::Rule(rule) => trial.policy.rule_id(rule).unwrap_or(""),
    }
}

fn answer(answers: &Answers<'_>, profile: Profile) -> Json {
    let (kind, status_line, headers) = match answers.to(profile) {
        Wire::Refused {
            status_line,
            headers,
        } => ("refused", Some(status_line), headers),
        Wire::Closed => ("closed", None, Vec::new()),
        Wire::Passed { headers } => ("passed", None, headers),
        Wire::Tunnel => ("tunnel", Some("HTTP/1.1 200 OK".to_owned()), Vec::new()),
    };
    let headers: Map<String, Json> = headers
        .into_iter()
        .map(|(name, value)| (name, value.into()))
        .collect();
    json!({ "profile": profile.as_str(), "kind": kind, "status_line": status_line, "headers": headers })
}
