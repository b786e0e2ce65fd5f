//! What a policy wants of a key: the option `politeness`, as numbers.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use super::adaptive::AdaptiveDelay;

/// No wait is longer than this: a longer one would overflow clocks.
pub const MAX_WAIT: Duration = Duration::from_secs(366 * 86_400);

/// How a key may be asked. All of it must hold together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostPace {
    /// The least time between the moments at which the last head bytes of two requests are written.
    pub delay: Duration,
    /// By what the delay is multiplied.
    pub jitter: Jitter,
    /// So many in so long.
    pub rate: Option<RateLimit>,
    /// Requests under way at once, each until the origin's last byte.
    pub concurrency: u32,
    /// A delay that follows the origin's latency, if that is longer.
    pub adaptive: Option<AdaptiveDelay>,
    /// Bytes of bodies in a second, on average.
    pub bytes_per_second: Option<NonZeroU64>,
}

impl HostPace {
    /// No limit that could ever hold a request.
    pub const UNLIMITED: Self = Self {
        delay: Duration::ZERO,
        jitter: Jitter::NONE,
        rate: None,
        concurrency: u32::MAX,
        adaptive: None,
        bytes_per_second: None,
    };

    /// The delay with chance at work: `draw` is from 0 to 1.
    pub fn jittered_delay(&self, draw: f32) -> Duration {
        self.spacing().jittered_delay(draw)
    }

    /// What of it concerns a request that goes anew in the slot that it has.
    pub fn spacing(&self) -> RequestSpacing {
        RequestSpacing {
            delay: self.delay,
            jitter: self.jitter,
        }
    }

    /// The time between two requests that this pace comes to: what each request ahead in the queue costs.
    pub fn interval(&self) -> Duration {
        let by_rate = self.rate.map_or(Duration::ZERO, |rate| rate.interval());
        let by_latency = self
            .adaptive
            .map_or(Duration::ZERO, |adaptive| adaptive.min_delay());
        self.jittered_delay(0.5).max(by_rate).max(by_latency)
    }

    /// Whether any moment of sending counts.
    pub fn has_delay(&self) -> bool {
        !self.delay.is_zero() || self.adaptive.is_some()
    }

    /// The same pace with a delay of at least this: a robots.txt may only lengthen it.
    #[must_use]
    pub fn with_min_delay(self, delay: Option<Duration>) -> Self {
        Self {
            delay: self.delay.max(delay.unwrap_or_default()).min(MAX_WAIT),
            ..self
        }
    }
}

/// The time between two requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestSpacing {
    /// The least.
    pub delay: Duration,
    /// By what it is multiplied.
    pub jitter: Jitter,
}

impl RequestSpacing {
    /// The delay with chance at work: `draw` is from 0 to 1.
    pub fn jittered_delay(&self, draw: f32) -> Duration {
        self.jitter.apply(self.delay, draw)
    }
}

/// Factors from and to, drawn evenly for each request. Never below 1: a delay is a floor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    from: f32,
    to: f32,
}

impl Jitter {
    /// Every delay as it is.
    pub const NONE: Self = Self { from: 1.0, to: 1.0 };

    /// Factors in this range; what is below 1 counts as 1.
    pub fn new(from: f64, to: f64) -> Self {
        let from = (from as f32).clamp(1.0, 1000.0);
        Self {
            from,
            to: (to as f32).clamp(from, 1000.0),
        }
    }

    /// The least and the greatest factor.
    pub fn range(self) -> (f32, f32) {
        (self.from, self.to)
    }

    fn apply(self, delay: Duration, draw: f32) -> Duration {
        let factor = self.from + (self.to - self.from) * draw.clamp(0.0, 1.0);
        if factor <= 1.0 {
            return delay;
        }
        let stretched = Duration::try_from_secs_f64(delay.as_secs_f64() * f64::from(factor));
        stretched
            .unwrap_or(MAX_WAIT)
            .clamp(delay, MAX_WAIT.max(delay))
    }
}

/// So many requests in so long, and how many at once if none went before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    interval: Duration,
    burst: NonZeroU32,
}

impl RateLimit {
    /// `count` in `per`, of which `burst` may come at once; 0 counts as 1 in all three.
    pub fn new(count: u32, per: Duration, burst: u32) -> Self {
        let interval = (per / count.max(1)).clamp(Duration::from_nanos(1), MAX_WAIT);
        // The time in which a bucket fills must fit a clock, too.
        let most = u32::try_from(MAX_WAIT.as_nanos() / interval.as_nanos()).unwrap_or(u32::MAX);
        let burst = NonZeroU32::new(burst.min(most)).unwrap_or(NonZeroU32::MIN);
        Self { interval, burst }
    }

    /// The time in which one more may go.
    pub fn interval(self) -> Duration {
        self.interval
    }

    /// How many may go at once.
    pub fn burst(self) -> NonZeroU32 {
        self.burst
    }
}

/// Whether a request is a page or belongs to one: they are paced apart, or no page would ever be complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// A page.
    Navigation,
    /// What a browser loads for one.
    Embed,
}

/// What a request that wants to go is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaceDecision<G> {
    /// Go, by this grant.
    Go(G),
    /// Not yet.
    Wait(PaceWait),
}

/// What a request is told that has to be sent once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResendDecision {
    /// Now.
    Now,
    /// It is to ask again after this time; nobody else of its kind goes meanwhile.
    After(Duration),
    /// It is not to be sent: it has lost its slot, or the host has rested since it got that.
    Never,
}

/// Why not yet, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceWait {
    /// Ask again after this time, or when something is released.
    pub duration: Duration,
    /// What holds the request.
    pub cause: WaitCause,
}

/// What holds a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCause {
    /// The time since the last one.
    Time,
    /// Those under way.
    Slots,
    /// The origin rests.
    Backoff,
    /// It has rested, and one request is under way to see whether that was enough.
    Probe,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn jitter_only_lengthens() {
        for (from, to, draw, gap_ms) in [
            (1.0, 1.5, 0.0, 1_000),
            (1.0, 1.5, 1.0, 1_500),
            (0.5, 0.8, 0.5, 1_000),
            (2.0, 1.0, 0.5, 2_000),
            (1.0, 1.5, f32::NAN, 1_000),
        ] {
            let pace = HostPace {
                delay: SECOND,
                jitter: Jitter::new(from, to),
                ..HostPace::UNLIMITED
            };
            let gap = pace.jittered_delay(draw).as_millis();
            assert!(
                gap == gap_ms || (draw.is_nan() && gap >= gap_ms),
                "{from} {to} {draw}: {gap}"
            );
        }
    }

    #[test]
    fn the_greater_of_delay_and_rate_sets_the_interval() {
        let rate = Some(RateLimit::new(1, 5 * SECOND, 3));
        assert_eq!(
            HostPace {
                delay: SECOND,
                rate,
                ..HostPace::UNLIMITED
            }
            .interval(),
            5 * SECOND
        );
        assert_eq!(
            HostPace {
                delay: 9 * SECOND,
                rate,
                ..HostPace::UNLIMITED
            }
            .interval(),
            9 * SECOND
        );
        assert_eq!(
            HostPace::UNLIMITED
                .with_min_delay(Some(3 * SECOND))
                .interval(),
            3 * SECOND
        );
        assert_eq!(
            HostPace {
                delay: SECOND,
                ..HostPace::UNLIMITED
            }
            .with_min_delay(None)
            .delay,
            SECOND
        );
    }

    #[test]
    fn absurd_rates_stay_within_clocks() {
        let rate = RateLimit::new(1, Duration::MAX, u32::MAX);
        assert!(rate.interval() * (rate.burst().get() - 1) <= MAX_WAIT);
        assert_eq!(RateLimit::new(0, Duration::ZERO, 0).burst().get(), 1);
    }
}
