//! The store in this process: a table of hosts in shards, each with a lock of its own.
//!
//! A request that goes at once takes one look into one shard and allocates nothing; its lease carries the host, so
//! that giving it up looks nothing up.

mod host;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::politeness::lane::LeaseId;
use crate::politeness::pace::{Class, Pace, Turn};

use super::shards::{Shard, Shards, shrink};
use super::{Census, Key, Outcome};
use host::Host;

/// The table.
#[derive(Debug, Default)]
pub struct Embedded {
    hosts: Shards<Arc<Host>>,
}

/// A grant: to be given up to the store that made it. One that is dropped instead lasts until it expires.
#[derive(Debug)]
#[must_use]
pub struct Lease {
    host: Arc<Host>,
    class: Class,
    id: LeaseId,
}

impl Embedded {
    /// Asks for a grant.
    pub(super) fn admit(&self, key: Key<'_>, pace: &Pace, now: Instant) -> Turn<Lease> {
        let host = self.host(key.name);
        match host.ask(key.class, pace, now) {
            Turn::Go(id) => Turn::Go(Lease { host, class: key.class, id }),
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

    fn host(&self, name: &str) -> Arc<Host> {
        let mut hosts = self.hosts.of(name);
        if let Some(host) = hosts.get(name) {
            return Arc::clone(host);
        }
        let name: Arc<str> = name.into();
        let host = Arc::new(Host::new(Arc::clone(&name)));
        hosts.insert(name, Arc::clone(&host));
        host
    }
}

impl Lease {
    /// What it is for.
    pub fn key(&self) -> Key<'_> {
        Key { name: self.host.name(), class: self.class }
    }

    /// The name of what it is for, to be kept when the lease is given up.
    pub fn name(&self) -> Arc<str> {
        Arc::clone(self.host.name())
    }

    pub(super) fn renew(&self, now: Instant) {
        self.host.sent(self.class, self.id, now);
    }

    pub(super) fn release(self, outcome: Outcome, now: Instant) {
        self.host.release(self.class, self.id, outcome, now);
    }

    pub(super) fn hold_off(&self, told: Option<Duration>, now: Instant) {
        self.host.complained(told, now);
    }
}

#[allow(clippy::disallowed_methods, reason = "a sum does not depend on the order")]
fn count(hosts: &Shard<Arc<Host>>, census: &mut Census, now: Instant) {
    census.hosts += hosts.len();
    for host in hosts.values() {
        host.count(census, now);
    }
}
