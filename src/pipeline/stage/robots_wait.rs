//! Waiting for a robots.txt that could not be fetched: requests are held until the fetch is tried again, as they are for
//! their host's turn. A request is refused at once if the next attempt is too late for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::admission::{AdmissionQueue, Arrival, RobotsWaitEnd, RobotsWaitRequest};
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::refusal::Refusal;
use crate::policy::options::politeness::{Overflow, PolitenessOption};
use crate::robots::state::RobotsState;

use super::pace::{self, WaitContext};
use super::stop;

/// The time until the next attempt, if the last one ended without contacting the host.
const MIN_ATTEMPT_DELAY: Duration = Duration::from_secs(1);

/// Waits for a fetch. A request that has been held before waits no longer than it may be held.
pub(super) async fn fetched(
    evaluation: &Evaluation,
    wait: &WaitContext<'_>,
    arrival: &mut Option<Arrival>,
    fetch: impl Future<Output = Arc<RobotsState>>,
) -> Result<Arc<RobotsState>, Box<Refusal>> {
    if arrival.is_none() {
        return Ok(fetch.await);
    }
    let request = wait_request(evaluation, wait, wait.admission.now());
    let result = wait
        .admission
        .wait_for_robots(&request, arrival, fetch)
        .await;
    result.map_err(|end| {
        let refusal = Refusal::new(Reason::RobotsUnreachable, Stage::Robots)
            .with_detail("the host's robots.txt is still being fetched")
            .with_retry_after(Some(MIN_ATTEMPT_DELAY));
        end_refusal(end, evaluation, wait.admission, refusal)
    })
}

/// Holds a request, which has waited since `since`, until the next attempt is due; refuses it if that is too late.
pub(super) async fn next_attempt(
    evaluation: &Evaluation,
    wait: &WaitContext<'_>,
    arrival: &mut Option<Arrival>,
    since: Instant,
    state: &RobotsState,
    refusal: Refusal,
) -> Result<(), Box<Refusal>> {
    let politeness = PolitenessOption::new(evaluation.policy(), evaluation.trail());
    if politeness.overflow() == Overflow::Refuse {
        return Err(evaluation.refuse(refusal));
    }
    let request = wait_request(evaluation, wait, since);
    let at = wait.admission.now() + time_to_next_attempt(evaluation, state, wait.admission);
    let result = wait
        .admission
        .wait_for_robots_attempt(&request, arrival, at)
        .await;
    result.map_err(|end| end_refusal(end, evaluation, wait.admission, refusal))
}

/// Returns the time until robots.txt is fetched again, which is not done during a backoff of the host.
pub(super) fn time_to_next_attempt(
    evaluation: &Evaluation,
    state: &RobotsState,
    admission: &AdmissionQueue,
) -> Duration {
    let due = state
        .fresh_until()
        .saturating_duration_since(admission.now());
    let key = PolitenessOption::new(evaluation.policy(), evaluation.trail()).key();
    let name = pace::pace_name(key, None, evaluation.facts().target.host());
    let wait = due.max(admission.backoff_remaining(name));
    if wait.is_zero() {
        MIN_ATTEMPT_DELAY
    } else {
        wait
    }
}

fn wait_request<'a>(
    evaluation: &'a Evaluation,
    wait: &WaitContext<'_>,
    since: Instant,
) -> RobotsWaitRequest<'a> {
    let facts = evaluation.facts();
    RobotsWaitRequest {
        host: facts.target.host(),
        crawler: &facts.crawler,
        resource: facts.target.as_str(),
        since,
        max_wait: pace::max_wait(evaluation, wait),
    }
}

/// Returns the refusal at the end of a wait; `refusal` if it was too long.
fn end_refusal(
    end: RobotsWaitEnd,
    evaluation: &Evaluation,
    admission: &AdmissionQueue,
    refusal: Refusal,
) -> Box<Refusal> {
    match end {
        RobotsWaitEnd::TimedOut => {
            let stopped = stop::current_refusal(evaluation, admission);
            stopped.map_or_else(|| evaluation.refuse(refusal), Box::new)
        }
        RobotsWaitEnd::ShuttingDown => evaluation.refuse(stop::shutdown_refusal()),
    }
}
