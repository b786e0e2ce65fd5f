//! Decisions from the ledger alone: premature requests and unmodified documents.

use std::time::Duration;

use super::record::{ContentHash, DocumentValidators, LedgerRecord, UnixMillis};

/// The values of the option `recrawl`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecrawlIntervals {
    /// The minimum time between two fetches.
    pub min_interval: Option<Duration>,
    /// The minimum time after an error.
    pub after_error: Option<Duration>,
}

/// Returns the time until the URL may be fetched again; `None` if it may be fetched now.
pub fn time_until_recrawl(
    record: &LedgerRecord,
    recrawl: RecrawlIntervals,
    now: UnixMillis,
) -> Option<Duration> {
    let after_fetch = remaining(record.last_fetched, recrawl.min_interval, now);
    // A successful fetch clears an earlier error.
    let last_error = record
        .last_error
        .filter(|error| record.last_fetched.is_none_or(|fetched| *error > fetched));
    let after_error = remaining(last_error, recrawl.after_error, now);
    after_fetch
        .max(after_error)
        .filter(|remaining| !remaining.is_zero())
}

/// A time later than `now` was recorded by a wrong clock and delays nothing.
fn remaining(
    since: Option<UnixMillis>,
    interval: Option<Duration>,
    now: UnixMillis,
) -> Option<Duration> {
    let since = since.filter(|since| *since <= now)?;
    interval?.checked_sub(now.duration_since(since))
}

/// Returns `true` if a response's validators are those of the last fetched document. Compares `ETag`
/// if both have one (weak comparison, RFC 9110 section 8.8.3.2), else `Last-Modified`.
pub fn is_same_version(record: &LedgerRecord, now: &DocumentValidators) -> bool {
    match (&record.validators.etag, &now.etag) {
        (Some(before), Some(now)) => opaque_tag(before) == opaque_tag(now),
        (None, _) | (_, None) => {
            now.last_modified.is_some() && record.validators.last_modified == now.last_modified
        }
    }
}

fn opaque_tag(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag)
}

/// Returns `true` if a body is that of the last fetched document.
pub fn is_same_content(record: &LedgerRecord, now: &ContentHash) -> bool {
    record.content_hash.as_ref() == Some(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(seconds: u64) -> UnixMillis {
        UnixMillis(seconds * 1_000)
    }

    #[test]
    fn a_url_is_premature_until_its_interval_is_over() {
        let both = RecrawlIntervals {
            min_interval: Some(HOUR),
            after_error: Some(2 * HOUR),
        };
        let fetched = LedgerRecord {
            last_fetched: Some(at(1000)),
            ..LedgerRecord::default()
        };
        let failed = LedgerRecord {
            last_error: Some(at(2000)),
            ..fetched.clone()
        };
        let mended = LedgerRecord {
            last_error: Some(at(500)),
            ..fetched.clone()
        };
        for (record, recrawl, now, left) in [
            (&fetched, RecrawlIntervals::default(), 1000, None),
            (&fetched, both, 1000, Some(3600)),
            (&fetched, both, 4599, Some(1)),
            (&fetched, both, 4600, None),
            // A clock that was ahead and was set back does not delay requests for years.
            (&fetched, both, 0, None),
            (&failed, both, 2000, Some(7200)),
            (
                &failed,
                RecrawlIntervals {
                    after_error: None,
                    ..both
                },
                2000,
                Some(2600),
            ),
            (&mended, both, 4600, None),
            (&LedgerRecord::default(), both, 0, None),
        ] {
            let remaining = left.map(Duration::from_secs);
            assert_eq!(
                time_until_recrawl(record, recrawl, at(now)),
                remaining,
                "{record:?} at {now}"
            );
        }
    }

    #[test]
    fn versions_are_compared_by_tag_and_else_by_date() {
        fn of(etag: &str, modified: &str) -> DocumentValidators {
            DocumentValidators {
                etag: (!etag.is_empty()).then(|| etag.into()),
                last_modified: (!modified.is_empty()).then(|| modified.into()),
            }
        }
        for (before, now, same) in [
            (of("\"a\"", ""), of("\"a\"", ""), true),
            (of("W/\"a\"", ""), of("\"a\"", ""), true),
            (of("\"a\"", "x"), of("\"b\"", "x"), false),
            (of("", "x"), of("\"b\"", "x"), true),
            (of("\"a\"", "x"), of("", "x"), true),
            (of("", "x"), of("", "y"), false),
            (of("", ""), of("", ""), false),
            (of("\"a\"", ""), of("", ""), false),
        ] {
            let record = LedgerRecord {
                validators: before.clone(),
                ..LedgerRecord::default()
            };
            assert_eq!(is_same_version(&record, &now), same, "{before:?} {now:?}");
        }
    }
}
