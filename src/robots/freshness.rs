//! For how long a fetched robots.txt holds: HTTP's own rules between a floor and RFC 9309's ceiling.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The fields of an answer that tell for how long it holds (RFC 9111).
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheFields<'a> {
    /// `Cache-Control`, joined.
    pub cache_control: Option<&'a str>,
    /// `Expires`.
    pub expires: Option<&'a str>,
    /// `Date`.
    pub date: Option<&'a str>,
    /// `Age`.
    pub age: Option<&'a str>,
}

/// A file that says nothing holds for a day, which is also the longest (RFC 9309 section 2.4); none is asked for more
/// often than every five minutes.
pub const HOLDS: RangeInclusive<Duration> = Duration::from_secs(5 * 60)..=Duration::from_secs(24 * 3600);

/// The waits before the 1st, 2nd … fetch after one that brought nothing.
const AGAIN_AFTER_MINUTES: [u64; 5] = [1, 2, 5, 15, 60];

/// How long a file that was replaced by nothing is still believed, and after which a host that has only failed is
/// taken to have no robots.txt (RFC 9309 section 2.3.1.4).
pub const STALE: Duration = Duration::from_secs(30 * 24 * 3600);

impl CacheFields<'_> {
    /// For how long the answer holds.
    pub fn holds_for(self) -> Duration {
        let told = self.max_age().or_else(|| self.until_expiry());
        let age = Duration::from_secs(number(self.age.unwrap_or_default()).unwrap_or(0));
        let left = told.map_or(*HOLDS.end(), |told| told.saturating_sub(age));
        left.clamp(*HOLDS.start(), *HOLDS.end())
    }

    /// The proxy answers many crawlers, so `s-maxage` comes first; what may not be stored holds for nothing.
    fn max_age(self) -> Option<Duration> {
        let directives = || self.cache_control.unwrap_or_default().split(',').map(str::trim);
        let is = |word: &str| directives().any(|d| d.eq_ignore_ascii_case(word));
        if is("no-store") || is("no-cache") {
            return Some(Duration::ZERO);
        }
        let seconds = |name: &str| directives().find_map(|d| value(d, name));
        seconds("s-maxage").or_else(|| seconds("max-age")).map(Duration::from_secs)
    }

    /// An `Expires` that is no date is in the past (RFC 9111 section 5.3).
    fn until_expiry(self) -> Option<Duration> {
        let expires = httpdate::parse_http_date(self.expires?);
        let date = httpdate::parse_http_date(self.date?).ok()?;
        Some(expires.ok().and_then(|expires| expires.duration_since(date).ok()).unwrap_or_default())
    }
}

/// How long after this many failures in a row the next fetch is tried.
pub fn again_after(failures: u32) -> Duration {
    let place = usize::try_from(failures.saturating_sub(1)).unwrap_or(usize::MAX);
    let minutes = AGAIN_AFTER_MINUTES.get(place).or(AGAIN_AFTER_MINUTES.last()).copied();
    Duration::from_secs(60 * minutes.unwrap_or(1))
}

fn value(directive: &str, name: &str) -> Option<u64> {
    let (key, value) = directive.split_once('=')?;
    key.trim().eq_ignore_ascii_case(name).then(|| number(value.trim().trim_matches('"')))?
}

/// More digits than fit are a very long time.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::from(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holding_times() {
        let day = 24 * 3600;
        for (cache_control, expires, age, seconds) in [
            ("", "", "", day),
            ("max-age=3600", "", "", 3600),
            ("max-age=3600", "", "600", 3000),
            ("public, MAX-AGE=\"7200\"", "", "", 7200),
            ("max-age=60, s-maxage=900", "", "", 900),
            ("max-age=1", "", "", 300),
            ("max-age=99999999999999999999", "", "", day),
            ("max-age=-1", "", "", day),
            ("no-store, max-age=900", "", "", 300),
            ("no-cache", "", "", 300),
            ("", "Thu, 01 Jan 2026 02:00:00 GMT", "", 7200),
            ("", "Thu, 01 Jan 2026 02:00:00 GMT", "3600", 3600),
            ("", "0", "", 300),
            ("max-age=1200", "Thu, 01 Jan 2026 02:00:00 GMT", "", 1200),
        ] {
            let some = |text: &'static str| Some(text).filter(|t| !t.is_empty());
            let fields = CacheFields {
                cache_control: some(cache_control),
                expires: some(expires),
                date: Some("Thu, 01 Jan 2026 00:00:00 GMT"),
                age: some(age),
            };
            assert_eq!(fields.holds_for().as_secs(), seconds, "{fields:?}");
        }
    }

    #[test]
    fn failures_wait_longer_and_longer() {
        let minutes = [0, 1, 2, 3, 4, 5, 6, 99].map(|n| again_after(n).as_secs() / 60);
        assert_eq!(minutes, [1, 1, 2, 5, 15, 60, 60, 60]);
    }
}
