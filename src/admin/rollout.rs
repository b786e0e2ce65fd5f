//! Changes of the policy while the proxy runs, and earlier policies: `/api/v1/shadow/policy`, `/api/v1/shadow/promote`,
//! `/api/v1/policy/history` and `/api/v1/policy/rollback`.
//!
//! A policy arrives as text. No path in a request is opened: paths name files inside the policy that was sent.

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::time::{Sleep, sleep};

use crate::clock::Rfc3339;
use crate::pacing::stops::StopReason;
use crate::pipeline::rollout::{
    ChangeTurn, PolicyChangeError, PolicyChangeReport, PolicyChangeRequest, RolloutAction,
    RolloutHandle,
};
use crate::policy::source::PolicyFileSet;
use crate::store::policies::{ChangeAuthor, PolicyActivation, PolicyStore};

use super::api_request::{
    ApiError, ApiResult, RequestBody, parse_object, read_body, read_object, run_blocking,
    shorten_message,
};
use super::policy_api::{PolicyApi, problems_to_json};
use super::query::{parse_query, reject_duplicates, unknown_parameter};
use super::response::{self, problem, problem_with};

/// The longest body with a policy.
const MAX_POLICY_BODY_BYTES: usize = PolicyFileSet::MAX_BYTES;
/// The longest body of the other requests.
const MAX_BODY_BYTES: usize = 16 << 10;
/// The time after which a request is answered without the result of its change: before the connection's own time limit, so
/// that a slow upload gets an answer, too.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// The part of the API that changes the policy.
#[derive(Clone, Debug)]
pub struct RolloutApi {
    /// The policies that are kept, or the reason why none are.
    policies: Result<Arc<PolicyStore>, Arc<str>>,
    changes: RolloutHandle,
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
        Self { policies, changes }
    }

    /// `PUT /api/v1/shadow/policy` with `{"policy", "files", "reason"}`: 200 with the shadow policy, which survives reloads
    /// and restarts; 422 with the problems of the policy.
    pub(super) async fn set_shadow(&self, author: ChangeAuthor, body: RequestBody) -> ApiResult {
        // Before the body is read, so that at most one large body is in memory.
        let Some(turn) = self.changes.try_begin() else {
            return Ok(busy());
        };
        let mut deadline = pin!(sleep(ANSWER_TIMEOUT));
        let body = tokio::select! {
            body = read_body(body, MAX_POLICY_BODY_BYTES) => body?,
            () = &mut deadline => return Ok(too_slow()),
        };
        // Tens of megabytes of JSON.
        let (files, reason) = run_blocking(move || parse_set_request(&body)).await??;
        let request = PolicyChangeRequest {
            action: RolloutAction::SetShadow(files),
            author,
            reason,
        };
        Ok(answer("set", request, turn, deadline).await)
    }

    /// `DELETE /api/v1/shadow/policy?reason=`: 200 with the shadow policy that was cleared.
    pub(super) async fn clear_shadow(
        &self,
        author: ChangeAuthor,
        query: Option<&str>,
    ) -> ApiResult {
        let reason = parse_reason_parameter(query)?;
        let Some(turn) = self.changes.try_begin() else {
            return Ok(busy());
        };
        let request = PolicyChangeRequest {
            action: RolloutAction::ClearShadow,
            author,
            reason,
        };
        let deadline = pin!(sleep(ANSWER_TIMEOUT));
        Ok(answer("cleared", request, turn, deadline).await)
    }

    /// `POST /api/v1/shadow/promote` with `{"reason", "revision"}`: 200 with the policy that is active now; 409 if its files
    /// cannot be written.
    pub(super) async fn promote(&self, author: ChangeAuthor, body: RequestBody) -> ApiResult {
        let action = |revision| RolloutAction::Promote { revision };
        self.activate("promoted", author, body, action).await
    }

    /// `POST /api/v1/policy/rollback` with `{"reason", "revision"}`: 200 with the policy that is active again.
    pub(super) async fn roll_back(&self, author: ChangeAuthor, body: RequestBody) -> ApiResult {
        let action = |revision| RolloutAction::RollBack { revision };
        self.activate("rolled_back", author, body, action).await
    }

    async fn activate(
        &self,
        result: &'static str,
        author: ChangeAuthor,
        body: RequestBody,
        action: impl FnOnce(Option<String>) -> RolloutAction,
    ) -> ApiResult {
        let content = "with `reason`, and optionally `revision`";
        let body: ActivationRequest = read_object(body, MAX_BODY_BYTES, content).await?;
        let reason = parse_reason(&body.reason)?;
        let Some(turn) = self.changes.try_begin() else {
            return Ok(busy());
        };
        let request = PolicyChangeRequest {
            action: action(body.revision),
            author,
            reason: Some(reason),
        };
        let deadline = pin!(sleep(ANSWER_TIMEOUT));
        Ok(answer(result, request, turn, deadline).await)
    }

    /// `GET /api/v1/policy/history`: the policies that came in force, the latest first.
    pub(super) async fn show_history(&self, policy: &PolicyApi) -> ApiResult {
        let policies = match &self.policies {
            Ok(policies) => Arc::clone(policies),
            Err(error) => return Ok(conflict(error)),
        };
        let active = policy.active_policy.load();
        let document = run_blocking(move || history_to_json(&policies, active.policy.revision()));
        Ok(response::json(StatusCode::OK, &document.await?))
    }
}

/// Requests a change, and answers with its result: under `name`, if it was made. The change goes on after the deadline.
async fn answer(
    name: &'static str,
    request: PolicyChangeRequest,
    turn: ChangeTurn,
    deadline: Pin<&mut Sleep>,
) -> Response<Full<Bytes>> {
    let result = tokio::select! {
        biased;
        result = turn.request(request) => result,
        () = deadline => return pending(),
    };
    match result {
        Some(Ok(report)) => response::json(StatusCode::OK, &report_to_json(name, &report)),
        Some(Err(error)) => error_response(&error),
        None => problem(
            StatusCode::SERVICE_UNAVAILABLE,
            "the proxy is shutting down",
        ),
    }
}

fn pending() -> Response<Full<Bytes>> {
    response::json(
        StatusCode::ACCEPTED,
        &json!({
            "result": "pending",
            "detail": "the change goes on, and others are refused until it ends; GET /api/v1/policy/history and GET /api/v1/shadow \
                       will show its result",
        }),
    )
}

fn too_slow() -> Response<Full<Bytes>> {
    problem(
        StatusCode::REQUEST_TIMEOUT,
        "the policy did not arrive within 20 s; nothing was changed",
    )
}

fn parse_set_request(body: &[u8]) -> Result<(PolicyFileSet, Option<String>), ApiError> {
    let request: SetShadowRequest =
        parse_object(body, "with `files`, and optionally `policy` and `reason`")?;
    let reason = request.reason.as_deref().map(parse_reason).transpose()?;
    let mut files = BTreeMap::new();
    for (path, content) in request.files {
        let bytes = match content {
            FileContent::Text(text) => text.into_bytes(),
            FileContent::Encoded(encoded) => STANDARD
                .decode(encoded.base64)
                .map_err(|_| ApiError::Invalid("`base64` is not Base64".to_owned()))?,
        };
        files.insert(path, bytes);
    }
    if files.is_empty() {
        return Err(ApiError::Invalid("`files` names no file".to_owned()));
    }
    let files = PolicyFileSet::new(request.policy, files)
        .map_err(|error| ApiError::Invalid(format!("`files`: {}", shorten_message(&error))))?;
    Ok((files, reason))
}

fn parse_reason(text: &str) -> Result<String, ApiError> {
    StopReason::new(text)
        .map(|reason| reason.as_str().to_owned())
        .map_err(|error| ApiError::Invalid(format!("`reason`: {error}")))
}

fn parse_reason_parameter(query: Option<&str>) -> Result<Option<String>, ApiError> {
    let mut reason = None;
    for (key, value) in reject_duplicates(parse_query(query)?, &["reason"])? {
        if key != "reason" {
            return Err(unknown_parameter(&["reason"]));
        }
        reason = Some(parse_reason(&value)?);
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
    json!({
        "policies": entries.collect::<Vec<_>>(),
        "before": policies.revision_before(active),
    })
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

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio::sync::Semaphore;

    use super::*;

    /// A body of which nothing arrives.
    struct SilentBody;

    impl http_body::Body for SilentBody {
        type Data = Bytes;
        type Error = hyper::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, hyper::Error>>> {
            std::task::Poll::Pending
        }
    }

    fn body(text: &'static str) -> RequestBody {
        let whole = Full::from(text).map_err(|never| match never {});
        whole.boxed_unsync()
    }

    /// Creates an API whose changes end, one for each permit, with the reason of their request as the name of the policy.
    fn slow_api() -> (RolloutApi, Arc<Semaphore>) {
        let (changes, queue) = RolloutHandle::new();
        let permits = Arc::new(Semaphore::new(0));
        let ended = Arc::clone(&permits);
        tokio::spawn(queue.serve(move |request| {
            let ended = Arc::clone(&ended);
            async move {
                ended.acquire().await.unwrap().forget();
                Ok(PolicyChangeReport {
                    name: request.reason.unwrap_or_default(),
                    revision: "00000001".to_owned(),
                    previous_revision: None,
                    warnings: Vec::new(),
                    written_files: Vec::new(),
                })
            }
        }));
        (RolloutApi::new(Err("no store".into()), changes), permits)
    }

    async fn roll_back(api: &RolloutApi) -> StatusCode {
        let body = body(r#"{"reason": "x"}"#);
        let response = api.roll_back(ChangeAuthor::default(), body).await;
        response.unwrap().status()
    }

    #[tokio::test(start_paused = true)]
    async fn one_change_at_a_time_also_after_its_answer() {
        let (api, permits) = slow_api();
        assert_eq!(roll_back(&api).await, StatusCode::ACCEPTED);
        // Its client has its answer, and the change goes on.
        assert_eq!(roll_back(&api).await, StatusCode::CONFLICT);
        let cleared = api.clear_shadow(ChangeAuthor::default(), None).await;
        assert_eq!(cleared.unwrap().status(), StatusCode::CONFLICT);
        let set = api.set_shadow(ChangeAuthor::default(), body("{}")).await;
        assert_eq!(set.unwrap().status(), StatusCode::CONFLICT);
        permits.add_permits(2);
        while api.changes.try_begin().is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(roll_back(&api).await, StatusCode::OK);
        // A client that leaves does not end its change either.
        let left = tokio::time::timeout(Duration::from_secs(1), roll_back(&api)).await;
        assert!(left.is_err());
        assert_eq!(roll_back(&api).await, StatusCode::CONFLICT);
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_that_does_not_end_holds_up_others_for_a_while_only() {
        let (api, _permits) = slow_api();
        let response = api
            .set_shadow(ChangeAuthor::default(), SilentBody.boxed_unsync())
            .await;
        assert_eq!(response.unwrap().status(), StatusCode::REQUEST_TIMEOUT);
        assert!(api.changes.try_begin().is_some());
    }
}
