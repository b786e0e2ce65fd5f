//! Spans by OTLP: which requests, and the task that brings them to `telemetry.otlp`.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use crate::config::settings::{Otlp, Settings};
use crate::metrics::Metrics;
use crate::metrics::log::Share;
use crate::metrics::record::Recorder;
use crate::metrics::trace::{Traces, Tracing};
use crate::otlp::{Collector, CollectorSettings, Delivery, Exporter, Resource};
use crate::vocab::target::Scheme;

use super::origin_roots;

/// How long the last spans may take.
const CLOSE: Duration = Duration::from_secs(5);

/// Spans that nobody exports yet.
pub(super) struct Prepared {
    traces: Traces,
    collector: Collector,
    service: String,
}

/// What ends with the proxy.
#[derive(Debug)]
pub(super) struct Spans(Option<Exporter>);

/// What records need to become spans, and what comes of it; nothing unless the settings name a collector.
///
/// # Errors
/// If it cannot be asked, in words.
pub(super) fn prepare(
    settings: &Settings,
    metrics: &Metrics,
) -> Result<(Option<Tracing>, Option<Prepared>), String> {
    let Some(otlp) = &settings.telemetry.otlp else {
        return Ok((None, None));
    };
    let told = |why: String| format!("telemetry.otlp {}: {why}", otlp.endpoint.base());
    let collector = CollectorSettings {
        endpoint: otlp.endpoint.clone(),
        headers: otlp.headers.clone(),
        timeout: otlp.timeout,
        tls: tls(otlp, settings)?,
    };
    let collector = Collector::new(collector).map_err(told)?;
    let share = Share::new(otlp.share).unwrap_or(Share::ALL);
    let (tracing, traces) = Tracing::new(share, otlp.queue, metrics.clone());
    Ok((
        Some(tracing),
        Some(Prepared {
            traces,
            collector,
            service: otlp.service.clone(),
        }),
    ))
}

/// A collector is never asked without its certificate being verified.
fn tls(otlp: &Otlp, settings: &Settings) -> Result<Option<Arc<ClientConfig>>, String> {
    if otlp.endpoint.scheme() == Scheme::Http {
        return Ok(None);
    }
    origin_roots::verifying(&settings.tls).map(Some)
}

impl Spans {
    /// Begins to export. Must be called inside a tokio runtime.
    pub(super) fn start(prepared: Option<Prepared>, recorder: &Recorder) -> Self {
        Self(prepared.map(
            |Prepared {
                 traces,
                 collector,
                 service,
             }| {
                let resource = Resource {
                    service,
                    instance: recorder.instance(),
                };
                let (metrics, clock) = (recorder.metrics().clone(), recorder.clock().clone());
                Exporter::start(traces, Delivery::new(resource, collector, metrics, clock))
            },
        ))
    }

    /// Exports what is left.
    pub(super) async fn close(self) {
        if let Some(exporter) = self.0 {
            exporter.close(CLOSE).await;
        }
    }
}
