//! `bytes_per_second`: requests wait until the bodies of earlier ones are paid for by time.
//!
//! Bodies are not throttled: a response is delivered at full speed, and the next request waits
//! until it is paid for. So the limit applies on average, and responses in progress may exceed it.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use super::pace::MAX_WAIT;

/// The maximum credit of an idle key, as time.
const MAX_CREDIT: Duration = Duration::from_secs(1);

/// The debt of a key, as the time at which it is paid.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteDebt {
    paid_at: Option<Instant>,
}

impl ByteDebt {
    /// Returns the time until the debt is paid; `None` if nothing is owed.
    pub fn remaining(&self, now: Instant) -> Option<Duration> {
        self.paid_at?
            .checked_duration_since(now)
            .filter(|remaining| !remaining.is_zero())
    }

    /// Adds the debt of another process: the time until it is paid.
    pub fn restore(&mut self, remaining: Duration, now: Instant) {
        self.paid_at = self.paid_at.max(now.checked_add(remaining.min(MAX_WAIT)));
    }

    /// Charges `bytes` of bodies against a limit of `per_second` bytes a second.
    pub fn charge(&mut self, bytes: u64, per_second: NonZeroU64, now: Instant) {
        let saved = now.checked_sub(MAX_CREDIT).unwrap_or(now);
        let paid_from = self.paid_at.map_or(saved, |paid| paid.max(saved));
        self.paid_at = paid_from
            .checked_add(transfer_time(bytes, per_second))
            .or(self.paid_at);
    }

    /// Returns `true` if the state can be dropped without effect.
    pub fn is_idle(&self, now: Instant) -> bool {
        self.paid_at
            .is_none_or(|paid| MAX_CREDIT <= now.saturating_duration_since(paid))
    }
}

/// Returns the time that the bytes take at this rate.
fn transfer_time(bytes: u64, per_second: NonZeroU64) -> Duration {
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(per_second.get());
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)).min(MAX_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    const SECOND: Duration = Duration::from_secs(1);

    fn budget(per_second: u64) -> NonZeroU64 {
        NonZeroU64::new(per_second).unwrap()
    }

    #[test]
    fn a_debt_is_paid_by_time_and_credit_is_limited_to_a_second() {
        let (clock, control) = TestClock::manual();
        control.advance(100 * SECOND);
        let mut debt = ByteDebt::default();
        assert!(debt.is_idle(clock.now()));
        debt.charge(1_000, budget(1_000), clock.now());
        assert_eq!(
            (debt.remaining(clock.now()), debt.is_idle(clock.now())),
            (None, false)
        );
        debt.charge(2_500, budget(1_000), clock.now());
        assert_eq!(debt.remaining(clock.now()), Some(SECOND * 5 / 2));
        control.advance(SECOND * 5 / 2);
        assert_eq!(
            (debt.remaining(clock.now()), debt.is_idle(clock.now())),
            (None, false)
        );
        control.advance(SECOND);
        assert!(debt.is_idle(clock.now()));
        control.advance(SECOND * 1_000);
        debt.charge(1_500, budget(1_000), clock.now());
        assert_eq!(debt.remaining(clock.now()), Some(SECOND / 2));
    }

    #[test]
    fn huge_bodies_do_not_overflow() {
        let (clock, _control) = TestClock::manual();
        let mut debt = ByteDebt::default();
        for bytes in [u64::MAX, u64::MAX, 0, 1] {
            debt.charge(bytes, budget(1), clock.now());
        }
        assert!(
            debt.remaining(clock.now())
                .is_some_and(|remaining| remaining > MAX_WAIT)
        );
        let mut free = ByteDebt::default();
        free.charge(u64::MAX, budget(u64::MAX), clock.now());
        assert_eq!(free.remaining(clock.now()), None);
    }

    #[test]
    fn a_hundred_responses_stay_within_the_budget_over_every_window() {
        for seed in 0..50 {
            let ((clock, control), mut rng) = (TestClock::manual(), fastrand::Rng::with_seed(seed));
            control.advance(100 * SECOND);
            let (per_second, mut debt, mut ended) =
                (rng.u64(1..1 << 20), ByteDebt::default(), vec![]);
            for _ in 0..100 {
                control.advance(Duration::from_millis(rng.u64(0..2_000)) * rng.u32(0..2));
                control.advance(debt.remaining(clock.now()).unwrap_or_default());
                assert_eq!(debt.remaining(clock.now()), None);
                let bytes = rng.u64(0..4 * per_second);
                // A response takes its time and is charged at its end.
                control.advance(Duration::from_millis(rng.u64(0..100)));
                debt.charge(bytes, budget(per_second), clock.now());
                ended.push((clock.now(), bytes));
            }
            for (from, (began, _)) in ended.iter().enumerate() {
                let mut passed = 0.0;
                for (end, bytes) in &ended[from..] {
                    let allowed = (*end - *began + SECOND).as_secs_f64() * per_second as f64;
                    assert!(
                        passed <= allowed + 100.0,
                        "{seed}: {passed} bytes before the last one, {allowed}"
                    );
                    passed += *bytes as f64;
                }
            }
        }
    }
}
