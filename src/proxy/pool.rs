//! Connections to origins, kept for later requests with the same scheme, host, port and certificate
//! verification.
//!
//! An HTTP/1 connection is here while it is idle. It is stored together with the future that drives it, and is polled by the task that
//! uses it: it needs no task of its own and wakes no other thread. An idle connection is not
//! polled, so it is checked once before it is used again.
//!
//! An HTTP/2 connection is here as long as it takes requests, and has a task of its own.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hyper::client::conn::http1::{Connection, SendRequest};
use indexmap::IndexMap;
use parking_lot::{Mutex, MutexGuard};
use tokio::task::coop::unconstrained;

use crate::model::certificate_verification::CertificateVerification;
use crate::model::http_versions::OriginHttpVersions;

use super::body::RequestUpload;
use super::destination::VettedAddresses;
use super::head::timer::LazyTimer;
use super::parents::ConnectionRoute;
use super::read_allowance::ReadAllowance;
use super::upstream::{LimitedStream, SharedConnection, StreamReservation};

const SHARDS: usize = 16;
/// The time for which a connection above `idle_per_host` is kept, in case the burst that opened it
/// continues.
const SURPLUS_GRACE: Duration = Duration::from_secs(1);
/// The number of hosts that are examined to find the connection to evict.
const EVICTION_SAMPLE: usize = 8;

/// Limits of the connection pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// The maximum number of HTTP/1 connections for one authority. It applies to connections that
    /// have been idle for a second: a burst keeps the connections that it opened.
    pub per_host: usize,
    /// The maximum number in total.
    pub total: usize,
    /// The longest idle time.
    pub idle: Duration,
}

/// A connection to an origin: its sender and the future that drives it.
#[derive(Debug)]
pub struct OriginConnection {
    /// The sender of requests.
    pub sender: SendRequest<RequestUpload>,
    /// The future that reads and writes the socket; must be polled while a request is in progress.
    pub driver: Connection<LimitedStream, RequestUpload>,
    /// The number of bytes that one poll may read.
    pub(crate) allowance: Arc<ReadAllowance>,
    /// The address that was dialled.
    pub address: SocketAddr,
    /// The scheme, host and port of the origin: `https://host/`.
    pub base: Box<str>,
    /// `On` if the origin's certificate was verified.
    pub verify: CertificateVerification,
    /// The way to the origin.
    pub route: ConnectionRoute,
    pub(crate) response_timer: LazyTimer,
}

impl OriginConnection {
    /// Drives the connection; ready when it has ended.
    pub fn poll_drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.allowance.renew();
        Pin::new(&mut self.driver).poll(cx).map(|_| ())
    }

    /// Returns `true` if the connection can take a request: it is not closed, and has not received
    /// unexpected bytes. It reads them even if the turn of the task is over.
    pub(super) fn is_usable(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let drive = pin!(unconstrained(poll_fn(|cx| self.poll_drive(cx))));
        drive.poll(&mut cx).is_pending() && self.sender.is_ready()
    }
}

/// The key of idle connections. A connection with an unverified certificate never serves a request
/// that requires verification, and one without TLS never serves an `https` request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolKey<'a> {
    /// The scheme, host and port: `https://host/`.
    pub base: &'a str,
    /// `On` if the origin's certificate must be verified; irrelevant without TLS.
    pub verify: CertificateVerification,
    /// The way to the origin: a connection through one proxy never serves a request that goes another way.
    pub route: &'a ConnectionRoute,
}

/// A connection of the pool that can take a request at once.
#[derive(Debug)]
pub enum PooledConnection {
    /// An HTTP/1 connection, taken out of the pool.
    Exclusive {
        connection: Box<OriginConnection>,
        /// The time that it was idle.
        idle_for: Duration,
    },
    /// A stream of an HTTP/2 connection.
    Shared(StreamReservation),
}

#[derive(Debug)]
struct IdleConnection {
    connection: Box<OriginConnection>,
    since: Instant,
}

impl IdleConnection {
    fn is_surplus(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= SURPLUS_GRACE
    }
}

/// The connections to one origin.
#[derive(Debug, Default)]
struct OriginConnections {
    /// Idle HTTP/1 connections.
    idle: Vec<IdleConnection>,
    /// HTTP/2 connections: usually one, more if each has as many streams as the origin allows.
    shared: Vec<Arc<SharedConnection>>,
}

impl OriginConnections {
    fn is_empty(&self) -> bool {
        self.idle.is_empty() && self.shared.is_empty()
    }

    fn len(&self) -> usize {
        self.idle.len() + self.shared.len()
    }

    /// Reserves a stream of a connection on this way to one of these addresses.
    fn reserve(
        &self,
        route: &ConnectionRoute,
        vetted: &VettedAddresses,
        now: Instant,
    ) -> Option<StreamReservation> {
        self.shared
            .iter()
            .filter(|shared| shared.route() == route && vetted.covers(&shared.address()))
            .find_map(|shared| shared.reserve(now))
    }

    /// Removes HTTP/2 connections that take no more requests; returns their number. Their streams
    /// go on.
    fn remove_closing(&mut self) -> usize {
        let before = self.shared.len();
        self.shared.retain(|shared| !shared.is_closing());
        before - self.shared.len()
    }

    /// Returns the start of the longest idle time.
    fn oldest(&self, now: Instant) -> Option<Instant> {
        let shared = self
            .shared
            .iter()
            .filter_map(|shared| now.checked_sub(shared.idle_for(now)));
        self.idle
            .first()
            .map(|idle| idle.since)
            .into_iter()
            .chain(shared)
            .min()
    }

    /// Removes the connection that has been idle longest.
    fn remove_oldest(&mut self, now: Instant) {
        if self.idle.is_empty() {
            let oldest = (0..self.shared.len())
                .max_by_key(|at| self.shared.get(*at).map(|shared| shared.idle_for(now)));
            if let Some(at) = oldest {
                self.shared.swap_remove(at);
            }
        } else {
            self.idle.remove(0);
        }
    }
}

/// The connections by origin. The map is ordered, so that a sample can be examined.
type PoolShard = IndexMap<Box<str>, OriginConnections>;

#[derive(Debug)]
pub struct ConnectionPool {
    verified: [Mutex<PoolShard>; SHARDS],
    unverified: [Mutex<PoolShard>; SHARDS],
    count: AtomicUsize,
    /// The start of the next search for a connection to evict.
    eviction_cursor: AtomicUsize,
    limits: PoolLimits,
}

impl ConnectionPool {
    /// Creates an empty pool.
    pub fn new(limits: PoolLimits) -> Self {
        Self {
            verified: std::array::from_fn(|_| Mutex::default()),
            unverified: std::array::from_fn(|_| Mutex::default()),
            count: AtomicUsize::new(0),
            eviction_cursor: AtomicUsize::new(0),
            limits,
        }
    }

    /// Takes a stream of an HTTP/2 connection, if that may be used, or else the HTTP/1 connection
    /// that was used last. Its address is among those vetted for this request.
    pub fn take(
        &self,
        key: PoolKey<'_>,
        vetted: &VettedAddresses,
        versions: OriginHttpVersions,
        now: Instant,
    ) -> Option<PooledConnection> {
        let mut shard = self.shard(key);
        let connections = shard.get_mut(key.base)?;
        if versions == OriginHttpVersions::Http1And2
            && let Some(stream) = connections.reserve(key.route, vetted, now)
        {
            return Some(PooledConnection::Shared(stream));
        }
        let fits = |idle: &IdleConnection| idle.connection.route == *key.route;
        while let Some(at) = connections.idle.iter().rposition(fits) {
            let mut last = connections.idle.remove(at);
            self.count.fetch_sub(1, Ordering::Relaxed);
            let idle_for = now.saturating_duration_since(last.since);
            let fits = idle_for < self.limits.idle && vetted.covers(&last.connection.address);
            if fits && last.connection.is_usable() {
                return Some(PooledConnection::Exclusive {
                    connection: last.connection,
                    idle_for,
                });
            }
        }
        None
    }

    /// Reserves a stream of an HTTP/2 connection.
    pub fn take_stream(
        &self,
        key: PoolKey<'_>,
        vetted: &VettedAddresses,
        now: Instant,
    ) -> Option<StreamReservation> {
        self.shard(key)
            .get(key.base)?
            .reserve(key.route, vetted, now)
    }

    /// Stores an HTTP/2 connection, which other requests can use at once.
    pub fn share(&self, connection: &Arc<SharedConnection>, now: Instant) {
        if self.limits.per_host == 0 {
            return;
        }
        let mut shard = self.shard(PoolKey {
            base: connection.base(),
            verify: connection.verify(),
            route: connection.route(),
        });
        if self.is_full() && !self.evict(&mut shard, now) {
            return;
        }
        let connections = entry(&mut shard, connection.base());
        let closed = connections.remove_closing();
        connections.shared.push(Arc::clone(connection));
        self.count.fetch_add(1, Ordering::Relaxed);
        self.count.fetch_sub(closed, Ordering::Relaxed);
    }

    /// Stores a connection after its last response was read completely.
    pub fn put(&self, connection: Box<OriginConnection>, now: Instant) {
        if connection.sender.is_closed() || self.limits.per_host == 0 {
            return;
        }
        let mut shard = self.shard(PoolKey {
            base: &connection.base,
            verify: connection.verify,
            route: &connection.route,
        });
        if self.is_full() && !self.evict(&mut shard, now) {
            return;
        }
        let connections = &mut entry(&mut shard, &connection.base).idle;
        connections.push(IdleConnection {
            connection,
            since: now,
        });
        self.count.fetch_add(1, Ordering::Relaxed);
        // The first ones are used last, so they are surplus once they have been idle for a while.
        if connections.len() > self.limits.per_host
            && connections.first().is_some_and(|i| i.is_surplus(now))
        {
            connections.remove(0);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Closes connections that have been idle too long or are surplus, and removes hosts without
    /// connections.
    pub fn sweep(&self, now: Instant) {
        for shard in self.shards() {
            let mut shard = shard.lock();
            shard.retain(|_, connections| {
                let before = connections.len();
                connections
                    .shared
                    .retain(|s| !s.is_closing() && s.idle_for(now) < self.limits.idle);
                let idle = &mut connections.idle;
                let mut surplus = idle.len().saturating_sub(self.limits.per_host);
                idle.retain(|i| {
                    let drop = surplus > 0 && i.is_surplus(now);
                    surplus -= usize::from(drop);
                    !drop && now.saturating_duration_since(i.since) < self.limits.idle
                });
                self.count
                    .fetch_sub(before - connections.len(), Ordering::Relaxed);
                !connections.is_empty()
            });
        }
    }

    /// Closes every idle connection, and those with streams at the end of their last one: after a
    /// reload, their addresses may no longer be allowed.
    pub fn clear(&self) {
        for shard in self.shards() {
            let mut shard = shard.lock();
            let dropped: usize = shard.drain(..).map(|(_, all)| all.len()).sum();
            self.count.fetch_sub(dropped, Ordering::Relaxed);
        }
    }

    /// Returns the number of connections in the pool.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        self.len() >= self.limits.total
    }

    /// Returns `true` if there is no connection in the pool.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Evicts the connection that has been idle longest among a sample of hosts in this shard.
    /// Examining all hosts would cost each new host a walk over the pool.
    fn evict(&self, shard: &mut PoolShard, now: Instant) -> bool {
        let hosts = shard.len().max(1);
        let from = self
            .eviction_cursor
            .fetch_add(EVICTION_SAMPLE, Ordering::Relaxed)
            % hosts;
        // Skips hosts whose connections are all in use.
        let oldest = (0..shard.len())
            .map(|step| (from + step) % hosts)
            .filter_map(|at| Some((shard.get_index(at)?.1.oldest(now)?, at)))
            .take(EVICTION_SAMPLE)
            .min();
        let Some((_, at)) = oldest else {
            return false;
        };
        let Some((_, connections)) = shard.get_index_mut(at) else {
            return false;
        };
        connections.remove_oldest(now);
        if connections.is_empty() {
            shard.swap_remove_index(at);
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
        true
    }

    fn shards(&self) -> impl Iterator<Item = &Mutex<PoolShard>> {
        self.verified.iter().chain(&self.unverified)
    }

    fn shard(&self, key: PoolKey<'_>) -> MutexGuard<'_, PoolShard> {
        let shards = match key.verify {
            CertificateVerification::On => &self.verified,
            CertificateVerification::Skip => &self.unverified,
        };
        // Collisions between shards cost only waiting; the map within a shard uses a hash that
        // clients cannot predict.
        let mixed = key.base.bytes().fold(0, |sum: usize, byte| {
            sum.wrapping_mul(31).wrapping_add(byte.into())
        });
        let number = mixed % SHARDS;
        // The modulus keeps the index in bounds; the first shard is an unreachable fallback.
        let shard = shards.get(number).unwrap_or(&shards[0]);
        shard.lock()
    }
}

/// Returns the connections to an origin, in a new entry if it has none.
fn entry<'s>(shard: &'s mut PoolShard, base: &str) -> &'s mut OriginConnections {
    // Not `entry` alone: it would allocate the key for every connection that returns.
    match shard.get_index_of(base) {
        Some(at) => &mut shard[at],
        None => shard.entry(base.into()).or_default(),
    }
}
