//! Stand-in for the export of spans in a build without the feature `otlp`, which refuses `telemetry.otlp`.

use crate::config::settings::Settings;
use crate::metrics::Metrics;
use crate::metrics::record::Recorder;
use crate::metrics::trace::TraceSampler;

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
        reason = "the signature is that of the build with OTLP"
    )]
    pub(super) async fn close(self) {}
}
