//! The export of spans by OTLP, to `telemetry.otlp`.

use std::time::Duration;

use crate::config::settings::Settings;
use crate::metrics::Metrics;
use crate::metrics::record::Recorder;
use crate::metrics::trace::{TraceReceiver, TraceSampler};
use crate::otlp::{Collector, CollectorSettings, ServiceIdentity, TraceDelivery, TraceExporter};

use super::origin_roots;

/// The time limit of exporting the last spans on shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// An export that is configured, but not started yet.
pub(super) struct SpanExportSetup {
    traces: TraceReceiver,
    collector: Collector,
    service: String,
}

/// The running export; `None` if the settings name no collector.
#[derive(Debug)]
pub(super) struct SpanExportTask(Option<TraceExporter>);

/// Returns the sampler for the recorder, and the setup of the export, if the settings name a collector.
///
/// # Errors
/// If the collector cannot be used.
pub(super) fn prepare(
    settings: &Settings,
    metrics: &Metrics,
) -> Result<(Option<TraceSampler>, Option<SpanExportSetup>), String> {
    let Some(otlp) = &settings.telemetry.otlp else {
        return Ok((None, None));
    };
    let export = &otlp.export;
    let collector = Collector::new(CollectorSettings {
        endpoint: otlp.endpoint.clone(),
        headers: export.headers.clone(),
        timeout: export.timeout,
        tls: origin_roots::client_config_for(&otlp.endpoint, &settings.tls)?,
    })
    .map_err(|error| format!("telemetry.otlp {}: {error}", otlp.endpoint.base()))?;
    let (sampler, traces) = TraceSampler::new(export.share, export.queue, metrics.clone());
    let setup = SpanExportSetup {
        traces,
        collector,
        service: export.service.clone(),
    };
    Ok((Some(sampler), Some(setup)))
}

impl SpanExportTask {
    /// Starts the export. Must be called inside a tokio runtime.
    pub(super) fn start(setup: Option<SpanExportSetup>, recorder: &Recorder) -> Self {
        let Some(setup) = setup else {
            return Self(None);
        };
        let identity = ServiceIdentity {
            service: setup.service,
            instance: recorder.instance(),
        };
        let delivery = TraceDelivery::new(
            identity,
            setup.collector,
            recorder.metrics().clone(),
            recorder.clock().clone(),
        );
        Self(Some(TraceExporter::start(setup.traces, delivery)))
    }

    /// Exports the remaining spans.
    pub(super) async fn close(self) {
        if let Some(exporter) = self.0 {
            exporter.close(CLOSE_TIMEOUT).await;
        }
    }
}
