//! The week as people write it: days, hours of a day, and how far a clock is from UTC. What holds at which time is not
//! said here.

use std::time::Duration;

/// The days, Monday first.
pub const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/// Minutes of a day.
const DAY: u16 = 24 * 60;

/// Some days of a week.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Days(u8);

impl Days {
    /// Every day.
    pub const ALL: Self = Self(0x7f);
    /// No day.
    pub const NONE: Self = Self(0);

    /// These days and the one with this name; the same if there is no such day.
    #[must_use]
    pub fn and(self, name: &str) -> Self {
        let place = DAYS.iter().position(|day| *day == name);
        Self(self.0 | place.map_or(0, |place| 1 << place))
    }

    fn has(self, day: u8) -> bool {
        self.0 & 1 << day != 0
    }
}

/// Hours of a day: from a minute on, up to another that is not of them. They may pass midnight: 22:00-06:00.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    from: u16,
    to: u16,
}

impl Hours {
    /// From midnight to midnight.
    pub const ALL: Self = Self { from: 0, to: DAY };

    /// Hours from one minute of the day to another. None if a minute is past the day's end, if nothing lies between
    /// them, or if they begin at its end.
    pub fn new(from: u16, to: u16) -> Option<Self> {
        (from < DAY && to <= DAY && from != to).then_some(Self { from, to })
    }

    /// Reads `22:00-06:00`; `24:00` is an end.
    pub fn parse(text: &str) -> Option<Self> {
        let (from, to) = text.split_once('-')?;
        let clock = |text: &str| {
            text.split_once(':')
                .and_then(|(hour, minute)| minute_of(hour, minute))
        };
        Self::new(clock(from)?, clock(to)?)
    }

    /// Whether a moment lies in the hours that begin on one of these days.
    pub fn hold_at(self, days: Days, at: Moment) -> bool {
        let passes_midnight = self.to < self.from;
        let today = self.from <= at.minute && (at.minute < self.to || passes_midnight);
        let since_yesterday = passes_midnight && at.minute < self.to;
        (today && days.has(at.day)) || (since_yesterday && days.has((at.day + 6) % 7))
    }
}

/// The minute of the day for two digits each of an hour and a minute, up to 24:00.
pub fn minute_of(hour: &str, minute: &str) -> Option<u16> {
    let number = |text: &str| {
        let digits = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
        if digits {
            text.parse::<u16>().ok()
        } else {
            None
        }
    };
    let (hour, minute) = (number(hour)?, number(minute).filter(|minute| *minute < 60)?);
    Some(hour * 60 + minute).filter(|minute| *minute <= DAY)
}

/// How far a clock is ahead of UTC, in minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset(i16);

impl Offset {
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
        let minutes = minute_of(hour, minute).filter(|minutes| *minutes <= 14 * 60)?;
        Some(Self(sign * i16::try_from(minutes).ok()?))
    }
}

/// A minute of a week.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    day: u8,
    minute: u16,
}

impl Moment {
    /// What a clock with this offset shows at a time, counted from 1970 in UTC.
    pub fn of(wall: Duration, offset: Offset) -> Self {
        let minutes =
            i64::try_from(wall.as_secs() / 60).unwrap_or(i64::MAX / 2) + i64::from(offset.0);
        let (days, minute) = (
            minutes.div_euclid(DAY.into()),
            minutes.rem_euclid(DAY.into()),
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
            assert_eq!(Hours::parse(text), Some(Hours { from, to }), "{text}");
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
            assert_eq!(Hours::parse(text), None, "{text}");
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
            assert_eq!(Offset::parse(text), Some(Offset(minutes)), "{text}");
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
            assert_eq!(Offset::parse(text), None, "{text}");
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
            let offset = Offset::parse(offset).unwrap();
            assert_eq!(
                Moment::of(wall, offset),
                Moment { day, minute },
                "{wall:?} {offset:?}"
            );
        }
        assert!(Moment::of(Duration::MAX, Offset(840)).minute < DAY);
    }

    #[test]
    fn hours_that_pass_midnight_belong_to_the_day_on_which_they_begin() {
        let (hours, saturday) = (Hours::parse("22:00-06:00").unwrap(), Days::NONE.and("sat"));
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
                hours.hold_at(saturday, Moment { day, minute }),
                holds,
                "{day} {minute}"
            );
        }
        // The week is round: Sunday's night ends on Monday.
        assert!(hours.hold_at(Days::NONE.and("sun"), Moment { day: 0, minute: 0 }));
        assert!((0..7).all(|day| Hours::ALL.hold_at(Days::ALL, Moment { day, minute: 1_439 })));
        assert!(!Hours::ALL.hold_at(Days::NONE.and("one"), Moment { day: 0, minute: 0 }));
    }
}
