//! `rate` and `burst`: governor's cell-rate algorithm over one moment of memory.
//!
//! governor wants a limiter for each quota, with a clock of its own. Here the time is an argument and the quota may be
//! another for each request, so a limiter is made for one look and the memory stays outside: the moment at which the
//! bucket is full again. Rules with different rates that meet on one key so share it.

use std::cell::Cell;
use std::time::{Duration, Instant};

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{NotKeyed, StateStore};
use governor::{Quota, RateLimiter};

use super::pace::RateLimit;

/// What went lately, as the moment at which nothing of it counts any more.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenBucket {
    full_at: Option<Instant>,
}

/// What a request has taken out of a bucket, to be put back if it is not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketCharge(Duration);

impl TokenBucket {
    /// Takes one.
    ///
    /// # Errors
    /// The time until there will be one.
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

    /// Takes the same once more, as if nothing could go at once.
    ///
    /// # Errors
    /// The time until there will be one.
    pub fn retake(&mut self, taken: BucketCharge, now: Instant) -> Result<(), Duration> {
        if taken.0.is_zero() {
            return Ok(());
        }
        self.take(RateLimit::new(1, taken.0, 1), now).map(|_| ())
    }

    /// Puts one back.
    pub fn refund(&mut self, taken: BucketCharge) {
        self.full_at = self.full_at.and_then(|full| full.checked_sub(taken.0));
    }

    /// Whether nothing that went counts any more.
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_at.is_none_or(|full| full <= now)
    }

    fn limiter_state(&self, now: Instant) -> BucketState {
        let left = self
            .full_at
            .map_or(Duration::ZERO, |full| full.saturating_duration_since(now));
        BucketState(Cell::new(Nanos::from(left)))
    }
}

/// Time stands still while a limiter looks: it counts from the moment of the question.
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
    use crate::clock::Clock as OurClock;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_then_one_an_interval() {
        let (clock, hand) = OurClock::manual();
        let (mut bucket, rate) = (TokenBucket::default(), RateLimit::new(2, SECOND, 3));
        for _ in 0..3 {
            assert!(bucket.take(rate, clock.now()).is_ok());
        }
        assert_eq!(bucket.take(rate, clock.now()), Err(SECOND / 2));
        hand.advance(SECOND / 4);
        assert_eq!(bucket.take(rate, clock.now()), Err(SECOND / 4));
        hand.advance(SECOND / 4);
        assert!(bucket.take(rate, clock.now()).is_ok());
        assert!(bucket.take(rate, clock.now()).is_err());
        hand.advance(2 * SECOND);
        assert!(bucket.is_full(clock.now()));
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let (clock, _hand) = OurClock::manual();
        let (mut bucket, rate) = (TokenBucket::default(), RateLimit::new(1, SECOND, 1));
        let taken = bucket.take(rate, clock.now()).unwrap();
        assert!(bucket.take(rate, clock.now()).is_err());
        bucket.refund(taken);
        assert!(bucket.take(rate, clock.now()).is_ok());
    }

    #[test]
    fn another_rate_sees_what_the_first_one_let_go() {
        let (clock, hand) = OurClock::manual();
        let (mut bucket, slow, fast) = (
            TokenBucket::default(),
            RateLimit::new(1, 10 * SECOND, 1),
            RateLimit::new(1, SECOND, 1),
        );
        bucket.take(slow, clock.now()).unwrap();
        assert_eq!(bucket.take(fast, clock.now()), Err(10 * SECOND));
        hand.advance(10 * SECOND);
        bucket.take(fast, clock.now()).unwrap();
        assert_eq!(bucket.take(slow, clock.now()), Err(SECOND));
    }
}
