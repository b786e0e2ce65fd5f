//! The only reader of time. Everything else takes times as arguments, or has a [`Clock`].
//!
//! Pace, timeouts and durations use [`Clock::now`], which never goes back; [`Clock::wall_time`] is for output,
//! schedules and expiry dates. Sleeping is done with tokio.

#![allow(clippy::disallowed_methods, reason = "this file is where time is read")]

pub mod date_time;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crawlgate_fleet::node::BootTime;
use time::UtcDateTime;

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
    pub fn system() -> Self {
        Self(ClockSource::System)
    }

    /// Returns a clock that only its [`ManualClock`] moves; its wall time starts at 2026-01-01T00:00:00Z.
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

    /// Returns the clock of the current tokio runtime, which sleeping there follows, too: with paused time, hours pass
    /// in an instant. Its wall time starts at 2026-01-01T00:00:00Z.
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

    /// Returns the time since the machine was started, which also counts while it is suspended. A lease is measured
    /// by it: a node that was suspended must not act as an owner when it wakes.
    pub fn boot_time(&self) -> BootTime {
        match &self.0 {
            ClockSource::System => BootTime(system_boot_time()),
            ClockSource::Runtime(began) => BootTime(began.elapsed()),
            ClockSource::Manual(manual) => BootTime(manual.elapsed()),
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

fn system_boot_time() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let id = rustix::time::ClockId::Boottime;
    // Elsewhere the monotonic clock is the nearest.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let id = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(id);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
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

/// Measures how long work keeps its thread. Only for interrupting the work: what is decided, sent or stored must not
/// depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts to measure.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the time since the start.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// A span of monotonic time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan {
    pub start: Instant,
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
/// Times before 1970 or after 9999 are shown as the first or last moment of this range.
#[derive(Clone, Copy, Debug)]
pub struct Rfc3339(pub SystemTime);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.to_ascii()).unwrap_or_default())
    }
}

impl Rfc3339 {
    /// Formats the time as ASCII without an allocation: it is called for each line of the log.
    pub fn to_ascii(self) -> [u8; 24] {
        let time = utc(self.0);
        let (year, month, day) = time.to_calendar_date();
        let [y1, y2, y3, y4] = digits(year.unsigned_abs());
        let [.., m1, m2] = digits(u8::from(month).into());
        let [.., d1, d2] = digits(day.into());
        let [.., h1, h2] = digits(time.hour().into());
        let [.., n1, n2] = digits(time.minute().into());
        let [.., s1, s2] = digits(time.second().into());
        let [_, l1, l2, l3] = digits(time.millisecond().into());
        [
            y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, b'T', h1, h2, b':', n1, n2, b':', s1, s2,
            b'.', l1, l2, l3, b'Z',
        ]
    }
}

/// Returns the last four digits of a number.
fn digits(number: u32) -> [u8; 4] {
    [1_000, 100, 10, 1].map(|divisor| b'0' + (number / divisor % 10) as u8)
}

/// Returns the year of a wall time, in UTC; 1970 for earlier times.
pub fn utc_year(wall: SystemTime) -> u16 {
    u16::try_from(utc(wall).year()).unwrap_or(u16::MAX)
}

fn utc(wall: SystemTime) -> UtcDateTime {
    let since_epoch = wall
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    time::Duration::try_from(since_epoch)
        .ok()
        .and_then(|since| UtcDateTime::UNIX_EPOCH.checked_add(since))
        .unwrap_or(UtcDateTime::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_by_hand_and_with_its_clones() {
        let (clock, control) = Clock::manual();
        let other = clock.clone();
        let now = clock.now();
        let wall = clock.wall_time();
        assert_eq!(other.now(), now);
        control.advance(Duration::from_millis(1_500));
        assert_eq!(other.now() - now, Duration::from_millis(1_500));
        assert_eq!(other.boot_time(), BootTime(Duration::from_millis(1_500)));
        assert_eq!(
            other.wall_time().duration_since(wall).unwrap(),
            Duration::from_millis(1_500)
        );
        control.adjust_wall_time(-3_600);
        assert_eq!(
            wall.duration_since(other.wall_time()).unwrap(),
            Duration::from_millis(3_598_500)
        );
        assert_eq!(other.now() - now, Duration::from_millis(1_500));
    }

    #[test]
    fn the_boot_time_of_the_system_goes_on() {
        let clock = Clock::system();
        let before = clock.boot_time();
        assert!(before > BootTime::default());
        assert!(clock.boot_time() >= before);
    }

    #[test]
    fn a_year_begins_at_midnight() {
        for (secs, year) in [(0, 1970), (1_767_225_599, 2025), (1_767_225_600, 2026)] {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
            assert_eq!(utc_year(at), year);
        }
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
            (253_402_300_799, 999, "9999-12-31T23:59:59.999Z"),
            (253_402_300_800, 0, "9999-12-31T23:59:59.999Z"),
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
