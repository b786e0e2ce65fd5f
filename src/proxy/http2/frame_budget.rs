//! The number of frames that a peer may send: a burst, and a rate.

use std::time::Instant;

use crate::clock::Clock;

/// A budget of frames, refilled over time. The clock is read only when it is used up.
#[derive(Debug)]
pub(super) struct FrameBudget {
    left: u32,
    burst: u32,
    per_second: u32,
    refilled_at: Instant,
}

impl FrameBudget {
    /// Creates a full budget.
    pub(super) fn new(burst: u32, per_second: u32, now: Instant) -> Self {
        Self {
            left: burst,
            burst,
            per_second,
            refilled_at: now,
        }
    }

    /// Spends one frame. Returns `false` if the budget is used up.
    pub(super) fn spend(&mut self, clock: &Clock) -> bool {
        if self.left == 0 {
            self.refill(clock.now());
        }
        let is_within = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_within
    }

    fn refill(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.refilled_at);
        let earned = since.as_secs_f64() * f64::from(self.per_second);
        // The conversion saturates.
        self.left = (earned as u32).min(self.burst);
        if self.left > 0 {
            self.refilled_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_and_then_the_rate() {
        let (clock, hands) = Clock::manual();
        let mut budget = FrameBudget::new(3, 2, clock.now());
        let mut count = |seconds| {
            hands.advance(Duration::from_millis(seconds));
            (0..100).take_while(|_| budget.spend(&clock)).count()
        };
        assert_eq!(count(0), 3);
        assert_eq!(count(400), 0);
        assert_eq!(count(600), 2);
        assert_eq!(count(3_600_000), 3);
    }
}
