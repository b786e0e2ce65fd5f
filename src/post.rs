//! A POST to where the operator wants something told: a collector of spans, a reader of events.
//!
//! Each goes on a connection of its own to the address that the configuration names: no variable of the environment has a
//! say, as it would with the usual libraries, for which `HTTP_PROXY` could name this very proxy. Redirects are not
//! followed, and nothing of what the policy says of requests holds here. What an answer means is for who asks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::urls::target::{Scheme, UrlTarget};

/// Bytes of an answer that are read.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// For the rest of an answer that says yes.
const RESPONSE_BODY_TIMEOUT: Duration = Duration::from_secs(1);
const USER_AGENT_VALUE: &str = concat!("crawlgate/", env!("CARGO_PKG_VERSION"));

/// Whom to tell.
pub struct Endpoint {
    base: String,
    host: String,
    port: u16,
    uri: Uri,
    headers: HeaderMap,
    timeout: Duration,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// Without the path: it may hold a secret.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.base)
    }
}

/// Why something was not delivered.
#[derive(Debug)]
pub struct DeliveryFailure {
    /// In words.
    pub message: String,
    /// Whether it can help to try again.
    pub retry: RetryAdvice,
}

/// Whether it can help to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAdvice {
    /// It cannot.
    Never,
    /// Behind a pause of our own.
    AfterBackoff,
    /// Behind this time, as whoever was told says.
    After(Duration),
}

/// What was answered.
#[derive(Debug)]
pub struct PostResponse {
    /// The status.
    pub status: StatusCode,
    /// `Retry-After` in seconds, if it is said so.
    pub retry_after: Option<Duration>,
    /// The body of a yes, if it came whole and in time: it was taken all the same.
    pub body: Option<Bytes>,
}

impl Endpoint {
    /// Nothing is connected yet. `path` is asked for in place of the URL's own; `tls` is needed for https.
    ///
    /// # Errors
    /// If it is none that can be asked.
    pub fn new(
        url: &UrlTarget,
        path: &str,
        more: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
        timeout: Duration,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Self, String> {
        let uri = path
            .parse()
            .map_err(|_| "its path cannot be asked for".to_owned())?;
        let named = HeaderValue::from_str(url.authority()).map_err(|error| error.to_string())?;
        let mut headers = HeaderMap::new();
        headers.insert(HOST, named);
        headers.insert(USER_AGENT, HeaderValue::from_static(USER_AGENT_VALUE));
        for (name, value) in more {
            headers.insert(name, value);
        }
        let host = strip_brackets(url.host()).to_owned();
        let tls = match (url.scheme(), tls) {
            (Scheme::Http, _) => None,
            (Scheme::Https, None) => return Err("TLS needs roots".to_owned()),
            (Scheme::Https, Some(config)) => {
                let name = ServerName::try_from(host.clone()).map_err(|error| error.to_string())?;
                Some((TlsConnector::from(config), name))
            }
        };
        Ok(Self {
            base: url.base().to_owned(),
            host,
            port: url.port(),
            uri,
            headers,
            timeout,
            tls,
        })
    }

    /// Posts a body, with these fields besides.
    ///
    /// # Errors
    /// Why there is no answer, in words.
    pub async fn post(
        &self,
        body: Bytes,
        more: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    ) -> Result<PostResponse, String> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().extend(more);
        let answered = tokio::time::timeout(self.timeout, self.exchange(request)).await;
        answered.unwrap_or_else(|_| Err("it does not answer in time".to_owned()))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<PostResponse, String> {
        let tcp = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .map_err(error_text)?;
        let _ = tcp.set_nodelay(true);
        match &self.tls {
            None => send_request(tcp, request).await,
            Some((connector, name)) => {
                send_request(
                    connector
                        .connect(name.clone(), tcp)
                        .await
                        .map_err(error_text)?,
                    request,
                )
                .await
            }
        }
    }
}

async fn send_request<S>(stream: S, request: Request<Full<Bytes>>) -> Result<PostResponse, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(error_text)?;
    let answering =
        async { Ok(read_response(sender.send_request(request).await.map_err(error_text)?).await) };
    tokio::select! {
        biased;
        answer = answering => answer,
        // The answer may have come with the connection's end; then it is ready, too.
        error = drive_connection(connection) => Err(error),
    }
}

/// Drives the connection. Its end shows in the answer, unless it is an error.
async fn drive_connection<C: Future<Output = hyper::Result<()>>>(connection: C) -> String {
    match connection.await {
        Err(error) => error_text(error),
        Ok(()) => std::future::pending().await,
    }
}

async fn read_response(response: Response<Incoming>) -> PostResponse {
    let (status, retry_after) = (response.status(), parse_retry_after(response.headers()));
    if !status.is_success() {
        return PostResponse {
            status,
            retry_after,
            body: None,
        };
    }
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect();
    let body = tokio::time::timeout(RESPONSE_BODY_TIMEOUT, body)
        .await
        .ok()
        .and_then(Result::ok);
    PostResponse {
        status,
        retry_after,
        body: body.map(http_body_util::Collected::to_bytes),
    }
}

fn parse_retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

fn error_text(error: impl std::error::Error) -> String {
    error.to_string()
}

/// An address of IPv6 stands in brackets in a URL alone.
fn strip_brackets(host: &str) -> &str {
    host.strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host)
}
