//! From a listening socket to connections that hyper serves, each in one task of its own.
//!
//! Who answers the requests, and what the answers to refused heads and full houses say, is the [`Owner`]'s.

mod exchange;
mod room;

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
use super::drain::{DrainWatch, Stage};
use super::head::{
    ClientWatch, Handover, HeadEvents, HeadLimits, HeadReader, ReaderSettings, ServiceOpen, Turn,
};

pub use exchange::Entrance;
use room::Place;
pub use room::Room;

/// How long accepting pauses when the machine has run out of something: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// How long a client that finds no room may take to read that.
const FAREWELL: Duration = Duration::from_secs(1);
/// What a client whose CONNECT was refused may still send before its connection is closed.
const PARTING: usize = 64 * 1024;
/// Up to so many fields hyper reads a head without allocating for them.
const INLINE_FIELDS: usize = 100;
/// What hyper may read ahead of a body, and hold back of an answer.
const BUFFER: usize = 256 * 1024;

/// Limits of listeners.
#[derive(Clone, Copy, Debug)]
pub struct AcceptLimits {
    /// Connections in all.
    pub connections: usize,
    /// Connections of one client address.
    pub per_client: usize,
    /// The head reader's limits.
    pub reader: ReaderSettings,
}

/// Who answers what comes in by a listener.
pub trait Owner: HeadEvents + Send + Sync + 'static {
    /// What is kept for as long as a connection lives: its gauge, what its last request has looked up.
    type Kept: Send + Sync;
    /// The body of an answer.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;
    /// Why a connection is closed without an answer.
    type Error: Error + Send + Sync + 'static;

    /// A connection begins.
    fn connected(&self, peer: SocketAddr) -> Self::Kept;

    /// Answers a request. `open` must go with the answer's body to its end. If the client leaves, the future or the
    /// body is dropped.
    fn answer(
        &self,
        request: Request<Incoming>,
        open: ServiceOpen,
        connection: &Connection<Self::Kept>,
    ) -> impl Future<Output = Result<Response<Self::Body>, Self::Error>> + Send;

    /// Goes on with a connection whose last answer was one to CONNECT, until it ends. What comes back is HTTP again,
    /// inside the tunnel, and is served as such.
    fn carry_on(
        &self,
        client: Handover,
        connection: &mut Connection<Self::Kept>,
        drain: &mut DrainWatch,
    ) -> impl Future<Output = Option<Handover>> + Send;

    /// The whole answer to a client that finds no room; the connection closes behind it.
    fn overloaded(&self, peer: SocketAddr) -> Bytes;
}

/// What a connection's requests have in common.
#[derive(Debug)]
pub struct Connection<K> {
    /// The client's address.
    pub peer: SocketAddr,
    /// Sees the client leave. Who waits with a body unread need not ask: the request is dropped then, too.
    pub client: ClientWatch,
    /// The owner's.
    pub kept: K,
}

/// Accepts connections until the drain begins; those under way go on in their own tasks.
///
/// `room` may be shared by listeners.
pub async fn serve<O: Owner>(
    listener: TcpListener,
    room: Arc<Room>,
    reader: ReaderSettings,
    owner: Arc<O>,
    mut drain: DrainWatch,
) {
    let mut pause = PAUSES.0;
    loop {
        let accepted = tokio::select! {
            biased;
            () = drain.begun() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, peer)) => {
                pause = PAUSES.0;
                admit(socket, peer, &room, reader, &owner, &drain);
            }
            Err(error) if is_the_clients(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections; trying again in {pause:?}");
                tokio::time::sleep(pause).await;
                pause = PAUSES.1.min(2 * pause);
            }
        }
    }
}

/// A client that left before it was accepted costs nothing. Other errors are the machine's, such as having no file
/// descriptors left: they come again at once.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(
        error.kind(),
        K::ConnectionAborted | K::ConnectionReset | K::Interrupted
    )
}

fn admit<O: Owner>(
    socket: TcpStream,
    peer: SocketAddr,
    room: &Arc<Room>,
    reader: ReaderSettings,
    owner: &Arc<O>,
    drain: &DrainWatch,
) {
    // It fails if the client has gone.
    let _ = socket.set_nodelay(true);
    let owner = Arc::clone(owner);
    match Room::take(room, peer.ip()) {
        Some(place) => {
            // Boxed, since a task is moved several times before it is in its place.
            tokio::spawn(Box::pin(connection(
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
            let Some(place) = Room::take_farewell(room) else {
                return;
            };
            tokio::spawn(async move {
                let _place = place;
                send_away(socket, owner.overloaded(peer)).await;
            });
        }
    }
}

async fn send_away(mut socket: TcpStream, answer: Bytes) {
    // All that can fail here is that the client has gone.
    let _ = tokio::time::timeout(FAREWELL, async {
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
pub(in crate::proxy) async fn part(client: &mut Handover) {
    let _ = tokio::time::timeout(FAREWELL, async {
        client.shut_down().await;
        let mut left = PARTING;
        loop {
            match client.receive_unread().await? {
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
async fn connection<O: Owner>(
    socket: TcpStream,
    peer: SocketAddr,
    place: Place,
    settings: ReaderSettings,
    owner: Arc<O>,
    mut drain: DrainWatch,
) {
    let mut client = Handover::from(socket);
    let mut connection = Connection {
        peer,
        client: client.watch(),
        kept: owner.connected(peer),
    };
    while let Some(behind) = serve_http(client, &owner, &connection, settings, &mut drain).await {
        // Boxed, as all that most connections never do.
        match Box::pin(owner.carry_on(behind, &mut connection, &mut drain)).await {
            Some(inside) => client = inside,
            None => break,
        }
    }
    drop(place);
}

/// Serves HTTP until the connection ends, or a CONNECT is answered: then the socket comes back, for what follows.
async fn serve_http<O: Owner>(
    client: Handover,
    owner: &Arc<O>,
    connection: &Connection<O::Kept>,
    settings: ReaderSettings,
    drain: &mut DrainWatch,
) -> Option<Handover> {
    let turn = Arc::new(Turn::default());
    let reader = HeadReader::new(client, Arc::clone(owner), settings, Arc::clone(&turn));
    let behind = Behind::default();
    let service = service_fn(|request| answer(&**owner, request, &turn, connection, &behind));
    let ended = {
        // Gone with this block: hyper leaves the socket only if it came to do so.
        let mut served = pin!(
            http(settings.limits)
                .serve_connection(reader, service)
                .with_upgrades()
        );
        let mut told = Stage::Serving;
        poll_fn(|cx| {
            let stage = drain.poll_stage(cx);
            if stage == Stage::CutOff {
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
            connection.client.reset_at_end();
        }
        tracing::debug!(%error, peer = %connection.peer, "connection ended");
        return None;
    }
    behind.socket::<O>().await
}

/// Where hyper leaves the socket behind the answer to a CONNECT.
#[derive(Default)]
struct Behind(Mutex<Option<OnUpgrade>>);

impl Behind {
    fn expect(&self, upgrade: OnUpgrade) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
    }

    async fn socket<O: Owner>(&self) -> Option<Handover> {
        let upgrade = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()?;
        let upgraded = upgrade.await.ok()?;
        let parts = upgraded.downcast::<HeadReader<Arc<O>>>().ok()?;
        let mut client = parts.io.into_handover();
        // hyper's bytes came first.
        client.unread.splice(..0, parts.read_buf);
        Some(client)
    }
}

/// hyper's part. The reader has limits and time-outs of its own, and hyper's would answer without a reason: they are
/// off or wider, so no timer is needed.
fn http(limits: HeadLimits) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.header_read_timeout(None)
        .half_close(false)
        .keep_alive(true);
    // A target may be three times as long when it is encoded.
    http.max_buf_size(BUFFER.max(limits.bytes + 2 * limits.target));
    if limits.fields != INLINE_FIELDS {
        http.max_headers(limits.fields);
    }
    http
}

/// Answers one request, the connection's last if the head reader sees nothing of what follows it.
///
/// The turn begins with the call, before anything is awaited.
fn answer<O: Owner>(
    owner: &O,
    mut request: Request<Incoming>,
    turn: &Arc<Turn>,
    connection: &Connection<O::Kept>,
    behind: &Behind,
) -> impl Future<Output = Result<Response<O::Body>, Unanswered<O::Error>>> {
    let (open, last, connect) = (
        turn.begin(),
        turn.is_last(),
        request.method() == Method::CONNECT,
    );
    if connect {
        behind.expect(hyper::upgrade::on(&mut request));
    }
    async move {
        if !last && request.body().is_end_stream() {
            return owner
                .answer(request, open, connection)
                .await
                .map_err(Unanswered::Hangup);
        }
        // Boxed, as all that few requests do: hyper moves the whole future for each of them.
        let mut response = Box::pin(answer_watched(owner, request, open, connection)).await?;
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
async fn answer_watched<O: Owner>(
    owner: &O,
    request: Request<Incoming>,
    open: ServiceOpen,
    connection: &Connection<O::Kept>,
) -> Result<Response<O::Body>, Unanswered<O::Error>> {
    tokio::select! {
        biased;
        answered = owner.answer(request, open, connection) => answered.map_err(Unanswered::Hangup),
        () = connection.client.left() => Err(Unanswered::ClientLeft),
    }
}

/// Why a connection is closed without an answer.
#[derive(Debug)]
enum Unanswered<E> {
    Hangup(E),
    ClientLeft,
}

impl<E: Error> fmt::Display for Unanswered<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hangup(error) => fmt::Display::fmt(error, f),
            Self::ClientLeft => f.write_str("the client left"),
        }
    }
}

impl<E: Error> Error for Unanswered<E> {}
