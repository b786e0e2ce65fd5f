//! Requests under a stop: held, refused, admitted. The tests run in paused time.

use std::sync::Arc;
use std::time::Duration;

use crawlgate::model::certificate_verification::CertificateVerification;
use crawlgate::model::crawler::CrawlerHint;
use crawlgate::model::http_versions::OriginHttpVersions;
use crawlgate::model::reason::Reason;
use crawlgate::pacing::pace::HostPace;
use crawlgate::pacing::queue::WaitOrder;
use crawlgate::pipeline::request::NotSent;
use crawlgate::pipeline::robots_fetch::{RobotsFetchRequest, RobotsPermitError};
use crawlgate::pipeline::tunnel::TunnelResult;
use crawlgate::policy::options::politeness::PaceKey;
use crawlgate::robots::fetch_outcome::RobotsFetchOutcome;
use crawlgate::robots::state::{RobotsFetchResult, RobotsState};
use crawlgate::urls::target::UrlTarget;
use tokio::time::sleep;

use super::bench::{FREE, SECOND, crawler, pipeline, pipeline_with_total, snapshot};
use super::press;
use crate::support::pipeline::{ScriptedState, StaticResolver, robots_state};

#[tokio::test(start_paused = true)]
async fn stopped_requests_are_held_until_the_stop_is_lifted() {
    let bench = pipeline(FREE, "");
    let change = press(bench.stops(), "a.test", None);
    let began = bench.clock.now();
    let waiting = bench.start("http://a.test:81/x");
    sleep(7 * SECOND).await;
    assert!(!waiting.is_finished());
    assert_eq!(bench.metric("crawlgate_held_requests"), 1.0);
    assert_eq!(bench.metric("crawlgate_stops"), 1.0);
    assert_eq!(bench.robots.fetches(), 0, "nor is its robots.txt asked for");
    let other = bench.ask("http://www.a.test/").await.admitted();
    assert_eq!(other.1, None, "another host goes at once");
    bench.stops().lift(change.stop.id).unwrap();
    let came = waiting.await.unwrap();
    assert_eq!(
        (came.at - began, came.wait_time),
        (7 * SECOND, Some(7 * SECOND))
    );
    drop(came.admitted());
    assert_eq!(bench.metric("crawlgate_held_requests"), 0.0);
    assert_eq!(bench.metric("crawlgate_stops"), 0.0);
    assert_eq!(
        bench.metric("crawlgate_held_disconnects_total{crawler=\"anonymous\"}"),
        0.0
    );
    assert!(bench.stops().is_clear());
}

/// Rows: the duration of the stop, the fields of the request, its wait, and its Retry-After.
#[tokio::test(start_paused = true)]
async fn a_stop_longer_than_the_hold_is_refused_with_reason_and_retry_after() {
    let hasty: &[(&str, &str)] = &[("crawl-max-wait", "1.5")];
    let patient: &[(&str, &str)] = &[("crawl-max-wait", "50")];
    for (lasts, fields, waits_ms, retry) in [
        (Some(3_600), &[][..], 20_000, 3_580),
        (None, &[], 20_000, 60),
        (Some(86_400), &[], 20_000, 3_600),
        (Some(21), &[], 20_000, 1),
        (Some(30), hasty, 1_500, 29),
        (Some(60), patient, 50_000, 10),
    ] {
        let bench = pipeline(FREE, "");
        press(bench.stops(), "*.test", lasts);
        let began = bench.clock.now();
        let crawler = crawler("lab").with_hints([CrawlerHint::Wait]);
        let came = bench.ask_as(crawler, "http://a.test/", fields).await;
        assert_eq!(
            (came.at - began).as_millis(),
            waits_ms,
            "{lasts:?} {fields:?}"
        );
        assert_eq!(
            came.wait_time.map(|held| held.as_millis()),
            Some(waits_ms),
            "{lasts:?} {fields:?}"
        );
        let detail = came.outcome.as_ref().unwrap_err().detail.clone().unwrap();
        assert!(detail.starts_with("domain:test is stopped"), "{detail}");
        assert!(detail.ends_with(": ticket 7"), "{detail}");
        assert_eq!(
            detail.contains(" until 2026-01-"),
            lasts.is_some(),
            "{detail}"
        );
        assert_eq!(
            came.refused(),
            (Reason::Stopped, Some(retry)),
            "{lasts:?} {fields:?}"
        );
        assert_eq!(bench.robots.fetches(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_by_itself() {
    let bench = pipeline(FREE, "");
    press(bench.stops(), "a.test", Some(5));
    press(bench.stops(), "a.test", Some(9));
    press(bench.stops(), "crawler:anonymous", Some(2));
    let began = bench.clock.now();
    let came = bench.ask("http://a.test/").await;
    assert_eq!(came.at - began, 9 * SECOND);
    drop(came.admitted());
    assert_eq!(bench.stops().list().len(), 0);
    assert_eq!(bench.metric("crawlgate_stops"), 0.0);
    assert!(bench.stops().is_clear(), "swept");
}

#[tokio::test(start_paused = true)]
async fn crawlers_and_rules_are_stopped_wherever_they_go() {
    let rules = "{ id: group, when: { under: /g }, set: { max_depth: 9 }, rules: [{ id: inner, when: { under: \
                 /g/in }, then: allow }] }, { id: never, when: { host: z.test } }, { id: by-address, when: { \
                 address: 127.0.0.0/8 } }";
    for (what, who, url, stopped) in [
        ("crawler:news", "news", "http://a.test/", true),
        ("crawler:news", "lab", "http://a.test/", false),
        ("rule:group", "lab", "http://a.test/g/x", true),
        ("rule:group", "lab", "http://b.test/g/in/x", true),
        ("rule:inner", "lab", "http://b.test/g/in/x", true),
        ("rule:inner", "lab", "http://b.test/g/x", false),
        ("rule:never", "lab", "http://b.test/g/x", false),
        ("rule:by-address", "lab", "http://b.test/", true),
        ("rule:unknown", "lab", "http://b.test/", false),
    ] {
        let bench = pipeline("{ delay: 0s, max_hold: 2s }", rules);
        press(bench.stops(), what, None);
        let came = bench.ask_as(crawler(who), url, &[]).await;
        assert_eq!(
            came.wait_time,
            stopped.then_some(2 * SECOND),
            "{what} {who} {url}"
        );
        if stopped {
            assert_eq!(came.refused(), (Reason::Stopped, Some(60)), "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn stopped_requests_have_a_limit_and_a_departure_frees_a_place() {
    let bench = pipeline_with_total(FREE, "", 2);
    press(bench.stops(), "a.test", None);
    let waiting = [
        bench.start("http://a.test/1"),
        bench.start("http://a.test/2"),
    ];
    sleep(SECOND).await;
    let began = bench.clock.now();
    let third = bench.start("http://a.test/3").await.unwrap();
    assert_eq!(
        (third.at - began, third.refused()),
        (Duration::ZERO, (Reason::Stopped, Some(60)))
    );
    waiting[0].abort();
    sleep(SECOND).await;
    assert_eq!(bench.metric("crawlgate_held_requests"), 1.0);
    assert_eq!(
        bench.metric("crawlgate_held_disconnects_total{crawler=\"anonymous\"}"),
        1.0
    );
    let fourth = bench.start("http://a.test/4");
    sleep(SECOND).await;
    assert!(!fourth.is_finished());
    assert_eq!(bench.metric("crawlgate_held_requests"), 2.0);
    let none = bench.ask("http://b.test/").await;
    assert_eq!(none.wait_time, None, "the places are those of stops alone");
}

/// It waits for its turn when the stop comes: its turn goes back, and nothing is sent.
#[tokio::test(start_paused = true)]
async fn a_stop_holds_requests_that_are_already_held() {
    for (lifted_after, sent_after) in [(None, None), (Some(3), Some(10)), (Some(14), Some(15))] {
        let bench = pipeline("{ delay: 10s, jitter: none, max_hold: 20s }", "");
        let (slot, _) = bench.ask("http://a.test/1").await.admitted();
        slot.record_sent();
        drop(slot);
        let began = bench.clock.now();
        let waiting = bench.start("http://a.test/2");
        sleep(SECOND).await;
        let change = press(bench.stops(), "a.test", None);
        if let Some(after) = lifted_after {
            sleep(after * SECOND).await;
            bench.stops().lift(change.stop.id).unwrap();
        }
        let came = waiting.await.unwrap();
        let at = came.at - began;
        match sent_after {
            Some(after) => {
                assert_eq!(at, after * SECOND, "{lifted_after:?}");
                drop(came.admitted());
            }
            None => {
                assert_eq!(
                    (at, came.refused()),
                    (20 * SECOND, (Reason::Stopped, Some(60)))
                );
                assert_eq!(
                    bench.metric("crawlgate_leases"),
                    0.0,
                    "its turn is not lost"
                );
                bench.stops().lift(change.stop.id).unwrap();
                assert_eq!(bench.ask("http://a.test/3").await.wait_time, None);
            }
        }
    }
}

/// Those that a stop has held go in the order in which they came, at the host's pace.
#[tokio::test(start_paused = true)]
async fn after_a_stop_the_pace_of_the_host_applies() {
    let bench = pipeline("{ delay: 2s, jitter: none, max_hold: 30s }", "");
    let change = press(bench.stops(), "a.test", None);
    let mut waiting = vec![];
    for number in 0..4 {
        waiting.push(bench.start(&format!("http://a.test/{number}")));
        sleep(SECOND / 10).await;
    }
    bench.stops().lift(change.stop.id).unwrap();
    let lifted = bench.clock.now();
    for (number, one) in (0..).zip(waiting) {
        let came = one.await.unwrap();
        assert_eq!(came.at - lifted, number * 2 * SECOND, "{number}");
        came.admitted().0.record_sent();
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_cannot_wait_and_held_ones_at_shutdown_are_refused() {
    let bench = pipeline("{ delay: 0s, overflow: refuse }", "");
    press(bench.stops(), "a.test", Some(90));
    let came = bench.ask("http://a.test/").await;
    assert_eq!(came.wait_time, None);
    assert_eq!(came.refused(), (Reason::Stopped, Some(90)));

    let bench = pipeline(FREE, "");
    press(bench.stops(), "a.test", None);
    let waiting = bench.start("http://a.test/");
    sleep(SECOND).await;
    let began = bench.clock.now();
    bench.admission.close();
    let came = waiting.await.unwrap();
    assert_eq!(
        (came.at - began, came.refused()),
        (Duration::ZERO, (Reason::ShuttingDown, Some(5)))
    );
    let late = bench.ask("http://a.test/").await;
    assert_eq!(late.refused().0, Reason::ShuttingDown);
    drop(bench.ask("http://b.test/").await.admitted());
}

#[tokio::test(start_paused = true)]
async fn a_policy_change_during_a_stop_evaluates_again() {
    let bench = pipeline(FREE, "");
    let change = press(bench.stops(), "a.test", None);
    let waiting = [
        bench.start("http://a.test/no"),
        bench.start("http://a.test/yes"),
    ];
    sleep(SECOND).await;
    bench
        .active_policy
        .replace(snapshot(FREE, "{ id: no, forbid: { path: /no } }"));
    let newer = bench.active_policy.load().policy.revision().to_owned();
    bench.stops().lift(change.stop.id).unwrap();
    let [no, yes] = waiting;
    let no = no.await.unwrap();
    let yes = yes.await.unwrap();
    assert_eq!((&no.revision, &yes.revision), (&newer, &newer));
    assert_eq!(no.refused().0, Reason::Rule);
    assert_eq!(yes.admitted().1, Some(SECOND));
    assert_eq!(bench.metric("crawlgate_leases"), 0.0);
}

/// A reload does not wake a request that a stop holds, and nothing is sent under the old policy after it.
#[tokio::test(start_paused = true)]
async fn after_a_stop_no_robots_txt_is_fetched_that_a_new_policy_does_not_need() {
    for (lifted, expected) in [(true, Reason::Rule), (false, Reason::Stopped)] {
        let bench = pipeline("{ delay: 0s, max_hold: 9s }", "");
        let change = press(bench.stops(), "a.test", None);
        let waiting = bench.start("http://a.test/");
        sleep(SECOND).await;
        bench
            .active_policy
            .replace(snapshot(FREE, "{ id: no, forbid: { host: a.test } }"));
        sleep(SECOND).await;
        assert!(!waiting.is_finished());
        if lifted {
            bench.stops().lift(change.stop.id).unwrap();
        }
        let result = waiting.await.unwrap();
        let waited = if lifted { 2 } else { 9 };
        assert_eq!(result.wait_time, Some(waited * SECOND));
        assert_eq!(result.refused().0, expected);
        assert_eq!(bench.robots.fetches(), 0);
    }
}

/// Requests that the policy or robots.txt refuses are refused at once: these are checked first.
#[tokio::test(start_paused = true)]
async fn a_refused_request_does_not_wait_for_a_stop() {
    let bench = pipeline(FREE, "{ id: no, forbid: { path: /no } }");
    press(bench.stops(), "a.test", None);
    let came = bench.ask("http://a.test/no").await;
    assert_eq!((came.wait_time, came.refused().0), (None, Reason::Rule));
}

/// Nothing is asked of a host that is stopped, whatever is remembered of its robots.txt; one that holds still is obeyed
/// while another is fetched.
#[tokio::test(start_paused = true)]
async fn a_robots_txt_that_must_be_fetched_first_waits_too() {
    for before in [
        None,
        Some(RobotsFetchOutcome::ServerError),
        Some(RobotsFetchOutcome::Absent),
    ] {
        let mut bench = pipeline("{ delay: 0s, max_hold: 3s }", "");
        bench.robots.before_fetch =
            before.map(|outcome| ScriptedState::Expired(robots_state(outcome)));
        press(bench.stops(), "a.test", None);
        let came = bench.ask("http://a.test/").await;
        assert_eq!(came.wait_time, Some(3 * SECOND), "{before:?}");
        assert_eq!(came.refused().0, Reason::Stopped, "{before:?}");
        assert_eq!(bench.robots.fetches(), 0, "{before:?}");
    }
}

/// A crawler that obeys robots.txt reads it first. Nothing is sent for a file in the cache, whatever its age.
#[tokio::test(start_paused = true)]
async fn a_known_robots_txt_of_a_stopped_host_is_served_at_once() {
    let known = robots_state(RobotsFetchOutcome::Absent);
    let failing = RobotsState::from_fetch(
        Some(&known),
        &RobotsFetchResult::failed(RobotsFetchOutcome::ServerError),
        known.fetched_at(),
    );
    for (before, is_served) in [
        (Some(ScriptedState::Fresh(Arc::clone(&known))), true),
        (Some(ScriptedState::Expired(Arc::clone(&known))), true),
        (Some(ScriptedState::Outdated(known)), true),
        (Some(ScriptedState::Outdated(Arc::new(failing))), true),
        (None, false),
    ] {
        let mut bench = pipeline("{ delay: 0s, max_hold: 3s }", "");
        bench.robots.before_fetch = before;
        press(bench.stops(), "a.test", None);
        let began = bench.clock.now();
        let url = "http://a.test/robots.txt";
        let result = bench.admit(crawler("lab"), url, &[]).await;
        let waited = bench.clock.now() - began;
        match result.outcome {
            Err(NotSent::ServeRobots(_)) => assert!(is_served && waited.is_zero()),
            Err(NotSent::Refuse(refusal)) => assert_eq!(
                (is_served, refusal.reason, waited),
                (false, Reason::Stopped, 3 * SECOND)
            ),
            other => panic!("{other:?}"),
        }
        assert_eq!(bench.robots.fetches(), 0);
    }
}

/// Our own fetch of a robots.txt waits for its host, and not for the crawler that it was begun for.
#[tokio::test(start_paused = true)]
async fn no_robots_txt_is_fetched_from_a_stopped_host() {
    let bench = pipeline(FREE, "");
    let errand = RobotsFetchRequest {
        agent: "lab".into(),
        crawler: crawler("lab"),
        key: PaceKey::Host,
        pace: HostPace::UNLIMITED,
        per_address: None,
        order: WaitOrder::Weighted,
        admission: Arc::clone(&bench.admission),
        verify: CertificateVerification::On,
        versions: OriginHttpVersions::Http1And2,
        parent: None,
    };
    let target = UrlTarget::parse("http://a.test/robots.txt").unwrap();
    let resolver = StaticResolver::loopback();
    let permit =
        || errand.acquire_permit(&target, CertificateVerification::On, &resolver, 8 * SECOND);
    press(bench.stops(), "crawler:lab", None);
    let began = bench.clock.now();
    drop(permit().await.unwrap());
    assert_eq!(bench.clock.now(), began);
    press(bench.stops(), "a.test", Some(5));
    drop(permit().await.unwrap());
    assert_eq!(bench.clock.now() - began, 5 * SECOND);
    press(bench.stops(), "a.test", Some(9));
    assert_eq!(permit().await.err(), Some(RobotsPermitError::WaitTooLong));
    assert_eq!(bench.clock.now() - began, 13 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn tunnels_wait_as_long_as_connecting_may_take() {
    let rules = "{ id: side, when: { host: b.test } }";
    for (what, host, lasts, expected) in [
        ("a.test", "a.test:443", Some(4), Ok(4)),
        ("a.test", "a.test:443", None, Err((10, 60))),
        ("*.test", "a.test:443", Some(15), Err((10, 5))),
        ("crawler:anonymous", "c.test:443", None, Err((10, 60))),
        ("rule:side", "b.test:443", None, Err((10, 60))),
        ("rule:side", "a.test:443", None, Ok(0)),
        ("a.test", "b.test:443", None, Ok(0)),
    ] {
        let bench = pipeline(FREE, rules);
        press(bench.stops(), what, lasts);
        let began = bench.clock.now();
        let TunnelResult {
            outcome,
            evaluation,
            wait_time,
        } = bench.admit_tunnel(host, 10 * SECOND).await;
        let waited = (bench.clock.now() - began).as_secs();
        assert_eq!(wait_time.unwrap_or_default().as_secs(), waited, "{what}");
        let came = match outcome {
            Ok(permit) => {
                drop(permit);
                assert!(evaluation.stop_refusal(&bench.admission).is_none());
                Ok(waited)
            }
            Err(refusal) => {
                assert_eq!(refusal.reason, Reason::Stopped);
                assert!(evaluation.stop_refusal(&bench.admission).is_some());
                Err((waited, refusal.retry_after.unwrap().as_secs()))
            }
        };
        assert_eq!(came, expected, "{what} {lasts:?}");
        assert_eq!(bench.metric("crawlgate_leases"), 0.0);
    }
}
