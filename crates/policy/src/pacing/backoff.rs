//! Back-off of a host that asked for it by 429 or 503, or whose last three answers were bad. No
//! request of any kind goes to it meanwhile.
//!
//! With `Retry-After` it lasts for that time; otherwise for 5 s, doubled each time. Then exactly
//! one request goes as a probe. If it succeeds, requests go one at a time of each kind, and each
//! success halves the number of remembered rests, until it is zero. The caller tracks which
//! requests are under way and which of them is the probe.

use std::time::{Duration, Instant};

/// The duration of the first rest without `Retry-After`; doubled with each that follows.
const FIRST_REST: Duration = Duration::from_secs(5);
/// The maximum duration of such a rest.
const MAX_REST: Duration = Duration::from_secs(600);
/// The maximum that `Retry-After` can set.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(3_600);
/// The time without a complaint after which the history is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// The number of consecutive bad answers and failures that start a rest.
const FAILURES_BEFORE_REST: u8 = 3;

/// The history of an origin's complaints and failures.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    /// The end of the last rest, or the last failure after it.
    until: Option<Instant>,
    strikes: u8,
    consecutive_failures: u8,
    trust: RecoveryTrust,
    epoch: BackoffEpoch,
    cause: BackoffCause,
}

/// The cause of a back-off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackoffCause {
    /// The origin sent `Retry-After`.
    RetryAfter,
    /// The origin answered 429 or 503 without a time.
    Overload,
    /// Several answers in a row were bad or failed.
    #[default]
    Failed,
}

impl BackoffCause {
    /// A description for operators.
    pub fn description(self) -> &'static str {
        match self {
            Self::RetryAfter => "the origin sent Retry-After",
            Self::Overload => "the origin answered 429 or 503",
            Self::Failed => "several errors in a row",
        }
    }
}

/// The number of the period between two rests: an answer to a request from before a rest is no
/// evidence about the time after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackoffEpoch(u32);

/// `Proved` after a good answer since the last rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RecoveryTrust {
    #[default]
    Proved,
    Unproved,
}

/// The restriction on requests to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackoffPhase {
    /// No restriction beyond the pace.
    Free,
    /// One request of each kind at a time.
    OneByOne,
    /// A single request as a probe.
    Probe,
    /// No request for this time.
    Rest(Duration),
}

impl Backoff {
    /// Returns the restriction at this time.
    pub fn phase(&self, now: Instant) -> BackoffPhase {
        // The common case.
        if self.until.is_none() {
            return BackoffPhase::Free;
        }
        if let Some(left) = self.remaining(now) {
            return BackoffPhase::Rest(left);
        }
        if self.strikes == 0 || self.is_idle(now) {
            return BackoffPhase::Free;
        }
        match self.trust {
            RecoveryTrust::Proved => BackoffPhase::OneByOne,
            RecoveryTrust::Unproved => BackoffPhase::Probe,
        }
    }

    /// The remaining time of the rest, if one is active.
    pub fn remaining(&self, now: Instant) -> Option<Duration> {
        self.until?
            .checked_duration_since(now)
            .filter(|left| !left.is_zero())
    }

    /// The cause of the current or last rest.
    pub fn cause(&self) -> BackoffCause {
        self.cause
    }

    /// The number of consecutive bad answers and failures since the last rest or good answer.
    pub fn consecutive_failures(&self) -> u8 {
        self.consecutive_failures
    }

    /// The number of remembered rests, halved by each good answer.
    pub fn strikes(&self) -> u8 {
        self.strikes
    }

    /// The epoch to pass when the outcome of a request that goes now is recorded.
    pub fn epoch(&self) -> BackoffEpoch {
        self.epoch
    }

    /// Records a complaint of the origin, with the value of `Retry-After`. If the request was sent
    /// before the current rest began, it can only lengthen the rest.
    pub fn record_complaint(
        &mut self,
        retry_after: Option<Duration>,
        epoch: BackoffEpoch,
        draw: f32,
        now: Instant,
    ) {
        let retry_after = retry_after
            .filter(|time| !time.is_zero())
            .map(|time| time.min(MAX_RETRY_AFTER));
        if epoch == self.epoch {
            let cause = if retry_after.is_some() {
                BackoffCause::RetryAfter
            } else {
                BackoffCause::Overload
            };
            self.begin_rest(retry_after, cause, draw, now);
        } else if let Some(until) = retry_after.and_then(|time| now.checked_add(time))
            && self.until < Some(until)
        {
            self.until = Some(until);
            self.cause = BackoffCause::RetryAfter;
        }
    }

    /// Records a failure or a bad answer. `draw` is a random number from 0 to 1.
    pub fn record_failure(&mut self, epoch: BackoffEpoch, draw: f32, now: Instant) {
        if epoch != self.epoch {
            return;
        }
        if self.is_idle(now) {
            self.consecutive_failures = 0;
            self.strikes = 0;
        }
        let probed = self.trust == RecoveryTrust::Unproved && self.strikes > 0;
        self.consecutive_failures += 1;
        if probed || FAILURES_BEFORE_REST <= self.consecutive_failures {
            self.begin_rest(None, BackoffCause::Failed, draw, now);
        } else {
            self.until = self.until.max(Some(now));
        }
    }

    /// Records a good answer.
    pub fn record_success(&mut self, epoch: BackoffEpoch, now: Instant) {
        if epoch != self.epoch {
            return;
        }
        self.consecutive_failures = 0;
        if self.strikes > 0 && self.remaining(now).is_none() {
            self.strikes /= 2;
            self.trust = RecoveryTrust::Proved;
        }
    }

    /// Returns `true` if the history can be dropped without effect.
    pub fn is_idle(&self, now: Instant) -> bool {
        let Some(until) = self.until else {
            return true;
        };
        let no_history = self.strikes == 0 && self.consecutive_failures == 0;
        now.checked_duration_since(until)
            .is_some_and(|since| no_history || FORGET_AFTER <= since)
    }

    fn begin_rest(
        &mut self,
        retry_after: Option<Duration>,
        cause: BackoffCause,
        draw: f32,
        now: Instant,
    ) {
        self.cause = cause;
        self.strikes = if self.is_idle(now) {
            1
        } else {
            self.strikes.saturating_add(1)
        };
        let rest = retry_after.unwrap_or_else(|| self.rest_duration(draw));
        self.until = self.until.max(now.checked_add(rest));
        self.consecutive_failures = 0;
        self.trust = RecoveryTrust::Unproved;
        self.epoch = BackoffEpoch(self.epoch.0.wrapping_add(1));
    }

    /// The jitter keeps several proxies from returning at the same time.
    fn rest_duration(&self, draw: f32) -> Duration {
        let doubled = FIRST_REST * (1 << u32::from(self.strikes.clamp(1, 8) - 1));
        doubled
            .min(MAX_REST)
            .mul_f32(1.0 + 0.25 * draw.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{TestClock, TestClockControl};

    const SECOND: Duration = Duration::from_secs(1);

    /// A history with requests that are answered at once or late.
    struct BackoffBench {
        backoff: Backoff,
        clock: TestClock,
        hand: TestClockControl,
        /// The epoch of an earlier request.
        late: BackoffEpoch,
    }

    impl BackoffBench {
        fn new() -> Self {
            let (clock, hand) = TestClock::manual();
            Self {
                backoff: Backoff::default(),
                clock,
                hand,
                late: BackoffEpoch::default(),
            }
        }

        fn complained(&mut self, told: Option<Duration>) {
            self.backoff
                .record_complaint(told, self.backoff.epoch(), 0.0, self.clock.now());
        }

        fn phase(&self) -> BackoffPhase {
            self.backoff.phase(self.clock.now())
        }

        /// Plays a script: `g` a good answer, `b` a bad one, `c` a complaint; capitals are for a
        /// request that was sent at `s`. A number lets that many seconds pass.
        fn plays(&mut self, word: &str) {
            let now = self.clock.now();
            let era = if word.chars().all(char::is_uppercase) {
                self.late
            } else {
                self.backoff.epoch()
            };
            match word.to_ascii_lowercase().as_str() {
                "g" => self.backoff.record_success(era, now),
                "b" => self.backoff.record_failure(era, 0.0, now),
                "c" => self.backoff.record_complaint(None, era, 0.0, now),
                "s" => self.late = self.backoff.epoch(),
                seconds => self
                    .hand
                    .advance(SECOND * seconds.parse().expect("seconds")),
            }
        }
    }

    const ONE: BackoffPhase = BackoffPhase::OneByOne;

    fn rest(seconds: u32) -> BackoffPhase {
        BackoffPhase::Rest(SECOND * seconds)
    }

    #[test]
    fn what_is_heard_and_what_comes_of_it() {
        for (heard, phase) in [
            ("", BackoffPhase::Free),
            ("b b", BackoffPhase::Free),
            ("b b b", rest(5)),
            ("b g b g b g b", BackoffPhase::Free),
            ("b b g b b", BackoffPhase::Free),
            ("b b 599 b", rest(5)),
            // Failures ten minutes apart are not consecutive.
            ("b b 600 b", BackoffPhase::Free),
            ("c", rest(5)),
            ("c 5", BackoffPhase::Probe),
            ("c 5 g", BackoffPhase::Free),
            ("c 5 b", rest(10)),
            ("c 5 c", rest(10)),
            ("c 5 b 10 b", rest(20)),
            ("c 5 b 10 g", ONE),
            ("c 5 b 10 g g", BackoffPhase::Free),
            // After a good probe, one failure is the first of a series.
            ("c 5 b 10 g b", ONE),
            ("c 5 b 10 g b b b", rest(10)),
            ("c 5 b 10 g c", rest(10)),
            // Late answers to requests from before the rest count once.
            ("s c C C B B B", rest(5)),
            ("s c G", rest(5)),
            ("s c 5 G", BackoffPhase::Probe),
            ("s c 5 B", BackoffPhase::Probe),
            ("s c 5 C", BackoffPhase::Probe),
            ("s b b b B C", rest(5)),
            ("c 5 600", BackoffPhase::Free),
            ("c 5 599", BackoffPhase::Probe),
            ("c 5 600 c", rest(5)),
            ("c 5 600 b b", BackoffPhase::Free),
            ("c 5 600 b b b", rest(5)),
        ] {
            let mut bench = BackoffBench::new();
            heard.split_whitespace().for_each(|word| bench.plays(word));
            assert_eq!(bench.phase(), phase, "{heard}");
        }
    }

    #[test]
    fn retry_after_is_kept_to_and_capped() {
        let mut bench = BackoffBench::new();
        let before = bench.backoff.epoch();
        bench.complained(Some(10 * SECOND));
        // Another request under way asks for more, or for less.
        for (told, seconds) in [(Some(30), 30), (Some(20), 30), (Some(0), 30), (None, 30)] {
            let told = told.map(|told| told * SECOND);
            bench
                .backoff
                .record_complaint(told, before, 0.0, bench.clock.now());
            assert_eq!(bench.phase(), rest(seconds));
        }
        bench.hand.advance(30 * SECOND);
        bench.plays("g");
        assert!(bench.phase() == BackoffPhase::Free && bench.backoff.is_idle(bench.clock.now()));
        for (told, seconds) in [(Duration::ZERO, 5), (Duration::MAX, 3_600)] {
            let mut bench = BackoffBench::new();
            bench.complained(Some(told));
            assert_eq!(bench.phase(), rest(seconds), "{told:?}");
        }
    }

    #[test]
    fn without_a_time_each_rest_is_twice_the_last() {
        let mut bench = BackoffBench::new();
        for seconds in [5, 10, 20, 40, 80, 160, 320, 600, 600, 600] {
            bench.complained(None);
            assert_eq!(bench.phase(), rest(seconds));
            bench.hand.advance(seconds * SECOND);
            assert_eq!(bench.phase(), BackoffPhase::Probe);
        }
        // Four good answers halve ten strikes to none.
        for _ in 0..3 {
            bench.plays("g");
            assert_eq!(bench.phase(), ONE);
        }
        bench.plays("g");
        assert_eq!(bench.phase(), BackoffPhase::Free);
    }

    #[test]
    fn a_rest_that_is_lengthened_is_ended_by_nobody() {
        let mut bench = BackoffBench::new();
        let before = bench.backoff.epoch();
        bench.complained(Some(5 * SECOND));
        bench.hand.advance(5 * SECOND);
        assert_eq!(bench.phase(), BackoffPhase::Probe);
        // A late answer extends the rest during the probe; the probe's success must not end it.
        bench
            .backoff
            .record_complaint(Some(60 * SECOND), before, 0.0, bench.clock.now());
        bench.plays("g");
        assert_eq!(bench.phase(), rest(60));
        bench.hand.advance(60 * SECOND);
        assert_eq!(bench.phase(), BackoffPhase::Probe);
    }
}
