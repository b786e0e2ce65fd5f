//! What the proxy remembers between requests, behind verbs of our own: `admit`, `renew`, `again`, `hear`, `charge`,
//! `release`, `sweep`.
//!
//! The time and the pace are arguments, waits are relative, and a grant is a [`Lease`], so that an engine that other
//! processes share can stand behind the same verbs. Nobody waits in here: who is told to wait asks again.

mod atomic_file;
pub mod budgets;
pub mod embedded;
pub mod ledger;
pub mod sharded_map;
pub mod stops;

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::pacing::backoff::BackoffCause;
use crate::pacing::ban::BanSuspicion;
use crate::pacing::pace::{HostPace, PaceDecision, RequestKind, ResendDecision};
use crate::pacing::response_class::{Challenge, ResponseClass};

pub use atomic_file::sync_directory;
use embedded::EmbeddedHostStore;
pub use embedded::Lease;

/// Where it is kept.
#[derive(Debug)]
pub enum HostStore {
    /// In this process.
    Embedded(EmbeddedHostStore),
}

/// What is paced as one: a host, an address or a domain, and the kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimiterKey<'k> {
    /// The host, the address or the domain.
    pub name: &'k str,
    /// Kinds are paced apart; what an origin asks for holds for all of them.
    pub kind: RequestKind,
}

/// What became of a granted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// Nothing was tried; the grant is returned.
    Unused,
    /// Something was, of which nothing is to be learned: the client has left, or all was told before.
    Abandoned,
    /// The origin gave no answer, or one that broke off.
    Failed,
    /// The origin answered as it should, and nothing was told of it before.
    Answered,
}

/// What is remembered of a host, an address or a domain, for who looks on.
#[derive(Clone, Copy, Debug)]
pub struct HostSnapshot {
    /// The pace of the last page that was asked for; none if nothing was.
    pub pace: Option<HostPace>,
    /// The delay that it comes to, with what was learned of the latency.
    pub delay: Duration,
    /// How many may be under way now.
    pub concurrency: u32,
    /// The time until another page may go, as far as it is known.
    pub until_next: Duration,
    /// Requests under way, of every kind.
    pub in_flight: usize,
    /// When the last head was sent.
    pub last_sent: Option<Instant>,
    /// What is left of its rest, and why it rests.
    pub backoff: Option<(Duration, BackoffCause)>,
    /// Bad answers and failures in a row.
    pub failures: u8,
    /// Rests that are remembered.
    pub backoff_count: u8,
    /// How long it takes to answer, on average.
    pub latency: Option<Duration>,
    /// The time until its bodies are paid for.
    pub byte_debt: Option<Duration>,
}

/// How much is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Hosts, addresses and domains.
    pub hosts: usize,
    /// Those of them that rest.
    pub backing_off: usize,
    /// Requests under way.
    pub leases: usize,
}

impl HostStore {
    /// A store in this process, empty. Several proxies draw their jitter apart.
    pub fn embedded() -> Self {
        Self::with_seed(RandomState::new().hash_one(0))
    }

    /// The same, with jitter that is drawn the same for the same seed: what a simulation needs to be repeated.
    pub fn with_seed(seed: u64) -> Self {
        Self::Embedded(EmbeddedHostStore::new(seed))
    }

    /// Asks for a grant. The embedded store answers without waiting.
    pub fn admit(&self, key: LimiterKey<'_>, pace: &HostPace, now: Instant) -> PaceDecision<Lease> {
        match self {
            Self::Embedded(store) => store.admit(key, pace, now),
        }
    }

    /// The request's head is written: the delay of the next one counts from here, and so does the lease's time.
    pub fn renew(&self, lease: &Lease, now: Instant) {
        match self {
            Self::Embedded(_) => lease.renew(now),
        }
    }

    /// The request has to be sent once more: whether it may, and when.
    pub fn retry_permit(&self, lease: &Lease, now: Instant) -> ResendDecision {
        match self {
            Self::Embedded(_) => lease.retry_permit(now),
        }
    }

    /// Whether the host has begun a rest since the lease was granted, and what is left of that: what has not been sent
    /// yet must not be.
    pub fn backoff_remaining(&self, lease: &Lease, now: Instant) -> Option<Duration> {
        match self {
            Self::Embedded(_) => lease.backoff_remaining(now),
        }
    }

    /// The request's bodies had so many bytes, of a budget of so many a second: later grants pay for them. Before the
    /// grant is given up, so that nobody goes in between.
    pub fn charge(&self, lease: &Lease, bytes: u64, per_second: NonZeroU64, now: Instant) {
        match self {
            Self::Embedded(_) => lease.charge(bytes, per_second, now),
        }
    }

    /// Gives a grant up: at the origin's last byte, or without a use.
    pub fn release(&self, lease: Lease, outcome: LeaseOutcome, now: Instant) {
        match self {
            Self::Embedded(_) => lease.release(outcome, now),
        }
    }

    /// The head of the origin's answer is here, and is not only good: what the host learns from it, whether it is the one
    /// that ends a rest, and how long it took. A request of which this was told is given up as [`LeaseOutcome::Abandoned`].
    pub fn record_response(
        &self,
        lease: &Lease,
        answer: ResponseClass,
        challenge: Challenge,
        now: Instant,
    ) -> BanSuspicion {
        match self {
            Self::Embedded(_) => lease.record_response(answer, challenge, now),
        }
    }

    /// Shows what is remembered of one name, whatever the kind of request.
    pub fn host_snapshot(&self, name: &str, now: Instant) -> Option<HostSnapshot> {
        match self {
            Self::Embedded(store) => store.host_snapshot(name, now),
        }
    }

    /// Shows what is remembered of every name, in no order. Requests wait for it no longer than for one another.
    pub fn for_each_host(&self, now: Instant, show: impl FnMut(&Arc<str>, HostSnapshot)) {
        match self {
            Self::Embedded(store) => store.for_each_host(now, show),
        }
    }

    /// Forgets what nobody could tell from something new, and counts the rest.
    pub fn sweep(&self, now: Instant) -> StoreStats {
        match self {
            Self::Embedded(store) => store.sweep(now),
        }
    }
}
