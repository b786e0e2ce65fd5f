//! Backoff of a host that asked for it by 429 or 503, or whose last three responses were bad. No
//! request of any kind is sent to it during that time.
//!
//! With `Retry-After` it lasts for that time; otherwise for 5 s, doubled each time. Then exactly
//! one request goes as a probe. If it succeeds, requests go one at a time of each kind, and each
//! success halves the number of remembered backoffs, until it is zero. The caller tracks which
//! requests are in flight and which of them is the probe.

use std::time::{Duration, Instant};

use super::retry_after::MAX_RETRY_AFTER;

/// The duration of the first backoff without `Retry-After`; doubled with each that follows.
const FIRST_BACKOFF: Duration = Duration::from_secs(5);
/// The maximum duration of such a backoff.
const MAX_BACKOFF: Duration = Duration::from_secs(600);
/// The time without a complaint after which the history is forgotten.
pub const FORGET_AFTER: Duration = Duration::from_secs(600);
/// The number of consecutive bad responses and failures that start a backoff.
const FAILURES_BEFORE_BACKOFF: u8 = 3;

/// The history of an origin's complaints and failures.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    /// The end of the last backoff, or the last failure after it.
    until: Option<Instant>,
    strikes: u8,
    consecutive_failures: u8,
    trust: RecoveryTrust,
    epoch: BackoffEpoch,
    cause: BackoffCause,
}

/// The cause of a backoff.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackoffCause {
    /// The origin sent `Retry-After`.
    RetryAfter,
    /// The origin answered 429 or 503 without a time.
    Overload,
    /// Several responses in a row were bad or failed.
    #[default]
    Failed,
}

impl BackoffCause {
    /// The name, for other processes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RetryAfter => "retry_after",
            Self::Overload => "overload",
            Self::Failed => "failed",
        }
    }

    /// Returns the cause of a name.
    pub fn from_word(name: &str) -> Option<Self> {
        [Self::RetryAfter, Self::Overload, Self::Failed]
            .into_iter()
            .find(|cause| cause.as_str() == name)
    }

    /// A description for operators.
    pub fn description(self) -> &'static str {
        match self {
            Self::RetryAfter => "the origin sent Retry-After",
            Self::Overload => "the origin answered 429 or 503",
            Self::Failed => "several errors in a row",
        }
    }
}

/// The number of the period between two backoffs: a response to a request from before a backoff is
/// no evidence about the time after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackoffEpoch(u32);

/// A history for another process that continues it. Its time is relative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffRecord {
    /// The cause of the last backoff.
    pub cause: BackoffCause,
    /// The number of remembered backoffs.
    pub strikes: u8,
    /// The number of bad responses and failures since.
    pub consecutive_failures: u8,
    /// The milliseconds until the end of the last backoff, or of the last failure after it. Negative after that.
    pub ends_in_ms: i64,
    /// `true` if there was a good response since.
    pub is_proved: bool,
}

impl BackoffRecord {
    /// Returns `true` if requests are restricted, or will be by the next complaint.
    pub fn is_rest(&self) -> bool {
        self.strikes > 0 || self.ends_in_ms > 0
    }

    /// Returns the record as it is after some time.
    #[must_use]
    pub fn after(self, elapsed: Duration) -> Self {
        let elapsed = i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX);
        Self {
            ends_in_ms: self.ends_in_ms.saturating_sub(elapsed),
            ..self
        }
    }
}

/// `Proved` after a good response since the last backoff.
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
    BackingOff(Duration),
}

impl Backoff {
    /// Returns the restriction at this time.
    pub fn phase(&self, now: Instant) -> BackoffPhase {
        // The common case.
        if self.until.is_none() {
            return BackoffPhase::Free;
        }
        if let Some(remaining) = self.remaining(now) {
            return BackoffPhase::BackingOff(remaining);
        }
        if self.strikes == 0 || self.is_idle(now) {
            return BackoffPhase::Free;
        }
        match self.trust {
            RecoveryTrust::Proved => BackoffPhase::OneByOne,
            RecoveryTrust::Unproved => BackoffPhase::Probe,
        }
    }

    /// The remaining time of the backoff, if one is active.
    pub fn remaining(&self, now: Instant) -> Option<Duration> {
        self.until?
            .checked_duration_since(now)
            .filter(|remaining| !remaining.is_zero())
    }

    /// The cause of the current or last backoff.
    pub fn cause(&self) -> BackoffCause {
        self.cause
    }

    /// The number of consecutive bad responses and failures since the last backoff or good response.
    pub fn consecutive_failures(&self) -> u8 {
        self.consecutive_failures
    }

    /// The number of remembered backoffs, halved by each good response.
    pub fn strikes(&self) -> u8 {
        self.strikes
    }

    /// The epoch to pass when the outcome of a request that goes now is recorded.
    pub fn epoch(&self) -> BackoffEpoch {
        self.epoch
    }

    /// Records a complaint of the origin, with the value of `Retry-After`. If the request was sent
    /// before the current backoff began, it can only lengthen the backoff.
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
            self.begin(retry_after, cause, draw, now);
        } else if let Some(until) = retry_after.and_then(|time| now.checked_add(time))
            && self.until < Some(until)
        {
            self.until = Some(until);
            self.cause = BackoffCause::RetryAfter;
        }
    }

    /// Records a failure or a bad response. `draw` is a random number from 0 to 1.
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
        if probed || FAILURES_BEFORE_BACKOFF <= self.consecutive_failures {
            self.begin(None, BackoffCause::Failed, draw, now);
        } else {
            self.until = self.until.max(Some(now));
        }
    }

    /// Records a good response.
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

    /// Returns the history for another process; `None` if it has no effect.
    pub fn record(&self, now: Instant) -> Option<BackoffRecord> {
        let until = self.until.filter(|_| !self.is_idle(now))?;
        let left = until.saturating_duration_since(now).as_millis();
        let elapsed = now.saturating_duration_since(until).as_millis();
        // Rounded up: a backoff is a minimum.
        let left = if left == 0 && elapsed > 0 {
            0
        } else {
            left + 1
        };
        let milliseconds = |time: u128| i64::try_from(time).unwrap_or(i64::MAX);
        Some(BackoffRecord {
            cause: self.cause,
            strikes: self.strikes,
            consecutive_failures: self.consecutive_failures,
            ends_in_ms: milliseconds(left).saturating_sub(milliseconds(elapsed)),
            is_proved: self.trust == RecoveryTrust::Proved,
        })
    }

    /// Continues the history of another process, unless this one is about a later time.
    pub fn restore(&mut self, record: &BackoffRecord, now: Instant) {
        let left = Duration::from_millis(u64::try_from(record.ends_in_ms).unwrap_or(0));
        let elapsed = Duration::from_millis(record.ends_in_ms.min(0).unsigned_abs());
        let end = now
            .checked_add(left.min(MAX_RETRY_AFTER))
            .and_then(|end| end.checked_sub(elapsed));
        let Some(end) = end.filter(|end| self.until < Some(*end)) else {
            return;
        };
        *self = Self {
            until: Some(end),
            strikes: record.strikes,
            consecutive_failures: record.consecutive_failures,
            trust: if record.is_proved {
                RecoveryTrust::Proved
            } else {
                RecoveryTrust::Unproved
            },
            // Responses to requests of this process are no evidence about it.
            epoch: BackoffEpoch(self.epoch.0.wrapping_add(1)),
            cause: record.cause,
        };
    }

    /// Returns `true` if a restriction has begun, ended or changed since an earlier state.
    pub fn has_changed_since(&self, earlier: &Self, now: Instant) -> bool {
        self.epoch != earlier.epoch
            || self.strikes != earlier.strikes
            || (self.until != earlier.until && self.remaining(now) != earlier.remaining(now))
    }

    /// Returns `true` if the history can be dropped without effect.
    pub fn is_idle(&self, now: Instant) -> bool {
        let Some(until) = self.until else {
            return true;
        };
        let no_history = self.strikes == 0 && self.consecutive_failures == 0;
        now.checked_duration_since(until)
            .is_some_and(|elapsed| no_history || FORGET_AFTER <= elapsed)
    }

    fn begin(
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
        let duration = retry_after.unwrap_or_else(|| self.next_duration(draw));
        self.until = self.until.max(now.checked_add(duration));
        self.consecutive_failures = 0;
        self.trust = RecoveryTrust::Unproved;
        self.epoch = BackoffEpoch(self.epoch.0.wrapping_add(1));
    }

    /// The jitter keeps several proxies from returning at the same time.
    fn next_duration(&self, draw: f32) -> Duration {
        let doubled = FIRST_BACKOFF * (1 << u32::from(self.strikes.clamp(1, 8) - 1));
        doubled
            .min(MAX_BACKOFF)
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
            let (clock, control) = TestClock::manual();
            Self {
                backoff: Backoff::default(),
                clock,
                hand: control,
                late: BackoffEpoch::default(),
            }
        }

        fn complained(&mut self, retry_after: Option<Duration>) {
            self.backoff
                .record_complaint(retry_after, self.backoff.epoch(), 0.0, self.clock.now());
        }

        fn phase(&self) -> BackoffPhase {
            self.backoff.phase(self.clock.now())
        }

        /// Plays a script: `g` a good response, `b` a bad one, `c` a complaint; capitals are for a
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

    fn backing_off(seconds: u32) -> BackoffPhase {
        BackoffPhase::BackingOff(SECOND * seconds)
    }

    #[test]
    fn phases_follow_the_responses() {
        for (events, phase) in [
            ("", BackoffPhase::Free),
            ("b b", BackoffPhase::Free),
            ("b b b", backing_off(5)),
            ("b g b g b g b", BackoffPhase::Free),
            ("b b g b b", BackoffPhase::Free),
            ("b b 599 b", backing_off(5)),
            // Failures ten minutes apart are not consecutive.
            ("b b 600 b", BackoffPhase::Free),
            ("c", backing_off(5)),
            ("c 5", BackoffPhase::Probe),
            ("c 5 g", BackoffPhase::Free),
            ("c 5 b", backing_off(10)),
            ("c 5 c", backing_off(10)),
            ("c 5 b 10 b", backing_off(20)),
            ("c 5 b 10 g", ONE),
            ("c 5 b 10 g g", BackoffPhase::Free),
            // After a good probe, one failure is the first of a series.
            ("c 5 b 10 g b", ONE),
            ("c 5 b 10 g b b b", backing_off(10)),
            ("c 5 b 10 g c", backing_off(10)),
            // Late responses to requests from before the backoff count once.
            ("s c C C B B B", backing_off(5)),
            ("s c G", backing_off(5)),
            ("s c 5 G", BackoffPhase::Probe),
            ("s c 5 B", BackoffPhase::Probe),
            ("s c 5 C", BackoffPhase::Probe),
            ("s b b b B C", backing_off(5)),
            ("c 5 600", BackoffPhase::Free),
            ("c 5 599", BackoffPhase::Probe),
            ("c 5 600 c", backing_off(5)),
            ("c 5 600 b b", BackoffPhase::Free),
            ("c 5 600 b b b", backing_off(5)),
        ] {
            let mut bench = BackoffBench::new();
            events.split_whitespace().for_each(|word| bench.plays(word));
            assert_eq!(bench.phase(), phase, "{events}");
        }
    }

    #[test]
    fn retry_after_is_obeyed_and_capped() {
        let mut bench = BackoffBench::new();
        let before = bench.backoff.epoch();
        bench.complained(Some(10 * SECOND));
        // Another request in flight asks for more, or for less.
        for (retry_after, seconds) in [(Some(30), 30), (Some(20), 30), (Some(0), 30), (None, 30)] {
            let retry_after = retry_after.map(|seconds| seconds * SECOND);
            bench
                .backoff
                .record_complaint(retry_after, before, 0.0, bench.clock.now());
            assert_eq!(bench.phase(), backing_off(seconds));
        }
        bench.hand.advance(30 * SECOND);
        bench.plays("g");
        assert!(bench.phase() == BackoffPhase::Free && bench.backoff.is_idle(bench.clock.now()));
        for (retry_after, seconds) in [(Duration::ZERO, 5), (Duration::MAX, 3_600)] {
            let mut bench = BackoffBench::new();
            bench.complained(Some(retry_after));
            assert_eq!(bench.phase(), backing_off(seconds), "{retry_after:?}");
        }
    }

    #[test]
    fn without_retry_after_each_backoff_doubles() {
        let mut bench = BackoffBench::new();
        for seconds in [5, 10, 20, 40, 80, 160, 320, 600, 600, 600] {
            bench.complained(None);
            assert_eq!(bench.phase(), backing_off(seconds));
            bench.hand.advance(seconds * SECOND);
            assert_eq!(bench.phase(), BackoffPhase::Probe);
        }
        // Four good responses halve ten strikes to none.
        for _ in 0..3 {
            bench.plays("g");
            assert_eq!(bench.phase(), ONE);
        }
        bench.plays("g");
        assert_eq!(bench.phase(), BackoffPhase::Free);
    }

    #[test]
    fn another_process_continues_with_the_same_phase() {
        for events in [
            "",
            "b",
            "b b",
            "c",
            "c 3",
            "c 5",
            "c 5 g",
            "c 5 b",
            "c 5 b 10 g",
            "c 5 b 10 g b",
            "c 5 599",
            "c 5 600",
        ] {
            let mut bench = BackoffBench::new();
            events.split_whitespace().for_each(|word| bench.plays(word));
            let now = bench.clock.now();
            let Some(record) = bench.backoff.record(now) else {
                assert_eq!(bench.phase(), BackoffPhase::Free, "{events}");
                continue;
            };
            let mut other = Backoff::default();
            other.restore(&record, now);
            for seconds in [0, 1, 4, 5, 590, 601] {
                let at = now + SECOND * seconds;
                match (bench.backoff.phase(at), other.phase(at)) {
                    (BackoffPhase::BackingOff(own), BackoffPhase::BackingOff(restored)) => {
                        assert!(
                            own <= restored && restored <= own + SECOND / 500,
                            "{events}"
                        );
                    }
                    (
                        BackoffPhase::Free | BackoffPhase::Probe | BackoffPhase::OneByOne,
                        BackoffPhase::BackingOff(left),
                    ) => {
                        assert!(left <= SECOND / 500, "{events}: {left:?}");
                    }
                    (own, restored) => assert_eq!(own, restored, "{events}, {seconds}"),
                }
            }
            // The next complaint counts on.
            let at = now + 10 * SECOND;
            for backoff in [&mut bench.backoff, &mut other] {
                backoff.record_complaint(None, backoff.epoch(), 0.0, at);
            }
            assert_eq!(bench.backoff.strikes(), other.strikes(), "{events}");
            assert_eq!(bench.backoff.phase(at), other.phase(at), "{events}");
        }
    }

    #[test]
    fn a_record_never_shortens_a_backoff_and_lasts_an_hour_at_most() {
        let mut bench = BackoffBench::new();
        bench.complained(Some(30 * SECOND));
        let now = bench.clock.now();
        let record = BackoffRecord {
            cause: BackoffCause::Overload,
            strikes: 9,
            consecutive_failures: 0,
            ends_in_ms: 20_000,
            is_proved: true,
        };
        bench.backoff.restore(&record, now);
        assert_eq!(
            (bench.phase(), bench.backoff.strikes()),
            (backing_off(30), 1)
        );
        for (ends_in_ms, phase) in [
            (40_000, backing_off(40)),
            (i64::MAX, backing_off(3_600)),
            (i64::MIN, backing_off(3_600)),
        ] {
            bench.backoff.restore(
                &BackoffRecord {
                    ends_in_ms,
                    ..record
                },
                now,
            );
            assert_eq!(bench.phase(), phase);
        }
        let ended = record.after(25 * SECOND);
        assert_eq!(ended.ends_in_ms, -5_000);
        let mut other = Backoff::default();
        other.restore(&ended, now + 100 * SECOND);
        assert_eq!(other.phase(now + 100 * SECOND), ONE);
    }

    #[test]
    fn changes_of_restrictions_are_noticed_and_single_failures_are_not() {
        for (events, next, is_change) in [
            ("", "g", false),
            ("", "b", false),
            ("b b", "b", true),
            ("", "c", true),
            ("c 5", "g", true),
            ("c 5", "b", true),
            ("c 5 g", "g", false),
            ("s c", "C", false),
        ] {
            let mut bench = BackoffBench::new();
            events.split_whitespace().for_each(|word| bench.plays(word));
            let earlier = bench.backoff;
            bench.plays(next);
            let has_changed = bench.backoff.has_changed_since(&earlier, bench.clock.now());
            assert_eq!(has_changed, is_change, "{events}, then {next}");
        }
    }

    #[test]
    fn a_late_success_does_not_end_a_lengthened_backoff() {
        let mut bench = BackoffBench::new();
        let before = bench.backoff.epoch();
        bench.complained(Some(5 * SECOND));
        bench.hand.advance(5 * SECOND);
        assert_eq!(bench.phase(), BackoffPhase::Probe);
        // A late response extends the backoff during the probe; the probe's success must not end it.
        bench
            .backoff
            .record_complaint(Some(60 * SECOND), before, 0.0, bench.clock.now());
        bench.plays("g");
        assert_eq!(bench.phase(), backing_off(60));
        bench.hand.advance(60 * SECOND);
        assert_eq!(bench.phase(), BackoffPhase::Probe);
    }
}
