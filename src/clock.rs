//! The only reader of time. Everything else takes times as arguments, or has a [`Clock`].
//!
//! Pace, time-outs and durations use [`Clock::now`], which never goes back; [`Clock::wall_time`] is for output, schedules
//! and expiry dates. Sleeping is done with tokio.

#![allow(clippy::disallowed_methods, reason = "this file is where time is read")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// A source of time: the system's, or one that a test moves. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(ClockSource);

#[derive(Clone, Debug)]
enum ClockSource {
    System,
    Runtime(tokio::time::Instant),
    Manual(Arc<ManualClockState>),
}

#[derive(Debug)]
struct ManualClockState {
    start: Instant,
    advanced_ns: AtomicU64,
    wall_offset_s: AtomicI64,
}

/// The initial wall time of a manual clock: 2026-01-01T00:00:00Z, in seconds since 1970.
const MANUAL_EPOCH: Duration = Duration::from_secs(1_767_225_600);

impl Clock {
    /// Returns the system's clock.
    pub fn system() -> Self {
        Self(ClockSource::System)
    }

    /// Returns a clock that stands still until its [`ManualClock`] moves it; its wall time starts at 2026-01-01T00:00:00Z.
    pub fn manual() -> (Self, ManualClock) {
        let manual = Arc::new(ManualClockState {
            start: Instant::now(),
            advanced_ns: AtomicU64::new(0),
            wall_offset_s: AtomicI64::new(0),
        });
        (
            Self(ClockSource::Manual(Arc::clone(&manual))),
            ManualClock(manual),
        )
    }

    /// Returns the clock of the current tokio runtime, which sleeping there follows, too: with paused time, hours pass in
    /// an instant. Its wall time starts at 2026-01-01T00:00:00Z.
    pub fn from_runtime() -> Self {
        Self(ClockSource::Runtime(tokio::time::Instant::now()))
    }

    /// Returns the monotonic time.
    pub fn now(&self) -> Instant {
        match &self.0 {
            ClockSource::System => Instant::now(),
            ClockSource::Runtime(_) => tokio::time::Instant::now().into_std(),
            ClockSource::Manual(manual) => manual.start + manual.elapsed(),
        }
    }

    /// Returns the wall time, which may jump.
    pub fn wall_time(&self) -> SystemTime {
        match &self.0 {
            ClockSource::System => SystemTime::now(),
            ClockSource::Runtime(began) => SystemTime::UNIX_EPOCH + MANUAL_EPOCH + began.elapsed(),
            ClockSource::Manual(manual) => SystemTime::UNIX_EPOCH + manual.wall_since_epoch(),
        }
    }
}

impl ManualClockState {
    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.advanced_ns.load(Ordering::Acquire))
    }

    fn wall_since_epoch(&self) -> Duration {
        let unadjusted = MANUAL_EPOCH + self.elapsed();
        let offset = self.wall_offset_s.load(Ordering::Acquire);
        let by = Duration::from_secs(offset.unsigned_abs());
        if offset < 0 {
            unadjusted.saturating_sub(by)
        } else {
            unadjusted.saturating_add(by)
        }
    }
}

/// A span of monotonic time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan {
    /// The start.
    pub start: Instant,
    /// The duration.
    pub duration: Duration,
}

impl TimeSpan {
    /// Returns the span between two times; empty if they are out of order.
    pub fn between(began: Instant, ended: Instant) -> Self {
        Self {
            start: began,
            duration: ended.saturating_duration_since(began),
        }
    }

    /// Returns the end of the span.
    pub fn end(self) -> Instant {
        self.start.checked_add(self.duration).unwrap_or(self.start)
    }
}

/// Moves the [`Clock`] that it was created with, and all its clones.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<ManualClockState>);

impl ManualClock {
    /// Moves monotonic and wall time forward.
    pub fn advance(&self, by: Duration) {
        let ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.0.advanced_ns.fetch_add(ns, Ordering::AcqRel);
    }

    /// Moves only the wall time, forward or back, as an administrator may do; never before 1970.
    pub fn adjust_wall_time(&self, seconds: i64) {
        self.0.wall_offset_s.fetch_add(seconds, Ordering::AcqRel);
    }
}

/// A wall time as RFC 3339 text with milliseconds, in UTC: `2026-01-01T00:00:00.000Z`.
///
/// Times before 1970 are shown as 1970.
#[derive(Clone, Copy, Debug)]
pub struct Rfc3339(pub SystemTime);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.to_ascii()).unwrap_or_default())
    }
}

impl Rfc3339 {
    /// The text in place, all of it ASCII: one is written for each line of the log. Years have four digits.
    pub fn to_ascii(self) -> [u8; 24] {
        let since = self
            .0
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
        let (year, month, day) = civil_from_days(days);
        let [y1, y2, y3, y4] = digits(year);
        let ([.., m1, m2], [.., d1, d2]) = (digits(month), digits(day));
        let ([.., h1, h2], [.., n1, n2]) = (digits(second / 3_600), digits(second / 60 % 60));
        let ([.., s1, s2], [_, l1, l2, l3]) =
            (digits(second % 60), digits(since.subsec_millis().into()));
        [
            y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, b'T', h1, h2, b':', n1, n2, b':', s1, s2,
            b'.', l1, l2, l3, b'Z',
        ]
    }
}

/// The last four digits of a number.
fn digits(number: u64) -> [u8; 4] {
    [1_000, 100, 10, 1].map(|place| b'0' + (number / place % 10) as u8)
}

/// The year of a wall time, in UTC; of times before 1970 that year.
pub fn utc_year(wall: SystemTime) -> u16 {
    let since = wall
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u16::try_from(civil_from_days(since.as_secs() / 86_400).0).unwrap_or(u16::MAX)
}

/// Year, month and day of a count of days since 1970-01-01.
///
/// Howard Hinnant's `civil_from_days`: years are counted from March, so that the leap day is the last of its year.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let from_0000_03_01 = days + 719_468;
    let era = from_0000_03_01 / 146_097;
    let day_of_era = from_0000_03_01 % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_by_hand_and_with_its_clones() {
        let (clock, hand) = Clock::manual();
        let other = clock.clone();
        let (now, wall) = (clock.now(), clock.wall_time());
        assert_eq!(other.now(), now);
        hand.advance(Duration::from_millis(1_500));
        assert_eq!(other.now() - now, Duration::from_millis(1_500));
        assert_eq!(
            other.wall_time().duration_since(wall).unwrap(),
            Duration::from_millis(1_500)
        );
        hand.adjust_wall_time(-3_600);
        assert_eq!(
            wall.duration_since(other.wall_time()).unwrap(),
            Duration::from_millis(3_598_500)
        );
        assert_eq!(other.now() - now, Duration::from_millis(1_500));
    }

    #[test]
    fn a_year_begins_at_midnight() {
        let at = |secs| utc_year(SystemTime::UNIX_EPOCH + Duration::from_secs(secs));
        assert_eq!(
            (at(0), at(1_767_225_599), at(1_767_225_600)),
            (1970, 2025, 2026)
        );
    }

    #[test]
    fn wall_times_are_written_as_rfc_3339() {
        for (secs, ms, text) in [
            (0, 0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, 999, "2000-02-28T23:59:59.999Z"),
            (951_782_400, 0, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, 7, "2024-02-29T23:59:59.007Z"),
            (1_767_225_599, 0, "2025-12-31T23:59:59.000Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000Z"),
        ] {
            let wall =
                SystemTime::UNIX_EPOCH + Duration::from_secs(secs) + Duration::from_millis(ms);
            assert_eq!(Rfc3339(wall).to_string(), text);
        }
        assert_eq!(
            Rfc3339(SystemTime::UNIX_EPOCH - Duration::from_secs(1)).to_string(),
            "1970-01-01T00:00:00.000Z"
        );
    }
}
