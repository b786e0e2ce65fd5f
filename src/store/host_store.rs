//! The pacing state of hosts: a map in shards, each with its own lock.
//!
//! Times and paces are arguments, and waits are relative. A grant is a [`Lease`]. Nothing waits in here: a request
//! that has to wait tries again. A request that may go at once locks one shard and allocates nothing; its lease
//! refers to the host, so releasing it needs no lookup.

mod entry;

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::pacing::backoff::BackoffCause;
use crate::pacing::ban::BanSuspicion;
use crate::pacing::pace::{HostPace, PaceDecision, RequestKind, ResendDecision};
use crate::pacing::response_class::{Challenge, ResponseClass};

use super::sharded_map::{MapShard, SHARD_COUNT, ShardedMap, hash_name, shrink_if_sparse};
use entry::{Grant, HostEntry};

/// The pacing state of every host, address and domain.
#[derive(Debug)]
pub struct HostStore {
    hosts: ShardedMap<Arc<HostEntry>>,
    /// The seed of the hosts' jitter, combined with their names.
    seed: u64,
}

/// The unit of pacing: a host, an address or a domain, and the kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimiterKey<'k> {
    /// The host, the address or the domain.
    pub name: &'k str,
    /// Kinds are paced separately, but a backoff applies to all of them.
    pub kind: RequestKind,
}

/// A grant to send a request, to be released to the store that issued it. A lease that is dropped instead lasts
/// until it expires.
#[derive(Debug)]
#[must_use]
pub struct Lease {
    host: Arc<HostEntry>,
    kind: RequestKind,
    grant: Grant,
}

/// The outcome of a granted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// The request was not sent; the grant is returned.
    Unused,
    /// The request was sent, but the outcome is no evidence about the host: the client has left, or the response
    /// was recorded before.
    Abandoned,
    /// The origin sent no response, or an incomplete one.
    Failed,
    /// The origin sent a successful response that was not recorded before.
    Answered,
}

/// The state of a host, an address or a domain, for display.
#[derive(Clone, Copy, Debug)]
pub struct HostSnapshot {
    /// The pace of the last page request; `None` if there was none.
    pub pace: Option<HostPace>,
    /// The resulting delay, including the adaptive one.
    pub delay: Duration,
    /// The number of requests that may be in flight now.
    pub concurrency: u32,
    /// The time until another page may be requested, as far as it is known.
    pub until_next: Duration,
    /// The number of requests in flight, of every kind.
    pub in_flight: usize,
    /// The time at which the last request head was sent.
    pub last_sent: Option<Instant>,
    /// The rest of the current backoff, and its cause.
    pub backoff: Option<(Duration, BackoffCause)>,
    /// The number of consecutive failures.
    pub failures: u8,
    /// The number of recent backoffs.
    pub backoff_count: u8,
    /// The average latency.
    pub latency: Option<Duration>,
    /// The time until the byte budget is available again.
    pub byte_debt: Option<Duration>,
}

/// Counts over the whole store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// The number of hosts, addresses and domains.
    pub hosts: usize,
    /// The number of them that are backing off.
    pub backing_off: usize,
    /// The number of requests in flight.
    pub leases: usize,
}

impl HostStore {
    /// Creates an empty store with random jitter.
    pub fn new() -> Self {
        Self::with_seed(RandomState::new().hash_one(0))
    }

    /// Creates an empty store; the same seed generates the same jitter, so that a simulation is reproducible.
    pub fn with_seed(seed: u64) -> Self {
        Self {
            hosts: ShardedMap::new(),
            seed,
        }
    }

    /// Grants a request, or returns the time to wait.
    pub fn try_acquire(
        &self,
        key: LimiterKey<'_>,
        pace: &HostPace,
        now: Instant,
    ) -> PaceDecision<Lease> {
        let host = self.get_or_insert(key.name);
        match host.try_acquire(key.kind, pace, now) {
            PaceDecision::Granted(grant) => PaceDecision::Granted(Lease {
                host,
                kind: key.kind,
                grant,
            }),
            PaceDecision::Wait(wait) => PaceDecision::Wait(wait),
        }
    }

    /// Returns the state of one name, over all kinds of requests.
    pub fn host_snapshot(&self, name: &str, now: Instant) -> Option<HostSnapshot> {
        let host = self.hosts.lock_shard(name).get(name).map(Arc::clone)?;
        Some(host.snapshot(now))
    }

    /// Passes the state of every name to `visit`, in no order. A shard is locked only while its hosts are listed,
    /// and each host briefly after that.
    pub fn for_each_host(&self, now: Instant, mut visit: impl FnMut(&Arc<str>, HostSnapshot)) {
        for shard in 0..SHARD_COUNT {
            for host in self.hosts.shard_values(shard) {
                visit(host.name(), host.snapshot(now));
            }
        }
    }

    /// Removes hosts whose state equals that of a new one, and counts the others.
    pub fn sweep(&self, now: Instant) -> StoreStats {
        let mut stats = StoreStats::default();
        for mut hosts in self.hosts.lock_each() {
            // Another reference is a lease, or a request that is being admitted.
            hosts.retain(|_, host| Arc::strong_count(host) > 1 || !host.is_idle(now));
            shrink_if_sparse(&mut hosts);
            add_to_stats(&hosts, &mut stats, now);
        }
        stats
    }

    fn get_or_insert(&self, name: &str) -> Arc<HostEntry> {
        let mut hosts = self.hosts.lock_shard(name);
        if let Some(host) = hosts.get(name) {
            return Arc::clone(host);
        }
        let name: Arc<str> = name.into();
        let host = Arc::new(HostEntry::new(
            Arc::clone(&name),
            self.seed ^ hash_name(&name),
        ));
        hosts.insert(name, Arc::clone(&host));
        host
    }
}

impl Default for HostStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Lease {
    /// Returns the key that the lease was granted for.
    pub fn key(&self) -> LimiterKey<'_> {
        LimiterKey {
            name: self.host.name(),
            kind: self.kind,
        }
    }

    /// Returns the name that the lease was granted for, to be kept after its release.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(self.host.name())
    }

    /// Returns `true` if this request is the probe that follows a backoff.
    pub fn is_probe(&self) -> bool {
        self.grant.is_probe()
    }

    /// Records that the request head was sent: the delay of the next request and the expiry of the lease are
    /// measured from here.
    pub fn renew(&self, now: Instant) {
        self.host.record_sent(self.kind, self.grant, now);
    }

    /// Returns the decision on sending the request again.
    pub fn retry_permit(&self, now: Instant) -> ResendDecision {
        self.host.retry_permit(self.kind, self.grant, now)
    }

    /// Returns the rest of a backoff that began after the lease was granted. A request that has not been sent
    /// yet must then not be sent.
    pub fn backoff_remaining(&self, now: Instant) -> Option<Duration> {
        self.host.backoff_remaining(self.grant, now)
    }

    /// Charges the bytes of the request's bodies to a budget of bytes per second, which delays later grants. To be
    /// called before the release, so that no request is granted in between.
    pub fn charge(&self, bytes: u64, per_second: NonZeroU64, now: Instant) {
        self.host.charge(bytes, per_second, now);
    }

    /// Releases the lease: after the origin's last byte, or unused.
    pub fn release(self, outcome: LeaseOutcome, now: Instant) {
        self.host.release(self.kind, self.grant, outcome, now);
    }

    /// Records the head of a response that is not simply successful: its class, and the latency. The lease is then
    /// released as [`LeaseOutcome::Abandoned`].
    pub fn record_response(
        &self,
        class: ResponseClass,
        challenge: Challenge,
        now: Instant,
    ) -> BanSuspicion {
        self.host
            .record_response(self.kind, self.grant, (class, challenge), now)
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "a sum does not depend on the order"
)]
fn add_to_stats(hosts: &MapShard<Arc<HostEntry>>, stats: &mut StoreStats, now: Instant) {
    stats.hosts += hosts.len();
    for host in hosts.values() {
        host.add_to_stats(stats, now);
    }
}
