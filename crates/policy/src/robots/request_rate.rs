//! `Request-rate: 1/10`, `30/1m`, `1/5m 0600-0845`: so many documents in so long, perhaps at some hours of the day (UTC)
//! only. From the drafts that followed the first standard; no RFC has it, many files do.
//!
//! What the pace becomes is not said here. Choices where the drafts leave one:
//! - `30/1m` asks for one every two seconds: nobody who writes it wants thirty at once.
//! - Of several lines for a group the longest interval counts among those that hold now; a group that stands several
//!   times is one, as for Crawl-delay.
//! - No documents, or no time, says nothing. A number that is too long for us is the longest we have.

use std::time::Duration;

use crate::model::week::{DaySet, HourRange, UtcOffset, WeekMinute, parse_minute_of_day};

use super::file::RobotsFile;

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestRate {
    interval: Duration,
    hours: HourRange,
}

impl RequestRate {
    /// Reads the value of a line; one that is not wholly understood says nothing.
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
        let always = self.hours == HourRange::ALL;
        let holds = always
            || self.hours.contains(
                DaySet::ALL,
                WeekMinute::from_wall_time(wall, UtcOffset::UTC),
            );
        holds.then_some(self.interval)
    }
}

impl RobotsFile {
    /// The least time between two requests that the Request-rate of a crawler's group asks for: the longest if several
    /// hold. `wall`, counted from 1970, is asked for only if the file has such a line.
    pub fn request_interval(
        &self,
        agent: &str,
        wall: impl FnOnce() -> Duration,
    ) -> Option<Duration> {
        if self.table.rates.is_empty() {
            return None;
        }
        let wall = wall();
        self.request_rates(agent)
            .filter_map(|rate| rate.interval_at(wall))
            .max()
    }
}

/// `10`, `10s`, `5m`, `2h`; fractions are cut off.
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

/// A whole number. One that is too long is the longest.
fn parse_number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// `0600-0845` or `06:00-08:45`; nothing, and hours from one minute to the same, are all day.
fn parse_hours(text: &str) -> Option<HourRange> {
    if text.is_empty() {
        return Some(HourRange::ALL);
    }
    let (from, to) = text.split_once('-')?;
    let (from, to) = (
        parse_minute(from.trim_end())?,
        parse_minute(to.trim_start())?,
    );
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
    fn what_is_not_understood_says_nothing() {
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
    fn what_is_huge_stays_within_clocks() {
        assert_eq!(
            interval("1/99999999999999999999999h"),
            Some(Duration::from_secs(u64::MAX).as_millis())
        );
        assert_eq!(interval("99999999999999999999999/1"), None);
        assert_eq!(interval("1000000/1"), Some(0));
        assert!(RequestRate::parse(b"1000000/1").is_some());
    }
}
