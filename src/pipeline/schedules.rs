//! The option `politeness.schedule`, prepared when a policy is loaded, so that a request only looks up the current
//! window.
//!
//! A policy without schedules costs a request one access to an empty table, and no reading of the clock.
//! `crate::pacing::schedule` defines the windows.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::model::week::{DaySet, HourRange, UtcOffset};
use crate::pacing::schedule::{RateOverride, Schedule, ScheduleLimits, ScheduleWindow};
use crate::policy::Policy;
use crate::policy::options::OptionValue;
use crate::policy::options::politeness::{PageLimits, SCHEDULE};
use crate::policy::options::prepared::PreparedOption;
use crate::policy::trail::Trail;

/// The schedules of a policy, by the rule that sets them.
#[derive(Debug, Default)]
pub struct PolicySchedules(Option<PreparedOption<Schedule>>);

impl PolicySchedules {
    /// Prepares all schedules of a policy's options.
    pub fn from_policy(policy: &Policy) -> Self {
        Self(PreparedOption::prepare(policy, SCHEDULE, parse_schedule))
    }

    /// Returns the limits of a request at the moment. The wall clock is read only if there is a schedule.
    pub(crate) fn current_limits(
        &self,
        policy: &Policy,
        trail: &Trail,
        wall: impl FnOnce() -> SystemTime,
    ) -> ScheduleLimits {
        let chosen = self
            .0
            .as_ref()
            .and_then(|chosen| chosen.current(policy, trail));
        chosen.map_or(ScheduleLimits::default(), |schedule| {
            schedule.limits_at(unix_time(wall()))
        })
    }
}

/// Converts a wall time to the time since 1970; earlier times count as 1970.
pub(crate) fn unix_time(wall: SystemTime) -> Duration {
    wall.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Replaces a policy's limits by those of a window.
pub(crate) fn apply_limits(pages: PageLimits, limits: ScheduleLimits) -> PageLimits {
    let rate = match limits.rate {
        None => pages.rate,
        Some(RateOverride::Unlimited) => None,
        Some(RateOverride::Limited(count, per)) => Some((count, per)),
    };
    let concurrency = limits.concurrency.unwrap_or(pages.concurrency);
    PageLimits {
        delay: limits.delay.unwrap_or(pages.delay),
        rate,
        concurrency,
        ..pages
    }
}

/// Returns `None` for a list without windows, by which a rule withdraws a schedule.
fn parse_schedule(value: &OptionValue) -> Option<Schedule> {
    let OptionValue::List(items) = value else {
        return None;
    };
    (!items.is_empty()).then(|| Schedule::new(items.iter().filter_map(parse_window)))
}

/// Parses a window. Items that are not windows do not compile.
fn parse_window(item: &OptionValue) -> Option<ScheduleWindow> {
    let OptionValue::Map(entries) = item else {
        return None;
    };
    let mut window = ScheduleWindow {
        days: DaySet::ALL,
        hours: HourRange::ALL,
        offset: UtcOffset::UTC,
        limits: ScheduleLimits::default(),
    };
    for (key, value) in entries {
        set_window_key(&mut window, key, value)?;
    }
    Some(window)
}

fn set_window_key(window: &mut ScheduleWindow, key: &str, value: &OptionValue) -> Option<()> {
    let ScheduleWindow {
        days,
        hours,
        offset,
        limits,
    } = window;
    match (key, value) {
        ("days", OptionValue::List(names)) => {
            *days = names
                .iter()
                .filter_map(as_word)
                .fold(DaySet::NONE, DaySet::with_day)
        }
        ("hours", OptionValue::Text(text)) => *hours = HourRange::parse(text)?,
        ("tz", OptionValue::Text(text)) => *offset = UtcOffset::parse(text)?,
        ("delay", OptionValue::Duration(delay)) => limits.delay = Some(*delay),
        ("rate", OptionValue::Rate { count, per }) => {
            limits.rate = Some(RateOverride::Limited(*count, *per))
        }
        ("rate", OptionValue::None) => limits.rate = Some(RateOverride::Unlimited),
        ("concurrency", OptionValue::Integer(count)) => {
            limits.concurrency = Some(u32::try_from(*count).unwrap_or(u32::MAX));
        }
        _ => return None,
    }
    Some(())
}

fn as_word(value: &OptionValue) -> Option<&'static str> {
    if let OptionValue::Word(word) = value {
        Some(word)
    } else {
        None
    }
}
