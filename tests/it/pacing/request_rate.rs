//! `Request-rate` of robots.txt, and its cap.

use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::robots::RobotsFile;

use super::bench::pipeline_with_robots;

#[test]
fn groups_are_chosen_as_for_crawl_delay() {
    let body = b"Request-rate: 1/99\nUser-agent: a\nRequest-rate: 1/10\nRequest-rate: 1/1m 0600-0845\n\
        User-agent: b\nDisallow: /x\nrequest-rate: 4/1m\nUser-agent: a\nRequestRate: 1/20 22:00-06:00\nDisallow: /y\n\
        User-agent: *\nRequest-rate: 1/5s\nUser-agent: c\nRequest-rate: 0/0\nAllow: /\nUser-agent: d\nDisallow: /z\n";
    let parsed = RobotsFile::parse(body);
    assert_eq!(parsed.unknown_lines(), 0);
    fn hour(hour: u64) -> std::time::Duration {
        Duration::from_secs(hour * 3_600)
    }
    for (agent, at, seconds) in [
        ("a", hour(12), Some(10)),
        ("a", hour(7), Some(60)),
        ("a", hour(22), Some(20)),
        ("a", hour(30 * 24 + 5), Some(20)),
        ("b", hour(12), Some(15)),
        ("c", hour(0), None),
        ("other", hour(0), Some(5)),
        ("d", hour(0), None),
    ] {
        let rate = parsed.request_interval(agent, || at);
        assert_eq!(rate.map(|rate| rate.as_secs()), seconds, "{agent} {at:?}");
    }
    let none = RobotsFile::parse(b"User-agent: *\nCrawl-delay: 0.25\n");
    assert_eq!(
        none.request_interval("a", || unreachable!("nothing depends on the time")),
        None
    );
    assert_eq!(none.crawl_delay("a"), Some(Duration::from_millis(250)));
}

/// The delay after a first request, in whole seconds, and the number of capped requests.
async fn check(robots: &str, politeness: &str, file: &str, expected: (u64, f64)) {
    let (clock, _hand) = Clock::manual();
    let politeness = format!("{{ jitter: none, max_hold: 0s, {politeness} }}");
    let bench = pipeline_with_robots(robots, &politeness, "", file, clock);
    bench.pass_bytes("http://a.test/", 0).await;
    let (_, after) = bench.ask("http://a.test/2").await.refused();
    // Neither delayed nor counted: it is about pages.
    let _gone = bench
        .ask_for("http://a.test/i.png", "image")
        .await
        .admitted();
    let _gone = bench
        .ask_for("http://a.test/j.png", "image")
        .await
        .admitted();
    let capped = bench.metric("crawlgate_crawl_delay_capped_total");
    assert_eq!(
        (after.unwrap(), capped),
        expected,
        "{robots} {politeness} {file}"
    );
}

#[tokio::test]
async fn the_pace_is_the_slowest_of_ours_crawl_delay_and_request_rate() {
    let file = "User-agent: *\nCrawl-delay: 3.5\nRequest-rate: 1/10\n";
    for (robots, politeness, file, expected) in [
        ("{}", "delay: 1s", file, (10, 0.0)),
        ("{}", "delay: 20s", file, (20, 0.0)),
        ("{}", "delay: 1s, request_rate: ignore", file, (4, 0.0)),
        ("{ obey: false }", "delay: 2s", file, (2, 0.0)),
        ("{ crawl_delay_cap: 5s }", "delay: 1s", file, (5, 2.0)),
        (
            "{ crawl_delay_cap: 5s }",
            "delay: 1s, request_rate: ignore",
            file,
            (4, 0.0),
        ),
        ("{ crawl_delay_cap: 10s }", "delay: 1s", file, (10, 0.0)),
        (
            "{}",
            "delay: 1s",
            "User-agent: *\nCrawl-delay: 86400\n",
            (300, 2.0),
        ),
        (
            "{}",
            "delay: 1s",
            "User-agent: *\nRequest-rate: 1/99999999999999999999999h\n",
            (300, 2.0),
        ),
        (
            "{}",
            "delay: 1s",
            "User-agent: *\nRequest-rate: -1/5\nRequest-rate: 0/0\n",
            (1, 0.0),
        ),
        // It is midnight in the tests.
        (
            "{}",
            "delay: 1s",
            "User-agent: *\nRequest-rate: 1/30 2300-0100\nRequest-rate: 1/5\n",
            (30, 0.0),
        ),
        (
            "{}",
            "delay: 1s",
            "User-agent: *\nRequest-rate: 1/30 0100-2300\nRequest-rate: 1/5\n",
            (5, 0.0),
        ),
    ] {
        check(robots, politeness, file, expected).await;
    }
}
