//! What the proxy remembers between requests, behind verbs of our own: `admit`, `renew`, `release`, `hold_off`,
//! `sweep`.
//!
//! The time and the pace are arguments, waits are relative, and a grant is a [`Lease`], so that an engine that other
//! processes share can stand behind the same verbs. Nobody waits in here: who is told to wait asks again.

pub mod embedded;
pub mod shards;

use std::time::{Duration, Instant};

use crate::politeness::pace::{Class, Pace, Turn};

use embedded::Embedded;
pub use embedded::Lease;

/// Where it is kept.
#[derive(Debug)]
pub enum Store {
    /// In this process.
    Embedded(Embedded),
}

/// What is paced as one: a host, an address or a domain, and the class of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key<'k> {
    /// The host, the address or the domain.
    pub name: &'k str,
    /// Classes are paced apart; what an origin asks for holds for all of them.
    pub class: Class,
}

/// What became of a granted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was tried; the grant is returned.
    Unused,
    /// The origin gave no answer, or complained.
    Failed,
    /// The origin answered.
    Answered,
}

/// How much is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Hosts, addresses and domains.
    pub hosts: usize,
    /// Those of them that have asked for rest.
    pub resting: usize,
    /// Requests under way.
    pub leases: usize,
}

impl Store {
    /// A store in this process, empty.
    pub fn embedded() -> Self {
        Self::Embedded(Embedded::default())
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

    /// Gives a grant up: at the origin's last byte, or without a use.
    pub fn release(&self, lease: Lease, outcome: Outcome, now: Instant) {
        match self {
            Self::Embedded(_) => lease.release(outcome, now),
        }
    }

    /// The origin has asked for rest; for so long, if it said.
    pub fn hold_off(&self, lease: &Lease, told: Option<Duration>, now: Instant) {
        match self {
            Self::Embedded(_) => lease.hold_off(told, now),
        }
    }

    /// Forgets what nobody could tell from something new, and counts the rest.
    pub fn sweep(&self, now: Instant) -> Census {
        match self {
            Self::Embedded(store) => store.sweep(now),
        }
    }
}
