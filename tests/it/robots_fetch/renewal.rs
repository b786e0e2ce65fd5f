//! A file past its freshness: requests go on under it, and one fetch renews it. Through the gate, on a clock that is moved by
//! hand.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crawlgate::clock::{Clock, ManualClock};
use crawlgate::model::certificate_verification::CertificateVerification;
use crawlgate::model::crawler::Crawler;
use crawlgate::pipeline::request::{NotSent, RequestResult, RequestServices, admit_request};
use crawlgate::pipeline::robots_fetch::RobotsProvider;
use crawlgate::pipeline::snapshot::ActivePolicy;

use super::fetcher::{TestFetcher, target};
use crate::support::origin::{Reply, ScriptedOrigin, response};
use crate::support::pipeline::{
    KnownRequest, StaticAddresses, StaticResolver, request_facts, snapshot_of,
};
use crate::support::policy::compile_policy;

const HOUR: Duration = Duration::from_secs(3600);
const OLD: &str = "User-agent: *\nDisallow: /old\nUser-agent: other\nDisallow: /other\n";
const NEW: &str = "User-agent: *\nDisallow: /new\n";

/// A world in which an hour is an instant.
struct RenewalPipeline {
    fetcher: Arc<TestFetcher>,
    active_policy: ActivePolicy,
    clock: Clock,
    manual_clock: ManualClock,
}

impl RenewalPipeline {
    fn new(robots: &str) -> Self {
        Self::paced(robots, "delay: 0s")
    }

    fn paced(robots: &str, politeness: &str) -> Self {
        let (clock, manual_clock) = Clock::manual();
        let text = format!(
            "policy: 1\nname: p\noptions: {{ disposition: allow, robots: {robots}, politeness: {{ {politeness} }} }}\n"
        );
        let policy = compile_policy(text).policy;
        Self {
            fetcher: Arc::new(TestFetcher::new(&clock)),
            active_policy: ActivePolicy::new(snapshot_of(policy)),
            clock,
            manual_clock,
        }
    }

    /// `go`, or the reason of the refusal.
    async fn ask(&self, url: &str) -> &'static str {
        self.ask_as(url, "bot").await
    }

    async fn ask_as(&self, url: &str, agent: &str) -> &'static str {
        match self.passage(url, agent).await.outcome {
            Ok(_) => "go",
            Err(NotSent::ServeRobots(_)) => "robots.txt",
            Err(NotSent::Refuse(refusal)) => refusal.reason.as_str(),
            Err(NotSent::ClientLeft) => "left",
        }
    }

    async fn passage(&self, url: &str, agent: &str) -> RequestResult<StaticAddresses> {
        let asked = request_facts(Crawler::anonymous(), url, &[("user-agent", agent)]);
        let services = RequestServices {
            destinations: &StaticResolver::loopback(),
            robots: &*self.fetcher.robots,
            active_policy: &self.active_policy,
            admission: self.fetcher.admission(),
            ledger: None,
        };
        admit_request(
            &mut KnownRequest(asked),
            &mut (),
            self.active_policy.load(),
            &services,
        )
        .await
        .unwrap()
    }

    /// Waits until this number of requests have arrived and their results are cached.
    async fn settled(&self, origin: &ScriptedOrigin, fetches: u64) {
        while self.fetcher.all_fetches() < fetches || (origin.heads().len() as u64) < fetches {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// The first fetch gets the old file at once, all others the new one after some time.
fn origin(fields: &'static str) -> ScriptedOrigin {
    ScriptedOrigin::respond(move |request| match request.number {
        0 => Reply::Bytes(response(200, fields, OLD)),
        _ => Reply::After(Duration::from_millis(150), response(200, fields, NEW)),
    })
}

#[tokio::test]
async fn requests_go_on_under_the_old_file_while_one_fetch_renews_it() {
    const FIELDS: &str = "Cache-Control: max-age=3600\r\n";
    let (end_wait, waiting) = mpsc::channel::<()>();
    let waiting = Mutex::new(waiting);
    let origin = ScriptedOrigin::respond(move |request| match request.number {
        0 => response(200, FIELDS, OLD),
        _ => {
            // An error: the test has dropped the other side.
            let _ = waiting.lock().unwrap().recv();
            response(200, FIELDS, NEW)
        }
    });
    let gate = RenewalPipeline::new("{}");
    let old = origin.url("a.test", "/old");
    let new = origin.url("a.test", "/new");
    assert_eq!(gate.ask(&old).await, "robots_txt");
    gate.manual_clock.advance(HOUR - Duration::from_secs(1));
    assert_eq!(
        (gate.ask(&new).await, origin.heads().len()),
        ("go", 1),
        "fresh"
    );
    gate.manual_clock.advance(Duration::from_secs(1));
    for _ in 0..50 {
        assert_eq!(
            (gate.ask(&old).await, gate.ask(&new).await),
            ("robots_txt", "go"),
            "what it said holds on"
        );
    }
    assert_eq!(gate.fetcher.all_fetches(), 1, "nobody waits");
    drop(end_wait);
    gate.settled(&origin, 2).await;
    assert_eq!(
        (gate.ask(&old).await, gate.ask(&new).await),
        ("go", "robots_txt"),
        "the new file holds"
    );
    assert_eq!(origin.heads().len(), 2, "exactly one fetch has renewed it");
}

#[tokio::test]
async fn a_held_request_follows_the_file_known_at_its_turn() {
    let origin = origin("Cache-Control: max-age=3600\r\n");
    let gate = RenewalPipeline::paced("{}", "delay: 200ms, jitter: 1.0..1.0, max_hold: 10s");
    let old = origin.url("a.test", "/old");
    let new = origin.url("a.test", "/new");
    assert_eq!(gate.ask(&old).await, "robots_txt");
    gate.manual_clock.advance(HOUR);
    assert_eq!(gate.ask(&old).await, "robots_txt");
    while origin.heads().len() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let moves_on = async {
        gate.settled(&origin, 2).await;
        gate.manual_clock.advance(Duration::from_millis(200));
    };
    let (passage, ()) = tokio::join!(gate.passage(&new, "bot"), moves_on);
    assert_eq!(
        passage.wait_time,
        Some(Duration::from_millis(200)),
        "the renewal had the turn"
    );
    let Err(NotSent::Refuse(refusal)) = passage.outcome else {
        panic!("it went under the old file")
    };
    assert_eq!(refusal.reason.as_str(), "robots_txt");
}

#[tokio::test]
async fn a_renewal_without_a_permit_keeps_the_file_and_waits() {
    let origin = origin("Cache-Control: max-age=3600\r\n");
    let gate = RenewalPipeline::paced(
        "{ on_unreachable: deny }",
        "delay: 0s, concurrency: 1, jitter: 1.0..1.0, max_hold: 0s",
    );
    let old = origin.url("a.test", "/old");
    let new = origin.url("a.test", "/new");
    assert_eq!(gate.ask(&old).await, "robots_txt");
    gate.manual_clock.advance(HOUR);
    let slow = gate.passage(&new, "bot").await;
    assert!(
        slow.outcome.is_ok(),
        "it has the slot that the renewal waits for"
    );
    tokio::time::sleep(Duration::from_millis(20)).await;
    gate.manual_clock.advance(Duration::from_millis(600));
    while gate.fetcher.all_fetches() < 2 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(gate.fetcher.fetches("held"), 1);
    assert_eq!(gate.fetcher.fetches("timeout"), 0);
    drop(slow);
    for _ in 0..5 {
        assert_eq!(
            (gate.ask(&old).await, gate.ask(&new).await),
            ("robots_txt", "go"),
            "the file holds on"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!((gate.fetcher.all_fetches(), origin.heads().len()), (2, 1));
    gate.manual_clock.advance(Duration::from_secs(10));
    assert_eq!(gate.ask(&old).await, "robots_txt");
    while gate.fetcher.all_fetches() < 3 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(
        (gate.ask(&old).await, gate.ask(&new).await),
        ("go", "robots_txt")
    );
}

/// A caller may need a newer file than the fresh one. The site is asked at most every five minutes, and the file stays valid
/// if that fails.
#[tokio::test]
async fn a_fresh_file_is_renewed_for_a_caller_that_needs_a_newer_one() {
    let origin = ScriptedOrigin::respond(|request| {
        Reply::Bytes(match request.number {
            0 => response(200, "", OLD),
            1 => response(500, "", ""),
            _ => response(200, "", NEW),
        })
    });
    let gate = RenewalPipeline::new("{ on_unreachable: deny }");
    let old = origin.url("a.test", "/old");
    assert_eq!(gate.ask(&old).await, "robots_txt");
    // Returns `true` if a fetch begins.
    let renew = |newer_than: Option<std::time::Instant>| {
        let mut begins = false;
        let robots = &gate.fetcher.robots;
        let url = target(&old);
        robots.refresh(&url, CertificateVerification::On, newer_than, || {
            begins = true;
            gate.fetcher.fetch_request("bot")
        });
        begins
    };
    let minutes = |count: u32| count * HOUR / 60;
    gate.manual_clock.advance(minutes(4));
    let now = gate.clock.now();
    assert!(!renew(Some(now)), "too early");
    gate.manual_clock.advance(minutes(1));
    assert!(!renew(None), "fresh");
    assert!(!renew(Some(now - minutes(5))), "new enough");
    assert!(renew(Some(now)));
    while gate.fetcher.fetches("server_error") < 1 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(gate.ask(&old).await, "robots_txt");
    gate.manual_clock.advance(minutes(4));
    assert!(!renew(Some(now)), "it has just failed");
    gate.manual_clock.advance(minutes(1));
    assert!(renew(Some(now)));
    gate.settled(&origin, 3).await;
    assert_eq!(gate.ask(&old).await, "go");
    gate.manual_clock.advance(minutes(9));
    assert!(!renew(Some(now)), "new enough");
}

#[tokio::test]
async fn a_renewal_keeps_the_freshness_of_the_file() {
    fn start() -> ScriptedOrigin {
        let file = "User-agent: *\nCrawl-delay: 0.3\n";
        ScriptedOrigin::respond(move |_| {
            Reply::Bytes(response(200, "Cache-Control: max-age=3600\r\n", file))
        })
    }
    let origin = start();
    let beside = start();
    let gate = RenewalPipeline::paced(
        "{}",
        "delay: 0s, jitter: 1.0..1.0, concurrency: 9, max_hold: 0s",
    );
    let fetch = async |origin: &ScriptedOrigin| {
        let url = target(&origin.url("a.test", "/"));
        gate.fetcher
            .robots
            .fetch(&url, gate.fetcher.fetch_request("bot"))
            .await
            .outcome
            .as_str()
    };
    assert_eq!(fetch(&origin).await, "file");
    gate.manual_clock.advance(HOUR);
    assert_eq!(fetch(&beside).await, "file", "something goes to the host");
    assert_eq!(gate.ask(&origin.url("a.test", "/")).await, "rate_limited");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(origin.heads().len(), 1, "the renewal waits its time");
    gate.manual_clock.advance(Duration::from_millis(300));
    while origin.heads().len() < 2 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn an_expired_or_unknown_file_is_waited_for() {
    for (fields, hours) in [
        ("Cache-Control: max-age=3600\r\n", 24),
        ("", 24),
        (
            "Cache-Control: max-age=3600, stale-while-revalidate=3600\r\n",
            2,
        ),
        ("Cache-Control: max-age=3600, must-revalidate\r\n", 1),
    ] {
        let origin = origin(fields);
        let gate = RenewalPipeline::new("{}");
        let old = origin.url("a.test", "/old");
        let new = origin.url("a.test", "/new");
        assert_eq!(gate.ask(&old).await, "robots_txt");
        gate.manual_clock.advance(hours * HOUR);
        assert_eq!(gate.ask(&new).await, "robots_txt", "{fields}");
        assert_eq!((gate.ask(&old).await, origin.heads().len()), ("go", 2));
    }
}

#[tokio::test]
async fn a_failed_renewal_leaves_the_decision_to_the_policy() {
    for (robots, later) in [
        ("{}", "robots_txt"),
        ("{ on_unreachable: deny }", "robots_unreachable"),
    ] {
        let origin = ScriptedOrigin::respond(|request| match request.number {
            0 => Reply::Bytes(response(200, "Cache-Control: max-age=3600\r\n", OLD)),
            _ => Reply::Bytes(response(503, "", "")),
        });
        let gate = RenewalPipeline::new(robots);
        let old = origin.url("a.test", "/old");
        assert_eq!(gate.ask(&old).await, "robots_txt");
        gate.manual_clock.advance(HOUR);
        assert_eq!(gate.ask(&old).await, "robots_txt");
        gate.settled(&origin, 2).await;
        assert_eq!(gate.ask(&old).await, later, "{robots}");
        assert_eq!(origin.heads().len(), 2, "and it is not asked again at once");
    }
}

#[tokio::test]
async fn a_file_that_has_not_changed_is_not_sent_again() {
    let known = "ETag: W/\"1\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nCache-Control: max-age=3600\r\n";
    let origin = ScriptedOrigin::respond(move |request| match request.number {
        0 => Reply::Bytes(response(200, known, OLD)),
        _ => {
            let head = request.head.to_ascii_lowercase();
            assert!(head.contains("if-none-match: w/\"1\"\r\n"), "{head}");
            assert!(
                head.contains("if-modified-since: thu, 01 jan 2026 00:00:00 gmt\r\n"),
                "{head}"
            );
            Reply::Bytes(b"HTTP/1.1 304 x\r\n\r\n".to_vec())
        }
    });
    let gate = RenewalPipeline::new("{}");
    let old = origin.url("a.test", "/old");
    for fetches in 1..4 {
        assert_eq!(gate.ask(&old).await, "robots_txt");
        gate.settled(&origin, fetches).await;
        gate.manual_clock.advance(HOUR - Duration::from_secs(1));
        assert_eq!(
            (gate.ask(&old).await, origin.heads().len() as u64),
            ("robots_txt", fetches),
            "fresh anew"
        );
        gate.manual_clock.advance(Duration::from_secs(1));
    }
    assert_eq!(gate.fetcher.fetches("unchanged"), 2);
}

#[tokio::test]
async fn an_unsolicited_304_is_not_a_file() {
    let origin = ScriptedOrigin::respond(|request| {
        let head = request.head.to_ascii_lowercase();
        assert!(!head.contains("if-"), "{head}");
        Reply::Bytes(b"HTTP/1.1 304 x\r\nETag: \"1\"\r\n\r\n".to_vec())
    });
    let gate = RenewalPipeline::paced("{}", "delay: 0s, max_hold: 0s");
    assert_eq!(
        gate.ask(&origin.url("a.test", "/old")).await,
        "robots_unreachable"
    );
    assert_eq!(gate.fetcher.fetches("server_error"), 1);
}

#[tokio::test]
async fn one_fetch_rules_differently_for_different_agents() {
    let origin = origin("");
    let gate = RenewalPipeline::new("{}");
    fn url(origin: &ScriptedOrigin, path: &str) -> String {
        origin.url("a.test", path)
    }
    assert_eq!(
        gate.ask_as(&url(&origin, "/old"), "Bot/1.0").await,
        "robots_txt"
    );
    assert_eq!(
        gate.ask_as(&url(&origin, "/old"), "Other/2.0 (x)").await,
        "go"
    );
    assert_eq!(
        gate.ask_as(&url(&origin, "/other"), "other").await,
        "robots_txt"
    );
    assert_eq!(gate.ask_as(&url(&origin, "/other"), "bot").await, "go");
    assert_eq!(origin.heads().len(), 1);
}
