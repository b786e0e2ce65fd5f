//! `GET /api/v1/status`: the process and its current numbers, cheap enough to be polled.

use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value as Json, json};

use crate::clock::{Clock, Rfc3339};
use crate::metrics::labels::VerdictLabel;
use crate::metrics::summary::{LatencyHistogram, MetricsSummary};

use super::AdminServer;
use super::response;

/// The process that the status describes.
#[derive(Clone, Debug)]
pub struct ProcessInfo {
    instance: Box<str>,
    clock: Clock,
    started: Instant,
    started_at: SystemTime,
}

impl ProcessInfo {
    /// Creates the description of a process that starts now. Its decision ids begin with `instance`.
    pub fn new(instance: impl Into<Box<str>>, clock: Clock) -> Self {
        Self {
            instance: instance.into(),
            started: clock.now(),
            started_at: clock.wall_time(),
            clock,
        }
    }
}

impl AdminServer {
    /// Returns version, uptime and policy; the warnings of `/readyz`; and gauges and counters since the start, which are
    /// null if metrics are off.
    pub(super) fn show_status(&self) -> Response<Full<Bytes>> {
        let process = &self.apis.process;
        let policy = &self.apis.policy.active_policy.load().policy;
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
            "started_at": Rfc3339(process.started_at).to_string(),
            "uptime_ms": u64::try_from(uptime).unwrap_or(u64::MAX),
            "policy": { "name": policy.name(), "revision": policy.revision() },
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
    let counts = latency.buckets.iter().map(|(_, count)| *count);
    json!({
        "le_ms": bounds.chain([None]).collect::<Vec<_>>(),
        "counts": counts.chain([latency.count]).collect::<Vec<_>>(),
        "sum_ms": (latency.sum * 1e3).round() as u64,
    })
}
