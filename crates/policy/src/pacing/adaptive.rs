//! `adaptive`: a delay that follows the origin's latency.
//!
//! As Scrapy's AutoThrottle has it: only 200 may lower it, since an error is often answered fastest. A bad answer and a
//! failure double it.

use std::time::Duration;

use super::pace::MAX_WAIT;

/// Which part of the difference a faster answer takes off: slowly.
const DOWN_WEIGHT: f32 = 1.0 / 8.0;
/// Which part a slower one adds.
const UP_WEIGHT: f32 = 1.0 / 2.0;

/// The option `politeness.adaptive`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptiveDelay {
    factor: f32,
    min: Duration,
    max: Duration,
}

impl AdaptiveDelay {
    /// `factor` times the latency, at least `min`, at most `max`; a `max` below `min` counts as `min`.
    pub fn new(factor: f64, min: Duration, max: Duration) -> Self {
        let (min, max) = (min.min(MAX_WAIT), max.min(MAX_WAIT));
        // The first is for what is no number.
        let factor = (factor as f32).max(0.0).clamp(0.0, 1000.0);
        Self {
            factor,
            min,
            max: max.max(min),
        }
    }

    /// The least that it comes to.
    pub fn min_delay(&self) -> Duration {
        self.min
    }

    /// The longest.
    pub fn max_delay(&self) -> Duration {
        self.max
    }

    /// By what the latency is multiplied.
    pub fn factor(&self) -> f32 {
        self.factor
    }
}

/// How long an origin takes to answer, on average over the last few; seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct OriginLatency {
    average: f32,
    /// The latencies between which the delay moves, by the policy that asked last; 0 while none has.
    min_latency: f32,
    max_latency: f32,
}

impl OriginLatency {
    /// The delay that a policy wants now.
    pub fn delay(&mut self, adaptive: AdaptiveDelay) -> Duration {
        let AdaptiveDelay { factor, min, max } = adaptive;
        let at = |delay: Duration| {
            if factor > 0.0 {
                delay.as_secs_f32() / factor
            } else {
                0.0
            }
        };
        (self.min_latency, self.max_latency) = (at(min), at(max));
        Duration::try_from_secs_f32(self.average * factor)
            .unwrap_or(max)
            .clamp(min, max)
    }

    /// Whether there is anything to remember.
    pub fn is_known(&self) -> bool {
        self.average > 0.0
    }

    /// The average, once anything was answered or failed.
    pub fn average(&self) -> Option<Duration> {
        Duration::try_from_secs_f32(self.average)
            .ok()
            .filter(|_| self.is_known())
    }

    /// A 200 came, so long after its request.
    pub fn record_success(&mut self, took: Duration) {
        let took = took.as_secs_f32().min(self.max_latency);
        let part = if self.average < took {
            UP_WEIGHT
        } else {
            DOWN_WEIGHT
        };
        // The first one is all that is known.
        let part = if self.is_known() { part } else { 1.0 };
        self.average += (took - self.average) * part;
    }

    /// Another answer came: it may only raise.
    pub fn record_other_answer(&mut self, took: Duration) {
        if self.average < took.as_secs_f32() {
            self.record_success(took);
        }
    }

    /// A bad answer, or none: twice the delay.
    pub fn record_failure(&mut self) {
        self.average = (self.average.max(self.min_latency) * 2.0).min(self.max_latency);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    enum LatencySample {
        Ok(u32),
        Other(u32),
        Bad,
    }

    #[test]
    fn the_delay_follows_latency_within_its_bounds() {
        use LatencySample::{Bad, Ok, Other};
        let adaptive = AdaptiveDelay::new(2.0, 1_000 * MS, 8_000 * MS);
        let mut latency = OriginLatency::default();
        assert_eq!(latency.delay(adaptive), 1_000 * MS);
        for (came, delay_ms) in [
            (Ok(1_000), 2_000),
            (Ok(2_000), 3_000),
            // Lowered slowly, and by 200 alone.
            (Ok(700), 2_800),
            (Other(1), 2_800),
            (Other(1_800), 3_200),
            (Bad, 6_400),
            (Bad, 8_000),
            (Bad, 8_000),
            (Ok(60_000), 8_000),
            (Ok(0), 7_000),
        ] {
            match came {
                Ok(ms) => latency.record_success(ms * MS),
                Other(ms) => latency.record_other_answer(ms * MS),
                Bad => latency.record_failure(),
            }
            let delay = latency.delay(adaptive).as_secs_f32() * 1_000.0;
            assert!(
                (delay - delay_ms as f32).abs() < 1.0,
                "{delay} is not {delay_ms}"
            );
        }
        (0..100).for_each(|_| latency.record_success(MS));
        assert_eq!(latency.delay(adaptive), 1_000 * MS);
    }

    #[test]
    fn a_fast_origin_that_fails_is_slowed_from_the_least_delay() {
        let adaptive = AdaptiveDelay::new(1.0, 1_000 * MS, 30_000 * MS);
        let mut latency = OriginLatency::default();
        latency.delay(adaptive);
        latency.record_success(5 * MS);
        latency.record_failure();
        assert_eq!(latency.delay(adaptive), 2_000 * MS);
    }

    #[test]
    fn absurd_options_stay_within_clocks() {
        for (factor, min, max) in [
            (0.0, MS, 2 * MS),
            (1_000.0, Duration::MAX, MS),
            (f64::NAN, MS, Duration::MAX),
        ] {
            let (adaptive, mut latency) = (
                AdaptiveDelay::new(factor, min, max),
                OriginLatency::default(),
            );
            for _ in 0..40 {
                latency.delay(adaptive);
                latency.record_success(Duration::MAX);
                latency.record_failure();
            }
            assert!(latency.delay(adaptive) <= MAX_WAIT);
        }
    }
}
