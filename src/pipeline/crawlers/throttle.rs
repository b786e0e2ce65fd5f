//! The limit of wrong passwords from a source: ten at once, then one in six seconds.
//!
//! An attempt is charged before it is checked, so that many at once count, and refunded if it was right. Governor's
//! limiters cannot refund.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::source_table::SourceTable;

/// The time that an attempt costs, in milliseconds.
const ATTEMPT_COST_MS: u64 = 6_000;
/// The number of attempts at once.
const BURST: u64 = 10;

/// The decision on an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThrottleDecision {
    /// It may be made, and has been charged.
    Charged,
    /// Too many attempts were wrong. The next one may be made after this time.
    Refused(Duration),
}

/// The generic cell rate algorithm (ITU-T I.371). Each cell has the time, in milliseconds since the start, at which all
/// that was charged will have drained.
#[derive(Debug)]
pub(super) struct LoginThrottle {
    started_at: Instant,
    cells: SourceTable<AtomicU64>,
}

impl LoginThrottle {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            started_at: now,
            cells: SourceTable::new(),
        }
    }

    /// Charges an attempt to a source.
    pub(super) fn charge(&self, source: IpAddr, now: Instant) -> ThrottleDecision {
        let now = self.elapsed_ms(now);
        let charged = self.cells.get(source).map(|cell| {
            cell.fetch_update(Ordering::AcqRel, Ordering::Acquire, |done| {
                let done = done.max(now) + ATTEMPT_COST_MS;
                (done - now <= BURST * ATTEMPT_COST_MS).then_some(done)
            })
        });
        match charged {
            Some(Ok(_)) => ThrottleDecision::Charged,
            Some(Err(done)) => ThrottleDecision::Refused(wait_ms(done, now)),
            None => ThrottleDecision::Refused(Duration::from_millis(ATTEMPT_COST_MS)),
        }
    }

    /// Returns the time until a source may make an attempt; `None` if it may now.
    pub(super) fn wait_time(&self, source: IpAddr, now: Instant) -> Option<Duration> {
        let now = self.elapsed_ms(now);
        let done = self.cells.get(source)?.load(Ordering::Acquire);
        Some(wait_ms(done, now)).filter(|wait| !wait.is_zero())
    }

    /// Returns `true` if all that was charged to a source has drained or was refunded.
    pub(super) fn is_clear(&self, source: IpAddr, now: Instant) -> bool {
        let cell = self.cells.get(source);
        cell.is_some_and(|cell| cell.load(Ordering::Acquire) <= self.elapsed_ms(now))
    }

    /// Refunds an attempt.
    pub(super) fn refund(&self, source: IpAddr) {
        if let Some(cell) = self.cells.get(source) {
            let _ = cell.fetch_update(Ordering::AcqRel, Ordering::Acquire, |done: u64| {
                Some(done.saturating_sub(ATTEMPT_COST_MS))
            });
        }
    }

    fn elapsed_ms(&self, now: Instant) -> u64 {
        let elapsed: Duration = now.saturating_duration_since(self.started_at);
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX / 2)
    }
}

/// Returns the time until there is room for one more attempt, if all that was charged has drained at `done`.
fn wait_ms(done: u64, now: u64) -> Duration {
    Duration::from_millis((done + ATTEMPT_COST_MS).saturating_sub(now + BURST * ATTEMPT_COST_MS))
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
        let source = "192.0.2.1".parse().unwrap();
        assert!(throttle.is_clear(source, clock.now()));
        assert_eq!(charged(&throttle, "192.0.2.1", clock.now()), 10);
        assert!(!throttle.is_clear(source, clock.now()));
        let wait = Duration::from_secs(6);
        assert_eq!(throttle.wait_time(source, clock.now()), Some(wait));
        let refused = throttle.charge(source, clock.now());
        assert_eq!(refused, ThrottleDecision::Refused(wait));
        control.advance(Duration::from_millis(5_999));
        assert_eq!(charged(&throttle, "192.0.2.1", clock.now()), 0);
        control.advance(Duration::from_millis(1));
        assert_eq!(throttle.wait_time(source, clock.now()), None);
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
