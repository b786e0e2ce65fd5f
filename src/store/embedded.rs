//! The store in this process: a table of hosts in shards, each with a lock of its own.
//!
//! A request that goes at once takes one look into one shard and allocates nothing; its lease carries the host, so
//! that giving it up looks nothing up.

mod host;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::politeness::lane::LeaseId;
use crate::politeness::pace::{Class, Pace, Turn};

use super::{Census, Key, Outcome};
use host::Host;

/// Many more than there are threads that could meet in one.
const SHARDS: usize = 64;

type Hosts = HashMap<Box<str>, Arc<Host>>;

/// The table.
#[derive(Debug)]
pub struct Embedded {
    shards: Box<[Mutex<Hosts>]>,
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
    /// An empty table.
    pub fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    /// Asks for a grant.
    pub fn admit(&self, key: Key<'_>, pace: &Pace, now: Instant) -> Turn<Lease> {
        let host = self.host(key.name);
        match host.ask(key.class, pace, now) {
            Turn::Go(id) => Turn::Go(Lease { host, class: key.class, id }),
            Turn::Wait(wait) => Turn::Wait(wait),
        }
    }

    /// Forgets hosts that nothing is remembered of, and counts the rest.
    pub fn sweep(&self, now: Instant) -> Census {
        let mut census = Census::default();
        for shard in &self.shards {
            let mut hosts = lock(shard);
            // A host that somebody else holds is about to be asked, or has a lease.
            hosts.retain(|_, host| Arc::strong_count(host) > 1 || !host.is_idle(now));
            if hosts.len() < hosts.capacity() / 8 {
                let room = 2 * hosts.len();
                hosts.shrink_to(room);
            }
            count(&hosts, &mut census, now);
        }
        census
    }

    fn host(&self, name: &str) -> Arc<Host> {
        let Some(shard) = self.shards.get(spread(name)) else { return Arc::new(Host::new()) };
        let mut hosts = lock(shard);
        if let Some(host) = hosts.get(name) {
            return Arc::clone(host);
        }
        let host = Arc::new(Host::new());
        hosts.insert(name.into(), Arc::clone(&host));
        host
    }
}

impl Default for Embedded {
    fn default() -> Self {
        Self::new()
    }
}

impl Lease {
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
fn count(hosts: &Hosts, census: &mut Census, now: Instant) {
    census.hosts += hosts.len();
    for host in hosts.values() {
        host.count(census, now);
    }
}

/// The shard of a name. The map within has a hash that clients cannot guess; here a poor spread costs only waiting.
fn spread(name: &str) -> usize {
    let mut sum = 0_u64;
    for chunk in name.as_bytes().chunks(8) {
        let mut word = [0; 8];
        word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    }
    // The shards are a power of two, so a mask would do; the compiler knows.
    usize::try_from(sum % SHARDS as u64).unwrap_or(0)
}

/// What is written under a lock is whole whenever anything could panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
