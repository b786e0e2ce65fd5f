//! A robots.txt that fails for a moment: requests are held while the fetch is tried again. In paused time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crawlgate::clock::Clock;
use crawlgate::model::certificate_verification::CertificateVerification;
use crawlgate::model::crawler::Crawler;
use crawlgate::model::reason::Reason;
use crawlgate::pipeline::admission::AdmissionLimits;
use crawlgate::pipeline::request::{NotSent, RequestServices, admit_request};
use crawlgate::pipeline::robots_fetch::{CachedRobots, RobotsFetchRequest, RobotsProvider};
use crawlgate::pipeline::snapshot::PolicySnapshot;
use crawlgate::pipeline::stop_registry::{StopReason, StopTarget};
use crawlgate::robots::fetch_outcome::RobotsFetchOutcome;
use crawlgate::robots::state::{RobotsFetchResult, RobotsState};
use crawlgate::urls::target::UrlTarget;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::support::pipeline::{KnownRequest, TestPipeline, request_facts, snapshot_of};
use crate::support::policy::compile_policy;

const SECOND: Duration = Duration::from_secs(1);
const HOLD_20: &str = "{ delay: 0s, max_hold: 20s }";

/// The robots.txt of a host, whose fetches have these outcomes one after the other, and then find that there is none.
#[derive(Clone)]
struct FailingRobots {
    clock: Clock,
    script: Arc<Mutex<Script>>,
}

struct Script {
    outcomes: VecDeque<(RobotsFetchOutcome, Duration)>,
    state: Option<Arc<RobotsState>>,
    fetched_at: Vec<Instant>,
}

impl RobotsProvider for FailingRobots {
    fn cached(&self, _: &UrlTarget, _: CertificateVerification) -> Option<CachedRobots> {
        let state = self.script.lock().unwrap().state.clone()?;
        state
            .is_fresh(self.clock.now())
            .then_some(CachedRobots::Fresh(state))
    }

    fn last_known(&self, _: &UrlTarget, _: CertificateVerification) -> Option<Arc<RobotsState>> {
        None
    }

    fn refresh(
        &self,
        _: &UrlTarget,
        _: CertificateVerification,
        _: Option<Instant>,
        _: impl FnOnce() -> RobotsFetchRequest,
    ) {
        panic!("nothing is known");
    }

    async fn fetch(&self, _: &UrlTarget, _: RobotsFetchRequest) -> Arc<RobotsState> {
        let (outcome, time) = {
            let mut script = self.script.lock().unwrap();
            script.fetched_at.push(self.clock.now());
            let none = (RobotsFetchOutcome::Absent, Duration::ZERO);
            script.outcomes.pop_front().unwrap_or(none)
        };
        sleep(time).await;
        let mut script = self.script.lock().unwrap();
        let fetched = RobotsFetchResult::failed(outcome);
        let state = RobotsState::from_fetch(script.state.as_ref(), &fetched, self.clock.now());
        let state = Arc::new(state);
        script.state = Some(Arc::clone(&state));
        state
    }
}

/// A pipeline before a host whose robots.txt fails.
#[derive(Clone)]
struct FailingPipeline {
    bench: TestPipeline,
    robots: FailingRobots,
    began: Instant,
}

/// The result of a request.
#[derive(Debug, PartialEq, Eq)]
struct RequestOutcome {
    /// The reason of the refusal, and the seconds of `Retry-After`.
    refusal: Option<(Reason, Option<u64>)>,
    /// The time since the beginning of the test.
    at: Duration,
    held: Option<Duration>,
}

fn admitted(at: Duration) -> RequestOutcome {
    RequestOutcome {
        refusal: None,
        at,
        held: Some(at),
    }
}

fn refused(
    reason: Reason,
    retry_after: u64,
    at: Duration,
    held: Option<Duration>,
) -> RequestOutcome {
    RequestOutcome {
        refusal: Some((reason, Some(retry_after))),
        at,
        held,
    }
}

fn snapshot(politeness: &str, rest: &str, rules: &str) -> PolicySnapshot {
    let text = format!(
        "policy: 1\nname: p\noptions: {{ disposition: allow, politeness: {politeness}{rest} }}\nrules: [{rules}]\n"
    );
    snapshot_of(compile_policy(text).policy)
}

impl FailingPipeline {
    fn new(politeness: &str, outcomes: &[RobotsFetchOutcome]) -> Self {
        let timed: Vec<_> = outcomes.iter().map(|o| (*o, Duration::ZERO)).collect();
        Self::timed(politeness, &timed)
    }

    fn timed(politeness: &str, outcomes: &[(RobotsFetchOutcome, Duration)]) -> Self {
        let clock = Clock::from_runtime();
        let limits = AdmissionLimits {
            per_host: 3,
            total: 3,
            max_wait: 60 * SECOND,
        };
        let script = Script {
            outcomes: outcomes.iter().copied().collect(),
            state: None,
            fetched_at: vec![],
        };
        Self {
            bench: TestPipeline::new(snapshot(politeness, "", ""), limits, clock.clone()),
            began: clock.now(),
            robots: FailingRobots {
                clock,
                script: Arc::new(Mutex::new(script)),
            },
        }
    }

    async fn get(&self, url: &str) -> RequestOutcome {
        let facts = request_facts(Crawler::anonymous(), url, &[]);
        let services = RequestServices {
            destinations: &self.bench.resolver,
            robots: &self.robots,
            active_policy: &self.bench.active_policy,
            admission: &self.bench.admission,
            ledger: None,
        };
        let policy = self.bench.active_policy.load();
        let result = admit_request(&mut KnownRequest(facts), &mut (), policy, &services)
            .await
            .unwrap();
        RequestOutcome {
            refusal: match result.outcome {
                Ok(_) | Err(NotSent::ServeRobots(_)) => None,
                Err(NotSent::Refuse(refusal)) => Some((
                    refusal.reason,
                    refusal.retry_after.map(|time| time.as_secs()),
                )),
                Err(NotSent::ClientLeft) => panic!("no test has a body"),
            },
            at: self.bench.clock.now() - self.began,
            held: result.wait_time,
        }
    }

    fn start(&self, url: &'static str) -> JoinHandle<RequestOutcome> {
        let pipeline = self.clone();
        tokio::spawn(async move { pipeline.get(url).await })
    }

    /// The times of the fetches, in seconds since the beginning.
    fn attempts(&self) -> Vec<u64> {
        let script = self.robots.script.lock().unwrap();
        let times = script.fetched_at.iter();
        times.map(|at| (*at - self.began).as_secs()).collect()
    }

    fn replace_policy(&self, rest: &str, rules: &str) {
        let policy = snapshot(HOLD_20, rest, rules);
        self.bench.active_policy.replace(policy);
    }

    fn stop(&self) {
        let target = StopTarget::parse("a.test").unwrap();
        let reason = StopReason::new("test").unwrap();
        self.bench.stops().add(target, reason, None).unwrap();
    }
}

const PAGE: &str = "http://a.test/";
const ROBOTS: &str = "http://a.test/robots.txt";
const FAILS: RobotsFetchOutcome = RobotsFetchOutcome::ServerError;

#[tokio::test(start_paused = true)]
async fn a_request_waits_until_the_file_can_be_fetched() {
    for (outcomes, admitted_at, attempts) in [
        (vec![FAILS], 2, vec![0, 2]),
        (vec![RobotsFetchOutcome::Broken, FAILS], 5, vec![0, 2, 5]),
        (
            vec![
                RobotsFetchOutcome::RateLimited,
                FAILS,
                RobotsFetchOutcome::Timeout,
            ],
            15,
            vec![0, 2, 5, 15],
        ),
    ] {
        for url in [PAGE, ROBOTS] {
            let pipeline = FailingPipeline::new(HOLD_20, &outcomes);
            let outcome = pipeline.get(url).await;
            assert_eq!(
                outcome,
                admitted(admitted_at * SECOND),
                "{outcomes:?} {url}"
            );
            assert_eq!(pipeline.attempts(), attempts, "{outcomes:?} {url}");
            assert_eq!(pipeline.bench.metric("crawlgate_held_requests"), 0.0);
        }
    }
}

/// Nothing can change before the next attempt, so a request that it is too late for need not wait for its refusal.
#[tokio::test(start_paused = true)]
async fn a_request_is_refused_when_the_next_attempt_is_too_late() {
    let unreachable = Reason::RobotsUnreachable;
    for (politeness, expected, attempts) in [
        (
            HOLD_20,
            refused(unreachable, 60, 15 * SECOND, Some(15 * SECOND)),
            vec![0, 2, 5, 15],
        ),
        (
            "{ delay: 0s, max_hold: 4s }",
            refused(unreachable, 3, 2 * SECOND, Some(2 * SECOND)),
            vec![0, 2],
        ),
        (
            "{ delay: 0s, max_hold: 1s }",
            refused(unreachable, 2, Duration::ZERO, None),
            vec![0],
        ),
        (
            "{ delay: 0s, max_hold: 20s, overflow: refuse }",
            refused(unreachable, 2, Duration::ZERO, None),
            vec![0],
        ),
    ] {
        let pipeline = FailingPipeline::new(politeness, &[FAILS; 9]);
        assert_eq!(pipeline.get(PAGE).await, expected, "{politeness}");
        assert_eq!(pipeline.attempts(), attempts, "{politeness}");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_the_time_to_the_next_attempt() {
    let pipeline = FailingPipeline::new(HOLD_20, &[FAILS; 9]);
    pipeline.get(PAGE).await;
    sleep(10 * SECOND + SECOND / 2).await;
    let now = 25 * SECOND + SECOND / 2;
    for url in [PAGE, ROBOTS] {
        let expected = refused(Reason::RobotsUnreachable, 50, now, None);
        assert_eq!(pipeline.get(url).await, expected, "{url}");
    }
    assert_eq!(pipeline.attempts(), [0, 2, 5, 15]);
    // It waits for an attempt that comes in time.
    sleep(40 * SECOND).await;
    let outcome = pipeline.start(PAGE);
    sleep(SECOND).await;
    assert_eq!(pipeline.attempts(), [0, 2, 5, 15]);
    assert_eq!(
        outcome.await.unwrap().refusal,
        Some((Reason::RobotsUnreachable, Some(120)))
    );
    assert_eq!(pipeline.attempts(), [0, 2, 5, 15, 75]);
}

#[tokio::test(start_paused = true)]
async fn a_lasting_failure_is_refused_at_once() {
    for (outcome, reason) in [
        (RobotsFetchOutcome::Dns, Reason::RobotsUnreachable),
        (
            RobotsFetchOutcome::ProhibitedRedirect,
            Reason::RobotsUnreachable,
        ),
        (
            RobotsFetchOutcome::UnsupportedCoding,
            Reason::RobotsUnreachable,
        ),
        (RobotsFetchOutcome::Refused, Reason::UpstreamConnect),
    ] {
        let pipeline = FailingPipeline::new(HOLD_20, &[outcome]);
        let expected = refused(reason, 60, Duration::ZERO, None);
        assert_eq!(pipeline.get(PAGE).await, expected, "{outcome:?}");
    }
}

/// An old file does not help if the policy does not use it: the next attempt is a minute away, as after other failures.
#[tokio::test(start_paused = true)]
async fn an_old_file_that_may_not_be_used_ends_the_wait_at_once() {
    for (on_unreachable, refusal) in [
        ("deny", Some((Reason::RobotsUnreachable, Some(60)))),
        ("stale_then_deny", None),
    ] {
        let pipeline = FailingPipeline::new(HOLD_20, &[RobotsFetchOutcome::Absent, FAILS]);
        let robots = format!(", robots: {{ on_unreachable: {on_unreachable} }}");
        let policy = snapshot("{ delay: 0s, max_hold: 90s }", &robots, "");
        pipeline.bench.active_policy.replace(policy);
        assert_eq!(pipeline.get(PAGE).await.refusal, None);
        sleep(25 * 3_600 * SECOND).await;
        let outcome = pipeline.get(PAGE).await;
        let expected = (refusal, 25 * 3_600 * SECOND);
        assert_eq!((outcome.refusal, outcome.at), expected, "{on_unreachable}");
        assert_eq!(pipeline.attempts(), [0, 25 * 3_600]);
    }
}

/// A client expects an answer within the time for which it may be held, and the first fetch is a part of that.
#[tokio::test(start_paused = true)]
async fn slow_fetches_do_not_lengthen_the_wait() {
    let slow = |seconds: u32| (RobotsFetchOutcome::Timeout, seconds * SECOND);
    let pipeline = FailingPipeline::timed(HOLD_20, &[slow(17), slow(20)]);
    let unreachable = Reason::RobotsUnreachable;
    assert_eq!(
        pipeline.get(PAGE).await,
        refused(unreachable, 1, 20 * SECOND, Some(20 * SECOND))
    );
    let pipeline = FailingPipeline::timed(HOLD_20, &[slow(18)]);
    assert_eq!(
        pipeline.get(PAGE).await,
        refused(unreachable, 2, 18 * SECOND, Some(18 * SECOND))
    );
}

/// The fetch goes on for the requests that may wait for it, and for those that come later.
#[tokio::test(start_paused = true)]
async fn a_hanging_fetch_outlasts_no_hold() {
    let unreachable = Reason::RobotsUnreachable;
    let hangs = (RobotsFetchOutcome::Absent, 10 * SECOND);
    for (hold, at) in [("3s", 3), ("0s", 2), ("4s, overflow: refuse", 4)] {
        for url in [PAGE, ROBOTS] {
            let politeness = format!("{{ delay: 0s, max_hold: {hold} }}");
            let pipeline = FailingPipeline::timed(&politeness, &[hangs]);
            let expected = refused(unreachable, 1, at * SECOND, Some(at * SECOND));
            assert_eq!(pipeline.get(url).await, expected, "{hold} {url}");
            assert_eq!(pipeline.bench.metric("crawlgate_held_requests"), 0.0);
        }
    }
    let pipeline = FailingPipeline::timed(HOLD_20, &[hangs]);
    assert_eq!(pipeline.get(PAGE).await, admitted(10 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_reload_does_not_shorten_the_wait_for_the_first_fetch() {
    let unreachable = Reason::RobotsUnreachable;
    for (hold, at) in [("0s", 2), ("1s", 2), ("3s", 3)] {
        let politeness = format!("{{ delay: 0s, max_hold: {hold} }}");
        for (fetch_time, expected) in [
            (
                10 * SECOND,
                refused(unreachable, 1, at * SECOND, Some(at * SECOND)),
            ),
            // The fetches of this test are not shared.
            (SECOND, admitted(SECOND * 3 / 2)),
        ] {
            let slow = (RobotsFetchOutcome::Absent, fetch_time);
            let pipeline = FailingPipeline::timed(&politeness, &[slow; 9]);
            let waiting = pipeline.start(PAGE);
            sleep(SECOND / 2).await;
            let policy = snapshot(&politeness, "", "");
            pipeline.bench.active_policy.replace(policy);
            assert_eq!(waiting.await.unwrap(), expected, "{hold} {fetch_time:?}");
        }
    }
}

/// Requests that wait for the first fetch are woken by the same events as those that wait for another attempt.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_the_first_fetch_is_woken() {
    let hangs = [(RobotsFetchOutcome::Absent, 15 * SECOND)];
    let at_once = |refusal| (refusal, SECOND);
    let refused_at = |outcome: RequestOutcome| (outcome.refusal, outcome.at);

    let pipeline = FailingPipeline::timed(HOLD_20, &hangs);
    let waiting = pipeline.start(PAGE);
    sleep(SECOND).await;
    pipeline.replace_policy("", "{ id: no, forbid: { host: a.test } }");
    let refusal = Some((Reason::Rule, None));
    assert_eq!(
        refused_at(waiting.await.unwrap()),
        at_once(refusal),
        "reload"
    );

    let pipeline = FailingPipeline::timed(HOLD_20, &hangs);
    let waiting = pipeline.start(PAGE);
    sleep(SECOND).await;
    pipeline.bench.admission.close();
    let refusal = Some((Reason::ShuttingDown, Some(5)));
    assert_eq!(
        refused_at(waiting.await.unwrap()),
        at_once(refusal),
        "shutdown"
    );

    let pipeline = FailingPipeline::timed("{ delay: 0s, overflow: refuse }", &hangs);
    let waiting = pipeline.start(PAGE);
    sleep(SECOND).await;
    pipeline.stop();
    let refusal = Some((Reason::Stopped, Some(60)));
    assert_eq!(refused_at(waiting.await.unwrap()), at_once(refusal), "stop");
}

#[tokio::test(start_paused = true)]
async fn a_reload_or_a_stop_that_changes_nothing_prolongs_no_wait() {
    let pipeline = FailingPipeline::new(HOLD_20, &[FAILS; 9]);
    let waiting = pipeline.start(PAGE);
    for second in 0..12 {
        sleep(SECOND).await;
        pipeline.replace_policy("", "");
        let target = StopTarget::parse("b.test").unwrap();
        let reason = StopReason::new("test").unwrap();
        let stop = pipeline.bench.stops().add(target, reason, None).unwrap();
        if second % 2 == 0 {
            pipeline.bench.stops().lift(stop.stop.id);
        }
    }
    let expected = refused(
        Reason::RobotsUnreachable,
        60,
        15 * SECOND,
        Some(15 * SECOND),
    );
    assert_eq!(waiting.await.unwrap(), expected);
    assert_eq!(pipeline.attempts(), [0, 2, 5, 15]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_wait() {
    let pipeline = FailingPipeline::new(HOLD_20, &[FAILS; 9]);
    let waiting = pipeline.start(PAGE);
    sleep(SECOND).await;
    assert_eq!(pipeline.bench.metric("crawlgate_held_requests"), 1.0);
    pipeline.bench.admission.close();
    let expected = refused(Reason::ShuttingDown, 5, SECOND, Some(SECOND));
    assert_eq!(waiting.await.unwrap(), expected);
    let late = refused(Reason::ShuttingDown, 5, SECOND, Some(Duration::ZERO));
    assert_eq!(pipeline.get(PAGE).await, late);
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_the_wait_prevents_the_next_attempt() {
    let pipeline = FailingPipeline::new(HOLD_20, &[FAILS; 9]);
    let waiting = pipeline.start(PAGE);
    sleep(SECOND).await;
    pipeline.stop();
    let expected = refused(Reason::Stopped, 60, 20 * SECOND, Some(20 * SECOND));
    assert_eq!(waiting.await.unwrap(), expected);
    assert_eq!(pipeline.attempts(), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_evaluated_again_when_the_policy_changes() {
    for (rest, rules, refusal, attempts) in [
        (
            "",
            "{ id: no, forbid: { host: a.test } }",
            Some((Reason::Rule, None)),
            vec![0],
        ),
        (", robots: { obey: false }", "", None, vec![0]),
        (", robots: { on_unreachable: allow }", "", None, vec![0]),
    ] {
        let pipeline = FailingPipeline::new(HOLD_20, &[FAILS; 9]);
        let waiting = pipeline.start(PAGE);
        sleep(SECOND).await;
        pipeline.replace_policy(rest, rules);
        let outcome = waiting.await.unwrap();
        assert_eq!(
            (outcome.refusal, outcome.at),
            (refusal, SECOND),
            "{rest}{rules}"
        );
        assert_eq!(pipeline.attempts(), attempts, "{rest}{rules}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_frees_its_place() {
    let pipeline = FailingPipeline::new(HOLD_20, &[FAILS]);
    let waiting: Vec<_> = (0..3).map(|_| pipeline.start(PAGE)).collect();
    sleep(SECOND).await;
    assert_eq!(pipeline.bench.metric("crawlgate_held_requests"), 3.0);
    let status = pipeline.bench.admission.untracked_host_status("a.test");
    assert_eq!(status.waiting, 3);
    let crowded = pipeline.get(PAGE).await;
    assert_eq!(
        crowded,
        refused(Reason::RobotsUnreachable, 1, SECOND, Some(Duration::ZERO))
    );
    let mut waiting = waiting.into_iter();
    let left = waiting.next().unwrap();
    left.abort();
    let _ = left.await;
    assert_eq!(pipeline.bench.metric("crawlgate_held_requests"), 2.0);
    let left = "crawlgate_held_disconnects_total{crawler=\"anonymous\"}";
    assert_eq!(pipeline.bench.metric(left), 1.0);
    let outcome = pipeline.get(PAGE).await;
    assert_eq!((outcome.refusal, outcome.at), (None, 2 * SECOND));
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap(), admitted(2 * SECOND));
    }
}
