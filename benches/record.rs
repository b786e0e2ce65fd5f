//! Measures the decision record of a request: begin, fill and drop, with the log off and on.
//!
//! `cargo bench --bench record`

#![allow(
    clippy::expect_used,
    reason = "a benchmark that cannot be set up panics"
)]

use std::io::{self, Write};
use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::metrics::Metrics;
use crawlgate::metrics::labels::{ResponseSource, RuleKind, RuleMode};
use crawlgate::metrics::log::{DecisionLog, LogDestination, LogSettings};
use crawlgate::metrics::policy::PolicyMetrics;
use crawlgate::metrics::record::{Recorder, UrlRetention};
use crawlgate::model::reason::Reason;
use crawlgate::model::rule_id::RuleId;
use crawlgate::model::stage::Stage;
use crawlgate::urls::target::UrlTarget;
use divan::Bencher;
use http::{HeaderValue, Method};
use std::sync::Arc;

fn main() {
    divan::main();
}

struct RecordBench {
    recorder: Recorder,
    policy: Arc<PolicyMetrics>,
    target: UrlTarget,
    html: HeaderValue,
}

/// A writer that discards all bytes.
struct DiscardWriter;

impl Write for DiscardWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl RecordBench {
    fn new(writer: Option<DiscardWriter>) -> Self {
        let clock = Clock::system();
        let metrics = Metrics::new(&[], &[]).expect("names are valid");
        let settings = LogSettings {
            destination: LogDestination::None,
            queue_bytes: 1 << 30,
            ..LogSettings::default()
        };
        let log = match writer {
            Some(writer) => {
                DecisionLog::open_with_writer(&settings, Box::new(writer), &metrics, &clock)
            }
            None => DecisionLog::open(settings, &metrics, &clock),
        };
        let ids = ["group", "pages"].map(|id| RuleId::new(id).expect("a valid id"));
        let rules = ids
            .iter()
            .map(|id| (id, RuleMode::Enforce, RuleKind::Group));
        let policy = metrics.register_policy("bench", "00000001", rules, &clock);
        Self {
            recorder: Recorder::new(metrics, log.expect("the log opens"), clock),
            policy,
            target: UrlTarget::parse("http://www.example.com/folder/products?sort=name")
                .expect("a valid URL"),
            html: HeaderValue::from_static("text/html; charset=utf-8"),
        }
    }

    /// Records an allowed request with everything that the common path sets, including the last
    /// reading of the clock.
    fn allowed(&self) {
        let start = self.recorder.clock().now();
        let mut record = self.recorder.begin(start, &Method::GET);
        record.set_policy(&self.policy);
        record.enter_stage(Stage::Request);
        record.set_matched_rules([0]);
        record.set_allowed(None);
        record.set_decided_at(start);
        record.enter_stage(Stage::Upstream);
        record.set_origin_response(200, Some(&self.html), Duration::from_micros(300));
        record.enter_stage(Stage::Response);
        record.set_matched_rules([0, 1]);
        record.set_allowed(Some(1));
        record.set_sent_status(200, ResponseSource::Origin);
        record.add_sent_bytes(1_024);
        record.finish(self.recorder.clock().now());
    }

    fn rejected(&self) {
        let start = self.recorder.clock().now();
        let mut record = self.recorder.begin(start, &Method::GET);
        record.set_target(&self.target);
        record.set_policy(&self.policy);
        record.enter_stage(Stage::Request);
        record.set_matched_rules([0]);
        record.set_rejected(Reason::Rule, Some(0), UrlRetention::Host);
        record.set_decided_at(start);
        record.set_sent_status(451, ResponseSource::Proxy);
        record.finish(start);
    }
}

#[divan::bench(sample_size = 1000)]
fn allowed_log_none(bencher: Bencher<'_, '_>) {
    let bench = RecordBench::new(None);
    bencher.bench_local(|| bench.allowed());
}

#[divan::bench(sample_size = 1000)]
fn rejected_log_none(bencher: Bencher<'_, '_>) {
    let bench = RecordBench::new(None);
    bencher.bench_local(|| bench.rejected());
}

#[divan::bench(sample_size = 1000)]
fn allowed_logged(bencher: Bencher<'_, '_>) {
    let bench = RecordBench::new(Some(DiscardWriter));
    bencher.bench_local(|| bench.allowed());
}

#[divan::bench(threads = [2], sample_size = 1000)]
fn allowed_log_none_two_threads(bencher: Bencher<'_, '_>) {
    let bench = RecordBench::new(None);
    bencher.bench(|| bench.allowed());
}

#[divan::bench]
fn scrape(bencher: Bencher<'_, '_>) {
    let bench = RecordBench::new(None);
    bench.allowed();
    bencher.bench_local(|| bench.recorder.metrics().render().len());
}
