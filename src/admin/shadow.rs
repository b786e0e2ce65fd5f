//! `GET /api/v1/shadow`: the decisions that the rules in shadow mode and the shadow policy would change, since the active
//! policies were loaded.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Map, Value as Json, json};

use crate::clock::Rfc3339;
use crate::metrics::policy::PolicyMetrics;
use crate::metrics::shadow::{ShadowExample, ShadowSource, ShadowTally};
use crate::pipeline::shadow::ShadowPolicy;
use crate::pipeline::snapshot::PolicySnapshot;
use crate::policy::rule::RuleIndex;
use crate::store::policies::ShadowAssignment;

use super::policy_api::{PolicyApi, outcome_name, problems_to_json};
use super::response;

impl PolicyApi {
    /// Returns, for each outermost rule in shadow mode and for the shadow policy, the number of evaluated requests; the
    /// admitted ones that it would refuse, and the refused ones that it would admit, by reason and rule and with the
    /// latest examples.
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
            "set": shadow.assignment.as_deref().map(assignment_to_json),
        })
    }
}

/// Returns who set the shadow policy, when and why.
fn assignment_to_json(assignment: &ShadowAssignment) -> Json {
    json!({
        "at": Rfc3339(assignment.at()).to_string(),
        "user": assignment.author.user,
        "address": assignment.author.address,
        "reason": assignment.reason,
    })
}

fn rule_to_json(snapshot: &PolicySnapshot, root: RuleIndex) -> Json {
    let counters = &snapshot.counters;
    let entry = counters.shadow_stats().tallies(ShadowSource::Rule(root.0));
    let policy = &snapshot.policy;
    let rule = policy.rule(root);
    let space = policy.spaces().for_rule(root);
    json!({
        "rule": rule.map(|rule| rule.id.as_str()),
        "about": rule.and_then(|rule| rule.about.as_deref()),
        "space": space.and_then(|space| policy.spaces().get(space)).map(|space| space.name.as_str()),
        "judged": match space {
            Some(space) => counters.shadow_stats().evaluated_in_space(space.0),
            None => counters.shadow_stats().evaluated(),
        },
        "matched": counters.counts(root.0).map(|counts| counts.matched),
        "would_refuse": tally_to_json(&entry.would_reject, counters),
        "would_admit": tally_to_json(&entry.would_allow, counters),
    })
}

fn tally_to_json(tally: &ShadowTally, counters: &PolicyMetrics) -> Json {
    let rules = tally.rules.iter().map(|(rule, count)| {
        let name = counters.rule_name(*rule).unwrap_or_default();
        (name.to_owned(), json!(count))
    });
    json!({
        "total": tally.total,
        "reasons": tally.reasons,
        "rules": rules.collect::<Map<_, _>>(),
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
