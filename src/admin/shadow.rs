//! `GET /api/v1/shadow`: what the rules in shadow and the shadow policy would change, since the policies of now stand as
//! they do.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value as Json, json};

use crate::clock::Rfc3339;
use crate::metrics::policy::PolicyMetrics;
use crate::metrics::shadow::{ShadowExample, ShadowSource, ShadowTally};
use crate::pipeline::shadow::ShadowPolicy;
use crate::pipeline::snapshot::PolicySnapshot;
use crate::policy::rule::RuleIndex;

use super::policy_api::{PolicyApi, outcome_name, problems_to_json};
use super::response;

impl PolicyApi {
    /// For each rule in shadow (the outermost ones) and for the shadow policy: requests judged, those it would refuse
    /// and were admitted, those it would admit and were refused; by reason and rule, with the latest examples.
    pub(super) fn show_shadow(&self) -> Response<Full<Bytes>> {
        let snapshot = self.active_policy.load();
        let policy = &snapshot.policy;
        let document = json!({
            "policy": policy.name(),
            "revision": policy.revision(),
            "rules": policy.shadow_rules().iter().map(|root| rule_to_json(&snapshot, *root)).collect::<Vec<_>>(),
            "shadow_policy": snapshot.shadow.as_ref().map(|shadow| self.policy_to_json(shadow)),
        });
        response::json(StatusCode::OK, &document)
    }

    fn policy_to_json(&self, shadow: &ShadowPolicy) -> Json {
        let entry = shadow.counters.shadow_stats().tallies(ShadowSource::Policy);
        let last = self.reloads.last_attempt().and_then(|attempt| {
            let outcome = attempt.shadow.as_ref()?;
            Some(json!({
                "at": Rfc3339(attempt.at).to_string(),
                "result": outcome_name(outcome),
                "problems": problems_to_json(outcome.problems()),
            }))
        });
        json!({
            "policy": shadow.policy.name(),
            "revision": shadow.policy.revision(),
            "judged": shadow.counters.shadow_stats().evaluated(),
            "would_refuse": tally_to_json(&entry.would_reject, &shadow.counters),
            "would_admit": tally_to_json(&entry.would_allow, &shadow.counters),
            "last_reload": last,
        })
    }
}

fn rule_to_json(snapshot: &PolicySnapshot, root: RuleIndex) -> Json {
    let counters = &snapshot.counters;
    let entry = counters.shadow_stats().tallies(ShadowSource::Rule(root.0));
    let rule = snapshot.policy.rule(root);
    json!({
        "rule": rule.map(|rule| rule.id.as_str()),
        "about": rule.and_then(|rule| rule.about.as_deref()),
        "judged": counters.shadow_stats().evaluated(),
        "matched": counters.counts(root.0).map(|counts| counts.matched),
        "would_refuse": tally_to_json(&entry.would_reject, counters),
        "would_admit": tally_to_json(&entry.would_allow, counters),
    })
}

fn tally_to_json(tally: &ShadowTally, counters: &PolicyMetrics) -> Json {
    let named = |rule: &u32| counters.rule_name(*rule).unwrap_or_default().to_owned();
    json!({
        "total": tally.total,
        "reasons": tally.reasons,
        "rules": tally.rules.iter().map(|(rule, count)| (named(rule), json!(count))).collect::<serde_json::Map<_, _>>(),
        "examples": tally.examples.iter().map(|example| example_to_json(example, counters)).collect::<Vec<_>>(),
    })
}

fn example_to_json(example: &ShadowExample, counters: &PolicyMetrics) -> Json {
    json!({
        "at": Rfc3339(example.at).to_string(),
        "decision": example.decision,
        "crawler": example.crawler,
        "url": example.url,
        "host": example.host,
        "stage": example.stage.as_str(),
        "reason": example.reason,
        "rule": example.rule.and_then(|rule| counters.rule_name(rule)),
    })
}
