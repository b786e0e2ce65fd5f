//! Metrics and the record: names, counts, and every way in which a record can end.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crawlgate::clock::{Clock, Hand};
use crawlgate::metrics::labels::{ForeignBytes, RuleMode, Source};
use crawlgate::metrics::log::Log;
use crawlgate::metrics::policy::{PolicyMetrics, RULE_LABELS};
use crawlgate::metrics::record::{Keep, Recorder};
use crawlgate::metrics::shadow::{Change, Note, Notes, ShadowOf};
use crawlgate::metrics::{CrawlerIndex, Metrics, names};
use crawlgate::vocab::crawler::Crawler;
use crawlgate::vocab::reason::Reason;
use crawlgate::vocab::rule_id::{RuleId, Slug};
use crawlgate::vocab::stage::Stage;
use crawlgate::vocab::target::UrlTarget;
use http::{HeaderValue, Method};

/// The names of operations.md that are exported so far.
const NAMES: &str = "
    crawlgate_hold_seconds crawlgate_held_requests crawlgate_held_disconnects_total crawlgate_hosts_tracked
    crawlgate_hosts_backing_off crawlgate_leases
    crawlgate_decisions_total crawlgate_rule_matched_total crawlgate_rule_decided_total crawlgate_requests_total
    crawlgate_request_duration_seconds crawlgate_decision_duration_seconds crawlgate_upstream_ttfb_seconds
    crawlgate_dns_duration_seconds crawlgate_connect_duration_seconds crawlgate_upstream_responses_total
    crawlgate_upstream_errors_total crawlgate_bytes_total crawlgate_connections crawlgate_inflight_requests
    crawlgate_robots_fetches_total crawlgate_robots_cache_entries crawlgate_tunnels crawlgate_tunnels_total crawlgate_sni_checks_total
    crawlgate_addresses_refused_total crawlgate_upstream_unverified_total crawlgate_policy_info crawlgate_policy_last_reload_success
    crawlgate_policy_last_reload_success_timestamp_seconds crawlgate_policy_reloads_total crawlgate_policy_rules
    crawlgate_policy_rules_disabled crawlgate_head_rejections_total crawlgate_foreign_bytes_total
    crawlgate_robots_fetches_total crawlgate_robots_cache_entries
    crawlgate_repeat_rejections_total crawlgate_decision_log_dropped_total crawlgate_panics_total
    crawlgate_tls_handshake_seconds crawlgate_client_tls_failures_total crawlgate_leaf_certificates_total
    crawlgate_mint_waits_total crawlgate_ca_not_after_timestamp_seconds
    crawlgate_build_info";
const PROCESS_NAMES: &str = "
    process_cpu_seconds_total process_open_fds process_max_fds process_virtual_memory_bytes
    process_virtual_memory_max_bytes process_resident_memory_bytes process_start_time_seconds";

struct Bench {
    metrics: Metrics,
    recorder: Recorder,
    clock: Clock,
    hand: Hand,
}

impl Bench {
    fn new() -> Self {
        let (clock, hand) = Clock::manual();
        let news = Crawler::new(&Slug::new("news-bot").unwrap());
        let metrics = Metrics::new(&[news], &["loopback", "private"]).unwrap();
        let recorder = Recorder::new(metrics.clone(), Log::off(), clock.clone());
        Self { metrics, recorder, clock, hand }
    }

    fn policy(&self, rules: &[(&str, RuleMode)]) -> Arc<PolicyMetrics> {
        self.revision("3f9c2a1b", rules)
    }

    fn revision(&self, revision: &str, rules: &[(&str, RuleMode)]) -> Arc<PolicyMetrics> {
        let ids: Vec<_> = rules.iter().map(|(id, mode)| (RuleId::new(id).unwrap(), *mode)).collect();
        let rules = ids.iter().map(|(id, mode)| (id, *mode));
        self.metrics.policy_loaded("acme", revision, rules, self.clock.wall())
    }

    fn begin(&self) -> crawlgate::metrics::record::Record {
        self.recorder.begin(self.clock.now(), &Method::GET)
    }

    /// The series whose value is not 0, without histograms and the process.
    fn counted(&self) -> BTreeMap<String, f64> {
        let text = self.metrics.render();
        let samples =
            text.lines().filter(|line| line.starts_with("crawlgate_") && !line.contains("_seconds"));
        let samples = samples.map(|line| line.rsplit_once(' ').unwrap());
        let samples = samples.map(|(series, value)| {
            (series.trim_start_matches("crawlgate_").to_owned(), value.parse::<f64>().unwrap())
        });
        let still = |series: &String| series.starts_with("build_info") || series.starts_with("policy_");
        samples.filter(|(series, value)| *value != 0.0 && !still(series)).collect()
    }

    fn check(&self, expected: &[(&str, f64)]) {
        let expected: BTreeMap<String, f64> = expected.iter().map(|(s, v)| ((*s).to_owned(), *v)).collect();
        assert_eq!(self.counted(), expected);
    }

    fn value(&self, series: &str) -> Option<f64> {
        let text = self.metrics.render();
        let line =
            text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned));
        line.map(|value| value.parse().unwrap())
    }
}

#[test]
fn clients_that_fail_in_tls_are_counted_by_crawler_and_handshakes_by_side() {
    let bench = Bench::new();
    for crawler in ["anonymous", "news-bot"] {
        let series = format!("crawlgate_client_tls_failures_total{{crawler=\"{crawler}\"}}");
        assert_eq!(bench.value(&series), Some(0.0), "shown before it occurs");
    }
    bench.metrics.client_tls_failed(bench.metrics.crawler("news-bot"));
    bench.metrics.client_tls_failed(bench.metrics.crawler("stranger"));
    bench.metrics.client_tls_failed(CrawlerIndex::ANONYMOUS);
    bench.metrics.leaf_made();
    bench.metrics.mint_waits();
    bench.check(&[
        ("client_tls_failures_total{crawler=\"anonymous\"}", 2.0),
        ("client_tls_failures_total{crawler=\"news-bot\"}", 1.0),
        ("leaf_certificates_total", 1.0),
        ("mint_waits_total", 1.0),
    ]);
    bench.metrics.client_tls(Duration::from_millis(20));
    bench.metrics.origin_tls(Duration::from_millis(30));
    bench.metrics.origin_tls(Duration::from_millis(30));
    for (side, count) in [("client", 1.0), ("origin", 2.0)] {
        let series = format!("crawlgate_tls_handshake_seconds_count{{side=\"{side}\"}}");
        assert_eq!(bench.value(&series), Some(count), "{side}");
    }
    bench.metrics.ca_expires(bench.clock.wall());
    assert_eq!(bench.value("crawlgate_ca_not_after_timestamp_seconds"), Some(1_767_225_600.0));
}

fn url(text: &str) -> UrlTarget {
    UrlTarget::parse(text).unwrap()
}

#[test]
fn names_are_those_of_the_documentation() {
    let documented: BTreeSet<&str> = NAMES.split_whitespace().collect();
    let built: BTreeSet<&str> = names::ALL.iter().map(|family| family.name).collect();
    assert_eq!(built, documented);

    let bench = Bench::new();
    let _policy = bench.policy(&[("a", RuleMode::Enforce)]);
    let text = bench.metrics.render();
    let shown: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let all: BTreeSet<&str> = NAMES.split_whitespace().chain(PROCESS_NAMES.split_whitespace()).collect();
    assert_eq!(shown, all);
}

#[test]
fn a_process_shows_plausible_figures() {
    let bench = Bench::new();
    let value = |name| bench.value(name).unwrap();
    assert!(value("process_resident_memory_bytes") > 1e6);
    assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
    assert!(value("process_open_fds") >= 3.0 && value("process_open_fds") <= value("process_max_fds"));
    assert!(value("process_start_time_seconds") > 1.6e9);
}

#[test]
fn series_are_shown_before_anything_happens() {
    let bench = Bench::new();
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
    let bench = Bench::new();
    let policy = bench.policy(&[("group", RuleMode::Enforce), ("pages", RuleMode::Enforce)]);
    let mut record = bench.begin();
    assert_eq!(bench.value("crawlgate_inflight_requests"), Some(1.0));
    record.crawler(bench.metrics.crawler("news-bot"));
    record.target(&url("http://www.example.com/a?b"));
    record.judged_under(&policy);
    record.enter(Stage::Request);
    record.matched([0]);
    record.allowed(None);
    bench.hand.advance(Duration::from_micros(40));
    record.decided_at(bench.clock.now());
    record.enter(Stage::Upstream);
    record.resolved_in(Duration::from_millis(3));
    record.connected_in(Duration::from_millis(30));
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    record.origin_answered(200, Some(&html), Duration::from_millis(300));
    record.enter(Stage::Response);
    record.matched([0, 1, 1]);
    record.allowed(Some(1));
    record.answered(200, Source::Origin);
    record.add_up(10);
    record.add_down(1_000);
    record.add_down(24);
    bench.hand.advance(Duration::from_secs(3));
    record.finish(bench.clock.now());
    bench.check(&[
        (r#"decisions_total{crawler="news-bot",reason="rule",stage="response",verdict="allow"}"#, 1.0),
        (r#"requests_total{code="200",crawler="news-bot",method="GET",source="origin"}"#, 1.0),
        (r#"rule_matched_total{mode="enforce",rule="group"}"#, 1.0),
        (r#"rule_matched_total{mode="enforce",rule="pages"}"#, 1.0),
        (r#"rule_decided_total{mode="enforce",rule="pages"}"#, 1.0),
        (r#"upstream_responses_total{code_class="2xx",content_family="html"}"#, 1.0),
        (r#"bytes_total{direction="received",side="client"}"#, 10.0),
        (r#"bytes_total{direction="sent",side="origin"}"#, 10.0),
        (r#"bytes_total{direction="received",side="origin"}"#, 1_024.0),
        (r#"bytes_total{direction="sent",side="client"}"#, 1_024.0),
    ]);
    for (series, value) in [
        (r#"crawlgate_request_duration_seconds_bucket{source="origin",le="2.5"}"#, 0.0),
        (r#"crawlgate_request_duration_seconds_bucket{source="origin",le="5"}"#, 1.0),
        (r#"crawlgate_request_duration_seconds_count{source="proxy"}"#, 0.0),
        (r#"crawlgate_decision_duration_seconds_bucket{le="0.000025"}"#, 0.0),
        (r#"crawlgate_decision_duration_seconds_bucket{le="0.00005"}"#, 1.0),
        (r#"crawlgate_dns_duration_seconds_bucket{le="0.005"}"#, 1.0),
        (r#"crawlgate_connect_duration_seconds_bucket{le="0.025"}"#, 0.0),
        ("crawlgate_upstream_ttfb_seconds_sum", 0.3),
    ] {
        assert_eq!(bench.value(series), Some(value), "{series}");
    }
}

#[test]
fn a_rejection_counts_at_the_stage_that_refused() {
    let bench = Bench::new();
    let policy = bench.policy(&[("no-cgi", RuleMode::Enforce)]);
    let mut record = bench.recorder.begin(bench.clock.now(), &Method::from_bytes(b"BREW").unwrap());
    record.target(&url("http://www.example.com/cgi-bin/x"));
    record.judged_under(&policy);
    record.enter(Stage::Request);
    record.matched([0]);
    record.rejected(Reason::Rule, Some(0), Keep::Full);
    record.answered(451, Source::Proxy);
    record.add_down(300);
    record.finish(bench.clock.now());
    bench.check(&[
        (r#"decisions_total{crawler="anonymous",reason="rule",stage="request",verdict="reject"}"#, 1.0),
        (r#"requests_total{code="451",crawler="anonymous",method="other",source="proxy"}"#, 1.0),
        (r#"rule_matched_total{mode="enforce",rule="no-cgi"}"#, 1.0),
        (r#"rule_decided_total{mode="enforce",rule="no-cgi"}"#, 1.0),
        (r#"bytes_total{direction="sent",side="client"}"#, 300.0),
    ]);
}

/// Rule 1 would refuse the request.
fn noted(stage: Stage) -> Option<Box<Notes>> {
    let note = Note {
        of: ShadowOf::Rule(1),
        matched: [1].into_iter().collect(),
        rule: Some(1),
        decided: Some(1),
        change: Change::Refuses,
        reason: Reason::Rule,
        stage,
    };
    Some(Box::new(Notes { whole: None, notes: [note].into_iter().collect() }))
}

#[test]
fn a_shadow_rejection_is_an_allowed_request_that_says_so() {
    let bench = Bench::new();
    let policy = bench.policy(&[("live", RuleMode::Enforce), ("maybe", RuleMode::Shadow)]);
    let mut record = bench.begin();
    record.judged_under(&policy);
    record.enter(Stage::Request);
    record.shadows(noted(Stage::Request));
    record.allowed(Some(0));
    record.enter(Stage::Response);
    record.shadows(noted(Stage::Request));
    record.allowed(Some(0));
    record.answered(204, Source::Origin);
    record.finish(bench.clock.now());
    bench.check(&[
        (
            r#"decisions_total{crawler="anonymous",reason="rule",stage="request",verdict="shadow_reject"}"#,
            1.0,
        ),
        (r#"requests_total{code="204",crawler="anonymous",method="GET",source="origin"}"#, 1.0),
        (r#"rule_matched_total{mode="shadow",rule="maybe"}"#, 1.0),
        (r#"rule_decided_total{mode="enforce",rule="live"}"#, 1.0),
        (r#"rule_decided_total{mode="shadow",rule="maybe"}"#, 1.0),
    ]);
}

#[test]
fn a_client_that_leaves_is_counted() {
    let bench = Bench::new();
    let mut record = bench.begin();
    record.enter(Stage::Destination);
    drop(record);
    let policy = bench.policy(&[("a", RuleMode::Enforce)]);
    let mut record = bench.begin();
    record.judged_under(&policy);
    record.enter(Stage::Upstream);
    record.allowed(Some(0));
    drop(record);
    bench.check(&[
        (r#"decisions_total{crawler="anonymous",reason="client_left",stage="destination",verdict="allow"}"#, 1.0),
        (r#"decisions_total{crawler="anonymous",reason="rule",stage="upstream",verdict="allow"}"#, 1.0),
        (r#"requests_total{code="none",crawler="anonymous",method="GET",source="proxy"}"#, 2.0),
        (r#"rule_decided_total{mode="enforce",rule="a"}"#, 1.0),
    ]);
}

#[test]
fn a_panic_ends_a_request_as_an_internal_error_unless_its_answer_was_under_way() {
    let bench = Bench::new();
    let panics = |sent: Option<u16>| {
        let mut record = bench.begin();
        record.enter(Stage::Response);
        record.allowed(None);
        if let Some(status) = sent {
            record.answered(status, Source::Origin);
        }
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _record = record;
            std::panic::resume_unwind(Box::new("a bug"));
        }));
        assert!(panicked.is_err());
    };
    panics(None);
    panics(Some(200));
    bench.metrics.panicked();
    bench.check(&[
        (r#"decisions_total{crawler="anonymous",reason="internal_error",stage="response",verdict="reject"}"#, 1.0),
        (r#"decisions_total{crawler="anonymous",reason="default",stage="response",verdict="allow"}"#, 1.0),
        (r#"requests_total{code="500",crawler="anonymous",method="GET",source="proxy"}"#, 1.0),
        (r#"requests_total{code="200",crawler="anonymous",method="GET",source="origin"}"#, 1.0),
        ("panics_total", 1.0),
    ]);
}

#[test]
fn a_request_judged_again_counts_under_the_last_policy_only() {
    let bench = Bench::new();
    let old = bench.policy(&[("a", RuleMode::Enforce), ("b", RuleMode::Enforce)]);
    let new = bench.revision("00000002", &[("b", RuleMode::Enforce), ("c", RuleMode::Enforce)]);
    let mut record = bench.begin();
    record.enter(Stage::Request);
    record.judged_under(&old);
    record.matched([0]);
    record.allowed(Some(0));
    record.judged_under(&new);
    record.matched([1]);
    record.rejected(Reason::Rule, Some(1), Keep::Host);
    drop(record);
    let counted = bench.counted();
    let rules: Vec<_> = counted.keys().filter(|series| series.starts_with("rule_")).collect();
    assert_eq!(
        rules,
        [r#"rule_decided_total{mode="enforce",rule="c"}"#, r#"rule_matched_total{mode="enforce",rule="c"}"#]
    );
}

#[test]
fn failures_and_everything_outside_requests_are_counted() {
    let bench = Bench::new();
    let mut record = bench.begin();
    record.enter(Stage::Upstream);
    record.upstream_failed("connection_refused");
    record.rejected(Reason::UpstreamConnect, None, Keep::Full);
    record.answered(502, Source::Proxy);
    record.finish(bench.clock.now());
    let connection = bench.metrics.connection();
    bench.metrics.head_rejected(Reason::BadRequest);
    bench.metrics.head_rejected(Reason::Overloaded);
    bench.metrics.foreign_bytes(ForeignBytes::Http2Preface);
    bench.metrics.address_refused("private");
    bench.metrics.address_refused("a range nobody knows");
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
    let bench = Bench::new();
    let refuse = |target: &str, reason: Reason| {
        let mut record = bench.begin();
        record.target(&url(target));
        record.rejected(reason, None, Keep::Host);
    };
    for _ in 0..3 {
        refuse("http://a.example/x", Reason::Default);
        refuse("http://a.example/later", Reason::Overloaded);
    }
    refuse("http://a.example/y", Reason::Default);
    assert_eq!(bench.value(r#"crawlgate_repeat_rejections_total{crawler="anonymous"}"#), Some(2.0));
    bench.hand.advance(Duration::from_secs(600));
    refuse("http://a.example/x", Reason::Default);
    assert_eq!(bench.value(r#"crawlgate_repeat_rejections_total{crawler="anonymous"}"#), Some(2.0));
}

#[test]
fn counts_are_exact_over_threads() {
    const EACH: u32 = 2_500;
    let bench = Bench::new();
    let policy = bench.policy(&[("even", RuleMode::Enforce), ("odd", RuleMode::Enforce)]);
    let work = |_| {
        for number in 0..EACH {
            let mut record = bench.begin();
            record.judged_under(&policy);
            record.enter(Stage::Request);
            record.matched([number % 2]);
            record.add_down(7);
            if number % 2 == 0 {
                record.rejected(Reason::Rule, Some(0), Keep::Host);
                record.answered(451, Source::Proxy);
            } else {
                record.enter(Stage::Response);
                record.origin_answered(200, None, Duration::from_millis(1));
                record.allowed(Some(1));
                record.answered(200, Source::Origin);
            }
            record.finish(bench.clock.now());
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let half = f64::from(EACH) * 2.0;
    bench.check(&[
        (r#"decisions_total{crawler="anonymous",reason="rule",stage="request",verdict="reject"}"#, half),
        (r#"decisions_total{crawler="anonymous",reason="rule",stage="response",verdict="allow"}"#, half),
        (r#"requests_total{code="451",crawler="anonymous",method="GET",source="proxy"}"#, half),
        (r#"requests_total{code="200",crawler="anonymous",method="GET",source="origin"}"#, half),
        (r#"rule_matched_total{mode="enforce",rule="even"}"#, half),
        (r#"rule_matched_total{mode="enforce",rule="odd"}"#, half),
        (r#"rule_decided_total{mode="enforce",rule="even"}"#, half),
        (r#"rule_decided_total{mode="enforce",rule="odd"}"#, half),
        (r#"upstream_responses_total{code_class="2xx",content_family="none"}"#, half),
        (r#"bytes_total{direction="received",side="origin"}"#, half * 7.0),
        (r#"bytes_total{direction="sent",side="client"}"#, half * 14.0),
    ]);
    assert_eq!(bench.value(r#"crawlgate_request_duration_seconds_count{source="origin"}"#), Some(half));
}

#[test]
fn decision_ids_are_unique_and_fit_a_header() {
    let bench = Bench::new();
    let ids: BTreeSet<String> = (0..1_000).map(|_| bench.begin().id().to_string()).collect();
    assert_eq!(ids.len(), 1_000);
    assert!(ids.iter().all(|id| id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')));
    let other = Bench::new().begin().id().to_string();
    assert!(!ids.contains(&other));
}

#[test]
fn a_reload_shows_the_new_policy_and_removes_what_is_gone() {
    let bench = Bench::new();
    let count = |policy: &Arc<PolicyMetrics>, rule: u32| {
        let mut record = bench.begin();
        record.judged_under(policy);
        record.matched([rule]);
    };
    let matched =
        |rule: &str| bench.value(&format!(r#"crawlgate_rule_matched_total{{mode="enforce",rule="{rule}"}}"#));
    let old = bench.revision("00000001", &[("a", RuleMode::Enforce), ("b", RuleMode::Enforce)]);
    count(&old, 0);
    count(&old, 1);
    bench.hand.advance(Duration::from_secs(60));
    let new = bench.revision("00000002", &[("b", RuleMode::Enforce), ("off", RuleMode::Disabled)]);
    count(&new, 0);
    count(&new, 1);
    assert_eq!((matched("a"), matched("b"), matched("off")), (Some(1.0), Some(2.0), None));
    drop(old);
    assert_eq!((matched("a"), matched("b")), (None, Some(2.0)));

    let info =
        |revision| bench.value(&format!(r#"crawlgate_policy_info{{policy="acme",revision="{revision}"}}"#));
    assert_eq!((info("00000001"), info("00000002")), (None, Some(1.0)));
    assert_eq!(bench.value("crawlgate_policy_rules"), Some(2.0));
    assert_eq!(bench.value("crawlgate_policy_rules_disabled"), Some(1.0));
    assert_eq!(bench.value("crawlgate_policy_last_reload_success_timestamp_seconds"), Some(1_767_225_660.0));
    bench.metrics.policy_failed();
    assert_eq!(bench.value("crawlgate_policy_last_reload_success"), Some(0.0));
    assert_eq!(bench.value(r#"crawlgate_policy_reloads_total{result="failure"}"#), Some(1.0));
    assert_eq!(bench.value(r#"crawlgate_policy_reloads_total{result="success"}"#), Some(2.0));
    assert_eq!(info("00000002"), Some(1.0));
    let again = bench.revision("00000002", &[("b", RuleMode::Enforce)]);
    assert_eq!(
        (info("00000002"), bench.value("crawlgate_policy_last_reload_success")),
        (Some(1.0), Some(1.0))
    );
    drop((new, again));
    assert_eq!(matched("b"), None);
}

#[test]
fn a_record_outlives_the_policy_it_was_judged_under() {
    let bench = Bench::new();
    let old = bench.revision("00000001", &[("a", RuleMode::Enforce)]);
    let mut record = bench.begin();
    record.judged_under(&old);
    record.matched([0]);
    drop(old);
    let series = r#"crawlgate_rule_matched_total{mode="enforce",rule="a"}"#;
    assert_eq!(bench.value(series), Some(0.0));
    drop(record);
    assert_eq!(bench.value(series), None);
}

#[test]
fn rules_beyond_the_cap_share_a_label() {
    let bench = Bench::new();
    let ids: Vec<RuleId> = (0..RULE_LABELS + 500).map(|n| RuleId::new(&format!("r{n}")).unwrap()).collect();
    let rules = ids.iter().map(|id| (id, RuleMode::Enforce));
    let policy = bench.metrics.policy_loaded("big", "00000001", rules, bench.clock.wall());
    for rule in [0, 1_999, 2_000, 2_499, 2_500] {
        let mut record = bench.begin();
        record.judged_under(&policy);
        record.rejected(Reason::Rule, Some(rule), Keep::Host);
    }
    let counted = bench.counted();
    let decided = |rule: &str| counted.get(&format!(r#"rule_decided_total{{mode="enforce",rule="{rule}"}}"#));
    assert_eq!(decided("r0"), Some(&1.0));
    assert_eq!(decided("r1999"), Some(&1.0));
    assert_eq!(decided("__other__"), Some(&2.0));
    let text = bench.metrics.render();
    let lines = text.lines().filter(|line| line.starts_with("crawlgate_rule_matched_total{")).count();
    assert_eq!(lines, RULE_LABELS + 1);
    drop(policy);
    assert!(!bench.metrics.render().contains("__other__"));
}
