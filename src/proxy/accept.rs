//! From a listening socket to connections that hyper serves, each in one task of its own.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::gate::refusal::Refusal;
use crate::metrics::labels::ForeignBytes;
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;

use super::drain::DrainWatch;
use super::head::{Foreign, HeadError, HeadEvents, HeadReader, ReaderSettings, Turn};
use super::http::{Exchange, bare_refusal};

/// How long accepting pauses when the machine has run out of something.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a client that finds no room may take to read that.
const FAREWELL: Duration = Duration::from_secs(1);

/// Limits of a listener.
#[derive(Clone, Copy, Debug)]
pub struct AcceptLimits {
    /// Connections in all.
    pub connections: usize,
    /// Connections of one client address.
    pub per_client: usize,
    /// The head reader's limits.
    pub reader: ReaderSettings,
}

/// Accepts connections until the drain begins; those under way go on in their own tasks.
pub async fn serve(listener: TcpListener, limits: AcceptLimits, exchange: Arc<Exchange>, drain: DrainWatch) {
    let room = Arc::new(Room::new(limits));
    let mut begun = drain.clone();
    loop {
        let accepted = tokio::select! {
            () = begun.begun() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, peer)) => admit(socket, peer, &room, limits, &exchange, &drain),
            Err(error) => pause_after(&error).await,
        }
    }
}

/// A client that left before it was accepted costs nothing; a machine without file descriptors must not spin.
async fn pause_after(error: &io::Error) {
    use io::ErrorKind as K;
    if !matches!(error.kind(), K::ConnectionAborted | K::ConnectionReset | K::Interrupted) {
        tracing::warn!(%error, "cannot accept connections");
        tokio::time::sleep(PAUSE).await;
    }
}

fn admit(
    socket: TcpStream,
    peer: SocketAddr,
    room: &Arc<Room>,
    limits: AcceptLimits,
    exchange: &Arc<Exchange>,
    drain: &DrainWatch,
) {
    let _ = socket.set_nodelay(true);
    let Some(place) = Room::take(room, peer.ip()) else {
        let refusal = Refusal::new(Reason::Overloaded, Stage::Identify);
        tokio::spawn(send_away(socket, bare_refusal(exchange, &refusal)));
        return;
    };
    tokio::spawn(connection(socket, place, limits.reader, Arc::clone(exchange), drain.clone()));
}

async fn send_away(mut socket: TcpStream, answer: Bytes) {
    let _ = tokio::time::timeout(FAREWELL, async {
        let _ = socket.write_all(&answer).await;
        let _ = socket.shutdown().await;
        // Reading what was sent keeps the answer from being lost to a reset.
        let mut sink = [0; 1024];
        while matches!(tokio::io::AsyncReadExt::read(&mut socket, &mut sink).await, Ok(read) if read > 0) {}
    })
    .await;
}

/// Serves one connection to its end.
async fn connection(
    socket: TcpStream,
    place: Place,
    settings: ReaderSettings,
    exchange: Arc<Exchange>,
    mut drain: DrainWatch,
) {
    let _open = exchange.recorder.metrics().connection();
    let turn = Arc::new(Turn::default());
    let reader = HeadReader::new(socket, Heads(Arc::clone(&exchange)), settings, Arc::clone(&turn));
    let service = service_fn(|request| {
        let open = turn.begin();
        let exchange = Arc::clone(&exchange);
        async move { exchange.answer(request, open).await }
    });
    let served = http1::Builder::new()
        // The reader has limits and time-outs of its own; hyper's would answer without a reason.
        .header_read_timeout(None)
        .half_close(false)
        .max_headers(settings.limits.fields + 1)
        .serve_connection(reader, service);
    let mut served = std::pin::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = drain.begun() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
    drop(place);
}

/// What the head reader tells.
struct Heads(Arc<Exchange>);

impl HeadEvents for Heads {
    fn refused(&self, error: HeadError) -> Bytes {
        let (reason, status, detail) = match error {
            HeadError::Malformed(what) => (Reason::BadRequest, None, what),
            HeadError::TargetTooLong => {
                (Reason::RequestTooLarge, Some(414), "the URL is longer than the limit")
            }
            HeadError::TooLarge => {
                (Reason::HeadersTooLarge, None, "the request's head is larger than the limit")
            }
            HeadError::Late => (Reason::RequestTimeout, None, "the request's head did not arrive in time"),
        };
        self.0.recorder.metrics().head_rejected(reason);
        let refusal = Refusal { status, ..Refusal::new(reason, Stage::Target).with_detail(detail) };
        bare_refusal(&self.0, &refusal)
    }

    fn foreign(&self, foreign: Foreign) {
        let kind = match foreign {
            Foreign::ClientHello => ForeignBytes::ClientHello,
            Foreign::Http2 => ForeignBytes::Http2Preface,
        };
        self.0.recorder.metrics().foreign_bytes(kind);
    }
}

/// Counts connections, in all and by client.
#[derive(Debug)]
struct Room {
    limits: AcceptLimits,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_client: HashMap<IpAddr, usize>,
}

/// A connection's place; given back when dropped.
#[derive(Debug)]
struct Place {
    room: Arc<Room>,
    client: IpAddr,
}

impl Room {
    fn new(limits: AcceptLimits) -> Self {
        Self { limits, taken: Mutex::default() }
    }

    fn take(room: &Arc<Self>, client: IpAddr) -> Option<Place> {
        let mut taken = room.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let of_client = taken.by_client.get(&client).copied().unwrap_or(0);
        if taken.all >= room.limits.connections || of_client >= room.limits.per_client {
            return None;
        }
        taken.all += 1;
        taken.by_client.insert(client, of_client + 1);
        Some(Place { room: Arc::clone(room), client })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.room.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        if let Some(count) = taken.by_client.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                taken.by_client.remove(&self.client);
            }
        }
    }
}
