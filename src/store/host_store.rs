//! The pacing state of hosts: a map in shards, each with its own lock.
//!
//! Times and paces are arguments, and waits are relative. A grant is a [`Lease`]. Nothing waits in here: a request
//! that has to wait tries again. A request that may go at once locks one shard and allocates nothing; its lease
//! refers to the host, so releasing it needs no lookup.

mod entry;
mod handover;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::pacing::backoff::{BackoffCause, BackoffRecord};
use crate::pacing::pace::{HostPace, PaceDecision, RequestKind};

use super::sharded_map::{MapShard, SHARD_COUNT, ShardedMap, hash_name, shrink_if_sparse};
use entry::HostEntry;
use handover::{ChangedRests, TakeoverTimes};

pub use entry::Lease;
pub use handover::{HostRecord, PartitionOf};

/// The pacing state of every host, address and domain.
#[derive(Debug)]
pub struct HostStore {
    hosts: ShardedMap<Arc<HostEntry>>,
    takeovers: TakeoverTimes,
    changed_rests: Arc<ChangedRests>,
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
            takeovers: TakeoverTimes::default(),
            changed_rests: Arc::default(),
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
        self.get_or_insert(key.name)
            .try_acquire(key.kind, pace, &self.takeovers, now)
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

    /// Shares the state of hosts with other nodes from now on.
    pub fn enable_sharing(&self, partition_of: PartitionOf) {
        self.takeovers.set_partitions(partition_of);
        self.changed_rests.enable();
    }

    /// Sets the time until which other nodes may have sent requests to the hosts of a partition. `None` if this node knows
    /// all of them. To be called before requests for these hosts.
    pub fn set_takeover(&self, partition: u16, until: Option<Instant>) {
        self.takeovers.set(partition, until);
    }

    /// Returns the time until which other nodes may have sent requests to the hosts of a partition.
    pub fn takeover(&self, partition: u16) -> Option<Instant> {
        self.takeovers.get(partition)
    }

    /// Passes the state of each name that `is_included` accepts to `visit`, in no order, unless it equals that of a new one.
    pub fn for_each_host_record(
        &self,
        now: Instant,
        is_included: impl Fn(&str) -> bool,
        mut visit: impl FnMut(&Arc<str>, HostRecord),
    ) {
        for shard in 0..SHARD_COUNT {
            for host in self.hosts.shard_values(shard) {
                if is_included(host.name())
                    && let Some(record) = host.record(now)
                {
                    visit(host.name(), record);
                }
            }
        }
    }

    /// Adds the state of a host that another node has handed over.
    pub fn restore_host(&self, name: &str, record: &HostRecord, now: Instant) {
        self.get_or_insert(name).restore(record, now);
    }

    /// Returns the names of the hosts whose backoff has begun, ended or changed since the last call.
    pub fn take_changed_rests(&self) -> BTreeSet<Arc<str>> {
        self.changed_rests.take()
    }

    /// Returns names to those of the next call.
    pub fn put_back_changed_rests(&self, names: BTreeSet<Arc<str>>) {
        self.changed_rests.put_back(names);
    }

    /// Returns the backoff of a host, unless it has no effect.
    pub fn backoff_record(&self, name: &str, now: Instant) -> Option<BackoffRecord> {
        let host = self.hosts.lock_shard(name).get(name).map(Arc::clone)?;
        host.backoff_record(now)
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
            Arc::clone(&self.changed_rests),
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
