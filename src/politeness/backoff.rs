//! Rest that an origin has asked for, by 429 or 503: nobody of any class goes to it meanwhile.
//!
//! With Retry-After it lasts as long as that says; without, 5 s, doubled each time. Behind it requests go one at a
//! time until answers are good again.

use std::time::{Duration, Instant};

/// The first rest of an origin that names no time; doubled with each that follows.
const FIRST: Duration = Duration::from_secs(5);
/// The longest of those.
const LONGEST: Duration = Duration::from_secs(600);
/// The longest that an origin can ask for.
pub const LONGEST_TOLD: Duration = Duration::from_secs(3_600);
/// After so long without a complaint all is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// The memory of an origin's complaints.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    until: Option<Instant>,
    strikes: u8,
}

impl Backoff {
    /// The time for which nobody goes, if there is one.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        self.until?.checked_duration_since(now).filter(|left| !left.is_zero())
    }

    /// Whether the last complaint is still to be followed by a good answer: one at a time then.
    pub fn is_on_trial(&self, now: Instant) -> bool {
        self.strikes > 0 && !self.is_idle(now)
    }

    /// The origin has complained; `told` is what Retry-After says. Answers to what was sent before the rest began
    /// count as one complaint.
    pub fn complained(&mut self, told: Option<Duration>, draw: f32, now: Instant) {
        let told = told.filter(|told| !told.is_zero()).map(|told| told.min(LONGEST_TOLD));
        let resting = self.left(now).is_some();
        if resting && told.is_none() {
            return;
        }
        if !resting {
            self.strikes = if self.is_idle(now) { 1 } else { self.strikes.saturating_add(1) };
        }
        let rest = told.unwrap_or_else(|| self.rest(draw));
        self.until = self.until.max(now.checked_add(rest));
    }

    /// The origin has answered as it should.
    pub fn answered(&mut self, now: Instant) {
        if self.left(now).is_none() {
            self.strikes /= 2;
        }
    }

    /// Whether forgetting it changes nothing.
    pub fn is_idle(&self, now: Instant) -> bool {
        let since = |until: Instant| now.checked_duration_since(until);
        self.until
            .is_none_or(|until| since(until).is_some_and(|since| self.strikes == 0 || FORGOTTEN <= since))
    }

    /// The jitter keeps several proxies from coming back at once.
    fn rest(&self, draw: f32) -> Duration {
        let doubled = FIRST * (1 << u32::from(self.strikes.clamp(1, 8) - 1));
        doubled.min(LONGEST).mul_f32(1.0 + 0.25 * draw.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn retry_after_is_kept_to_and_capped() {
        let (clock, hand) = Clock::manual();
        let mut backoff = Backoff::default();
        backoff.complained(Some(30 * SECOND), 0.0, clock.now());
        backoff.complained(Some(10 * SECOND), 0.0, clock.now());
        backoff.complained(None, 0.0, clock.now());
        assert_eq!(backoff.left(clock.now()), Some(30 * SECOND));
        hand.advance(30 * SECOND);
        assert_eq!((backoff.left(clock.now()), backoff.is_on_trial(clock.now())), (None, true));
        backoff.answered(clock.now());
        assert!(!backoff.is_on_trial(clock.now()) && backoff.is_idle(clock.now()));
        backoff.complained(Some(Duration::MAX), 0.0, clock.now());
        assert_eq!(backoff.left(clock.now()), Some(LONGEST_TOLD));
    }

    #[test]
    fn without_a_time_each_rest_is_twice_the_last() {
        let (clock, hand) = Clock::manual();
        let mut backoff = Backoff::default();
        for seconds in [5, 10, 20, 40, 80, 160, 320, 600, 600, 600] {
            backoff.complained(None, 0.0, clock.now());
            // Those that were under way say the same.
            backoff.complained(None, 0.0, clock.now());
            assert_eq!(backoff.left(clock.now()), Some(seconds * SECOND));
            hand.advance(seconds * SECOND);
        }
        for _ in 0..4 {
            assert!(backoff.is_on_trial(clock.now()));
            backoff.answered(clock.now());
        }
        assert!(!backoff.is_on_trial(clock.now()));
    }

    #[test]
    fn complaints_are_forgotten() {
        let (clock, hand) = Clock::manual();
        let mut backoff = Backoff::default();
        for _ in 0..3 {
            backoff.complained(None, 0.0, clock.now());
            hand.advance(20 * SECOND);
        }
        hand.advance(FORGOTTEN);
        assert!(backoff.is_idle(clock.now()) && !backoff.is_on_trial(clock.now()));
        backoff.complained(Some(Duration::ZERO), 0.0, clock.now());
        assert_eq!(backoff.left(clock.now()), Some(FIRST));
    }
}
