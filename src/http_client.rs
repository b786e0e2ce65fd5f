//! A client for the POST requests that the operator configures: spans to a collector, events to a webhook.
//!
//! Each request opens a connection of its own to the configured host. Proxy variables of the environment are ignored:
//! `HTTP_PROXY` could name this very proxy. Redirects are not followed, and the policy does not apply. The caller
//! interprets the response.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{DefaultServerNameResolver, HttpsConnector, ResolveServerName};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};

use crate::urls::target::{Scheme, UrlTarget};

/// The maximum number of bytes that are read of a response body.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// The time for the body of a successful response.
const RESPONSE_BODY_TIMEOUT: Duration = Duration::from_secs(1);
const USER_AGENT_VALUE: &str = concat!("crawlgate/", env!("CARGO_PKG_VERSION"));

/// A URL to post to, with the fields of every request.
pub struct Endpoint {
    base: String,
    uri: Uri,
    headers: HeaderMap,
    timeout: Duration,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// Omits the path, which may contain a secret.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.base)
    }
}

/// A failed delivery.
#[derive(Debug)]
pub struct DeliveryFailure {
    /// The cause, in words.
    pub message: String,
    /// The advice on repeating the delivery.
    pub retry: RetryAdvice,
}

/// The advice on repeating a failed delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAdvice {
    /// A repetition cannot succeed.
    Never,
    /// Repeat after a pause that the caller chooses.
    AfterBackoff,
    /// Repeat after this time, as the server requested.
    After(Duration),
}

#[derive(Debug)]
pub struct PostResponse {
    pub status: StatusCode,
    /// The value of `Retry-After`, if it is a number of seconds.
    pub retry_after: Option<Duration>,
    /// The body of a successful response, if it arrived completely and in time. The request succeeded without it, too.
    pub body: Option<Bytes>,
}

impl Endpoint {
    /// Creates an endpoint without connecting. `path` replaces the path of the URL; `tls` is required for https.
    ///
    /// # Errors
    /// Returns a message if the URL cannot be requested.
    pub fn new(
        url: &UrlTarget,
        path: &str,
        extra_headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
        timeout: Duration,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Self, String> {
        let uri = Uri::builder()
            .scheme(url.scheme().as_str())
            .authority(url.authority())
            .path_and_query(path)
            .build()
            .map_err(|_| "the path is not valid in a request".to_owned())?;
        let host = HeaderValue::from_str(url.authority()).map_err(|error| error.to_string())?;
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host);
        headers.insert(USER_AGENT, HeaderValue::from_static(USER_AGENT_VALUE));
        for (name, value) in extra_headers {
            headers.insert(name, value);
        }
        let tls = match (url.scheme(), tls) {
            (Scheme::Http, _) => config_without_roots()?,
            (Scheme::Https, None) => return Err("https requires root certificates".to_owned()),
            (Scheme::Https, Some(config)) => {
                let resolver = DefaultServerNameResolver::default();
                resolver.resolve(&uri).map_err(|error| error.to_string())?;
                config
            }
        };
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        Ok(Self {
            base: url.base().to_owned(),
            uri,
            headers,
            timeout,
            // Without idle connections each request opens its own.
            client: Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(0)
                .build(HttpsConnector::from((http, tls))),
        })
    }

    /// Posts a body with additional header fields.
    ///
    /// # Errors
    /// Returns the cause, in words, if there is no response.
    pub async fn post(
        &self,
        body: Bytes,
        extra_headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    ) -> Result<PostResponse, String> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().extend(extra_headers);
        let response = async {
            match self.client.request(request).await {
                Ok(response) => Ok(read_response(response).await),
                Err(error) => Err(root_cause(&error)),
            }
        };
        tokio::time::timeout(self.timeout, response)
            .await
            .unwrap_or_else(|_| Err("no response in time".to_owned()))
    }
}

/// Returns the configuration for an http URL, whose connector needs one but never uses it.
fn config_without_roots() -> Result<Arc<ClientConfig>, String> {
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    Ok(Arc::new(config))
}

async fn read_response(response: Response<Incoming>) -> PostResponse {
    let status = response.status();
    let retry_after = parse_retry_after(response.headers());
    let mut body = None;
    if status.is_success() {
        let collected = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect();
        if let Ok(Ok(collected)) = tokio::time::timeout(RESPONSE_BODY_TIMEOUT, collected).await {
            body = Some(Collected::to_bytes(collected));
        }
    }
    PostResponse {
        status,
        retry_after,
        body,
    }
}

fn parse_retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse();
    Some(Duration::from_secs(seconds.ok()?))
}

/// Returns the text of the innermost error: the outer ones only name the phase.
fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
