//! Accepts connections and serves each one in a task of its own: HTTP/1 with hyper, HTTP/2 with h2.
//!
//! The [`ConnectionHandler`] answers the requests. It also provides the responses to invalid
//! request heads and to clients above the connection limit.

mod connection_limiter;
mod link_listener;
pub mod proxy_header;
mod proxy_listener;

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, Version};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::body::{BodyError, ClientBody};
use super::drain::{DrainStage, DrainWatch};
use super::head::{
    ClientSocket, ClientWatch, HeadError, HeadEvents, HeadLimits, HeadReader, HeadReaderSettings,
    LINGER_BYTES, LINGER_TIME, ServiceGuard, ServiceState,
};
use super::http2::frame::PREFACE;
use super::http2::{Http2Settings, serve_http2};
use super::tunnel::wait_cut_off;
use super::turn::end_turn;
use crate::clock::Clock;
use crate::metrics::labels::{Http2ErrorCode, Http2ErrorScope, Http2Limit, ProxyHeaderFailure};

use connection_limiter::ConnectionSlot;
pub(crate) use connection_limiter::StreamSlot;
pub use connection_limiter::{ConnectionLimiter, ConnectionLoad};
pub use link_listener::LinkListener;
use proxy_header::ProxiedClient;
pub use proxy_listener::ProxyListener;

/// The first pause after `accept` failed, for example because no file descriptor is left. It
/// doubles with every further failure.
const MIN_RETRY_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause after `accept` failed.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The number of connections that are accepted before other tasks run.
const ACCEPTS_PER_TURN: u32 = 32;
/// The time that a client above the connection limit has to read the response.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The number of bytes received at a time before it is clear which version of HTTP a client speaks.
const PREFACE_ROOM: usize = 4096;
/// The largest number of header fields that hyper parses without an allocation.
const INLINE_FIELDS: usize = 100;
/// The minimum size of hyper's read buffer, and the number of response bytes that it buffers.
const MAX_BUFFER: usize = 256 * 1024;

/// Limits of the listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptLimits {
    /// The maximum number of connections.
    pub connections: usize,
    /// The maximum number of connections from one client address.
    pub per_client: usize,
    /// The maximum number of clients that are sent an overload response at the same time. Further
    /// connections are closed without one.
    pub overload_replies: usize,
    /// The limits and timeouts of the head reader.
    pub reader: HeadReaderSettings,
    pub http2: Http2Settings,
}

impl AcceptLimits {
    /// Returns the settings of one connection.
    pub fn connection(&self) -> ConnectionSettings {
        ConnectionSettings {
            reader: self.reader,
            http2: self.http2,
        }
    }
}

/// Settings of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionSettings {
    /// The limits and timeouts of the head reader, which apply to both versions of HTTP.
    pub reader: HeadReaderSettings,
    pub http2: Http2Settings,
}

/// A listener's part of each of its connections.
#[derive(Debug)]
pub struct AcceptContext<O> {
    pub handler: Arc<O>,
    /// The limiter of connections and streams, which several listeners may share.
    pub limiter: Arc<ConnectionLimiter>,
    pub settings: ConnectionSettings,
}

/// The cause of a stream of an HTTP/2 connection that is refused before it becomes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamRefusal {
    /// Its head is refused.
    Head(HeadError),
    /// The client has as many streams as it may have connections.
    Overloaded,
}

/// Answers the requests that arrive through a listener.
pub trait ConnectionHandler: HeadEvents + Send + Sync + 'static {
    /// State that lives as long as a connection, such as its gauge.
    type ConnectionState: Send + Sync + 'static;
    /// The body of a response.
    type ResBody: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;
    /// The reason for closing a connection without a response.
    type Error: Error + Send + Sync + 'static;

    /// Returns the clock of the handler.
    fn clock(&self) -> &Clock;

    /// Returns `true` if connections from this address begin with a header of the PROXY protocol.
    fn expects_proxy_header(&self, peer: IpAddr) -> bool;

    /// Called when a connection is closed because it does not begin with such a header.
    fn record_proxy_header_failure(&self, failure: ProxyHeaderFailure);

    /// Called when a connection begins.
    fn on_connect(&self, peer: SocketAddr) -> Self::ConnectionState;

    /// Prepares a new connection: the handshake of a listener with TLS. Returns `None` if the
    /// connection is closed.
    fn open(
        &self,
        client: ClientSocket,
        connection: &Self::ConnectionState,
        drain: &mut DrainWatch,
    ) -> impl Future<Output = Option<ClientSocket>> + Send;

    /// Called when a stream of an HTTP/2 connection has a CONNECT. Returns the state of its tunnel.
    fn on_tunnel(&self, connection: &Self::ConnectionState) -> Self::ConnectionState;

    /// Answers a request. `service_guard` must live until the end of the response body. If the client
    /// leaves, the future or the body is dropped.
    fn handle_request(
        &self,
        request: Request<ClientBody>,
        service_guard: ServiceGuard,
        connection: &ClientConnection<Self::ConnectionState>,
    ) -> impl Future<Output = Result<Response<Self::ResBody>, Self::Error>> + Send;

    /// Continues with a connection after the response to a CONNECT, until it ends. If a socket is
    /// returned, HTTP follows inside the tunnel and is served like any other.
    fn continue_after_connect(
        &self,
        client: ClientSocket,
        connection: &mut ClientConnection<Self::ConnectionState>,
        drain: &mut DrainWatch,
    ) -> impl Future<Output = Option<ClientSocket>> + Send;

    /// Returns the complete response to a client above the connection limit. The connection is
    /// closed after it.
    fn overload_response(&self, peer: SocketAddr) -> Bytes;

    /// Returns the response to a stream that does not become a request, unless it is reset without
    /// one.
    fn refuse_stream(&self, refusal: StreamRefusal, peer: SocketAddr) -> Option<Response<Bytes>>;

    /// Returns `true` if an HTTP/2 connection must close when its streams have ended.
    fn is_exhausted(&self, connection: &Self::ConnectionState) -> bool;

    /// Called when a client has exceeded a limit of HTTP/2.
    fn record_http2_limit(&self, limit: Http2Limit);

    /// Called when a violation of HTTP/2 was answered with this code.
    fn record_http2_error(&self, scope: Http2ErrorScope, code: Http2ErrorCode);
}

/// The part of a client connection that its requests share.
#[derive(Debug)]
pub struct ClientConnection<K> {
    /// The client's address.
    pub peer: SocketAddr,
    /// Detects that the client left. A handler that waits while a request body is unread does not
    /// need it: the request is dropped then.
    pub client_watch: ClientWatch,
    /// The handler's own state.
    pub state: K,
}

/// Accepts connections until the drain begins. Open connections continue in their own tasks.
///
/// Several listeners may share one `limiter`.
pub async fn serve<O: ConnectionHandler>(
    listener: TcpListener,
    limiter: Arc<ConnectionLimiter>,
    settings: ConnectionSettings,
    handler: Arc<O>,
    mut drain: DrainWatch,
) {
    let context = Arc::new(AcceptContext {
        handler,
        limiter,
        settings,
    });
    let mut pause = MIN_RETRY_PAUSE;
    let mut in_a_row = 0;
    loop {
        let accepted = tokio::select! {
            biased;
            () = drain.wait_begun() => return,
            accepted = poll_fn(|cx| poll_accept(&listener, &mut in_a_row, cx)) => accepted,
        };
        match accepted {
            Ok((socket, peer)) => {
                pause = MIN_RETRY_PAUSE;
                admit(socket, peer, &context, &drain);
            }
            Err(error) if is_client_error(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections; retrying in {pause:?}");
                tokio::time::sleep(pause).await;
                pause = MAX_RETRY_PAUSE.min(2 * pause);
            }
        }
    }
}

/// Accepts the next connection. After [`ACCEPTS_PER_TURN`] that came without a pause, the turn of the
/// task ends.
fn poll_accept(
    listener: &TcpListener,
    in_a_row: &mut u32,
    cx: &mut Context<'_>,
) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
    if *in_a_row >= ACCEPTS_PER_TURN {
        *in_a_row = 0;
        end_turn(cx);
        return Poll::Pending;
    }
    let accepted = listener.poll_accept(cx);
    *in_a_row = if accepted.is_ready() {
        *in_a_row + 1
    } else {
        0
    };
    accepted
}

/// Returns `true` if the client left before it was accepted, which needs no pause. Other errors,
/// such as running out of file descriptors, would repeat at once.
fn is_client_error(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(
        error.kind(),
        K::ConnectionAborted | K::ConnectionReset | K::Interrupted
    )
}

fn admit<O: ConnectionHandler>(
    socket: TcpStream,
    peer: SocketAddr,
    context: &Arc<AcceptContext<O>>,
    drain: &DrainWatch,
) {
    // Fails if the client has left.
    let _ = socket.set_nodelay(true);
    if context.handler.expects_proxy_header(peer.ip()) {
        match ConnectionLimiter::acquire_unnamed(&context.limiter) {
            Some(slot) => {
                tokio::spawn(Box::pin(serve_proxied(
                    socket,
                    peer,
                    slot,
                    Arc::clone(context),
                    drain.clone(),
                )));
            }
            None => refuse_overloaded(socket, peer, context),
        }
        return;
    }
    match ConnectionLimiter::acquire(&context.limiter, peer.ip()) {
        Some(slot) => {
            // Boxed because a task is moved several times before it reaches its place on the heap.
            tokio::spawn(Box::pin(serve_connection(
                ClientSocket::from(socket),
                peer,
                slot,
                Arc::clone(context),
                drain.clone(),
            )));
        }
        None => refuse_overloaded(socket, peer, context),
    }
}

/// Answers a client above a limit. Above the limit of such responses, the connection is closed without
/// one.
fn refuse_overloaded<O: ConnectionHandler>(
    socket: TcpStream,
    peer: SocketAddr,
    context: &Arc<AcceptContext<O>>,
) {
    let Some(slot) = ConnectionLimiter::acquire_overload_reply(&context.limiter) else {
        return;
    };
    let handler = Arc::clone(&context.handler);
    tokio::spawn(async move {
        let _slot = slot;
        reply_overloaded(socket, handler.overload_response(peer)).await;
    });
}

/// Serves a connection from a load balancer: reads the header that names the client, and continues
/// with that client's address.
async fn serve_proxied<O: ConnectionHandler>(
    mut socket: TcpStream,
    balancer: SocketAddr,
    slot: ConnectionSlot,
    context: Arc<AcceptContext<O>>,
    mut drain: DrainWatch,
) {
    let header = tokio::select! {
        header = proxy_header::read(&mut socket, context.settings.reader.head) => header,
        () = wait_cut_off(&mut drain) => return,
    };
    let (client, unread) = match header {
        Ok(Some(header)) => header,
        Ok(None) => return,
        Err(failure) => {
            tracing::debug!(%balancer, failure = failure.as_str(), "no PROXY protocol header");
            return context.handler.record_proxy_header_failure(failure);
        }
    };
    let peer = match client {
        ProxiedClient::Address(address) => address,
        ProxiedClient::Unnamed => balancer,
    };
    match slot.with_client(peer.ip()) {
        Some(slot) => {
            let mut client = ClientSocket::from(socket);
            client.unread = unread;
            serve_connection(client, peer, slot, context, drain).await;
        }
        None => refuse_overloaded(socket, peer, &context),
    }
}

async fn reply_overloaded(mut socket: TcpStream, response: Bytes) {
    // Fails only if the client has left.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, async {
        socket.write_all(&response).await?;
        socket.shutdown().await?;
        // Closing a socket with unread data sends a reset, which could destroy the response.
        let mut sink = [0; 1024];
        while socket.read(&mut sink).await? > 0 {}
        io::Result::Ok(())
    })
    .await;
}

/// Closes a connection after a response that hyper has written to a refused CONNECT: its client may
/// already be sending.
pub(crate) async fn close_lingering(client: &mut ClientSocket) {
    let _ = tokio::time::timeout(LINGER_TIME, async {
        client.shut_down().await;
        let mut remaining = LINGER_BYTES;
        loop {
            match client.discard_received().await? {
                0 => return Ok(()),
                count if count > remaining => return Ok(()),
                count => remaining -= count,
            }
        }
    })
    .await
    .unwrap_or(io::Result::Ok(()));
}

/// Serves one connection to its end. A panic ends only this task.
async fn serve_connection<O: ConnectionHandler>(
    client: ClientSocket,
    peer: SocketAddr,
    slot: ConnectionSlot,
    context: Arc<AcceptContext<O>>,
    mut drain: DrainWatch,
) {
    let connection = ClientConnection {
        peer,
        client_watch: client.watch(),
        state: context.handler.on_connect(peer),
    };
    let opened = context
        .handler
        .open(client, &connection.state, &mut drain)
        .await;
    if let Some(client) = opened {
        serve_client(client, connection, context, &mut drain).await;
    }
    drop(slot);
}

/// Serves a client's socket to its end, also as a tunnel.
async fn serve_client<O: ConnectionHandler>(
    mut client: ClientSocket,
    mut connection: ClientConnection<O::ConnectionState>,
    context: Arc<AcceptContext<O>>,
    drain: &mut DrainWatch,
) {
    loop {
        if uses_http2(&mut client, context.settings).await {
            // Boxed so that an HTTP/1 connection is not larger.
            return Box::pin(serve_http2(client, connection, context, drain)).await;
        }
        let served = serve_http(
            client,
            &context.handler,
            &connection,
            context.settings.reader,
            drain,
        );
        let Some(socket) = served.await else { return };
        // Boxed because most connections never get here.
        let next = Box::pin(
            context
                .handler
                .continue_after_connect(socket, &mut connection, drain),
        );
        match next.await {
            Some(tunnelled) => client = tunnelled,
            None => return,
        }
    }
}

/// Continues with a granted CONNECT on a stream of an HTTP/2 connection, as after one on HTTP/1.
///
/// Not an `async fn`: the future contains those of connections inside the tunnel.
pub(crate) fn continue_tunnel<O: ConnectionHandler>(
    client: ClientSocket,
    mut connection: ClientConnection<O::ConnectionState>,
    context: Arc<AcceptContext<O>>,
    drain: &mut DrainWatch,
) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
    Box::pin(async move {
        let handler = &context.handler;
        let next = handler.continue_after_connect(client, &mut connection, drain);
        if let Some(client) = next.await {
            serve_client(client, connection, context, drain).await;
        }
    })
}

/// Returns `true` if the client speaks HTTP/2: by its TLS handshake, or by its first bytes if that
/// is allowed without TLS.
async fn uses_http2(client: &mut ClientSocket, settings: ConnectionSettings) -> bool {
    if client.has_negotiated_http2() {
        return true;
    }
    settings.http2.prior_knowledge && Box::pin(begins_with_preface(client, settings)).await
}

/// Reads until it is clear whether the client begins with the preface of HTTP/2. All bytes stay
/// unread.
async fn begins_with_preface(client: &mut ClientSocket, settings: ConnectionSettings) -> bool {
    let reading = async {
        while client.unread.len() < PREFACE.len() && PREFACE.starts_with(&client.unread) {
            match client.receive(PREFACE_ROOM).await {
                Ok(bytes) if !bytes.is_empty() => client.unread.extend_from_slice(&bytes),
                Ok(_) | Err(_) => break,
            }
        }
    };
    // A client that sends nothing is closed by the head reader.
    let _ = tokio::time::timeout(settings.reader.idle, reading).await;
    client.unread.starts_with(PREFACE)
}

/// Serves HTTP until the connection ends or a CONNECT is answered. In the second case it returns
/// the socket.
async fn serve_http<O: ConnectionHandler>(
    client: ClientSocket,
    handler: &Arc<O>,
    connection: &ClientConnection<O::ConnectionState>,
    settings: HeadReaderSettings,
    drain: &mut DrainWatch,
) -> Option<ClientSocket> {
    let state = Arc::new(ServiceState::default());
    let reader = HeadReader::new(client, Arc::clone(handler), settings, Arc::clone(&state));
    let pending_upgrade = PendingUpgrade::default();
    let service = service_fn(|request| {
        handle_request(&**handler, request, &state, connection, &pending_upgrade)
    });
    let ended = {
        // hyper releases the socket when this block ends, if there was an upgrade.
        let mut served = pin!(
            http_builder(settings.limits)
                .serve_connection(reader, service)
                .with_upgrades()
        );
        let mut last_stage = DrainStage::Serving;
        poll_fn(|cx| {
            let stage = drain.poll_stage(cx);
            if stage == DrainStage::CutOff {
                return Poll::Ready(Ok(()));
            }
            if std::mem::replace(&mut last_stage, stage) < stage {
                served.as_mut().graceful_shutdown();
            }
            state.allowance.renew();
            served.as_mut().poll(cx)
        })
        .await
    };
    if let Err(error) = ended {
        // The response broke off: reset the connection so that the client does not take it for
        // complete.
        if std::error::Error::source(&error).is_some_and(|source| source.is::<BodyError>()) {
            connection.client_watch.reset_on_drop();
        }
        tracing::debug!(%error, peer = %connection.peer, "connection ended");
        return None;
    }
    pending_upgrade.take_socket::<O>().await
}

/// The pending upgrade of a connection: hyper hands over the socket after the response to a
/// CONNECT.
#[derive(Default)]
struct PendingUpgrade(Mutex<Option<OnUpgrade>>);

impl PendingUpgrade {
    fn set(&self, upgrade: OnUpgrade) {
        *self.0.lock() = Some(upgrade);
    }

    async fn take_socket<O: ConnectionHandler>(&self) -> Option<ClientSocket> {
        let upgrade = self.0.lock().take()?;
        let upgraded = upgrade.await.ok()?;
        let parts = upgraded.downcast::<HeadReader<Arc<O>>>().ok()?;
        let mut client = parts.io.into_client_socket();
        // The bytes that hyper read come before those that the reader holds.
        client.unread.splice(..0, parts.read_buf);
        Some(client)
    }
}

/// Configures hyper. The head reader has its own limits and timeouts, and hyper would answer
/// without a reason, so hyper's are disabled or wider. No timer is needed.
fn http_builder(limits: HeadLimits) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.header_read_timeout(None)
        .half_close(false)
        .keep_alive(true);
    // A target can become three times as long when it is percent-encoded.
    http.max_buf_size(MAX_BUFFER.max(limits.bytes + 2 * limits.target));
    if limits.fields != INLINE_FIELDS {
        http.max_headers(limits.fields);
    }
    http
}

/// Answers one request. The response closes the connection if the head reader cannot read anything
/// after this request.
///
/// The service state changes to busy in this call, before the returned future is polled.
fn handle_request<O: ConnectionHandler>(
    handler: &O,
    mut request: Request<Incoming>,
    state: &Arc<ServiceState>,
    connection: &ClientConnection<O::ConnectionState>,
    pending_upgrade: &PendingUpgrade,
) -> impl Future<Output = Result<Response<O::ResBody>, ServiceError<O::Error>>> {
    let service_guard = state.begin();
    let last = state.is_last();
    let is_old = request.version() == Version::HTTP_10;
    let connect = request.method() == Method::CONNECT;
    if connect {
        pending_upgrade.set(hyper::upgrade::on(&mut request));
    }
    let request = request.map(ClientBody::from);
    async move {
        if !last && request.body().is_end_stream() {
            let response = handler.handle_request(request, service_guard, connection);
            let mut response = response.await.map_err(ServiceError::CloseConnection)?;
            if is_old {
                announce_http10_close(&mut response);
            }
            return Ok(response);
        }
        // Boxed because few requests need it, and hyper moves the whole future for each request.
        let mut response =
            Box::pin(handle_watched(handler, request, service_guard, connection)).await?;
        let is_tunnel = connect && response.status().is_success();
        if last && !is_tunnel {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if is_old && !is_tunnel {
            announce_http10_close(&mut response);
        }
        Ok(response)
    }
}

/// Announces that an HTTP/1.0 connection closes after a response that says so, or whose length is
/// unknown (RFC 9112 section 9.3). hyper would announce `keep-alive` as well.
fn announce_http10_close<B: Body>(response: &mut Response<B>) {
    let body = response.body();
    let ends_by_closing = !body.is_end_stream() && body.size_hint().exact().is_none();
    if ends_by_closing || response.headers().contains_key(CONNECTION) {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
        *response.version_mut() = Version::HTTP_10;
    }
}

/// Answers a request that may be followed by unread bytes: a body, or the data after a CONNECT.
/// hyper does not notice in that case that the client left, so the client is watched here.
async fn handle_watched<O: ConnectionHandler>(
    handler: &O,
    request: Request<ClientBody>,
    service_guard: ServiceGuard,
    connection: &ClientConnection<O::ConnectionState>,
) -> Result<Response<O::ResBody>, ServiceError<O::Error>> {
    tokio::select! {
        biased;
        result = handler.handle_request(request, service_guard, connection) => result.map_err(ServiceError::CloseConnection),
        () = connection.client_watch.wait_left() => Err(ServiceError::ClientLeft),
    }
}

/// The reason for closing a connection without a response.
#[derive(Debug, thiserror::Error)]
enum ServiceError<E> {
    #[error("{0}")]
    CloseConnection(E),
    #[error("the client left")]
    ClientLeft,
}
