//! `--since`: a time, or how long ago.

use std::time::{Duration, SystemTime};

use crate::clock::Rfc3339;
use crate::model::units;

/// From when on decisions are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// So long ago.
    Ago(Duration),
    /// From this time on.
    At(SystemTime),
}

impl Since {
    /// Reads `10m`, `2026-11-21`, `2026-11-21T08:30:00Z` or the like; without a zone it is UTC.
    ///
    /// # Errors
    /// What can be written.
    pub fn parse(text: &str) -> Result<Self, String> {
        let ago = units::parse_duration(text).map(Self::Ago);
        let at = || parse_date_time(text).map(Self::At);
        ago.or_else(at).ok_or_else(|| {
            "write how long ago (10m, 24h, 7d) or a time (2026-11-21T08:30:00Z, 2026-11-21)"
                .to_owned()
        })
    }

    /// The time as lines have it: text that sorts as times do.
    pub(super) fn to_timestamp(self, now: SystemTime) -> String {
        let at = match self {
            Self::Ago(time) => now.checked_sub(time).unwrap_or(SystemTime::UNIX_EPOCH),
            Self::At(at) => at,
        };
        Rfc3339(at).to_string()
    }
}

/// A time by RFC 3339, with a blank for the `T` if you like, or a date alone. Nothing before 1970.
fn parse_date_time(text: &str) -> Option<SystemTime> {
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let mut parts = date.split('-');
    let mut part = |digits, range: std::ops::RangeInclusive<i64>| {
        parts
            .next()
            .and_then(|text| parse_digits(text, digits))
            .filter(|n| range.contains(n))
    };
    let (year, month, day) = (part(4, 1970..=9999)?, part(2, 1..=12)?, part(2, 1..=31)?);
    if parts.next().is_some() || day > days_in_month(year, month) {
        return None;
    }
    let (seconds, fraction) = time.map_or(Some((0, Duration::ZERO)), parse_time_of_day)?;
    let since = u64::try_from(days_from_civil(year, month, day) * 86_400 + seconds).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(since) + fraction)
}

/// Seconds since midnight UTC, and the part of a second.
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

/// What stands before the zone, and the zone's offset from UTC in seconds.
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

fn days_in_month(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01: Howard Hinnant's `days_from_civil`, years counted from March.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
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
