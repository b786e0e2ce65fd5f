//! The exchange with an origin: one request out, one answer back, on a pooled or a new connection.
//!
//! The connection is driven by the task of the request itself. It takes a permit, so nothing that was not judged can
//! be sent, and the target of the permit is what is written to the wire.

mod error;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use http::header::{HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::{Method, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::clock::{Clock, TimeSpan};
use crate::model::certificate_verification::CertificateVerification;
use crate::pipeline::admission::{HostSlot, ResendDecision};
use crate::pipeline::permit::{Permit, SendOptions};
use crate::urls::target::{Scheme, UrlTarget};

use super::body::{
    BodyError, BodyTimeLimits, PoolHandle, RequestUpload, ResponseDownload, UploadProgress,
    UploadWatch,
};
use super::destination::VettedAddresses;
use super::dial::{DialLimits, dial};
use super::head::timer::LazyTimer;
use super::negative_cache::NegativeConnectCache;
use super::origin_tls::{ClientHelloKind, OriginStream, OriginTcp, OriginTls};
use super::pool::{ConnectionPool, OriginConnection, PoolKey, PoolLimits, PooledConnection};

pub use error::UpstreamError;

/// A connection that has been idle for less than this is hardly ever closed by the origin just as it is used.
const SURELY_ALIVE: Duration = Duration::from_millis(500);

/// A request that has to be sent once more waits for its turn no longer than this.
const RETRY_WITHIN: Duration = Duration::from_secs(20);

/// Limits and time-outs towards origins.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamLimits {
    /// Connecting.
    pub dial: DialLimits,
    /// The pool.
    pub pool: PoolLimits,
    /// From the request's last byte, or the last that the origin took, to the end of the answer's head.
    pub response_head: Duration,
    /// Between two parts of a body.
    pub body_idle: Duration,
    /// A whole body.
    pub body: Duration,
    /// Bytes of an answer's head.
    pub head: usize,
    /// Fields of an answer's head.
    pub fields: usize,
}

/// Sends requests to origins.
#[derive(Debug)]
pub struct UpstreamClient {
    pool: Arc<ConnectionPool>,
    tls: OriginTls,
    limits: UpstreamLimits,
    clock: Clock,
    builder: http1::Builder,
    negative_cache: Arc<NegativeConnectCache>,
}

/// A request that is ready to be sent, but for where.
#[derive(Debug)]
pub struct UpstreamRequest {
    /// The method.
    pub method: Method,
    /// Cleaned fields, `Host` of the permit's target among them.
    pub headers: HeaderMap,
    /// The body.
    pub body: RequestUpload,
    /// The path and query as received, if they are the canonical ones.
    pub uri: Option<Uri>,
}

/// What an origin answered, and how long it took.
#[derive(Debug)]
pub struct UpstreamResponse {
    /// The answer.
    pub response: Response<Box<ResponseDownload>>,
    /// How long connecting took; none on a pooled connection.
    pub connect: Option<TimeSpan>,
    /// How long the TLS handshake took; none on a pooled connection, and none without TLS.
    pub tls: Option<TimeSpan>,
    /// When the request could be sent: at once on a pooled connection.
    pub sent_at: Instant,
    /// The address that answered.
    pub address: SocketAddr,
}

impl UpstreamClient {
    /// Sends requests within these limits, to `https` origins by this TLS, and tells what refuses connections.
    pub fn new(
        limits: UpstreamLimits,
        tls: OriginTls,
        clock: Clock,
        negative_cache: Arc<NegativeConnectCache>,
    ) -> Self {
        let mut builder = http1::Builder::new();
        // Origins send such things; each is read in the one way that cannot move the end of the message.
        builder
            .allow_spaces_after_header_name_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .ignore_invalid_headers_in_responses(true)
            .max_headers(limits.fields)
            .max_header_size(limits.head);
        Self {
            pool: Arc::new(ConnectionPool::new(limits.pool)),
            tls,
            limits,
            clock,
            builder,
            negative_cache,
        }
    }

    /// The idle connections.
    pub fn pool(&self) -> &Arc<ConnectionPool> {
        &self.pool
    }

    /// Sends a request where its permit says.
    ///
    /// A pooled connection that dies before the request is written, or before any answer to a request that may be
    /// repeated, costs one retry on a new connection, never a second.
    ///
    /// # Errors
    /// If no answer's head arrives.
    pub fn send(
        &self,
        permit: Permit<UrlTarget, VettedAddresses>,
        mut call: UpstreamRequest,
        now: Instant,
    ) -> impl Future<Output = Result<UpstreamResponse, UpstreamError>> + Send {
        // No `async fn`: that would keep the permit and the call beside what becomes of them.
        let (uri, watch) = (call.uri.take(), call.body.watch());
        let mut sending = self.dispatch(permit, watch.as_ref());
        let uri = uri.map_or_else(|| sending.target.path_and_query().parse(), Ok);
        // The canonical form holds no byte that a request line cannot.
        let request = uri.map(|uri| call.into_http_request(uri));
        let reused = self.pool.take(sending.pool_key(), &sending.vetted, now);
        let known = reused.as_ref().zip(request.as_ref().ok());
        let spare = known.and_then(|(reused, request)| repeatable_copy(request, reused.idle_for));
        async move {
            let Ok(request) = request else {
                return Err(UpstreamError::Upload(BodyError::Incomplete));
            };
            let Some(PooledConnection {
                connection: mut link,
                idle_for,
            }) = reused
            else {
                return Box::pin(self.send_on_new_connection(sending, request, now)).await;
            };
            let wait = ResponseWait {
                timeout: sending.response_head_timeout,
                since: now,
            };
            let answer = pin!(link.sender.try_send_request(request));
            match exchange_head(link, answer, watch, &sending.slot, wait, &self.clock).await {
                Ok((response, link)) => Ok(self.build_response(response, link, sending.slot, now)),
                Err(ExchangeFailure { error, unsent }) => {
                    let again = unsent.or(spare.filter(|_| error.may_repeat()));
                    let Some(again) = again else {
                        // An origin may close what was idle whenever it likes.
                        let stale = SURELY_ALIVE <= idle_for && error.may_repeat();
                        return Err(if stale {
                            error
                        } else {
                            record_failure(&mut sending.slot, error)
                        });
                    };
                    Box::pin(self.resend(sending, *again, error)).await
                }
            }
        }
    }

    fn dispatch(
        &self,
        permit: Permit<UrlTarget, VettedAddresses>,
        watch: Option<&UploadWatch>,
    ) -> RequestDispatch {
        let SendOptions { verify, timeouts } = permit.options();
        let (target, vetted, mut slot) = permit.redeem();
        if let Some(watch) = watch {
            slot.set_upload_counter(watch.byte_counter());
        }
        let verify = self.effective_verify(&target, verify);
        let head = timeouts.response_head.unwrap_or(self.limits.response_head);
        RequestDispatch {
            target,
            vetted,
            slot,
            verify,
            response_head_timeout: head,
            dial: self.limits.dial.with_overrides(timeouts),
        }
    }

    /// Once more, on a new connection, after `failed`.
    async fn resend(
        &self,
        dispatch: RequestDispatch,
        request: Request<RequestUpload>,
        failed: UpstreamError,
    ) -> Result<UpstreamResponse, UpstreamError> {
        wait_to_retry(&dispatch.slot, failed).await?;
        self.send_on_new_connection(dispatch, request, self.clock.now())
            .await
    }

    /// On a new connection.
    async fn send_on_new_connection(
        &self,
        mut dispatch: RequestDispatch,
        request: Request<RequestUpload>,
        now: Instant,
    ) -> Result<UpstreamResponse, UpstreamError> {
        let connected = self.connect(&dispatch, now).await;
        let NewConnection {
            connection: mut link,
            connect,
            tls,
        } = connected.map_err(|error| record_failure(&mut dispatch.slot, error))?;
        let wait = ResponseWait {
            timeout: dispatch.response_head_timeout,
            since: self.clock.now(),
        };
        let watch = request.body().watch();
        let answer = pin!(link.sender.try_send_request(request));
        let exchanged = exchange_head(link, answer, watch, &dispatch.slot, wait, &self.clock).await;
        let (response, link) =
            exchanged.map_err(|failed| record_failure(&mut dispatch.slot, failed.error))?;
        Ok(UpstreamResponse {
            connect: Some(connect),
            tls,
            ..self.build_response(response, link, dispatch.slot, wait.since)
        })
    }

    /// What is asked of the origin. Without TLS there is nothing to verify, so that all share their connections.
    fn effective_verify(
        &self,
        target: &UrlTarget,
        requested: CertificateVerification,
    ) -> CertificateVerification {
        match target.scheme() {
            Scheme::Http => CertificateVerification::On,
            Scheme::Https => self.tls.effective_verify(requested),
        }
    }

    async fn connect(
        &self,
        to: &RequestDispatch,
        began: Instant,
    ) -> Result<NewConnection, UpstreamError> {
        let dialled = self.dial(to).await?;
        let connected = self.clock.now();
        let (stream, address, tls) = match to.target.scheme() {
            Scheme::Http => (
                OriginStream::Http(TokioIo::new(OriginTcp::plain(dialled.stream))),
                dialled.address,
                None,
            ),
            Scheme::Https => {
                let (stream, address) = self.handshake_tls(to, dialled).await?;
                let lapse = TimeSpan::between(connected, self.clock.now());
                self.tls.record_handshake(lapse.duration);
                (stream, address, Some(lapse))
            }
        };
        let (sender, driver) = self
            .builder
            .handshake(stream)
            .await
            .map_err(UpstreamError::Protocol)?;
        let answer = LazyTimer::new(self.limits.response_head);
        let (base, verify) = (to.target.base().into(), to.verify);
        let link = OriginConnection {
            sender,
            driver,
            address,
            base,
            verify,
            response_timer: answer,
        };
        Ok(NewConnection {
            connection: Box::new(link),
            connect: TimeSpan::between(began, connected),
            tls,
        })
    }

    async fn dial(&self, to: &RequestDispatch) -> Result<OriginSocket, UpstreamError> {
        let dialled = dial(&to.vetted, to.dial).await;
        self.negative_cache.record(to.vetted.addresses(), &dialled);
        let (stream, address) = dialled.map_err(UpstreamError::Dial)?;
        Ok(OriginSocket { stream, address })
    }

    /// TLS on a connection that stands. A failure that an old origin could have with a large hello costs one retry on
    /// another connection with a small one.
    async fn handshake_tls(
        &self,
        to: &RequestDispatch,
        dialled: OriginSocket,
    ) -> Result<(OriginStream, SocketAddr), UpstreamError> {
        let (target, verify) = (&to.target, to.verify);
        let hello = self.tls.hello_kind(target.base());
        let failed = match self
            .tls
            .handshake(dialled.stream, target, verify, hello)
            .await
        {
            Ok(stream) => return Ok((stream, dialled.address)),
            Err(error) => error,
        };
        if hello == ClientHelloKind::Classic || !failed.may_be_caused_by_hello() {
            return Err(UpstreamError::Tls(failed));
        }
        let Ok(again) = self.dial(to).await else {
            return Err(UpstreamError::Tls(failed));
        };
        let stream = self
            .tls
            .handshake(again.stream, target, verify, ClientHelloKind::Classic)
            .await;
        Ok((stream.map_err(UpstreamError::Tls)?, again.address))
    }

    /// The answer's head is here: the slot learns from it, and goes with the body.
    fn build_response(
        &self,
        response: Response<Incoming>,
        connection: Box<OriginConnection>,
        mut slot: HostSlot,
        sent: Instant,
    ) -> UpstreamResponse {
        slot.record_answer(response.status(), response.headers());
        let address = connection.address;
        let home = PoolHandle {
            pool: Arc::clone(&self.pool),
            clock: self.clock.clone(),
        };
        let times = BodyTimeLimits {
            idle: self.limits.body_idle,
            total: self.limits.body,
        };
        let response = response
            .map(|body| Box::new(ResponseDownload::new(body, connection, slot, home, times)));
        UpstreamResponse {
            response,
            connect: None,
            tls: None,
            sent_at: sent,
            address,
        }
    }
}

/// Reads the head of an answer, driving the connection meanwhile, which sends the request.
async fn exchange_head(
    mut connection: Box<OriginConnection>,
    mut answer: Pin<&mut impl Future<Output = SendResult>>,
    watch: Option<UploadWatch>,
    slot: &HostSlot,
    wait: ResponseWait,
    clock: &Clock,
) -> Result<(Response<Incoming>, Box<OriginConnection>), ExchangeFailure> {
    let mut since = wait.since;
    let (driver, timer) = (&mut connection.driver, &mut connection.response_timer);
    timer.set_length(wait.timeout);
    let mut head = SendState::Unsent;
    let answered = poll_fn(|cx| {
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(Some(answer));
        }
        // Its end shows in the answer, which is polled again behind it.
        let _ = Pin::new(&mut *driver).poll(cx);
        // The connection writes a head in the same turn in which it takes it.
        if std::mem::replace(&mut head, SendState::Sent) == SendState::Unsent {
            slot.record_sent();
        }
        match answer.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => {
                match watch
                    .as_ref()
                    .map_or(UploadProgress::Nothing, UploadWatch::take_progress)
                {
                    UploadProgress::Nothing => {}
                    UploadProgress::Advanced => since = clock.now(),
                    // The body has times of its own: between two parts, and for all of it.
                    UploadProgress::AwaitingClient => return Poll::Pending,
                }
                timer.poll_since(since, cx).map(|()| None)
            }
        }
    });
    match answered.await {
        Some(Ok(response)) => Ok((response, connection)),
        Some(Err(mut failed)) => {
            let unsent = failed.take_message().map(Box::new);
            Err(ExchangeFailure {
                error: failed.into_error().into(),
                unsent,
            })
        }
        None => Err(ExchangeFailure {
            error: UpstreamError::Timeout,
            unsent: None,
        }),
    }
}

/// What comes of a request that was given to its connection.
type SendResult = Result<Response<Incoming>, TrySendError<Request<RequestUpload>>>;

/// Holds a failure against the host, if it is the host's. A request that is dropped instead says nothing of it.
fn record_failure(slot: &mut HostSlot, error: UpstreamError) -> UpstreamError {
    if error.is_origin_fault() {
        slot.record_failure();
    }
    error
}

/// For how long an answer's head is waited for, and since when.
#[derive(Clone, Copy)]
struct ResponseWait {
    timeout: Duration,
    since: Instant,
}

/// Where a request goes, and what it has of its permit.
struct RequestDispatch {
    target: UrlTarget,
    vetted: VettedAddresses,
    slot: HostSlot,
    verify: CertificateVerification,
    /// For how long an answer's head is waited for.
    response_head_timeout: Duration,
    dial: DialLimits,
}

impl RequestDispatch {
    fn pool_key(&self) -> PoolKey<'_> {
        PoolKey {
            base: self.target.base(),
            verify: self.verify,
        }
    }
}

/// A connection that was made for a request, and how long that took.
struct NewConnection {
    connection: Box<OriginConnection>,
    connect: TimeSpan,
    tls: Option<TimeSpan>,
}

/// A connection before anything is sent on it.
struct OriginSocket {
    stream: TcpStream,
    address: SocketAddr,
}

impl UpstreamRequest {
    fn into_http_request(self, uri: Uri) -> Request<RequestUpload> {
        let chunked =
            !self.body.is_empty() && http_body::Body::size_hint(&self.body).exact().is_none();
        let mut request = Request::new(self.body);
        *request.method_mut() = self.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers;
        if chunked {
            // Without it hyper sends a GET's body of unknown length not at all.
            request
                .headers_mut()
                .insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        request
    }
}

/// Waits until a request may be sent once more, on a connection of its own: the origin may have seen it, so it counts as
/// another. An error if that is not soon.
async fn wait_to_retry(slot: &HostSlot, failed: UpstreamError) -> Result<(), UpstreamError> {
    let mut left = RETRY_WITHIN;
    loop {
        match slot.retry_advice() {
            ResendDecision::Now => return Ok(()),
            ResendDecision::After(time) if time <= left => {
                left -= time;
                tokio::time::sleep(time).await;
            }
            ResendDecision::After(_) => return Err(failed),
            ResendDecision::Never => {
                return Err(slot
                    .backoff_left()
                    .map_or(failed, UpstreamError::BackingOff));
            }
        }
    }
}

/// A copy to be sent again, where repeating is safe (RFC 9110 section 9.2.2) and the connection may be dead.
fn repeatable_copy(
    request: &Request<RequestUpload>,
    idle_for: Duration,
) -> Option<Box<Request<RequestUpload>>> {
    let repeatable = request.method().is_idempotent() && request.body().is_empty();
    if !repeatable || idle_for < SURELY_ALIVE {
        return None;
    }
    let mut copy = Request::new(RequestUpload::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(Box::new(copy))
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendState {
    Unsent,
    Sent,
}

/// A failed exchange, with the request if none of it was written.
struct ExchangeFailure {
    error: UpstreamError,
    unsent: Option<Box<Request<RequestUpload>>>,
}
