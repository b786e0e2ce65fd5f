//! Waiting for a robots.txt that is being fetched, or could not be: requests are held as they are for their host's turn. A
//! request is refused at once if the next attempt is too late for it. What may change the decision meanwhile ends the wait:
//! the stages run again after a reload, or once a stop covers the request.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

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
/// The time from its arrival that every request waits for the first fetch: one that may not be held at all would otherwise
/// never be the first of its host.
const MIN_FETCH_WAIT: Duration = Duration::from_secs(2);

/// Waits for a fetch, which goes on if the request may not wait for its end. Returns `None` if the stages must run again
/// first.
pub(super) async fn wait_for_fetch(
    evaluation: &Evaluation,
    wait: &WaitContext<'_>,
    arrival: &mut Option<Arrival>,
    fetch: impl Future<Output = Arc<RobotsState>>,
) -> Result<Option<Arc<RobotsState>>, Box<Refusal>> {
    let mut request = wait_request(evaluation, wait);
    request.max_wait = request.max_wait.max(MIN_FETCH_WAIT);
    let event = unless_changed(evaluation, wait, fetch);
    let result = wait
        .admission
        .wait_for_robots(&request, arrival, event)
        .await;
    result.map_err(|end| {
        let refusal = Refusal::new(Reason::RobotsUnreachable, Stage::Robots)
            .with_detail("the host's robots.txt is still being fetched")
            .with_retry_after(Some(MIN_ATTEMPT_DELAY));
        end_refusal(end, evaluation, wait.admission, refusal)
    })
}

/// Holds a request until the next attempt is due, or the stages must run again for another cause; refuses it if the attempt
/// is too late.
pub(super) async fn wait_for_next_attempt(
    evaluation: &Evaluation,
    wait: &WaitContext<'_>,
    arrival: &mut Option<Arrival>,
    state: &RobotsState,
    refusal: Refusal,
) -> Result<(), Box<Refusal>> {
    let politeness = PolitenessOption::new(evaluation.policy(), evaluation.trail());
    if politeness.overflow() == Overflow::Refuse {
        return Err(evaluation.refuse(refusal));
    }
    let request = wait_request(evaluation, wait);
    let time = time_to_next_attempt(evaluation, state, wait.admission);
    let at = wait.admission.now() + time;
    let result = match wait.admission.check_robots_wait(&request, *arrival, at) {
        Ok(()) => {
            let event = unless_changed(evaluation, wait, tokio::time::sleep(time));
            let waited = wait.admission.wait_for_robots(&request, arrival, event);
            waited.await.map(|_| ())
        }
        Err(end) => Err(end),
    };
    result.map_err(|end| end_refusal(end, evaluation, wait.admission, refusal))
}

/// Waits for `event`. Returns `None` if another policy is active before, or a stop covers the request.
async fn unless_changed<T>(
    evaluation: &Evaluation,
    wait: &WaitContext<'_>,
    event: impl Future<Output = T>,
) -> Option<T> {
    let mut policies = wait.active_policy.subscribe();
    let reloaded = async {
        // Checked after subscribing, since the policy may have changed before.
        if wait
            .active_policy
            .newer_than(evaluation.snapshot())
            .is_none()
        {
            let _ = policies.changed().await;
        }
    };
    let mut stops = wait.admission.stops().subscribe();
    let stopped = async {
        while stop::current_refusal(evaluation, wait.admission).is_none() {
            if stops.changed().await.is_err() {
                pending::<()>().await;
            }
        }
    };
    tokio::select! {
        biased;
        value = event => Some(value),
        () = reloaded => None,
        () = stopped => None,
    }
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

fn wait_request<'a>(evaluation: &'a Evaluation, wait: &WaitContext<'_>) -> RobotsWaitRequest<'a> {
    let facts = evaluation.facts();
    RobotsWaitRequest {
        host: facts.target.host(),
        crawler: &facts.crawler,
        resource: facts.target.as_str(),
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
