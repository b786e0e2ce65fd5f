//! A summary of current counts, for the admin API's status.
//!
//! It covers only families with few series and no rules, so that reading it every second costs microseconds. Each
//! number is exact; together they are not a consistent snapshot, since requests keep ending.

use prometheus::core::Metric as _;
use prometheus::{Histogram, IntCounter, IntGauge};

use crate::model::stage::Stage;

use super::families::MetricFamilies;
use super::labels::{self, ByteDirection, ConnectionSide, VerdictLabel};
use super::{CrawlerSeries, Metrics};

/// Counts since the start, and requests in progress.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricsSummary {
    /// Requests by outcome, over all crawlers; only outcomes that have occurred.
    pub decisions: Vec<DecisionCount>,
    /// Requests by crawler, in the order of the configuration after `anonymous`.
    pub crawlers: Vec<CrawlerCounts>,
    /// Body bytes on each side.
    pub bytes: ByteCounts,
    /// The duration of requests, over all sources.
    pub latency: LatencyHistogram,
    pub timings: TimingSummary,
    /// The number of open client connections.
    pub connections: u64,
    /// The number of open tunnels.
    pub tunnels: u64,
    /// The number of requests in flight.
    pub inflight: u64,
    /// The number of held requests.
    pub held: u64,
    /// The number of hosts with pacing state.
    pub hosts_tracked: u64,
    /// The number of hosts that are backing off.
    pub hosts_backing_off: u64,
}

/// The number of requests with one outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionCount {
    pub stage: Stage,
    pub verdict: VerdictLabel,
    /// The reason; `client_left` if the client left before a decision.
    pub reason: &'static str,
    /// The number of requests.
    pub count: u64,
}

/// The requests of a crawler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrawlerCounts {
    /// The name of the crawler.
    pub crawler: String,
    /// The number of requests by verdict, in the order of [`VerdictLabel::ALL`].
    pub verdicts: [u64; VerdictLabel::ALL.len()],
}

/// Body bytes since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteCounts {
    /// Received from clients.
    pub from_client: u64,
    /// Sent to clients.
    pub to_client: u64,
    /// Received from origins.
    pub from_origin: u64,
    /// Sent to origins.
    pub to_origin: u64,
}

/// The parts of the time that requests take.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimingSummary {
    /// From sending a request to the head of the origin's response.
    pub origin: LatencyHistogram,
    /// The waits of requests that had to wait for their host's turn.
    pub held: LatencyHistogram,
    /// The evaluation of the policy.
    pub decision: LatencyHistogram,
}

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LatencyHistogram {
    /// Upper bounds in seconds, increasing, with cumulative counts.
    pub buckets: Vec<(f64, u64)>,
    /// The total count.
    pub count: u64,
    /// The sum of all durations, in seconds.
    pub sum: f64,
}

impl LatencyHistogram {
    /// Returns the cumulative counts of the buckets; the last is the total count.
    pub fn cumulative_counts(&self) -> impl Iterator<Item = u64> {
        let buckets = self.buckets.iter().map(|(_, count)| *count);
        buckets.chain([self.count])
    }
}

impl MetricsSummary {
    /// Returns the number of requests that have ended.
    pub fn request_count(&self) -> u64 {
        self.decisions.iter().map(|decided| decided.count).sum()
    }

    /// Returns the number of requests that ended with this verdict.
    pub fn count_with_verdict(&self, verdict: VerdictLabel) -> u64 {
        let counted = self
            .decisions
            .iter()
            .filter(|decided| decided.verdict == verdict);
        counted.map(|decided| decided.count).sum()
    }
}

impl CrawlerCounts {
    /// Returns the number of requests that ended with this verdict.
    pub fn count_with_verdict(&self, verdict: VerdictLabel) -> u64 {
        self.verdicts
            .get(verdict as usize)
            .copied()
            .unwrap_or_default()
    }
}

impl Metrics {
    /// Reads the counts, with one load for each decision counter of each crawler. `None` if nothing is counted, since
    /// zeros would be wrong.
    pub fn summary(&self) -> Option<MetricsSummary> {
        let families = self.enabled_families()?;
        let (decisions, crawlers) = count_decisions(&self.0.crawlers);
        Some(MetricsSummary {
            decisions,
            crawlers,
            bytes: ByteCounts {
                from_client: byte_count(families, ByteDirection::Received, ConnectionSide::Client),
                to_client: byte_count(families, ByteDirection::Sent, ConnectionSide::Client),
                from_origin: byte_count(families, ByteDirection::Received, ConnectionSide::Origin),
                to_origin: byte_count(families, ByteDirection::Sent, ConnectionSide::Origin),
            },
            latency: merged_latency(families.request_duration.iter()),
            timings: TimingSummary {
                origin: merged_latency([&families.upstream_ttfb].into_iter()),
                held: merged_latency([&families.hold_time].into_iter()),
                decision: merged_latency([&families.decision_duration].into_iter()),
            },
            connections: gauge_count(&families.connections),
            tunnels: gauge_count(&families.tunnels),
            inflight: gauge_count(&families.inflight),
            held: gauge_count(&families.held),
            hosts_tracked: gauge_count(&families.hosts_tracked),
            hosts_backing_off: gauge_count(&families.hosts_backing_off),
        })
    }

    /// Returns the number of lost lines of the decision log, which are counted in every mode.
    pub fn dropped_log_lines(&self) -> u64 {
        self.families().log_dropped.get()
    }
}

fn gauge_count(gauge: &IntGauge) -> u64 {
    u64::try_from(gauge.get()).unwrap_or_default()
}

fn byte_count(families: &MetricFamilies, direction: ByteDirection, side: ConnectionSide) -> u64 {
    families
        .bytes
        .get((direction, side))
        .map_or(0, IntCounter::get)
}

fn count_decisions(all: &[CrawlerSeries]) -> (Vec<DecisionCount>, Vec<CrawlerCounts>) {
    let mut slots = vec![0; labels::DECISION_COUNT];
    let mut crawlers = Vec::with_capacity(all.len());
    for series in all {
        let mut verdicts = [0; VerdictLabel::ALL.len()];
        for ((place, count), sum) in series
            .decisions
            .counts()
            .zip(&mut slots)
            .filter(|((_, n), _)| *n > 0)
        {
            *sum += count;
            let verdict =
                labels::decision_from_index(place).map(|(_, verdict, _)| verdict as usize);
            if let Some(of_verdict) = verdict.and_then(|verdict| verdicts.get_mut(verdict)) {
                *of_verdict += count;
            }
        }
        crawlers.push(CrawlerCounts {
            crawler: series.crawler.as_str().to_owned(),
            verdicts,
        });
    }
    let occurred = slots
        .into_iter()
        .enumerate()
        .filter(|(_, count)| *count > 0);
    (occurred.filter_map(decision_count).collect(), crawlers)
}

fn decision_count((place, count): (usize, u64)) -> Option<DecisionCount> {
    let (stage, verdict, reason) = labels::decision_from_index(place)?;
    Some(DecisionCount {
        stage,
        verdict,
        reason: labels::reason_label(reason),
        count,
    })
}

fn merged_latency<'h>(histograms: impl Iterator<Item = &'h Histogram>) -> LatencyHistogram {
    let mut all = LatencyHistogram::default();
    for histogram in histograms {
        let read = histogram.metric();
        let read = read.get_histogram();
        all.count += read.get_sample_count();
        all.sum += read.get_sample_sum();
        for (at, bucket) in read.get_bucket().iter().enumerate() {
            match all.buckets.get_mut(at) {
                Some((_, count)) => *count += bucket.cumulative_count(),
                None => all
                    .buckets
                    .push((bucket.upper_bound(), bucket.cumulative_count())),
            }
        }
    }
    all
}
