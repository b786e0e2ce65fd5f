//! The API: what a policy is doing, and reloading it. JSON, under `/api/v1/`.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value as Json, json};

use crate::clock::Rfc3339;
use crate::gate::reload::{Attempt, Outcome, Reloads, Trigger};
use crate::gate::snapshot::{InForce, Snapshot};
use crate::metrics::policy::PolicyMetrics;
use crate::policy::rule::{Mode, Rule};
use crate::vocab::problem::Problem;

use super::page::{self, problem};

/// The policy in force, and how to load another.
#[derive(Clone, Debug)]
pub struct PolicyApi {
    /// The policy in force.
    pub in_force: Arc<InForce<Arc<PolicyMetrics>>>,
    /// Reloads it.
    pub reloads: Reloads,
}

impl PolicyApi {
    /// `GET /api/v1/policy`: name, revision, each rule with its counters since it is there, what is disabled, and how
    /// the last reload went (`null` before the first).
    pub(super) fn show(&self) -> Response<Full<Bytes>> {
        let snapshot = self.in_force.load();
        let policy = &snapshot.policy;
        let disabled = policy.rules().iter().filter(|rule| rule.mode == Mode::Disabled);
        let document = json!({
            "name": policy.name(),
            "revision": policy.revision(),
            "rules": policy.rules().iter().zip(0..).map(|(rule, at)| shown(&snapshot, rule, at)).collect::<Vec<_>>(),
            "disabled": disabled.map(|rule| rule.id.as_str()).collect::<Vec<_>>(),
            "last_reload": self.reloads.last().map(|attempt| last_reload(&attempt)),
        });
        page::json(StatusCode::OK, &document)
    }

    /// `POST /api/v1/reload`: 200 with the result, `loaded` (with the revision before and any warnings) or
    /// `unchanged`, or 422 with the problems. `shadow` is the same for the shadow policy, if there is one.
    pub(super) async fn reload(&self) -> Response<Full<Bytes>> {
        let Some(attempt) = self.reloads.reload(Trigger::Api).await else {
            return problem(StatusCode::SERVICE_UNAVAILABLE, "the proxy is shutting down");
        };
        let snapshot = self.in_force.load();
        let mut document = json!({
            "result": result(&attempt.outcome),
            "policy": snapshot.policy.name(),
            "revision": snapshot.policy.revision(),
        });
        if let (Some(outcome), Some(shadow)) = (&attempt.shadow, &snapshot.shadow) {
            let shadow = json!({
                "result": result(outcome),
                "policy": shadow.policy.name(),
                "revision": shadow.policy.revision(),
                "problems": listed(outcome.problems()),
            });
            page::extend(&mut document, &json!({ "shadow": shadow }));
        }
        let status = match &attempt.outcome {
            Outcome::Loaded { before, warnings } => {
                page::extend(&mut document, &json!({ "before": before, "problems": listed(warnings) }));
                StatusCode::OK
            }
            Outcome::Unchanged => StatusCode::OK,
            Outcome::NothingToRead => {
                let detail = "no file stands behind this policy; name one in policy.path and restart";
                page::extend(&mut document, &json!({ "detail": detail }));
                StatusCode::OK
            }
            Outcome::Refused(problems) => {
                let detail = "the policy was not loaded; the one in force stays";
                page::extend(&mut document, &json!({ "detail": detail, "problems": listed(problems) }));
                return page::problem_with(StatusCode::UNPROCESSABLE_ENTITY, &document);
            }
        };
        page::json(status, &document)
    }
}

fn shown(snapshot: &Snapshot<Arc<PolicyMetrics>>, rule: &Rule, at: u32) -> Json {
    let mode = match rule.mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Disabled => "disabled",
    };
    let counts = snapshot.counters.counts(at);
    json!({
        "id": rule.id.as_str(),
        "about": rule.about,
        "mode": mode,
        "matched": counts.map(|(matched, _)| matched),
        "decided": counts.map(|(_, decided)| decided),
    })
}

fn last_reload(attempt: &Attempt) -> Json {
    json!({
        "at": Rfc3339(attempt.at).to_string(),
        "trigger": attempt.trigger.to_string(),
        "result": result(&attempt.outcome),
        "problems": listed(attempt.outcome.problems()),
    })
}

pub(super) fn result(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Loaded { .. } => "loaded",
        Outcome::Unchanged | Outcome::NothingToRead => "unchanged",
        Outcome::Refused(_) => "refused",
    }
}

pub(super) fn listed(problems: &[Problem]) -> Vec<Json> {
    problems.iter().map(Problem::to_json).collect()
}
