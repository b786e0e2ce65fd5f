//! `politeness.bytes_per_second`: the next request waits for the time that earlier bodies cost.

use std::time::Duration;

use crawlgate::clock::Clock;
use tokio::time::Instant;

use super::bench::{pipeline, settle};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn later_requests_pay_for_bodies_in_both_directions() {
    let politeness = "{ delay: 0s, concurrency: 5, max_hold: 1h, bytes_per_second: 1KiB }";
    let bench = pipeline(politeness, Clock::from_runtime());
    tokio::time::advance(60 * SECOND).await;
    assert_eq!(bench.pass_bytes("http://a.test/", 4 << 10).await, None);
    // The allowance of one second was saved.
    assert_eq!(
        bench.pass_bytes("http://a.test/", 0).await,
        Some(3 * SECOND)
    );
    let uploaded = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (mut slot, _) = bench.ask("http://b.test/").await.admitted();
    slot.set_upload_counter(&uploaded);
    slot.record_received(1 << 10);
    uploaded.store(5 << 10, std::sync::atomic::Ordering::Relaxed);
    drop(slot);
    // Embedded resources cost as well, and other hosts are not affected.
    let (_slot, held) = bench
        .ask_for("http://b.test/i.png", "image")
        .await
        .admitted();
    assert_eq!(held, Some(5 * SECOND));
    assert_eq!(bench.pass_bytes("http://c.test/", 0).await, None);
}

#[tokio::test(start_paused = true)]
async fn over_any_window_no_more_than_the_budget_passes_but_for_one_answer() {
    let budget = 10 << 10;
    let politeness = "{ delay: 0s, concurrency: 1, max_hold: 1h, bytes_per_second: 10KiB }";
    let bench = pipeline(politeness, Clock::from_runtime());
    let mut rng = fastrand::Rng::with_seed(7);
    let mut ended: Vec<(Instant, usize)> = vec![];
    for _ in 0..100 {
        let bytes = rng.usize(0..50 << 10);
        bench.pass_bytes("http://a.test/", bytes).await;
        ended.push((Instant::now(), bytes));
    }
    for (from, (began, _)) in ended.iter().enumerate() {
        let mut before = 0;
        for (end, bytes) in &ended[from..] {
            let allowed = (*end - *began + SECOND).as_secs_f64() * f64::from(budget) + 64.0;
            assert!(
                before as f64 <= allowed,
                "{before} bytes, {allowed} allowed"
            );
            before += bytes;
        }
    }
    // No time is lost: all of it is used except for the last response and the saved allowance.
    let all = ended.iter().map(|(_, bytes)| bytes).sum::<usize>();
    let took = ended[99].0 - ended[0].0;
    assert!(
        took.as_secs_f64() * f64::from(budget) >= (all - (100 << 10)) as f64,
        "{all} in {took:?}"
    );
    assert!(
        took.as_secs_f64() * f64::from(budget) <= all as f64 + 64_000.0,
        "{all} in {took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unused_permit_costs_nothing_and_byte_debt_is_remembered() {
    let politeness = "{ delay: 0s, concurrency: 5, max_hold: 0s, bytes_per_second: 1B }";
    let bench = pipeline(politeness, Clock::from_runtime());
    drop(bench.ask("http://a.test/").await.admitted());
    bench.pass_bytes("http://a.test/", 2_001).await;
    settle().await;
    for (after, reported) in [(0, 2_000), (1_000, 1_000), (900, 100)] {
        tokio::time::advance(after * SECOND).await;
        assert_eq!(bench.metric("crawlgate_hosts_tracked"), 1.0);
        assert_eq!(
            bench.ask("http://a.test/").await.refused().1,
            Some(reported)
        );
    }
    tokio::time::advance(102 * SECOND).await;
    assert_eq!(bench.metric("crawlgate_hosts_tracked"), 0.0);
    let _gone = bench.ask("http://a.test/").await.admitted();
}
