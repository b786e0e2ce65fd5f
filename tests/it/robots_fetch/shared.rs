//! Shared fetches, and the state that is kept from one fetch to the next.

use std::sync::Arc;
use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::model::certificate_verification::CertificateVerification;
use crawlgate::pipeline::robots_fetch::{CachedRobots, RobotsProvider};
use crawlgate::robots::RobotsAccess;
use crawlgate::robots::state::RobotsRules;

use super::fetcher::{TestFetcher, target};
use crate::support::origin::{Reply, ScriptedOrigin, response};

const FILE: &str = "User-agent: one\nDisallow: /1\nUser-agent: two\nDisallow: /2\n";
const SLOW: Duration = Duration::from_millis(150);

fn slow() -> ScriptedOrigin {
    ScriptedOrigin::respond(|_| Reply::After(SLOW, response(200, "", FILE)))
}

#[tokio::test]
async fn requests_that_come_together_share_one_fetch() {
    let origin = slow();
    let fetcher = Arc::new(TestFetcher::new(&Clock::system()));
    let url = origin.url("a.test", "/");
    let ask = || {
        let fetcher = Arc::clone(&fetcher);
        let url = url.clone();
        tokio::spawn(async move {
            fetcher
                .robots
                .fetch(&target(&url), fetcher.fetch_request("one"))
                .await
        })
    };
    let asked: Vec<_> = (0..50).map(|_| ask()).collect();
    for task in asked {
        assert_eq!(task.await.unwrap().outcome.as_str(), "file");
    }
    assert_eq!(origin.heads().len(), 1);
    assert_eq!(fetcher.fetches("file"), 1);
    assert!(
        fetcher
            .robots
            .cached(&target(&url), CertificateVerification::On)
            .is_some()
    );
}

#[tokio::test]
async fn hosts_are_fetched_apart() {
    let origin = slow();
    let fetcher = TestFetcher::new(&Clock::system());
    for host in ["a.test", "b.test", "a.test"] {
        let target = target(&origin.url(host, "/"));
        if fetcher
            .robots
            .cached(&target, CertificateVerification::On)
            .is_none()
        {
            fetcher
                .robots
                .fetch(&target, fetcher.fetch_request("one"))
                .await;
        }
    }
    assert_eq!(origin.heads().len(), 2);
}

#[tokio::test]
async fn a_client_that_leaves_does_not_end_the_fetch_for_the_others() {
    let origin = slow();
    let fetcher = Arc::new(TestFetcher::new(&Clock::system()));
    let target = target(&origin.url("a.test", "/"));
    let first = {
        let fetcher = Arc::clone(&fetcher);
        let target = target.clone();
        tokio::spawn(async move {
            fetcher
                .robots
                .fetch(&target, fetcher.fetch_request("one"))
                .await
        })
    };
    while origin.heads().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    first.abort();
    let known = fetcher
        .robots
        .fetch(&target, fetcher.fetch_request("two"))
        .await;
    assert_eq!((known.outcome.as_str(), origin.heads().len()), ("file", 1));
}

#[tokio::test]
async fn one_fetch_serves_every_agent() {
    let origin = slow();
    let fetcher = TestFetcher::new(&Clock::system());
    let known = fetcher
        .robots
        .fetch(
            &target(&origin.url("a.test", "/")),
            fetcher.fetch_request("one"),
        )
        .await;
    let rules = known.file().unwrap();
    for (agent, path, access) in [
        ("one", "/1", RobotsAccess::Disallow),
        ("one", "/2", RobotsAccess::Allow),
        ("two", "/1", RobotsAccess::Allow),
        ("two", "/2", RobotsAccess::Disallow),
    ] {
        assert_eq!(rules.decide(agent, path).access, access, "{agent} {path}");
    }
}

#[tokio::test]
async fn stale_on_error_then_fresh_again() {
    let origin = ScriptedOrigin::respond(|request| match request.number {
        0 | 3 => Reply::Bytes(response(200, "Cache-Control: max-age=600\r\n", FILE)),
        _ => Reply::Bytes(response(500, "", "")),
    });
    let (clock, manual_clock) = Clock::manual();
    let fetcher = TestFetcher::new(&clock);
    let target = target(&origin.url("a.test", "/"));
    let learn = || async {
        fetcher
            .robots
            .fetch(&target, fetcher.fetch_request("one"))
            .await
    };
    assert!(learn().await.is_fresh(clock.now()));
    manual_clock.advance(Duration::from_secs(599));
    assert!(
        fetcher
            .robots
            .cached(&target, CertificateVerification::On)
            .is_some()
    );
    manual_clock.advance(Duration::from_secs(1));
    let known = fetcher.robots.cached(&target, CertificateVerification::On);
    assert!(
        matches!(known, Some(CachedRobots::Expired(_))),
        "it holds on while another is fetched"
    );
    let failed = learn().await;
    assert!(matches!(failed.rules, RobotsRules::Unknown));
    assert!(failed.stale().is_some_and(|stale| stale.file().is_some()));
    manual_clock.advance(Duration::from_secs(59));
    let known = fetcher.robots.cached(&target, CertificateVerification::On);
    assert!(
        matches!(known, Some(CachedRobots::Fresh(_))),
        "it is not asked again at once"
    );
    manual_clock.advance(Duration::from_secs(1));
    assert_eq!(learn().await.fresh_for.as_secs(), 120);
    manual_clock.advance(Duration::from_secs(120));
    let good = learn().await;
    assert!(good.file().is_some() && good.stale().is_none());
    assert_eq!(origin.heads().len(), 4);
}

#[tokio::test]
async fn hosts_that_are_remembered_are_counted() {
    let origin = slow();
    let fetcher = TestFetcher::new(&Clock::system());
    fetcher
        .robots
        .fetch(
            &target(&origin.url("a.test", "/")),
            fetcher.fetch_request("one"),
        )
        .await;
    fetcher.robots.sweep();
    assert!(
        fetcher
            .metrics
            .render()
            .contains("\ncrawlgate_robots_cache_entries 1\n")
    );
}
