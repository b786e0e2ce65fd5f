//! `GET /api/v1/shadow`: what the rules in shadow and the shadow policy would change, since the policies of now stand as
//! they do.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value as Json, json};

use crate::clock::Rfc3339;
use crate::gate::shadow::ShadowPolicy;
use crate::gate::snapshot::Snapshot;
use crate::metrics::policy::PolicyMetrics;
use crate::metrics::shadow::{Example, ShadowOf, Tally};
use crate::policy::rule::RuleIndex;

use super::api::{PolicyApi, listed, result};
use super::page;

impl PolicyApi {
    /// For each rule in shadow (the outermost ones) and for the shadow policy: requests judged, those it would refuse
    /// and were admitted, those it would admit and were refused; by reason and rule, with the latest examples.
    pub(super) fn show_shadow(&self) -> Response<Full<Bytes>> {
        let snapshot = self.in_force.load();
        let policy = &snapshot.policy;
        let document = json!({
            "policy": policy.name(),
            "revision": policy.revision(),
            "rules": policy.shadows().iter().map(|root| of_rule(&snapshot, *root)).collect::<Vec<_>>(),
            "shadow_policy": snapshot.shadow.as_ref().map(|shadow| self.of_policy(shadow)),
        });
        page::json(StatusCode::OK, &document)
    }

    fn of_policy(&self, shadow: &ShadowPolicy<Arc<PolicyMetrics>>) -> Json {
        let entry = shadow.counters.book().entry(ShadowOf::Policy);
        let last = self.reloads.last().and_then(|attempt| {
            let outcome = attempt.shadow.as_ref()?;
            Some(json!({
                "at": Rfc3339(attempt.at).to_string(),
                "result": result(outcome),
                "problems": listed(outcome.problems()),
            }))
        });
        json!({
            "policy": shadow.policy.name(),
            "revision": shadow.policy.revision(),
            "judged": shadow.counters.book().judged(),
            "would_refuse": tally(&entry.refuses, &shadow.counters),
            "would_admit": tally(&entry.admits, &shadow.counters),
            "last_reload": last,
        })
    }
}

fn of_rule(snapshot: &Snapshot<Arc<PolicyMetrics>>, root: RuleIndex) -> Json {
    let counters = &snapshot.counters;
    let entry = counters.book().entry(ShadowOf::Rule(root.0));
    let rule = snapshot.policy.rule(root);
    json!({
        "rule": rule.map(|rule| rule.id.as_str()),
        "about": rule.and_then(|rule| rule.about.as_deref()),
        "judged": counters.book().judged(),
        "matched": counters.counts(root.0).map(|counts| counts.matched),
        "would_refuse": tally(&entry.refuses, counters),
        "would_admit": tally(&entry.admits, counters),
    })
}

fn tally(tally: &Tally, counters: &PolicyMetrics) -> Json {
    let named = |rule: &u32| counters.shown(*rule).unwrap_or_default().to_owned();
    json!({
        "total": tally.total,
        "reasons": tally.reasons,
        "rules": tally.rules.iter().map(|(rule, count)| (named(rule), json!(count))).collect::<serde_json::Map<_, _>>(),
        "examples": tally.examples.iter().map(|example| shown(example, counters)).collect::<Vec<_>>(),
    })
}

fn shown(example: &Example, counters: &PolicyMetrics) -> Json {
    json!({
        "at": Rfc3339(example.at).to_string(),
        "decision": example.decision,
        "crawler": example.crawler,
        "url": example.url,
        "host": example.host,
        "stage": example.stage.as_str(),
        "reason": example.reason,
        "rule": example.rule.and_then(|rule| counters.shown(rule)),
    })
}
