//! The only reader of time; everything else takes time as an argument or asks a [`Clock`] that it was handed.
//!
//! Pace, time-outs and durations use [`Clock::now`], which never goes back; [`Clock::wall`] is for texts, schedules
//! and expiry dates. Sleeping is tokio's business and is not here.

#![allow(clippy::disallowed_methods, reason = "this file is where time is read")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Tells the time: the machine's, or one that a test moves by hand. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Manual(Arc<Manual>),
}

#[derive(Debug)]
struct Manual {
    began: Instant,
    moved_ns: AtomicU64,
}

/// Where the wall time of a manual clock begins: 2026-01-01T00:00:00Z, in seconds since 1970.
const MANUAL_WALL: Duration = Duration::from_secs(1_767_225_600);

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands still until its [`Hand`] moves it; its wall time begins at 2026-01-01T00:00:00Z.
    pub fn manual() -> (Self, Hand) {
        let manual = Arc::new(Manual { began: Instant::now(), moved_ns: AtomicU64::new(0) });
        (Self(Source::Manual(Arc::clone(&manual))), Hand(manual))
    }

    /// Monotonic time.
    pub fn now(&self) -> Instant {
        match &self.0 {
            Source::System => Instant::now(),
            Source::Manual(manual) => manual.began + manual.moved(),
        }
    }

    /// Wall time; it may jump.
    pub fn wall(&self) -> SystemTime {
        match &self.0 {
            Source::System => SystemTime::now(),
            Source::Manual(manual) => SystemTime::UNIX_EPOCH + MANUAL_WALL + manual.moved(),
        }
    }
}

impl Manual {
    fn moved(&self) -> Duration {
        Duration::from_nanos(self.moved_ns.load(Ordering::Acquire))
    }
}

/// Moves the [`Clock`] that it came with, and all clones of that clock.
#[derive(Clone, Debug)]
pub struct Hand(Arc<Manual>);

impl Hand {
    /// Moves monotonic and wall time forward.
    pub fn advance(&self, by: Duration) {
        let ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.0.moved_ns.fetch_add(ns, Ordering::AcqRel);
    }
}

/// A wall time as RFC 3339 text with milliseconds, in UTC: `2026-01-01T00:00:00.000Z`.
///
/// Times before 1970 are shown as 1970.
#[derive(Clone, Copy, Debug)]
pub struct Rfc3339(pub SystemTime);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.0.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        let ms = since.subsec_millis();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }
}

/// Year, month and day of a count of days since 1970-01-01.
///
/// Howard Hinnant's `civil_from_days`: years are counted from March, so that the leap day is the last of its year.
fn civil(days: u64) -> (u64, u64, u64) {
    let from_0000_03_01 = days + 719_468;
    let era = from_0000_03_01 / 146_097;
    let day_of_era = from_0000_03_01 % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
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
        let (now, wall) = (clock.now(), clock.wall());
        assert_eq!(other.now(), now);
        hand.advance(Duration::from_millis(1_500));
        assert_eq!(other.now() - now, Duration::from_millis(1_500));
        assert_eq!(other.wall().duration_since(wall).unwrap(), Duration::from_millis(1_500));
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
            let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(secs) + Duration::from_millis(ms);
            assert_eq!(Rfc3339(wall).to_string(), text);
        }
        assert_eq!(
            Rfc3339(SystemTime::UNIX_EPOCH - Duration::from_secs(1)).to_string(),
            "1970-01-01T00:00:00.000Z"
        );
    }
}
