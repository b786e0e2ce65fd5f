//! The part of the API that shows and reloads the policy.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value as Json, json};

use crate::clock::Rfc3339;
use crate::diagnostics::problem::Problem;
use crate::model::crawler::Crawler;
use crate::model::profile::Profile;
use crate::pipeline::reload::{ReloadAttempt, ReloadHandle, ReloadOutcome, ReloadTrigger};
use crate::pipeline::request::dry_run::DryRunner;
use crate::pipeline::snapshot::ActivePolicy;

use super::response::{self, problem};

/// The active policy, and the handle that reloads it.
#[derive(Clone, Debug)]
pub struct PolicyApi {
    pub active_policy: Arc<ActivePolicy>,
    /// The handle that reloads it.
    pub reloads: ReloadHandle,
    /// The configured crawlers, each with its profile.
    pub crawlers: Arc<[Crawler]>,
    /// The profile of crawlers that have none.
    pub default_profile: Profile,
    /// The stages that a request goes through before it is sent.
    pub dry_runner: Arc<dyn DryRunner>,
}

impl PolicyApi {
    /// `POST /api/v1/reload`: 200 with the result, which is `loaded` (with the previous revision and any warnings) or
    /// `unchanged`; or 422 with the problems; or 202 if there is no result after [`RELOAD_ANSWER_TIMEOUT`]. `shadow`
    /// reports on the shadow policy, if there is one.
    pub(super) async fn reload(&self) -> Response<Full<Bytes>> {
        let reload = self.reloads.reload(ReloadTrigger::Api);
        let attempt = match tokio::time::timeout(RELOAD_ANSWER_TIMEOUT, reload).await {
            Ok(Some(attempt)) => attempt,
            Ok(None) => {
                return problem(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the proxy is shutting down",
                );
            }
            Err(_) => return self.reload_continues(),
        };
        let snapshot = self.active_policy.load();
        let mut document = json!({
            "result": outcome_name(&attempt.outcome),
            "policy": snapshot.policy.name(),
            "revision": snapshot.policy.revision(),
        });
        if let (Some(outcome), Some(shadow)) = (&attempt.shadow, &snapshot.shadow) {
            let shadow = json!({
                "result": outcome_name(outcome),
                "policy": shadow.policy.name(),
                "revision": shadow.policy.revision(),
                "problems": problems_to_json(outcome.problems()),
            });
            response::extend(&mut document, &json!({ "shadow": shadow }));
        }
        let status = match &attempt.outcome {
            ReloadOutcome::Loaded {
                previous_revision,
                warnings,
            } => {
                response::extend(
                    &mut document,
                    &json!({ "before": previous_revision, "problems": problems_to_json(warnings) }),
                );
                StatusCode::OK
            }
            ReloadOutcome::Unchanged => StatusCode::OK,
            ReloadOutcome::NoSource => {
                let detail =
                    "the built-in policy is active; name a file in policy.path and restart";
                response::extend(&mut document, &json!({ "detail": detail }));
                StatusCode::OK
            }
            ReloadOutcome::Refused(problems) => {
                let detail = "the policy was not loaded; the previous one remains active";
                response::extend(
                    &mut document,
                    &json!({ "detail": detail, "problems": problems_to_json(problems) }),
                );
                return response::problem_with(StatusCode::UNPROCESSABLE_ENTITY, &document);
            }
        };
        response::json(status, &document)
    }

    fn reload_continues(&self) -> Response<Full<Bytes>> {
        let snapshot = self.active_policy.load();
        let document = json!({
            "result": "pending",
            "policy": snapshot.policy.name(),
            "revision": snapshot.policy.revision(),
            "detail": "the reload goes on; its result will be last_reload of /api/v1/policy",
        });
        response::json(StatusCode::ACCEPTED, &document)
    }
}

/// The time after which a reload is answered without its result: before the connection's own time limit.
const RELOAD_ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) fn attempt_to_json(attempt: &ReloadAttempt) -> Json {
    json!({
        "at": Rfc3339(attempt.at).to_string(),
        "trigger": attempt.trigger.to_string(),
        "result": outcome_name(&attempt.outcome),
        "problems": problems_to_json(attempt.outcome.problems()),
    })
}

pub(super) fn outcome_name(outcome: &ReloadOutcome) -> &'static str {
    match outcome {
        ReloadOutcome::Loaded { .. } => "loaded",
        ReloadOutcome::Unchanged | ReloadOutcome::NoSource => "unchanged",
        ReloadOutcome::Refused(_) => "refused",
    }
}

pub(super) fn problems_to_json(problems: &[Problem]) -> Vec<Json> {
    problems.iter().map(Problem::to_json).collect()
}
