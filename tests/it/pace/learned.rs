//! The pace that responses of a host teach, through the pipeline, in paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crawlgate::model::reason::Reason;
use crawlgate::pipeline::admission::HostSlot;
use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::{Instant, sleep};

use super::gate::pipeline_on_runtime_clock;
use crate::support::pipeline::TestPipeline;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// No pace of its own, so that requests are held by rests only.
const FREE: &str = "{ delay: 0s, concurrency: 10, max_hold: 10m }";
const HASTY: &str = "{ delay: 0s, concurrency: 10, max_hold: 0s }";

fn fields(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    let pairs = fields.iter().map(|(name, value)| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )
    });
    pairs.collect()
}

fn answer(slot: &mut HostSlot, status: u16, with: &[(&'static str, &'static str)]) {
    slot.record_sent();
    slot.record_response(StatusCode::from_u16(status).unwrap(), &fields(with));
}

/// The outcome of one request that goes at once: `ok`, `404`, `500`, …; `fails`, `breaks` after a good head, or the
/// client `leaves`.
async fn ends(bench: &TestPipeline, how: &str) {
    let (mut slot, _) = bench.ask("http://a.test/").await.admitted();
    match how {
        "fails" => slot.record_failure(),
        "breaks" => {
            answer(&mut slot, 200, &[]);
            slot.record_failure();
        }
        "breaks500" => {
            answer(&mut slot, 500, &[]);
            slot.record_failure();
        }
        "leaves" => slot.record_sent(),
        status => answer(&mut slot, status.parse().unwrap(), &[]),
    }
}

/// The time for which the host rests; `None` if it does not.
async fn rest(bench: &TestPipeline) -> Option<Duration> {
    let began = Instant::now();
    let (slot, _) = bench.ask("http://a.test/").await.admitted();
    drop(slot);
    Some(began.elapsed()).filter(|rest| !rest.is_zero())
}

#[tokio::test(start_paused = true)]
async fn three_bad_ends_in_a_row_bring_rest() {
    for (ends_so, rests) in [
        ("500 502 520", true),
        ("fails fails fails", true),
        ("500 fails breaks", true),
        ("breaks breaks breaks", true),
        ("500 200 500 200 500 200", false),
        ("500 500 404 500 500", false),
        ("500 500 403 500 500", false),
        ("500 500 301 fails fails", false),
        // The departure of a client has no meaning for the host.
        ("leaves leaves leaves leaves", false),
        ("500 leaves 500 leaves 500", true),
        ("501 505 501 505", false),
        // One failure, although it appears twice.
        ("breaks500 500", false),
    ] {
        let bench = pipeline_on_runtime_clock(FREE);
        for how in ends_so.split(' ') {
            ends(&bench, how).await;
        }
        let rested = rest(&bench).await.unwrap_or_default();
        let expected = if rests {
            5 * SECOND..=7 * SECOND
        } else {
            Duration::ZERO..=Duration::ZERO
        };
        assert!(expected.contains(&rested), "{ends_so}: {rested:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn both_forms_of_retry_after_are_respected() {
    // A clock of the runtime begins with the year 2026.
    for (reported, seconds) in [
        ("30", 30..=30),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 59..=60),
        ("0", 5..=7),
        ("-1", 5..=7),
        ("1.5", 5..=7),
        ("Wed, 31 Dec 2025 00:00:00 GMT", 5..=7),
        ("99999999999999999999", 3_600..=3_600),
        ("Fri, 01 Jan 2100 00:00:00 GMT", 3_600..=3_600),
    ] {
        for status in [429, 503] {
            let bench = pipeline_on_runtime_clock("{ delay: 0s, max_hold: 2h }");
            let (mut slot, _) = bench.ask("http://a.test/").await.admitted();
            answer(&mut slot, status, &[("retry-after", reported)]);
            drop(slot);
            let rested = rest(&bench).await.unwrap().as_secs_f64().round() as u64;
            assert!(seconds.contains(&rested), "{status} {reported}: {rested}");
        }
    }
}

/// Fifty requests that wait for the end of a rest, half of them embedded resources; counts those that went.
struct LearnedCrowd {
    bench: TestPipeline,
    went: Arc<AtomicUsize>,
    slots: tokio::sync::mpsc::UnboundedReceiver<HostSlot>,
}

impl LearnedCrowd {
    async fn behind_a_rest() -> Self {
        let bench = pipeline_on_runtime_clock(FREE);
        let (mut slot, _) = bench.ask("http://a.test/").await.admitted();
        answer(&mut slot, 503, &[("retry-after", "30")]);
        drop(slot);
        let went = Arc::new(AtomicUsize::new(0));
        let (tell, slots) = tokio::sync::mpsc::unbounded_channel();
        for number in 0..50 {
            let bench = bench.clone();
            let went = Arc::clone(&went);
            let tell = tell.clone();
            tokio::spawn(async move {
                let dest = if number % 2 == 0 { "document" } else { "image" };
                let url = format!("http://a.test/{number}");
                let (slot, _) = bench
                    .ask_with(&url, &[("sec-fetch-dest", dest)])
                    .await
                    .admitted();
                went.fetch_add(1, Ordering::SeqCst);
                let _ = tell.send(slot);
            });
        }
        sleep(29 * SECOND).await;
        assert_eq!(went.load(Ordering::SeqCst), 0);
        assert_eq!(bench.metric("crawlgate_hosts_backing_off"), 1.0);
        sleep(SECOND + MS).await;
        assert_eq!(bench.metric("crawlgate_hosts_backing_off"), 0.0);
        Self { bench, went, slots }
    }

    async fn after(&self, time: Duration) -> usize {
        sleep(time).await;
        self.went.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn when_a_rest_ends_exactly_one_goes() {
    let mut crowd = LearnedCrowd::behind_a_rest().await;
    assert_eq!(crowd.after(20 * SECOND).await, 1);
    // A new request waits for the probe as well, and gets a Retry-After.
    let hasty = [("crawl-max-wait", "0")];
    assert_eq!(
        crowd
            .bench
            .ask_with("http://a.test/new", &hasty)
            .await
            .refused()
            .0,
        Reason::HostBackoff
    );
    // The host is proven by the head, before the last byte.
    let mut probe = crowd.slots.recv().await.unwrap();
    answer(&mut probe, 200, &[]);
    assert_eq!(
        crowd.after(MS).await,
        30,
        "ten pages, one of which has gone, and twenty parts of pages"
    );
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_the_probe_applies_to_the_others() {
    for (how, at_once, later, later_went) in [
        // After a failed probe the rest is twice as long.
        ("500", 1, 9 * SECOND, 1),
        ("500", 1, 13 * SECOND, 2),
        ("503", 1, 13 * SECOND, 2),
        ("fails", 1, 13 * SECOND, 2),
        // A probe without a result makes room for the next.
        ("leaves", 2, 13 * SECOND, 2),
        ("is lost", 1, 50 * SECOND, 1),
        ("is lost", 1, 61 * SECOND, 2),
    ] {
        let mut crowd = LearnedCrowd::behind_a_rest().await;
        let mut probe = crowd.slots.recv().await.unwrap();
        match how {
            "fails" => probe.record_failure(),
            "leaves" | "is lost" => {}
            status => answer(&mut probe, status.parse().unwrap(), &[]),
        }
        let lost = Some(probe).filter(|_| how == "is lost");
        assert_eq!(crowd.after(MS).await, at_once, "{how}");
        assert_eq!(
            crowd.after(later).await,
            later_went,
            "{how}, {later:?} later"
        );
        drop(lost);
    }
}

#[tokio::test(start_paused = true)]
async fn the_delay_follows_the_origins_latency() {
    let bench = pipeline_on_runtime_clock(
        "{ delay: 0s, jitter: none, adaptive: { factor: 2, min: 100ms, max: 10s } }",
    );
    let mut came = vec![];
    for (took, status) in [(500, 200), (500, 200), (10, 404), (500, 500), (0, 200)] {
        let (mut slot, held) = bench.ask("http://a.test/").await.admitted();
        came.push(held.unwrap_or_default().as_millis());
        slot.record_sent();
        sleep(took * MS).await;
        slot.record_response(StatusCode::from_u16(status).unwrap(), &HeaderMap::new());
    }
    // Twice the latency, counted from the sent head: the time of the response is part of it.
    assert_eq!(came, [0, 500, 500, 990, 1_500]);
}

#[tokio::test(start_paused = true)]
async fn signs_of_a_ban_are_counted_without_effect() {
    let bench = pipeline_on_runtime_clock(HASTY);
    for _ in 0..20 {
        ends(&bench, "403").await;
    }
    assert_eq!(bench.metric("crawlgate_ban_suspicions_total"), 1.0);
    for _ in 0..2 {
        let (mut slot, _) = bench.ask("http://b.test/").await.admitted();
        answer(&mut slot, 403, &[("cf-mitigated", "challenge")]);
    }
    assert_eq!(bench.metric("crawlgate_ban_suspicions_total"), 2.0);
    assert_eq!(bench.ask("http://a.test/").await.reason(), None);
}
