//! An offline evaluation as the output of `decide` and `explain` (docs/commands.md).

use serde_json::{Value as Json, json};

use crate::model::crawl_status::CrawlStatus;
use crate::model::intent::Intent;
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::policy::cases::{CaseFacts, ExpectedVerdict};
use crate::urls::target::LaxReading;

/// Returns `allow`, `reject` or `undecided`.
pub fn verdict(evaluation: &OfflineEvaluation<'_>) -> &'static str {
    ExpectedVerdict::from_verdict(evaluation.decision.verdict).as_str()
}

/// Returns `name@revision` of the policy.
pub fn policy_name(evaluation: &OfflineEvaluation<'_>) -> String {
    format!(
        "{}@{}",
        evaluation.policy.name(),
        evaluation.policy.revision()
    )
}

/// Returns the JSON output of `decide`.
pub fn to_json(evaluation: &OfflineEvaluation<'_>, facts: &CaseFacts) -> Json {
    let decision = &evaluation.decision;
    let answer = evaluation.answer();
    json!({
        "url": facts.url(),
        "verdict": verdict(evaluation),
        "stage": decision.stage.as_str(),
        "reason": decision.reason().as_str(),
        "rule": evaluation.rule_id(),
        "reading": decision.reading.map(LaxReading::as_str),
        "intent": answer.intent.map(Intent::as_str),
        "status": answer.status,
        "crawl_status": crawl_status(evaluation, facts),
        "code": answer.code,
        "logged": decision.logged,
        "index": option_value(evaluation, "index"),
        "follow": option_value(evaluation, "follow"),
        "options": evaluation.policy.options_json(&evaluation.trail),
        "policy": policy_name(evaluation),
    })
}

/// Returns URL, verdict, stage, reason, rule and status, separated by tabs; a missing value is empty.
pub fn to_tsv(evaluation: &OfflineEvaluation<'_>, facts: &CaseFacts) -> String {
    let status = evaluation
        .answer()
        .status
        .map_or(String::new(), |s| s.to_string());
    let decision = &evaluation.decision;
    let rule = evaluation.rule_id().unwrap_or("");
    let stage = decision.stage.as_str();
    let reason = decision.reason().as_str();
    [
        facts.url(),
        verdict(evaluation),
        stage,
        reason,
        rule,
        &status,
    ]
    .join("\t")
}

/// Returns the value of `Crawl-Status`: that of the refusal, else of a check that passes on only
/// links, else of the origin's status.
pub fn crawl_status(evaluation: &OfflineEvaluation<'_>, facts: &CaseFacts) -> &'static str {
    if let Some(check) = evaluation.trail.links_only() {
        return check.crawl_status().as_str();
    }
    match (&evaluation.refusal, facts.origin_status()) {
        (Some(refusal), _) => refusal.reason.row().crawl_status,
        (None, Some(status)) => CrawlStatus::from_origin_status(status),
        (None, None) => CrawlStatus::Accepted,
    }
    .as_str()
}

fn option_value(evaluation: &OfflineEvaluation<'_>, path: &str) -> Json {
    let mut lines = evaluation.policy.explain_options(&evaluation.trail);
    lines
        .find(|line| line.path == path)
        .map_or(Json::Null, |line| line.value.to_json())
}
