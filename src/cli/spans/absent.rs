//! No spans: this build has no OTLP, and the configuration refuses `telemetry.otlp`.

use crate::config::settings::Settings;
use crate::metrics::Metrics;
use crate::metrics::record::Recorder;
use crate::metrics::trace::Tracing;

/// Nothing is.
pub(super) enum Prepared {}

#[derive(Debug)]
pub(super) struct Spans;

pub(super) fn prepare(
    _: &Settings,
    _: &Metrics,
) -> Result<(Option<Tracing>, Option<Prepared>), String> {
    Ok((None, None))
}

impl Spans {
    pub(super) fn start(_: Option<Prepared>, _: &Recorder) -> Self {
        Self
    }

    #[allow(
        clippy::unused_async,
        reason = "as where there is something to wait for"
    )]
    pub(super) async fn close(self) {}
}
