//! The week as people write it: days, hours of a day, and how far a clock is from UTC. What holds at which time is not
//! said here.

use std::time::Duration;

/// The days, Monday first.
pub const DAY_NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/// Minutes of a day.
const MINUTES_PER_DAY: u16 = 24 * 60;

/// Some days of a week.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaySet(u8);

impl DaySet {
    /// Every day.
    pub const ALL: Self = Self(0x7f);
    /// No day.
    pub const NONE: Self = Self(0);

    /// These days and the one with this name; the same if there is no such day.
    #[must_use]
    pub fn with_day(self, name: &str) -> Self {
        let place = DAY_NAMES.iter().position(|day| *day == name);
        Self(self.0 | place.map_or(0, |place| 1 << place))
    }

    fn contains(self, day: u8) -> bool {
        self.0 & 1 << day != 0
    }
}

/// Hours of a day: from a minute on, up to another that is not of them. They may pass midnight: 22:00-06:00.
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

    /// Hours from one minute of the day to another. None if a minute is past the day's end, if nothing lies between
    /// them, or if they begin at its end.
    pub fn new(from: u16, to: u16) -> Option<Self> {
        (from < MINUTES_PER_DAY && to <= MINUTES_PER_DAY && from != to).then_some(Self { from, to })
    }

    /// Reads `22:00-06:00`; `24:00` is an end.
    pub fn parse(text: &str) -> Option<Self> {
        let (from, to) = text.split_once('-')?;
        let clock = |text: &str| {
            text.split_once(':')
                .and_then(|(hour, minute)| parse_minute_of_day(hour, minute))
        };
        Self::new(clock(from)?, clock(to)?)
    }

    /// Whether a moment lies in the hours that begin on one of these days.
    pub fn contains(self, days: DaySet, at: WeekMinute) -> bool {
        let passes_midnight = self.to < self.from;
        let today = self.from <= at.minute && (at.minute < self.to || passes_midnight);
        let since_yesterday = passes_midnight && at.minute < self.to;
        (today && days.contains(at.day)) || (since_yesterday && days.contains((at.day + 6) % 7))
    }
}

/// The minute of the day for two digits each of an hour and a minute, up to 24:00.
pub fn parse_minute_of_day(hour: &str, minute: &str) -> Option<u16> {
    let number = |text: &str| {
        let digits = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
        if digits {
            text.parse::<u16>().ok()
        } else {
            None
        }
    };
    let (hour, minute) = (number(hour)?, number(minute).filter(|minute| *minute < 60)?);
    Some(hour * 60 + minute).filter(|minute| *minute <= MINUTES_PER_DAY)
}

/// How far a clock is ahead of UTC, in minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtcOffset(i16);

impl UtcOffset {
    /// None.
    pub const UTC: Self = Self(0);

    /// Reads `UTC`, `+02:00` or `-05:30`: no more than 14 hours. Names of places need tables that change with laws.
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

/// A minute of a week.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeekMinute {
    day: u8,
    minute: u16,
}

impl WeekMinute {
    /// What a clock with this offset shows at a time, counted from 1970 in UTC.
    pub fn from_wall_time(wall: Duration, offset: UtcOffset) -> Self {
        let minutes =
            i64::try_from(wall.as_secs() / 60).unwrap_or(i64::MAX / 2) + i64::from(offset.0);
        let (days, minute) = (
            minutes.div_euclid(MINUTES_PER_DAY.into()),
            minutes.rem_euclid(MINUTES_PER_DAY.into()),
        );
        // 1970 began with a Thursday.
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
        // 2024-02-29, a Thursday, at 23:30 UTC; the next day is the first of March.
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
        let (hours, saturday) = (
            HourRange::parse("22:00-06:00").unwrap(),
            DaySet::NONE.with_day("sat"),
        );
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
        // The week is round: Sunday's night ends on Monday.
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
