//! Settings of metrics and of spans, which are exported by OTLP.

use std::fmt;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use crate::metrics::MetricsExtent;
use crate::metrics::log::SampleRate;
use crate::urls::target::UrlTarget;

/// Settings of `telemetry`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TelemetryConfig {
    /// The extent of the metrics.
    pub metrics: MetricsExtent,
    /// The destination of spans; `None` records none.
    pub otlp: Option<OtlpConfig>,
}

/// A collector that accepts OTLP over HTTP, and the spans that it receives.
#[derive(Clone, PartialEq)]
pub struct OtlpConfig {
    /// The URL of the collector. `/v1/traces` is added unless it ends with it: `http://127.0.0.1:4318`.
    pub endpoint: UrlTarget,
    /// The spans and how they are exported.
    pub export: SpanExportConfig,
}

/// The spans that are recorded and how they are exported.
#[derive(Clone, PartialEq)]
pub struct SpanExportConfig {
    /// The share of requests for which spans are recorded.
    pub share: SampleRate,
    /// The name of the service (`service.name`).
    pub service: String,
    /// Headers of each export, such as the collector's credentials. Never shown.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The time that one export may take.
    pub timeout: Duration,
    /// The number of requests that may wait to be exported; the spans of others are dropped and counted.
    pub queue: usize,
}

impl Default for SpanExportConfig {
    fn default() -> Self {
        Self {
            share: SampleRate::new(0.01).unwrap_or(SampleRate::ALL),
            service: "crawlgate".to_owned(),
            headers: Vec::new(),
            timeout: Duration::from_secs(10),
            queue: 4_096,
        }
    }
}

impl fmt::Debug for OtlpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "OtlpConfig({}, {} of {})",
            self.endpoint.base(),
            self.export.share.as_f64(),
            self.export.service
        )
    }
}
