//! What is counted of requests, and what is told of them to other programs: spans, by OTLP.

use std::fmt;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use crate::urls::target::UrlTarget;

/// What is counted and told to others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TelemetryConfig {
    /// What `/metrics` knows.
    pub metrics: MetricsLevel,
    /// Where spans go; `None` makes none.
    pub otlp: Option<OtlpConfig>,
}

/// What `/metrics` knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsLevel {
    /// Everything.
    #[default]
    Full,
    /// The process and the policy in force; requests are not counted.
    None,
}

impl MetricsLevel {
    /// Both levels.
    pub const ALL: [Self; 2] = [Self::Full, Self::None];

    /// The word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::None => "none",
        }
    }
}

/// A collector that speaks OTLP over HTTP, and what it gets.
#[derive(Clone, PartialEq)]
pub struct OtlpConfig {
    /// Its address, to which `/v1/traces` is added if it does not end so: `http://127.0.0.1:4318`.
    pub endpoint: UrlTarget,
    /// The share of requests of which spans are made, 0 to 1.
    pub share: f64,
    /// The name under which they stand there: `service.name`.
    pub service: String,
    /// Fields that go with each export, such as the collector's credentials. Never shown.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How long one export may take.
    pub timeout: Duration,
    /// How many requests may wait to be exported; the spans of others are dropped and counted.
    pub queue: usize,
}

impl OtlpConfig {
    /// The defaults, with this endpoint.
    pub fn new(endpoint: UrlTarget) -> Self {
        Self {
            endpoint,
            share: 0.01,
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
            "Otlp({}, {} of {})",
            self.endpoint.base(),
            self.share,
            self.service
        )
    }
}
