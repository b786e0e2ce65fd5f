//! Emergency stops: `/api/v1/stops` and `/api/v1/stops/{id}`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderValue, LOCATION};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::clock::Rfc3339;
use crate::model::crawler::Crawler;
use crate::model::units::format_duration;
use crate::pipeline::snapshot::ActivePolicy;
use crate::pipeline::stop_registry::{
    EmergencyStop, MAX_STOP_DURATION, MAX_STOPS, StopChange, StopId, StopPersistence, StopReason,
    StopRegistry, StopTarget, TooManyStops, parse_stop_duration, wall_time,
};
use crate::policy::rule::{EnforcementMode, PolicyStage};

use super::api_request::{ApiError, ApiResult, RequestBody, read_object, run_blocking};
use super::response::{self, problem, problem_with};

/// The longest body.
const MAX_BODY_BYTES: usize = 16 << 10;
/// The time in which the store of a fleet usually has a change.
const SHARE_TIMEOUT: Duration = Duration::from_secs(1);

/// The part of the API that shows, adds and lifts stops.
#[derive(Clone, Debug)]
pub struct StopsApi {
    pub stops: Arc<StopRegistry>,
    /// The active policy, to warn of rules that it does not have.
    pub active_policy: Arc<ActivePolicy>,
    /// The configured crawlers, to warn of others.
    pub crawlers: Arc<[Crawler]>,
}

/// The body of `POST /api/v1/stops`. Unknown and repeated keys are errors.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct StopRequest {
    what: String,
    reason: String,
    #[serde(default, rename = "for")]
    duration: Option<String>,
}

impl StopsApi {
    /// `GET /api/v1/stops`: the active stops, in the order in which they were added.
    pub(super) fn list(&self) -> Response<Full<Bytes>> {
        let stops: Vec<Json> = self
            .stops
            .list()
            .iter()
            .map(|stop| stop_to_json(stop))
            .collect();
        response::json(StatusCode::OK, &json!({ "stops": stops }))
    }

    /// `GET /api/v1/stops/{id}`.
    pub(super) fn show(&self, id: StopId) -> Response<Full<Bytes>> {
        match self.stops.list().iter().find(|stop| stop.id == id) {
            Some(stop) => response::json(StatusCode::OK, &stop_to_json(stop)),
            None => no_such_stop(),
        }
    }

    /// `POST /api/v1/stops` with `{"what", "reason", "for"}`: 201 with the stop, `persisted` if it will survive a
    /// restart, and warnings if it names a crawler or rule that is unknown to this proxy.
    pub(super) async fn create(&self, body: RequestBody) -> ApiResult {
        let content = "with `what`, `reason` and optionally `for`";
        let request = read_object(body, MAX_BODY_BYTES, content).await?;
        let (target, reason, duration) = parse_request(&request)?;
        let mut warnings = self.warnings_for(&target);
        let stops = Arc::clone(&self.stops);
        let added = run_blocking(move || stops.add(target, reason, duration)).await?;
        Ok(match added {
            Ok(change) => {
                tracing::warn!(
                    id = change.stop.id.0,
                    "{} is stopped: {}",
                    change.stop.target,
                    change.stop.reason.as_str()
                );
                let consequence = "until the store of the fleet answers, only this node stops it";
                warnings.extend(self.sharing_warning(change.stop.id, consequence).await);
                created_response(&change, warnings)
            }
            Err(TooManyStops) => {
                let detail = format!("{MAX_STOPS} stops are active, which is the limit; lift one");
                problem_with(StatusCode::CONFLICT, &json!({ "detail": detail }))
            }
        })
    }

    /// `DELETE /api/v1/stops/{id}`: 200 with the lifted stop.
    pub(super) async fn lift(&self, id: StopId) -> ApiResult {
        let stops = Arc::clone(&self.stops);
        let Some(change) = run_blocking(move || stops.lift(id)).await? else {
            return Ok(no_such_stop());
        };
        tracing::warn!(id = id.0, "the stop of {} was lifted", change.stop.target);
        let consequence = "until the store of the fleet answers, the other nodes still stop it";
        let warnings = self.sharing_warning(id, consequence).await;
        let document = change_to_json(&change, warnings.into_iter().collect());
        Ok(response::json(StatusCode::OK, &document))
    }

    /// Returns a warning if the other nodes of the fleet do not get a change now.
    async fn sharing_warning(&self, id: StopId, consequence: &str) -> Option<String> {
        let is_shared = self.stops.wait_until_shared(id, SHARE_TIMEOUT).await;
        (!is_shared).then(|| consequence.to_owned())
    }

    /// Returns a warning for an unknown crawler or rule. It is not an error, since a reload or a restart may add it.
    fn warnings_for(&self, target: &StopTarget) -> Vec<String> {
        let warning = match target {
            StopTarget::Host(_) | StopTarget::Domain(_) => None,
            StopTarget::Crawler(name) => self.crawler_warning(name.as_str()),
            StopTarget::Rule(id) => self.rule_warning(id.as_str()),
        };
        warning.into_iter().collect()
    }

    fn crawler_warning(&self, name: &str) -> Option<String> {
        let known = self.crawlers.iter().any(|crawler| crawler.as_str() == name);
        (!known && name != Crawler::ANONYMOUS)
            .then(|| format!("the configuration has no crawler {name}: this stops nothing"))
    }

    fn rule_warning(&self, id: &str) -> Option<String> {
        let snapshot = self.active_policy.load();
        let Some(rule) = snapshot
            .policy
            .rules()
            .iter()
            .find(|rule| rule.id.as_str() == id)
        else {
            return Some(format!(
                "the active policy has no rule {id}: this stops nothing until it has one"
            ));
        };
        let cause = match rule.mode {
            EnforcementMode::Disabled => "is disabled",
            EnforcementMode::Shadow => "is in shadow mode",
            EnforcementMode::Enforce if rule.stage > PolicyStage::Destination => {
                "matches responses, so it applies only after a request has been sent"
            }
            EnforcementMode::Enforce => return None,
        };
        Some(format!("rule {id} {cause}: this stops nothing"))
    }
}

fn parse_request(
    request: &StopRequest,
) -> Result<(StopTarget, StopReason, Option<Duration>), ApiError> {
    let target = StopTarget::parse(&request.what)
        .map_err(|error| ApiError::Invalid(format!("`what`: {error}")))?;
    let reason = StopReason::new(&request.reason)
        .map_err(|error| ApiError::Invalid(format!("`reason`: {error}")))?;
    let duration = match &request.duration {
        Some(text) => Some(parse_stop_duration(text).ok_or_else(invalid_duration)?),
        None => None,
    };
    Ok((target, reason, duration))
}

fn invalid_duration() -> ApiError {
    let longest = format_duration(MAX_STOP_DURATION);
    ApiError::Invalid(format!(
        "`for`: write a duration such as 90s, 10m, 1h or 7d, at most {longest}, or leave it out"
    ))
}

fn no_such_stop() -> Response<Full<Bytes>> {
    problem(
        StatusCode::NOT_FOUND,
        "no such stop is active: it was lifted or has expired",
    )
}

fn created_response(change: &StopChange, warnings: Vec<String>) -> Response<Full<Bytes>> {
    let mut response = response::json(StatusCode::CREATED, &change_to_json(change, warnings));
    if let Ok(location) = HeaderValue::from_str(&format!("/api/v1/stops/{}", change.stop.id)) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// Returns a stop with `persisted` and warnings.
fn change_to_json(change: &StopChange, mut warnings: Vec<String>) -> Json {
    if let StopPersistence::InMemory(cause) = &change.persistence {
        tracing::warn!("this change of the stops will be lost at a restart: {cause}");
        warnings.push(format!("this will be lost at a restart: {cause}"));
    }
    let mut document = stop_to_json(&change.stop);
    let persisted = change.persistence == StopPersistence::OnDisk;
    response::extend(
        &mut document,
        &json!({ "persisted": persisted, "warnings": warnings }),
    );
    document
}

fn stop_to_json(stop: &EmergencyStop) -> Json {
    json!({
        "id": stop.id.to_string(),
        "what": stop.target.to_string(),
        "reason": stop.reason.as_str(),
        "since": Rfc3339(wall_time(stop.since)).to_string(),
        "until": stop.until.map(|until| Rfc3339(wall_time(until)).to_string()),
    })
}
