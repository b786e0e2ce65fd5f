//! A collector: what is posted to it, and what its answer means.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use prost::Message;
use rustls::ClientConfig;

use crate::http_client::{DeliveryFailure, Endpoint, PostResponse, RetryAdvice};
use crate::urls::target::UrlTarget;

use super::message::ExportTraceServiceResponse;

/// The path of traces (OTLP 1.x, "OTLP/HTTP Request").
const TRACES_PATH: &str = "/v1/traces";
/// The longest that a collector may send us away.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Where a collector is and how it is spoken to.
#[derive(Debug)]
pub struct CollectorSettings {
    /// Its address; [`TRACES_PATH`] is added if it does not end so.
    pub endpoint: UrlTarget,
    /// Fields that go with each export.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How long one export may take.
    pub timeout: Duration,
    /// How it proves who it is, if it is asked over TLS.
    pub tls: Option<Arc<ClientConfig>>,
}

/// Takes spans.
pub struct Collector {
    url: String,
    endpoint: Endpoint,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collector({})", self.url)
    }
}

impl Collector {
    /// Nothing is connected yet.
    ///
    /// # Errors
    /// If the address is none that can be asked.
    pub fn new(settings: CollectorSettings) -> Result<Self, String> {
        let CollectorSettings {
            endpoint,
            headers,
            timeout,
            tls,
        } = settings;
        let path = traces_path(endpoint.path());
        let protobuf = (
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-protobuf"),
        );
        let headers = [protobuf].into_iter().chain(headers);
        let named = format!("{}{path}", endpoint.base());
        Ok(Self {
            url: named,
            endpoint: Endpoint::new(&endpoint, &path, headers, timeout, tls)?,
        })
    }

    /// Posts an export; the number of spans that the collector did not take of it.
    pub(super) async fn post(&self, body: Bytes) -> Result<u64, DeliveryFailure> {
        match self.endpoint.post(body, []).await {
            Ok(answer) => check_response(&answer),
            Err(why) => Err(DeliveryFailure {
                message: why,
                retry: RetryAdvice::AfterBackoff,
            }),
        }
    }
}

/// What an answer means (OTLP 1.x, "OTLP/HTTP Response").
fn check_response(answer: &PostResponse) -> Result<u64, DeliveryFailure> {
    if answer.status.is_success() {
        // It has taken the spans: an answer that is cut short is no reason to send them again.
        let body = answer
            .body
            .clone()
            .and_then(|body| ExportTraceServiceResponse::decode(body).ok());
        let partial = body.and_then(|body| body.partial_success);
        return Ok(partial.map_or(0, |partial| {
            u64::try_from(partial.rejected_spans).unwrap_or(0)
        }));
    }
    let busy = matches!(
        answer.status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    );
    let again = match (busy, answer.retry_after) {
        (true, Some(after)) => RetryAdvice::After(after.min(MAX_PAUSE)),
        (true, None) => RetryAdvice::AfterBackoff,
        (false, _) => RetryAdvice::Never,
    };
    Err(DeliveryFailure {
        message: format!("it answers {}", answer.status),
        retry: again,
    })
}

fn traces_path(base: &str) -> String {
    let base = base.trim_end_matches('/');
    if base.ends_with(TRACES_PATH) {
        base.to_owned()
    } else {
        [base, TRACES_PATH].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_traces_is_added_once() {
        for (base, whole) in [
            ("/", "/v1/traces"),
            ("/otlp", "/otlp/v1/traces"),
            ("/otlp/", "/otlp/v1/traces"),
            ("/v1/traces", "/v1/traces"),
        ] {
            assert_eq!(traces_path(base), whole);
        }
    }
}
