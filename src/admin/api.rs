//! The API: what a policy is doing, and reloading it. JSON, under `/api/v1/`.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value as Json, json};

use crate::clock::Rfc3339;
use crate::gate::reload::{Attempt, Outcome, Reloads, Trigger};
use crate::gate::snapshot::InForce;
use crate::metrics::policy::PolicyMetrics;
use crate::vocab::crawler::Crawler;
use crate::vocab::problem::Problem;
use crate::vocab::profile::Profile;

use super::page::{self, problem};

/// The policy in force, and how to load another.
#[derive(Clone, Debug)]
pub struct PolicyApi {
    /// The policy in force.
    pub in_force: Arc<InForce<Arc<PolicyMetrics>>>,
    /// Reloads it.
    pub reloads: Reloads,
    /// The crawlers that are known, each with its profile.
    pub crawlers: Arc<[Crawler]>,
    /// How crawlers are answered for whom nothing else is said.
    pub profile: Profile,
}

impl PolicyApi {
    /// `POST /api/v1/reload`: 200 with the result, `loaded` (with the revision before and any warnings) or
    /// `unchanged`, or 422 with the problems. `shadow` is the same for the shadow policy, if there is one.
    pub(super) async fn reload(&self) -> Response<Full<Bytes>> {
        let Some(attempt) = self.reloads.reload(Trigger::Api).await else {
            return problem(
                StatusCode::SERVICE_UNAVAILABLE,
                "the proxy is shutting down",
            );
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
                page::extend(
                    &mut document,
                    &json!({ "before": before, "problems": listed(warnings) }),
                );
                StatusCode::OK
            }
            Outcome::Unchanged => StatusCode::OK,
            Outcome::NothingToRead => {
                let detail =
                    "no file stands behind this policy; name one in policy.path and restart";
                page::extend(&mut document, &json!({ "detail": detail }));
                StatusCode::OK
            }
            Outcome::Refused(problems) => {
                let detail = "the policy was not loaded; the one in force stays";
                page::extend(
                    &mut document,
                    &json!({ "detail": detail, "problems": listed(problems) }),
                );
                return page::problem_with(StatusCode::UNPROCESSABLE_ENTITY, &document);
            }
        };
        page::json(status, &document)
    }
}

pub(super) fn last_reload(attempt: &Attempt) -> Json {
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
