//! `rate` and `burst`: governor's cell-rate algorithm with the state kept outside.
//!
//! governor needs a limiter with a clock for each quota. Here the time is an argument and the quota
//! may differ between requests, so a limiter is created for each check, and the only state is the
//! time at which the bucket is full again. Rules with different rates for one key share that state.

use std::cell::Cell;
use std::time::{Duration, Instant};

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{NotKeyed, StateStore};
use governor::{Quota, RateLimiter};

use super::pace::{MAX_WAIT, RateLimit};

/// The state of a bucket: the time at which it is full again.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenBucket {
    full_at: Option<Instant>,
}

/// The charge of a request, which can be refunded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketCharge(Duration);

impl TokenBucket {
    /// Takes a token.
    ///
    /// # Errors
    /// Returns the time until a token is available.
    pub fn take(&mut self, rate: RateLimit, now: Instant) -> Result<BucketCharge, Duration> {
        let Some(quota) = Quota::with_period(rate.interval()) else {
            return Ok(BucketCharge::default());
        };
        let quota = quota.allow_burst(rate.burst());
        let limiter: RateLimiter<_, _, _, NoOpMiddleware<Nanos>> =
            RateLimiter::new(quota, self.limiter_state(now), FrozenClock);
        limiter
            .check()
            .map_err(|not_until| not_until.wait_time_from(FrozenClock.now()))?;
        let full = limiter.into_state_store().0.into_inner();
        self.full_at = now.checked_add(full.into());
        Ok(BucketCharge(rate.interval()))
    }

    /// Takes a token at the rate of an earlier charge, without a burst.
    ///
    /// # Errors
    /// Returns the time until a token is available.
    pub fn retake(&mut self, charge: BucketCharge, now: Instant) -> Result<(), Duration> {
        if charge.0.is_zero() {
            return Ok(());
        }
        self.take(RateLimit::new(1, charge.0, 1), now).map(|_| ())
    }

    pub fn refund(&mut self, charge: BucketCharge) {
        self.full_at = self.full_at.and_then(|full| full.checked_sub(charge.0));
    }

    /// Returns the time until the bucket is full.
    pub fn until_full(&self, now: Instant) -> Duration {
        self.full_at
            .map_or(Duration::ZERO, |full| full.saturating_duration_since(now))
    }

    /// Takes what another process has taken: the bucket is not full before this time is over.
    pub fn restore(&mut self, until_full: Duration, now: Instant) {
        self.full_at = self.full_at.max(now.checked_add(until_full.min(MAX_WAIT)));
    }

    /// Treats the bucket as empty at a time in the past.
    pub fn empty_at(&mut self, time: Instant, rate: RateLimit) {
        let until_full = rate.interval() * rate.burst().get();
        self.full_at = self.full_at.max(time.checked_add(until_full));
    }

    /// Returns `true` if earlier requests have no effect any more.
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_at.is_none_or(|full| full <= now)
    }

    fn limiter_state(&self, now: Instant) -> BucketState {
        let remaining = self
            .full_at
            .map_or(Duration::ZERO, |full| full.saturating_duration_since(now));
        BucketState(Cell::new(Nanos::from(remaining)))
    }
}

/// A clock that is always at the time of the check.
#[derive(Clone, Copy, Debug)]
struct FrozenClock;

impl Clock for FrozenClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::default()
    }
}

#[derive(Debug)]
struct BucketState(Cell<Nanos>);

impl StateStore for BucketState {
    type Key = NotKeyed;

    fn measure_and_replace<T, F, E>(&self, _key: &NotKeyed, f: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let (answer, full) = f(Some(self.0.get()))?;
        self.0.set(full);
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn after_a_burst_one_token_per_interval() {
        let (clock, control) = TestClock::manual();
        let mut bucket = TokenBucket::default();
        let rate = RateLimit::new(2, SECOND, 3);
        for _ in 0..3 {
            assert!(bucket.take(rate, clock.now()).is_ok());
        }
        assert_eq!(bucket.take(rate, clock.now()), Err(SECOND / 2));
        control.advance(SECOND / 4);
        assert_eq!(bucket.take(rate, clock.now()), Err(SECOND / 4));
        control.advance(SECOND / 4);
        assert!(bucket.take(rate, clock.now()).is_ok());
        assert!(bucket.take(rate, clock.now()).is_err());
        control.advance(2 * SECOND);
        assert!(bucket.is_full(clock.now()));
    }

    #[test]
    fn refunded_tokens_are_available_again() {
        let (clock, _control) = TestClock::manual();
        let mut bucket = TokenBucket::default();
        let rate = RateLimit::new(1, SECOND, 1);
        let taken = bucket.take(rate, clock.now()).unwrap();
        assert!(bucket.take(rate, clock.now()).is_err());
        bucket.refund(taken);
        assert!(bucket.take(rate, clock.now()).is_ok());
    }

    #[test]
    fn an_emptied_bucket_has_a_token_after_an_interval() {
        let (clock, control) = TestClock::manual();
        let rate = RateLimit::new(2, SECOND, 3);
        let mut bucket = TokenBucket::default();
        bucket.empty_at(clock.now(), rate);
        assert_eq!(bucket.take(rate, clock.now()), Err(SECOND / 2));
        control.advance(SECOND / 2);
        // Again, it changes nothing.
        bucket.empty_at(clock.now() - SECOND / 2, rate);
        bucket.take(rate, clock.now()).unwrap();
        let mut other = TokenBucket::default();
        other.restore(bucket.until_full(clock.now()), clock.now());
        assert_eq!(other.take(rate, clock.now()), Err(SECOND / 2));
        other.restore(Duration::MAX, clock.now());
        assert_eq!(other.until_full(clock.now()), MAX_WAIT);
    }

    #[test]
    fn changing_the_rate_keeps_the_level() {
        let (clock, control) = TestClock::manual();
        let mut bucket = TokenBucket::default();
        let slow = RateLimit::new(1, 10 * SECOND, 1);
        let fast = RateLimit::new(1, SECOND, 1);
        bucket.take(slow, clock.now()).unwrap();
        assert_eq!(bucket.take(fast, clock.now()), Err(10 * SECOND));
        control.advance(10 * SECOND);
        bucket.take(fast, clock.now()).unwrap();
        assert_eq!(bucket.take(slow, clock.now()), Err(SECOND));
    }
}
