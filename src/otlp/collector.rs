//! The collector that spans are posted to.

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

/// The path for traces (OTLP 1.x, "OTLP/HTTP Request").
const TRACES_PATH: &str = "/v1/traces";
/// The maximum pause that a collector may request.
const MAX_PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct CollectorSettings {
    /// Its URL; `/v1/traces` is appended if it does not end with it.
    pub endpoint: UrlTarget,
    /// Header fields sent with each export.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The time limit of one export.
    pub timeout: Duration,
    /// The TLS configuration, if the URL is https.
    pub tls: Option<Arc<ClientConfig>>,
}

/// A collector of spans.
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
    /// Creates a collector; it is not connected yet.
    ///
    /// # Errors
    /// If no request can be sent to the URL.
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
        let url = format!("{}{path}", endpoint.base());
        Ok(Self {
            url,
            endpoint: Endpoint::new(&endpoint, &path, headers, timeout, tls)?,
        })
    }

    /// Posts an export, and returns the number of spans that the collector rejected.
    pub(super) async fn post(&self, body: Bytes) -> Result<u64, DeliveryFailure> {
        match self.endpoint.post(body, []).await {
            Ok(response) => check_response(&response),
            Err(error) => Err(DeliveryFailure {
                message: error,
                retry: RetryAdvice::AfterBackoff,
            }),
        }
    }
}

/// Interprets a response (OTLP 1.x, "OTLP/HTTP Response").
fn check_response(response: &PostResponse) -> Result<u64, DeliveryFailure> {
    if response.status.is_success() {
        // The spans were accepted; a truncated body is no reason to send them again.
        let body = response
            .body
            .clone()
            .and_then(|body| ExportTraceServiceResponse::decode(body).ok());
        let partial = body.and_then(|body| body.partial_success);
        return Ok(partial.map_or(0, |partial| {
            u64::try_from(partial.rejected_spans).unwrap_or(0)
        }));
    }
    let busy = matches!(
        response.status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    );
    let retry_after = match (busy, response.retry_after) {
        (true, Some(after)) => RetryAdvice::After(after.min(MAX_PAUSE)),
        (true, None) => RetryAdvice::AfterBackoff,
        (false, _) => RetryAdvice::Never,
    };
    Err(DeliveryFailure {
        message: format!("it answers {}", response.status),
        retry: retry_after,
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
