//! `hosts`: the pace of hosts, which spaces and rules do not change.

use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::model::crawler::Crawler;
use crawlgate::model::reason::Reason;
use crawlgate::model::rule_id::Slug;
use crawlgate::pipeline::admission::AdmissionLimits;

use super::bench::settle;
use crate::support::pipeline::{TestPipeline, snapshot_of};
use crate::support::policy::compile_policy;

const POLICY: &str = "policy: 1
name: p
options: { disposition: allow, robots: { obey: false }, politeness: { delay: 2s, jitter: none, max_hold: 5m } }
hosts: [HOSTS]
rules:
  - { id: hasty, when: { path: /fast/ }, set: { politeness: { delay: 0s, concurrency: 50 } } }
spaces:
  - name: impatient
    crawlers: [ impatient ]
    options: { politeness: { delay: 1ms, concurrency: 100, schedule: [ { delay: 0s, rate: none } ] } }
";

const HOSTS: &str =
    "{ domain: slow.test, delay: 30s, concurrency: 1 }, { host: www.slow.test, delay: 5s }";

fn policy(hosts: &str) -> String {
    POLICY.replace("HOSTS", hosts)
}

fn pipeline(clock: Clock) -> TestPipeline {
    let limits = AdmissionLimits {
        per_host: 100,
        total: 1_000,
        max_wait: Duration::from_secs(600),
    };
    let snapshot = snapshot_of(compile_policy(policy(HOSTS)).policy);
    TestPipeline::new(snapshot, limits, clock)
}

fn impatient() -> Crawler {
    Crawler::new(&Slug::new("impatient").unwrap())
}

impl TestPipeline {
    /// Makes a request that ends at once; returns the seconds for which it was held.
    async fn held_for(&self, crawler: Crawler, url: &str) -> u64 {
        let (slot, held) = self.ask_as(crawler, url, &[]).await.admitted();
        slot.record_sent();
        held.unwrap_or_default().as_secs()
    }
}

/// Whichever crawler asks, and whatever its space and the rules say.
#[tokio::test(start_paused = true)]
async fn the_entry_paces_the_host_for_every_crawler() {
    let bench = pipeline(Clock::from_runtime());
    for (url, seconds) in [
        ("http://a.slow.test/fast/", 30),
        ("http://www.slow.test/fast/", 5),
    ] {
        for (crawler, expected) in [
            (Crawler::anonymous(), 0),
            (impatient(), seconds),
            (impatient(), seconds),
            (Crawler::anonymous(), seconds),
        ] {
            assert_eq!(bench.held_for(crawler, url).await, expected, "{url}");
        }
    }
    // Other hosts have the pace of the rules and of the space.
    for crawler in [Crawler::anonymous(), impatient()] {
        for _ in 0..3 {
            assert_eq!(
                bench.held_for(crawler.clone(), "http://b.test/fast/").await,
                0
            );
        }
    }
}

/// Only one request at once, although the space allows a hundred.
#[tokio::test(start_paused = true)]
async fn the_entry_limits_concurrent_requests() {
    let bench = pipeline(Clock::from_runtime());
    let (slot, _) = bench
        .ask_as(impatient(), "http://slow.test/1", &[])
        .await
        .admitted();
    slot.record_sent();
    let second = {
        let bench = bench.clone();
        tokio::spawn(async move { bench.ask_as(impatient(), "http://slow.test/2", &[]).await })
    };
    tokio::time::sleep(Duration::from_secs(15)).await;
    settle().await;
    assert!(!second.is_finished());
    drop(slot);
    assert!(second.await.unwrap().reason().is_none());
}

/// A request that waits is evaluated again, and gets the new pace.
#[tokio::test]
async fn a_reload_changes_the_pace() {
    let (clock, _manual_clock) = Clock::manual();
    let bench = pipeline(clock);
    let hold = [("crawl-max-wait", "0")];
    for (hosts, expected) in [
        (HOSTS, 30),
        ("{ domain: test, delay: 90s }", 90),
        ("{ host: slow.test, delay: 50s }", 2),
    ] {
        bench
            .active_policy
            .replace(snapshot_of(compile_policy(policy(hosts)).policy));
        let host = format!("x{expected}.slow.test");
        let (slot, _) = bench.ask(&format!("http://{host}/1")).await.admitted();
        slot.record_sent();
        drop(slot);
        let next = bench.ask_with(&format!("http://{host}/2"), &hold).await;
        assert_eq!(
            next.refused(),
            (Reason::RateLimited, Some(expected)),
            "{hosts}"
        );
    }
}

/// A tunnel takes a turn of its host.
#[tokio::test(start_paused = true)]
async fn a_tunnel_is_paced_by_the_entry() {
    let bench = pipeline(Clock::from_runtime());
    let held = bench.held_for(impatient(), "http://a.slow.test/").await;
    assert_eq!(held, 0);
    let wait = Duration::from_secs(60);
    let tunnel = bench.admit_tunnel("a.slow.test:443", wait).await;
    assert!(tunnel.outcome.is_ok());
    assert_eq!(tunnel.wait_time.unwrap().as_secs(), 30);
}
