//! The option `politeness`.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::model::number::saturating_u32;
use crate::policy::Policy;
use crate::policy::trail::Trail;

use super::schema::{self, option_index};
use super::{OptionIndex, OptionValue};

const KEY: OptionIndex = option_index("politeness.key");
const DELAY: OptionIndex = option_index("politeness.delay");
const RATE: OptionIndex = option_index("politeness.rate");
const BURST: OptionIndex = option_index("politeness.burst");
const CONCURRENCY: OptionIndex = option_index("politeness.concurrency");
const MAX_HOLD: OptionIndex = option_index("politeness.max_hold");
const OVERFLOW: OptionIndex = option_index("politeness.overflow");
const JITTER: OptionIndex = option_index("politeness.jitter");
const ADAPTIVE_FACTOR: OptionIndex = option_index("politeness.adaptive.factor");
const ADAPTIVE_MIN: OptionIndex = option_index("politeness.adaptive.min");
const ADAPTIVE_MAX: OptionIndex = option_index("politeness.adaptive.max");
const ADDRESS_DELAY: OptionIndex = option_index("politeness.per_address.delay");
const ADDRESS_CONCURRENCY: OptionIndex = option_index("politeness.per_address.concurrency");
const BYTES: OptionIndex = option_index("politeness.bytes_per_second");
const REQUEST_RATE: OptionIndex = option_index("politeness.request_rate");
/// `politeness.schedule`; prepared when a policy is loaded.
pub const SCHEDULE: OptionIndex = option_index("politeness.schedule");
const ORDER: OptionIndex = option_index("politeness.order");
const EMBEDS_DELAY: OptionIndex = option_index("politeness.embeds.delay");
const EMBEDS_CONCURRENCY: OptionIndex = option_index("politeness.embeds.concurrency");

/// The options that make up the pace of a host. `max_hold`, `overflow` and `order` are about the
/// requests that wait, `per_address` about addresses.
pub const PACE: [OptionIndex; 14] = [
    KEY,
    DELAY,
    RATE,
    BURST,
    CONCURRENCY,
    JITTER,
    ADAPTIVE_FACTOR,
    ADAPTIVE_MIN,
    ADAPTIVE_MAX,
    EMBEDS_DELAY,
    EMBEDS_CONCURRENCY,
    BYTES,
    REQUEST_RATE,
    SCHEDULE,
];

/// The options that the windows of a schedule replace.
pub const SCHEDULED: [OptionIndex; 3] = [DELAY, RATE, CONCURRENCY];

/// The map that contains the options.
pub const MAP: &str = "politeness";

/// Returns the keys of the map that belong to the pace of a host.
pub fn pace_keys() -> impl Iterator<Item = &'static str> {
    schema::keys_in(MAP).into_iter().filter(|key| {
        let path = format!("{MAP}.{key}");
        let below = schema::specs_below(&path).map(|spec| spec.path);
        let mut options = below.chain([&*path]).filter_map(schema::find_spec);
        options.any(|(index, _)| is_pace_option(index))
    })
}

/// Returns `true` if an option belongs to the pace of a host.
pub fn is_pace_option(index: OptionIndex) -> bool {
    PACE.contains(&index)
}

/// The unit that shares one pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaceKey {
    Host,
    /// The address that is connected to.
    Address,
    /// All hosts under one registrable domain.
    RegistrableDomain,
}

/// The action for a request that cannot be sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// Hold it, for at most `max_hold`.
    Hold,
    Refuse,
}

/// The order in which waiting requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOrder {
    /// Each class gets its share.
    Weighted,
    /// The highest class first.
    Strict,
}

/// The limits for pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageLimits {
    pub delay: Duration,
    /// `rate`: a number of requests in a period.
    pub rate: Option<(u32, Duration)>,
    pub burst: u32,
    pub concurrency: u32,
}

/// The limits for embedded resources: `embeds`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EmbedLimits {
    pub delay: Duration,
    pub concurrency: u32,
}

/// The limits for an address, regardless of the host: `per_address`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddressLimits {
    /// `per_address.delay`; applies to pages only.
    pub delay: Duration,
    pub concurrency: u32,
}

/// Reads the option for a request.
#[derive(Clone, Copy, Debug)]
pub struct PolitenessOption<'a> {
    policy: &'a Policy,
    trail: &'a Trail,
}

impl<'a> PolitenessOption<'a> {
    pub fn new(policy: &'a Policy, trail: &'a Trail) -> Self {
        Self { policy, trail }
    }

    pub fn key(&self) -> PaceKey {
        match self.trail.word(self.policy, KEY) {
            Some("address") => PaceKey::Address,
            Some("registrable_domain") => PaceKey::RegistrableDomain,
            Some(_) | None => PaceKey::Host,
        }
    }

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

    pub fn embeds(&self) -> EmbedLimits {
        EmbedLimits {
            delay: self.duration(EMBEDS_DELAY).unwrap_or_default(),
            concurrency: self.count(EMBEDS_CONCURRENCY),
        }
    }

    /// Returns `jitter`: the lowest and the highest factor.
    pub fn jitter(&self) -> Option<(f64, f64)> {
        if let OptionValue::Range(from, to) = self.value(JITTER) {
            Some((*from, *to))
        } else {
            None
        }
    }

    /// Returns `adaptive`: the factor, the minimum and the maximum delay. Setting one key enables
    /// it; the others then default to 1, 1 s and 30 s.
    pub fn adaptive(&self) -> Option<(f64, Duration, Duration)> {
        let factor = if let OptionValue::Decimal(factor) = self.value(ADAPTIVE_FACTOR) {
            Some(*factor)
        } else {
            None
        };
        let min = self.duration(ADAPTIVE_MIN);
        let max = self.duration(ADAPTIVE_MAX);
        if factor.is_none() && min.is_none() && max.is_none() {
            return None;
        }
        Some((
            factor.unwrap_or(1.0),
            min.unwrap_or(Duration::from_secs(1)),
            max.unwrap_or(Duration::from_secs(30)),
        ))
    }

    /// Returns `max_hold`, if the policy sets it.
    pub fn max_hold(&self) -> Option<Duration> {
        self.duration(MAX_HOLD)
    }

    pub fn overflow(&self) -> Overflow {
        if self.trail.word(self.policy, OVERFLOW) == Some("refuse") {
            Overflow::Refuse
        } else {
            Overflow::Hold
        }
    }

    /// Returns `per_address`, if the policy sets any part of it.
    pub fn per_address(&self) -> Option<AddressLimits> {
        let delay = self.duration(ADDRESS_DELAY);
        let concurrency = self.trail.number(self.policy, ADDRESS_CONCURRENCY);
        if delay.is_none() && concurrency.is_none() {
            return None;
        }
        Some(AddressLimits {
            delay: delay.unwrap_or_default(),
            concurrency: concurrency.map_or(u32::MAX, saturating_u32),
        })
    }

    pub fn bytes_per_second(&self) -> Option<NonZeroU64> {
        self.trail
            .number(self.policy, BYTES)
            .and_then(NonZeroU64::new)
    }

    /// Returns `true` if Request-rate of robots.txt is obeyed (`request_rate`).
    pub fn obeys_request_rate(&self) -> bool {
        self.trail.word(self.policy, REQUEST_RATE) != Some("ignore")
    }

    pub fn order(&self) -> QueueOrder {
        if self.trail.word(self.policy, ORDER) == Some("strict") {
            QueueOrder::Strict
        } else {
            QueueOrder::Weighted
        }
    }

    fn value(&self, index: OptionIndex) -> &'a OptionValue {
        self.trail.value(self.policy, index)
    }

    fn duration(&self, index: OptionIndex) -> Option<Duration> {
        self.value(index).as_duration()
    }

    fn count(&self, index: OptionIndex) -> u32 {
        saturating_u32(self.trail.number(self.policy, index).unwrap_or(1))
    }
}
