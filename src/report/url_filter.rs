//! Filters over URLs of the ledger as text, for the admin API and `crawlgate ledger`.

use std::time::SystemTime;

use crate::clock::date_time::parse_date_time;
use crate::ledger::filter::LedgerFilter;
use crate::ledger::record::UnixMillis;

const NOT_SEEN_SINCE: &str = "not_seen_since";

/// The keys of all filters: those of [`LedgerFilter::KEYS`], and one whose value is a time.
pub const KEYS: [&str; 9] = [
    "crawler",
    "host",
    "status",
    "code",
    "prefix",
    "known",
    "error",
    "lost",
    NOT_SEEN_SINCE,
];

/// Sets a filter. An empty value sets no condition.
///
/// # Errors
/// A message that names the valid keys or values.
pub fn set(filter: &mut LedgerFilter, key: &str, value: &str) -> Result<(), String> {
    if key != NOT_SEEN_SINCE {
        return filter.set(key, value).map_err(|error| error.to_string());
    }
    if value.is_empty() {
        return Ok(());
    }
    let at = parse_date_time(value)
        .ok_or("`not_seen_since` is a time, such as 2026-11-21T08:30:00Z or 2026-11-21")?;
    let since_epoch = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let millis = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
    filter.set_last_seen_before(UnixMillis(millis));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::record::LedgerRecord;

    #[test]
    fn every_key_is_a_filter() {
        assert!(KEYS.starts_with(&LedgerFilter::KEYS));
        for key in KEYS {
            assert!(set(&mut LedgerFilter::default(), key, "").is_ok(), "{key}");
        }
    }

    #[test]
    fn a_time_selects_urls_that_were_last_requested_before_it() {
        let record = LedgerRecord {
            last_seen: UnixMillis(1_767_225_600_000),
            ..LedgerRecord::default()
        };
        for (time, fits) in [
            ("2026-01-01", false),
            ("2026-01-01T00:00:00.001Z", true),
            ("2025-12-31T23:00:00-02:00", true),
            ("", true),
        ] {
            let mut filter = LedgerFilter::default();
            set(&mut filter, NOT_SEEN_SINCE, time).unwrap();
            assert_eq!(filter.matches(&record), fits, "{time}");
        }
        assert!(set(&mut LedgerFilter::default(), NOT_SEEN_SINCE, "7d").is_err());
    }
}
