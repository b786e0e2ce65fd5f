//! A trial as the output of `decide` and `explain` (docs/commands.md).

use serde_json::{Value as Json, json};

use crate::model::crawl_status::CrawlStatus;
use crate::model::intent::Intent;
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::policy::cases::{CaseFacts, ExpectedVerdict};

/// Returns `allow`, `reject` or `undecided`.
pub fn verdict(trial: &OfflineEvaluation<'_>) -> &'static str {
    ExpectedVerdict::from_verdict(trial.decision.verdict).as_str()
}

/// Returns `name@revision` of the policy.
pub fn policy_name(trial: &OfflineEvaluation<'_>) -> String {
    format!("{}@{}", trial.policy.name(), trial.policy.revision())
}

/// Returns the JSON output of `decide`.
pub fn to_json(trial: &OfflineEvaluation<'_>, facts: &CaseFacts) -> Json {
    let decision = &trial.decision;
    let answer = trial.answer();
    json!({
        "url": facts.url(),
        "verdict": verdict(trial),
        "stage": decision.stage.as_str(),
        "reason": decision.reason().as_str(),
        "rule": trial.rule_id(),
        "intent": answer.intent.map(Intent::as_str),
        "status": answer.status,
        "crawl_status": crawl_status(trial, facts),
        "code": answer.code,
        "logged": decision.logged,
        "index": option_value(trial, "index"),
        "follow": option_value(trial, "follow"),
        "options": trial.policy.options_json(&trial.trail),
        "policy": policy_name(trial),
    })
}

/// Returns URL, verdict, stage, reason, rule and status, separated by tabs; a missing value is empty.
pub fn to_tsv(trial: &OfflineEvaluation<'_>, facts: &CaseFacts) -> String {
    let status = trial
        .answer()
        .status
        .map_or(String::new(), |s| s.to_string());
    let decision = &trial.decision;
    let rule = trial.rule_id().unwrap_or("");
    let stage = decision.stage.as_str();
    let reason = decision.reason().as_str();
    [facts.url(), verdict(trial), stage, reason, rule, &status].join("\t")
}

/// Returns the value of `Crawl-Status`: that of the refusal, or else that of the origin's status.
pub fn crawl_status(trial: &OfflineEvaluation<'_>, facts: &CaseFacts) -> &'static str {
    match (&trial.refusal, facts.origin_status()) {
        (Some(refusal), _) => refusal.reason.row().crawl_status,
        (None, Some(status)) => CrawlStatus::from_origin_status(status),
        (None, None) => CrawlStatus::Accepted,
    }
    .as_str()
}

fn option_value(trial: &OfflineEvaluation<'_>, path: &str) -> Json {
    let mut lines = trial.policy.explain_options(&trial.trail);
    lines
        .find(|line| line.path == path)
        .map_or(Json::Null, |line| line.value.to_json())
}
