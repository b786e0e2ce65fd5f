//! No spans: this build has no OTLP, and the configuration refuses `telemetry.otlp`.

use crate::config::settings::Settings;
use crate::metrics::Metrics;
use crate::metrics::record::Recorder;
use crate::metrics::trace::TraceSampler;

/// Nothing is.
pub(super) enum SpanExportSetup {}

#[derive(Debug)]
pub(super) struct SpanExportTask;

pub(super) fn prepare(
    _: &Settings,
    _: &Metrics,
) -> Result<(Option<TraceSampler>, Option<SpanExportSetup>), String> {
    Ok((None, None))
}

impl SpanExportTask {
    pub(super) fn start(_: Option<SpanExportSetup>, _: &Recorder) -> Self {
        Self
    }

    #[allow(
        clippy::unused_async,
        reason = "as where there is something to wait for"
    )]
    pub(super) async fn close(self) {}
}
