//! The stop button of the API: `/api/v1/stops` and `/api/v1/stops/{id}`.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderValue, LOCATION};
use http::{Response, StatusCode};
use http_body::Body;
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

use super::api_request::{ApiRequestError, read_body, run_blocking, shorten_message};
use super::response::{self, problem, problem_with};

/// The longest body.
const MAX_BODY_BYTES: usize = 16 << 10;

/// What is stopped, and what could be.
#[derive(Clone, Debug)]
pub struct StopsApi {
    /// The stops.
    pub stops: Arc<StopRegistry>,
    /// The policy, for rules that it does not have.
    pub active_policy: Arc<ActivePolicy>,
    /// The crawlers that are known, for those that are not.
    pub crawlers: Arc<[Crawler]>,
}

/// The body of `POST /api/v1/stops`; a key that stands twice is a mistake, and so is an unknown one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Press {
    what: String,
    reason: String,
    #[serde(default, rename = "for")]
    duration: Option<String>,
}

impl StopsApi {
    /// `GET /api/v1/stops`: what is in force, in the order in which it was given.
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

    /// `POST /api/v1/stops` with `{"what", "reason", "for"}`: 201 with the stop, whether a restart will know of it, and
    /// warnings of what it names and this proxy does not know.
    pub(super) async fn create<B>(&self, body: B) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (target, reason, lasts) = match read_body(body, MAX_BODY_BYTES)
            .await
            .and_then(|bytes| parse_request(&bytes))
        {
            Ok(press) => press,
            Err(mistake) => return mistake.into_response(),
        };
        let warnings = self.warnings_for(&target);
        let stops = Arc::clone(&self.stops);
        let Some(pressed) = run_blocking(move || stops.add(target, reason, lasts)).await else {
            return response::internal_error();
        };
        match pressed {
            Ok(change) => {
                tracing::warn!(
                    id = change.stop.id.0,
                    "{} is stopped: {}",
                    change.stop.target,
                    change.stop.reason.as_str()
                );
                created_response(&change, warnings)
            }
            Err(TooManyStops) => {
                let detail =
                    format!("{MAX_STOPS} stops are in force, as many as there may be; lift one");
                problem_with(StatusCode::CONFLICT, &json!({ "detail": detail }))
            }
        }
    }

    /// `DELETE /api/v1/stops/{id}`: 200 with what was lifted.
    pub(super) async fn lift(&self, id: StopId) -> Response<Full<Bytes>> {
        let stops = Arc::clone(&self.stops);
        let Some(lifted) = run_blocking(move || stops.lift(id)).await else {
            return response::internal_error();
        };
        let Some(change) = lifted else {
            return no_such_stop();
        };
        tracing::warn!(
            id = id.0,
            "{} goes on: its stop was lifted",
            change.stop.target
        );
        response::json(StatusCode::OK, &change_to_json(&change, vec![]))
    }

    /// What this proxy does not know may come with a reload or a restart, so it is no mistake.
    fn warnings_for(&self, target: &StopTarget) -> Vec<String> {
        let doubt = match target {
            StopTarget::Host(_) | StopTarget::Domain(_) => None,
            StopTarget::Crawler(name) => self.crawler_warning(name.as_str()),
            StopTarget::Rule(id) => self.rule_warning(id.as_str()),
        };
        doubt.into_iter().collect()
    }

    fn crawler_warning(&self, name: &str) -> Option<String> {
        let known = self.crawlers.iter().any(|crawler| crawler.as_str() == name);
        (!known && name != Crawler::ANONYMOUS)
            .then(|| format!("no crawler of the configuration is named {name}: this stops nobody"))
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
                "the policy in force has no rule {id}: this stops nothing until it has"
            ));
        };
        let why = match rule.mode {
            EnforcementMode::Disabled => "is disabled",
            EnforcementMode::Shadow => "is in shadow",
            EnforcementMode::Enforce if rule.stage > PolicyStage::Destination => {
                "judges answers, so it applies only when a request has been sent"
            }
            EnforcementMode::Enforce => return None,
        };
        Some(format!("rule {id} {why}: this stops nothing"))
    }
}

fn parse_request(
    body: &[u8],
) -> Result<(StopTarget, StopReason, Option<Duration>), ApiRequestError> {
    let press: Press = serde_json::from_slice(body).map_err(|error| {
        let error = shorten_message(&error);
        ApiRequestError::Invalid(format!(
            "the body is no JSON object with `what`, `reason` and perhaps `for`: {error}"
        ))
    })?;
    let target = StopTarget::parse(&press.what)
        .map_err(|error| ApiRequestError::Invalid(format!("`what`: {error}")))?;
    let reason = StopReason::new(&press.reason)
        .map_err(|error| ApiRequestError::Invalid(format!("`reason`: {error}")))?;
    let lasts = match &press.duration {
        Some(text) => Some(parse_stop_duration(text).ok_or_else(invalid_duration)?),
        None => None,
    };
    Ok((target, reason, lasts))
}

fn invalid_duration() -> ApiRequestError {
    let longest = format_duration(MAX_STOP_DURATION);
    ApiRequestError::Invalid(format!(
        "`for`: write a time such as 90s, 10m, 1h or 7d, at most {longest}, or leave it out"
    ))
}

fn no_such_stop() -> Response<Full<Bytes>> {
    problem(
        StatusCode::NOT_FOUND,
        "no such stop is in force: it was lifted, or has ended",
    )
}

fn created_response(change: &StopChange, warnings: Vec<String>) -> Response<Full<Bytes>> {
    let mut answer = response::json(StatusCode::CREATED, &change_to_json(change, warnings));
    if let Ok(place) = HeaderValue::from_str(&format!("/api/v1/stops/{}", change.stop.id)) {
        answer.headers_mut().insert(LOCATION, place);
    }
    answer
}

/// A stop with what became of it.
fn change_to_json(change: &StopChange, mut warnings: Vec<String>) -> Json {
    if let StopPersistence::InMemory(why) = &change.persistence {
        tracing::warn!("the stops are not kept over a restart: {why}");
        warnings.push(format!("a restart will not know of this: {why}"));
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
    let time = |since_1970| Rfc3339(wall_time(since_1970)).to_string();
    json!({
        "id": stop.id.to_string(),
        "what": stop.target.to_string(),
        "reason": stop.reason.as_str(),
        "since": time(stop.since),
        "until": stop.until.map(time),
    })
}
