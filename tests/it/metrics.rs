//! Metrics and the record: names, counts, and every way in which a record can end.

mod rule_labels;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crawlgate::clock::{Clock, ManualClock};
use crawlgate::metrics::labels::{
    ClientTlsFailureCause, ForeignBytesKind, MetricsMode, ResponseSource, RuleKind, RuleMode,
    VerdictLabel,
};
use crawlgate::metrics::policy::{DEFAULT_RULE_LABELS, PolicyMetrics, RETENTION, RuleCounts};
use crawlgate::metrics::record::{Recorder, UrlRetention};
use crawlgate::metrics::shadow::{ShadowChange, ShadowNote, ShadowNotes, ShadowSource};
use crawlgate::metrics::{CrawlerIndex, Metrics, MetricsExtent, families};
use crawlgate::model::crawler::Crawler;
use crawlgate::model::reason::Reason;
use crawlgate::model::rule_id::{RuleId, Slug};
use crawlgate::model::stage::Stage;
use crawlgate::urls::target::UrlTarget;
use http::{HeaderValue, Method};

use crate::support::recorder::unwritten_recorder;

/// The names of released versions, which must not disappear. New ones are added with a release.
const RELEASED_NAMES: &str = "
    crawlgate_hold_seconds crawlgate_held_requests crawlgate_held_disconnects_total crawlgate_hosts_tracked
    crawlgate_hosts_backing_off crawlgate_ban_suspicions_total crawlgate_leases crawlgate_crawl_delay_capped_total
    crawlgate_stops
    crawlgate_decisions_total crawlgate_rule_matched_total crawlgate_rule_decided_total crawlgate_requests_total
    crawlgate_request_duration_seconds crawlgate_decision_duration_seconds crawlgate_upstream_ttfb_seconds
    crawlgate_dns_duration_seconds crawlgate_connect_duration_seconds crawlgate_upstream_responses_total
    crawlgate_upstream_errors_total crawlgate_bytes_total crawlgate_connections crawlgate_connections_limit crawlgate_inflight_requests
    crawlgate_robots_fetches_total crawlgate_robots_cache_entries crawlgate_tunnels crawlgate_tunnels_total crawlgate_documents_total crawlgate_sni_checks_total
    crawlgate_addresses_refused_total crawlgate_upstream_unverified_total crawlgate_policy_info crawlgate_policy_last_reload_success
    crawlgate_policy_last_reload_success_timestamp_seconds crawlgate_policy_reloads_total crawlgate_policy_rules
    crawlgate_policy_rules_disabled crawlgate_head_rejections_total crawlgate_foreign_bytes_total
    crawlgate_robots_fetches_total crawlgate_robots_cache_entries
    crawlgate_repeat_rejections_total crawlgate_decision_log_dropped_total crawlgate_panics_total
    crawlgate_tls_handshake_seconds crawlgate_client_tls_failures_total crawlgate_leaf_certificates_total
    crawlgate_mint_waits_total crawlgate_ca_not_after_timestamp_seconds crawlgate_trace_spans_exported_total
    crawlgate_trace_spans_dropped_total
    crawlgate_ledger_urls crawlgate_ledger_events_total crawlgate_ledger_pending_removals
    crawlgate_ledger_held_removals crawlgate_ledger_queue crawlgate_ledger_waits_total
    crawlgate_ledger_dropped_total crawlgate_ledger_failures_total crawlgate_ledger_broken
    crawlgate_ledger_feed_events_total crawlgate_ledger_feed_failures_total crawlgate_ledger_feed_behind
    crawlgate_build_info";
const PROCESS_NAMES: &str = "
    process_cpu_seconds_total process_open_fds process_max_fds process_virtual_memory_bytes
    process_virtual_memory_max_bytes process_resident_memory_bytes process_start_time_seconds";

struct MetricsBench {
    metrics: Metrics,
    recorder: Recorder,
    clock: Clock,
    manual_clock: ManualClock,
}

impl MetricsBench {
    fn new() -> Self {
        Self::with(MetricsMode::All)
    }

    fn with(counting: MetricsMode) -> Self {
        Self::with_extent(MetricsExtent {
            mode: counting,
            ..MetricsExtent::default()
        })
    }

    fn with_extent(extent: MetricsExtent) -> Self {
        let (clock, manual_clock) = Clock::manual();
        let news = Crawler::new(&Slug::new("news-bot").unwrap());
        let metrics = Metrics::with_extent(extent, &[news], &["loopback", "private"]).unwrap();
        let recorder = unwritten_recorder(&metrics, &clock);
        Self {
            metrics,
            recorder,
            clock,
            manual_clock,
        }
    }

    fn policy(&self, rules: &[(&str, RuleMode)]) -> Arc<PolicyMetrics> {
        self.revision("3f9c2a1b", rules)
    }

    fn revision(&self, revision: &str, rules: &[(&str, RuleMode)]) -> Arc<PolicyMetrics> {
        let ids: Vec<_> = rules
            .iter()
            .map(|(id, mode)| (RuleId::new(id).unwrap(), *mode))
            .collect();
        let rules = ids.iter().map(|(id, mode)| (id, *mode, RuleKind::Group));
        self.metrics
            .register_policy("acme", revision, rules, &self.clock)
    }

    fn begin(&self) -> crawlgate::metrics::record::RequestRecord {
        self.recorder.begin(self.clock.now(), &Method::GET)
    }

    /// The series whose value is not 0, without histograms and the process.
    fn counted(&self) -> BTreeMap<String, f64> {
        let text = self.metrics.render();
        let samples = text
            .lines()
            .filter(|line| line.starts_with("crawlgate_") && !line.contains("_seconds"));
        let samples = samples.map(|line| line.rsplit_once(' ').unwrap());
        let samples = samples.map(|(series, value)| {
            (
                series.trim_start_matches("crawlgate_").to_owned(),
                value.parse::<f64>().unwrap(),
            )
        });
        let still =
            |series: &String| series.starts_with("build_info") || series.starts_with("policy_");
        samples
            .filter(|(series, value)| *value != 0.0 && !still(series))
            .collect()
    }

    fn check(&self, expected: &[(&str, f64)]) {
        let expected: BTreeMap<String, f64> = expected
            .iter()
            .map(|(s, v)| ((*s).to_owned(), *v))
            .collect();
        assert_eq!(self.counted(), expected);
    }

    fn value(&self, series: &str) -> Option<f64> {
        let text = self.metrics.render();
        let line = text.lines().find_map(|line| {
            line.strip_prefix(series)?
                .strip_prefix(' ')
                .map(str::to_owned)
        });
        line.map(|value| value.parse().unwrap())
    }
}

#[test]
fn clients_that_fail_in_tls_are_counted_by_crawler_and_handshakes_by_side() {
    let bench = MetricsBench::new();
    for crawler in ["anonymous", "news-bot"] {
        for cause in ClientTlsFailureCause::ALL {
            let cause = cause.as_str();
            let series = format!(
                "crawlgate_client_tls_failures_total{{cause=\"{cause}\",crawler=\"{crawler}\"}}"
            );
            assert_eq!(bench.value(&series), Some(0.0), "shown before it occurs");
        }
    }
    for (crawler, cause) in [
        (
            bench.metrics.crawler_index("news-bot"),
            ClientTlsFailureCause::Left,
        ),
        (
            bench.metrics.crawler_index("stranger"),
            ClientTlsFailureCause::Distrust,
        ),
        (CrawlerIndex::ANONYMOUS, ClientTlsFailureCause::Distrust),
    ] {
        bench
            .metrics
            .record_client_handshake_failure(crawler, cause, SystemTime::UNIX_EPOCH);
    }
    bench.metrics.record_leaf_certificate();
    bench.metrics.record_certificate_wait();
    bench.check(&[
        (
            "client_tls_failures_total{cause=\"distrust\",crawler=\"anonymous\"}",
            2.0,
        ),
        (
            "client_tls_failures_total{cause=\"left\",crawler=\"news-bot\"}",
            1.0,
        ),
        ("leaf_certificates_total", 1.0),
        ("mint_waits_total", 1.0),
    ]);
    bench
        .metrics
        .record_client_handshake(Duration::from_millis(20));
    bench
        .metrics
        .record_origin_handshake(Duration::from_millis(30));
    bench
        .metrics
        .record_origin_handshake(Duration::from_millis(30));
    for (side, count) in [("client", 1.0), ("origin", 2.0)] {
        let series = format!("crawlgate_tls_handshake_seconds_count{{side=\"{side}\"}}");
        assert_eq!(bench.value(&series), Some(count), "{side}");
    }
    bench.metrics.set_ca_expiry(bench.clock.wall_time());
    assert_eq!(
        bench.value("crawlgate_ca_not_after_timestamp_seconds"),
        Some(1_767_225_600.0)
    );
}

fn url(text: &str) -> UrlTarget {
    UrlTarget::parse(text).unwrap()
}

#[test]
fn every_family_is_exported_and_released_names_stay() {
    let all: BTreeSet<&str> = families::ALL.iter().map(|family| family.name).collect();
    for released in RELEASED_NAMES.split_whitespace() {
        assert!(
            all.contains(released),
            "{released} is used by dashboards and alerts"
        );
    }

    let bench = MetricsBench::new();
    let _policy = bench.policy(&[("a", RuleMode::Enforce)]);
    let text = bench.metrics.render();
    let shown: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let all: BTreeSet<&str> = all
        .into_iter()
        .chain(PROCESS_NAMES.split_whitespace())
        .collect();
    // These have series only for parents of the configuration, and for links that fail.
    let all: BTreeSet<&str> = all
        .into_iter()
        .filter(|name| {
            !name.starts_with("crawlgate_parent_") && *name != "crawlgate_fleet_link_failing"
        })
        .collect();
    assert_eq!(shown, all);
}

#[test]
fn a_process_shows_plausible_figures() {
    let bench = MetricsBench::new();
    fn value(bench: &MetricsBench, name: &str) -> f64 {
        bench.value(name).unwrap()
    }
    assert!(value(&bench, "process_resident_memory_bytes") > 1e6);
    assert!(
        value(&bench, "process_virtual_memory_bytes")
            >= value(&bench, "process_resident_memory_bytes")
    );
    assert!(value(&bench, "process_open_fds") >= 3.0);
    assert!(value(&bench, "process_open_fds") <= value(&bench, "process_max_fds"));
    assert!(value(&bench, "process_start_time_seconds") > 1.6e9);
}

#[test]
fn series_are_shown_before_anything_happens() {
    let bench = MetricsBench::new();
    bench.check(&[]);
    for series in [
        r#"crawlgate_decisions_total{crawler="news-bot",reason="rule",stage="request",verdict="reject"}"#,
        r#"crawlgate_decisions_total{crawler="anonymous",reason="default",stage="response",verdict="allow"}"#,
        r#"crawlgate_requests_total{code="451",crawler="anonymous",method="GET",source="proxy"}"#,
        r#"crawlgate_upstream_responses_total{code_class="2xx",content_family="html"}"#,
        r#"crawlgate_upstream_errors_total{error="connection_refused"}"#,
        r#"crawlgate_bytes_total{direction="sent",side="client"}"#,
        r#"crawlgate_addresses_refused_total{range="loopback"}"#,
        r#"crawlgate_head_rejections_total{reason="headers_too_large"}"#,
        r#"crawlgate_foreign_bytes_total{reason="client_hello"}"#,
        r#"crawlgate_policy_reloads_total{result="failure"}"#,
        "crawlgate_panics_total",
    ] {
        assert_eq!(bench.value(series), Some(0.0), "{series}");
    }
}

#[test]
fn an_allowed_request_counts_once_in_every_family() {
    let bench = MetricsBench::new();
    let policy = bench.policy(&[("group", RuleMode::Enforce), ("pages", RuleMode::Enforce)]);
    let mut record = bench.begin();
    assert_eq!(bench.value("crawlgate_inflight_requests"), Some(1.0));
    record.set_crawler(bench.metrics.crawler_index("news-bot"));
    record.set_target(&url("http://www.example.com/a?b"));
    record.set_policy(&policy);
    record.enter_stage(Stage::Request);
    record.set_matched_rules([0]);
    record.set_allowed(None);
    bench.manual_clock.advance(Duration::from_micros(40));
    record.set_decided_at(bench.clock.now());
    record.enter_stage(Stage::Upstream);
    record.set_dns_time(Duration::from_millis(3));
    record.set_connect_time(Duration::from_millis(30));
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    record.set_origin_response(200, Some(&html), Duration::from_millis(300));
    record.enter_stage(Stage::Response);
    record.set_matched_rules([0, 1, 1]);
    record.set_allowed(Some(1));
    record.set_sent_status(200, ResponseSource::Origin);
    record.add_received_bytes(10);
    record.add_sent_bytes(1_000);
    record.add_sent_bytes(24);
    bench.manual_clock.advance(Duration::from_secs(3));
    record.finish(bench.clock.now());
    bench.check(&[
        (
            r#"decisions_total{crawler="news-bot",reason="rule",stage="response",verdict="allow"}"#,
            1.0,
        ),
        (
            r#"requests_total{code="200",crawler="news-bot",method="GET",source="origin"}"#,
            1.0,
        ),
        (r#"rule_matched_total{mode="enforce",rule="group"}"#, 1.0),
        (r#"rule_matched_total{mode="enforce",rule="pages"}"#, 1.0),
        (
            r#"rule_decided_total{mode="enforce",rule="pages",verdict="allow"}"#,
            1.0,
        ),
        (
            r#"upstream_responses_total{code_class="2xx",content_family="html"}"#,
            1.0,
        ),
        (r#"bytes_total{direction="received",side="client"}"#, 10.0),
        (r#"bytes_total{direction="sent",side="origin"}"#, 10.0),
        (
            r#"bytes_total{direction="received",side="origin"}"#,
            1_024.0,
        ),
        (r#"bytes_total{direction="sent",side="client"}"#, 1_024.0),
    ]);
    for (series, value) in [
        (
            r#"crawlgate_request_duration_seconds_bucket{source="origin",le="2.5"}"#,
            0.0,
        ),
        (
            r#"crawlgate_request_duration_seconds_bucket{source="origin",le="5"}"#,
            1.0,
        ),
        (
            r#"crawlgate_request_duration_seconds_count{source="proxy"}"#,
            0.0,
        ),
        (
            r#"crawlgate_decision_duration_seconds_bucket{le="0.000025"}"#,
            0.0,
        ),
        (
            r#"crawlgate_decision_duration_seconds_bucket{le="0.00005"}"#,
            1.0,
        ),
        (r#"crawlgate_dns_duration_seconds_bucket{le="0.005"}"#, 1.0),
        (
            r#"crawlgate_connect_duration_seconds_bucket{le="0.025"}"#,
            0.0,
        ),
        ("crawlgate_upstream_ttfb_seconds_sum", 0.3),
    ] {
        assert_eq!(bench.value(series), Some(value), "{series}");
    }
}

#[test]
fn a_rejection_counts_at_the_stage_that_refused() {
    let bench = MetricsBench::new();
    let policy = bench.policy(&[("no-cgi", RuleMode::Enforce)]);
    let mut record = bench
        .recorder
        .begin(bench.clock.now(), &Method::from_bytes(b"BREW").unwrap());
    record.set_target(&url("http://www.example.com/cgi-bin/x"));
    record.set_policy(&policy);
    record.enter_stage(Stage::Request);
    record.set_matched_rules([0]);
    record.set_rejected(Reason::Rule, Some(0), UrlRetention::Full);
    record.set_sent_status(451, ResponseSource::Proxy);
    record.add_sent_bytes(300);
    record.finish(bench.clock.now());
    bench.check(&[
        (r#"decisions_total{crawler="anonymous",reason="rule",stage="request",verdict="reject"}"#, 1.0),
        (r#"requests_total{code="451",crawler="anonymous",method="other",source="proxy"}"#, 1.0),
        (r#"rule_matched_total{mode="enforce",rule="no-cgi"}"#, 1.0),
        (r#"rule_decided_total{mode="enforce",rule="no-cgi",verdict="reject"}"#, 1.0),
        (r#"bytes_total{direction="sent",side="client"}"#, 300.0),
    ]);
}

/// Rule 1 would refuse the request.
fn noted(stage: Stage) -> Option<Box<ShadowNotes>> {
    let note = ShadowNote {
        source: ShadowSource::Rule(1),
        matched: [1].into_iter().collect(),
        rule: Some(1),
        deciding_rule: Some(1),
        verdict: VerdictLabel::Reject,
        change: ShadowChange::WouldReject,
        reason: Reason::Rule,
        stage,
    };
    Some(Box::new(ShadowNotes {
        space: None,
        policy_metrics: None,
        notes: [note].into_iter().collect(),
    }))
}

#[test]
fn a_shadow_rejection_counts_as_allowed_with_its_own_verdict() {
    let bench = MetricsBench::new();
    let policy = bench.policy(&[("live", RuleMode::Enforce), ("maybe", RuleMode::Shadow)]);
    let mut record = bench.begin();
    record.set_policy(&policy);
    record.enter_stage(Stage::Request);
    record.set_shadows(noted(Stage::Request));
    record.set_allowed(Some(0));
    record.enter_stage(Stage::Response);
    record.set_shadows(noted(Stage::Request));
    record.set_allowed(Some(0));
    record.set_sent_status(204, ResponseSource::Origin);
    record.finish(bench.clock.now());
    bench.check(&[
        (
            r#"decisions_total{crawler="anonymous",reason="rule",stage="request",verdict="shadow_reject"}"#,
            1.0,
        ),
        (r#"requests_total{code="204",crawler="anonymous",method="GET",source="origin"}"#, 1.0),
        (r#"rule_matched_total{mode="shadow",rule="maybe"}"#, 1.0),
        (r#"rule_decided_total{mode="enforce",rule="live",verdict="allow"}"#, 1.0),
        (r#"rule_decided_total{mode="shadow",rule="maybe",verdict="reject"}"#, 1.0),
    ]);
}

#[test]
fn a_client_that_leaves_is_counted() {
    let bench = MetricsBench::new();
    let mut record = bench.begin();
    record.enter_stage(Stage::Destination);
    drop(record);
    let policy = bench.policy(&[("a", RuleMode::Enforce)]);
    let mut record = bench.begin();
    record.set_policy(&policy);
    record.enter_stage(Stage::Upstream);
    record.set_allowed(Some(0));
    drop(record);
    bench.check(&[
        (r#"decisions_total{crawler="anonymous",reason="client_left",stage="destination",verdict="allow"}"#, 1.0),
        (r#"decisions_total{crawler="anonymous",reason="rule",stage="upstream",verdict="allow"}"#, 1.0),
        (r#"requests_total{code="none",crawler="anonymous",method="GET",source="proxy"}"#, 2.0),
        (r#"rule_decided_total{mode="enforce",rule="a",verdict="allow"}"#, 1.0),
    ]);
}

#[test]
fn a_panic_is_an_internal_error_unless_the_response_has_begun() {
    let bench = MetricsBench::new();
    fn panics(bench: &MetricsBench, sent: Option<u16>) {
        let mut record = bench.begin();
        record.enter_stage(Stage::Response);
        record.set_allowed(None);
        if let Some(status) = sent {
            record.set_sent_status(status, ResponseSource::Origin);
        }
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _record = record;
            std::panic::resume_unwind(Box::new("a bug"));
        }));
        assert!(panicked.is_err());
    }
    panics(&bench, None);
    panics(&bench, Some(200));
    bench.metrics.record_panic();
    bench.check(&[
        (r#"decisions_total{crawler="anonymous",reason="internal_error",stage="response",verdict="reject"}"#, 1.0),
        (r#"decisions_total{crawler="anonymous",reason="default",stage="response",verdict="allow"}"#, 1.0),
        (r#"requests_total{code="500",crawler="anonymous",method="GET",source="proxy"}"#, 1.0),
        (r#"requests_total{code="200",crawler="anonymous",method="GET",source="origin"}"#, 1.0),
        ("panics_total", 1.0),
    ]);
}

#[test]
fn a_request_evaluated_again_counts_under_the_last_policy_only() {
    let bench = MetricsBench::new();
    let old = bench.policy(&[("a", RuleMode::Enforce), ("b", RuleMode::Enforce)]);
    let new = bench.revision(
        "00000002",
        &[("b", RuleMode::Enforce), ("c", RuleMode::Enforce)],
    );
    let mut record = bench.begin();
    record.enter_stage(Stage::Request);
    record.set_policy(&old);
    record.set_matched_rules([0]);
    record.set_allowed(Some(0));
    record.set_policy(&new);
    record.set_matched_rules([1]);
    record.set_rejected(Reason::Rule, Some(1), UrlRetention::Host);
    drop(record);
    let counted = bench.counted();
    let rules: Vec<_> = counted
        .keys()
        .filter(|series| series.starts_with("rule_"))
        .collect();
    assert_eq!(
        rules,
        [
            r#"rule_decided_total{mode="enforce",rule="c",verdict="reject"}"#,
            r#"rule_matched_total{mode="enforce",rule="c"}"#
        ]
    );
}

#[test]
fn failures_and_everything_outside_requests_are_counted() {
    let bench = MetricsBench::new();
    let mut record = bench.begin();
    record.enter_stage(Stage::Upstream);
    record.set_upstream_error("connection_refused");
    record.set_rejected(Reason::UpstreamConnect, None, UrlRetention::Full);
    record.set_sent_status(502, ResponseSource::Proxy);
    record.finish(bench.clock.now());
    let connection = bench.metrics.track_connection();
    bench.metrics.record_head_rejection(Reason::BadRequest);
    bench.metrics.record_head_rejection(Reason::Overloaded);
    bench
        .metrics
        .record_foreign_bytes(ForeignBytesKind::Http2Preface);
    bench.metrics.record_refused_address("private");
    bench.metrics.record_refused_address("a range nobody knows");
    bench.check(&[
        (r#"decisions_total{crawler="anonymous",reason="upstream_connect",stage="upstream",verdict="reject"}"#, 1.0),
        (r#"requests_total{code="502",crawler="anonymous",method="GET",source="proxy"}"#, 1.0),
        (r#"upstream_errors_total{error="connection_refused"}"#, 1.0),
        ("connections", 1.0),
        (r#"head_rejections_total{reason="bad_request"}"#, 1.0),
        (r#"head_rejections_total{reason="overloaded"}"#, 1.0),
        (r#"foreign_bytes_total{reason="http2_preface"}"#, 1.0),
        (r#"addresses_refused_total{range="private"}"#, 1.0),
        (r#"addresses_refused_total{range="other"}"#, 1.0),
    ]);
    drop(connection);
    assert_eq!(bench.value("crawlgate_connections"), Some(0.0));
}

#[test]
fn only_refusals_that_will_not_change_are_repeats() {
    let bench = MetricsBench::new();
    fn refuse(bench: &MetricsBench, target: &str, reason: Reason) {
        let mut record = bench.begin();
        record.set_target(&url(target));
        record.set_rejected(reason, None, UrlRetention::Host);
    }
    for _ in 0..3 {
        refuse(&bench, "http://a.example/x", Reason::Default);
        refuse(&bench, "http://a.example/later", Reason::Overloaded);
    }
    refuse(&bench, "http://a.example/y", Reason::Default);
    assert_eq!(
        bench.value(r#"crawlgate_repeat_rejections_total{crawler="anonymous"}"#),
        Some(2.0)
    );
    bench.manual_clock.advance(Duration::from_secs(600));
    refuse(&bench, "http://a.example/x", Reason::Default);
    assert_eq!(
        bench.value(r#"crawlgate_repeat_rejections_total{crawler="anonymous"}"#),
        Some(2.0)
    );
}

#[test]
fn counts_are_exact_over_threads() {
    const EACH: u32 = 2_500;
    let bench = MetricsBench::new();
    let policy = bench.policy(&[("even", RuleMode::Enforce), ("odd", RuleMode::Enforce)]);
    let work = |_| {
        for number in 0..EACH {
            let mut record = bench.begin();
            record.set_policy(&policy);
            record.enter_stage(Stage::Request);
            record.set_matched_rules([number % 2]);
            record.add_sent_bytes(7);
            if number % 2 == 0 {
                record.set_rejected(Reason::Rule, Some(0), UrlRetention::Host);
                record.set_sent_status(451, ResponseSource::Proxy);
            } else {
                record.enter_stage(Stage::Response);
                record.set_origin_response(200, None, Duration::from_millis(1));
                record.set_allowed(Some(1));
                record.set_sent_status(200, ResponseSource::Origin);
            }
            record.finish(bench.clock.now());
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
    let half = f64::from(EACH) * 2.0;
    bench.check(&[
        (r#"decisions_total{crawler="anonymous",reason="rule",stage="request",verdict="reject"}"#, half),
        (r#"decisions_total{crawler="anonymous",reason="rule",stage="response",verdict="allow"}"#, half),
        (r#"requests_total{code="451",crawler="anonymous",method="GET",source="proxy"}"#, half),
        (r#"requests_total{code="200",crawler="anonymous",method="GET",source="origin"}"#, half),
        (r#"rule_matched_total{mode="enforce",rule="even"}"#, half),
        (r#"rule_matched_total{mode="enforce",rule="odd"}"#, half),
        (r#"rule_decided_total{mode="enforce",rule="even",verdict="reject"}"#, half),
        (r#"rule_decided_total{mode="enforce",rule="odd",verdict="allow"}"#, half),
        (r#"upstream_responses_total{code_class="2xx",content_family="none"}"#, half),
        (r#"bytes_total{direction="received",side="origin"}"#, half * 7.0),
        (r#"bytes_total{direction="sent",side="client"}"#, half * 14.0),
    ]);
    assert_eq!(
        bench.value(r#"crawlgate_request_duration_seconds_count{source="origin"}"#),
        Some(half)
    );
}

#[test]
fn decision_ids_are_unique_and_fit_a_header() {
    let bench = MetricsBench::new();
    let ids: BTreeSet<String> = (0..1_000).map(|_| bench.begin().id().to_string()).collect();
    assert_eq!(ids.len(), 1_000);
    assert!(
        ids.iter()
            .all(|id| id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-'))
    );
    let other = MetricsBench::new().begin().id().to_string();
    assert!(!ids.contains(&other));
}

#[test]
fn a_reload_shows_the_new_policy_and_removes_old_series() {
    let bench = MetricsBench::new();
    fn count(bench: &MetricsBench, policy: &Arc<PolicyMetrics>, rule: u32) {
        let mut record = bench.begin();
        record.set_policy(policy);
        record.set_matched_rules([rule]);
    }
    fn matched(bench: &MetricsBench, rule: &str) -> Option<f64> {
        bench.value(&format!(
            r#"crawlgate_rule_matched_total{{mode="enforce",rule="{rule}"}}"#
        ))
    }
    let old = bench.revision(
        "00000001",
        &[("a", RuleMode::Enforce), ("b", RuleMode::Enforce)],
    );
    count(&bench, &old, 0);
    count(&bench, &old, 1);
    bench.manual_clock.advance(Duration::from_secs(60));
    let new = bench.revision(
        "00000002",
        &[("b", RuleMode::Enforce), ("off", RuleMode::Disabled)],
    );
    count(&bench, &new, 0);
    count(&bench, &new, 1);
    assert_eq!(
        (
            matched(&bench, "a"),
            matched(&bench, "b"),
            matched(&bench, "off")
        ),
        (Some(1.0), Some(2.0), None)
    );
    drop(old);
    bench
        .manual_clock
        .advance(RETENTION - Duration::from_millis(1));
    assert_eq!(matched(&bench, "a"), Some(1.0), "until it has been scraped");
    assert_eq!(matched(&bench, "b"), Some(2.0), "until it has been scraped");
    bench.manual_clock.advance(Duration::from_millis(1));
    assert_eq!(
        (matched(&bench, "a"), matched(&bench, "b")),
        (None, Some(2.0))
    );

    fn info(bench: &MetricsBench, revision: &str) -> Option<f64> {
        bench.value(&format!(
            r#"crawlgate_policy_info{{policy="acme",revision="{revision}"}}"#
        ))
    }
    assert_eq!(
        (info(&bench, "00000001"), info(&bench, "00000002")),
        (None, Some(1.0))
    );
    assert_eq!(bench.value("crawlgate_policy_rules"), Some(2.0));
    assert_eq!(bench.value("crawlgate_policy_rules_disabled"), Some(1.0));
    assert_eq!(
        bench.value("crawlgate_policy_last_reload_success_timestamp_seconds"),
        Some(1_767_225_660.0)
    );
    bench.metrics.record_failed_reload();
    assert_eq!(
        bench.value("crawlgate_policy_last_reload_success"),
        Some(0.0)
    );
    assert_eq!(
        bench.value(r#"crawlgate_policy_reloads_total{result="failure"}"#),
        Some(1.0)
    );
    assert_eq!(
        bench.value(r#"crawlgate_policy_reloads_total{result="success"}"#),
        Some(2.0)
    );
    assert_eq!(info(&bench, "00000002"), Some(1.0));
    let again = bench.revision("00000002", &[("b", RuleMode::Enforce)]);
    assert_eq!(info(&bench, "00000002"), Some(1.0));
    assert_eq!(
        bench.value("crawlgate_policy_last_reload_success"),
        Some(1.0)
    );
    drop((new, again));
    bench.manual_clock.advance(RETENTION);
    assert_eq!(matched(&bench, "b"), None);
}

#[test]
fn a_record_outlives_its_policy() {
    let bench = MetricsBench::new();
    let old = bench.revision("00000001", &[("a", RuleMode::Enforce)]);
    let mut record = bench.begin();
    record.set_policy(&old);
    record.set_matched_rules([0]);
    drop(old);
    let series = r#"crawlgate_rule_matched_total{mode="enforce",rule="a"}"#;
    bench.manual_clock.advance(RETENTION * 2);
    assert_eq!(bench.value(series), Some(0.0));
    drop(record);
    assert_eq!(bench.value(series), Some(1.0), "its count is shown");
    bench.manual_clock.advance(RETENTION);
    assert_eq!(bench.value(series), None);
}

#[test]
fn a_rule_that_comes_back_in_time_goes_on_counting() {
    let bench = MetricsBench::new();
    fn load(bench: &MetricsBench) -> Arc<PolicyMetrics> {
        bench.policy(&[("a", RuleMode::Enforce)])
    }
    fn count(bench: &MetricsBench, policy: &Arc<PolicyMetrics>) {
        let mut record = bench.begin();
        record.set_policy(policy);
        record.set_matched_rules([0]);
    }
    fn value(bench: &MetricsBench) -> Option<f64> {
        bench.value(r#"crawlgate_rule_matched_total{mode="enforce",rule="a"}"#)
    }
    for _ in 0..3 {
        count(&bench, &load(&bench));
        bench
            .manual_clock
            .advance(RETENTION - Duration::from_secs(1));
    }
    let last = load(&bench);
    assert_eq!(
        (value(&bench), last.counts(0).unwrap().matched),
        (Some(3.0), 3)
    );
    // Its first absences are over, and none of them ends what is in use.
    bench.manual_clock.advance(RETENTION * 3);
    count(&bench, &last);
    assert_eq!(value(&bench), Some(4.0));
    drop(last);
    bench.manual_clock.advance(RETENTION);
    assert_eq!(value(&bench), None);
    let new = load(&bench);
    assert_eq!(value(&bench), Some(0.0), "it begins anew");
    assert_eq!(new.counts(0).unwrap().last_match, None, "it begins anew");
}

/// Reloads faster than time passes, each with other rules: what is kept is bounded.
#[test]
fn a_thousand_reloads_leak_no_series() {
    const EACH: usize = 50;
    let bench = MetricsBench::new();
    fn series(bench: &MetricsBench) -> usize {
        bench
            .metrics
            .render()
            .lines()
            .filter(|line| line.starts_with("crawlgate_rule_"))
            .count()
    }
    let mut policy = bench.policy(&[]);
    for reload in 0..1_000 {
        let ids: Vec<RuleId> = (0..EACH)
            .map(|n| RuleId::new(&format!("r{reload}-{n}")).unwrap())
            .collect();
        let rules = ids
            .iter()
            .map(|id| (id, RuleMode::Enforce, RuleKind::Filter));
        policy =
            bench
                .metrics
                .register_policy("acme", &format!("{reload:08}"), rules, &bench.clock);
    }
    // Of each rule: matches and rejections.
    assert_eq!(series(&bench), 2 * (DEFAULT_RULE_LABELS + EACH));
    bench.manual_clock.advance(RETENTION);
    assert_eq!(series(&bench), 2 * EACH);
    drop(policy);
    bench.manual_clock.advance(RETENTION);
    assert_eq!(series(&bench), 0);
}

/// Rules that come and go by turns are gone once, not as often as they went: they push out nobody's counts.
#[test]
fn a_rule_that_is_back_takes_no_place_among_those_that_are_gone() {
    let bench = MetricsBench::new();
    let matched =
        |rule: &str| format!(r#"crawlgate_rule_matched_total{{mode="enforce",rule="{rule}"}}"#);
    drop(bench.policy(&[("gone", RuleMode::Enforce)]));
    let mut policy = bench.policy(&[("even", RuleMode::Enforce)]);
    for rule in ["odd", "even"].repeat(DEFAULT_RULE_LABELS) {
        let next = bench.policy(&[(rule, RuleMode::Enforce)]);
        drop(std::mem::replace(&mut policy, next));
    }
    for rule in ["gone", "even", "odd"] {
        assert_eq!(bench.value(&matched(rule)), Some(0.0), "{rule}");
    }
    drop(policy);
    bench.manual_clock.advance(RETENTION);
    for rule in ["gone", "even", "odd"] {
        assert_eq!(bench.value(&matched(rule)), None, "{rule}");
    }
}

#[test]
fn metrics_none_counts_no_requests() {
    let bench = MetricsBench::with(MetricsMode::EssentialOnly);
    let policy = bench.policy(&[("a", RuleMode::Enforce)]);
    let mut record = bench.begin();
    record.set_target(&url("http://a.example/x"));
    record.set_policy(&policy);
    record.set_matched_rules([0]);
    record.set_shadows(noted(Stage::Request));
    record.set_allowed(Some(0));
    record.set_sent_status(200, ResponseSource::Origin);
    record.finish(bench.clock.now());
    let connection = bench.metrics.track_connection();
    let tunnel = bench.metrics.track_tunnel();
    bench.metrics.inc_held();
    bench.metrics.set_hosts(1, 2, 3);
    bench.metrics.record_head_rejection(Reason::BadRequest);
    bench.metrics.record_refused_address("private");
    bench
        .metrics
        .record_client_handshake(Duration::from_millis(1));
    drop((connection, tunnel));
    assert_eq!(policy.counts(0), None);
    assert_eq!(
        policy.shadow_stats().evaluated(),
        1,
        "shadows are reported all the same"
    );
    let text = bench.metrics.render();
    let shown: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let always: BTreeSet<&str> = families::ALL
        .iter()
        .filter(|family| family.essential)
        .map(|family| family.name)
        .chain(PROCESS_NAMES.split_whitespace())
        .collect();
    assert_eq!(shown, always);
    assert_eq!(
        bench.value(r#"crawlgate_policy_info{policy="acme",revision="3f9c2a1b"}"#),
        Some(1.0)
    );
    bench.metrics.record_panic();
    assert_eq!(bench.value("crawlgate_panics_total"), Some(1.0));
}

#[test]
fn a_rule_counts_its_verdicts_and_its_last_match() {
    let bench = MetricsBench::new();
    let ids = ["group", "filter", "off"].map(|id| RuleId::new(id).unwrap());
    let kinds = [RuleKind::Group, RuleKind::Filter, RuleKind::Group];
    let modes = [RuleMode::Enforce, RuleMode::Enforce, RuleMode::Disabled];
    let rules = ids
        .iter()
        .zip(modes)
        .zip(kinds)
        .map(|((id, mode), kind)| (id, mode, kind));
    let policy = bench
        .metrics
        .register_policy("acme", "00000001", rules, &bench.clock);
    fn shown(bench: &MetricsBench, rule: &str, verdict: &str) -> Option<f64> {
        let labels = format!(r#"mode="enforce",rule="{rule}",verdict="{verdict}""#);
        bench.value(&format!("crawlgate_rule_decided_total{{{labels}}}"))
    }
    assert_eq!(
        (
            shown(&bench, "group", "allow"),
            shown(&bench, "group", "reject")
        ),
        (Some(0.0), Some(0.0))
    );
    assert_eq!(shown(&bench, "filter", "allow"), None, "a filter refuses");
    assert_eq!(
        shown(&bench, "filter", "reject"),
        Some(0.0),
        "a filter refuses"
    );
    let never = RuleCounts {
        matched: 0,
        allowed: 0,
        rejected: 0,
        last_match: None,
    };
    assert_eq!(
        (policy.counts(0), policy.counts(2), policy.counts(3)),
        (Some(never), None, None)
    );

    bench.manual_clock.advance(Duration::from_millis(90_400));
    let at = bench.clock.wall_time();
    let decided = [Some(0), None, None];
    for allowed in decided {
        let mut record = bench.begin();
        record.set_policy(&policy);
        record.set_matched_rules([0]);
        record.set_allowed(allowed);
    }
    let mut record = bench.begin();
    record.set_policy(&policy);
    record.set_matched_rules([0, 1]);
    record.set_rejected(Reason::Rule, Some(1), UrlRetention::Host);
    drop(record);
    // A tunnel that passes although the filter might have refused what it hides.
    let mut record = bench.begin();
    record.set_policy(&policy);
    record.set_allowed(Some(1));
    drop(record);
    // Set back meanwhile: the match is as long ago as it is.
    bench.manual_clock.advance(Duration::from_secs(30));
    bench.manual_clock.adjust_wall_time(-3_600);
    let at = at - Duration::from_millis(3_600_400);
    let counts = |rule| policy.counts(rule).unwrap();
    assert_eq!(
        counts(0),
        RuleCounts {
            matched: 4,
            allowed: 1,
            rejected: 0,
            last_match: Some(at)
        }
    );
    assert_eq!(
        counts(1),
        RuleCounts {
            matched: 1,
            allowed: 1,
            rejected: 1,
            last_match: Some(at)
        }
    );
    assert_eq!((counts(0).decided(), counts(1).decided()), (1, 2));
    assert_eq!(
        (
            shown(&bench, "filter", "allow"),
            shown(&bench, "filter", "reject")
        ),
        (Some(1.0), Some(1.0))
    );
    drop(policy);
    bench.manual_clock.advance(RETENTION);
    assert!(!bench.metrics.render().contains("rule=\"filter\""));
}
