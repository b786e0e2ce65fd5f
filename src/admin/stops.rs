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
use crate::gate::snapshot::InForce;
use crate::gate::stops::{
    Change, Kept, LONGEST, MOST, Stop, StopId, StopReason, Stops, Target, TooMany, lasting,
    wall_time,
};
use crate::metrics::policy::PolicyMetrics;
use crate::policy::rule::{Mode, PolicyStage};
use crate::vocab::crawler::Crawler;
use crate::vocab::units::show_duration;

use super::ask::{Mistake, apart, beginning, received};
use super::page::{self, problem, problem_with};

/// The longest body.
const BODY: usize = 16 << 10;

/// What is stopped, and what could be.
#[derive(Clone, Debug)]
pub struct StopsApi {
    /// The stops.
    pub stops: Arc<Stops>,
    /// The policy, for rules that it does not have.
    pub in_force: Arc<InForce<Arc<PolicyMetrics>>>,
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
    lasts: Option<String>,
}

impl StopsApi {
    /// `GET /api/v1/stops`: what is in force, in the order in which it was given.
    pub(super) fn list(&self) -> Response<Full<Bytes>> {
        let stops: Vec<Json> = self.stops.list().iter().map(|stop| shown(stop)).collect();
        page::json(StatusCode::OK, &json!({ "stops": stops }))
    }

    /// `GET /api/v1/stops/{id}`.
    pub(super) fn show(&self, id: StopId) -> Response<Full<Bytes>> {
        match self.stops.list().iter().find(|stop| stop.id == id) {
            Some(stop) => page::json(StatusCode::OK, &shown(stop)),
            None => unknown(),
        }
    }

    /// `POST /api/v1/stops` with `{"what", "reason", "for"}`: 201 with the stop, whether a restart will know of it, and
    /// warnings of what it names and this proxy does not know.
    pub(super) async fn press<B>(&self, body: B) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (target, reason, lasts) =
            match received(body, BODY).await.and_then(|bytes| read(&bytes)) {
                Ok(press) => press,
                Err(mistake) => return mistake.answer(),
            };
        let warnings = self.doubts(&target);
        let stops = Arc::clone(&self.stops);
        let Some(pressed) = apart(move || stops.press(target, reason, lasts)).await else {
            return page::broken();
        };
        match pressed {
            Ok(change) => {
                tracing::warn!(
                    id = change.stop.id.0,
                    "{} is stopped: {}",
                    change.stop.target,
                    change.stop.reason.as_str()
                );
                created(&change, warnings)
            }
            Err(TooMany) => {
                let detail =
                    format!("{MOST} stops are in force, as many as there may be; lift one");
                problem_with(StatusCode::CONFLICT, &json!({ "detail": detail }))
            }
        }
    }

    /// `DELETE /api/v1/stops/{id}`: 200 with what was lifted.
    pub(super) async fn lift(&self, id: StopId) -> Response<Full<Bytes>> {
        let stops = Arc::clone(&self.stops);
        let Some(lifted) = apart(move || stops.lift(id)).await else {
            return page::broken();
        };
        let Some(change) = lifted else {
            return unknown();
        };
        tracing::warn!(
            id = id.0,
            "{} goes on: its stop was lifted",
            change.stop.target
        );
        page::json(StatusCode::OK, &changed(&change, vec![]))
    }

    /// What this proxy does not know may come with a reload or a restart, so it is no mistake.
    fn doubts(&self, target: &Target) -> Vec<String> {
        let doubt = match target {
            Target::Host(_) | Target::Domain(_) => None,
            Target::Crawler(name) => self.doubt_of_crawler(name.as_str()),
            Target::Rule(id) => self.doubt_of_rule(id.as_str()),
        };
        doubt.into_iter().collect()
    }

    fn doubt_of_crawler(&self, name: &str) -> Option<String> {
        let known = self.crawlers.iter().any(|crawler| crawler.as_str() == name);
        (!known && name != Crawler::ANONYMOUS)
            .then(|| format!("no crawler of the configuration is named {name}: this stops nobody"))
    }

    fn doubt_of_rule(&self, id: &str) -> Option<String> {
        let snapshot = self.in_force.load();
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
            Mode::Disabled => "is disabled",
            Mode::Shadow => "is in shadow",
            Mode::Enforce if rule.stage > PolicyStage::Destination => {
                "judges answers, so it applies only when a request has been sent"
            }
            Mode::Enforce => return None,
        };
        Some(format!("rule {id} {why}: this stops nothing"))
    }
}

fn read(body: &[u8]) -> Result<(Target, StopReason, Option<Duration>), Mistake> {
    let press: Press = serde_json::from_slice(body).map_err(|error| {
        let error = beginning(&error);
        Mistake::Words(format!(
            "the body is no JSON object with `what`, `reason` and perhaps `for`: {error}"
        ))
    })?;
    let target =
        Target::parse(&press.what).map_err(|error| Mistake::Words(format!("`what`: {error}")))?;
    let reason = StopReason::new(&press.reason)
        .map_err(|error| Mistake::Words(format!("`reason`: {error}")))?;
    let lasts = match &press.lasts {
        Some(text) => Some(lasting(text).ok_or_else(no_time)?),
        None => None,
    };
    Ok((target, reason, lasts))
}

fn no_time() -> Mistake {
    let longest = show_duration(LONGEST);
    Mistake::Words(format!(
        "`for`: write a time such as 90s, 10m, 1h or 7d, at most {longest}, or leave it out"
    ))
}

fn unknown() -> Response<Full<Bytes>> {
    problem(
        StatusCode::NOT_FOUND,
        "no such stop is in force: it was lifted, or has ended",
    )
}

fn created(change: &Change, warnings: Vec<String>) -> Response<Full<Bytes>> {
    let mut answer = page::json(StatusCode::CREATED, &changed(change, warnings));
    if let Ok(place) = HeaderValue::from_str(&format!("/api/v1/stops/{}", change.stop.id)) {
        answer.headers_mut().insert(LOCATION, place);
    }
    answer
}

/// A stop with what became of it.
fn changed(change: &Change, mut warnings: Vec<String>) -> Json {
    if let Kept::InMemory(why) = &change.kept {
        tracing::warn!("the stops are not kept over a restart: {why}");
        warnings.push(format!("a restart will not know of this: {why}"));
    }
    let mut document = shown(&change.stop);
    let persisted = change.kept == Kept::OnDisk;
    page::extend(
        &mut document,
        &json!({ "persisted": persisted, "warnings": warnings }),
    );
    document
}

fn shown(stop: &Stop) -> Json {
    let time = |since_1970| Rfc3339(wall_time(since_1970)).to_string();
    json!({
        "id": stop.id.to_string(),
        "what": stop.target.to_string(),
        "reason": stop.reason.as_str(),
        "since": time(stop.since),
        "until": stop.until.map(time),
    })
}
