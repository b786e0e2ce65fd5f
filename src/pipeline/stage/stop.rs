//! Stops: what an operator has stopped waits for the end of the stop, and is refused if that takes too long. Checked
//! before robots.txt is fetched, before the wait for the host's turn, and once more after it, since a stop may be given
//! while a request waits.
//!
//! A reload does not end this wait: a request is evaluated again once no stop covers it, before anything is sent to its
//! host. One that a stop refuses is refused as stopped, even if the new policy refuses it as well.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Rfc3339;
use crate::model::crawler::Crawler;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pacing::retry_after::{DEFAULT_RETRY_AFTER, retry_after_of_wait};
use crate::pacing::stops::{EmergencyStop, StopQuery};
use crate::pipeline::admission::{AdmissionQueue, Arrival, StopWaitRequest};
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::facts::EvaluationFacts;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::robots_fetch::{RobotsFetchRequest, RobotsProvider};
use crate::pipeline::stop_registry::{StopRefusal, wall_time};
use crate::policy::options::politeness::PolitenessOption;
use crate::robots::state::RobotsState;

use super::pace::{self, WaitContext};
use super::robots;

/// The `Retry-After` of a stop without an end.
const ENDLESS_STOP_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The properties of a request or a tunnel that a stop may match.
struct StopSubject<'a> {
    host: &'a str,
    crawler: &'a Crawler,
    /// The rules that matched or decided, each once.
    rules: Vec<&'a str>,
}

impl<'a> StopSubject<'a> {
    fn new<F: EvaluationFacts>(evaluation: &'a Evaluation<F>) -> Self {
        let matched = evaluation.matched_rules();
        let cause = evaluation.cause().filter(|cause| !matched.contains(cause));
        let rules = matched.iter().copied().chain(cause);
        Self {
            host: evaluation.facts().host(),
            crawler: evaluation.facts().crawler(),
            rules: rules
                .filter_map(|rule| evaluation.policy().rule_id(rule))
                .collect(),
        }
    }

    fn query(&self) -> StopQuery<'_> {
        StopQuery {
            host: self.host,
            crawler: Some(self.crawler.as_str()),
            rules: &self.rules,
        }
    }
}

/// Waits until no stop covers the request, if any does.
pub(crate) async fn wait_for_stops<F: EvaluationFacts>(
    evaluation: &Evaluation<F>,
    admission: &AdmissionQueue,
    arrival: &mut Option<Arrival>,
    max_wait: impl Fn() -> Duration,
) -> Result<(), Box<Refusal>> {
    if admission.stops().is_clear() {
        return Ok(());
    }
    let subject = StopSubject::new(evaluation);
    let request = StopWaitRequest {
        coverage: subject.query(),
        crawler: subject.crawler,
        resource: evaluation.facts().resource(),
        overflow: PolitenessOption::new(evaluation.policy(), evaluation.trail()).overflow(),
    };
    // Boxed, so that the future of a request that no stop covers stays small.
    let result = Box::pin(admission.wait_for_stops(&request, arrival, max_wait())).await;
    result.map_err(|stopped| evaluation.refuse(refusal(stopped)))
}

/// Waits until no stop covers the request, before its host's robots.txt is fetched.
pub(crate) async fn wait_before_robots<R: RobotsProvider>(
    evaluation: &Evaluation,
    robots: &R,
    wait: &WaitContext<'_>,
    arrival: &mut Option<Arrival>,
) -> Result<(), Box<Refusal>> {
    if wait.admission.stops().is_clear() || !robots::must_fetch(evaluation, robots) {
        return Ok(());
    }
    // Boxed, so that the future of a request that no stop covers stays small.
    Box::pin(wait_for_stops(evaluation, wait.admission, arrival, || {
        pace::max_wait(evaluation, wait)
    }))
    .await
}

/// Returns the robots.txt in the cache, even an expired one, for a request that reads it while a stop covers the request: nothing
/// is sent to the host, so there is nothing to wait for.
pub(crate) fn robots_txt_while_stopped<R: RobotsProvider>(
    evaluation: &Evaluation,
    robots: &R,
    admission: &AdmissionQueue,
) -> Option<Arc<RobotsState>> {
    if !evaluation.facts().reads_robots_txt() {
        return None;
    }
    current_refusal(evaluation, admission)?;
    robots.last_known(&evaluation.facts().target, evaluation.verify())
}

/// Waits until no stop covers a host, to fetch its robots.txt. The file serves all crawlers, so a stop of one crawler
/// does not count. Returns the rest of `max_wait`; `None` if the host is still stopped at its end.
pub(crate) async fn wait_for_host_stops(
    host: &str,
    request: &RobotsFetchRequest,
    max_wait: Duration,
) -> Option<Duration> {
    let stops = request.admission.stops();
    if stops.is_clear() {
        return Some(max_wait);
    }
    stops
        .wait_until_lifted_for(&host_query(host), &request.crawler, max_wait)
        .await
        .ok()
}

/// Returns `true` if a stop covers a host for all crawlers.
pub(crate) fn is_host_stopped(host: &str, request: &RobotsFetchRequest) -> bool {
    let stops = request.admission.stops();
    !stops.is_clear() && stops.find_refusal(&host_query(host)).is_some()
}

fn host_query(host: &str) -> StopQuery<'_> {
    StopQuery {
        host,
        crawler: None,
        rules: &[],
    }
}

/// Returns the refusal of what a stop covers now: the stop was given while the request waited for its turn, or while the
/// tunnel was open.
pub(crate) fn current_refusal<F: EvaluationFacts>(
    evaluation: &Evaluation<F>,
    admission: &AdmissionQueue,
) -> Option<Refusal> {
    if admission.stops().is_clear() {
        return None;
    }
    let subject = StopSubject::new(evaluation);
    let stopped = admission.stops().find_refusal(&subject.query())?;
    Some(*evaluation.refuse(refusal(stopped)))
}

fn refusal(stop_refusal: StopRefusal) -> Refusal {
    match stop_refusal {
        StopRefusal::Stopped {
            stop,
            remaining: left,
        } => Refusal {
            retry_after: Some(left.map_or(ENDLESS_STOP_RETRY_AFTER, retry_after_of_wait)),
            ..Refusal::new(Reason::Stopped, Stage::Pace).with_detail(stop_detail(&stop))
        },
        StopRefusal::ShuttingDown => shutdown_refusal(),
    }
}

/// Returns the refusal of a request that is held when the proxy shuts down.
pub(super) fn shutdown_refusal() -> Refusal {
    Refusal {
        retry_after: Some(DEFAULT_RETRY_AFTER),
        ..Refusal::new(Reason::ShuttingDown, Stage::Pace)
    }
}

/// Formats `host:a.example is stopped until 2026-01-01T01:00:00.000Z: too fast`.
fn stop_detail(stop: &EmergencyStop) -> String {
    let until = stop.until.map_or(String::new(), |until| {
        format!(" until {}", Rfc3339(wall_time(until)))
    });
    format!(
        "{} is stopped{until}: {}",
        stop.target,
        stop.reason.as_str()
    )
}
