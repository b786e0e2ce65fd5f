//! Idle connections to origins, kept for the next request to the same scheme, host and port that asks no more of them.
//!
//! A connection is kept beside the future that drives it and is polled by whoever uses it: no task of its own, no
//! wake-up of another thread. While it is idle nobody polls it, so it is asked once before it is used again.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hyper::client::conn::http1::{Connection, SendRequest};
use indexmap::IndexMap;

use crate::model::certificate_verification::CertificateVerification;

use super::body::RequestUpload;
use super::destination::VettedAddresses;
use super::head::timer::LazyTimer;
use super::origin_tls::OriginStream;

const SHARDS: usize = 16;
/// How long a connection beyond `idle_per_host` is kept, in case the burst that opened it goes on.
const SURPLUS_GRACE: Duration = Duration::from_secs(1);
/// How many hosts are looked at for the connection that has been idle for longest, where one must go.
const EVICTION_SAMPLE: usize = 8;

/// How many idle connections are kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// For one authority, once they have been idle for a second: a burst keeps what it opened for its next turn.
    pub per_host: usize,
    /// For all of them.
    pub total: usize,
    /// How long one may be idle.
    pub idle: Duration,
}

/// A connection to an origin: its sender and the future that drives it.
#[derive(Debug)]
pub struct OriginConnection {
    /// Takes requests.
    pub sender: SendRequest<RequestUpload>,
    /// Reads and writes the socket; must be polled while a request is under way.
    pub driver: Connection<OriginStream, RequestUpload>,
    /// The address that was dialled.
    pub address: SocketAddr,
    /// The scheme, host and port under which it is kept: `https://host/`.
    pub base: Box<str>,
    /// Whether the origin has proved who it is.
    pub verify: CertificateVerification,
    /// Runs while an answer is waited for.
    pub(crate) response_timer: LazyTimer,
}

impl OriginConnection {
    /// Drives the connection; ready once it has ended.
    pub fn poll_drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.driver).poll(cx).map(|_| ())
    }

    /// Whether it can take a request now: neither closed by the origin, nor with bytes that nobody asked for.
    fn is_usable(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        self.poll_drive(&mut cx).is_pending() && self.sender.is_ready()
    }
}

/// What connections are kept under. One whose origin has proved nothing never serves a request that asks for proof,
/// and nothing sent in the clear stands for TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolKey<'a> {
    /// Scheme, host and port: `https://host/`.
    pub base: &'a str,
    /// Whether the origin has to prove who it is; without TLS there is nothing to prove.
    pub verify: CertificateVerification,
}

/// A connection out of the pool.
#[derive(Debug)]
pub struct PooledConnection {
    /// The connection.
    pub connection: Box<OriginConnection>,
    /// How long it was idle.
    pub idle_for: Duration,
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

/// Idle connections of one kind, by what their URLs begin with; in an order, so that some can be looked at.
type PoolShard = IndexMap<Box<str>, Vec<IdleConnection>>;

/// Idle connections by their places.
#[derive(Debug)]
pub struct ConnectionPool {
    verified: [Mutex<PoolShard>; SHARDS],
    unverified: [Mutex<PoolShard>; SHARDS],
    count: AtomicUsize,
    /// Where the next connection that must go is looked for.
    eviction_cursor: AtomicUsize,
    limits: PoolLimits,
}

impl ConnectionPool {
    /// An empty pool.
    pub fn new(limits: PoolLimits) -> Self {
        Self {
            verified: std::array::from_fn(|_| Mutex::default()),
            unverified: std::array::from_fn(|_| Mutex::default()),
            count: AtomicUsize::new(0),
            eviction_cursor: AtomicUsize::new(0),
            limits,
        }
    }

    /// The connection of a place that was used last, if its address is among those vetted for this request.
    pub fn take(
        &self,
        key: PoolKey<'_>,
        vetted: &VettedAddresses,
        now: Instant,
    ) -> Option<PooledConnection> {
        let mut shard = self.shard(key);
        let idle = shard.get_mut(key.base)?;
        while let Some(mut last) = idle.pop() {
            self.count.fetch_sub(1, Ordering::Relaxed);
            let idle_for = now.saturating_duration_since(last.since);
            let fits = idle_for < self.limits.idle
                && vetted.addresses().contains(&last.connection.address);
            if fits && last.connection.is_usable() {
                return Some(PooledConnection {
                    connection: last.connection,
                    idle_for,
                });
            }
        }
        None
    }

    /// Keeps a connection whose last answer has been read to its end.
    pub fn put(&self, connection: Box<OriginConnection>, now: Instant) {
        if connection.sender.is_closed() || self.limits.per_host == 0 {
            return;
        }
        let mut shard = self.shard(PoolKey {
            base: &connection.base,
            verify: connection.verify,
        });
        if self.count.load(Ordering::Relaxed) >= self.limits.total && !self.evict(&mut shard) {
            return;
        }
        let kept = match shard.get_mut(&*connection.base) {
            Some(kept) => kept,
            None => shard.entry(connection.base.clone()).or_default(),
        };
        kept.push(IdleConnection {
            connection,
            since: now,
        });
        self.count.fetch_add(1, Ordering::Relaxed);
        // The ones at the front are used last, so they are the surplus once they have been idle for a while.
        if kept.len() > self.limits.per_host && kept.first().is_some_and(|i| i.is_surplus(now)) {
            kept.remove(0);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Closes connections that have been idle for too long or are surplus, and forgets hosts that have none.
    pub fn sweep(&self, now: Instant) {
        for shard in self.shards() {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|_, idle| {
                let before = idle.len();
                let mut surplus = idle.len().saturating_sub(self.limits.per_host);
                idle.retain(|i| {
                    let drop = surplus > 0 && i.is_surplus(now);
                    surplus -= usize::from(drop);
                    !drop && now.saturating_duration_since(i.since) < self.limits.idle
                });
                self.count.fetch_sub(before - idle.len(), Ordering::Relaxed);
                !idle.is_empty()
            });
        }
    }

    /// Closes every idle connection: after a reload the old addresses may no longer be allowed.
    pub fn clear(&self) {
        for shard in self.shards() {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let dropped: usize = shard.drain(..).map(|(_, idle)| idle.len()).sum();
            self.count.fetch_sub(dropped, Ordering::Relaxed);
        }
    }

    /// How many connections are idle.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes room by closing the connection that has been idle for longest among those of a few hosts of this shard.
    /// To look at all of them would cost each new host a walk over the pool.
    fn evict(&self, shard: &mut PoolShard) -> bool {
        let hosts = shard.len().max(1);
        let from = self
            .eviction_cursor
            .fetch_add(EVICTION_SAMPLE, Ordering::Relaxed)
            % hosts;
        // Hosts without an idle connection, whose connections are in use, are passed by.
        let places = (0..shard.len()).map(|step| (from + step) % hosts);
        let idle = places.filter_map(|at| Some((shard.get_index(at)?.1.first()?.since, at)));
        let Some((_, at)) = idle.take(EVICTION_SAMPLE).min() else {
            return false;
        };
        let Some((_, idle)) = shard.get_index_mut(at) else {
            return false;
        };
        idle.remove(0);
        if idle.is_empty() {
            shard.swap_remove_index(at);
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
        true
    }

    fn shards(&self) -> impl Iterator<Item = &Mutex<PoolShard>> {
        self.verified.iter().chain(&self.unverified)
    }

    fn shard(&self, key: PoolKey<'_>) -> std::sync::MutexGuard<'_, PoolShard> {
        let shards = match key.verify {
            CertificateVerification::On => &self.verified,
            CertificateVerification::Skip => &self.unverified,
        };
        // Where many meet costs only waiting; the map within a shard has a hash that clients cannot guess.
        let mixed = key.base.bytes().fold(0, |sum: usize, byte| {
            sum.wrapping_mul(31).wrapping_add(byte.into())
        });
        let number = mixed % SHARDS;
        // The modulus keeps the number inside the array; the first shard stands in for what cannot happen.
        let shard = shards.get(number).unwrap_or(&shards[0]);
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
