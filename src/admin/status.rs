//! `GET /api/v1/status`: the process and its current numbers, cheap enough to be polled.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value as Json, json};

use crate::clock::{Clock, Rfc3339};
use crate::metrics::labels::VerdictLabel;
use crate::metrics::summary::{LatencyHistogram, MetricsSummary, TimingSummary};
use crate::pipeline::shadow::ShadowPolicy;

use super::AdminServer;
use super::config::ConfigListing;
use super::response;

/// The process that the status describes.
#[derive(Clone, Debug)]
pub struct ProcessInfo {
    instance: Box<str>,
    clock: Clock,
    started: Instant,
    started_at: SystemTime,
    settings: ProcessSettings,
}

/// The settings of a process that its status shows. Paths are absolute.
#[derive(Clone, Debug, Default)]
pub struct ProcessSettings {
    /// The file or directory of the policy; `None` for the built-in one.
    pub policy_path: Option<PathBuf>,
    /// The listeners for crawlers.
    pub listeners: Vec<ListenerInfo>,
    /// The interception of TLS; `None` if tunnels are evaluated by host.
    pub https: Option<HttpsSettings>,
    /// The destination of the decision log: `auto`, `stderr`, `stdout`, `none`, or a path.
    pub decision_log: String,
    /// The whole configuration.
    pub config: ConfigListing,
}

/// A listener for crawlers.
#[derive(Clone, Debug)]
pub struct ListenerInfo {
    pub address: SocketAddr,
    /// The crawler that every client of this listener is.
    pub crawler: Option<String>,
}

/// The files that clients need to trust the proxy.
#[derive(Clone, Debug)]
pub struct HttpsSettings {
    /// The certificates of the authorities, of which the first signs.
    pub authorities: Vec<PathBuf>,
    /// The roots of the system and the authorities.
    pub bundle: PathBuf,
}

impl ProcessInfo {
    /// Creates the description of a process that starts now. Its decision ids begin with `instance`.
    pub fn new(instance: impl Into<Box<str>>, clock: Clock) -> Self {
        Self {
            instance: instance.into(),
            started: clock.now(),
            started_at: clock.wall_time(),
            clock,
            settings: ProcessSettings::default(),
        }
    }

    pub(super) fn wall_time(&self) -> SystemTime {
        self.clock.wall_time()
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(super) fn settings(&self) -> &ProcessSettings {
        &self.settings
    }

    /// Adds the settings.
    #[must_use]
    pub fn with_settings(mut self, settings: ProcessSettings) -> Self {
        self.settings = settings;
        self
    }
}

type TimingReader = fn(&TimingSummary) -> &LatencyHistogram;

/// The parts of the time of requests, by their names in the API.
pub(super) const TIMINGS: [(&str, TimingReader); 3] = [
    ("origin", |timings| &timings.origin),
    ("held", |timings| &timings.held),
    ("decision", |timings| &timings.decision),
];

impl AdminServer {
    /// Returns version, uptime, policy and the settings that its clients need; the warnings of `/readyz`; and gauges and
    /// counters since the start, which are null if metrics are off.
    pub(super) fn show_status(&self) -> Response<Full<Bytes>> {
        let process = &self.apis.process;
        let settings = &process.settings;
        let snapshot = self.apis.policy.active_policy.load();
        let policy = &snapshot.policy;
        let uptime = process
            .clock
            .now()
            .saturating_duration_since(process.started)
            .as_millis();
        let health = self.apis.readiness.run_checks();
        let summary = self.apis.metrics.summary();
        let metrics = if summary.is_some() { "full" } else { "none" };
        let mut document = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "instance": process.instance,
            "node": self.apis.fleet.as_ref().map(|fleet| fleet.node.name.as_str()),
            "started_at": Rfc3339(process.started_at).to_string(),
            "uptime_ms": u64::try_from(uptime).unwrap_or(u64::MAX),
            "policy": { "name": policy.name(), "revision": policy.revision() },
            "shadow_policy": snapshot.shadow.as_deref().map(shadow_to_json),
            "policy_path": settings.policy_path.as_deref().map(path_to_text),
            "listeners": listeners_to_json(&settings.listeners),
            "https": https_to_json(settings.https.as_ref()),
            "decision_log": settings.decision_log,
            "stops": self.apis.stops.stops.list().len(),
            "ready": health.ready,
            "warnings": health.warnings,
            "metrics": metrics,
            "log_dropped": self.apis.metrics.dropped_log_lines(),
        });
        response::extend(
            &mut document,
            &summary.as_ref().map_or_else(empty_summary, summary_to_json),
        );
        response::json(StatusCode::OK, &document)
    }
}

fn shadow_to_json(shadow: &ShadowPolicy) -> Json {
    json!({
        "name": shadow.policy.name(),
        "revision": shadow.policy.revision(),
        "source": if shadow.assignment.is_some() { "api" } else { "configuration" },
    })
}

fn listeners_to_json(listeners: &[ListenerInfo]) -> Vec<Json> {
    listeners
        .iter()
        .map(|listener| {
            json!({ "address": listener.address.to_string(), "crawler": listener.crawler })
        })
        .collect()
}

/// Returns the text of a path, which need not be UTF-8.
fn path_to_text(path: &Path) -> String {
    path.display().to_string()
}

fn https_to_json(https: Option<&HttpsSettings>) -> Json {
    match https {
        Some(https) => json!({
            "intercept": true,
            "authorities": https.authorities.iter().map(|path| path_to_text(path)).collect::<Vec<_>>(),
            "bundle": path_to_text(&https.bundle),
        }),
        None => json!({ "intercept": false, "authorities": [], "bundle": null }),
    }
}

fn summary_to_json(summary: &MetricsSummary) -> Json {
    let bytes = summary.bytes;
    json!({
        "connections": summary.connections,
        "tunnels": summary.tunnels,
        "inflight": summary.inflight,
        "held": summary.held,
        "hosts": { "tracked": summary.hosts_tracked, "backing_off": summary.hosts_backing_off },
        "requests": summary.request_count(),
        "decisions": decisions_to_json(summary),
        "bytes": {
            "from_client": bytes.from_client,
            "to_client": bytes.to_client,
            "from_origin": bytes.from_origin,
            "to_origin": bytes.to_origin,
        },
        "latency": latency_to_json(&summary.latency),
        "timings": timings_to_json(&summary.timings),
    })
}

/// Returns the keys of [`summary_to_json`] with nulls, for `telemetry.metrics: none`.
fn empty_summary() -> Json {
    json!({
        "connections": null,
        "tunnels": null,
        "inflight": null,
        "held": null,
        "hosts": null,
        "requests": null,
        "decisions": null,
        "bytes": null,
        "latency": null,
        "timings": null,
    })
}

/// Returns the decisions by verdict: in total, for each reason and stage that has occurred, and for each crawler.
fn decisions_to_json(summary: &MetricsSummary) -> Json {
    let reasons = summary.decisions.iter().map(|decision| {
        json!({
            "reason": decision.reason,
            "stage": decision.stage.as_str(),
            "verdict": decision.verdict.as_str(),
            "count": decision.count,
        })
    });
    let crawlers = summary.crawlers.iter().map(|counts| {
        let mut crawler = verdicts_to_json(|verdict| counts.count_with_verdict(verdict));
        response::extend(&mut crawler, &json!({ "crawler": counts.crawler }));
        crawler
    });
    let mut decisions = verdicts_to_json(|verdict| summary.count_with_verdict(verdict));
    let more = json!({ "by_reason": reasons.collect::<Vec<_>>(), "by_crawler": crawlers.collect::<Vec<_>>() });
    response::extend(&mut decisions, &more);
    decisions
}

fn verdicts_to_json(count: impl Fn(VerdictLabel) -> u64) -> Json {
    VerdictLabel::ALL
        .into_iter()
        .map(|verdict| (verdict.as_str().to_owned(), json!(count(verdict))))
        .collect()
}

/// Returns the upper bounds of the buckets in milliseconds (`null` for the last, which has none), and the cumulative
/// count of each.
fn latency_to_json(latency: &LatencyHistogram) -> Json {
    let bounds = latency
        .buckets
        .iter()
        .map(|(seconds, _)| Some((seconds * 1e3).round() as u64));
    json!({
        "le_ms": bounds.chain([None]).collect::<Vec<_>>(),
        "counts": latency.cumulative_counts().collect::<Vec<_>>(),
        "sum_ms": (latency.sum * 1e3).round() as u64,
    })
}

fn timings_to_json(timings: &TimingSummary) -> Json {
    let parts = TIMINGS.iter().map(|(name, timing)| {
        let histogram = timing(timings);
        let part = json!({
            "le_ms": histogram_bounds(histogram).collect::<Json>(),
            "counts": histogram.cumulative_counts().collect::<Vec<_>>(),
            "sum_ms": histogram.sum * 1e3,
        });
        ((*name).to_owned(), part)
    });
    Json::Object(parts.collect())
}

/// Returns the upper bounds of the buckets in milliseconds, which may be fractions; `null` for the last, which has none.
pub(super) fn histogram_bounds(histogram: &LatencyHistogram) -> impl Iterator<Item = Json> {
    let bounds = histogram.buckets.iter();
    // Bounds are given in seconds to the microsecond.
    let bounds = bounds.map(|(seconds, _)| json!((seconds * 1e6).round() / 1e3));
    bounds.chain([Json::Null])
}
