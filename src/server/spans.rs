//! Spans by OTLP: which requests, and the task that brings them to `telemetry.otlp`.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use crate::config::settings::{OtlpConfig, Settings};
use crate::metrics::Metrics;
use crate::metrics::log::SampleRate;
use crate::metrics::record::Recorder;
use crate::metrics::trace::{TraceReceiver, TraceSampler};
use crate::otlp::{Collector, CollectorSettings, ServiceIdentity, TraceDelivery, TraceExporter};
use crate::urls::target::Scheme;

use super::origin_roots;

/// How long the last spans may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Spans that nobody exports yet.
pub(super) struct SpanExportSetup {
    traces: TraceReceiver,
    collector: Collector,
    service: String,
}

/// What ends with the proxy.
#[derive(Debug)]
pub(super) struct SpanExportTask(Option<TraceExporter>);

/// What records need to become spans, and what comes of it; nothing unless the settings name a collector.
///
/// # Errors
/// If it cannot be asked, in words.
pub(super) fn prepare(
    settings: &Settings,
    metrics: &Metrics,
) -> Result<(Option<TraceSampler>, Option<SpanExportSetup>), String> {
    let Some(otlp) = &settings.telemetry.otlp else {
        return Ok((None, None));
    };
    let told = |why: String| format!("telemetry.otlp {}: {why}", otlp.endpoint.base());
    let collector = CollectorSettings {
        endpoint: otlp.endpoint.clone(),
        headers: otlp.headers.clone(),
        timeout: otlp.timeout,
        tls: client_tls(otlp, settings)?,
    };
    let collector = Collector::new(collector).map_err(told)?;
    let share = SampleRate::new(otlp.share).unwrap_or(SampleRate::ALL);
    let (tracing, traces) = TraceSampler::new(share, otlp.queue, metrics.clone());
    Ok((
        Some(tracing),
        Some(SpanExportSetup {
            traces,
            collector,
            service: otlp.service.clone(),
        }),
    ))
}

/// A collector is never asked without its certificate being verified.
fn client_tls(otlp: &OtlpConfig, settings: &Settings) -> Result<Option<Arc<ClientConfig>>, String> {
    if otlp.endpoint.scheme() == Scheme::Http {
        return Ok(None);
    }
    origin_roots::verifying_client_config(&settings.tls).map(Some)
}

impl SpanExportTask {
    /// Begins to export. Must be called inside a tokio runtime.
    pub(super) fn start(prepared: Option<SpanExportSetup>, recorder: &Recorder) -> Self {
        Self(prepared.map(
            |SpanExportSetup {
                 traces,
                 collector,
                 service,
             }| {
                let resource = ServiceIdentity {
                    service,
                    instance: recorder.instance(),
                };
                let (metrics, clock) = (recorder.metrics().clone(), recorder.clock().clone());
                TraceExporter::start(
                    traces,
                    TraceDelivery::new(resource, collector, metrics, clock),
                )
            },
        ))
    }

    /// Exports what is left.
    pub(super) async fn close(self) {
        if let Some(exporter) = self.0 {
            exporter.close(CLOSE_TIMEOUT).await;
        }
    }
}
