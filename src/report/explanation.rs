//! An explanation as a JSON object. It contains everything the text output does, including the collapsed parts.

use serde_json::{Map, Value as Json, json};

use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::policy::cases::CaseFacts;
use crate::policy::condition::Truth;
use crate::policy::explain::decisive_test::DecisiveTest;
use crate::policy::explain::{OptionExplanation, RuleExplanation};
use crate::policy::rule::{ChildOrder, EnforcementMode, GroupRule, RuleBody};

use crate::model::profile::Profile;
use crate::robots::agent::RobotsAgent;

use super::decision;
use super::response::{PredictedResponse, ProfileResponses};

/// Returns `url`, `rules`, `rules_left_out`, `options`, `decision` as in `decide`, and `answer`, the one of `answers` for
/// the evaluation's profile.
pub fn to_json(
    evaluation: &OfflineEvaluation<'_>,
    facts: &CaseFacts,
    answers: &ProfileResponses<'_>,
) -> Json {
    let explained = evaluation.policy.explain_relevant_rules(&evaluation.trail);
    let rules: Vec<Json> = explained
        .rules
        .iter()
        .map(|line| rule_json(evaluation, facts, line))
        .collect();
    let options: Vec<Json> = evaluation
        .policy
        .explain_options(&evaluation.trail)
        .map(|line| option_json(evaluation, &line))
        .collect();
    json!({
        "url": facts.url(),
        "rules": rules,
        "rules_left_out": explained.left_out,
        "options": options,
        "decision": decision::to_json(evaluation, facts),
        "answer": answer_json(answers, evaluation.profile),
    })
}

/// Returns the response for each profile.
pub fn answers_to_json(answers: &ProfileResponses<'_>) -> Vec<Json> {
    Profile::ALL
        .into_iter()
        .map(|profile| answer_json(answers, profile))
        .collect()
}

fn rule_json(
    evaluation: &OfflineEvaluation<'_>,
    facts: &CaseFacts,
    line: &RuleExplanation<'_>,
) -> Json {
    let tests = evaluation.policy.decisive_tests(line, &facts.facts());
    json!({
        "rule": line.rule.id.as_str(),
        "about": line.rule.about,
        "depth": line.depth,
        "shadow": line.rule.mode == EnforcementMode::Shadow,
        "key": line.rule.condition_key(),
        "condition": evaluation.policy.describe_condition(line.rule),
        "status": line.status.as_str(),
        "space": line.space.map(|space| space.name.as_str()),
        "other_space": line.is_foreign,
        "stage": line.rule.stage.as_str(),
        "waits_for": line.pending_stage().map(|stage| stage.as_str()),
        "because": tests.iter().map(test_json).collect::<Vec<_>>(),
        "does": effect_json(evaluation, &line.rule.body),
    })
}

/// Describes a decisive test. `value` is null if it is absent or unknown, `holds` if it is unknown.
fn test_json(decisive: &DecisiveTest) -> Json {
    let holds = match decisive.truth {
        Truth::Yes => Some(true),
        Truth::No => Some(false),
        Truth::Unknown => None,
    };
    json!({
        "field": decisive.field,
        "value": decisive.observed.value(),
        "kind": decisive.test.kind,
        "operands": decisive.test.values,
        "holds": holds,
        "text": decisive.to_string(),
    })
}

/// Describes the effect of the rule when it matches.
fn effect_json(evaluation: &OfflineEvaluation<'_>, body: &RuleBody) -> Json {
    match body {
        RuleBody::Filter(filter) => json!({
            "filters": true,
            "log": filter.log,
            "reject": filter.reject_intent.map(|intent| intent.as_str()),
            "reject_status": filter.reject_status,
        }),
        RuleBody::Group(group) => json!({
            "assigns": assignments_json(evaluation, group),
            "stop": group.stop,
            "match": if group.order == ChildOrder::All { "all" } else { "first" },
        }),
    }
}

fn assignments_json(evaluation: &OfflineEvaluation<'_>, group: &GroupRule) -> Json {
    let assignments = group.assignments.iter().map(|assignment| {
        let path = evaluation.policy.option_path(assignment.index).to_owned();
        (path, assignment.value.to_json())
    });
    assignments.collect::<Map<_, _>>().into()
}

fn option_json(evaluation: &OfflineEvaluation<'_>, line: &OptionExplanation<'_>) -> Json {
    json!({ "option": line.path, "value": line.value.to_json(), "set_by": set_by(evaluation, line) })
}

/// Returns the rule's id, or the name of the place that sets the value.
pub fn set_by<'p>(evaluation: &OfflineEvaluation<'p>, line: &OptionExplanation<'p>) -> &'p str {
    evaluation.policy.setter_name(line.set_by)
}

/// Returns the product token that is looked up in robots.txt, and its source.
pub fn robots_agent_to_json(agent: RobotsAgent<'_>) -> Json {
    json!({
        "token": agent.token(),
        "first_product": agent.first_product(),
        "source": agent.source().as_str(),
    })
}

fn answer_json(answers: &ProfileResponses<'_>, profile: Profile) -> Json {
    let (kind, status_line, headers) = match answers.for_profile(profile) {
        PredictedResponse::Refused {
            status_line,
            headers,
        } => ("refused", Some(status_line), headers),
        PredictedResponse::Closed => ("closed", None, Vec::new()),
        PredictedResponse::Forwarded { headers } => ("passed", None, headers),
        PredictedResponse::Tunnel => ("tunnel", Some("HTTP/1.1 200 OK".to_owned()), Vec::new()),
    };
    let headers: Map<String, Json> = headers
        .into_iter()
        .map(|(name, value)| (name, value.into()))
        .collect();
    json!({ "profile": profile.as_str(), "kind": kind, "status_line": status_line, "headers": headers })
}
