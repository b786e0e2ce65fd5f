//! The times that users write: RFC 3339, with parts that may be left out.

use std::time::{Duration, SystemTime};

use time::{Date, Month};

/// Parses a time of RFC 3339, which may have a space in place of the `T`, or a date. Times before 1970 are
/// invalid. A time without a zone is in UTC.
pub fn parse_date_time(text: &str) -> Option<SystemTime> {
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
