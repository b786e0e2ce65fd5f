//! Idle connections to origins, kept for the next request to the same authority.
//!
//! A connection is kept beside the future that drives it and is polled by whoever uses it: no task of its own, no
//! wake-up of another thread. While it is idle nobody polls it, so it is asked once before it is used again.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hyper::client::conn::http1::{Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::body::Upload;
use super::destination::Vetted;
use super::head::timer::LazyTimer;

const SHARDS: usize = 16;
/// How long a connection beyond `idle_per_host` is kept, in case the burst that opened it goes on.
const GRACE: Duration = Duration::from_secs(1);

/// How many idle connections are kept, and for how long.
#[derive(Clone, Copy, Debug)]
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
pub struct Link {
    /// Takes requests.
    pub sender: SendRequest<Upload>,
    /// Reads and writes the socket; must be polled while a request is under way.
    pub driver: Connection<TokioIo<TcpStream>, Upload>,
    /// The address that was dialled.
    pub address: SocketAddr,
    /// The authority under which it is kept.
    pub authority: Box<str>,
    /// Runs while an answer is waited for.
    pub(in crate::proxy) answer: LazyTimer,
}

impl Link {
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

/// A connection out of the pool.
#[derive(Debug)]
pub struct Reused {
    /// The connection.
    pub link: Box<Link>,
    /// How long it was idle.
    pub idle_for: Duration,
}

#[derive(Debug)]
struct Idle {
    link: Box<Link>,
    since: Instant,
}

impl Idle {
    fn is_surplus(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= GRACE
    }
}

/// Idle connections by authority.
#[derive(Debug)]
pub struct Pool {
    shards: [Mutex<HashMap<Box<str>, Vec<Idle>>>; SHARDS],
    hasher: RandomState,
    count: AtomicUsize,
    limits: PoolLimits,
}

impl Pool {
    /// An empty pool.
    pub fn new(limits: PoolLimits) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            count: AtomicUsize::new(0),
            limits,
        }
    }

    /// The connection to an authority that was used last, if its address is among those vetted for this request.
    pub fn take(&self, authority: &str, vetted: &Vetted, now: Instant) -> Option<Reused> {
        let mut shard = self.shard(authority);
        let idle = shard.get_mut(authority)?;
        while let Some(mut last) = idle.pop() {
            self.count.fetch_sub(1, Ordering::Relaxed);
            let idle_for = now.saturating_duration_since(last.since);
            let fits = idle_for < self.limits.idle && vetted.addresses().contains(&last.link.address);
            if fits && last.link.is_usable() {
                return Some(Reused { link: last.link, idle_for });
            }
        }
        None
    }

    /// Keeps a connection whose last answer has been read to its end.
    pub fn put(&self, link: Box<Link>, now: Instant) {
        if link.sender.is_closed() || self.limits.per_host == 0 {
            return;
        }
        let mut shard = self.shard(&link.authority);
        if self.count.load(Ordering::Relaxed) >= self.limits.total && !self.evict(&mut shard) {
            return;
        }
        let kept = match shard.get_mut(&*link.authority) {
            Some(kept) => kept,
            None => shard.entry(link.authority.clone()).or_default(),
        };
        kept.push(Idle { link, since: now });
        self.count.fetch_add(1, Ordering::Relaxed);
        // The ones at the front are used last, so they are the surplus once they have been idle for a while.
        if kept.len() > self.limits.per_host && kept.first().is_some_and(|i| i.is_surplus(now)) {
            kept.remove(0);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Closes connections that have been idle for too long or are surplus, and forgets hosts that have none.
    pub fn sweep(&self, now: Instant) {
        for shard in &self.shards {
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
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let dropped: usize = shard.drain().map(|(_, idle)| idle.len()).sum();
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

    /// Makes room by closing the connection of this shard that has been idle for longest.
    fn evict(&self, shard: &mut HashMap<Box<str>, Vec<Idle>>) -> bool {
        let oldest = shard
            .values_mut()
            .filter(|idle| !idle.is_empty())
            .min_by_key(|idle| idle.first().map(|i| i.since));
        let Some(idle) = oldest else { return false };
        idle.remove(0);
        self.count.fetch_sub(1, Ordering::Relaxed);
        true
    }

    fn shard(&self, authority: &str) -> std::sync::MutexGuard<'_, HashMap<Box<str>, Vec<Idle>>> {
        let place = self.hasher.hash_one(authority) as usize % SHARDS;
        // The modulus keeps the place inside the array; the first shard stands in for what cannot happen.
        let shard = self.shards.get(place).unwrap_or(&self.shards[0]);
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
