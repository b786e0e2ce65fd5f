//! Rest of an origin: it has asked for it by 429 or 503, or three answers in a row were bad. Nobody of any kind goes to
//! it meanwhile.
//!
//! With Retry-After it lasts as long as that says; without, 5 s, doubled each time. Behind it exactly one request goes,
//! to see; if it is answered as it should be, requests go one at a time of each kind, and each good answer halves what
//! is remembered, until nothing is. Who is under way, and which of them is that one, is not known here.

use std::time::{Duration, Instant};

/// The first rest of an origin that names no time; doubled with each that follows.
const FIRST_REST: Duration = Duration::from_secs(5);
/// The longest of those.
const MAX_REST: Duration = Duration::from_secs(600);
/// The longest that an origin can ask for.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(3_600);
/// After so long without a complaint all is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// So many bad answers and failures in a row bring a rest about.
const FAILURES_BEFORE_REST: u8 = 3;

/// The memory of an origin's complaints and failures.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    /// When the last rest ends; later, when the last failure behind it was.
    until: Option<Instant>,
    strikes: u8,
    consecutive_failures: u8,
    trust: RecoveryTrust,
    epoch: BackoffEpoch,
    cause: BackoffCause,
}

/// Why an origin rests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackoffCause {
    /// It has asked for so long.
    RetryAfter,
    /// It has complained and named no time.
    Overload,
    /// Answers were bad or failed.
    #[default]
    Failed,
}

impl BackoffCause {
    /// In words, for operators.
    pub fn description(self) -> &'static str {
        match self {
            Self::RetryAfter => "it has asked for so long (Retry-After)",
            Self::Overload => "it answered 429 or 503",
            Self::Failed => "errors in a row",
        }
    }
}

/// The time between two rests, by number: what was sent before a rest says nothing of the time behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackoffEpoch(u32);

/// Whether an answer was good since the last rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RecoveryTrust {
    #[default]
    Proved,
    Unproved,
}

/// How requests may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackoffPhase {
    /// As their pace says.
    Free,
    /// One of each kind at a time.
    OneByOne,
    /// One alone, to see.
    Probe,
    /// Not for so long.
    Rest(Duration),
}

impl Backoff {
    /// How requests may go now.
    pub fn phase(&self, now: Instant) -> BackoffPhase {
        // Nearly always.
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

    /// The time for which nobody goes, if there is one.
    pub fn remaining(&self, now: Instant) -> Option<Duration> {
        self.until?
            .checked_duration_since(now)
            .filter(|left| !left.is_zero())
    }

    /// Why it rests, or rested last.
    pub fn cause(&self) -> BackoffCause {
        self.cause
    }

    /// Bad answers and failures in a row since the last rest or good answer.
    pub fn consecutive_failures(&self) -> u8 {
        self.consecutive_failures
    }

    /// Rests that are remembered; each good answer halves them.
    pub fn strikes(&self) -> u8 {
        self.strikes
    }

    /// What a request that goes now has to show later.
    pub fn epoch(&self) -> BackoffEpoch {
        self.epoch
    }

    /// The origin has complained; `told` is what Retry-After says. Answers to what was sent before a rest began can only
    /// lengthen it.
    pub fn record_complaint(
        &mut self,
        told: Option<Duration>,
        era: BackoffEpoch,
        draw: f32,
        now: Instant,
    ) {
        let told = told
            .filter(|told| !told.is_zero())
            .map(|told| told.min(MAX_RETRY_AFTER));
        if era == self.epoch {
            let cause = if told.is_some() {
                BackoffCause::RetryAfter
            } else {
                BackoffCause::Overload
            };
            self.begin_rest(told, cause, draw, now);
        } else if let Some(until) = told.and_then(|told| now.checked_add(told))
            && self.until < Some(until)
        {
            (self.until, self.cause) = (Some(until), BackoffCause::RetryAfter);
        }
    }

    /// The origin has failed, or answered that it has. `draw` is from 0 to 1.
    pub fn record_failure(&mut self, era: BackoffEpoch, draw: f32, now: Instant) {
        if era != self.epoch {
            return;
        }
        if self.is_idle(now) {
            (self.consecutive_failures, self.strikes) = (0, 0);
        }
        let probed = self.trust == RecoveryTrust::Unproved && self.strikes > 0;
        self.consecutive_failures += 1;
        if probed || FAILURES_BEFORE_REST <= self.consecutive_failures {
            self.begin_rest(None, BackoffCause::Failed, draw, now);
        } else {
            self.until = self.until.max(Some(now));
        }
    }

    /// The origin has answered as it should.
    pub fn record_success(&mut self, era: BackoffEpoch, now: Instant) {
        if era != self.epoch {
            return;
        }
        self.consecutive_failures = 0;
        if self.strikes > 0 && self.remaining(now).is_none() {
            self.strikes /= 2;
            self.trust = RecoveryTrust::Proved;
        }
    }

    /// Whether forgetting it changes nothing.
    pub fn is_idle(&self, now: Instant) -> bool {
        let nothing = self.strikes == 0 && self.consecutive_failures == 0;
        let since = |until: Instant| now.checked_duration_since(until);
        self.until
            .is_none_or(|until| since(until).is_some_and(|since| nothing || FORGET_AFTER <= since))
    }

    fn begin_rest(&mut self, told: Option<Duration>, cause: BackoffCause, draw: f32, now: Instant) {
        self.cause = cause;
        self.strikes = if self.is_idle(now) {
            1
        } else {
            self.strikes.saturating_add(1)
        };
        let rest = told.unwrap_or_else(|| self.rest_duration(draw));
        self.until = self.until.max(now.checked_add(rest));
        (self.consecutive_failures, self.trust, self.epoch) = (
            0,
            RecoveryTrust::Unproved,
            BackoffEpoch(self.epoch.0.wrapping_add(1)),
        );
    }

    /// The jitter keeps several proxies from coming back at once.
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
    use crate::clock::{Clock, ManualClock};

    const SECOND: Duration = Duration::from_secs(1);

    /// A memory, and requests that are answered at once or late.
    struct BackoffBench {
        backoff: Backoff,
        clock: Clock,
        hand: ManualClock,
        /// What was sent before.
        late: BackoffEpoch,
    }

    impl BackoffBench {
        fn new() -> Self {
            let (clock, hand) = Clock::manual();
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

        /// `g` a good answer, `b` a bad one, `c` a complaint; capitals are of what was sent when `s` was said. A number
        /// is seconds that pass.
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
            // Ten minutes make no row.
            ("b b 600 b", BackoffPhase::Free),
            ("c", rest(5)),
            ("c 5", BackoffPhase::Probe),
            ("c 5 g", BackoffPhase::Free),
            ("c 5 b", rest(10)),
            ("c 5 c", rest(10)),
            ("c 5 b 10 b", rest(20)),
            ("c 5 b 10 g", ONE),
            ("c 5 b 10 g g", BackoffPhase::Free),
            // Behind a good probe one failure is one of a row.
            ("c 5 b 10 g b", ONE),
            ("c 5 b 10 g b b b", rest(10)),
            ("c 5 b 10 g c", rest(10)),
            // What was sent before the rest counts once, whatever it was and whenever it comes.
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
        // Another that was under way asks for more, or for less.
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
        // Ten strikes are halved to none by four good answers.
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
        // While the probe is under way a late answer asks for more; the probe's cannot end that.
        bench
            .backoff
            .record_complaint(Some(60 * SECOND), before, 0.0, bench.clock.now());
        bench.plays("g");
        assert_eq!(bench.phase(), rest(60));
        bench.hand.advance(60 * SECOND);
        assert_eq!(bench.phase(), BackoffPhase::Probe);
    }
}
