//! The numbers of now, read back in one pass: what the admin API's status shows.
//!
//! Only what has few series: neither rules nor anything else that a policy brings is looked at, so that asking every
//! second costs microseconds. Each number is exact by itself; together they are no snapshot, since requests go on ending.

use prometheus::Histogram;
use prometheus::core::Metric as _;

use crate::model::stage::Stage;

use super::labels::{self, VerdictLabel};
use super::{MetricFamilies, Metrics};

/// What was counted since the start, and what is under way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricsSummary {
    /// By how each request ended, over all crawlers; only what has occurred.
    pub decisions: Vec<DecisionCount>,
    /// By crawler, in the order of the configuration behind `anonymous`.
    pub crawlers: Vec<CrawlerCounts>,
    /// Bytes on each side.
    pub bytes: ByteCounts,
    /// How long requests took, over all sources.
    pub latency: LatencyHistogram,
    /// Client connections.
    pub connections: u64,
    /// Tunnels.
    pub tunnels: u64,
    /// Requests under way.
    pub inflight: u64,
    /// Those of them that wait for their turn.
    pub held: u64,
    /// Hosts whose pace is remembered.
    pub hosts_tracked: u64,
    /// Those of them that rest.
    pub hosts_backing_off: u64,
}

/// Requests that ended in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionCount {
    /// Where it was decided.
    pub stage: Stage,
    /// What was decided.
    pub verdict: VerdictLabel,
    /// Why; `client_left` of a client that left before.
    pub reason: &'static str,
    /// How often.
    pub count: u64,
}

/// Requests of one crawler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrawlerCounts {
    /// Its name.
    pub crawler: String,
    /// By verdict, in the order of [`VerdictLabel::ALL`].
    pub verdicts: [u64; VerdictLabel::ALL.len()],
}

/// Bytes since the start.
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

/// A histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LatencyHistogram {
    /// Upper bounds in seconds, and how many took no longer; rising.
    pub buckets: Vec<(f64, u64)>,
    /// How many there were.
    pub count: u64,
    /// Seconds of all of them.
    pub sum: f64,
}

impl MetricsSummary {
    /// Requests that have ended.
    pub fn request_count(&self) -> u64 {
        self.decisions.iter().map(|decided| decided.count).sum()
    }

    /// Requests that ended with this verdict.
    pub fn count_with_verdict(&self, verdict: VerdictLabel) -> u64 {
        let counted = self
            .decisions
            .iter()
            .filter(|decided| decided.verdict == verdict);
        counted.map(|decided| decided.count).sum()
    }
}

impl CrawlerCounts {
    /// Requests that ended with this verdict.
    pub fn count_with_verdict(&self, verdict: VerdictLabel) -> u64 {
        self.verdicts
            .get(verdict as usize)
            .copied()
            .unwrap_or_default()
    }
}

impl Metrics {
    /// Reads what is counted; as many loads as crawlers have decision counters. `None` if nothing is: a zero would say
    /// that nothing has happened.
    pub fn summary(&self) -> Option<MetricsSummary> {
        let families = self.enabled_families()?;
        let (decisions, crawlers) = count_decisions(families);
        let count = |gauge: &prometheus::IntGauge| u64::try_from(gauge.get()).unwrap_or_default();
        let bytes = &families.bytes;
        Some(MetricsSummary {
            decisions,
            crawlers,
            bytes: ByteCounts {
                from_client: bytes.from_client.get(),
                to_client: bytes.to_client.get(),
                from_origin: bytes.from_origin.get(),
                to_origin: bytes.to_origin.get(),
            },
            latency: merged_latency(&families.request_duration),
            connections: count(&families.connections),
            tunnels: count(&families.tunnels),
            inflight: count(&families.inflight),
            held: count(&families.hold.held),
            hosts_tracked: count(&families.hold.tracked),
            hosts_backing_off: count(&families.hold.backing_off),
        })
    }

    /// Lines of the decision log that were lost; counted even where nothing else is.
    pub fn dropped_log_lines(&self) -> u64 {
        self.families().log_dropped.get()
    }
}

fn count_decisions(families: &MetricFamilies) -> (Vec<DecisionCount>, Vec<CrawlerCounts>) {
    let mut places = vec![0; labels::DECISION_SLOTS];
    let mut crawlers = Vec::with_capacity(families.crawlers.len());
    for series in &families.crawlers {
        let mut verdicts = [0; VerdictLabel::ALL.len()];
        for ((place, count), sum) in series
            .decisions
            .counts()
            .zip(&mut places)
            .filter(|((_, n), _)| *n > 0)
        {
            *sum += count;
            let verdict = labels::decision_from_slot(place).map(|(_, verdict, _)| verdict as usize);
            if let Some(of_verdict) = verdict.and_then(|verdict| verdicts.get_mut(verdict)) {
                *of_verdict += count;
            }
        }
        crawlers.push(CrawlerCounts {
            crawler: series.crawler.as_str().to_owned(),
            verdicts,
        });
    }
    let occurred = places
        .into_iter()
        .enumerate()
        .filter(|(_, count)| *count > 0);
    (occurred.filter_map(decision_count).collect(), crawlers)
}

fn decision_count((place, count): (usize, u64)) -> Option<DecisionCount> {
    let (stage, verdict, reason) = labels::decision_from_slot(place)?;
    Some(DecisionCount {
        stage,
        verdict,
        reason: labels::reason_label(reason),
        count,
    })
}

fn merged_latency(histograms: &[Histogram]) -> LatencyHistogram {
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
