//! Changes of the policy while the proxy runs, and earlier policies: `/api/v1/shadow/policy`, `/api/v1/shadow/promote`,
//! `/api/v1/policy/history` and `/api/v1/policy/rollback`.
//!
//! A policy arrives as text. No path in a request is opened: paths name files inside the policy that was sent.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use tokio::sync::{Mutex, MutexGuard};

use crate::clock::Rfc3339;
use crate::pacing::stops::StopReason;
use crate::pipeline::rollout::{
    PolicyChangeError, PolicyChangeReport, PolicyChangeRequest, RolloutAction, RolloutHandle,
};
use crate::policy::source::PolicyFileSet;
use crate::store::policies::{ChangeAuthor, PolicyActivation, PolicyStore};

use super::api_request::{ApiRequestError, read_body, run_blocking, shorten_message};
use super::policy_api::{PolicyApi, problems_to_json};
use super::query::{ParameterError, parse_query, reject_duplicates};
use super::response::{self, problem, problem_with};

/// The longest body with a policy.
const MAX_POLICY_BODY_BYTES: usize = PolicyFileSet::MAX_BYTES;
/// The longest body of the other requests.
const MAX_BODY_BYTES: usize = 16 << 10;
/// The time after which a change is answered without its result: before the connection's own time limit.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// The part of the API that changes the policy.
#[derive(Clone, Debug)]
pub struct RolloutApi {
    /// The policies that are kept, or the reason why none are.
    policies: Result<Arc<PolicyStore>, Arc<str>>,
    changes: RolloutHandle,
    /// Held by the request that changes the policy, so that at most one large body is in memory.
    change: Arc<Mutex<()>>,
}

/// The body of `PUT /api/v1/shadow/policy`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct SetShadowRequest {
    /// The file that is the policy; without it, the files of a directory make it up.
    #[serde(default)]
    policy: Option<String>,
    files: BTreeMap<String, FileContent>,
    #[serde(default)]
    reason: Option<String>,
}

/// The content of a file.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a text, or an object with `base64`")]
enum FileContent {
    Text(String),
    Encoded(EncodedContent),
}

/// The content of a compressed list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EncodedContent {
    base64: String,
}

/// The body of `POST /api/v1/shadow/promote` and `POST /api/v1/policy/rollback`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct ActivationRequest {
    reason: String,
    #[serde(default)]
    revision: Option<String>,
}

impl RolloutApi {
    /// Creates the API of these policies, or of none for this reason.
    pub fn new(policies: Result<Arc<PolicyStore>, Arc<str>>, changes: RolloutHandle) -> Self {
        Self {
            policies,
            changes,
            change: Arc::default(),
        }
    }

    /// `PUT /api/v1/shadow/policy` with `{"policy", "files", "reason"}`: 200 with the shadow policy, which survives reloads
    /// and restarts; 422 with the problems of the policy.
    pub(super) async fn set_shadow<B>(&self, author: ChangeAuthor, body: B) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let Ok(turn) = self.change.try_lock() else {
            return busy();
        };
        let body = match read_body(body, MAX_POLICY_BODY_BYTES).await {
            Ok(body) => body,
            Err(error) => return error.into_response(),
        };
        // Tens of megabytes of JSON.
        let parsed = run_blocking(move || parse_set_request(&body)).await;
        let (files, reason) = match parsed {
            Some(Ok(parsed)) => parsed,
            Some(Err(error)) => return error.into_response(),
            None => return response::internal_error(),
        };
        let request = PolicyChangeRequest {
            action: RolloutAction::SetShadow(files),
            author,
            reason,
        };
        self.answer("set", request, turn).await
    }

    /// `DELETE /api/v1/shadow/policy?reason=`: 200 with the shadow policy that was cleared.
    pub(super) async fn clear_shadow(
        &self,
        author: ChangeAuthor,
        query: Option<&str>,
    ) -> Response<Full<Bytes>> {
        let reason = match parse_reason_parameter(query) {
            Ok(reason) => reason,
            Err(error) => return error.to_response(),
        };
        let Ok(turn) = self.change.try_lock() else {
            return busy();
        };
        let request = PolicyChangeRequest {
            action: RolloutAction::ClearShadow,
            author,
            reason,
        };
        self.answer("cleared", request, turn).await
    }

    /// `POST /api/v1/shadow/promote` with `{"reason", "revision"}`: 200 with the policy that is active now; 409 if its files
    /// cannot be written.
    pub(super) async fn promote<B>(&self, author: ChangeAuthor, body: B) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let action = |revision| RolloutAction::Promote { revision };
        self.activate("promoted", author, body, action).await
    }

    /// `POST /api/v1/policy/rollback` with `{"reason", "revision"}`: 200 with the policy that is active again.
    pub(super) async fn roll_back<B>(&self, author: ChangeAuthor, body: B) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let action = |revision| RolloutAction::RollBack { revision };
        self.activate("rolled_back", author, body, action).await
    }

    async fn activate<B>(
        &self,
        result: &'static str,
        author: ChangeAuthor,
        body: B,
        action: impl FnOnce(Option<String>) -> RolloutAction,
    ) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let parsed = read_body(body, MAX_BODY_BYTES)
            .await
            .and_then(|body| parse_activation_request(&body));
        let (revision, reason) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => return error.into_response(),
        };
        let Ok(turn) = self.change.try_lock() else {
            return busy();
        };
        let request = PolicyChangeRequest {
            action: action(revision),
            author,
            reason: Some(reason),
        };
        self.answer(result, request, turn).await
    }

    /// Requests a change, and answers with its result: under `name`, if it was made.
    async fn answer(
        &self,
        name: &'static str,
        request: PolicyChangeRequest,
        _turn: MutexGuard<'_, ()>,
    ) -> Response<Full<Bytes>> {
        let change = self.changes.request(request);
        match tokio::time::timeout(ANSWER_TIMEOUT, change).await {
            Ok(Some(Ok(report))) => response::json(StatusCode::OK, &report_to_json(name, &report)),
            Ok(Some(Err(error))) => error_response(&error),
            Ok(None) => problem(
                StatusCode::SERVICE_UNAVAILABLE,
                "the proxy is shutting down",
            ),
            Err(_) => response::json(
                StatusCode::ACCEPTED,
                &json!({
                    "result": "pending",
                    "detail": "the change goes on; GET /api/v1/policy/history and GET /api/v1/shadow will show its result",
                }),
            ),
        }
    }

    /// `GET /api/v1/policy/history`: the policies that came in force, the latest first.
    pub(super) async fn show_history(&self, policy: &PolicyApi) -> Response<Full<Bytes>> {
        let policies = match &self.policies {
            Ok(policies) => Arc::clone(policies),
            Err(error) => return conflict(error),
        };
        let active = policy.active_policy.load();
        let document = run_blocking(move || history_to_json(&policies, active.policy.revision()));
        match document.await {
            Some(document) => response::json(StatusCode::OK, &document),
            None => response::internal_error(),
        }
    }
}

fn parse_set_request(body: &[u8]) -> Result<(PolicyFileSet, Option<String>), ApiRequestError> {
    let request: SetShadowRequest =
        parse_object(body, "`files`, and optionally `policy` and `reason`")?;
    let reason = request.reason.as_deref().map(parse_reason).transpose()?;
    let mut files = BTreeMap::new();
    for (path, content) in request.files {
        let bytes = match content {
            FileContent::Text(text) => text.into_bytes(),
            FileContent::Encoded(encoded) => STANDARD
                .decode(encoded.base64)
                .map_err(|_| ApiRequestError::Invalid("`base64` is not Base64".to_owned()))?,
        };
        files.insert(path, bytes);
    }
    if files.is_empty() {
        return Err(ApiRequestError::Invalid("`files` names no file".to_owned()));
    }
    let files = PolicyFileSet::new(request.policy, files).map_err(|error| {
        ApiRequestError::Invalid(format!("`files`: {}", shorten_message(&error)))
    })?;
    Ok((files, reason))
}

fn parse_activation_request(body: &[u8]) -> Result<(Option<String>, String), ApiRequestError> {
    let request: ActivationRequest = parse_object(body, "`reason`, and optionally `revision`")?;
    Ok((request.revision, parse_reason(&request.reason)?))
}

fn parse_object<T: DeserializeOwned>(body: &[u8], keys: &str) -> Result<T, ApiRequestError> {
    serde_json::from_slice(body).map_err(|error| {
        let error = shorten_message(&error);
        ApiRequestError::Invalid(format!(
            "the body is not a JSON object with {keys}: {error}"
        ))
    })
}

fn parse_reason(text: &str) -> Result<String, ApiRequestError> {
    StopReason::new(text)
        .map(|reason| reason.as_str().to_owned())
        .map_err(|error| ApiRequestError::Invalid(format!("`reason`: {error}")))
}

fn parse_reason_parameter(query: Option<&str>) -> Result<Option<String>, ParameterError> {
    let parameters = reject_duplicates(parse_query(query)?, &["reason"])?;
    let mut reason = None;
    for (key, value) in parameters {
        if key != "reason" {
            return Err(ParameterError::unknown(&["reason"]));
        }
        let valid = StopReason::new(&value)
            .map_err(|error| ParameterError(format!("`reason`: {error}")))?;
        reason = Some(valid.as_str().to_owned());
    }
    Ok(reason)
}

fn report_to_json(result: &str, report: &PolicyChangeReport) -> Json {
    json!({
        "result": result,
        "policy": report.name,
        "revision": report.revision,
        "before": report.previous_revision,
        "written": report.written_files,
        "problems": problems_to_json(&report.warnings),
    })
}

fn error_response(error: &PolicyChangeError) -> Response<Full<Bytes>> {
    match error {
        PolicyChangeError::Refused(detail) => conflict(detail),
        PolicyChangeError::Invalid(problems) => problem_with(
            StatusCode::UNPROCESSABLE_ENTITY,
            &json!({
                "detail": "the policy has errors; nothing was changed",
                "problems": problems_to_json(problems),
            }),
        ),
    }
}

fn conflict(detail: &str) -> Response<Full<Bytes>> {
    problem_with(StatusCode::CONFLICT, &json!({ "detail": detail }))
}

fn busy() -> Response<Full<Bytes>> {
    problem(
        StatusCode::CONFLICT,
        "another change of the policy is in progress; try again when it has ended",
    )
}

/// Returns the policies that came in force, the latest first. Only the last one can be active.
fn history_to_json(policies: &PolicyStore, active: &str) -> Json {
    let activations = policies.activations();
    let last = activations.len().saturating_sub(1);
    let entries = activations
        .iter()
        .enumerate()
        .rev()
        .map(|(index, activation)| {
            let is_active = index == last && activation.revision == active;
            activation_to_json(
                activation,
                is_active,
                policies.is_kept(&activation.revision),
            )
        });
    json!({ "policies": entries.collect::<Vec<_>>() })
}

fn activation_to_json(activation: &PolicyActivation, is_active: bool, is_kept: bool) -> Json {
    json!({
        "policy": activation.name,
        "revision": activation.revision,
        "at": Rfc3339(activation.at()).to_string(),
        "how": activation.cause.as_str(),
        "user": activation.author.user,
        "address": activation.author.address,
        "reason": activation.reason,
        "active": is_active,
        "kept": is_kept,
    })
}
