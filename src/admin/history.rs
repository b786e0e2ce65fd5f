//! `GET /api/v1/history`: samples of the counters over the last hour, so that charts do not begin when a page is opened.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::clock::Rfc3339;
use crate::metrics::labels::VerdictLabel;
use crate::metrics::summary::MetricsSummary;

use super::api_request::run_blocking;
use super::response;
use super::status::histogram_bounds;
use super::{AdminServer, status};

/// The time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// The number of samples that are kept: an hour's.
const MAX_SAMPLES: usize = 360;

/// The samples of the last hour, the oldest first.
#[derive(Debug, Default)]
pub(super) struct CounterHistory {
    samples: Mutex<VecDeque<CounterSample>>,
}

/// The counters at one time, each since the start.
#[derive(Clone, Debug)]
struct CounterSample {
    at: SystemTime,
    allow: u64,
    reject: u64,
    /// The refusals by reason.
    reasons: BTreeMap<&'static str, u64>,
    timings: [HistogramCounts; status::TIMINGS.len()],
    /// The requests of each crawler, in the order of the metrics.
    crawlers: Box<[(Arc<str>, CrawlerSampleCounts)]>,
}

/// The requests of a crawler since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CrawlerSampleCounts {
    pub(super) admitted: u64,
    pub(super) rejected: u64,
}

/// The cumulative counts of a histogram's buckets; the last is the count of all.
type HistogramCounts = Box<[u64]>;

impl CounterHistory {
    /// Adds a sample, and drops the oldest if there are more than an hour's.
    fn add(&self, at: SystemTime, summary: &MetricsSummary) {
        let mut samples = self.samples.lock();
        let sample = CounterSample::new(at, summary, samples.back());
        if samples.len() == MAX_SAMPLES {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// Returns the counts of a crawler in the oldest sample of the last `span`, and the age of the sample; `None` before
    /// the first.
    pub(super) fn crawler_counts(
        &self,
        crawler: &str,
        now: SystemTime,
        span: Duration,
    ) -> Option<(CrawlerSampleCounts, Duration)> {
        let samples = self.samples.lock();
        let since = |sample: &CounterSample| now.duration_since(sample.at).unwrap_or_default();
        let sample = samples.iter().find(|sample| since(sample) <= span)?;
        let (_, counts) = sample
            .crawlers
            .iter()
            .find(|(name, _)| **name == *crawler)?;
        Some((*counts, since(sample)))
    }

    fn to_json(&self) -> Vec<Json> {
        self.samples
            .lock()
            .iter()
            .map(CounterSample::to_json)
            .collect()
    }
}

impl CounterSample {
    /// Creates a sample, which shares the names of the crawlers with the one before.
    fn new(at: SystemTime, summary: &MetricsSummary, before: Option<&Self>) -> Self {
        let mut reasons = BTreeMap::new();
        for decision in &summary.decisions {
            if decision.verdict == VerdictLabel::Reject {
                *reasons.entry(decision.reason).or_default() += decision.count;
            }
        }
        Self {
            at,
            allow: summary.count_with_verdict(VerdictLabel::Allow)
                + summary.count_with_verdict(VerdictLabel::ShadowReject),
            reject: summary.count_with_verdict(VerdictLabel::Reject),
            reasons,
            timings: status::TIMINGS
                .map(|(_, timing)| timing(&summary.timings).cumulative_counts().collect()),
            crawlers: crawler_counts(summary, before),
        }
    }

    fn to_json(&self) -> Json {
        let timings: serde_json::Map<String, Json> = status::TIMINGS
            .iter()
            .zip(&self.timings)
            .map(|((name, _), counts)| ((*name).to_owned(), json!(counts)))
            .collect();
        json!({
            "at": Rfc3339(self.at).to_string(),
            "allow": self.allow,
            "reject": self.reject,
            "reasons": self.reasons,
            "timings": timings,
        })
    }
}

fn crawler_counts(
    summary: &MetricsSummary,
    before: Option<&CounterSample>,
) -> Box<[(Arc<str>, CrawlerSampleCounts)]> {
    let crawlers = summary.crawlers.iter().enumerate();
    let counts = crawlers.map(|(index, counts)| {
        let known = before.and_then(|sample| sample.crawlers.get(index));
        let name = known.map_or_else(
            || counts.crawler.as_str().into(),
            |(name, _)| Arc::clone(name),
        );
        let admitted = counts.count_with_verdict(VerdictLabel::Allow)
            + counts.count_with_verdict(VerdictLabel::ShadowReject);
        let rejected = counts.count_with_verdict(VerdictLabel::Reject);
        (name, CrawlerSampleCounts { admitted, rejected })
    });
    counts.collect()
}

impl AdminServer {
    /// Samples the counters for ever, unless metrics are off.
    pub(super) async fn sample_history(&self) {
        let mut ticks = interval(SAMPLE_INTERVAL);
        // After a pause of the machine, one sample is enough.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            if let Some(summary) = self.apis.metrics.summary() {
                self.history.add(self.apis.process.wall_time(), &summary);
            }
        }
    }

    /// Samples the counters of the rules for ever, on a thread that may block: there may be many.
    pub(super) async fn sample_rules(&self) {
        let mut ticks = interval(SAMPLE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            let trends = Arc::clone(&self.rule_trends);
            let snapshot = self.apis.policy.active_policy.load();
            let now = self.apis.process.now();
            let _ = run_blocking(move || trends.sample(&snapshot, now)).await;
        }
    }

    /// Returns the samples of the last hour, without those that a restart lost; none if metrics are off.
    pub(super) fn show_history(&self) -> Response<Full<Bytes>> {
        let summary = self.apis.metrics.summary();
        let bounds = summary.map(|summary| {
            let bounds = status::TIMINGS.iter().map(|(name, timing)| {
                let bounds = histogram_bounds(timing(&summary.timings));
                ((*name).to_owned(), bounds.collect::<Json>())
            });
            Json::Object(bounds.collect())
        });
        let document = json!({
            "interval_ms": u64::try_from(SAMPLE_INTERVAL.as_millis()).unwrap_or(u64::MAX),
            "le_ms": bounds,
            "samples": self.history.to_json(),
        });
        response::json(StatusCode::OK, &document)
    }
}
