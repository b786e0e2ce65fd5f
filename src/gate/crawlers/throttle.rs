//! How often a source may be wrong about a password: ten times at once, then once in six seconds.
//!
//! Governor's limiters take a cell before it is known what becomes of it and give none back. Here an attempt is
//! charged before it is checked, so that many at once count, and paid back if it was right.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Sources that can be told apart. Two that share a place share their attempts; the hash is keyed at random, so that
/// nobody can choose to share.
const PLACES: usize = 4096;
/// One attempt, in milliseconds.
const EACH: u64 = 6_000;
/// Attempts at once.
const BURST: u64 = 10;

/// Whether an attempt may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// It may, and is charged.
    Charged,
    /// Too many were wrong.
    Refused,
}

/// The generic cell rate algorithm (ITU-T I.371), one cell a place: the time, in milliseconds from the beginning, at
/// which everything that was charged will be worked off.
#[derive(Debug)]
pub(super) struct Throttle {
    hasher: RandomState,
    began: Instant,
    places: Box<[AtomicU64]>,
}

impl Throttle {
    pub(super) fn new(now: Instant) -> Self {
        let places = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self {
            hasher: RandomState::new(),
            began: now,
            places,
        }
    }

    /// Charges an attempt of this source.
    pub(super) fn charge(&self, source: IpAddr, now: Instant) -> Attempt {
        let Some(place) = self.place(source) else {
            return Attempt::Refused;
        };
        let now = self.since(now);
        let charged = place.fetch_update(Ordering::AcqRel, Ordering::Acquire, |done| {
            let done = done.max(now) + EACH;
            (done - now <= BURST * EACH).then_some(done)
        });
        if charged.is_ok() {
            Attempt::Charged
        } else {
            Attempt::Refused
        }
    }

    /// Pays an attempt back.
    pub(super) fn pay_back(&self, source: IpAddr) {
        if let Some(place) = self.place(source) {
            let paid = |done: u64| Some(done.saturating_sub(EACH));
            let _ = place.fetch_update(Ordering::AcqRel, Ordering::Acquire, paid);
        }
    }

    fn place(&self, source: IpAddr) -> Option<&AtomicU64> {
        self.places
            .get(self.hasher.hash_one(network(source)) as usize % PLACES)
    }

    fn since(&self, now: Instant) -> u64 {
        let since: Duration = now.saturating_duration_since(self.began);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX / 2)
    }
}

/// An IPv6 client has a whole /64 of addresses to come from.
fn network(source: IpAddr) -> u128 {
    match source.to_canonical() {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits() >> 64 << 64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    fn charged(throttle: &Throttle, source: &str, now: Instant) -> usize {
        let source = source.parse().unwrap();
        (0..100)
            .take_while(|_| throttle.charge(source, now) == Attempt::Charged)
            .count()
    }

    #[test]
    fn ten_at_once_then_one_in_six_seconds() {
        let (clock, hand) = Clock::manual();
        let throttle = Throttle::new(clock.now());
        assert_eq!(charged(&throttle, "192.0.2.1", clock.now()), 10);
        hand.advance(Duration::from_millis(5_999));
        assert_eq!(charged(&throttle, "192.0.2.1", clock.now()), 0);
        hand.advance(Duration::from_millis(1));
        assert_eq!(charged(&throttle, "192.0.2.1", clock.now()), 1);
        hand.advance(Duration::from_secs(3_600));
        assert_eq!(charged(&throttle, "192.0.2.1", clock.now()), 10);
    }

    #[test]
    fn who_is_right_pays_nothing() {
        let (clock, _hand) = Clock::manual();
        let throttle = Throttle::new(clock.now());
        let source = "192.0.2.1".parse().unwrap();
        for _ in 0..1_000 {
            assert_eq!(throttle.charge(source, clock.now()), Attempt::Charged);
            throttle.pay_back(source);
        }
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let (clock, _hand) = Clock::manual();
        let throttle = Throttle::new(clock.now());
        assert_eq!(charged(&throttle, "2001:db8::1", clock.now()), 10);
        assert_eq!(charged(&throttle, "2001:db8::2", clock.now()), 0);
        assert_eq!(charged(&throttle, "2001:db8:0:1::1", clock.now()), 10);
    }
}
