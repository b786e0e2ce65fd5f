//! The option `politeness`, read for one request.

use std::time::Duration;

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::schema::slot;
use super::{Slot, Value};

const KEY: Slot = slot("politeness.key");
const DELAY: Slot = slot("politeness.delay");
const RATE: Slot = slot("politeness.rate");
const BURST: Slot = slot("politeness.burst");
const CONCURRENCY: Slot = slot("politeness.concurrency");
const MAX_HOLD: Slot = slot("politeness.max_hold");
const OVERFLOW: Slot = slot("politeness.overflow");
const JITTER: Slot = slot("politeness.jitter");
const EMBEDS_DELAY: Slot = slot("politeness.embeds.delay");
const EMBEDS_CONCURRENCY: Slot = slot("politeness.embeds.concurrency");

/// What is paced as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaceKey {
    /// A host.
    Host,
    /// The address that is dialled.
    Address,
    /// What one owner has registered.
    RegistrableDomain,
}

/// What becomes of a request that cannot go at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// It waits, up to `max_hold`.
    Hold,
    /// It is refused.
    Refuse,
}

/// The limits of pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pages {
    /// `delay`.
    pub delay: Duration,
    /// `rate`: so many in so long.
    pub rate: Option<(u32, Duration)>,
    /// `burst`.
    pub burst: u32,
    /// `concurrency`.
    pub concurrency: u32,
}

/// The limits of what belongs to pages: `embeds`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Embeds {
    /// `embeds.delay`.
    pub delay: Duration,
    /// `embeds.concurrency`.
    pub concurrency: u32,
}

/// Reads the option for a request from what the rules have assigned.
#[derive(Clone, Copy, Debug)]
pub struct Politeness<'a> {
    policy: &'a Policy,
    trail: &'a Trail,
}

impl<'a> Politeness<'a> {
    /// The option as it stands.
    pub fn of(policy: &'a Policy, trail: &'a Trail) -> Self {
        Self { policy, trail }
    }

    /// `key`.
    pub fn key(&self) -> PaceKey {
        match self.trail.word(self.policy, KEY) {
            Some("address") => PaceKey::Address,
            Some("registrable_domain") => PaceKey::RegistrableDomain,
            Some(_) | None => PaceKey::Host,
        }
    }

    /// The limits of pages.
    pub fn pages(&self) -> Pages {
        let rate =
            if let Value::Rate { count, per } = self.value(RATE) { Some((*count, *per)) } else { None };
        Pages {
            delay: self.duration(DELAY).unwrap_or_default(),
            rate,
            burst: self.count(BURST),
            concurrency: self.count(CONCURRENCY),
        }
    }

    /// The limits of embeds.
    pub fn embeds(&self) -> Embeds {
        let delay = self.duration(EMBEDS_DELAY).unwrap_or_default();
        Embeds { delay, concurrency: self.count(EMBEDS_CONCURRENCY) }
    }

    /// `jitter`: factors from and to.
    pub fn jitter(&self) -> Option<(f64, f64)> {
        if let Value::Range(from, to) = self.value(JITTER) { Some((*from, *to)) } else { None }
    }

    /// `max_hold`, if a rule or the document says.
    pub fn max_hold(&self) -> Option<Duration> {
        self.duration(MAX_HOLD)
    }

    /// `overflow`.
    pub fn overflow(&self) -> Overflow {
        if self.trail.word(self.policy, OVERFLOW) == Some("refuse") {
            Overflow::Refuse
        } else {
            Overflow::Hold
        }
    }

    fn value(&self, slot: Slot) -> &'a Value {
        self.trail.value(self.policy, slot)
    }

    fn duration(&self, slot: Slot) -> Option<Duration> {
        if let Value::Duration(duration) = self.value(slot) { Some(*duration) } else { None }
    }

    fn count(&self, slot: Slot) -> u32 {
        let count = self.trail.number(self.policy, slot).unwrap_or(1);
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}
