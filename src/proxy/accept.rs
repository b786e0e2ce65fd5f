//! From a listening socket to connections that hyper serves, each in one task of its own.
//!
//! Who answers the requests, and what the answers to refused heads and full houses say, is the [`ConnectionHandler`]'s.

mod connection_limiter;
mod proxy_listener;

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::body::BodyError;
use super::drain::{DrainStage, DrainWatch};
use super::head::{
    ClientSocket, ClientWatch, HeadEvents, HeadLimits, HeadReader, HeadReaderSettings,
    ServiceGuard, ServiceState,
};

pub use connection_limiter::ConnectionLimiter;
use connection_limiter::ConnectionSlot;
pub use proxy_listener::ProxyListener;

/// How long accepting pauses when the machine has run out of something: at first, and at most.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// How long a client that finds no room may take to read that.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// What a client whose CONNECT was refused may still send before its connection is closed.
const LINGER_BYTES: usize = 64 * 1024;
/// Up to so many fields hyper reads a head without allocating for them.
const INLINE_FIELDS: usize = 100;
/// What hyper may read ahead of a body, and hold back of an answer.
const MAX_BUFFER: usize = 256 * 1024;

/// Limits of listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptLimits {
    /// Connections in all.
    pub connections: usize,
    /// Connections of one client address.
    pub per_client: usize,
    /// The head reader's limits.
    pub reader: HeadReaderSettings,
}

/// Who answers what comes in by a listener.
pub trait ConnectionHandler: HeadEvents + Send + Sync + 'static {
    /// What is kept for as long as a connection lives: its gauge, what its last request has looked up.
    type ConnectionState: Send + Sync;
    /// The body of an answer.
    type ResBody: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;
    /// Why a connection is closed without an answer.
    type Error: Error + Send + Sync + 'static;

    /// A connection begins.
    fn on_connect(&self, peer: SocketAddr) -> Self::ConnectionState;

    /// Answers a request. `open` must go with the answer's body to its end. If the client leaves, the future or the
    /// body is dropped.
    fn handle_request(
        &self,
        request: Request<Incoming>,
        open: ServiceGuard,
        connection: &ClientConnection<Self::ConnectionState>,
    ) -> impl Future<Output = Result<Response<Self::ResBody>, Self::Error>> + Send;

    /// Goes on with a connection whose last answer was one to CONNECT, until it ends. What comes back is HTTP again,
    /// inside the tunnel, and is served as such.
    fn continue_after_connect(
        &self,
        client: ClientSocket,
        connection: &mut ClientConnection<Self::ConnectionState>,
        drain: &mut DrainWatch,
    ) -> impl Future<Output = Option<ClientSocket>> + Send;

    /// The whole answer to a client that finds no room; the connection closes behind it.
    fn overload_response(&self, peer: SocketAddr) -> Bytes;
}

/// What a connection's requests have in common.
#[derive(Debug)]
pub struct ClientConnection<K> {
    /// The client's address.
    pub peer: SocketAddr,
    /// Sees the client leave. Who waits with a body unread need not ask: the request is dropped then, too.
    pub client_watch: ClientWatch,
    /// The owner's.
    pub state: K,
}

/// Accepts connections until the drain begins; those under way go on in their own tasks.
///
/// `room` may be shared by listeners.
pub async fn serve<O: ConnectionHandler>(
    listener: TcpListener,
    limiter: Arc<ConnectionLimiter>,
    reader: HeadReaderSettings,
    handler: Arc<O>,
    mut drain: DrainWatch,
) {
    let mut pause = RETRY_PAUSES.0;
    loop {
        let accepted = tokio::select! {
            biased;
            () = drain.wait_begun() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, peer)) => {
                pause = RETRY_PAUSES.0;
                admit(socket, peer, &limiter, reader, &handler, &drain);
            }
            Err(error) if is_client_error(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections; trying again in {pause:?}");
                tokio::time::sleep(pause).await;
                pause = RETRY_PAUSES.1.min(2 * pause);
            }
        }
    }
}

/// A client that left before it was accepted costs nothing. Other errors are the machine's, such as having no file
/// descriptors left: they come again at once.
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
    limiter: &Arc<ConnectionLimiter>,
    reader: HeadReaderSettings,
    handler: &Arc<O>,
    drain: &DrainWatch,
) {
    // It fails if the client has gone.
    let _ = socket.set_nodelay(true);
    let owner = Arc::clone(handler);
    match ConnectionLimiter::acquire(limiter, peer.ip()) {
        Some(place) => {
            // Boxed, since a task is moved several times before it is in its place.
            tokio::spawn(Box::pin(serve_connection(
                socket,
                peer,
                place,
                reader,
                owner,
                drain.clone(),
            )));
        }
        None => {
            // With no place to be told so, the connection is just closed.
            let Some(place) = ConnectionLimiter::acquire_overload_reply(limiter) else {
                return;
            };
            tokio::spawn(async move {
                let _place = place;
                reply_overloaded(socket, owner.overload_response(peer)).await;
            });
        }
    }
}

async fn reply_overloaded(mut socket: TcpStream, answer: Bytes) {
    // All that can fail here is that the client has gone.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, async {
        socket.write_all(&answer).await?;
        socket.shutdown().await?;
        // Reading what was sent keeps the answer from being lost to a reset.
        let mut sink = [0; 1024];
        while socket.read(&mut sink).await? > 0 {}
        io::Result::Ok(())
    })
    .await;
}

/// The same behind an answer that hyper has written: to a refused CONNECT, whose client may be sending already.
pub(crate) async fn close_lingering(client: &mut ClientSocket) {
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, async {
        client.shut_down().await;
        let mut left = LINGER_BYTES;
        loop {
            match client.discard_received().await? {
                0 => return Ok(()),
                count if count > left => return Ok(()),
                count => left -= count,
            }
        }
    })
    .await
    .unwrap_or(io::Result::Ok(()));
}

/// Serves one connection to its end. A panic in here ends this task only.
async fn serve_connection<O: ConnectionHandler>(
    socket: TcpStream,
    peer: SocketAddr,
    slot: ConnectionSlot,
    settings: HeadReaderSettings,
    handler: Arc<O>,
    mut drain: DrainWatch,
) {
    let mut client = ClientSocket::from(socket);
    let mut connection = ClientConnection {
        peer,
        client_watch: client.watch(),
        state: handler.on_connect(peer),
    };
    while let Some(behind) = serve_http(client, &handler, &connection, settings, &mut drain).await {
        // Boxed, as all that most connections never do.
        match Box::pin(handler.continue_after_connect(behind, &mut connection, &mut drain)).await {
            Some(inside) => client = inside,
            None => break,
        }
    }
    drop(slot);
}

/// Serves HTTP until the connection ends, or a CONNECT is answered: then the socket comes back, for what follows.
async fn serve_http<O: ConnectionHandler>(
    client: ClientSocket,
    handler: &Arc<O>,
    connection: &ClientConnection<O::ConnectionState>,
    settings: HeadReaderSettings,
    drain: &mut DrainWatch,
) -> Option<ClientSocket> {
    let turn = Arc::new(ServiceState::default());
    let reader = HeadReader::new(client, Arc::clone(handler), settings, Arc::clone(&turn));
    let behind = PendingUpgrade::default();
    let service =
        service_fn(|request| handle_request(&**handler, request, &turn, connection, &behind));
    let ended = {
        // Gone with this block: hyper leaves the socket only if it came to do so.
        let mut served = pin!(
            http_builder(settings.limits)
                .serve_connection(reader, service)
                .with_upgrades()
        );
        let mut told = DrainStage::Serving;
        poll_fn(|cx| {
            let stage = drain.poll_stage(cx);
            if stage == DrainStage::CutOff {
                return Poll::Ready(Ok(()));
            }
            if std::mem::replace(&mut told, stage) < stage {
                served.as_mut().graceful_shutdown();
            }
            served.as_mut().poll(cx)
        })
        .await
    };
    if let Err(error) = ended {
        // An answer broke off: the client must not take what it got for all of it.
        if std::error::Error::source(&error).is_some_and(|source| source.is::<BodyError>()) {
            connection.client_watch.reset_on_drop();
        }
        tracing::debug!(%error, peer = %connection.peer, "connection ended");
        return None;
    }
    behind.take_socket::<O>().await
}

/// Where hyper leaves the socket behind the answer to a CONNECT.
#[derive(Default)]
struct PendingUpgrade(Mutex<Option<OnUpgrade>>);

impl PendingUpgrade {
    fn set(&self, upgrade: OnUpgrade) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
    }

    async fn take_socket<O: ConnectionHandler>(&self) -> Option<ClientSocket> {
        let upgrade = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()?;
        let upgraded = upgrade.await.ok()?;
        let parts = upgraded.downcast::<HeadReader<Arc<O>>>().ok()?;
        let mut client = parts.io.into_client_socket();
        // hyper's bytes came first.
        client.unread.splice(..0, parts.read_buf);
        Some(client)
    }
}

/// hyper's part. The reader has limits and time-outs of its own, and hyper's would answer without a reason: they are
/// off or wider, so no timer is needed.
fn http_builder(limits: HeadLimits) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.header_read_timeout(None)
        .half_close(false)
        .keep_alive(true);
    // A target may be three times as long when it is encoded.
    http.max_buf_size(MAX_BUFFER.max(limits.bytes + 2 * limits.target));
    if limits.fields != INLINE_FIELDS {
        http.max_headers(limits.fields);
    }
    http
}

/// Answers one request, the connection's last if the head reader sees nothing of what follows it.
///
/// The turn begins with the call, before anything is awaited.
fn handle_request<O: ConnectionHandler>(
    handler: &O,
    mut request: Request<Incoming>,
    turn: &Arc<ServiceState>,
    connection: &ClientConnection<O::ConnectionState>,
    pending_upgrade: &PendingUpgrade,
) -> impl Future<Output = Result<Response<O::ResBody>, ServiceError<O::Error>>> {
    let (open, last, connect) = (
        turn.begin(),
        turn.is_last(),
        request.method() == Method::CONNECT,
    );
    if connect {
        pending_upgrade.set(hyper::upgrade::on(&mut request));
    }
    async move {
        if !last && request.body().is_end_stream() {
            return handler
                .handle_request(request, open, connection)
                .await
                .map_err(ServiceError::Hangup);
        }
        // Boxed, as all that few requests do: hyper moves the whole future for each of them.
        let mut response = Box::pin(handle_watched(handler, request, open, connection)).await?;
        let is_tunnel = connect && response.status().is_success();
        if last && !is_tunnel {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(response)
    }
}

/// Answers one request behind which bytes may lie unread, a body or what follows a CONNECT: hyper does not see the
/// client leave then, so that is watched for here.
async fn handle_watched<O: ConnectionHandler>(
    handler: &O,
    request: Request<Incoming>,
    open: ServiceGuard,
    connection: &ClientConnection<O::ConnectionState>,
) -> Result<Response<O::ResBody>, ServiceError<O::Error>> {
    tokio::select! {
        biased;
        answered = handler.handle_request(request, open, connection) => answered.map_err(ServiceError::Hangup),
        () = connection.client_watch.wait_left() => Err(ServiceError::ClientLeft),
    }
}

/// Why a connection is closed without an answer.
#[derive(Debug)]
enum ServiceError<E> {
    Hangup(E),
    ClientLeft,
}

impl<E: Error> fmt::Display for ServiceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hangup(error) => fmt::Display::fmt(error, f),
            Self::ClientLeft => f.write_str("the client left"),
        }
    }
}

impl<E: Error> Error for ServiceError<E> {}
