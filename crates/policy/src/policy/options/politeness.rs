//! The option `politeness`, read for one request.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::schema::slot;
use super::{OptionSlot, OptionValue};

const KEY: OptionSlot = slot("politeness.key");
const DELAY: OptionSlot = slot("politeness.delay");
const RATE: OptionSlot = slot("politeness.rate");
const BURST: OptionSlot = slot("politeness.burst");
const CONCURRENCY: OptionSlot = slot("politeness.concurrency");
const MAX_HOLD: OptionSlot = slot("politeness.max_hold");
const OVERFLOW: OptionSlot = slot("politeness.overflow");
const JITTER: OptionSlot = slot("politeness.jitter");
const ADAPTIVE_FACTOR: OptionSlot = slot("politeness.adaptive.factor");
const ADAPTIVE_MIN: OptionSlot = slot("politeness.adaptive.min");
const ADAPTIVE_MAX: OptionSlot = slot("politeness.adaptive.max");
const ADDRESS_DELAY: OptionSlot = slot("politeness.per_address.delay");
const ADDRESS_CONCURRENCY: OptionSlot = slot("politeness.per_address.concurrency");
const BYTES: OptionSlot = slot("politeness.bytes_per_second");
const REQUEST_RATE: OptionSlot = slot("politeness.request_rate");
/// `schedule`: prepared when a policy is loaded.
pub const SCHEDULE: OptionSlot = slot("politeness.schedule");
const ORDER: OptionSlot = slot("politeness.order");
const EMBEDS_DELAY: OptionSlot = slot("politeness.embeds.delay");
const EMBEDS_CONCURRENCY: OptionSlot = slot("politeness.embeds.concurrency");

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

/// Who of those that wait goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOrder {
    /// Each class gets its share.
    Weighted,
    /// The highest class.
    Strict,
}

/// The limits of pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageLimits {
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
pub struct EmbedLimits {
    /// `embeds.delay`.
    pub delay: Duration,
    /// `embeds.concurrency`.
    pub concurrency: u32,
}

/// The limits of an address, whatever hosts it has: `per_address`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddressLimits {
    /// `per_address.delay`: of pages only.
    pub delay: Duration,
    /// `per_address.concurrency`.
    pub concurrency: u32,
}

/// Reads the option for a request from what the rules have assigned.
#[derive(Clone, Copy, Debug)]
pub struct PolitenessOption<'a> {
    policy: &'a Policy,
    trail: &'a Trail,
}

impl<'a> PolitenessOption<'a> {
    /// The option as it stands.
    pub fn new(policy: &'a Policy, trail: &'a Trail) -> Self {
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
    pub fn pages(&self) -> PageLimits {
        let rate = if let OptionValue::Rate { count, per } = self.value(RATE) {
            Some((*count, *per))
        } else {
            None
        };
        PageLimits {
            delay: self.duration(DELAY).unwrap_or_default(),
            rate,
            burst: self.count(BURST),
            concurrency: self.count(CONCURRENCY),
        }
    }

    /// The limits of embeds.
    pub fn embeds(&self) -> EmbedLimits {
        let delay = self.duration(EMBEDS_DELAY).unwrap_or_default();
        EmbedLimits {
            delay,
            concurrency: self.count(EMBEDS_CONCURRENCY),
        }
    }

    /// `jitter`: factors from and to.
    pub fn jitter(&self) -> Option<(f64, f64)> {
        if let OptionValue::Range(from, to) = self.value(JITTER) {
            Some((*from, *to))
        } else {
            None
        }
    }

    /// `adaptive`: the factor, the least and the longest delay. One key switches it on; the others are 1, 1 s and 30 s
    /// then.
    pub fn adaptive(&self) -> Option<(f64, Duration, Duration)> {
        let factor = if let OptionValue::Decimal(factor) = self.value(ADAPTIVE_FACTOR) {
            Some(*factor)
        } else {
            None
        };
        let (min, max) = (self.duration(ADAPTIVE_MIN), self.duration(ADAPTIVE_MAX));
        if factor.is_none() && min.is_none() && max.is_none() {
            return None;
        }
        let (second, half_a_minute) = (Duration::from_secs(1), Duration::from_secs(30));
        Some((
            factor.unwrap_or(1.0),
            min.unwrap_or(second),
            max.unwrap_or(half_a_minute),
        ))
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

    /// `per_address`, if any of it is set.
    pub fn per_address(&self) -> Option<AddressLimits> {
        let (delay, concurrency) = (
            self.duration(ADDRESS_DELAY),
            self.trail.number(self.policy, ADDRESS_CONCURRENCY),
        );
        if delay.is_none() && concurrency.is_none() {
            return None;
        }
        let most = concurrency.and_then(|count| u32::try_from(count).ok());
        Some(AddressLimits {
            delay: delay.unwrap_or_default(),
            concurrency: most.unwrap_or(u32::MAX),
        })
    }

    /// `bytes_per_second`.
    pub fn bytes_per_second(&self) -> Option<NonZeroU64> {
        self.trail
            .number(self.policy, BYTES)
            .and_then(NonZeroU64::new)
    }

    /// `request_rate`: whether that of robots.txt counts.
    pub fn obeys_request_rate(&self) -> bool {
        self.trail.word(self.policy, REQUEST_RATE) != Some("ignore")
    }

    /// `order`.
    pub fn order(&self) -> QueueOrder {
        if self.trail.word(self.policy, ORDER) == Some("strict") {
            QueueOrder::Strict
        } else {
            QueueOrder::Weighted
        }
    }

    fn value(&self, slot: OptionSlot) -> &'a OptionValue {
        self.trail.value(self.policy, slot)
    }

    fn duration(&self, slot: OptionSlot) -> Option<Duration> {
        if let OptionValue::Duration(duration) = self.value(slot) {
            Some(*duration)
        } else {
            None
        }
    }

    fn count(&self, slot: OptionSlot) -> u32 {
        let count = self.trail.number(self.policy, slot).unwrap_or(1);
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}
