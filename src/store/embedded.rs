//! The store in this process: a table of hosts in shards, each with a lock of its own.
//!
//! A request that goes at once takes one look into one shard and allocates nothing; its lease carries the host, so
//! that giving it up looks nothing up.

mod host;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::politeness::ban::Suspicion;
use crate::politeness::heard::{Answer, Challenge};
use crate::politeness::pace::{Again, Kind, Pace, Turn};

use super::shards::{SHARDS, Shard, Shards, mixed, shrink};
use super::{Census, Key, Outcome, Seen};
use host::{Grant, Host};

/// The table.
#[derive(Debug)]
pub struct Embedded {
    hosts: Shards<Arc<Host>>,
    /// What the hosts' jitter is drawn from, together with their names.
    seed: u64,
}

/// A grant: to be given up to the store that made it. One that is dropped instead lasts until it expires.
#[derive(Debug)]
#[must_use]
pub struct Lease {
    host: Arc<Host>,
    kind: Kind,
    grant: Grant,
}

impl Embedded {
    /// An empty table; the same seed draws the same jitter.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            hosts: Shards::new(),
            seed,
        }
    }

    /// Asks for a grant.
    pub(super) fn admit(&self, key: Key<'_>, pace: &Pace, now: Instant) -> Turn<Lease> {
        let host = self.host(key.name);
        match host.ask(key.kind, pace, now) {
            Turn::Go(grant) => Turn::Go(Lease {
                host,
                kind: key.kind,
                grant,
            }),
            Turn::Wait(wait) => Turn::Wait(wait),
        }
    }

    /// Forgets hosts of which nothing is remembered, and counts the rest.
    pub(super) fn sweep(&self, now: Instant) -> Census {
        let mut census = Census::default();
        for mut hosts in self.hosts.each() {
            // A host that somebody else holds is about to be asked, or has a lease.
            hosts.retain(|_, host| Arc::strong_count(host) > 1 || !host.is_idle(now));
            shrink(&mut hosts);
            count(&hosts, &mut census, now);
        }
        census
    }

    /// Shows what is remembered of one.
    pub(super) fn seen_of(&self, name: &str, now: Instant) -> Option<Seen> {
        let host = self.hosts.of(name).get(name).map(Arc::clone)?;
        Some(host.seen(now))
    }

    /// Shows what is remembered of each. A shard is locked only while its hosts are noted, each for a moment after that.
    pub(super) fn each_seen(&self, now: Instant, mut show: impl FnMut(&Arc<str>, Seen)) {
        for shard in 0..SHARDS {
            for host in self.hosts.values_of(shard) {
                show(host.name(), host.seen(now));
            }
        }
    }

    fn host(&self, name: &str) -> Arc<Host> {
        let mut hosts = self.hosts.of(name);
        if let Some(host) = hosts.get(name) {
            return Arc::clone(host);
        }
        let name: Arc<str> = name.into();
        let host = Arc::new(Host::new(Arc::clone(&name), self.seed ^ mixed(&name)));
        hosts.insert(name, Arc::clone(&host));
        host
    }
}

impl Lease {
    /// What it is for.
    pub fn key(&self) -> Key<'_> {
        Key {
            name: self.host.name(),
            kind: self.kind,
        }
    }

    /// The name of what it is for, to be kept when the lease is given up.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(self.host.name())
    }

    /// Whether the host has rested, and this request is to show whether that was enough.
    pub fn probes(&self) -> bool {
        self.grant.is_probe()
    }

    pub(super) fn renew(&self, now: Instant) {
        self.host.sent(self.kind, self.grant, now);
    }

    pub(super) fn again(&self, now: Instant) -> Again {
        self.host.again(self.kind, self.grant, now)
    }

    pub(super) fn rests(&self, now: Instant) -> Option<Duration> {
        self.host.rests(self.grant, now)
    }

    pub(super) fn charge(&self, bytes: u64, per_second: NonZeroU64, now: Instant) {
        self.host.charge(bytes, per_second, now);
    }

    pub(super) fn release(self, outcome: Outcome, now: Instant) {
        self.host.release(self.kind, self.grant, outcome, now);
    }

    pub(super) fn hear(&self, answer: Answer, challenge: Challenge, now: Instant) -> Suspicion {
        self.host
            .hear(self.kind, self.grant, (answer, challenge), now)
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "a sum does not depend on the order"
)]
fn count(hosts: &Shard<Arc<Host>>, census: &mut Census, now: Instant) {
    census.hosts += hosts.len();
    for host in hosts.values() {
        host.count(census, now);
    }
}
