//! `Retry-After` (RFC 9110 section 10.2.3): parsing origins' values, and computing the value for
//! crawlers.

use std::time::{Duration, UNIX_EPOCH};

use super::pace::{HostPace, PaceWait, WaitCause};

/// The minimum for crawlers.
const MIN_RETRY_AFTER: Duration = Duration::from_secs(1);
/// The maximum, of origins' values that are obeyed and of values for crawlers.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(3_600);

/// The value for crawlers if it is unknown when a request will succeed, as after a shutdown or if the proxy is overloaded.
pub const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(5);

/// The value of an origin's `Retry-After`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    Delay(Duration),
    /// A time, counted from the Unix epoch.
    Date(Duration),
}

impl RetryAfter {
    /// Parses either form.
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

    /// Returns the time from now; `wall` is the current time, counted from the Unix epoch.
    pub fn to_delay(self, wall: Duration) -> Duration {
        match self {
            Self::Delay(time) => time,
            Self::Date(at) => at.saturating_sub(wall),
        }
    }
}

/// Returns the value of `Retry-After` for a refused request: when its turn would have come, with
/// `ahead` requests before it.
pub fn estimate_retry_after(wait: PaceWait, ahead: usize, pace: &HostPace) -> Duration {
    let own_wait = match wait.cause {
        WaitCause::Time | WaitCause::Backoff => wait.duration,
        // The end of the requests in flight is unknown; their leases expire at the latest after
        // this wait.
        WaitCause::Slots | WaitCause::Probe => pace.interval().min(wait.duration),
    };
    let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
    retry_after_of_wait(own_wait.saturating_add(pace.interval().saturating_mul(ahead)))
}

/// Returns the value of `Retry-After` for a wait, at most an hour.
pub fn retry_after_of_wait(wait: Duration) -> Duration {
    round_up_retry_after(wait.min(MAX_RETRY_AFTER))
}

/// Returns a time in whole seconds, rounded up, and at least one: the only way in which a `Retry-After` is rounded.
pub fn round_up_retry_after(wait: Duration) -> Duration {
    let whole = wait
        .as_secs()
        .saturating_add(u64::from(wait.subsec_nanos() > 0));
    Duration::from_secs(whole).max(MIN_RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_whole_seconds_within_limits() {
        for (wait_ms, seconds) in [
            (0, 1),
            (1, 1),
            (1_001, 2),
            (90_000, 90),
            (3_599_500, 3_600),
            (4_000_000, 3_600),
        ] {
            let after = retry_after_of_wait(Duration::from_millis(wait_ms));
            assert_eq!(after, Duration::from_secs(seconds), "{wait_ms} ms");
        }
        let day = Duration::from_secs(86_400);
        assert_eq!(round_up_retry_after(day), day);
        let longer = day + Duration::from_nanos(1);
        assert_eq!(round_up_retry_after(longer).as_secs(), 86_401);
    }

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
    fn the_estimate_counts_the_requests_ahead() {
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
