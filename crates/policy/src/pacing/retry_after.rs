//! `Retry-After` (RFC 9110 section 10.2.3): read from origins, worked out for crawlers.

use std::time::{Duration, UNIX_EPOCH};

use super::pace::{HostPace, PaceWait, WaitCause};

/// The least that a crawler is told.
const MIN_RETRY_AFTER: Duration = Duration::from_secs(1);
/// The most.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3_600);

/// What an origin's field says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// After so long.
    Delay(Duration),
    /// At a time, counted from 1970.
    Date(Duration),
}

impl RetryAfter {
    /// Reads either form; none if it is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            return Some(Self::Delay(Duration::from_secs(
                text.parse().unwrap_or(u64::MAX),
            )));
        }
        let date = httpdate::parse_http_date(text).ok()?;
        Some(Self::Date(
            date.duration_since(UNIX_EPOCH).unwrap_or_default(),
        ))
    }

    /// The time from now on; `wall` is now, counted from 1970.
    pub fn to_delay(self, wall: Duration) -> Duration {
        match self {
            Self::Delay(time) => time,
            Self::Date(at) => at.saturating_sub(wall),
        }
    }
}

/// What a request that is sent away is told: when its turn might have been, with so many `ahead` of it.
pub fn estimate_retry_after(wait: PaceWait, ahead: usize, pace: &HostPace) -> Duration {
    let own = match wait.cause {
        WaitCause::Time | WaitCause::Backoff => wait.duration,
        // Nobody knows when those under way will end; surely not before they expire.
        WaitCause::Slots | WaitCause::Probe => pace.interval().min(wait.duration),
    };
    let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
    let time = own
        .saturating_add(pace.interval().saturating_mul(ahead))
        .clamp(MIN_RETRY_AFTER, MAX_RETRY_AFTER);
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn both_forms_are_read() {
        let date = Duration::from_secs(1_767_225_600);
        for (text, seconds) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Thu, 01 Jan 2026 00:01:00 GMT", Some(60)),
            ("Wed, 31 Dec 2025 00:00:00 GMT", Some(0)),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            let read = RetryAfter::parse(text).map(|after| after.to_delay(date).as_secs());
            assert_eq!(read, seconds, "{text}");
        }
    }

    #[test]
    fn who_is_sent_away_is_told_when_its_turn_might_come() {
        let pace = HostPace {
            delay: 2 * SECOND,
            ..HostPace::UNLIMITED
        };
        for (duration, cause, ahead, seconds) in [
            (SECOND / 10, WaitCause::Time, 0, 1),
            (SECOND * 3 / 2, WaitCause::Time, 0, 2),
            (SECOND, WaitCause::Time, 5, 11),
            (SECOND * 60, WaitCause::Slots, 0, 2),
            (SECOND * 30, WaitCause::Backoff, 1, 32),
            (SECOND, WaitCause::Time, usize::MAX, 3_600),
        ] {
            assert_eq!(
                estimate_retry_after(PaceWait { duration, cause }, ahead, &pace),
                SECOND * seconds,
                "{duration:?} {cause:?} {ahead}"
            );
        }
    }
}
