//! The client for origins: sends one request and receives one response, on a pooled or a new
//! connection.
//!
//! The task of the request drives an HTTP/1 connection; an HTTP/2 connection is shared and has a task
//! of its own (`http2`). Sending requires a permit, so only evaluated
//! requests can be sent, and the permit's target is what is written to the wire.

mod error;
mod http2;
mod limited_stream;
mod negotiation;
mod upload_pace;

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

use crate::clock::{Clock, TimeSpan};
use crate::fleet::owners::OwnershipWatch;
use crate::model::certificate_verification::CertificateVerification;
use crate::model::http_versions::OriginHttpVersions;
use crate::pipeline::admission::{HostSlot, ResendDecision};
use crate::pipeline::permit::{Permit, SendOptions};
use crate::tls::maybe_tls_stream::MaybeTlsStream;
use crate::urls::target::{Scheme, UrlTarget};

use super::body::{
    BodyError, BodySource, BodyTimeLimits, PoolHandle, RequestUpload, ResponseDownload,
    UploadProgress, UploadWatch,
};
use super::destination::VettedAddresses;
use super::dial::{DialLimits, dial};
use super::head::timer::LazyTimer;
use super::negative_cache::NegativeConnectCache;
use super::origin_tls::{
    self, ClientHelloKind, HandshakeTerms, OriginStream, OriginTcp, OriginTls,
};
use super::parents::{ConnectionRoute, NextHop, ParentCall, ParentConnector, ParentUse};
use super::pool::{ConnectionPool, OriginConnection, PoolKey, PoolLimits, PooledConnection};
use super::read_allowance::{MAX_READ, ReadAllowance};

pub use error::UpstreamError;
pub(super) use error::lease_ended_refusal;
use http2::{ExchangedStream, ResendCondition, SharedConnectionSettings, StreamCall};
pub use http2::{SharedConnection, StreamDownload, StreamReservation};
pub use limited_stream::LimitedStream;
use negotiation::{DialGuard, KnownVersion, VersionMemory};
use upload_pace::UploadPace;

/// Below this idle time, an origin hardly ever closes a connection just as it is used.
const MAX_FRESH_IDLE: Duration = Duration::from_millis(500);

/// The longest time for which a request that must be repeated waits for its host's turn.
const MAX_RESEND_WAIT: Duration = Duration::from_secs(20);

/// Limits and timeouts towards origins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamLimits {
    /// The time limits of connecting.
    pub dial: DialLimits,
    /// The limits of the connection pool.
    pub pool: PoolLimits,
    /// The time from the request's last byte, or the last one that the origin accepted, to the end
    /// of the response head.
    pub response_head: Duration,
    /// The time between two parts of a body.
    pub body_idle: Duration,
    /// The time for a whole body.
    pub body: Duration,
    /// The maximum size of a response head in bytes.
    pub head: usize,
    /// The maximum number of fields in a response head.
    pub fields: usize,
}

/// Sends requests to origins.
#[derive(Debug)]
pub struct UpstreamClient {
    pool: Arc<ConnectionPool>,
    tls: Arc<OriginTls>,
    parents: Arc<ParentConnector>,
    limits: UpstreamLimits,
    clock: Clock,
    builder: http1::Builder,
    negative_cache: Arc<NegativeConnectCache>,
    versions: VersionMemory,
}

/// A request that is ready to be sent, except for its destination.
#[derive(Debug)]
pub struct UpstreamRequest {
    pub method: Method,
    /// The filtered fields, including `Host` with the permit's target.
    pub headers: HeaderMap,
    pub body: RequestUpload,
    /// The path and query as received, if they are in canonical form; or `*`.
    pub uri: Option<Uri>,
    /// The ownership of the host, if this is a node of a fleet: without it, nothing is sent.
    pub ownership: Option<Box<OwnershipWatch>>,
}

/// The response of an origin, and its timing.
#[derive(Debug)]
pub struct UpstreamResponse {
    /// The response, whose head has arrived.
    pub response: Response<Box<ResponseDownload>>,
    /// The time of connecting; `None` on a pooled connection.
    pub connect: Option<TimeSpan>,
    /// The time of the TLS handshake; `None` on a pooled connection and without TLS.
    pub tls: Option<TimeSpan>,
    /// The time when the request could be sent: at once on a pooled connection.
    pub sent_at: Instant,
    /// The address that answered.
    pub address: SocketAddr,
}

impl UpstreamClient {
    /// Creates a client with these limits. It uses `tls` for `https` origins, `parents` for requests that
    /// go through parent proxies, and records refused connections in the negative cache.
    pub fn new(
        limits: UpstreamLimits,
        tls: Arc<OriginTls>,
        clock: Clock,
        negative_cache: Arc<NegativeConnectCache>,
        parents: Arc<ParentConnector>,
    ) -> Self {
        let mut builder = http1::Builder::new();
        // Origins send such fields. Each is interpreted in a way that cannot change the end of the
        // message.
        builder
            .allow_spaces_after_header_name_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .ignore_invalid_headers_in_responses(true)
            .max_headers(limits.fields)
            .max_buf_size(limits.head.max(MAX_READ))
            .max_header_size(limits.head);
        Self {
            pool: Arc::new(ConnectionPool::new(limits.pool)),
            tls,
            parents,
            limits,
            clock,
            builder,
            negative_cache,
            versions: VersionMemory::new(),
        }
    }

    /// Returns the pool of idle connections.
    pub fn pool(&self) -> &Arc<ConnectionPool> {
        &self.pool
    }

    /// Returns the parent proxies.
    pub fn parents(&self) -> &Arc<ParentConnector> {
        &self.parents
    }

    /// Sends a request to the destination of its permit.
    ///
    /// If a pooled connection dies before the request is written, or before any response to an
    /// idempotent request, or if an origin refuses a stream unprocessed, the request is sent once
    /// more on another connection, but never twice. Through a parent, whose proxies may go away at any
    /// time, the same applies to new connections.
    ///
    /// # Errors
    /// Returns an error if no response head arrives.
    pub fn send(
        &self,
        permit: Permit<UrlTarget, VettedAddresses>,
        mut call: UpstreamRequest,
        now: Instant,
    ) -> impl Future<Output = Result<UpstreamResponse, UpstreamError>> + Send {
        // Not an `async fn`: its future would hold the permit and the request in addition to what
        // they become.
        let uri = call.uri.take();
        let watch = call.body.watch();
        let ownership = call.ownership.take();
        let mut dispatch = self.dispatch(permit, watch.as_ref(), ownership);
        let uri = uri.map_or_else(|| dispatch.target.path_and_query().parse(), Ok);
        // The canonical form contains no byte that is invalid in a request line.
        let request = uri.map(|uri| call.into_http_request(uri));
        let key = dispatch.pool_key();
        let reused = self
            .pool
            .take(key, &dispatch.vetted, dispatch.versions, now);
        // For a second attempt, if the origin closes the connection before it responds, or left
        // surplus bytes on it.
        let copy = match (&reused, &request) {
            (Some(PooledConnection::Exclusive { idle_for, .. }), Ok(request)) => {
                let was_idle = MAX_FRESH_IDLE <= *idle_for || dispatch.route.uses_parent();
                was_idle.then(|| resendable_copy(request)).flatten()
            }
            (Some(PooledConnection::Shared(_)) | None, _) | (_, Err(_)) => None,
        };
        async move {
            let Ok(mut request) = request else {
                return Err(UpstreamError::Upload(BodyError::Incomplete));
            };
            let (mut connection, idle_for) = match reused {
                Some(PooledConnection::Exclusive {
                    connection,
                    idle_for,
                }) => (connection, idle_for),
                Some(PooledConnection::Shared(stream)) => {
                    let sent =
                        self.send_on_stream(dispatch, request, stream, now, SendAttempt::First);
                    return Box::pin(sent).await;
                }
                None => {
                    let sent =
                        self.send_on_new_connection(dispatch, request, now, SendAttempt::First);
                    return Box::pin(sent).await;
                }
            };
            dispatch.check_ownership(&mut request)?;
            let wait = ResponseWait {
                timeout: dispatch.response_head_timeout,
                since: now,
            };
            self.parents
                .prepare(dispatch.route.hop, &mut request, &dispatch.target);
            let sending = pin!(connection.sender.try_send_request(request));
            match exchange_head(
                connection,
                sending,
                watch,
                dispatch.sent(),
                wait,
                &self.clock,
            )
            .await
            {
                Ok((response, connection)) => {
                    self.check_parent_response(&dispatch, &response)?;
                    Ok(self.build_exclusive_response(
                        response,
                        connection,
                        (dispatch.slot, dispatch.ownership),
                        now,
                    ))
                }
                Err(ExchangeFailure { error, unsent }) => {
                    match unsent.or(copy.filter(|_| error.allows_resend())) {
                        Some(request) => self.resend(dispatch, *request, error).await,
                        // An origin may close an idle connection at any time.
                        None if MAX_FRESH_IDLE <= idle_for
                            && matches!(error, UpstreamError::Closed) =>
                        {
                            Err(error)
                        }
                        None => Err(record_failure(&mut dispatch.slot, error)),
                    }
                }
            }
        }
    }

    fn dispatch(
        &self,
        permit: Permit<UrlTarget, VettedAddresses>,
        watch: Option<&UploadWatch>,
        ownership: Option<Box<OwnershipWatch>>,
    ) -> RequestDispatch {
        let SendOptions {
            verify,
            versions,
            timeouts,
        } = permit.options();
        let (target, vetted, mut slot) = permit.redeem();
        if let Some(watch) = watch {
            slot.set_upload_counter(watch.byte_counter());
        }
        let verify = self.effective_verify(&target, verify);
        let versions = match target.scheme() {
            Scheme::Http => OriginHttpVersions::Http1,
            Scheme::Https => versions,
        };
        let route = ConnectionRoute {
            hop: self.parents.next_hop(vetted.parent(), target.host()),
            local: vetted.local().cloned(),
        };
        let response_head_timeout = timeouts.response_head.unwrap_or(self.limits.response_head);
        RequestDispatch {
            target,
            vetted,
            route,
            failed_hop: None,
            slot,
            verify,
            versions,
            response_head_timeout,
            dial: self.limits.dial.with_overrides(timeouts),
            ownership,
        }
    }

    /// Sends a request again, on another connection or stream, after an error.
    ///
    /// Boxed, since a request that fails on a stream comes back here.
    fn resend<'a>(
        &'a self,
        mut dispatch: RequestDispatch,
        request: Request<RequestUpload>,
        error: UpstreamError,
    ) -> Pin<Box<dyn Future<Output = Result<UpstreamResponse, UpstreamError>> + Send + 'a>> {
        Box::pin(async move {
            wait_to_resend(&dispatch.slot, error).await?;
            dispatch.failed_hop = Some(dispatch.route.hop);
            let now = self.clock.now();
            self.send_on_new_connection(dispatch, request, now, SendAttempt::Repeated)
                .await
        })
    }

    /// Sends a request on a new connection.
    async fn send_on_new_connection(
        &self,
        mut dispatch: RequestDispatch,
        mut request: Request<RequestUpload>,
        now: Instant,
        attempt: SendAttempt,
    ) -> Result<UpstreamResponse, UpstreamError> {
        let connected = self.connect(&mut dispatch, now).await;
        let NewConnection {
            channel,
            connect,
            tls,
        } = connected.map_err(|error| record_failure(&mut dispatch.slot, error))?;
        let mut connection = match channel {
            OriginChannel::Exclusive(connection) => connection,
            OriginChannel::Shared(stream) => {
                let sent_at = self.clock.now();
                let sent = self.send_on_stream(dispatch, request, stream, sent_at, attempt);
                return Ok(UpstreamResponse {
                    connect,
                    tls,
                    ..Box::pin(sent).await?
                });
            }
        };
        let wait = ResponseWait {
            timeout: dispatch.response_head_timeout,
            since: self.clock.now(),
        };
        dispatch.check_ownership(&mut request)?;
        let may_repeat = attempt == SendAttempt::First && dispatch.route.uses_parent();
        let copy = may_repeat.then(|| resendable_copy(&request)).flatten();
        self.parents
            .prepare(dispatch.route.hop, &mut request, &dispatch.target);
        let watch = request.body().watch();
        let sending = pin!(connection.sender.try_send_request(request));
        let exchanged = exchange_head(
            connection,
            sending,
            watch,
            dispatch.sent(),
            wait,
            &self.clock,
        )
        .await;
        let (response, connection) = match exchanged {
            Ok(answered) => answered,
            Err(failed) => {
                return match copy.filter(|_| failed.error.allows_resend()) {
                    Some(request) => self.resend(dispatch, *request, failed.error).await,
                    None => Err(record_failure(&mut dispatch.slot, failed.error)),
                };
            }
        };
        self.check_parent_response(&dispatch, &response)?;
        Ok(UpstreamResponse {
            connect,
            tls,
            ..self.build_exclusive_response(
                response,
                connection,
                (dispatch.slot, dispatch.ownership),
                wait.since,
            )
        })
    }

    /// # Errors
    /// Returns an error if an HTTP proxy rejects the credentials of this proxy. That answer is not for the
    /// crawler.
    fn check_parent_response<B>(
        &self,
        dispatch: &RequestDispatch,
        response: &Response<B>,
    ) -> Result<(), UpstreamError> {
        let rejected = self.parents.rejected_credentials(
            dispatch.route.hop,
            &dispatch.target,
            response.status(),
        );
        rejected.map_or(Ok(()), |error| Err(UpstreamError::Parent(Box::new(error))))
    }

    /// Sends a request on a stream. If the origin has not processed it, it is sent once more.
    async fn send_on_stream(
        &self,
        mut dispatch: RequestDispatch,
        mut request: Request<RequestUpload>,
        stream: StreamReservation,
        now: Instant,
        attempt: SendAttempt,
    ) -> Result<UpstreamResponse, UpstreamError> {
        dispatch.check_ownership(&mut request)?;
        let (idle_for, address) = (stream.idle_for, stream.address());
        let is_idempotent = request.method().is_idempotent();
        let copy = (attempt == SendAttempt::First && request.body().is_empty())
            .then(|| copy_request(&request));
        let call = StreamCall {
            request,
            target: &dispatch.target,
            slot: dispatch.slot,
            ownership: dispatch.ownership.as_deref_mut(),
            wait: ResponseWait {
                timeout: dispatch.response_head_timeout,
                since: now,
            },
            fields: self.limits.fields,
            clock: &self.clock,
        };
        let failed = match http2::exchange(stream, call).await {
            Ok(ExchangedStream { response, slot }) => {
                let (head, stream) = response.into_parts();
                let source = BodySource::Stream(Some(stream));
                let response = Response::from_parts(head, source);
                return Ok(self.build_response(response, address, (slot, dispatch.ownership), now));
            }
            Err(failed) => failed,
        };
        let Some(slot) = failed.slot else {
            return Err(failed.error);
        };
        dispatch.slot = slot;
        if failed.resend == ResendCondition::OverHttp1 {
            self.versions.record_http1_required(dispatch.target.base());
            dispatch.versions = OriginHttpVersions::Http1;
        }
        let was_idle = MAX_FRESH_IDLE <= idle_for;
        let may_have_ended = was_idle || dispatch.route.uses_parent();
        let may_repeat = match failed.resend {
            ResendCondition::Never => false,
            ResendCondition::IfIdempotent => is_idempotent && may_have_ended,
            ResendCondition::Safe | ResendCondition::OverHttp1 => true,
        };
        match copy.filter(|_| may_repeat) {
            Some(request) => self.resend(dispatch, *request, failed.error).await,
            // An origin may close an idle connection at any time.
            None if was_idle && matches!(failed.error, UpstreamError::Closed) => Err(failed.error),
            None => Err(record_failure(&mut dispatch.slot, failed.error)),
        }
    }

    /// Returns the verification that applies. Without TLS it is always the same, so that all
    /// requests share their connections.
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

    /// Opens a connection, or waits for one that another request opens and that can be shared.
    async fn connect(
        &self,
        to: &mut RequestDispatch,
        began: Instant,
    ) -> Result<NewConnection, UpstreamError> {
        let versions = self.offered_versions(to);
        // Held until the connection is in the pool.
        let _leading = match self.wait_for_shared(to, versions).await {
            Ok(stream) => return Ok(NewConnection::shared(stream, None, None)),
            Err(leading) => leading,
        };
        let dialled = self.dial(to).await?;
        let connected = self.clock.now();
        let connect = Some(TimeSpan::between(began, connected));
        if to.target.scheme() == Scheme::Http {
            let stream = OriginStream::Http(TokioIo::new(OriginTcp::plain(dialled.transport)));
            let connection = self.start_exclusive(to, stream, dialled.address).await?;
            return Ok(NewConnection::exclusive(connection, connect, None));
        }
        let (stream, address) = self.handshake_tls(to, dialled, versions).await?;
        let handshake = TimeSpan::between(connected, self.clock.now());
        self.tls.record_handshake(handshake.duration);
        let tls = Some(handshake);
        let is_http2 = origin_tls::has_selected_http2(&stream);
        let base = to.target.base();
        self.versions.record_selection(base, versions, is_http2);
        if is_http2 {
            let stream = self.start_shared(to, stream, address).await?;
            return Ok(NewConnection::shared(stream, connect, tls));
        }
        let connection = self.start_exclusive(to, stream, address).await?;
        Ok(NewConnection::exclusive(connection, connect, tls))
    }

    /// Returns the versions that a new connection offers to the origin.
    fn offered_versions(&self, to: &RequestDispatch) -> OriginHttpVersions {
        match self.versions.get(to.target.base()) {
            Some(KnownVersion::Http1Required) => OriginHttpVersions::Http1,
            Some(KnownVersion::Http2) | None => to.versions,
        }
    }

    /// Returns a stream of a connection that another request has just opened. Otherwise this request
    /// must dial: for others, too, if the origin is known to speak HTTP/2.
    async fn wait_for_shared(
        &self,
        to: &RequestDispatch,
        versions: OriginHttpVersions,
    ) -> Result<StreamReservation, Option<DialGuard>> {
        let is_http2 = versions == OriginHttpVersions::Http1And2
            && self.versions.get(to.target.base()) == Some(KnownVersion::Http2);
        if !is_http2 {
            return Err(None);
        }
        let leading = self.versions.begin_dial_or_wait(to.pool_key()).await;
        self.take_stream(to).ok_or(leading)
    }

    fn take_stream(&self, to: &RequestDispatch) -> Option<StreamReservation> {
        self.pool
            .take_stream(to.pool_key(), &to.vetted, self.clock.now())
    }

    async fn start_exclusive(
        &self,
        to: &RequestDispatch,
        stream: OriginStream,
        address: SocketAddr,
    ) -> Result<Box<OriginConnection>, UpstreamError> {
        let allowance = Arc::new(ReadAllowance::for_http1_origin());
        let stream = LimitedStream::new(stream, Arc::clone(&allowance));
        let (sender, driver) = self
            .builder
            .handshake(stream)
            .await
            .map_err(UpstreamError::Protocol)?;
        Ok(Box::new(OriginConnection {
            sender,
            driver,
            allowance,
            address,
            base: to.target.base().into(),
            verify: to.verify,
            route: to.route.clone(),
            response_timer: LazyTimer::new(self.limits.response_head),
        }))
    }

    /// Starts HTTP/2 on a connection and shares it. If another request has just opened one, that is
    /// used instead.
    async fn start_shared(
        &self,
        to: &RequestDispatch,
        stream: OriginStream,
        address: SocketAddr,
    ) -> Result<StreamReservation, UpstreamError> {
        if let Some(stream) = self.take_stream(to) {
            return Ok(stream);
        }
        let settings = SharedConnectionSettings {
            address,
            base: to.target.base().into(),
            verify: to.verify,
            route: to.route.clone(),
            head: self.limits.head,
            write_stall: self.limits.body_idle,
            clock: self.clock.clone(),
            metrics: self.tls.metrics().clone(),
        };
        let started = SharedConnection::start(stream, settings).await;
        let connection = started.map_err(|_| UpstreamError::Closed)?;
        let now = self.clock.now();
        let stream = connection.reserve(now).ok_or(UpstreamError::Closed)?;
        self.pool.share(&connection, now);
        Ok(stream)
    }

    /// Connects to the origin, or through a parent, whose proxy becomes part of the route.
    async fn dial(&self, to: &mut RequestDispatch) -> Result<OriginSocket, UpstreamError> {
        if let Some(parent) = to.vetted.parent() {
            // Boxed, since most requests go to the origin.
            let opening = self.parents.open(ParentCall {
                parent,
                host: to.target.host(),
                port: to.target.port(),
                usage: match to.target.scheme() {
                    Scheme::Http => ParentUse::HttpRequests,
                    Scheme::Https => ParentUse::Tunnel,
                },
                failed: to.failed_hop,
                local: to.vetted.local(),
                limits: to.dial,
            });
            let opened = Box::pin(opening).await;
            let opened = opened.map_err(|error| UpstreamError::Parent(Box::new(error)))?;
            to.route.hop = opened.hop;
            return Ok(OriginSocket {
                transport: opened.transport,
                address: opened.address,
            });
        }
        let dialled = dial(&to.vetted, to.dial).await;
        self.negative_cache.record(to.vetted.addresses(), &dialled);
        let (stream, address) = dialled.map_err(UpstreamError::Dial)?;
        Ok(OriginSocket {
            transport: MaybeTlsStream::Plain(stream),
            address,
        })
    }

    /// Performs a TLS handshake on an established connection. If the failure may be caused by a
    /// large ClientHello, it is repeated once with a small one, on another connection.
    async fn handshake_tls(
        &self,
        to: &mut RequestDispatch,
        dialled: OriginSocket,
        versions: OriginHttpVersions,
    ) -> Result<(OriginStream, SocketAddr), UpstreamError> {
        let terms = HandshakeTerms {
            verify: to.verify,
            versions,
        };
        let hello = self.tls.hello_kind(to.target.base());
        let failed = match self
            .tls
            .handshake(dialled.transport, &to.target, terms, hello)
            .await
        {
            Ok(stream) => return Ok((stream, dialled.address)),
            Err(error) => error,
        };
        if hello == ClientHelloKind::Classic || !failed.may_be_caused_by_hello() {
            return Err(UpstreamError::Tls(failed));
        }
        let Ok(redialled) = self.dial(to).await else {
            return Err(UpstreamError::Tls(failed));
        };
        let stream = self
            .tls
            .handshake(
                redialled.transport,
                &to.target,
                terms,
                ClientHelloKind::Classic,
            )
            .await;
        Ok((stream.map_err(UpstreamError::Tls)?, redialled.address))
    }

    fn build_exclusive_response(
        &self,
        response: Response<Incoming>,
        connection: Box<OriginConnection>,
        rights: SendRights,
        sent: Instant,
    ) -> UpstreamResponse {
        let address = connection.address;
        let response = response.map(|body| BodySource::exclusive(body, connection));
        self.build_response(response, address, rights, sent)
    }

    /// Builds the response after its head has arrived. The slot records the outcome and moves into
    /// the body.
    fn build_response(
        &self,
        response: Response<BodySource>,
        address: SocketAddr,
        (mut slot, ownership): SendRights,
        sent: Instant,
    ) -> UpstreamResponse {
        slot.record_response(response.status(), response.headers());
        let pool_handle = PoolHandle {
            pool: Arc::clone(&self.pool),
            clock: self.clock.clone(),
        };
        let times = BodyTimeLimits {
            idle: self.limits.body_idle,
            total: self.limits.body,
        };
        let response = response
            .map(|source| ResponseDownload::new(source, slot, ownership, pool_handle, times));
        let response = response.map(Box::new);
        UpstreamResponse {
            response,
            connect: None,
            tls: None,
            sent_at: sent,
            address,
        }
    }
}

/// Sends the request by driving the connection, and waits for the head of the response.
async fn exchange_head(
    mut connection: Box<OriginConnection>,
    mut sending: Pin<&mut impl Future<Output = SendResult>>,
    upload: Option<UploadWatch>,
    (slot, mut ownership): (&HostSlot, Option<&mut OwnershipWatch>),
    wait: ResponseWait,
    clock: &Clock,
) -> Result<(Response<Incoming>, Box<OriginConnection>), ExchangeFailure> {
    let mut since = wait.since;
    connection.response_timer.set_length(wait.timeout);
    // Boxed because few requests have a body.
    let mut upload = upload.map(|watch| Box::new(UploadPace::new(watch)));
    let mut head = SendState::Unsent;
    let answered = poll_fn(|cx| {
        if let Poll::Ready(answer) = sending.as_mut().poll(cx) {
            return Poll::Ready(Ok(answer));
        }
        // The end of the connection shows in the response, which is polled again below.
        let _ = connection.poll_drive(cx);
        // The connection writes a head in the same poll in which it accepts it.
        if std::mem::replace(&mut head, SendState::Sent) == SendState::Unsent {
            slot.record_sent();
        }
        match sending.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(Ok(result)),
            Poll::Pending => {
                if let Some(ownership) = &mut ownership
                    && ownership.poll_ended(cx).is_ready()
                {
                    return Poll::Ready(Err(UpstreamError::LeaseEnded));
                }
                if let Some(upload) = &mut upload {
                    match upload.take_progress() {
                        UploadProgress::Nothing => {}
                        UploadProgress::Advanced => since = clock.now(),
                        // The body has its own timeouts.
                        UploadProgress::AwaitingClient => {
                            let slow = upload.poll_too_slow(slot, clock, cx);
                            return slow.map(|()| Err(UpstreamError::Upload(BodyError::Idle)));
                        }
                    }
                }
                connection
                    .response_timer
                    .poll_since(since, cx)
                    .map(|()| Err(UpstreamError::Timeout))
            }
        }
    });
    match answered.await {
        Ok(Ok(response)) => Ok((response, connection)),
        Ok(Err(mut failed)) => {
            let unsent = failed.take_message().map(Box::new);
            Err(ExchangeFailure {
                error: failed.into_error().into(),
                unsent,
            })
        }
        Err(error) => Err(ExchangeFailure {
            error,
            unsent: None,
        }),
    }
}

/// The result of a request that was passed to its connection.
type SendResult = Result<Response<Incoming>, TrySendError<Request<RequestUpload>>>;

/// The slot of a request, and the ownership of its host if this is a node of a fleet. Both belong to the response until its
/// last byte.
type SendRights = (HostSlot, Option<Box<OwnershipWatch>>);

/// Records a failure for the host, if the host caused it. A request that is dropped records nothing.
fn record_failure(slot: &mut HostSlot, error: UpstreamError) -> UpstreamError {
    if error.is_origin_fault() {
        slot.record_failure();
    }
    error
}

/// The timeout of a response head and its start.
#[derive(Clone, Copy)]
struct ResponseWait {
    timeout: Duration,
    since: Instant,
}

/// The destination of a request, and the resources of its permit.
struct RequestDispatch {
    target: UrlTarget,
    vetted: VettedAddresses,
    route: ConnectionRoute,
    /// The hop whose connection died under the first attempt. A proxy that is being killed may still accept
    /// connections.
    failed_hop: Option<NextHop>,
    slot: HostSlot,
    verify: CertificateVerification,
    /// The versions of HTTP that may be used.
    versions: OriginHttpVersions,
    /// The time limit for the response head.
    response_head_timeout: Duration,
    dial: DialLimits,
    ownership: Option<Box<OwnershipWatch>>,
}

impl RequestDispatch {
    /// Checks that this node may still send requests to the host; called immediately before a head is written.
    ///
    /// # Errors
    /// Returns [`UpstreamError::OwnerLost`] with the body of the request.
    fn check_ownership(
        &mut self,
        request: &mut Request<RequestUpload>,
    ) -> Result<(), UpstreamError> {
        match &self.ownership {
            Some(ownership) if !ownership.is_valid() => {
                if self.failed_hop.is_none() {
                    // This was the first attempt, so that the next owner need not wait for it.
                    self.slot.revoke();
                }
                let body = std::mem::take(request.body_mut());
                Err(UpstreamError::OwnerLost(body))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns what a request has while it is on its way.
    fn sent(&mut self) -> (&HostSlot, Option<&mut OwnershipWatch>) {
        (&self.slot, self.ownership.as_deref_mut())
    }

    fn pool_key(&self) -> PoolKey<'_> {
        PoolKey {
            base: self.target.base(),
            verify: self.verify,
            route: &self.route,
        }
    }
}

/// A connection that was opened for a request, and its timing.
struct NewConnection {
    channel: OriginChannel,
    /// `None` if another request opened it.
    connect: Option<TimeSpan>,
    tls: Option<TimeSpan>,
}

/// A connection on which a request can be sent.
enum OriginChannel {
    /// An HTTP/1 connection.
    Exclusive(Box<OriginConnection>),
    /// A stream of an HTTP/2 connection.
    Shared(StreamReservation),
}

impl NewConnection {
    fn exclusive(
        connection: Box<OriginConnection>,
        connect: Option<TimeSpan>,
        tls: Option<TimeSpan>,
    ) -> Self {
        Self {
            channel: OriginChannel::Exclusive(connection),
            connect,
            tls,
        }
    }

    fn shared(stream: StreamReservation, connect: Option<TimeSpan>, tls: Option<TimeSpan>) -> Self {
        Self {
            channel: OriginChannel::Shared(stream),
            connect,
            tls,
        }
    }
}

/// The number of times that a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendAttempt {
    First,
    /// It is not sent again.
    Repeated,
}

/// A connection on which nothing has been sent.
struct OriginSocket {
    transport: MaybeTlsStream,
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
            // Without this field, hyper does not send a GET body of unknown length at all.
            request
                .headers_mut()
                .insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        request
    }
}

/// Waits until a request may be sent again on a new connection. The origin may have seen it, so it
/// counts as another request. Returns an error if the wait would be too long.
async fn wait_to_resend(slot: &HostSlot, error: UpstreamError) -> Result<(), UpstreamError> {
    let mut remaining = MAX_RESEND_WAIT;
    loop {
        match slot.resend_decision() {
            ResendDecision::Now => return Ok(()),
            ResendDecision::After(time) if time <= remaining => {
                remaining -= time;
                tokio::time::sleep(time).await;
            }
            ResendDecision::After(_) => return Err(error),
            ResendDecision::Never => {
                return Err(slot
                    .remaining_backoff()
                    .map_or(error, UpstreamError::BackingOff));
            }
        }
    }
}

/// Returns a copy for a resend, if repeating is safe (RFC 9110 section 9.2.2).
fn resendable_copy(request: &Request<RequestUpload>) -> Option<Box<Request<RequestUpload>>> {
    let repeatable = request.method().is_idempotent() && request.body().is_empty();
    repeatable.then(|| copy_request(request))
}

/// Returns a copy of a request without a body.
fn copy_request(request: &Request<RequestUpload>) -> Box<Request<RequestUpload>> {
    let mut copy = Request::new(RequestUpload::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Box::new(copy)
}

/// The progress of sending a request.
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
