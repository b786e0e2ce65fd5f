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
const CELL_COUNT: usize = 4096;
/// One attempt, in milliseconds.
const ATTEMPT_COST_MS: u64 = 6_000;
/// Attempts at once.
const BURST: u64 = 10;

/// Whether an attempt may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThrottleDecision {
    /// It may, and is charged.
    Charged,
    /// Too many were wrong.
    Refused,
}

/// The generic cell rate algorithm (ITU-T I.371), one cell a place: the time, in milliseconds from the beginning, at
/// which everything that was charged will be worked off.
#[derive(Debug)]
pub(super) struct LoginThrottle {
    hasher: RandomState,
    started_at: Instant,
    cells: Box<[AtomicU64]>,
}

impl LoginThrottle {
    pub(super) fn new(now: Instant) -> Self {
        let places = (0..CELL_COUNT).map(|_| AtomicU64::new(0)).collect();
        Self {
            hasher: RandomState::new(),
            started_at: now,
            cells: places,
        }
    }

    /// Charges an attempt of this source.
    pub(super) fn charge(&self, source: IpAddr, now: Instant) -> ThrottleDecision {
        let Some(place) = self.cell(source) else {
            return ThrottleDecision::Refused;
        };
        let now = self.elapsed_ms(now);
        let charged = place.fetch_update(Ordering::AcqRel, Ordering::Acquire, |done| {
            let done = done.max(now) + ATTEMPT_COST_MS;
            (done - now <= BURST * ATTEMPT_COST_MS).then_some(done)
        });
        if charged.is_ok() {
            ThrottleDecision::Charged
        } else {
            ThrottleDecision::Refused
        }
    }

    /// Pays an attempt back.
    pub(super) fn refund(&self, source: IpAddr) {
        if let Some(place) = self.cell(source) {
            let paid = |done: u64| Some(done.saturating_sub(ATTEMPT_COST_MS));
            let _ = place.fetch_update(Ordering::AcqRel, Ordering::Acquire, paid);
        }
    }

    fn cell(&self, source: IpAddr) -> Option<&AtomicU64> {
        self.cells
            .get(self.hasher.hash_one(network_key(source)) as usize % CELL_COUNT)
    }

    fn elapsed_ms(&self, now: Instant) -> u64 {
        let since: Duration = now.saturating_duration_since(self.started_at);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX / 2)
    }
}

/// An IPv6 client has a whole /64 of addresses to come from.
fn network_key(source: IpAddr) -> u128 {
    match source.to_canonical() {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits() >> 64 << 64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    fn charged(throttle: &LoginThrottle, source: &str, now: Instant) -> usize {
        let source = source.parse().unwrap();
        (0..100)
            .take_while(|_| throttle.charge(source, now) == ThrottleDecision::Charged)
            .count()
    }

    #[test]
    fn ten_at_once_then_one_in_six_seconds() {
        let (clock, hand) = Clock::manual();
        let throttle = LoginThrottle::new(clock.now());
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
        let throttle = LoginThrottle::new(clock.now());
        let source = "192.0.2.1".parse().unwrap();
        for _ in 0..1_000 {
            assert_eq!(
                throttle.charge(source, clock.now()),
                ThrottleDecision::Charged
            );
            throttle.refund(source);
        }
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let (clock, _hand) = Clock::manual();
        let throttle = LoginThrottle::new(clock.now());
        assert_eq!(charged(&throttle, "2001:db8::1", clock.now()), 10);
        assert_eq!(charged(&throttle, "2001:db8::2", clock.now()), 0);
        assert_eq!(charged(&throttle, "2001:db8:0:1::1", clock.now()), 10);
    }
}
