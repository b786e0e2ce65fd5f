//! The pace of a host: the values of the option `politeness`.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use super::adaptive::AdaptiveDelay;

/// The maximum wait; a longer one would overflow clocks.
pub const MAX_WAIT: Duration = Duration::from_secs(366 * 86_400);

/// Limits on the requests to a key. All of them apply together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostPace {
    /// The minimum time between the last head bytes of two requests.
    pub delay: Duration,
    /// Random factors for the delay.
    pub jitter: Jitter,
    /// The maximum number of requests in a period.
    pub rate: Option<RateLimit>,
    /// The maximum number of concurrent requests, each until the origin's last byte.
    pub concurrency: u32,
    /// A delay that follows the origin's latency, in effect if it is longer than `delay`.
    pub adaptive: Option<AdaptiveDelay>,
    /// The average bytes of bodies per second.
    pub bytes_per_second: Option<NonZeroU64>,
}

impl HostPace {
    /// No limits.
    pub const UNLIMITED: Self = Self {
        delay: Duration::ZERO,
        jitter: Jitter::NONE,
        rate: None,
        concurrency: u32::MAX,
        adaptive: None,
        bytes_per_second: None,
    };

    /// Returns the delay with jitter; `draw` is a random number from 0 to 1.
    pub fn jittered_delay(&self, draw: f32) -> Duration {
        self.spacing().jittered_delay(draw)
    }

    /// The part that applies to a request that is resent in its slot.
    pub fn spacing(&self) -> RequestSpacing {
        RequestSpacing {
            delay: self.delay,
            jitter: self.jitter,
        }
    }

    /// The average time between two requests at this pace, and thus the cost of each request ahead
    /// in the queue.
    pub fn interval(&self) -> Duration {
        let by_rate = self.rate.map_or(Duration::ZERO, |rate| rate.interval());
        let by_latency = self
            .adaptive
            .map_or(Duration::ZERO, |adaptive| adaptive.min_delay());
        self.jittered_delay(0.5).max(by_rate).max(by_latency)
    }

    /// Returns `true` if requests are spaced by the time at which they are sent.
    pub fn has_delay(&self) -> bool {
        !self.delay.is_zero() || self.adaptive.is_some()
    }

    /// Returns the pace with a delay of at least this: robots.txt can only lengthen it.
    #[must_use]
    pub fn with_min_delay(self, delay: Option<Duration>) -> Self {
        Self {
            delay: self.delay.max(delay.unwrap_or_default()).min(MAX_WAIT),
            ..self
        }
    }

    /// The concurrency, at least 1.
    pub(crate) fn max_leases(&self) -> usize {
        usize::try_from(self.concurrency.max(1)).unwrap_or(usize::MAX)
    }
}

/// The time between two requests of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestSpacing {
    /// The minimum, before jitter.
    pub delay: Duration,
    /// Random factors for the delay.
    pub jitter: Jitter,
}

impl RequestSpacing {
    /// Returns the delay with jitter; `draw` is a random number from 0 to 1.
    pub fn jittered_delay(&self, draw: f32) -> Duration {
        self.jitter.apply(self.delay, draw)
    }
}

/// A range of factors from which one is drawn uniformly for each request. Never below 1: a delay is
/// a minimum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    from: f32,
    to: f32,
}

impl Jitter {
    /// No jitter.
    pub const NONE: Self = Self { from: 1.0, to: 1.0 };

    /// Creates a range of factors. Values below 1 count as 1.
    pub fn new(from: f64, to: f64) -> Self {
        let from = (from as f32).clamp(1.0, 1000.0);
        Self {
            from,
            to: (to as f32).clamp(from, 1000.0),
        }
    }

    /// The smallest and the largest factor.
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

/// A rate of requests, with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    interval: Duration,
    burst: NonZeroU32,
}

impl RateLimit {
    /// Allows `count` requests in `per`, of which `burst` may come at once. 0 counts as 1 in all
    /// three.
    pub fn new(count: u32, per: Duration, burst: u32) -> Self {
        let interval = (per / count.max(1)).clamp(Duration::from_nanos(1), MAX_WAIT);
        // The time to fill the bucket must fit a clock, too.
        let most = u32::try_from(MAX_WAIT.as_nanos() / interval.as_nanos()).unwrap_or(u32::MAX);
        let burst = NonZeroU32::new(burst.min(most)).unwrap_or(NonZeroU32::MIN);
        Self { interval, burst }
    }

    /// The time in which one more request is allowed.
    pub fn interval(self) -> Duration {
        self.interval
    }

    /// The number of requests allowed at once.
    pub fn burst(self) -> NonZeroU32 {
        self.burst
    }
}

/// The kind of a request. Pages and their resources are paced separately, or no page would ever
/// load completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// A page.
    Navigation,
    /// A resource that a browser loads for a page.
    Embed,
}

/// The decision on a request for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaceDecision<G> {
    /// The request may be sent, with this lease.
    Granted(G),
    /// The request has to wait.
    Wait(PaceWait),
}

/// The decision on a request to resend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResendDecision {
    Now,
    /// The request may be made again after this time. No other request of its kind goes meanwhile.
    After(Duration),
    /// The request must not be resent: it has lost its slot, or the host entered backoff since.
    Never,
}

/// A wait and its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceWait {
    /// The time to wait, unless a lease is released earlier.
    pub duration: Duration,
    /// The cause of the wait.
    pub cause: WaitCause,
}

impl PaceWait {
    pub(crate) fn time(duration: Duration) -> Self {
        Self {
            duration,
            cause: WaitCause::Time,
        }
    }

    pub(crate) fn slot(duration: Duration) -> Self {
        Self {
            duration,
            cause: WaitCause::Slots,
        }
    }
}

/// The cause of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCause {
    /// The time since the last request.
    Time,
    /// Requests in flight.
    Slots,
    /// The host's backoff.
    Backoff,
    /// A probe after the host's backoff, which is in progress.
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
    fn huge_rates_do_not_overflow() {
        let rate = RateLimit::new(1, Duration::MAX, u32::MAX);
        assert!(rate.interval() * (rate.burst().get() - 1) <= MAX_WAIT);
        assert_eq!(RateLimit::new(0, Duration::ZERO, 0).burst().get(), 1);
    }
}
