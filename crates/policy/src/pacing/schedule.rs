//! Schedules: limits that depend on the time of the week.
//!
//! Only the choice of the window uses wall time; leases and waits use monotonic time. So a clock
//! that jumps changes the limits and nothing else.

use std::time::Duration;

use crate::model::week::{DaySet, HourRange, UtcOffset, WeekMinute};

/// The windows of a schedule, in the order in which they are written.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule(Box<[ScheduleWindow]>);

/// A range of hours on some days of the week, and the limits that apply then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleWindow {
    /// The days on which the range begins.
    pub days: DaySet,
    pub hours: HourRange,
    /// The offset of the local time.
    pub offset: UtcOffset,
    pub limits: ScheduleLimits,
}

/// Limits that replace the policy's; `None` leaves the policy's limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScheduleLimits {
    pub delay: Option<Duration>,
    pub rate: Option<RateOverride>,
    /// The maximum number of concurrent requests.
    pub concurrency: Option<u32>,
}

/// A rate that replaces the policy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateOverride {
    /// No rate limit.
    Unlimited,
    /// A number of requests in a period.
    Limited(u32, Duration),
}

impl Schedule {
    /// Creates a schedule.
    pub fn new(windows: impl IntoIterator<Item = ScheduleWindow>) -> Self {
        Self(windows.into_iter().collect())
    }

    /// Returns the limits at a time, counted from 1970 in UTC. As with rules, each limit is that of
    /// the last matching window that sets it.
    pub fn limits_at(&self, wall: Duration) -> ScheduleLimits {
        self.0
            .iter()
            .filter(|window| window.contains(wall))
            .fold(ScheduleLimits::default(), |limits, window| {
                window.limits.with_fallback(limits)
            })
    }
}
impl ScheduleWindow {
    fn contains(&self, wall: Duration) -> bool {
        self.hours
            .contains(self.days, WeekMinute::from_wall_time(wall, self.offset))
    }
}

impl ScheduleLimits {
    fn with_fallback(self, other: Self) -> Self {
        Self {
            delay: self.delay.or(other.delay),
            rate: self.rate.or(other.rate),
            concurrency: self.concurrency.or(other.concurrency),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600;
    /// 2026-01-01T00:00:00Z, a Thursday.
    const NEW_YEAR: u64 = 1_767_225_600;

    fn window(days: &[&str], hours: &str, offset: &str, delay_s: u64) -> ScheduleWindow {
        let days = days
            .iter()
            .fold(DaySet::NONE, |days, day| days.with_day(day));
        let limits = ScheduleLimits {
            delay: Some(Duration::from_secs(delay_s)),
            ..ScheduleLimits::default()
        };
        ScheduleWindow {
            days,
            hours: HourRange::parse(hours).unwrap(),
            offset: UtcOffset::parse(offset).unwrap(),
            limits,
        }
    }

    fn check(schedule: &Schedule, rows: &[(u64, Option<u64>)]) {
        for (seconds, delay_s) in rows {
            let found = schedule
                .limits_at(Duration::from_secs(*seconds))
                .delay
                .map(|delay| delay.as_secs());
            assert_eq!(found, *delay_s, "{seconds}");
        }
    }

    #[test]
    fn windows_span_midnight_and_the_ends_of_months_and_years() {
        let every = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
        let schedule = Schedule::new([window(&every, "22:00-06:00", "UTC", 7)]);
        // 2024-02-29T00:00:00Z.
        let leap = 1_709_164_800;
        for midnight in [NEW_YEAR, leap, leap + 24 * HOUR, 0] {
            check(
                &schedule,
                &[(midnight, Some(7)), (midnight + 6 * HOUR - 1, Some(7))],
            );
            check(
                &schedule,
                &[
                    (midnight + 6 * HOUR, None),
                    (midnight + 22 * HOUR - 1, None),
                ],
            );
            check(
                &schedule,
                &[
                    (midnight + 22 * HOUR, Some(7)),
                    (midnight + 24 * HOUR - 1, Some(7)),
                ],
            );
        }
    }

    #[test]
    fn days_and_hours_are_in_the_windows_time_zone() {
        let thursday = Schedule::new([window(&["thu"], "00:00-24:00", "+02:00", 1)]);
        check(
            &thursday,
            &[
                (NEW_YEAR - 2 * HOUR - 1, None),
                (NEW_YEAR - 2 * HOUR, Some(1)),
            ],
        );
        check(
            &thursday,
            &[
                (NEW_YEAR + 22 * HOUR - 1, Some(1)),
                (NEW_YEAR + 22 * HOUR, None),
            ],
        );
    }

    #[test]
    fn each_limit_comes_from_the_last_active_window_that_sets_it() {
        let mut night = window(&["wed", "thu"], "22:00-06:00", "UTC", 1);
        night.limits.rate = Some(RateOverride::Limited(5, Duration::from_secs(1)));
        let mut year = window(&["thu"], "00:00-01:00", "UTC", 2);
        year.limits.concurrency = Some(9);
        let none = ScheduleWindow {
            limits: ScheduleLimits {
                rate: Some(RateOverride::Unlimited),
                ..ScheduleLimits::default()
            },
            ..year
        };
        let schedule = Schedule::new([night, year, none]);
        let limits = schedule.limits_at(Duration::from_secs(NEW_YEAR));
        assert_eq!(limits.delay, Some(Duration::from_secs(2)));
        assert_eq!(
            (limits.rate, limits.concurrency),
            (Some(RateOverride::Unlimited), Some(9))
        );
        let later = schedule.limits_at(Duration::from_secs(NEW_YEAR + 2 * HOUR));
        assert_eq!(later, night.limits);
        assert_eq!(
            Schedule::new([]).limits_at(Duration::ZERO),
            ScheduleLimits::default()
        );
    }

    #[test]
    fn a_clock_jump_only_changes_the_active_window() {
        let schedule = Schedule::new([window(&["thu"], "00:00-01:00", "UTC", 3)]);
        let week = 7 * 24 * HOUR;
        for wall in [
            NEW_YEAR,
            NEW_YEAR + 2 * week,
            NEW_YEAR - 1_000 * week,
            NEW_YEAR + 59 * 60,
            NEW_YEAR,
        ] {
            check(&schedule, &[(wall, Some(3)), (wall + HOUR, None)]);
        }
        check(&schedule, &[(u64::MAX, None)]);
    }
}
