//! An offline evaluation as the output of `decide` and `explain` (docs/commands.md).

use std::collections::HashMap;
use std::io;

use serde::Serialize;
use serde_json::Value as Json;

use crate::model::crawl_status::CrawlStatus;
use crate::model::intent::Intent;
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::policy::cases::{CaseFacts, ExpectedVerdict};
use crate::policy::options::{OptionIndex, schema};
use crate::policy::trail::OptionsKey;
use crate::urls::target::LaxReading;

/// Returns `allow`, `reject` or `undecided`.
pub fn verdict(evaluation: &OfflineEvaluation<'_>) -> &'static str {
    ExpectedVerdict::from_verdict(evaluation.decision.verdict).as_str()
}

/// The JSON output of `decide`.
#[derive(Debug, Serialize)]
struct DecisionJson<'a> {
    url: &'a str,
    verdict: &'static str,
    stage: &'static str,
    reason: &'static str,
    rule: Option<&'a str>,
    reading: Option<&'static str>,
    intent: Option<&'static str>,
    status: Option<u16>,
    crawl_status: &'static str,
    code: Option<u16>,
    logged: bool,
    index: Json,
    follow: Json,
    options: &'a Json,
    policy: String,
}

impl<'a> DecisionJson<'a> {
    fn new(evaluation: &OfflineEvaluation<'a>, facts: &'a CaseFacts, options: &'a Json) -> Self {
        let decision = &evaluation.decision;
        let answer = evaluation.answer();
        Self {
            url: facts.url(),
            verdict: verdict(evaluation),
            stage: decision.stage.as_str(),
            reason: decision.reason().as_str(),
            rule: evaluation.rule_id(),
            reading: decision.reading.map(LaxReading::as_str),
            intent: answer.intent.map(Intent::as_str),
            status: answer.status,
            crawl_status: crawl_status(evaluation, facts),
            code: answer.code,
            logged: decision.logged,
            index: option_value(evaluation, schema::INDEX),
            follow: option_value(evaluation, schema::FOLLOW),
            options,
            policy: evaluation.policy.name_and_revision(),
        }
    }
}

/// Returns the JSON output of `decide`.
pub fn to_json(evaluation: &OfflineEvaluation<'_>, facts: &CaseFacts) -> Json {
    let options = evaluation.policy.options_json(&evaluation.trail);
    // Text and numbers can always be represented.
    serde_json::to_value(DecisionJson::new(evaluation, facts, &options)).unwrap_or_default()
}

/// Writes the JSON output of `decide` for many decisions of one policy. Their options, which take longest, are
/// mostly equal and are formatted once.
#[derive(Debug, Default)]
pub struct DecisionJsonWriter {
    options: HashMap<OptionsKey, Json>,
}

/// The maximum number of different options that are kept, of about 20 KiB each.
const MAX_OPTIONS: usize = 1_000;

impl DecisionJsonWriter {
    /// Writes a decision, without the end of the line.
    ///
    /// # Errors
    /// Returns the errors of the writer.
    pub fn write(
        &mut self,
        evaluation: &OfflineEvaluation<'_>,
        facts: &CaseFacts,
        output: impl io::Write,
    ) -> io::Result<()> {
        let key = evaluation.trail.options_key();
        if self.options.len() >= MAX_OPTIONS && !self.options.contains_key(&key) {
            self.options.clear();
        }
        let options = self
            .options
            .entry(key)
            .or_insert_with(|| evaluation.policy.options_json(&evaluation.trail));
        let line = DecisionJson::new(evaluation, facts, options);
        serde_json::to_writer(output, &line).map_err(io::Error::from)
    }
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
    if let Some(check) = evaluation.trail.links_only_check() {
        return check.crawl_status().as_str();
    }
    match (&evaluation.refusal, facts.origin_status()) {
        (Some(refusal), _) => refusal.reason.row().crawl_status,
        (None, Some(status)) => CrawlStatus::from_origin_status(status),
        (None, None) => CrawlStatus::Accepted,
    }
    .as_str()
}

fn option_value(evaluation: &OfflineEvaluation<'_>, option: OptionIndex) -> Json {
    evaluation.trail.value(evaluation.policy, option).to_json()
}
