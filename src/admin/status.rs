//! `GET /api/v1/status`: the process and its numbers of now, for a page that asks again and again.

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

/// The process that is shown.
#[derive(Clone, Debug)]
pub struct ProcessInfo {
    instance: Option<Box<str>>,
    clock: Clock,
    started: (Instant, SystemTime),
}

impl ProcessInfo {
    /// One that begins now; `instance` is what its decision ids begin with.
    pub fn new(instance: impl Into<Box<str>>, clock: Clock) -> Self {
        Self {
            instance: Some(instance.into()),
            ..Self::without_instance(clock)
        }
    }

    /// One that makes no decisions.
    pub(super) fn without_instance(clock: Clock) -> Self {
        let began = (clock.now(), clock.wall_time());
        Self {
            instance: None,
            clock,
            started: began,
        }
    }
}

impl AdminServer {
    /// Version, uptime and policy; what `/readyz` warns of; gauges, and counts since the start, or nulls if nothing
    /// is counted.
    pub(super) fn show_status(&self) -> Response<Full<Bytes>> {
        let (process, policy) = (&self.process, &self.policy.active_policy.load().policy);
        let (began, wall) = process.started;
        let uptime = process
            .clock
            .now()
            .saturating_duration_since(began)
            .as_millis();
        let health = self.readiness.run_checks();
        let summary = self.metrics.summary();
        let metrics = if summary.is_some() { "full" } else { "none" };
        let mut document = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "instance": process.instance,
            "started_at": Rfc3339(wall).to_string(),
            "uptime_ms": u64::try_from(uptime).unwrap_or(u64::MAX),
            "policy": { "name": policy.name(), "revision": policy.revision() },
            "ready": health.ready,
            "warnings": health.warnings,
            "metrics": metrics,
            "log_dropped": self.metrics.dropped_log_lines(),
        });
        response::extend(
            &mut document,
            &summary.as_ref().map_or_else(empty_summary, summary_to_json),
        );
        response::json(StatusCode::OK, &document)
    }
}

fn summary_to_json(summary: &MetricsSummary) -> Json {
    let (hosts, bytes) = (
        (summary.hosts_tracked, summary.hosts_backing_off),
        summary.bytes,
    );
    json!({
        "connections": summary.connections,
        "tunnels": summary.tunnels,
        "inflight": summary.inflight,
        "held": summary.held,
        "hosts": { "tracked": hosts.0, "backing_off": hosts.1 },
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

/// With `telemetry.metrics: none`: the same keys, and nothing known of them.
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

/// By verdict, in all; for each reason and stage that has occurred; for each crawler.
fn decisions_to_json(summary: &MetricsSummary) -> Json {
    let reasons = summary.decisions.iter().map(|decided| {
        json!({
            "reason": decided.reason,
            "stage": decided.stage.as_str(),
            "verdict": decided.verdict.as_str(),
            "count": decided.count,
        })
    });
    let crawlers = summary.crawlers.iter().map(|of| {
        let mut crawler = verdicts_to_json(|verdict| of.count_with_verdict(verdict));
        response::extend(&mut crawler, &json!({ "crawler": of.crawler }));
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

/// Upper bounds in milliseconds, `null` for the last that has none, and how many took no longer.
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
