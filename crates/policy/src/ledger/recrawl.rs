//! What the ledger says of a request before the origin is asked, and of an answer: premature, unmodified.

use std::time::Duration;

use super::record::{ContentHash, DocumentValidators, LedgerRecord, UnixMillis};

/// The option `recrawl`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecrawlIntervals {
    /// The least time between two fetches.
    pub min_interval: Option<Duration>,
    /// The least time after an error.
    pub after_error: Option<Duration>,
}

/// What is left until the URL may be fetched again; `None` if it may be now.
pub fn time_until_recrawl(
    record: &LedgerRecord,
    recrawl: RecrawlIntervals,
    now: UnixMillis,
) -> Option<Duration> {
    // A time ahead of now was written by a clock that went wrong: it holds nothing back.
    let left = |since: Option<UnixMillis>, least: Option<Duration>| {
        least?.checked_sub(now.duration_since(since.filter(|since| *since <= now)?))
    };
    let fetched = left(record.last_fetched, recrawl.min_interval);
    // What was fetched since is no error any more.
    let failed = record
        .last_error
        .filter(|error| record.last_fetched.is_none_or(|fetched| *error > fetched));
    fetched
        .max(left(failed, recrawl.after_error))
        .filter(|left| !left.is_zero())
}

/// Whether an answer's validators are those of the document that was fetched last: by `ETag` if both have one (RFC 9110
/// section 8.8.3.2, weak comparison), else by `Last-Modified`.
pub fn is_same_version(record: &LedgerRecord, now: &DocumentValidators) -> bool {
    let opaque = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
    match (&record.validators.etag, &now.etag) {
        (Some(before), Some(now)) => opaque(before) == opaque(now),
        (None, _) | (_, None) => {
            now.last_modified.is_some() && record.validators.last_modified == now.last_modified
        }
    }
}

/// Whether a body is that of the document that was fetched last.
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
            // A clock that was ahead, and went back, makes nobody wait for years.
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
            let left = left.map(Duration::from_secs);
            assert_eq!(
                time_until_recrawl(record, recrawl, at(now)),
                left,
                "{record:?} at {now}"
            );
        }
    }

    #[test]
    fn versions_are_compared_by_tag_and_else_by_date() {
        let of = |etag: &str, modified: &str| DocumentValidators {
            etag: (!etag.is_empty()).then(|| etag.into()),
            last_modified: (!modified.is_empty()).then(|| modified.into()),
        };
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
