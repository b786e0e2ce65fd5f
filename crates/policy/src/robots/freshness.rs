//! The lifetime of a fetched robots.txt: HTTP caching rules between a minimum and RFC 9309's
//! maximum.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The header fields that determine the lifetime of a response (RFC 9111).
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheFields<'a> {
    /// All values of `Cache-Control`, joined.
    pub cache_control: Option<&'a str>,
    pub expires: Option<&'a str>,
    pub date: Option<&'a str>,
    pub age: Option<&'a str>,
}

/// The limits of the lifetime. Without header fields a file is fresh for a day, which is also the
/// maximum (RFC 9309 section 2.4); no file is fetched more often than every five minutes.
pub const FRESH_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(5 * 60)..=Duration::from_secs(24 * 3600);

/// The last part of the day, in which a file is still used while a newer one is fetched. So
/// requests need not wait, and no file is used for longer than a day.
const REFRESH_WINDOW: Duration = Duration::from_secs(6 * 3600);

/// The maximum time for which a response may allow stale use (RFC 5861 section 3).
pub const MAX_STALE_USE: Duration = Duration::from_secs(24 * 3600);

/// The delay of a renewal after one that was not admitted by the host's pace.
pub const NOT_ADMITTED_DELAY: Duration = Duration::from_secs(10);

/// The delays before the first, second, … fetch after failures that may pass within seconds, while nothing is known: these
/// fetches are about 2, 5 and 15 s after the first failure. Requests are held meanwhile.
const QUICK_RETRY_SECONDS: [u64; QUICK_RETRIES as usize] = [2, 3, 10];
const QUICK_RETRIES: u32 = 3;

/// The delays before the first, second, … fetch after other failures.
const RETRY_MINUTES: [u64; 5] = [1, 2, 5, 15, 60];

/// The time for which a file stays valid while the host fails, and after which a host that has only
/// failed is assumed to have no robots.txt (RFC 9309 section 2.3.1.4).
pub const MAX_STALE_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

impl<'a> CacheFields<'a> {
    /// Returns the time for which the response is fresh.
    pub fn fresh_for(self) -> Duration {
        match self.stale_use() {
            StaleUse::UntilDayEnd => self
                .freshness_lifetime()
                .min(FRESH_RANGE.end().saturating_sub(REFRESH_WINDOW)),
            StaleUse::Never | StaleUse::Limited(_) => self.freshness_lifetime(),
        }
    }

    /// Returns the time after that for which the response may be used while a newer one is fetched:
    /// up to a day in total, unless the response sets another time or forbids it (RFC 9111 section
    /// 4.2.4).
    pub fn stale_for(self) -> Duration {
        match self.stale_use() {
            StaleUse::Never => Duration::ZERO,
            StaleUse::Limited(time) => time.min(MAX_STALE_USE),
            StaleUse::UntilDayEnd => FRESH_RANGE.end().saturating_sub(self.fresh_for()),
        }
    }

    fn freshness_lifetime(self) -> Duration {
        let lifetime = self.max_age().or_else(|| self.until_expiry());
        let age = Duration::from_secs(parse_seconds(self.age.unwrap_or_default()).unwrap_or(0));
        let remaining =
            lifetime.map_or(*FRESH_RANGE.end(), |lifetime| lifetime.saturating_sub(age));
        remaining.clamp(*FRESH_RANGE.start(), *FRESH_RANGE.end())
    }

    fn stale_use(self) -> StaleUse {
        if [
            "no-store",
            "no-cache",
            "must-revalidate",
            "proxy-revalidate",
        ]
        .iter()
        .any(|word| self.has_directive(word))
        {
            return StaleUse::Never;
        }
        match self.directive_seconds("stale-while-revalidate") {
            Some(seconds) => StaleUse::Limited(Duration::from_secs(seconds)),
            None => StaleUse::UntilDayEnd,
        }
    }

    /// Returns `true` if the response sets a lifetime.
    pub fn has_lifetime(self) -> bool {
        self.cache_control.is_some() || self.expires.is_some()
    }

    /// Returns `s-maxage`, which applies to this shared cache, else `max-age`. A response that must
    /// not be stored has none.
    fn max_age(self) -> Option<Duration> {
        if self.has_directive("no-store") || self.has_directive("no-cache") {
            return Some(Duration::ZERO);
        }
        self.directive_seconds("s-maxage")
            .or_else(|| self.directive_seconds("max-age"))
            .map(Duration::from_secs)
    }

    fn directives(self) -> impl Iterator<Item = &'a str> {
        self.cache_control
            .unwrap_or_default()
            .split(',')
            .map(str::trim)
    }

    fn has_directive(self, word: &str) -> bool {
        self.directives()
            .any(|directive| directive.eq_ignore_ascii_case(word))
    }

    fn directive_seconds(self, name: &str) -> Option<u64> {
        self.directives()
            .find_map(|directive| directive_value(directive, name))
    }

    /// Returns the time until `Expires`. An invalid date is in the past (RFC 9111 section 5.3).
    fn until_expiry(self) -> Option<Duration> {
        let expires = httpdate::parse_http_date(self.expires?);
        let date = httpdate::parse_http_date(self.date?).ok()?;
        Some(
            expires
                .ok()
                .and_then(|expires| expires.duration_since(date).ok())
                .unwrap_or_default(),
        )
    }
}

/// The permission to use a stale response.
#[derive(Clone, Copy)]
enum StaleUse {
    Never,
    /// Permitted for this time.
    Limited(Duration),
    /// Not specified: permitted until the end of the day.
    UntilDayEnd,
}

/// Returns the delay before the next fetch after consecutive failures, the last of which may pass within seconds. Later
/// ones are as far apart as after any failures.
pub fn quick_retry_delay(failures: u32) -> Duration {
    let index = usize::try_from(failures.saturating_sub(1)).unwrap_or(usize::MAX);
    match QUICK_RETRY_SECONDS.get(index) {
        Some(seconds) => Duration::from_secs(*seconds),
        None => retry_delay(failures.saturating_sub(QUICK_RETRIES)),
    }
}

/// Returns the delay before the next fetch after consecutive failures.
pub fn retry_delay(failures: u32) -> Duration {
    let index = usize::try_from(failures.saturating_sub(1)).unwrap_or(usize::MAX);
    let minutes = RETRY_MINUTES.get(index).or(RETRY_MINUTES.last()).copied();
    Duration::from_secs(60 * minutes.unwrap_or(1))
}

fn directive_value(directive: &str, name: &str) -> Option<u64> {
    let (key, value) = directive.split_once('=')?;
    key.trim()
        .eq_ignore_ascii_case(name)
        .then(|| parse_seconds(value.trim().trim_matches('"')))?
}

/// Parses seconds. A number that does not fit counts as a very long time.
fn parse_seconds(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::from(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holding_times() {
        let day = 24 * 3600;
        let hours = 18 * 3600;
        for (cache_control, expires, age, seconds) in [
            ("", "", "", hours),
            ("must-revalidate", "", "", day),
            ("stale-while-revalidate=60", "", "", day),
            ("max-age=70000", "", "", hours),
            ("max-age=3600", "", "", 3600),
            ("max-age=3600", "", "600", 3000),
            ("public, MAX-AGE=\"7200\"", "", "", 7200),
            ("max-age=60, s-maxage=900", "", "", 900),
            ("max-age=1", "", "", 300),
            ("max-age=99999999999999999999", "", "", hours),
            ("max-age=-1", "", "", hours),
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
            assert_eq!(fields.fresh_for().as_secs(), seconds, "{fields:?}");
        }
    }

    #[test]
    fn times_past_freshness() {
        for (cache_control, seconds) in [
            ("", 6 * 3600),
            ("max-age=600", 85_800),
            ("max-age=3600", 82_800),
            ("max-age=80000", 6 * 3600),
            ("max-age=600, stale-while-revalidate=30", 30),
            ("Stale-While-Revalidate=\"0\"", 0),
            ("stale-while-revalidate=999999999", 86_400),
            ("max-age=86400, stale-while-revalidate=86400", 86_400),
            ("stale-while-revalidate=soon", 6 * 3600),
            ("max-age=600, must-revalidate", 0),
            ("no-store", 0),
            ("No-Cache, stale-while-revalidate=30", 0),
        ] {
            let fields = CacheFields {
                cache_control: Some(cache_control),
                ..CacheFields::default()
            };
            assert_eq!(fields.stale_for().as_secs(), seconds, "{cache_control}");
        }
    }

    #[test]
    fn failures_wait_longer_and_longer() {
        let minutes = [0, 1, 2, 3, 4, 5, 6, 99].map(|n| retry_delay(n).as_secs() / 60);
        assert_eq!(minutes, [1, 1, 2, 5, 15, 60, 60, 60]);
        let seconds = [0, 1, 2, 3, 4, 5, 6, 99].map(|n| quick_retry_delay(n).as_secs());
        assert_eq!(seconds, [2, 2, 3, 10, 60, 120, 300, 3_600]);
    }
}
