//! `politeness.schedule`: which limits hold when.

use crawlgate::clock::Clock;
use crawlgate::model::reason::Reason;
use crawlgate::policy::compile;
use crawlgate::policy::source::MemoryFileSystem;

use super::bench::{pipeline, pipeline_with_robots};
use crate::support::pipeline::TestPipeline;

/// The wall clock of tests begins with 2026, on a Thursday.
const HOUR: i64 = 3_600;

/// The seconds after which a second request may come, by its Retry-After.
async fn gap(bench: &TestPipeline, host: &str) -> u64 {
    bench.pass_bytes(&format!("http://{host}/"), 0).await;
    let (reason, after) = bench.ask(&format!("http://{host}/2")).await.refused();
    assert_eq!(reason, Reason::RateLimited);
    after.unwrap()
}

#[tokio::test]
async fn the_active_window_sets_the_limits_even_if_the_clock_jumps() {
    let (clock, manual_clock) = Clock::manual();
    let schedule = "[{ hours: \"22:00-06:00\", delay: 2s }, { days: [fri], hours: \"00:00-24:00\", tz: +02:00, delay: 3s }]";
    let politeness = format!("{{ delay: 40s, jitter: none, max_hold: 0s, schedule: {schedule} }}");
    let bench = pipeline(&politeness, clock);
    for (at, delay_s) in [
        (0, 2),
        (6 * HOUR - 1, 2),
        (6 * HOUR, 40),
        (22 * HOUR - 1, 40),
        (22 * HOUR, 3),
        (46 * HOUR, 2),
        (48 * HOUR, 2),
        // Two years back and into a leap year's February, on a Thursday: 2024-02-29.
        (-672 * 24 * HOUR - 1, 2),
        (-672 * 24 * HOUR + 21 * HOUR, 40),
        (-672 * 24 * HOUR + 24 * HOUR, 3),
    ] {
        manual_clock.adjust_wall_time(at);
        assert_eq!(
            gap(&bench, &format!("t{}.test", at.unsigned_abs())).await,
            delay_s,
            "{at}"
        );
        manual_clock.adjust_wall_time(-at);
    }
}

#[tokio::test]
async fn a_jump_moves_no_wait() {
    let (clock, manual_clock) = Clock::manual();
    let schedule = "[{ hours: \"00:00-06:00\", delay: 50s }]";
    let bench = pipeline(
        &format!("{{ delay: 50s, jitter: none, max_hold: 0s, schedule: {schedule} }}"),
        clock,
    );
    assert_eq!(gap(&bench, "a.test").await, 50);
    for jump in [-100 * HOUR, 1_000 * HOUR, 7] {
        manual_clock.adjust_wall_time(jump);
        assert_eq!(bench.ask("http://a.test/").await.refused().1, Some(50));
    }
}

#[tokio::test]
async fn rate_and_concurrency_are_limits_too_and_a_rule_may_take_a_schedule_back() {
    let (clock, manual_clock) = Clock::manual();
    let schedule =
        "[{ delay: 0s, rate: 1/m, concurrency: 5 }, { hours: \"01:00-02:00\", rate: none }]";
    let politeness = format!(
        "{{ delay: 9s, jitter: none, max_hold: 0s, concurrency: 1, schedule: {schedule} }}"
    );
    let back = "{ id: back, when: { host: back.test }, set: { politeness: { schedule: [] } } }";
    let bench = pipeline_with_robots("{ obey: false }", &politeness, back, "", clock);
    assert_eq!(gap(&bench, "a.test").await, 60);
    assert_eq!(gap(&bench, "back.test").await, 9);
    manual_clock.adjust_wall_time(HOUR);
    let _five = [
        bench.ask("http://b.test/").await.admitted(),
        bench.ask("http://b.test/").await.admitted(),
        bench.ask("http://b.test/").await.admitted(),
        bench.ask("http://b.test/").await.admitted(),
        bench.ask("http://b.test/").await.admitted(),
    ];
    assert_eq!(
        bench.ask("http://b.test/").await.refused().0,
        Reason::RateLimited
    );
    // It is about pages.
    let _gone = bench
        .ask_for("http://b.test/i.png", "image")
        .await
        .admitted();
}

#[test]
fn errors_in_windows_are_reported() {
    for (window, reported) in [
        ("{ hours: \"22:00\" }", "expected hours"),
        ("{ hours: \"06:00-06:00\" }", "expected hours"),
        ("{ hours: \"24:00-06:00\" }", "expected hours"),
        (
            "{ tz: Europe/Berlin }",
            "names of time zones are not supported",
        ),
        ("{ tz: +15:00 }", "expected a time zone"),
        ("{ days: [] }", "at least one day"),
        ("{ days: [someday] }", "someday"),
        ("{ concurrency: 0 }", "0"),
        ("{ jitter: none }", "jitter"),
    ] {
        let text = format!(
            "policy: 1\nname: p\noptions: {{ disposition: allow, politeness: {{ schedule: [{window}] }} }}\nrules: []\n"
        );
        let files = MemoryFileSystem::new().with_file("p.yaml", text);
        let problems = compile::load(&files, "p.yaml").expect_err(window);
        let output = format!("{problems:?}");
        assert!(output.contains(reported), "{window}: {output}");
    }
}

/// The wall clock of a runtime begins with 2026, at midnight.
#[tokio::test(start_paused = true)]
async fn a_held_request_follows_the_next_window() {
    let schedule = "[{ hours: \"00:00-00:01\", delay: 2s }]";
    let politeness = format!("{{ delay: 40s, jitter: none, max_hold: 10m, schedule: {schedule} }}");
    let bench = pipeline(&politeness, Clock::from_runtime());
    let began = tokio::time::Instant::now();
    tokio::time::sleep(std::time::Duration::from_millis(54_500)).await;
    bench.pass_bytes("http://a.test/", 0).await;
    let waiting: Vec<_> = (0..5)
        .map(|page| bench.start(&format!("http://a.test/{page}")))
        .collect();
    let mut went = vec![];
    for one in waiting {
        let (slot, _) = one.await.unwrap().admitted();
        slot.record_sent();
        went.push(began.elapsed().as_millis());
    }
    // The third request starts at 60.5 s, and goes 40 s after the second.
    assert_eq!(went, [56_500, 58_500, 98_500, 138_500, 178_500]);
}
