//! `politeness.per_address`: a limit that hosts on one address share, after the limits of each host.

use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::model::reason::Reason;
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::bench::{pipeline, settle};
use crate::support::pipeline::TestPipeline;

const SECOND: Duration = Duration::from_secs(1);

fn bench(politeness: &str) -> TestPipeline {
    pipeline(
        &format!("{{ jitter: none, {politeness} }}"),
        Clock::from_runtime(),
    )
}

#[tokio::test(start_paused = true)]
async fn two_hosts_on_one_address_share_its_delay_and_its_slots() {
    let bench = bench(
        "delay: 1s, concurrency: 5, max_hold: 1m, per_address: { delay: 4s, concurrency: 2 }",
    );
    let began = Instant::now();
    let mut slots = vec![];
    for url in ["http://a.test/", "http://b.test/"] {
        let (slot, _) = bench.ask(url).await.admitted();
        slot.record_sent();
        slots.push(slot);
    }
    assert_eq!(began.elapsed(), 4 * SECOND);
    // Another address is another address.
    assert_eq!(bench.pass_bytes("http://www.test/", 0).await, None);
    let third = bench.start("http://c.test/");
    tokio::time::sleep(10 * SECOND).await;
    assert!(!third.is_finished());
    slots.pop();
    let (_slot, held) = third.await.unwrap().admitted();
    assert_eq!(held, Some(10 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn embedded_resources_use_slots_of_the_address_without_its_delay() {
    let bench = bench("delay: 0s, max_hold: 0s, per_address: { delay: 30s, concurrency: 2 }");
    bench.pass_bytes("http://a.test/", 0).await;
    let _two = [
        bench
            .ask_for("http://a.test/1.png", "image")
            .await
            .admitted(),
        bench
            .ask_for("http://b.test/2.png", "image")
            .await
            .admitted(),
    ];
    assert_eq!(
        bench
            .ask_for("http://c.test/3.png", "image")
            .await
            .refused()
            .0,
        Reason::RateLimited
    );
    let (reason, after) = bench.ask("http://b.test/").await.refused();
    assert_eq!((reason, after), (Reason::RateLimited, Some(30)));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_by_the_address_costs_the_host_nothing() {
    let bench = bench("delay: 50s, max_hold: 2s, per_address: { concurrency: 1 }");
    let (busy, _) = bench.ask("http://a.test/").await.admitted();
    busy.record_sent();
    let began = Instant::now();
    let (reason, _) = bench.ask("http://b.test/").await.refused();
    assert_eq!((reason, began.elapsed()), (Reason::RateLimited, 2 * SECOND));
    assert_eq!(bench.metric("crawlgate_leases"), 2.0);
    drop(busy);
    // Its own delay of 50 s has not started.
    assert_eq!(bench.pass_bytes("http://b.test/", 0).await, None);
    assert_eq!(bench.metric("crawlgate_leases"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn one_max_hold_covers_both_waits_and_counts_as_one_hold() {
    let bench = bench("delay: 3s, concurrency: 5, max_hold: 5s, per_address: { concurrency: 1 }");
    bench.pass_bytes("http://a.test/", 0).await;
    let (busy, _) = bench.ask("http://b.test/").await.admitted();
    busy.record_sent();
    let began = Instant::now();
    let both = bench.start("http://a.test/2");
    for held_after in [1, 3] {
        tokio::time::sleep_until(began + held_after * SECOND + Duration::from_millis(1)).await;
        assert_eq!(bench.metric("crawlgate_held_requests"), 1.0, "{held_after}");
    }
    assert_eq!(both.await.unwrap().refused().0, Reason::RateLimited);
    assert_eq!(began.elapsed(), 5 * SECOND);
    assert_eq!(bench.metric("crawlgate_held_requests"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_departure_in_either_wait_leaks_no_slot() {
    let bench = bench("delay: 4s, concurrency: 5, max_hold: 1m, per_address: { concurrency: 1 }");
    bench.pass_bytes("http://a.test/", 0).await;
    let (busy, _) = bench.ask("http://b.test/").await.admitted();
    busy.record_sent();
    for (leaves_after, gone) in [(2, 1.0), (5, 2.0), (9, 3.0)] {
        let waiting = bench.start("http://a.test/2");
        tokio::time::sleep(leaves_after * SECOND).await;
        waiting.abort();
        assert!(waiting.await.is_err());
        assert_eq!(bench.metric("crawlgate_leases"), 2.0);
        assert_eq!(bench.metric("crawlgate_held_requests"), 0.0);
        assert_eq!(
            bench.metric("crawlgate_held_disconnects_total{crawler=\"anonymous\"}"),
            gone
        );
    }
    drop(busy);
    assert_eq!(bench.pass_bytes("http://a.test/3", 0).await, None);
    assert_eq!(bench.metric("crawlgate_leases"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn one_slot_of_an_address_goes_round_among_hosts_that_fail() {
    let bench = bench(
        "delay: 0s, concurrency: 5, max_hold: 10m, per_address: { delay: 1s, concurrency: 1 }",
    );
    let began = Instant::now();
    let mut waiting = vec![];
    for number in 0..40 {
        let host = char::from(b'a' + number % 8);
        waiting.push(bench.start(&format!("http://{host}.test/{number}")));
        settle().await;
    }
    let mut sent: Vec<Instant> = vec![];
    for (number, request) in waiting.into_iter().enumerate() {
        let (mut slot, _) = request.await.unwrap().admitted();
        match number % 4 {
            // Never dialled; dialled without success; sent without a response; sent and answered.
            0 => {}
            1 => tokio::time::sleep(SECOND / 4).await,
            _ => slot.record_sent(),
        }
        sent.extend((number % 4 > 1).then(Instant::now));
        if number % 4 == 3 {
            slot.record_response(StatusCode::OK, &HeaderMap::new());
        }
    }
    assert!(
        sent.windows(2).all(|pair| pair[1] - pair[0] >= SECOND),
        "{sent:?}"
    );
    assert!(began.elapsed() < 60 * SECOND, "{:?}", began.elapsed());
    assert_eq!(bench.metric("crawlgate_leases"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_one_host_does_not_rest_its_address() {
    let bench = bench("delay: 0s, max_hold: 0s, per_address: { concurrency: 5 }");
    let (mut slot, _) = bench.ask("http://a.test/").await.admitted();
    let reported: HeaderMap = [(http::header::RETRY_AFTER, "100".parse().unwrap())]
        .into_iter()
        .collect();
    slot.record_response(StatusCode::TOO_MANY_REQUESTS, &reported);
    drop(slot);
    assert_eq!(
        bench.ask("http://a.test/").await.refused(),
        (Reason::HostBackoff, Some(100))
    );
    let _gone = bench.ask("http://b.test/").await.admitted();
}

#[tokio::test(start_paused = true)]
async fn a_wait_longer_than_a_lease_breaks_no_delay_of_the_host() {
    let bench = bench("delay: 10s, concurrency: 5, max_hold: 10m, per_address: { concurrency: 1 }");
    let reads = |url: &str, time: Duration| {
        let bench = bench.clone();
        let url = url.to_owned();
        tokio::spawn(async move {
            let (slot, _) = bench.ask(&url).await.admitted();
            slot.record_sent();
            let sent = Instant::now();
            tokio::time::sleep(time).await;
            sent
        })
    };
    let mut others = vec![];
    for host in ["b", "c", "d", "e"] {
        others.push(reads(&format!("http://{host}.test/"), 50 * SECOND));
        settle().await;
    }
    let began = Instant::now();
    let mut own = vec![];
    for number in 0..3 {
        own.push(reads(&format!("http://a.test/{number}"), SECOND));
        settle().await;
    }
    let mut sent = vec![];
    for request in own {
        sent.push(request.await.unwrap());
    }
    sent.sort();
    assert!(
        sent.windows(2).all(|pair| pair[1] - pair[0] >= 10 * SECOND),
        "{sent:?}"
    );
    assert!(
        (200..230).contains(&(sent[2] - began).as_secs()),
        "{sent:?}"
    );
    for other in others {
        other.await.unwrap();
    }
    assert_eq!(bench.metric("crawlgate_leases"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn tunnels_use_the_delay_of_the_address_without_its_slots() {
    let bench = bench("delay: 0s, per_address: { delay: 5s, concurrency: 1 }");
    let slot = bench
        .admit_tunnel("a.test:443", Duration::ZERO)
        .await
        .outcome
        .unwrap()
        .redeem()
        .2;
    slot.record_sent();
    assert!(
        bench
            .admit_tunnel("b.test:443", Duration::ZERO)
            .await
            .outcome
            .is_err()
    );
    tokio::time::advance(5 * SECOND).await;
    assert!(
        bench
            .admit_tunnel("b.test:443", Duration::ZERO)
            .await
            .outcome
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn the_key_address_and_the_limit_of_the_address_are_two() {
    let bench = bench("key: address, delay: 2s, max_hold: 0s, per_address: { delay: 7s }");
    bench.pass_bytes("http://a.test/", 0).await;
    assert_eq!(bench.ask("http://b.test/").await.refused().1, Some(2));
    tokio::time::advance(2 * SECOND).await;
    assert_eq!(bench.ask("http://b.test/").await.refused().1, Some(5));
    tokio::time::advance(5 * SECOND).await;
    let _gone = bench.ask("http://b.test/").await.admitted();
}

/// A request that has its host's permit and waits for the address is not sent in a rest that begins meanwhile.
#[tokio::test(start_paused = true)]
async fn a_host_that_rests_rests_for_those_that_wait_for_its_address_too() {
    let bench = bench("delay: 0s, concurrency: 2, max_hold: 5m, per_address: { concurrency: 2 }");
    let (other, _) = bench.ask("http://b.test/").await.admitted();
    let (mut first, _) = bench.ask("http://a.test/1").await.admitted();
    first.record_sent();
    let began = Instant::now();
    let second = bench.start("http://a.test/2");
    tokio::time::sleep(SECOND).await;
    let reported: HeaderMap = [(
        http::header::RETRY_AFTER,
        http::HeaderValue::from_static("60"),
    )]
    .into_iter()
    .collect();
    first.record_response(StatusCode::SERVICE_UNAVAILABLE, &reported);
    drop(first);
    drop(other);
    let (slot, _) = second.await.unwrap().admitted();
    assert_eq!(began.elapsed(), 61 * SECOND);
    drop(slot);
    assert_eq!(bench.metric("crawlgate_leases"), 0.0);
}

/// A host's slot is not kept for ever for one that waits for its address: others of its key go meanwhile.
#[tokio::test(start_paused = true)]
async fn a_wait_for_an_address_does_not_block_others_of_the_key() {
    let bench =
        bench("key: registrable_domain, delay: 1s, max_hold: 5m, per_address: { concurrency: 1 }");
    let (busy, _) = bench.ask("http://b.example.net/").await.admitted();
    busy.record_sent();
    bench.pass_bytes("http://www.test/", 0).await;
    let began = Instant::now();
    // The first waits for the address that is busy, the second's is free; both are of one domain.
    let first = bench.start("http://a.test/");
    settle().await;
    let second = bench.start("http://www.test/2");
    let (slot, _) = second.await.unwrap().admitted();
    assert!(began.elapsed() <= 32 * SECOND, "{:?}", began.elapsed());
    drop((slot, busy));
    drop(first.await.unwrap().admitted());
}
