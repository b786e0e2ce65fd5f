//! `GET /api/v1/status`.

use std::collections::BTreeSet;
use std::time::Duration;

use crawlgate::admin::health::{CheckState, HealthCheck, Readiness};
use crawlgate::metrics::labels::{ClientTlsFailureCause, ResponseSource};
use crawlgate::metrics::record::UrlRetention;
use crawlgate::model::reason::Reason;
use crawlgate::model::stage::Stage;
use http::Method;
use serde_json::json;

use super::ApiBench;
use crate::support::recorder::unwritten_recorder;

const POLICY: &str = "policy: 1\nname: acme\noptions: { disposition: allow }\n";

#[tokio::test]
async fn the_status_counts_recorded_requests_only() {
    let bench = ApiBench::new(POLICY).await;
    let recorder = unwritten_recorder(&bench.metrics, &bench.clock);
    let news = bench.metrics.crawler_index("news");
    for (refused, took) in [(true, 3), (true, 30), (false, 3_000)] {
        let mut record = recorder.begin(bench.clock.now(), &Method::GET);
        record.set_crawler(news);
        if refused {
            record.enter_stage(Stage::Request);
            record.set_rejected(Reason::Rule, None, UrlRetention::Full);
            record.set_sent_status(451, ResponseSource::Proxy);
        } else {
            record.enter_stage(Stage::Response);
            record.set_allowed(None);
            record.set_sent_status(200, ResponseSource::Origin);
        }
        bench.manual_clock.advance(Duration::from_millis(took));
    }
    let _open = bench.metrics.track_connection();
    let _waits = recorder.begin(bench.clock.now(), &Method::GET);
    bench.metrics.set_hosts(7, 2, 0);

    let (status, output) = bench.ask("GET /api/v1/status", b"").await;
    assert_eq!(status, 200);
    assert_eq!(
        (&output["metrics"], &output["log_dropped"]),
        (&"full".into(), &0.into())
    );
    assert_eq!(
        (&output["version"], &output["instance"]),
        (&env!("CARGO_PKG_VERSION").into(), &"it".into())
    );
    assert_eq!(
        (&output["started_at"], &output["uptime_ms"]),
        (&"2026-01-01T00:00:00.000Z".into(), &3_033.into())
    );
    assert_eq!(output["policy"]["name"], "acme");
    assert_eq!(
        (&output["ready"], &output["warnings"]),
        (&true.into(), &json!([]))
    );
    assert_eq!(
        (&output["connections"], &output["inflight"], &output["held"]),
        (&1.into(), &1.into(), &0.into())
    );
    assert_eq!(output["hosts"], json!({ "tracked": 7, "backing_off": 2 }));
    assert_eq!(output["requests"], 3);
    assert_eq!(
        output["decisions"],
        json!({
            "allow": 1, "reject": 2, "shadow_reject": 0,
            "by_reason": [
                { "reason": "rule", "stage": "request", "verdict": "reject", "count": 2 },
                { "reason": "default", "stage": "response", "verdict": "allow", "count": 1 },
            ],
            "by_crawler": [
                { "crawler": "anonymous", "allow": 0, "reject": 0, "shadow_reject": 0 },
                { "crawler": "news", "allow": 1, "reject": 2, "shadow_reject": 0 },
            ],
        })
    );
    let latency = &output["latency"];
    let counts: Vec<u64> = serde_json::from_value(latency["counts"].clone()).unwrap();
    let bounds: Vec<Option<u64>> = serde_json::from_value(latency["le_ms"].clone()).unwrap();
    assert_eq!(
        (bounds.len(), bounds[0], bounds.last()),
        (counts.len(), Some(5), Some(&None))
    );
    let at = |bound| counts[bounds.iter().position(|of| *of == bound).unwrap()];
    assert_eq!(
        [
            at(Some(5)),
            at(Some(50)),
            at(Some(2_500)),
            at(Some(5_000)),
            at(None)
        ],
        [1, 2, 2, 3, 3]
    );
    assert_eq!(latency["sum_ms"], 3_033);
}

#[tokio::test]
async fn the_status_contains_readiness() {
    let bench = ApiBench::with(
        POLICY,
        None,
        Readiness::new(|| {
            vec![
                HealthCheck::new("policy", CheckState::Ok("acme".into())),
                HealthCheck::new("log", CheckState::Warn("7 lines were lost".into())),
                HealthCheck::new(
                    "drain",
                    CheckState::Fail("the proxy is shutting down".into()),
                ),
            ]
        }),
    )
    .await;
    let (_, output) = bench.ask("GET /api/v1/status", b"").await;
    assert_eq!(output["ready"], false);
    assert_eq!(
        output["warnings"],
        json!([
            "log: 7 lines were lost",
            "drain: the proxy is shutting down"
        ])
    );
}

/// Without metrics the counts are null: a zero would mean that there were no requests.
#[tokio::test]
async fn without_metrics_the_counts_are_null() {
    let bench = ApiBench::uncounted(POLICY).await;
    let _open = bench.metrics.track_connection();
    let (status, output) = bench.ask("GET /api/v1/status", b"").await;
    assert_eq!(status, 200);
    let keys = output.as_object().unwrap();
    let unknown: BTreeSet<&str> = keys
        .iter()
        // There is no shadow policy and no fleet, and the built-in policy has no path, with metrics or without.
        .filter(|(key, value)| {
            value.is_null() && !["policy_path", "shadow_policy", "node"].contains(&key.as_str())
        })
        .map(|(key, _)| key.as_str())
        .collect();
    let expected = [
        "connections",
        "tunnels",
        "inflight",
        "held",
        "hosts",
        "requests",
        "decisions",
        "bytes",
        "latency",
        "timings",
    ];
    assert_eq!(unknown, expected.into());
    assert_eq!(
        (&output["metrics"], &output["log_dropped"]),
        (&"none".into(), &0.into())
    );
    assert_eq!(output["policy"]["name"], "acme");
}

/// Charts begin with the samples of the last hour, not when a page is opened.
#[tokio::test]
async fn the_history_has_a_sample_for_each_ten_seconds_of_an_hour() {
    let bench = ApiBench::new(POLICY).await;
    let (_, output) = bench.ask("GET /api/v1/history", b"").await;
    assert_eq!(output["interval_ms"], 10_000);
    refuse(&bench);
    pass_minutes(1).await;
    let (_, output) = bench.ask("GET /api/v1/history", b"").await;
    let samples = output["samples"].as_array().unwrap();

    assert!((6..=7).contains(&samples.len()), "{samples:?}");
    let last = samples.last().unwrap();
    assert_eq!((&last["allow"], &last["reject"]), (&0.into(), &1.into()));
    assert_eq!(last["reasons"], json!({ "rule": 1 }));
    for name in ["origin", "held", "decision"] {
        let counts = last["timings"][name].as_array().unwrap().len();
        assert_eq!(output["le_ms"][name].as_array().unwrap().len(), counts);
    }

    pass_minutes(120).await;
    let (_, output) = bench.ask("GET /api/v1/history", b"").await;
    assert_eq!(output["samples"].as_array().unwrap().len(), 360);
}

/// Records a request that a rule refuses.
fn refuse(bench: &ApiBench) {
    let recorder = unwritten_recorder(&bench.metrics, &bench.clock);
    let mut record = recorder.begin(bench.clock.now(), &Method::GET);
    record.enter_stage(Stage::Request);
    record.set_rejected(Reason::Rule, None, UrlRetention::Full);
    record.set_sent_status(451, ResponseSource::Proxy);
}

/// Moves the timers of the runtime, while no connection waits.
async fn pass_minutes(minutes: u32) {
    tokio::time::pause();
    for _ in 0..6 * minutes {
        tokio::time::advance(Duration::from_secs(10)).await;
        // The tasks of the server take their turns.
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    }
    tokio::time::resume();
}

#[tokio::test]
async fn crawlers_are_reported_with_their_refusals_and_their_trust() {
    let policy = "policy: 1\nname: acme\noptions: { disposition: allow }\nspaces: [{ name: main, crawlers: [news] }]\n";
    let bench = ApiBench::new(policy).await;
    let recorder = unwritten_recorder(&bench.metrics, &bench.clock);
    let has_sample = async || {
        let (_, output) = bench.ask("GET /api/v1/history", b"").await;
        !output["samples"].as_array().unwrap().is_empty()
    };
    for attempt in 0.. {
        if has_sample().await {
            break;
        }
        assert!(attempt < 1_000, "the first sample is never taken");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let news = bench.metrics.crawler_index("news");
    for reason in [Some(Reason::RobotsTxt), Some(Reason::RobotsTxt), None] {
        let mut record = recorder.begin(bench.clock.now(), &Method::GET);
        record.set_crawler(news);
        match reason {
            Some(reason) => record.set_rejected(reason, None, UrlRetention::Full),
            None => record.set_allowed(None),
        }
    }
    bench.manual_clock.advance(Duration::from_secs(5));
    let at = bench.clock.wall_time();
    let distrust = ClientTlsFailureCause::Distrust;
    bench
        .metrics
        .record_client_handshake_failure(news, distrust, at);
    let (status, output) = bench.ask("GET /api/v1/crawlers", b"").await;
    assert_eq!(status, 200);
    assert_eq!(output["crawlers"][0]["crawler"], "anonymous");
    assert_eq!(output["crawlers"][0]["tls"]["trust"], "unknown");
    let row = &output["crawlers"][1];
    assert_eq!(
        json!([
            row["crawler"],
            row["profile"],
            row["space"],
            row["allow"],
            row["reject"],
            row["reasons"]
        ]),
        json!(["news", "scrapy", "main", 1, 2, { "robots_txt": 2 }])
    );
    assert_eq!(row["last_seen"], "2026-01-01T00:00:05.000Z");
    assert_eq!(
        json!([row["tls"]["trust"], row["tls"]["failures"]["distrust"]]),
        json!(["distrusted", 1])
    );
    assert_eq!(
        row["last_hour"],
        json!({ "span_ms": 5_000, "allow": 1, "reject": 2 })
    );
    bench.metrics.record_crawler_handshake(news, at);
    let (_, output) = bench.ask("GET /api/v1/crawlers", b"").await;
    assert_eq!(output["crawlers"][1]["tls"]["trust"], "partly");
}

#[tokio::test]
async fn crawlers_that_are_not_counted_have_no_numbers() {
    let bench = ApiBench::uncounted(POLICY).await;
    let (status, output) = bench.ask("GET /api/v1/crawlers", b"").await;
    assert_eq!((status, &output["metrics"]), (200, &"none".into()));
    let row = &output["crawlers"][1];
    assert_eq!(
        json!([row["crawler"], row["allow"], row["tls"], row["last_seen"]]),
        json!(["news", null, null, null])
    );
}
