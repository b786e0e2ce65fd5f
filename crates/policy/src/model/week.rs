//! Days of the week, hours of the day and offsets from UTC, as people write them.

use std::time::Duration;

/// The names of the days, Monday first.
pub const DAY_NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const MINUTES_PER_DAY: u16 = 24 * 60;

/// A set of days of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaySet(u8);

impl DaySet {
    pub const ALL: Self = Self(0x7f);
    pub const NONE: Self = Self(0);

    /// Adds the day with this name. Returns `self` unchanged if there is no such day.
    #[must_use]
    pub fn with_day(self, name: &str) -> Self {
        let day = DAY_NAMES.iter().position(|day| *day == name);
        Self(self.0 | day.map_or(0, |day| 1 << day))
    }

    fn contains(self, day: u8) -> bool {
        self.0 & 1 << day != 0
    }
}

/// A range of hours of the day; its end is exclusive. It may pass midnight: 22:00-06:00.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HourRange {
    from: u16,
    to: u16,
}

impl HourRange {
    /// From midnight to midnight.
    pub const ALL: Self = Self {
        from: 0,
        to: MINUTES_PER_DAY,
    };

    /// Creates a range from minutes of the day. Returns `None` if a minute is past the end of the
    /// day, if the range is empty, or if it begins at the end of the day.
    pub fn new(from: u16, to: u16) -> Option<Self> {
        (from < MINUTES_PER_DAY && to <= MINUTES_PER_DAY && from != to).then_some(Self { from, to })
    }

    /// Parses `22:00-06:00`; `24:00` is allowed as the end.
    pub fn parse(text: &str) -> Option<Self> {
        let (from, to) = text.split_once('-')?;
        Self::new(parse_clock_time(from)?, parse_clock_time(to)?)
    }

    /// Returns `true` if a time is within the range that begins on one of `days`.
    pub fn contains(self, days: DaySet, at: WeekMinute) -> bool {
        let passes_midnight = self.to < self.from;
        let today = self.from <= at.minute && (at.minute < self.to || passes_midnight);
        let since_yesterday = passes_midnight && at.minute < self.to;
        (today && days.contains(at.day)) || (since_yesterday && days.contains((at.day + 6) % 7))
    }
}

fn parse_clock_time(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    parse_minute_of_day(hour, minute)
}

/// Returns the minute of the day for an hour and a minute of two digits each, up to 24:00.
pub fn parse_minute_of_day(hour: &str, minute: &str) -> Option<u16> {
    let hour = parse_two_digits(hour)?;
    let minute = parse_two_digits(minute).filter(|minute| *minute < 60)?;
    Some(hour * 60 + minute).filter(|minute| *minute <= MINUTES_PER_DAY)
}

fn parse_two_digits(text: &str) -> Option<u16> {
    let valid = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| valid)
}

/// The offset of a clock from UTC, in minutes; positive east of Greenwich.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtcOffset(i16);

impl UtcOffset {
    /// No offset.
    pub const UTC: Self = Self(0);

    /// Parses `UTC`, `+02:00` or `-05:30`, up to 14 hours. Names of time zones are not supported:
    /// they need tables that change with laws.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "UTC" {
            return Some(Self::UTC);
        }
        let (sign, rest) = match text.strip_prefix('+') {
            Some(rest) => (1, rest),
            None => (-1, text.strip_prefix('-')?),
        };
        let (hour, minute) = rest.split_once(':')?;
        let minutes = parse_minute_of_day(hour, minute).filter(|minutes| *minutes <= 14 * 60)?;
        Some(Self(sign * i16::try_from(minutes).ok()?))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeekMinute {
    day: u8,
    minute: u16,
}

impl WeekMinute {
    /// Returns the minute of the week at a wall time, counted from 1970 in UTC, with this offset.
    pub fn from_wall_time(wall: Duration, offset: UtcOffset) -> Self {
        let minutes =
            i64::try_from(wall.as_secs() / 60).unwrap_or(i64::MAX / 2) + i64::from(offset.0);
        let days = minutes.div_euclid(MINUTES_PER_DAY.into());
        let minute = minutes.rem_euclid(MINUTES_PER_DAY.into());
        // 1970-01-01 was a Thursday.
        let day = (days + 3).rem_euclid(7);
        Self {
            day: u8::try_from(day).unwrap_or(0),
            minute: u16::try_from(minute).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_read_or_refused() {
        for (text, from, to) in [
            ("22:00-06:00", 1_320, 360),
            ("00:00-24:00", 0, 1_440),
            ("23:59-00:00", 1_439, 0),
            ("08:30-08:31", 510, 511),
        ] {
            assert_eq!(
                HourRange::parse(text),
                Some(HourRange { from, to }),
                "{text}"
            );
        }
        for text in [
            "",
            "-",
            "22:00",
            "24:00-06:00",
            "06:00-06:00",
            "6:00-07:00",
            "06:60-07:00",
            "06:00-24:01",
            "25:00-26:00",
            "06:00-07:00-08:00",
            "+6:00-07:00",
            "06:00 - 07:00",
            "00:00-99:99",
            "０６:00-07:00",
        ] {
            assert_eq!(HourRange::parse(text), None, "{text}");
        }
    }

    #[test]
    fn offsets_are_utc_or_fixed() {
        for (text, minutes) in [
            ("UTC", 0),
            ("+00:00", 0),
            ("+02:00", 120),
            ("-05:30", -330),
            ("+14:00", 840),
        ] {
            assert_eq!(UtcOffset::parse(text), Some(UtcOffset(minutes)), "{text}");
        }
        for text in [
            "",
            "utc",
            "Europe/Berlin",
            "CET",
            "02:00",
            "+2:00",
            "+0200",
            "+14:01",
            "-24:00",
            "+-1:00",
            "+",
        ] {
            assert_eq!(UtcOffset::parse(text), None, "{text}");
        }
    }

    #[test]
    fn moments_are_days_and_minutes_of_a_clock() {
        // 2024-02-29, a Thursday, at 23:30 UTC. The next day is March 1.
        let leap = Duration::from_secs(1_709_249_400);
        for (wall, offset, day, minute) in [
            (Duration::ZERO, "UTC", 3, 0),
            (Duration::ZERO, "-01:00", 2, 1_380),
            (leap, "UTC", 3, 1_410),
            (leap, "+02:00", 4, 90),
            (leap, "-12:00", 3, 690),
        ] {
            let offset = UtcOffset::parse(offset).unwrap();
            assert_eq!(
                WeekMinute::from_wall_time(wall, offset),
                WeekMinute { day, minute },
                "{wall:?} {offset:?}"
            );
        }
        assert!(WeekMinute::from_wall_time(Duration::MAX, UtcOffset(840)).minute < MINUTES_PER_DAY);
    }

    #[test]
    fn hours_that_pass_midnight_belong_to_the_day_on_which_they_begin() {
        let hours = HourRange::parse("22:00-06:00").unwrap();
        let saturday = DaySet::NONE.with_day("sat");
        for (day, minute, holds) in [
            (5, 1_319, false),
            (5, 1_320, true),
            (5, 1_439, true),
            (6, 0, true),
            (6, 359, true),
            (6, 360, false),
            (6, 1_320, false),
            (5, 0, false),
            (0, 0, false),
        ] {
            assert_eq!(
                hours.contains(saturday, WeekMinute { day, minute }),
                holds,
                "{day} {minute}"
            );
        }
        // The week wraps around: Sunday's night ends on Monday.
        assert!(hours.contains(
            DaySet::NONE.with_day("sun"),
            WeekMinute { day: 0, minute: 0 }
        ));
        assert!(
            (0..7)
                .all(|day| HourRange::ALL.contains(DaySet::ALL, WeekMinute { day, minute: 1_439 }))
        );
        assert!(!HourRange::ALL.contains(
            DaySet::NONE.with_day("one"),
            WeekMinute { day: 0, minute: 0 }
        ));
    }
}
