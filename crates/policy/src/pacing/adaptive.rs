//! `politeness.adaptive`: a delay proportional to the origin's latency.
//!
//! As in Scrapy's AutoThrottle, only a 200 may lower the delay, since errors are often answered
//! fastest. A bad response or a failure doubles it.

use std::time::Duration;

use super::pace::MAX_WAIT;

/// The weight of a sample below the average: the delay decreases slowly.
const DOWN_WEIGHT: f32 = 1.0 / 8.0;
/// The weight of a sample above the average.
const UP_WEIGHT: f32 = 1.0 / 2.0;

/// The option `politeness.adaptive`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptiveDelay {
    factor: f32,
    min: Duration,
    max: Duration,
}

impl AdaptiveDelay {
    /// Creates a delay of `factor` times the latency, between `min` and `max`. A `max` below `min`
    /// counts as `min`.
    pub fn new(factor: f64, min: Duration, max: Duration) -> Self {
        let min = min.min(MAX_WAIT);
        let max = max.min(MAX_WAIT);
        // `max` turns NaN into 0.
        let factor = (factor as f32).max(0.0).clamp(0.0, 1000.0);
        Self {
            factor,
            min,
            max: max.max(min),
        }
    }

    /// The minimum delay.
    pub fn min_delay(&self) -> Duration {
        self.min
    }

    /// The maximum delay.
    pub fn max_delay(&self) -> Duration {
        self.max
    }

    /// The factor of the latency.
    pub fn factor(&self) -> f32 {
        self.factor
    }
}

/// The moving average of an origin's response time, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct OriginLatency {
    average: f32,
    /// The latencies that correspond to the minimum and maximum delay of the last policy; 0 before
    /// the first.
    min_latency: f32,
    max_latency: f32,
}

impl OriginLatency {
    /// Returns the delay for a policy.
    pub fn delay(&mut self, adaptive: AdaptiveDelay) -> Duration {
        let AdaptiveDelay { factor, min, max } = adaptive;
        self.min_latency = latency_at(min, factor);
        self.max_latency = latency_at(max, factor);
        Duration::try_from_secs_f32(self.average * factor)
            .unwrap_or(max)
            .clamp(min, max)
    }

    /// Returns `true` if there was a sample.
    pub fn is_known(&self) -> bool {
        self.average > 0.0
    }

    /// The average, if there was a sample.
    pub fn average(&self) -> Option<Duration> {
        Duration::try_from_secs_f32(self.average)
            .ok()
            .filter(|_| self.is_known())
    }

    /// Continues with the average of another process.
    pub fn restore(&mut self, average: Duration) {
        self.average = average.min(MAX_WAIT).as_secs_f32();
    }

    /// Records a 200 and its response time.
    pub fn record_success(&mut self, latency: Duration) {
        let latency = latency.as_secs_f32().min(self.max_latency);
        let part = if self.average < latency {
            UP_WEIGHT
        } else {
            DOWN_WEIGHT
        };
        // The first sample sets the average.
        let part = if self.is_known() { part } else { 1.0 };
        self.average += (latency - self.average) * part;
    }

    /// Records another response, which can only raise the average.
    pub fn record_other_response(&mut self, latency: Duration) {
        if self.average < latency.as_secs_f32() {
            self.record_success(latency);
        }
    }

    /// Records a bad response or a failure, which doubles the delay.
    pub fn record_failure(&mut self) {
        self.average = (self.average.max(self.min_latency) * 2.0).min(self.max_latency);
    }
}

fn latency_at(delay: Duration, factor: f32) -> f32 {
    if factor > 0.0 {
        delay.as_secs_f32() / factor
    } else {
        0.0
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
        for (responses, delay_ms) in [
            (Ok(1_000), 2_000),
            (Ok(2_000), 3_000),
            // Lowered slowly, and by a 200 alone.
            (Ok(700), 2_800),
            (Other(1), 2_800),
            (Other(1_800), 3_200),
            (Bad, 6_400),
            (Bad, 8_000),
            (Bad, 8_000),
            (Ok(60_000), 8_000),
            (Ok(0), 7_000),
        ] {
            match responses {
                Ok(ms) => latency.record_success(ms * MS),
                Other(ms) => latency.record_other_response(ms * MS),
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
    fn huge_options_do_not_overflow() {
        for (factor, min, max) in [
            (0.0, MS, 2 * MS),
            (1_000.0, Duration::MAX, MS),
            (f64::NAN, MS, Duration::MAX),
        ] {
            let adaptive = AdaptiveDelay::new(factor, min, max);
            let mut latency = OriginLatency::default();
            for _ in 0..40 {
                latency.delay(adaptive);
                latency.record_success(Duration::MAX);
                latency.record_failure();
            }
            assert!(latency.delay(adaptive) <= MAX_WAIT);
        }
    }
}
