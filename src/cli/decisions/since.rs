//! The value of `--since`: a time, or a duration before now.

use std::time::{Duration, SystemTime};

use time::{Date, Month};

use crate::clock::Rfc3339;
use crate::model::units;

/// The time from which decisions are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// A duration before now.
    Ago(Duration),
    At(SystemTime),
}

impl Since {
    /// Parses `10m`, `2026-11-21`, `2026-11-21T08:30:00Z` and the like. A time without a zone is in UTC.
    ///
    /// # Errors
    /// The accepted forms, if the text is not one of them.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let ago = units::parse_duration(text).map(Self::Ago);
        let at = || parse_date_time(text).map(Self::At);
        ago.or_else(at).ok_or_else(|| {
            "write a duration (10m, 24h, 7d) or a time (2026-11-21T08:30:00Z, 2026-11-21)"
                .to_owned()
        })
    }

    /// Returns the time in the format of the log, whose text sorts in the order of time.
    pub(super) fn to_timestamp(self, now: SystemTime) -> String {
        let at = match self {
            Self::Ago(time) => now.checked_sub(time).unwrap_or(SystemTime::UNIX_EPOCH),
            Self::At(at) => at,
        };
        Rfc3339(at).to_string()
    }
}

/// Parses a time of RFC 3339, which may have a space in place of the `T`, or a date. Times before 1970 are invalid.
fn parse_date_time(text: &str) -> Option<SystemTime> {
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let mut parts = date.split('-');
    let mut part = |digits| parts.next().and_then(|text| parse_digits(text, digits));
    let (year, month, day) = (part(4).filter(|year| *year >= 1970)?, part(2)?, part(2)?);
    if parts.next().is_some() {
        return None;
    }
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let date = Date::from_calendar_date(year.try_into().ok()?, month, day.try_into().ok()?).ok()?;
    let (seconds, fraction) = time.map_or(Some((0, Duration::ZERO)), parse_time_of_day)?;
    let midnight = date.midnight().as_utc().unix_timestamp();
    let since = u64::try_from(midnight + seconds).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(since) + fraction)
}

/// Parses a time of day to seconds since midnight UTC, and the fraction of a second.
fn parse_time_of_day(text: &str) -> Option<(i64, Duration)> {
    let (text, offset) = split_zone(text)?;
    let (text, fraction) = match text.split_once('.') {
        Some((text, digits)) => (text, parse_fraction(digits)?),
        None => (text, Duration::ZERO),
    };
    let mut parts = text.split(':');
    let mut part = |most| {
        parts
            .next()
            .and_then(|text| parse_digits(text, 2))
            .filter(|n| *n <= most)
    };
    let (hour, minute) = (part(23)?, part(59)?);
    let second = if text.matches(':').count() == 2 {
        part(60)?
    } else {
        0
    };
    parts
        .next()
        .is_none()
        .then_some((hour * 3_600 + minute * 60 + second - offset, fraction))
}

/// Splits off the zone, and returns its offset from UTC in seconds.
fn split_zone(text: &str) -> Option<(&str, i64)> {
    if let Some(text) = text.strip_suffix(['Z', 'z']) {
        return Some((text, 0));
    }
    let Some((time, sign)) = text
        .rfind(['+', '-'])
        .and_then(|at| text.split_at_checked(at))
    else {
        return Some((text, 0));
    };
    let (hours, minutes) = sign.get(1..)?.split_once(':')?;
    let offset = parse_digits(hours, 2)? * 3_600 + parse_digits(minutes, 2)? * 60;
    Some((
        time,
        if sign.starts_with('-') {
            -offset
        } else {
            offset
        },
    ))
}

fn parse_fraction(digits: &str) -> Option<Duration> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let seconds: f64 = plain.then(|| format!("0.{digits}").parse().ok())??;
    Duration::try_from_secs_f64(seconds).ok()
}

fn parse_digits(text: &str, digits: usize) -> Option<i64> {
    let plain = text.len() == digits && text.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, shown) in [
            ("1970-01-01", "1970-01-01T00:00:00.000Z"),
            ("2000-02-29T23:59:59Z", "2000-02-29T23:59:59.000Z"),
            ("2026-11-21T08:30:00.125Z", "2026-11-21T08:30:00.125Z"),
            ("2026-11-21 08:30", "2026-11-21T08:30:00.000Z"),
            ("2026-11-21T08:30:00+02:00", "2026-11-21T06:30:00.000Z"),
            ("2026-12-31t23:30:00-01:30", "2027-01-01T01:00:00.000Z"),
            ("10m", "2025-12-31T23:50:00.000Z"),
            ("99999d", "1970-01-01T00:00:00.000Z"),
        ] {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600);
            assert_eq!(
                Since::parse(text).unwrap().to_timestamp(now),
                shown,
                "{text}"
            );
        }
        for bad in [
            "",
            "10",
            "2026-13-01",
            "2026-02-29",
            "2026-1-1",
            "2026-11-21T",
            "2026-11-21T25:00:00Z",
            "2026-11-21T08:30:00.Z",
            "2026-11-21T08:30:00+2",
            "2026-11-21T08:30:00:00Z",
            "1969-12-31",
            "now",
            "2026-11-21T\u{e4}8:30Z",
            "1970-01-01T00:00:00+23:00",
        ] {
            assert!(Since::parse(bad).is_err(), "{bad:?}");
        }
    }
}
