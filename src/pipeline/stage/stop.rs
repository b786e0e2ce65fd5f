//! Stops: what an operator has stopped waits for the end of the stop, then is refused. Checked last of all, with the
//! host's turn: before it, and once more behind it, since a stop may be given while a request waits.

use std::time::Duration;

use crate::clock::Rfc3339;
use crate::metrics::record::UrlRetention;
use crate::model::crawler::Crawler;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pacing::stops::{EmergencyStop, StopQuery};
use crate::pipeline::admission::{AdmissionQueue, Arrival, StopWaitRequest};
use crate::pipeline::evaluation::Evaluation;
use crate::pipeline::refusal::Refusal;
use crate::pipeline::robots_fetch::{RobotsFetchRequest, RobotsProvider};
use crate::pipeline::stop_registry::{StopRefusal, wall_time};
use crate::pipeline::tunnel::TunnelEvaluation;
use crate::policy::Policy;
use crate::policy::options::politeness::{Overflow, PolitenessOption};
use crate::policy::rule::RuleIndex;

use super::pace::{self, WaitContext};
use super::robots;

/// When to come back if the stop has no end.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(60);
/// The longest time that a crawler is told: a stop may be lifted before its end.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3_600);
/// Whoever takes this proxy's place needs a moment.
const RESTART_RETRY_AFTER: Duration = Duration::from_secs(5);

/// What a stop may cover of a request, or of a tunnel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StopSubject<'a> {
    policy: &'a Policy,
    host: &'a str,
    crawler: &'a Crawler,
    resource: &'a str,
    matched: &'a [RuleIndex],
    cause: Option<RuleIndex>,
    overflow: Overflow,
    url_detail: UrlRetention,
}

impl<'a> StopSubject<'a> {
    /// Of a request.
    pub(crate) fn for_request(evaluation: &'a Evaluation) -> Self {
        let (policy, asked) = (evaluation.policy(), &evaluation.facts);
        Self {
            policy,
            host: asked.target.host(),
            crawler: &asked.crawler,
            resource: asked.target.as_str(),
            matched: evaluation.matched_rules(),
            cause: evaluation.cause(),
            overflow: PolitenessOption::new(policy, &evaluation.trail).overflow(),
            url_detail: evaluation.url_detail(Stage::Pace),
        }
    }

    /// Of a tunnel.
    pub(crate) fn for_tunnel(evaluation: &'a TunnelEvaluation) -> Self {
        let (policy, asked) = (&*evaluation.snapshot.policy, &evaluation.facts);
        Self {
            policy,
            host: asked.host.host(),
            crawler: &asked.crawler,
            resource: asked.host.host(),
            matched: evaluation.matched_rules(),
            cause: evaluation.cause(),
            overflow: PolitenessOption::new(policy, evaluation.trail_and_decision().0).overflow(),
            url_detail: evaluation.url_detail(),
        }
    }

    /// The rules that applied, each once.
    fn rules(&self) -> Vec<&'a str> {
        let cause = self.cause.filter(|cause| !self.matched.contains(cause));
        let rules = self.matched.iter().copied().chain(cause);
        rules
            .filter_map(|rule| self.policy.rule(rule))
            .map(|rule| rule.id.as_str())
            .collect()
    }

    fn coverage<'r>(&self, rules: &'r [&'r str]) -> StopQuery<'r>
    where
        'a: 'r,
    {
        StopQuery {
            host: self.host,
            crawler: Some(self.crawler.as_str()),
            rules,
        }
    }
}

/// Waits until nothing stops it, if anything does; who it is, and how long it may wait, is asked only then.
pub(crate) async fn wait_for_stops<'s>(
    subject: impl Fn() -> StopSubject<'s>,
    admission: &AdmissionQueue,
    arrival: &mut Option<Arrival>,
    patience: impl Fn() -> Duration,
) -> Result<(), Box<Refusal>> {
    if admission.stops().is_clear() {
        return Ok(());
    }
    let subject = subject();
    let rules = subject.rules();
    let StopSubject {
        crawler,
        resource: what,
        overflow,
        ..
    } = subject;
    let one = StopWaitRequest {
        coverage: subject.coverage(&rules),
        crawler,
        resource: what,
        overflow,
    };
    // Boxed, so that those that nothing stops are not as big as those that wait.
    let outlasted = Box::pin(admission.wait_for_stops(&one, arrival, patience())).await;
    outlasted.map_err(|turned| Box::new(refusal(turned, subject.url_detail)))
}

/// Waits until nothing stops it, before anything is asked of the host for it: its robots.txt comes first, if that is not
/// known.
pub(crate) async fn wait_before_robots<R: RobotsProvider>(
    evaluation: &Evaluation,
    files: &R,
    wait: &WaitContext<'_>,
    arrival: &mut Option<Arrival>,
) -> Result<(), Box<Refusal>> {
    if wait.admission.stops().is_clear() || !robots::must_fetch(evaluation, files) {
        return Ok(());
    }
    let politeness = PolitenessOption::new(evaluation.policy(), &evaluation.trail);
    let patience = || pace::longest_wait(&politeness, &evaluation.facts, wait);
    // Boxed, as there.
    Box::pin(wait_for_stops(
        || StopSubject::for_request(evaluation),
        wait.admission,
        arrival,
        patience,
    ))
    .await
}

/// Waits until a robots.txt may be asked of its host: the file serves all crawlers, so a stop of one does not keep it
/// from them. What is left of the patience, if the host is free within it.
pub(crate) async fn wait_for_host_stops(
    host: &str,
    request: &RobotsFetchRequest,
    patience: Duration,
) -> Option<Duration> {
    let stops = request.admission.stops();
    if stops.is_clear() {
        return Some(patience);
    }
    let covers = StopQuery {
        host,
        crawler: None,
        rules: &[],
    };
    stops
        .wait_until_lifted_for(&covers, &request.crawler, patience)
        .await
        .ok()
}

/// Whether a host is stopped now.
pub(crate) fn is_host_stopped(host: &str, request: &RobotsFetchRequest) -> bool {
    let stops = request.admission.stops();
    !stops.is_clear()
        && stops
            .find_refusal(&StopQuery {
                host,
                crawler: None,
                rules: &[],
            })
            .is_some()
}

/// The refusal of what a stop covers now: it was given while this waited for its turn, or while this was open.
pub(crate) fn current_refusal<'s>(
    subject: impl Fn() -> StopSubject<'s>,
    admission: &AdmissionQueue,
) -> Option<Refusal> {
    if admission.stops().is_clear() {
        return None;
    }
    let subject = subject();
    let rules = subject.rules();
    let turned = admission.stops().find_refusal(&subject.coverage(&rules))?;
    Some(refusal(turned, subject.url_detail))
}

fn refusal(stop_refusal: StopRefusal, url_detail: UrlRetention) -> Refusal {
    match stop_refusal {
        StopRefusal::Stopped { stop, left } => {
            let retry_after = Some(retry_after(left));
            let refusal = Refusal {
                retry_after,
                url_detail,
                ..Refusal::new(Reason::Stopped, Stage::Pace)
            };
            refusal.with_detail(stop_detail(&stop))
        }
        StopRefusal::ShuttingDown => {
            let refusal = Refusal::new(Reason::ShuttingDown, Stage::Pace);
            Refusal {
                retry_after: Some(RESTART_RETRY_AFTER),
                url_detail,
                ..refusal
            }
        }
    }
}

/// Whole seconds, rounded up.
fn retry_after(left: Option<Duration>) -> Duration {
    let up =
        |left: Duration| Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0));
    left.map_or(DEFAULT_RETRY_AFTER, up)
        .clamp(Duration::from_secs(1), MAX_RETRY_AFTER)
}

/// `host:a.example is stopped until 2026-01-01T01:00:00.000Z: too fast`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_refused_is_told_when_to_come_back() {
        for (left_ms, seconds) in [
            (None, 60),
            (Some(0), 1),
            (Some(1), 1),
            (Some(1_001), 2),
            (Some(90_000), 90),
            (Some(4_000_000), 3_600),
        ] {
            let told = retry_after(left_ms.map(Duration::from_millis));
            assert_eq!(told, Duration::from_secs(seconds), "{left_ms:?}");
        }
    }
}
