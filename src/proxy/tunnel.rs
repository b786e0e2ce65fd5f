//! Opaque tunnels: the limit per host, the relay of bytes, and the events that end a tunnel.
//!
//! The pipeline decides whether a tunnel may be opened, and `connect` inspects its first bytes.
//! This module does not inspect the data.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::coop::consume_budget;
use tokio::time::{sleep, sleep_until};

use crate::clock::Clock;
use crate::fleet::owners::OwnershipWatch;
use crate::metrics::{GaugeGuard, Metrics};
use crate::tls::maybe_tls_stream::MaybeTlsStream;

use super::dial::DialLimits;
use super::drain::{DrainStage, DrainWatch};
use super::head::{ClientIo, ClientSocket};

/// The number of bytes read at a time.
const CHUNK: usize = 64 * 1024;
/// The number of bytes read at a time in a tunnel inside TLS or HTTP/2.
const LAYERED_CHUNK: usize = 16 * 1024;
/// The time after which a silent tunnel is closed while the proxy shuts down.
const DRAIN_IDLE: Duration = Duration::from_secs(3);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelSettings {
    /// `egress.connect_ports`: the ports that a CONNECT may use.
    pub connect_ports: Vec<RangeInclusive<u16>>,
    /// `egress.tls_ports`: the ports whose tunnels must carry TLS.
    pub tls_ports: Vec<RangeInclusive<u16>>,
    /// `limits.tunnels_per_host`.
    pub per_host: usize,
    /// The time limits of connecting to the origin.
    pub dial: DialLimits,
    /// `timeouts.tls`: the time in which a client must send enough bytes to identify the protocol.
    pub hello: Duration,
    /// `timeouts.tunnel_idle`: the longest time without data.
    pub idle: Duration,
    /// `timeouts.tunnel`: the longest time that a tunnel may be open.
    pub total: Duration,
}

/// The limiter of opaque tunnels.
#[derive(Debug)]
pub struct TunnelLimiter {
    /// The settings that apply to every tunnel.
    pub settings: TunnelSettings,
    metrics: Metrics,
    by_host: Arc<Mutex<HashMap<Box<str>, usize>>>,
}

/// A tunnel's share of its host's limit, released on drop.
#[derive(Debug)]
pub struct TunnelSlot {
    host: Box<str>,
    by_host: Arc<Mutex<HashMap<Box<str>, usize>>>,
    _gauge: GaugeGuard,
}

impl TunnelLimiter {
    /// Creates a limiter without open tunnels.
    pub fn new(settings: TunnelSettings, metrics: Metrics) -> Self {
        Self {
            settings,
            metrics,
            by_host: Arc::default(),
        }
    }

    /// Returns a slot for a tunnel to this host, unless the limit is reached.
    pub(super) fn acquire(&self, host: &str) -> Option<TunnelSlot> {
        let mut by_host = self.by_host.lock();
        let count = by_host.entry(host.into()).or_default();
        if *count >= self.settings.per_host {
            return None;
        }
        *count += 1;
        Some(TunnelSlot {
            host: host.into(),
            by_host: Arc::clone(&self.by_host),
            _gauge: self.metrics.track_tunnel(),
        })
    }
}

impl Drop for TunnelSlot {
    fn drop(&mut self) {
        let mut by_host = self.by_host.lock();
        if let Some(count) = by_host.get_mut(&self.host) {
            *count -= 1;
            if *count == 0 {
                by_host.remove(&self.host);
            }
        }
    }
}

/// The event that ended a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TunnelEnd {
    /// Both sides have closed.
    Closed,
    /// The client's connection broke off.
    ClientLeft,
    /// The origin's connection broke off.
    OriginLeft,
    /// No data was transferred for `timeouts.tunnel_idle`.
    Idle,
    /// The tunnel was open for `timeouts.tunnel`.
    Expired,
    /// The proxy shut down.
    Drained,
    /// The active policy refuses the tunnel.
    Refused,
    /// An operator has stopped its host, its crawler or a rule that applies.
    Stopped,
    /// The lease of this node of a fleet has ended.
    LeaseEnded,
}

/// The number of transferred bytes, and the time of the last transfer.
#[derive(Debug)]
pub(super) struct TunnelMeter {
    clock: Clock,
    opened: Instant,
    up: AtomicU64,
    down: AtomicU64,
    /// Microseconds since the opening.
    last_activity: AtomicU64,
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TunnelDirection {
    Up,
    Down,
}

impl TunnelMeter {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            opened: clock.now(),
            clock,
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            last_activity: AtomicU64::new(0),
        }
    }

    /// Returns the number of bytes from the client and from the origin.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (
            self.up.load(Ordering::Relaxed),
            self.down.load(Ordering::Relaxed),
        )
    }

    fn record(&self, direction: TunnelDirection, bytes: usize) {
        let counter = match direction {
            TunnelDirection::Up => &self.up,
            TunnelDirection::Down => &self.down,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        let since = self.clock.now().saturating_duration_since(self.opened);
        self.last_activity.store(
            u64::try_from(since.as_micros()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    fn last_activity(&self) -> Instant {
        self.opened + Duration::from_micros(self.last_activity.load(Ordering::Relaxed))
    }
}

/// The events that can end a tunnel from outside.
pub(super) struct TunnelWatch<'t, J> {
    pub(super) settings: &'t TunnelSettings,
    pub(super) drain: &'t mut DrainWatch,
    /// Notified when another policy becomes active.
    pub(super) policies: watch::Receiver<()>,
    /// Notified when a stop is added or removed.
    pub(super) stops: watch::Receiver<()>,
    /// The ownership of the host, if this is a node of a fleet.
    pub(super) ownership: Option<Box<OwnershipWatch>>,
    /// Returns the decision of the active policy and the stops on the open tunnel.
    pub(super) evaluate: J,
}

/// The decision of the active policy and the stops on an open tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TunnelAdmission {
    Admitted,
    Refused,
    Stopped,
}

/// Relays bytes between two sides until both have closed, or another event ends the tunnel. `first`
/// contains the bytes that the client has sent already.
pub(super) async fn relay<J: FnMut() -> TunnelAdmission>(
    client: &TcpStream,
    origin: &TcpStream,
    first: Vec<u8>,
    meter: &TunnelMeter,
    watch: TunnelWatch<'_, J>,
) -> TunnelEnd {
    let upload = async move {
        send_all(origin, &first, TunnelDirection::Up, meter)
            .await
            .map_err(|_| TunnelEnd::OriginLeft)?;
        drop(first);
        relay_one_way(client, origin, TunnelDirection::Up, meter).await
    };
    let down = relay_one_way(origin, client, TunnelDirection::Down, meter);
    let end = wait_end(upload, down, meter, watch).await;
    if is_broken(end) {
        // The other side must notice the failure: an orderly close could be taken for the end of
        // the data.
        for side in [client, origin] {
            let _ = SockRef::from(side).set_linger(Some(Duration::ZERO));
        }
    }
    end
}

/// Returns `true` if both sides must notice that the data is not complete.
fn is_broken(end: TunnelEnd) -> bool {
    match end {
        TunnelEnd::ClientLeft | TunnelEnd::OriginLeft | TunnelEnd::LeaseEnded => true,
        TunnelEnd::Closed
        | TunnelEnd::Idle
        | TunnelEnd::Expired
        | TunnelEnd::Drained
        | TunnelEnd::Refused
        | TunnelEnd::Stopped => false,
    }
}

/// Relays bytes like [`relay`] if one side is not a socket: a client whose tunnel is inside TLS to the
/// proxy or a stream of an HTTP/2 connection, or an origin behind an HTTPS proxy.
pub(super) async fn relay_layered<J: FnMut() -> TunnelAdmission>(
    client: ClientSocket,
    origin: &mut MaybeTlsStream,
    meter: &TunnelMeter,
    watch: TunnelWatch<'_, J>,
) -> TunnelEnd {
    let client_watch = client.watch();
    let (receiver, sender) = tokio::io::split(ClientIo::new(client, watch.settings.idle));
    let end = match &mut *origin {
        // The halves of a socket need no lock.
        MaybeTlsStream::Plain(tcp) => {
            let (from_origin, to_origin) = tcp.split();
            let upload = relay_up(receiver, to_origin, meter);
            let down = relay_down(from_origin, sender, meter);
            wait_end(upload, down, meter, watch).await
        }
        MaybeTlsStream::Tls(tls) => {
            let (from_origin, to_origin) = tokio::io::split(tls);
            let upload = relay_up(receiver, to_origin, meter);
            let down = relay_down(from_origin, sender, meter);
            wait_end(upload, down, meter, watch).await
        }
    };
    if is_broken(end) {
        let _ = SockRef::from(origin.socket()).set_linger(Some(Duration::ZERO));
        client_watch.reset_on_drop();
    }
    end
}

/// Relays a layered client's bytes to the origin, and their end.
async fn relay_up(
    mut client: ReadHalf<ClientIo>,
    mut origin: impl AsyncWrite + Unpin,
    meter: &TunnelMeter,
) -> Result<(), TunnelEnd> {
    let mut chunk = Vec::with_capacity(LAYERED_CHUNK);
    loop {
        consume_budget().await;
        chunk.clear();
        match client.read_buf(&mut chunk).await {
            Ok(0) => {
                let _ = origin.shutdown().await;
                return Ok(());
            }
            Ok(count) => {
                let sent = async {
                    origin.write_all(&chunk).await?;
                    origin.flush().await
                };
                sent.await.map_err(|_| TunnelEnd::OriginLeft)?;
                meter.record(TunnelDirection::Up, count);
            }
            Err(_) => return Err(TunnelEnd::ClientLeft),
        }
    }
}

/// Relays the origin's bytes to a layered client, and their end.
async fn relay_down(
    mut origin: impl AsyncRead + Unpin,
    mut client: WriteHalf<ClientIo>,
    meter: &TunnelMeter,
) -> Result<(), TunnelEnd> {
    loop {
        let received = receive_chunk(&mut origin).await;
        let chunk = received.map_err(|_| TunnelEnd::OriginLeft)?;
        if chunk.is_empty() {
            let _ = client.shutdown().await;
            return Ok(());
        }
        let sent = async {
            client.write_all(&chunk).await?;
            client.flush().await
        };
        sent.await.map_err(|_| TunnelEnd::ClientLeft)?;
        meter.record(TunnelDirection::Down, chunk.len());
        consume_budget().await;
    }
}

/// Receives bytes; none at the end. Nothing is allocated while there are none, since most tunnels are
/// silent most of the time.
async fn receive_chunk(origin: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    poll_fn(|cx| {
        let mut room = [MaybeUninit::uninit(); LAYERED_CHUNK];
        let mut received = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut *origin).poll_read(cx, &mut received))?;
        Poll::Ready(Ok(received.filled().to_vec()))
    })
    .await
}

/// Waits until both directions have ended, or another event ends the tunnel.
async fn wait_end<J: FnMut() -> TunnelAdmission>(
    upload: impl Future<Output = Result<(), TunnelEnd>>,
    down: impl Future<Output = Result<(), TunnelEnd>>,
    meter: &TunnelMeter,
    mut watch: TunnelWatch<'_, J>,
) -> TunnelEnd {
    tokio::select! {
        both = async { tokio::try_join!(upload, down) } => both.err().unwrap_or(TunnelEnd::Closed),
        () = wait_idle(meter, watch.settings.idle) => TunnelEnd::Idle,
        () = sleep(watch.settings.total) => TunnelEnd::Expired,
        () = wait_drained(watch.drain, meter) => TunnelEnd::Drained,
        end = wait_refused(&mut watch.policies, &mut watch.stops, &mut watch.evaluate) => end,
        () = wait_lease_ended(watch.ownership.as_deref_mut()) => TunnelEnd::LeaseEnded,
    }
}

/// Relays bytes in one direction until the end, and forwards the end.
async fn relay_one_way(
    from: &TcpStream,
    to: &TcpStream,
    direction: TunnelDirection,
    meter: &TunnelMeter,
) -> Result<(), TunnelEnd> {
    let sender_left = match direction {
        TunnelDirection::Up => TunnelEnd::ClientLeft,
        TunnelDirection::Down => TunnelEnd::OriginLeft,
    };
    let receiver_left = match direction {
        TunnelDirection::Up => TunnelEnd::OriginLeft,
        TunnelDirection::Down => TunnelEnd::ClientLeft,
    };
    loop {
        from.readable().await.map_err(|_| sender_left)?;
        // Allocated only while data is transferred: most tunnels are silent most of the time.
        let mut chunk = Vec::with_capacity(CHUNK);
        loop {
            // Two fast sides would otherwise starve all other futures: other tunnels, and the
            // events that end this one.
            consume_budget().await;
            chunk.clear();
            match from.try_read_buf(&mut chunk) {
                Ok(0) => {
                    let _ = SockRef::from(to).shutdown(Shutdown::Write);
                    return Ok(());
                }
                Ok(_) => send_all(to, &chunk, direction, meter)
                    .await
                    .map_err(|_| receiver_left)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return Err(sender_left),
            }
        }
    }
}

async fn send_all(
    to: &TcpStream,
    mut bytes: &[u8],
    direction: TunnelDirection,
    meter: &TunnelMeter,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(sent) => {
                meter.record(direction, sent);
                bytes = bytes.get(sent..).unwrap_or_default();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Ready when no data was transferred for `length`.
async fn wait_idle(meter: &TunnelMeter, length: Duration) {
    loop {
        let deadline = meter.last_activity() + length;
        if meter.clock.now() >= deadline {
            return;
        }
        sleep_until(deadline.into()).await;
    }
}

/// Ready when the tunnel must end because of the shutdown: when it is silent, at the latest at the
/// cut-off.
async fn wait_drained(drain: &mut DrainWatch, meter: &TunnelMeter) {
    drain.wait_begun().await;
    let began = meter.clock.now();
    let silent = async {
        sleep_until((began + DRAIN_IDLE).into()).await;
        wait_idle(meter, DRAIN_IDLE).await;
    };
    tokio::select! {
        () = wait_cut_off(drain) => {}
        () = silent => {}
    }
}

/// Ready at the cut-off of a drain.
pub(super) async fn wait_cut_off(drain: &mut DrainWatch) {
    poll_fn(|cx| match drain.poll_stage(cx) {
        DrainStage::CutOff => Poll::Ready(()),
        DrainStage::Serving | DrainStage::Draining => Poll::Pending,
    })
    .await;
}

/// Ready when the tunnel must end because the lease of this node has ended; never on a node without a fleet.
async fn wait_lease_ended(ownership: Option<&mut OwnershipWatch>) {
    match ownership {
        Some(ownership) => ownership.wait_broken_off().await,
        None => std::future::pending().await,
    }
}

/// Ready when the active policy refuses the tunnel, or a stop covers it.
async fn wait_refused(
    policies: &mut watch::Receiver<()>,
    stops: &mut watch::Receiver<()>,
    evaluate: &mut impl FnMut() -> TunnelAdmission,
) -> TunnelEnd {
    loop {
        match evaluate() {
            TunnelAdmission::Admitted => {}
            TunnelAdmission::Refused => return TunnelEnd::Refused,
            TunnelAdmission::Stopped => return TunnelEnd::Stopped,
        }
        let changed = tokio::select! {
            changed = policies.changed() => changed,
            changed = stops.changed() => changed,
        };
        if changed.is_err() {
            // No further changes are possible.
            std::future::pending::<()>().await;
        }
    }
}
