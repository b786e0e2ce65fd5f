//! `Request-rate: 1/10`, `30/1m`, `1/5m 0600-0845`: a number of documents in a time, optionally
//! limited to hours of the day in UTC. From the drafts that followed the first standard; it is in
//! no RFC, but in many files.
//!
//! Choices where the drafts leave one:
//! - `30/1m` means one document every two seconds, since nobody who writes it wants thirty at once.
//! - Of several lines in a group, the longest interval that applies at the time counts. A group
//!   that occurs several times is one, as for Crawl-delay.
//! - Zero documents or no time have no effect. A number that is too large counts as the largest
//!   possible.

use std::time::Duration;

use crate::model::week::{DaySet, HourRange, UtcOffset, WeekMinute, parse_minute_of_day};

use super::agent::RobotsAgent;
use super::file::RobotsFile;

/// A Request-rate line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestRate {
    interval: Duration,
    hours: HourRange,
}

impl RequestRate {
    /// Parses the value of a line; `None` if any part of it is invalid.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?.trim();
        let (documents, rest) = text.split_once('/')?;
        let rest = rest.trim_start();
        let (time, hours) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
        let documents = parse_number(documents.trim_end()).filter(|documents| *documents > 0)?;
        let interval = Duration::from_secs(parse_seconds(time)?)
            / u32::try_from(documents).unwrap_or(u32::MAX);
        let hours = parse_hours(hours.trim())?;
        (!interval.is_zero()).then_some(Self { interval, hours })
    }

    fn interval_at(self, wall: Duration) -> Option<Duration> {
        let applies = self.hours == HourRange::ALL
            || self.hours.contains(
                DaySet::ALL,
                WeekMinute::from_wall_time(wall, UtcOffset::UTC),
            );
        applies.then_some(self.interval)
    }
}

impl RobotsFile {
    /// Returns the minimum time between two requests by the Request-rate lines of a crawler's
    /// group: the longest if several apply. `wall`, the time since 1970, is called only if the file
    /// has such a line.
    pub fn request_interval<'a>(
        &self,
        agent: impl Into<RobotsAgent<'a>>,
        wall: impl FnOnce() -> Duration,
    ) -> Option<Duration> {
        if self.delays.rates.is_empty() {
            return None;
        }
        let wall = wall();
        self.request_rates(agent.into())
            .filter_map(|rate| rate.interval_at(wall))
            .max()
    }
}

/// Parses `10`, `10s`, `5m`, `2h`. Fractions are dropped.
fn parse_seconds(text: &str) -> Option<u64> {
    let (unit, factor) = match text.as_bytes().last()? {
        b's' | b'S' => (1, 1),
        b'm' | b'M' => (1, 60),
        b'h' | b'H' => (1, 3_600),
        _ => (0, 1),
    };
    let digits = text.get(..text.len() - unit)?;
    parse_number(digits).map(|count| count.saturating_mul(factor))
}

/// Parses a whole number. One that is too large becomes the largest.
fn parse_number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Parses `0600-0845` or `06:00-08:45`. An empty text and an empty range mean the whole day.
fn parse_hours(text: &str) -> Option<HourRange> {
    if text.is_empty() {
        return Some(HourRange::ALL);
    }
    let (from, to) = text.split_once('-')?;
    let from = parse_minute(from.trim_end())?;
    let to = parse_minute(to.trim_start())?;
    if from == to {
        Some(HourRange::ALL)
    } else {
        HourRange::new(from, to)
    }
}

fn parse_minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_at_checked(2)?;
    parse_minute_of_day(hour, minute.strip_prefix(':').unwrap_or(minute))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(text: &str) -> Option<u128> {
        RequestRate::parse(text.as_bytes()).map(|rate| rate.interval.as_millis())
    }

    #[test]
    fn documents_in_a_time() {
        for (text, ms) in [
            ("1/10", 10_000),
            ("1/10s", 10_000),
            (" 1 / 10S ", 10_000),
            ("30/1m", 2_000),
            ("2/1", 500),
            ("1/2h", 7_200_000),
            ("1/10 0600-0845", 10_000),
            ("1/10\t06:00 - 08:45", 10_000),
        ] {
            assert_eq!(interval(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn unparsable_rates_are_ignored() {
        for text in [
            "",
            "/",
            "1",
            "1/",
            "/10",
            "0/0",
            "0/10",
            "10/0",
            "1/0s",
            "-1/10",
            "1/-10",
            "1.5/10",
            "1/1.5",
            "1/10d",
            "1/s",
            "1/10ss",
            "one/ten",
            "1/10 0600",
            "1/10 0600-",
            "1/10 2500-0100",
            "1/10 0660-0700",
            "1/10 2400-0100",
            "1/10 0600-0845 UTC",
            "1/10 06-08",
            "\u{661}/10",
            "1/10 \u{661}\u{661}00-0700",
        ] {
            assert_eq!(interval(text), None, "{text}");
        }
        assert_eq!(RequestRate::parse(b"1/\xff"), None);
    }

    #[test]
    fn huge_values_do_not_overflow() {
        assert_eq!(
            interval("1/99999999999999999999999h"),
            Some(Duration::from_secs(u64::MAX).as_millis())
        );
        assert_eq!(interval("99999999999999999999999/1"), None);
        assert_eq!(interval("1000000/1"), Some(0));
        assert!(RequestRate::parse(b"1000000/1").is_some());
    }
}
