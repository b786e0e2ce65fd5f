//! The store in this process: a table of hosts in shards, each with a lock of its own.
//!
//! A request that goes at once takes one look into one shard and allocates nothing; its lease carries the host, so
//! that giving it up looks nothing up.

mod host;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::pacing::ban::BanSuspicion;
use crate::pacing::pace::{HostPace, PaceDecision, RequestKind, ResendDecision};
use crate::pacing::response_class::{Challenge, ResponseClass};

use super::sharded_map::{MapShard, SHARD_COUNT, ShardedMap, hash_name, shrink_if_sparse};
use super::{HostSnapshot, LeaseOutcome, LimiterKey, StoreStats};
use host::{Grant, HostEntry};

/// The table.
#[derive(Debug)]
pub struct EmbeddedHostStore {
    hosts: ShardedMap<Arc<HostEntry>>,
    /// What the hosts' jitter is drawn from, together with their names.
    seed: u64,
}

/// A grant: to be given up to the store that made it. One that is dropped instead lasts until it expires.
#[derive(Debug)]
#[must_use]
pub struct Lease {
    host: Arc<HostEntry>,
    kind: RequestKind,
    grant: Grant,
}

impl EmbeddedHostStore {
    /// An empty table; the same seed draws the same jitter.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            hosts: ShardedMap::new(),
            seed,
        }
    }

    /// Asks for a grant.
    pub(super) fn admit(
        &self,
        key: LimiterKey<'_>,
        pace: &HostPace,
        now: Instant,
    ) -> PaceDecision<Lease> {
        let host = self.get_or_insert(key.name);
        match host.admit(key.kind, pace, now) {
            PaceDecision::Go(grant) => PaceDecision::Go(Lease {
                host,
                kind: key.kind,
                grant,
            }),
            PaceDecision::Wait(wait) => PaceDecision::Wait(wait),
        }
    }

    /// Forgets hosts of which nothing is remembered, and counts the rest.
    pub(super) fn sweep(&self, now: Instant) -> StoreStats {
        let mut census = StoreStats::default();
        for mut hosts in self.hosts.lock_each() {
            // A host that somebody else holds is about to be asked, or has a lease.
            hosts.retain(|_, host| Arc::strong_count(host) > 1 || !host.is_idle(now));
            shrink_if_sparse(&mut hosts);
            add_to_stats(&hosts, &mut census, now);
        }
        census
    }

    /// Shows what is remembered of one.
    pub(super) fn host_snapshot(&self, name: &str, now: Instant) -> Option<HostSnapshot> {
        let host = self.hosts.lock_shard(name).get(name).map(Arc::clone)?;
        Some(host.snapshot(now))
    }

    /// Shows what is remembered of each. A shard is locked only while its hosts are noted, each for a moment after that.
    pub(super) fn for_each_host(
        &self,
        now: Instant,
        mut show: impl FnMut(&Arc<str>, HostSnapshot),
    ) {
        for shard in 0..SHARD_COUNT {
            for host in self.hosts.shard_values(shard) {
                show(host.name(), host.snapshot(now));
            }
        }
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

impl Lease {
    /// What it is for.
    pub fn key(&self) -> LimiterKey<'_> {
        LimiterKey {
            name: self.host.name(),
            kind: self.kind,
        }
    }

    /// The name of what it is for, to be kept when the lease is given up.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(self.host.name())
    }

    /// Whether the host has rested, and this request is to show whether that was enough.
    pub fn is_probe(&self) -> bool {
        self.grant.is_probe()
    }

    pub(super) fn renew(&self, now: Instant) {
        self.host.record_sent(self.kind, self.grant, now);
    }

    pub(super) fn retry_permit(&self, now: Instant) -> ResendDecision {
        self.host.retry_permit(self.kind, self.grant, now)
    }

    pub(super) fn backoff_remaining(&self, now: Instant) -> Option<Duration> {
        self.host.backoff_remaining(self.grant, now)
    }

    pub(super) fn charge(&self, bytes: u64, per_second: NonZeroU64, now: Instant) {
        self.host.charge(bytes, per_second, now);
    }

    pub(super) fn release(self, outcome: LeaseOutcome, now: Instant) {
        self.host.release(self.kind, self.grant, outcome, now);
    }

    pub(super) fn record_response(
        &self,
        answer: ResponseClass,
        challenge: Challenge,
        now: Instant,
    ) -> BanSuspicion {
        self.host
            .record_response(self.kind, self.grant, (answer, challenge), now)
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
