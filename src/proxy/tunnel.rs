//! Open tunnels: how many there may be to one host, what ends them, and the bytes on their way.
//!
//! Whether a tunnel may be opened was decided before, by the gate; what its first bytes are, by `connect`. Nothing here
//! looks into them.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::Shutdown;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::coop::consume_budget;
use tokio::time::{sleep, sleep_until};

use crate::clock::Clock;
use crate::metrics::{Metrics, OpenTunnel};

use super::dial::DialLimits;
use super::drain::{DrainStage, DrainWatch};

/// Bytes that are read at a time.
const CHUNK: usize = 64 * 1024;
/// For how long a tunnel may be silent once the proxy is going down.
const DRAIN_IDLE: Duration = Duration::from_secs(3);

/// Which tunnels there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelSettings {
    /// `egress.connect_ports`: where a CONNECT may go.
    pub connect_ports: Vec<RangeInclusive<u16>>,
    /// `egress.tls_ports`: where a tunnel may carry TLS, and nothing else.
    pub tls_ports: Vec<RangeInclusive<u16>>,
    /// `limits.tunnels_per_host`.
    pub per_host: usize,
    /// Connecting.
    pub dial: DialLimits,
    /// `timeouts.tls`: how long a client may take for what tells the protocol.
    pub hello: Duration,
    /// `timeouts.tunnel_idle`: a tunnel in which nothing moves.
    pub idle: Duration,
    /// `timeouts.tunnel`: a whole tunnel.
    pub total: Duration,
}

/// The open tunnels of a proxy.
#[derive(Debug)]
pub struct TunnelLimiter {
    /// Which there may be.
    pub settings: TunnelSettings,
    metrics: Metrics,
    by_host: Arc<Mutex<HashMap<Box<str>, usize>>>,
}

/// A tunnel's place among those to its host; given back when dropped.
#[derive(Debug)]
pub struct TunnelSlot {
    host: Box<str>,
    by_host: Arc<Mutex<HashMap<Box<str>, usize>>>,
    _gauge: OpenTunnel,
}

impl TunnelLimiter {
    /// None is open yet.
    pub fn new(settings: TunnelSettings, metrics: Metrics) -> Self {
        Self {
            settings,
            metrics,
            by_host: Arc::default(),
        }
    }

    /// A place for a tunnel to this host, if there is one.
    pub(super) fn acquire(&self, host: &str) -> Option<TunnelSlot> {
        let mut by_host = lock(&self.by_host);
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
        let mut by_host = lock(&self.by_host);
        if let Some(count) = by_host.get_mut(&self.host) {
            *count -= 1;
            if *count == 0 {
                by_host.remove(&self.host);
            }
        }
    }
}

fn lock(by_host: &Mutex<HashMap<Box<str>, usize>>) -> MutexGuard<'_, HashMap<Box<str>, usize>> {
    by_host.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a tunnel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TunnelEnd {
    /// Both sides have said all.
    Closed,
    /// The client broke off.
    ClientLeft,
    /// The origin broke off.
    OriginLeft,
    /// Nothing moved for `timeouts.tunnel_idle`.
    Idle,
    /// It was open for `timeouts.tunnel`.
    Expired,
    /// The proxy is going down.
    Drained,
    /// The policy that is in force now refuses it.
    Refused,
    /// An operator has stopped its host, its crawler or a rule that applies.
    Stopped,
}

/// Bytes that a tunnel has carried, and when the last did.
#[derive(Debug)]
pub(super) struct TunnelMeter {
    clock: Clock,
    opened: Instant,
    up: AtomicU64,
    down: AtomicU64,
    /// Microseconds from the opening.
    last_activity: AtomicU64,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TunnelDirection {
    Up,
    Down,
}

impl TunnelMeter {
    pub(super) fn new(clock: Clock) -> Self {
        let opened = clock.now();
        let zero = AtomicU64::default;
        Self {
            clock,
            opened,
            up: zero(),
            down: zero(),
            last_activity: zero(),
        }
    }

    /// Bytes from the client and from the origin.
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

/// What a tunnel needs to know to end by itself.
pub(super) struct TunnelWatch<'t, J> {
    pub(super) settings: &'t TunnelSettings,
    pub(super) drain: &'t mut DrainWatch,
    /// Told when another policy is in force.
    pub(super) policies: watch::Receiver<()>,
    /// Told when something is stopped, or goes on.
    pub(super) stops: watch::Receiver<()>,
    /// Says whether the policy in force and the stops still admit the tunnel.
    pub(super) evaluate: J,
}

/// What the policy in force, or a stop, says of an open tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TunnelAdmission {
    Admitted,
    Refused,
    Stopped,
}

/// Carries bytes between two sides until both have ended, or something ends the tunnel. `first` is what the client has
/// sent already.
pub(super) async fn relay<J: FnMut() -> TunnelAdmission>(
    client: &TcpStream,
    origin: &TcpStream,
    first: Vec<u8>,
    meter: &TunnelMeter,
    mut watching: TunnelWatch<'_, J>,
) -> TunnelEnd {
    let up = async move {
        send_all(origin, &first, TunnelDirection::Up, meter)
            .await
            .map_err(|_| TunnelEnd::OriginLeft)?;
        drop(first);
        relay_one_way(client, origin, TunnelDirection::Up, meter).await
    };
    let down = relay_one_way(origin, client, TunnelDirection::Down, meter);
    let end = tokio::select! {
        both = async { tokio::try_join!(up, down) } => both.err().unwrap_or(TunnelEnd::Closed),
        () = wait_idle(meter, watching.settings.idle) => TunnelEnd::Idle,
        () = sleep(watching.settings.total) => TunnelEnd::Expired,
        () = wait_drained(watching.drain, meter) => TunnelEnd::Drained,
        end = wait_refused(&mut watching.policies, &mut watching.stops, &mut watching.evaluate) => end,
    };
    if matches!(end, TunnelEnd::ClientLeft | TunnelEnd::OriginLeft) {
        // The other side is to see how it ended: an end in order could be taken for the end of what was being sent.
        for side in [client, origin] {
            let _ = SockRef::from(side).set_linger(Some(Duration::ZERO));
        }
    }
    end
}

/// Carries bytes one way to their end, and the end too.
async fn relay_one_way(
    from: &TcpStream,
    to: &TcpStream,
    direction: TunnelDirection,
    meter: &TunnelMeter,
) -> Result<(), TunnelEnd> {
    let (sender, receiver) = match direction {
        TunnelDirection::Up => (TunnelEnd::ClientLeft, TunnelEnd::OriginLeft),
        TunnelDirection::Down => (TunnelEnd::OriginLeft, TunnelEnd::ClientLeft),
    };
    loop {
        from.readable().await.map_err(|_| sender)?;
        // Only while bytes move: most of the time most tunnels are silent.
        let mut chunk = Vec::with_capacity(CHUNK);
        loop {
            // Two fast sides would never let anything else run: other tunnels, or what ends this one.
            consume_budget().await;
            chunk.clear();
            match from.try_read_buf(&mut chunk) {
                Ok(0) => {
                    let _ = SockRef::from(to).shutdown(Shutdown::Write);
                    return Ok(());
                }
                Ok(_) => send_all(to, &chunk, direction, meter)
                    .await
                    .map_err(|_| receiver)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return Err(sender),
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

/// Ready once nothing has moved for so long.
async fn wait_idle(meter: &TunnelMeter, length: Duration) {
    loop {
        let due = meter.last_activity() + length;
        if meter.clock.now() >= due {
            return;
        }
        sleep_until(due.into()).await;
    }
}

/// Ready when the tunnel is to end with the proxy: once it is silent, at the latest when all is cut off.
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

/// Ready when what is under way still is given up.
pub(super) async fn wait_cut_off(drain: &mut DrainWatch) {
    poll_fn(|cx| match drain.poll_stage(cx) {
        DrainStage::CutOff => Poll::Ready(()),
        DrainStage::Serving | DrainStage::Draining => Poll::Pending,
    })
    .await;
}

/// Ready once a policy is in force that refuses the tunnel, or a stop that covers it.
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
            // Nobody is left to change it.
            std::future::pending::<()>().await;
        }
    }
}
