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
use tokio::task::coop::unconstrained;

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

/// An origin rarely closes a connection that has been idle for less than this.
const MAX_FRESH_IDLE: Duration = Duration::from_millis(500);

/// The longest time for which a request that must be resent waits for its host's turn.
const MAX_RESEND_WAIT: Duration = Duration::from_secs(20);

/// Limits and timeouts for connections to origins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamLimits {
    /// The time limits of connecting.
    pub dial: DialLimits,
    /// The limits of the connection pool.
    pub pool: PoolLimits,
    /// The time from the request's last byte, or the last one that the origin accepted, to the end
    /// of the response head.
    pub response_head_timeout: Duration,
    /// The time between two parts of a body.
    pub body_idle_timeout: Duration,
    /// The time for a whole body.
    pub body_timeout: Duration,
    /// The maximum size of a response head in bytes.
    pub max_head_size: usize,
    /// The maximum number of fields in a response head.
    pub max_fields: usize,
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
    /// The ownership of the host: once it has ended, nothing is sent. `None` outside of a fleet.
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
    /// The time at which the connection was ready for the request.
    pub ready_at: Instant,
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
        // Some origins send such malformed fields. None of them can change where the message ends.
        builder
            .allow_spaces_after_header_name_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .ignore_invalid_headers_in_responses(true)
            .max_headers(limits.max_fields)
            .max_buf_size(limits.max_head_size.max(MAX_READ))
            .max_header_size(limits.max_head_size);
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

    /// Sends a request to the destination of its permit. It is resent at most once, on a new connection:
    ///
    /// - if a pooled HTTP/1 connection ends before the request is written,
    /// - if the request is idempotent and has no body, and the connection may have been closed before the request arrived:
    ///   it was idle for a while, or leads through a parent, whose proxies may go away at any time. It ends before the
    ///   response or, over HTTP/1, the bytes on it are not a valid response,
    /// - if the request has no body, and an HTTP/2 origin has not processed it.
    ///
    /// # Errors
    /// Returns an error if no response head arrives.
    pub fn send(
        &self,
        permit: Box<Permit<UrlTarget, VettedAddresses>>,
        mut request: UpstreamRequest,
        now: Instant,
    ) -> impl Future<Output = Result<UpstreamResponse, UpstreamError>> + Send {
        // Not an `async fn`: its future would contain the permit and the request in addition to what
        // they become.
        let uri = request.uri.take();
        let upload_watch = request.body.watch();
        let ownership = request.ownership.take();
        let mut dispatch = self.prepare(permit, upload_watch.as_ref(), ownership);
        // Parsing cannot fail: the canonical form contains no byte that is invalid in a request line.
        let uri = uri.map_or_else(|| dispatch.target.path_and_query().parse(), Ok);
        let request = uri.map(|uri| request.into_http_request(uri));
        let reused = self.pool.take(
            dispatch.pool_key(),
            &dispatch.vetted,
            dispatch.versions,
            now,
        );
        let rule = match (&reused, &request) {
            (Some(PooledConnection::Exclusive { idle_for, .. }), Ok(request)) => {
                ResendRule::for_http1(SendAttempt::First, *idle_for, &dispatch, request)
            }
            (Some(PooledConnection::Shared(_)) | None, _) | (_, Err(_)) => ResendRule::NEVER,
        };
        async move {
            // Unreachable: the URI is valid.
            let Ok(request) = request else {
                return Err(UpstreamError::Upload(BodyError::Incomplete));
            };
            let mut connection = match reused {
                Some(PooledConnection::Exclusive { connection, .. }) => connection,
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
            let sending = pin!(self.start_sending(&mut dispatch, request, &mut connection)?);
            let exchanged = self
                .exchange_head(&mut dispatch, connection, sending, upload_watch, now)
                .await;
            match exchanged {
                Ok(answered) => Ok(self.build_exclusive_response(answered, dispatch, now)),
                Err(ExchangeFailure { error, unsent }) => {
                    let was_idle = rule.was_idle;
                    let request = unsent.or(rule.copy_after(&error));
                    self.resend_or_fail(dispatch, request, error, was_idle)
                        .await
                }
            }
        }
    }

    /// Redeems the permit, and prepares all that is needed to send its request.
    fn prepare(
        &self,
        permit: Box<Permit<UrlTarget, VettedAddresses>>,
        upload_watch: Option<&UploadWatch>,
        ownership: Option<Box<OwnershipWatch>>,
    ) -> RequestDispatch {
        let SendOptions {
            verify,
            versions,
            timeouts,
        } = permit.options();
        let (target, vetted, mut slot) = permit.redeem();
        if let Some(watch) = upload_watch {
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
        let response_head_timeout = timeouts
            .response_head
            .unwrap_or(self.limits.response_head_timeout);
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

    /// Resends a request on a new connection after an error; without a request, returns the error.
    ///
    /// Boxed, since the functions that send call this one again.
    fn resend_or_fail<'a>(
        &'a self,
        mut dispatch: RequestDispatch,
        request: Option<Box<Request<RequestUpload>>>,
        error: UpstreamError,
        was_idle: bool,
    ) -> Pin<Box<dyn Future<Output = Result<UpstreamResponse, UpstreamError>> + Send + 'a>> {
        Box::pin(async move {
            let Some(request) = request else {
                // An origin may close an idle connection at any time, so this is not a failure of the host.
                if was_idle && matches!(error, UpstreamError::Closed) {
                    return Err(error);
                }
                return Err(record_if_origin_fault(&mut dispatch.slot, error));
            };
            wait_to_resend(&dispatch.slot, error).await?;
            dispatch.failed_hop = Some(dispatch.route.hop);
            let now = self.clock.now();
            self.send_on_new_connection(dispatch, *request, now, SendAttempt::Second)
                .await
        })
    }

    /// Sends a request on a new connection.
    async fn send_on_new_connection(
        &self,
        mut dispatch: RequestDispatch,
        request: Request<RequestUpload>,
        now: Instant,
        attempt: SendAttempt,
    ) -> Result<UpstreamResponse, UpstreamError> {
        let connected = self.connect(&mut dispatch, now).await;
        let NewConnection {
            channel,
            connect,
            tls,
        } = connected.map_err(|error| record_if_origin_fault(&mut dispatch.slot, error))?;
        let ready_at = self.clock.now();
        let mut connection = match channel {
            OriginChannel::Exclusive(connection) => connection,
            OriginChannel::Shared(stream) => {
                let sent = self.send_on_stream(dispatch, request, stream, ready_at, attempt);
                return Ok(UpstreamResponse {
                    connect,
                    tls,
                    ..Box::pin(sent).await?
                });
            }
        };
        let rule = ResendRule::for_http1(attempt, Duration::ZERO, &dispatch, &request);
        let upload_watch = request.body().watch();
        let sending = pin!(self.start_sending(&mut dispatch, request, &mut connection)?);
        let exchanged = self
            .exchange_head(&mut dispatch, connection, sending, upload_watch, ready_at)
            .await;
        match exchanged {
            Ok(answered) => Ok(UpstreamResponse {
                connect,
                tls,
                ..self.build_exclusive_response(answered, dispatch, ready_at)
            }),
            Err(ExchangeFailure { error, .. }) => {
                let request = rule.copy_after(&error);
                self.resend_or_fail(dispatch, request, error, false).await
            }
        }
    }

    /// Passes a request to its connection, which writes it once it is driven.
    ///
    /// # Errors
    /// Returns [`UpstreamError::OwnerLost`] if this node may no longer send requests to the host.
    fn start_sending(
        &self,
        dispatch: &mut RequestDispatch,
        mut request: Request<RequestUpload>,
        connection: &mut OriginConnection,
    ) -> Result<impl Future<Output = SendResult> + use<>, UpstreamError> {
        dispatch.check_ownership(&mut request)?;
        self.parents
            .prepare(dispatch.route.hop, &mut request, &dispatch.target);
        Ok(connection.sender.try_send_request(request))
    }

    /// Checks that a parent has not rejected the credentials of this proxy: its 407 is not about those of the crawler.
    ///
    /// # Errors
    /// Returns an error if it has.
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

    /// Sends a request on a stream. A request that the origin has not processed is resent once.
    async fn send_on_stream(
        &self,
        mut dispatch: RequestDispatch,
        mut request: Request<RequestUpload>,
        stream: StreamReservation,
        now: Instant,
        attempt: SendAttempt,
    ) -> Result<UpstreamResponse, UpstreamError> {
        dispatch.check_ownership(&mut request)?;
        let address = stream.address();
        let rule = ResendRule::for_stream(attempt, stream.idle_for, &dispatch, &request);
        let call = StreamCall {
            request,
            target: &dispatch.target,
            slot: dispatch.slot,
            ownership: dispatch.ownership.as_deref_mut(),
            wait: ResponseWait {
                timeout: dispatch.response_head_timeout,
                since: now,
            },
            max_fields: self.limits.max_fields,
            clock: &self.clock,
        };
        let failed = match http2::exchange(stream, call).await {
            Ok(ExchangedStream { response, slot }) => {
                let claim = HostClaim {
                    slot,
                    ownership: dispatch.ownership,
                };
                let response = response.map(|stream| BodySource::Stream(Some(stream)));
                return Ok(self.build_response(response, address, claim, now));
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
        let was_idle = rule.was_idle;
        let request = rule.copy_if(failed.resend);
        self.resend_or_fail(dispatch, request, failed.error, was_idle)
            .await
    }

    /// Returns the verification that applies. Without TLS it is always `On`, so that connections are
    /// shared by all requests.
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
        dispatch: &mut RequestDispatch,
        began: Instant,
    ) -> Result<NewConnection, UpstreamError> {
        let versions = self.offered_versions(dispatch);
        // Held until the connection is in the pool.
        let _dial_guard = match self.find_shared(dispatch, versions).await {
            SharedOrDial::Shared(stream) => return Ok(NewConnection::shared(stream, None, None)),
            SharedOrDial::Dial(guard) => guard,
        };
        let socket = self.dial(dispatch).await?;
        let connected = self.clock.now();
        let connect = Some(TimeSpan::between(began, connected));
        if dispatch.target.scheme() == Scheme::Http {
            let stream = OriginStream::Http(TokioIo::new(OriginTcp::plain(socket.transport)));
            let connection = self
                .start_exclusive(dispatch, stream, socket.address)
                .await?;
            return Ok(NewConnection::exclusive(connection, connect, None));
        }
        let (stream, address) = self.handshake_tls(dispatch, socket, versions).await?;
        let handshake = TimeSpan::between(connected, self.clock.now());
        self.tls.record_handshake(handshake.duration);
        let tls = Some(handshake);
        let is_http2 = origin_tls::has_selected_http2(&stream);
        let base = dispatch.target.base();
        self.versions.record_selection(base, versions, is_http2);
        if is_http2 {
            let stream = self.start_shared(dispatch, stream, address).await?;
            return Ok(NewConnection::shared(stream, connect, tls));
        }
        let connection = self.start_exclusive(dispatch, stream, address).await?;
        Ok(NewConnection::exclusive(connection, connect, tls))
    }

    /// Returns the versions that a new connection offers to the origin.
    fn offered_versions(&self, dispatch: &RequestDispatch) -> OriginHttpVersions {
        match self.versions.get(dispatch.target.base()) {
            Some(KnownVersion::Http1Required) => OriginHttpVersions::Http1,
            Some(KnownVersion::Http2) | None => dispatch.versions,
        }
    }

    /// Returns a stream of a connection that another request has just opened. Otherwise this request must dial. If the origin
    /// is known to speak HTTP/2, others wait for its connection until the guard is dropped.
    async fn find_shared(
        &self,
        dispatch: &RequestDispatch,
        versions: OriginHttpVersions,
    ) -> SharedOrDial {
        let is_http2 = versions == OriginHttpVersions::Http1And2
            && self.versions.get(dispatch.target.base()) == Some(KnownVersion::Http2);
        if !is_http2 {
            return SharedOrDial::Dial(None);
        }
        let guard = self.versions.begin_dial_or_wait(dispatch.pool_key()).await;
        self.take_stream(dispatch)
            .map_or(SharedOrDial::Dial(guard), SharedOrDial::Shared)
    }

    fn take_stream(&self, dispatch: &RequestDispatch) -> Option<StreamReservation> {
        self.pool
            .take_stream(dispatch.pool_key(), &dispatch.vetted, self.clock.now())
    }

    async fn start_exclusive(
        &self,
        dispatch: &RequestDispatch,
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
            base: dispatch.target.base().into(),
            verify: dispatch.verify,
            route: dispatch.route.clone(),
            response_timer: LazyTimer::new(self.limits.response_head_timeout),
        }))
    }

    /// Starts HTTP/2 on a connection and shares it. If another request has just opened one, that is
    /// used instead.
    async fn start_shared(
        &self,
        dispatch: &RequestDispatch,
        stream: OriginStream,
        address: SocketAddr,
    ) -> Result<StreamReservation, UpstreamError> {
        if let Some(stream) = self.take_stream(dispatch) {
            return Ok(stream);
        }
        let settings = SharedConnectionSettings {
            address,
            base: dispatch.target.base().into(),
            verify: dispatch.verify,
            route: dispatch.route.clone(),
            max_head_size: self.limits.max_head_size,
            write_stall: self.limits.body_idle_timeout,
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

    /// Connects to the origin, or through a parent, and sets the proxy that was used in `route.hop`.
    async fn dial(&self, dispatch: &mut RequestDispatch) -> Result<OriginSocket, UpstreamError> {
        if let Some(parent) = dispatch.vetted.parent() {
            // Boxed, since most requests go to the origin.
            let opening = self.parents.open(ParentCall {
                parent,
                host: dispatch.target.host(),
                port: dispatch.target.port(),
                usage: match dispatch.target.scheme() {
                    Scheme::Http => ParentUse::HttpRequests,
                    Scheme::Https => ParentUse::Tunnel,
                },
                failed: dispatch.failed_hop,
                local: dispatch.vetted.local(),
                limits: dispatch.dial,
            });
            let opened = Box::pin(opening).await;
            let opened = opened.map_err(|error| UpstreamError::Parent(Box::new(error)))?;
            dispatch.route.hop = opened.hop;
            return Ok(OriginSocket {
                transport: opened.transport,
                address: opened.address,
            });
        }
        let dialled = dial(&dispatch.vetted, dispatch.dial).await;
        self.negative_cache
            .record(dispatch.vetted.addresses(), &dialled);
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
        dispatch: &mut RequestDispatch,
        socket: OriginSocket,
        versions: OriginHttpVersions,
    ) -> Result<(OriginStream, SocketAddr), UpstreamError> {
        let terms = HandshakeTerms {
            verify: dispatch.verify,
            versions,
        };
        let hello = self.tls.hello_kind(dispatch.target.base());
        let failed = match self
            .tls
            .handshake(socket.transport, &dispatch.target, terms, hello)
            .await
        {
            Ok(stream) => return Ok((stream, socket.address)),
            Err(error) => error,
        };
        if hello == ClientHelloKind::Classic || !failed.may_be_caused_by_hello() {
            return Err(UpstreamError::Tls(failed));
        }
        let Ok(second_socket) = self.dial(dispatch).await else {
            return Err(UpstreamError::Tls(failed));
        };
        let stream = self
            .tls
            .handshake(
                second_socket.transport,
                &dispatch.target,
                terms,
                ClientHelloKind::Classic,
            )
            .await;
        Ok((stream.map_err(UpstreamError::Tls)?, second_socket.address))
    }

    fn build_exclusive_response(
        &self,
        (response, connection): ExclusiveResponse,
        dispatch: RequestDispatch,
        ready_at: Instant,
    ) -> UpstreamResponse {
        let claim = HostClaim {
            slot: dispatch.slot,
            ownership: dispatch.ownership,
        };
        let address = connection.address;
        let response = response.map(|body| BodySource::exclusive(body, connection));
        self.build_response(response, address, claim, ready_at)
    }

    /// Builds the response after its head has arrived. The slot records the outcome and moves into
    /// the body.
    fn build_response(
        &self,
        response: Response<BodySource>,
        address: SocketAddr,
        claim: HostClaim,
        ready_at: Instant,
    ) -> UpstreamResponse {
        let HostClaim {
            mut slot,
            ownership,
        } = claim;
        slot.record_response(response.status(), response.headers());
        let pool_handle = PoolHandle {
            pool: Arc::clone(&self.pool),
            clock: self.clock.clone(),
        };
        let limits = BodyTimeLimits {
            idle: self.limits.body_idle_timeout,
            total: self.limits.body_timeout,
        };
        let response = response
            .map(|source| ResponseDownload::new(source, slot, ownership, pool_handle, limits));
        let response = response.map(Box::new);
        UpstreamResponse {
            response,
            connect: None,
            tls: None,
            ready_at,
            address,
        }
    }

    /// Sends the request by driving the connection, and waits for the head of the response.
    async fn exchange_head(
        &self,
        dispatch: &mut RequestDispatch,
        mut connection: Box<OriginConnection>,
        mut sending: Pin<&mut impl Future<Output = SendResult>>,
        upload_watch: Option<UploadWatch>,
        mut since: Instant,
    ) -> Result<ExclusiveResponse, ExchangeFailure> {
        connection
            .response_timer
            .set_length(dispatch.response_head_timeout);
        // Boxed because few requests have a body.
        let mut upload = upload_watch.map(|watch| Box::new(UploadPace::new(watch)));
        let mut head_sent = false;
        let result = poll_fn(|cx| {
            if let Poll::Ready(result) = sending.as_mut().poll(cx) {
                return Poll::Ready(Ok(result));
            }
            let has_ended = connection.poll_drive(cx).is_ready();
            // hyper writes the head in the same poll in which it takes the request.
            if !std::mem::replace(&mut head_sent, true) {
                dispatch.slot.record_sent();
            }
            if let Poll::Ready(result) = sending.as_mut().poll(cx) {
                return Poll::Ready(Ok(result));
            }
            if has_ended {
                // At the end of the task's turn `sending` does not show the response that has arrived.
                let sent = pin!(unconstrained(sending.as_mut())).poll(cx);
                return Poll::Ready(match sent {
                    Poll::Ready(result) => Ok(result),
                    Poll::Pending => Err(UpstreamError::Closed),
                });
            }
            if let Some(ownership) = &mut dispatch.ownership
                && ownership.poll_broken_off(cx).is_ready()
            {
                return Poll::Ready(Err(UpstreamError::LeaseEnded));
            }
            if let Some(upload) = &mut upload {
                match upload.take_progress() {
                    UploadProgress::Nothing => {}
                    UploadProgress::Advanced => since = self.clock.now(),
                    // The origin waits for the client, so its time does not run.
                    UploadProgress::AwaitingClient => {
                        let slow = upload.poll_too_slow(&dispatch.slot, &self.clock, cx);
                        return slow.map(|()| Err(UpstreamError::Upload(BodyError::Idle)));
                    }
                }
            }
            connection
                .response_timer
                .poll_since(since, cx)
                .map(|()| Err(UpstreamError::Timeout))
        });
        match result.await {
            Ok(Ok(response)) => {
                self.check_parent_response(dispatch, &response)?;
                Ok((response, connection))
            }
            Ok(Err(mut failed)) => {
                let unsent = failed.take_message().map(Box::new);
                Err(ExchangeFailure {
                    error: failed.into_error().into(),
                    unsent,
                })
            }
            Err(error @ UpstreamError::Closed) => {
                // The origin had closed the connection before the request was sent: it is still in the queue of the connection,
                // which gives it back when it is dropped.
                drop(connection);
                let unsent = sending
                    .await
                    .err()
                    .and_then(|mut failed| failed.take_message());
                Err(ExchangeFailure {
                    error,
                    unsent: unsent.map(Box::new),
                })
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The result of a request that was passed to its connection.
type SendResult = Result<Response<Incoming>, TrySendError<Request<RequestUpload>>>;

/// A response whose head has arrived on an HTTP/1 connection.
type ExclusiveResponse = (Response<Incoming>, Box<OriginConnection>);

/// The slot of a request, and the ownership of its host if this is a node of a fleet. Both belong to the response until its
/// last byte.
struct HostClaim {
    slot: HostSlot,
    ownership: Option<Box<OwnershipWatch>>,
}

/// Records a failure for the host, if the host caused it. If the client leaves, the future is dropped, and nothing is recorded.
fn record_if_origin_fault(slot: &mut HostSlot, error: UpstreamError) -> UpstreamError {
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

/// The destination of a request, and all else that is needed to send it.
struct RequestDispatch {
    target: UrlTarget,
    vetted: VettedAddresses,
    route: ConnectionRoute,
    /// The hop whose connection failed at the first attempt. It is avoided: a proxy that is shutting down may still accept
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
                    // The first attempt: nothing was sent. The slot counts as unused, so the next owner need not wait for
                    // its delay.
                    self.slot.revoke();
                }
                let body = std::mem::take(request.body_mut());
                Err(UpstreamError::OwnerLost(body))
            }
            Some(_) | None => Ok(()),
        }
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

/// The result of the search for an HTTP/2 connection.
enum SharedOrDial {
    /// A stream of a connection that another request has opened.
    Shared(StreamReservation),
    /// This request dials. Others wait until the guard is dropped, if there is one.
    Dial(Option<DialGuard>),
}

/// The attempts to send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendAttempt {
    First,
    /// The last one.
    Second,
}

/// The rule for sending a request a second time, with the copy that is then sent.
struct ResendRule {
    copy: Option<Box<Request<RequestUpload>>>,
    /// `true` if the connection was idle for so long that the origin may have closed it.
    was_idle: bool,
    /// `true` if the other side may have closed the connection before the request arrived: it was idle, or it leads to a
    /// parent proxy, which may go away at any time.
    may_have_closed: bool,
}

impl ResendRule {
    const NEVER: Self = Self {
        copy: None,
        was_idle: false,
        may_have_closed: false,
    };

    fn new(idle_for: Duration, dispatch: &RequestDispatch) -> Self {
        let was_idle = MAX_FRESH_IDLE <= idle_for;
        Self {
            copy: None,
            was_idle,
            may_have_closed: was_idle || dispatch.route.uses_parent(),
        }
    }

    /// Returns the rule for an HTTP/1 connection, on which the origin may have processed the request.
    fn for_http1(
        attempt: SendAttempt,
        idle_for: Duration,
        dispatch: &RequestDispatch,
        request: &Request<RequestUpload>,
    ) -> Self {
        let rule = Self::new(idle_for, dispatch);
        // RFC 9110 section 9.2.2.
        let is_idempotent = request.method().is_idempotent();
        let may_resend = attempt == SendAttempt::First && rule.may_have_closed && is_idempotent;
        Self {
            copy: may_resend.then(|| copy_request(request)).flatten(),
            ..rule
        }
    }

    /// Returns the rule for a stream. Its failure tells whether the origin has processed the request.
    fn for_stream(
        attempt: SendAttempt,
        idle_for: Duration,
        dispatch: &RequestDispatch,
        request: &Request<RequestUpload>,
    ) -> Self {
        let may_resend = attempt == SendAttempt::First;
        Self {
            copy: may_resend.then(|| copy_request(request)).flatten(),
            ..Self::new(idle_for, dispatch)
        }
    }

    /// Returns the request to resend after this error of an HTTP/1 connection.
    fn copy_after(self, error: &UpstreamError) -> Option<Box<Request<RequestUpload>>> {
        self.copy.filter(|_| error.allows_resend())
    }

    /// Returns the request to resend under this condition of a failed stream.
    fn copy_if(self, condition: ResendCondition) -> Option<Box<Request<RequestUpload>>> {
        match condition {
            ResendCondition::Never => None,
            ResendCondition::IfIdempotent => self
                .copy
                .filter(|copy| copy.method().is_idempotent() && self.may_have_closed),
            ResendCondition::Unprocessed | ResendCondition::OverHttp1 => self.copy,
        }
    }
}

/// A connection to the origin or a proxy, before TLS.
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

/// Waits until a request may be resent on a new connection. The origin may have received it, so the second attempt counts as
/// another request for the host's pace. Returns an error if the wait would be too long.
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

/// Returns a copy of a request, unless it has a body.
fn copy_request(request: &Request<RequestUpload>) -> Option<Box<Request<RequestUpload>>> {
    if !request.body().is_empty() {
        return None;
    }
    let mut copy = Request::new(RequestUpload::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(Box::new(copy))
}

/// A failed exchange, with the request if none of it was written.
struct ExchangeFailure {
    error: UpstreamError,
    unsent: Option<Box<Request<RequestUpload>>>,
}

impl From<UpstreamError> for ExchangeFailure {
    fn from(error: UpstreamError) -> Self {
        Self {
            error,
            unsent: None,
        }
    }
}
