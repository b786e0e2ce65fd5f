//! Hosts that change from one node of a fleet to another: their state, the hosts whose state is unknown, and the rests that
//! other nodes must know.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::pacing::backoff::BackoffRecord;
use crate::pacing::host_limiter::LimiterRecord;

/// The state of a host, an address or a domain for another process. Times are relative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostRecord {
    pub navigations: Option<LimiterRecord>,
    pub embeds: Option<LimiterRecord>,
    pub backoff: Option<BackoffRecord>,
    /// The average latency, which the adaptive delay follows.
    pub latency: Option<Duration>,
    /// The time until the bytes of its bodies are paid for.
    pub byte_debt: Duration,
}

impl HostRecord {
    /// Returns the record as it is after some time, in which no request was sent. Ages and requests in flight stay, so
    /// that an error in that time cannot shorten a delay.
    #[must_use]
    pub fn after(self, elapsed: Duration) -> Self {
        let limiter = |record: LimiterRecord| LimiterRecord {
            until_full: record.until_full.saturating_sub(elapsed),
            ..record
        };
        Self {
            navigations: self.navigations.map(limiter),
            embeds: self.embeds.map(limiter),
            backoff: self.backoff.map(|record| record.after(elapsed)),
            latency: self.latency,
            byte_debt: self.byte_debt.saturating_sub(elapsed),
        }
    }
}

/// Returns the number of the partition that a host belongs to.
pub type PartitionOf = Box<dyn Fn(&str) -> u16 + Send + Sync>;

/// The times until which other nodes may have sent requests that this node does not know of, by partition of hosts.
#[derive(Default)]
pub(super) struct TakeoverTimes {
    /// Grows with each change, so that a host notices it without a lock.
    version: AtomicU32,
    table: Mutex<TakeoverTable>,
}

#[derive(Default)]
struct TakeoverTable {
    partition_of: Option<PartitionOf>,
    times: BTreeMap<u16, Instant>,
}

impl TakeoverTimes {
    pub(super) fn set_partitions(&self, partition_of: PartitionOf) {
        self.table.lock().partition_of = Some(partition_of);
    }

    /// Replaces the time of a partition. `None` if this node knows all requests.
    pub(super) fn set(&self, partition: u16, until: Option<Instant>) {
        let mut table = self.table.lock();
        match until {
            Some(until) => drop(table.times.insert(partition, until)),
            None => drop(table.times.remove(&partition)),
        }
        self.version.fetch_add(1, Ordering::Release);
    }

    pub(super) fn get(&self, partition: u16) -> Option<Instant> {
        self.table.lock().times.get(&partition).copied()
    }

    pub(super) fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the time for a host.
    pub(super) fn of_host(&self, name: &str) -> Option<Instant> {
        // An address that is paced in addition to its hosts belongs to no partition.
        if name.starts_with('@') {
            return None;
        }
        let table = self.table.lock();
        let partition = table.partition_of.as_ref()?(name);
        table.times.get(&partition).copied()
    }
}

impl fmt::Debug for TakeoverTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TakeoverTimes({:?})", self.table.lock().times)
    }
}

/// The names of hosts whose backoff has begun, ended or changed, for other nodes.
#[derive(Debug, Default)]
pub(super) struct ChangedRests {
    is_on: AtomicBool,
    names: Mutex<BTreeSet<Arc<str>>>,
}

impl ChangedRests {
    pub(super) fn enable(&self) {
        self.is_on.store(true, Ordering::Release);
    }

    /// Adds a host. Called for the few responses that change a backoff.
    pub(super) fn add(&self, name: &Arc<str>) {
        if self.is_on.load(Ordering::Acquire) {
            self.names.lock().insert(Arc::clone(name));
        }
    }

    pub(super) fn take(&self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut *self.names.lock())
    }

    pub(super) fn put_back(&self, names: BTreeSet<Arc<str>>) {
        self.names.lock().extend(names);
    }
}
