//! What the proxy remembers between requests, behind verbs of our own: `admit`, `renew`, `again`, `hear`, `charge`,
//! `release`, `sweep`.
//!
//! The time and the pace are arguments, waits are relative, and a grant is a [`Lease`], so that an engine that other
//! processes share can stand behind the same verbs. Nobody waits in here: who is told to wait asks again.

pub mod budgets;
pub mod embedded;
pub mod ledger;
pub mod shards;
pub mod stops;
mod whole_file;

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::politeness::backoff::Cause;
use crate::politeness::ban::Suspicion;
use crate::politeness::heard::{Answer, Challenge};
use crate::politeness::pace::{Again, Kind, Pace, Turn};

use embedded::Embedded;
pub use embedded::Lease;
pub use whole_file::keep_name;

/// Where it is kept.
#[derive(Debug)]
pub enum Store {
    /// In this process.
    Embedded(Embedded),
}

/// What is paced as one: a host, an address or a domain, and the kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key<'k> {
    /// The host, the address or the domain.
    pub name: &'k str,
    /// Kinds are paced apart; what an origin asks for holds for all of them.
    pub kind: Kind,
}

/// What became of a granted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
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
pub struct Seen {
    /// The pace of the last page that was asked for; none if nothing was.
    pub pace: Option<Pace>,
    /// The delay that it comes to, with what was learned of the latency.
    pub delay: Duration,
    /// How many may be under way now.
    pub concurrency: u32,
    /// The time until another page may go, as far as it is known.
    pub next: Duration,
    /// Requests under way, of every kind.
    pub under_way: usize,
    /// When the last head was sent.
    pub last: Option<Instant>,
    /// What is left of its rest, and why it rests.
    pub rest: Option<(Duration, Cause)>,
    /// Bad answers and failures in a row.
    pub failures: u8,
    /// Rests that are remembered.
    pub rests: u8,
    /// How long it takes to answer, on average.
    pub latency: Option<Duration>,
    /// The time until its bodies are paid for.
    pub owed: Option<Duration>,
}

/// How much is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Hosts, addresses and domains.
    pub hosts: usize,
    /// Those of them that rest.
    pub resting: usize,
    /// Requests under way.
    pub leases: usize,
}

impl Store {
    /// A store in this process, empty. Several proxies draw their jitter apart.
    pub fn embedded() -> Self {
        Self::seeded(RandomState::new().hash_one(0))
    }

    /// The same, with jitter that is drawn the same for the same seed: what a simulation needs to be repeated.
    pub fn seeded(seed: u64) -> Self {
        Self::Embedded(Embedded::new(seed))
    }

    /// Asks for a grant. The embedded store answers without waiting.
    pub fn admit(&self, key: Key<'_>, pace: &Pace, now: Instant) -> Turn<Lease> {
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
    pub fn again(&self, lease: &Lease, now: Instant) -> Again {
        match self {
            Self::Embedded(_) => lease.again(now),
        }
    }

    /// Whether the host has begun a rest since the lease was granted, and what is left of that: what has not been sent
    /// yet must not be.
    pub fn rests(&self, lease: &Lease, now: Instant) -> Option<Duration> {
        match self {
            Self::Embedded(_) => lease.rests(now),
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
    pub fn release(&self, lease: Lease, outcome: Outcome, now: Instant) {
        match self {
            Self::Embedded(_) => lease.release(outcome, now),
        }
    }

    /// The head of the origin's answer is here, and is not only good: what the host learns from it, whether it is the one
    /// that ends a rest, and how long it took. A request of which this was told is given up as [`Outcome::Abandoned`].
    pub fn hear(
        &self,
        lease: &Lease,
        answer: Answer,
        challenge: Challenge,
        now: Instant,
    ) -> Suspicion {
        match self {
            Self::Embedded(_) => lease.hear(answer, challenge, now),
        }
    }

    /// Shows what is remembered of one name, whatever the kind of request.
    pub fn seen_of(&self, name: &str, now: Instant) -> Option<Seen> {
        match self {
            Self::Embedded(store) => store.seen_of(name, now),
        }
    }

    /// Shows what is remembered of every name, in no order. Requests wait for it no longer than for one another.
    pub fn each_seen(&self, now: Instant, show: impl FnMut(&Arc<str>, Seen)) {
        match self {
            Self::Embedded(store) => store.each_seen(now, show),
        }
    }

    /// Forgets what nobody could tell from something new, and counts the rest.
    pub fn sweep(&self, now: Instant) -> Census {
        match self {
            Self::Embedded(store) => store.sweep(now),
        }
    }
}
