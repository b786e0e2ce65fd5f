//! The limit of wrong passwords from a source: ten at once, then one in six seconds.
//!
//! An attempt is charged before it is checked, so that many at once count, and refunded if it was right. Governor's
//! limiters cannot refund.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number of cells. Two sources that share a cell share their attempts; the hash is keyed at random, so that no
/// source can choose its cell.
const CELL_COUNT: usize = 4096;
/// The time that an attempt costs, in milliseconds.
const ATTEMPT_COST_MS: u64 = 6_000;
/// The number of attempts at once.
const BURST: u64 = 10;

/// The decision on an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThrottleDecision {
    /// It may be made, and has been charged.
    Charged,
    /// Too many attempts were wrong.
    Refused,
}

/// The generic cell rate algorithm (ITU-T I.371). Each cell has the time, in milliseconds since the start, at which all
/// that was charged will have drained.
#[derive(Debug)]
pub(super) struct LoginThrottle {
    hasher: RandomState,
    started_at: Instant,
    cells: Box<[AtomicU64]>,
}

impl LoginThrottle {
    pub(super) fn new(now: Instant) -> Self {
        let cells = (0..CELL_COUNT).map(|_| AtomicU64::new(0)).collect();
        Self {
            hasher: RandomState::new(),
            started_at: now,
            cells,
        }
    }

    /// Charges an attempt to a source.
    pub(super) fn charge(&self, source: IpAddr, now: Instant) -> ThrottleDecision {
        let Some(cell) = self.cell(source) else {
            return ThrottleDecision::Refused;
        };
        let now = self.elapsed_ms(now);
        let charged = cell.fetch_update(Ordering::AcqRel, Ordering::Acquire, |done| {
            let done = done.max(now) + ATTEMPT_COST_MS;
            (done - now <= BURST * ATTEMPT_COST_MS).then_some(done)
        });
        if charged.is_ok() {
            ThrottleDecision::Charged
        } else {
            ThrottleDecision::Refused
        }
    }

    /// Refunds an attempt.
    pub(super) fn refund(&self, source: IpAddr) {
        if let Some(cell) = self.cell(source) {
            let _ = cell.fetch_update(Ordering::AcqRel, Ordering::Acquire, |done: u64| {
                Some(done.saturating_sub(ATTEMPT_COST_MS))
            });
        }
    }

    fn cell(&self, source: IpAddr) -> Option<&AtomicU64> {
        self.cells
            .get(self.hasher.hash_one(network_key(source)) as usize % CELL_COUNT)
    }

    fn elapsed_ms(&self, now: Instant) -> u64 {
        let elapsed: Duration = now.saturating_duration_since(self.started_at);
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX / 2)
    }
}

/// Returns what counts as one source. An IPv6 client has a whole /64 of addresses.
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
    fn a_burst_of_ten_then_one_in_six_seconds() {
        let (clock, control) = Clock::manual();
        let throttle = LoginThrottle::new(clock.now());
        assert_eq!(charged(&throttle, "192.0.2.1", clock.now()), 10);
        control.advance(Duration::from_millis(5_999));
        assert_eq!(charged(&throttle, "192.0.2.1", clock.now()), 0);
        control.advance(Duration::from_millis(1));
        assert_eq!(charged(&throttle, "192.0.2.1", clock.now()), 1);
        control.advance(Duration::from_secs(3_600));
        assert_eq!(charged(&throttle, "192.0.2.1", clock.now()), 10);
    }

    #[test]
    fn a_correct_password_is_refunded() {
        let (clock, _control) = Clock::manual();
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
        let (clock, _control) = Clock::manual();
        let throttle = LoginThrottle::new(clock.now());
        assert_eq!(charged(&throttle, "2001:db8::1", clock.now()), 10);
        assert_eq!(charged(&throttle, "2001:db8::2", clock.now()), 0);
        assert_eq!(charged(&throttle, "2001:db8:0:1::1", clock.now()), 10);
    }
}
