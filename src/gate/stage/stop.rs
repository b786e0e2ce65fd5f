//! Stops: what an operator has stopped waits for the end of the stop, then is refused. Checked last of all, with the
//! host's turn: before it, and once more behind it, since a stop may be given while a request waits.

use std::time::Duration;

use crate::clock::Rfc3339;
use crate::gate::hold::{Arrival, Hold, Stoppable};
use crate::gate::judged::Judged;
use crate::gate::refusal::Refusal;
use crate::gate::robots::{Errand, RobotsFiles};
use crate::gate::stops::{Turned, wall_time};
use crate::gate::tunnel::TunnelJudged;
use crate::metrics::record::Keep;
use crate::policy::Policy;
use crate::policy::options::politeness::{Overflow, Politeness};
use crate::policy::rule::RuleIndex;
use crate::politeness::stops::{Covers, Stop};
use crate::vocab::crawler::Crawler;
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;

use super::pace::{self, Waits};
use super::robots;

/// When to come back if the stop has no end.
const SOMETIME: Duration = Duration::from_secs(60);
/// The longest time that a crawler is told: a stop may be lifted before its end.
const LONGEST: Duration = Duration::from_secs(3_600);
/// Whoever takes this proxy's place needs a moment.
const RESTART: Duration = Duration::from_secs(5);

/// What a stop may cover of a request, or of a tunnel.
#[derive(Clone, Copy, Debug)]
pub(in crate::gate) struct Subject<'a> {
    policy: &'a Policy,
    host: &'a str,
    crawler: &'a Crawler,
    what: &'a str,
    matched: &'a [RuleIndex],
    cause: Option<RuleIndex>,
    overflow: Overflow,
    keep: Keep,
}

impl<'a> Subject<'a> {
    /// Of a request.
    pub(in crate::gate) fn request<C>(judged: &'a Judged<C>) -> Self {
        let (policy, asked) = (judged.policy(), &judged.asked);
        Self {
            policy,
            host: asked.target.host(),
            crawler: &asked.crawler,
            what: asked.target.as_str(),
            matched: judged.matched(),
            cause: judged.cause(),
            overflow: Politeness::of(policy, &judged.trail).overflow(),
            keep: judged.keep(Stage::Pace),
        }
    }

    /// Of a tunnel.
    pub(in crate::gate) fn tunnel<C>(judged: &'a TunnelJudged<C>) -> Self {
        let (policy, asked) = (&*judged.snapshot.policy, &judged.asked);
        Self {
            policy,
            host: asked.host.host(),
            crawler: &asked.crawler,
            what: asked.host.host(),
            matched: judged.matched(),
            cause: judged.cause(),
            overflow: Politeness::of(policy, judged.said().0).overflow(),
            keep: judged.keep(),
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

    fn covers<'r>(&self, rules: &'r [&'r str]) -> Covers<'r>
    where
        'a: 'r,
    {
        Covers {
            host: self.host,
            crawler: Some(self.crawler.as_str()),
            rules,
        }
    }
}

/// Waits until nothing stops it, if anything does; who it is, and how long it may wait, is asked only then.
pub(in crate::gate) async fn outlast<'s>(
    subject: impl Fn() -> Subject<'s>,
    hold: &Hold,
    arrival: &mut Option<Arrival>,
    patience: impl Fn() -> Duration,
) -> Result<(), Box<Refusal>> {
    if hold.stops().is_clear() {
        return Ok(());
    }
    let subject = subject();
    let rules = subject.rules();
    let Subject {
        crawler,
        what,
        overflow,
        ..
    } = subject;
    let one = Stoppable {
        covers: subject.covers(&rules),
        crawler,
        what,
        overflow,
    };
    // Boxed, so that those that nothing stops are not as big as those that wait.
    let outlasted = Box::pin(hold.outlast(&one, arrival, patience())).await;
    outlasted.map_err(|turned| Box::new(refusal(turned, subject.keep)))
}

/// Waits until nothing stops it, before anything is asked of the host for it: its robots.txt comes first, if that is not
/// known.
pub(in crate::gate) async fn before_robots<C, R: RobotsFiles>(
    judged: &Judged<C>,
    files: &R,
    waits: &Waits<'_>,
    arrival: &mut Option<Arrival>,
) -> Result<(), Box<Refusal>> {
    if waits.hold.stops().is_clear() || !robots::must_fetch(judged, files) {
        return Ok(());
    }
    let politeness = Politeness::of(judged.policy(), &judged.trail);
    let patience = || pace::longest_wait(&politeness, &judged.asked, waits);
    // Boxed, as there.
    Box::pin(outlast(
        || Subject::request(judged),
        waits.hold,
        arrival,
        patience,
    ))
    .await
}

/// Waits until a robots.txt may be asked of its host: the file serves all crawlers, so a stop of one does not keep it
/// from them. What is left of the patience, if the host is free within it.
pub(in crate::gate) async fn outlast_host(
    host: &str,
    errand: &Errand,
    patience: Duration,
) -> Option<Duration> {
    let stops = errand.hold.stops();
    if stops.is_clear() {
        return Some(patience);
    }
    let covers = Covers {
        host,
        crawler: None,
        rules: &[],
    };
    stops
        .outlast_for(&covers, &errand.crawler, patience)
        .await
        .ok()
}

/// Whether a host is stopped now.
pub(in crate::gate) fn covers_host(host: &str, errand: &Errand) -> bool {
    let stops = errand.hold.stops();
    !stops.is_clear()
        && stops
            .covering(&Covers {
                host,
                crawler: None,
                rules: &[],
            })
            .is_some()
}

/// The refusal of what a stop covers now: it was given while this waited for its turn, or while this was open.
pub(in crate::gate) fn standing<'s>(
    subject: impl Fn() -> Subject<'s>,
    hold: &Hold,
) -> Option<Refusal> {
    if hold.stops().is_clear() {
        return None;
    }
    let subject = subject();
    let rules = subject.rules();
    let turned = hold.stops().covering(&subject.covers(&rules))?;
    Some(refusal(turned, subject.keep))
}

fn refusal(turned: Turned, keep: Keep) -> Refusal {
    match turned {
        Turned::Stopped { stop, left } => {
            let retry_after = Some(retry_after(left));
            let refusal = Refusal {
                retry_after,
                keep,
                ..Refusal::new(Reason::Stopped, Stage::Pace)
            };
            refusal.with_detail(words(&stop))
        }
        Turned::ShuttingDown => {
            let refusal = Refusal::new(Reason::ShuttingDown, Stage::Pace);
            Refusal {
                retry_after: Some(RESTART),
                keep,
                ..refusal
            }
        }
    }
}

/// Whole seconds, rounded up.
fn retry_after(left: Option<Duration>) -> Duration {
    let up =
        |left: Duration| Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0));
    left.map_or(SOMETIME, up)
        .clamp(Duration::from_secs(1), LONGEST)
}

/// `host:a.example is stopped until 2026-01-01T01:00:00.000Z: too fast`.
fn words(stop: &Stop) -> String {
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
