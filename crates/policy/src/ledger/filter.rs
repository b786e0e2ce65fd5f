//! Filters over ledger records, shared by `GET /api/v1/urls` and `crawlgate ledger`.
//!
//! The store orders records by a hash, so a filter has to test each of them. [`read_page`] reads
//! them in batches and ends when the page is full or the caller's time budget is exhausted.

use std::fmt;
use std::sync::Arc;

use crate::model::crawl_status::CrawlStatus;
use crate::model::failure_kind::FailureKind;
use crate::urls::target::canonical_host;

use super::key::LedgerKey;
use super::record::{LedgerRecord, UnixMillis};

/// The number of records in one batch when most of them may not match.
const BATCH_RECORDS: usize = 1_000;

/// Conditions that a record must meet. An unset one matches every record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerFilter {
    crawler: Option<Box<str>>,
    host: Option<HostFilter>,
    status: Option<CrawlStatus>,
    code: Option<u16>,
    prefix: Option<Box<str>>,
    known: Option<bool>,
    error: Option<FailureKind>,
    last_seen_before: Option<UnixMillis>,
    url: Option<Box<str>>,
    lost: Option<bool>,
}

/// A host, or a domain with its subdomains.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HostFilter {
    Exact(String),
    /// The domain with a leading dot.
    DomainAndSubdomains(String),
}

/// The error of [`LedgerFilter::set`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerFilterError {
    UnknownKey,
    /// The value is invalid; the text names the valid ones.
    InvalidValue(&'static str),
}

impl fmt::Display for LedgerFilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey => write!(
                f,
                "there is no such filter; allowed: {}",
                LedgerFilter::KEYS.join(", ")
            ),
            Self::InvalidValue(words) => f.write_str(words),
        }
    }
}

impl std::error::Error for LedgerFilterError {}

impl LedgerFilter {
    /// The keys of the filters that [`Self::set`] parses.
    pub const KEYS: [&str; 8] = [
        "crawler", "host", "status", "code", "prefix", "known", "error", "lost",
    ];

    /// Sets a filter. An empty value sets no condition, so a form can be sent with empty fields.
    ///
    /// # Errors
    /// Returns an error if the key is unknown or its value invalid.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), LedgerFilterError> {
        if !Self::KEYS.contains(&key) {
            return Err(LedgerFilterError::UnknownKey);
        }
        if value.is_empty() {
            return Ok(());
        }
        match key {
            "crawler" => self.crawler = Some(value.into()),
            "host" => self.host = Some(parse_host_filter(value)?),
            "status" => self.status = Some(parse_crawl_status(value)?),
            "code" => self.code = Some(parse_code(value)?),
            "prefix" => self.prefix = Some(value.into()),
            "known" => self.known = Some(parse_flag(value, "`known` is true or false")?),
            "error" => self.error = Some(parse_error(value)?),
            _ => self.lost = Some(parse_flag(value, "`lost` is true or false")?),
        }
        Ok(())
    }

    /// Keeps only URLs that were last requested before this time.
    pub fn set_last_seen_before(&mut self, at: UnixMillis) {
        self.last_seen_before = Some(at);
    }

    /// Keeps only records of this URL, in canonical form.
    pub fn set_url(&mut self, url: &str) {
        self.url = Some(url.into());
    }

    /// Returns `true` if no condition is set.
    pub fn matches_all(&self) -> bool {
        *self == Self::default()
    }

    /// Returns `true` if a record meets every condition.
    pub fn matches(&self, record: &LedgerRecord) -> bool {
        self.crawler
            .as_ref()
            .is_none_or(|crawler| **crawler == *record.crawler)
            && self.status.is_none_or(|status| status == record.status.0)
            && self.code.is_none_or(|code| record.code == Some(code))
            && self.known.is_none_or(|known| known == record.is_known())
            && self.error.is_none_or(|kind| record.error == Some(kind))
            && self
                .last_seen_before
                .is_none_or(|time| record.last_seen < time)
            && self.url.as_ref().is_none_or(|url| **url == *record.url)
            && self.lost.is_none_or(|lost| lost == record.lost.is_some())
            && self
                .prefix
                .as_ref()
                .is_none_or(|prefix| record.url.starts_with(&**prefix))
            && self
                .host
                .as_ref()
                .is_none_or(|hosts| hosts.matches(url_host(&record.url)))
    }
}

impl HostFilter {
    fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(one) => host == one,
            Self::DomainAndSubdomains(dotted) => {
                host.ends_with(dotted.as_str()) || Some(host) == dotted.strip_prefix('.')
            }
        }
    }
}

fn parse_host_filter(text: &str) -> Result<HostFilter, LedgerFilterError> {
    const WORDS: &str = "`host` is a host, or *.HOST for a domain and its subdomains";
    match text.strip_prefix("*.") {
        Some(domain) => {
            canonical_host(domain).map(|host| HostFilter::DomainAndSubdomains(format!(".{host}")))
        }
        None => canonical_host(text).map(HostFilter::Exact),
    }
    .map_err(|_| LedgerFilterError::InvalidValue(WORDS))
}

fn parse_crawl_status(word: &str) -> Result<CrawlStatus, LedgerFilterError> {
    const WORDS: &str = "`status` is a value of Crawl-Status, such as ACCEPTED or REJECTED_FILTER";
    CrawlStatus::from_word(&word.to_ascii_uppercase()).ok_or(LedgerFilterError::InvalidValue(WORDS))
}

fn parse_code(text: &str) -> Result<u16, LedgerFilterError> {
    let number = text
        .parse()
        .ok()
        .filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    number.ok_or(LedgerFilterError::InvalidValue(
        "`code` is a number, such as 760",
    ))
}

fn parse_flag(word: &str, words: &'static str) -> Result<bool, LedgerFilterError> {
    word.parse()
        .map_err(|_| LedgerFilterError::InvalidValue(words))
}

fn parse_error(word: &str) -> Result<FailureKind, LedgerFilterError> {
    [FailureKind::Permanent, FailureKind::Temporary]
        .into_iter()
        .find(|kind| kind.as_str() == word)
        .ok_or(LedgerFilterError::InvalidValue(
            "`error` is permanent or temporary",
        ))
}

/// Returns the host of a canonical URL, which has no user info and a lower-case host. IPv6 brackets
/// are kept.
pub(super) fn url_host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        Some(_) | None => authority,
    }
}

/// One page of matching records.
#[derive(Clone, Debug, Default)]
pub struct RecordPage {
    /// The records, ordered by key.
    pub records: Vec<(LedgerKey, Arc<LedgerRecord>)>,
    /// The key after which the next page starts; `None` at the end.
    pub next: Option<LedgerKey>,
}

/// The result of asking whether there is time for another batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeBudget {
    Remaining,
    Exhausted,
}

/// Returns at most `limit` matching records whose keys are greater than `after`. `read` returns the
/// records after a key, as many as requested unless there are no more. `time` is called after each
/// batch, so a page may be shorter than `limit`, and even empty, before the end is reached.
///
/// # Errors
/// Returns the error of `read`: a record that could not be read must not look absent.
pub fn read_page<E>(
    mut read: impl FnMut(Option<LedgerKey>, usize) -> Result<Vec<(LedgerKey, Arc<LedgerRecord>)>, E>,
    filter: &LedgerFilter,
    after: Option<LedgerKey>,
    limit: usize,
    mut time: impl FnMut() -> TimeBudget,
) -> Result<RecordPage, E> {
    let mut records = Vec::new();
    let mut last = after;
    loop {
        let size = if filter.matches_all() {
            (limit - records.len()).min(BATCH_RECORDS)
        } else {
            BATCH_RECORDS
        };
        let batch = read(last, size)?;
        let at_end = batch.len() < size;
        for (key, record) in batch {
            last = Some(key);
            if !filter.matches(&record) {
                continue;
            }
            records.push((key, record));
            if records.len() >= limit {
                return Ok(RecordPage {
                    records,
                    next: last,
                });
            }
        }
        if at_end {
            return Ok(RecordPage {
                records,
                next: None,
            });
        }
        if time() == TimeBudget::Exhausted {
            return Ok(RecordPage {
                records,
                next: last,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::record::{RecordStatus, UnixMillis, VisitState};

    fn sought(filters: &[(&str, &str)]) -> Result<LedgerFilter, LedgerFilterError> {
        let mut filter = LedgerFilter::default();
        filters
            .iter()
            .try_for_each(|(key, value)| filter.set(key, value))?;
        Ok(filter)
    }

    fn record(url: &str) -> LedgerRecord {
        LedgerRecord {
            crawler: "news".into(),
            url: url.into(),
            visit_state: VisitState::Answered,
            status: RecordStatus(CrawlStatus::Filter),
            code: Some(760),
            last_seen: UnixMillis(1_000),
            error: Some(FailureKind::Temporary),
            lost: Some(UnixMillis(7)),
            ..LedgerRecord::default()
        }
    }

    #[test]
    fn each_filter_selects_the_matching_records() {
        let one = record("http://www.a.test:8080/x?y");
        for (key, value, fits) in [
            ("crawler", "news", true),
            ("crawler", "new", false),
            ("host", "WWW.a.test", true),
            ("host", "a.test", false),
            ("host", "*.a.test", true),
            ("host", "*.www.a.test", true),
            ("host", "*.w.a.test", false),
            ("status", "REJECTED_FILTER", true),
            ("status", "rejected_filter", true),
            ("status", "ACCEPTED", false),
            ("code", "760", true),
            ("code", "761", false),
            ("prefix", "http://www.a.test:8080/", true),
            ("prefix", "https://", false),
            ("known", "true", true),
            ("known", "false", false),
            ("known", "", true),
            ("error", "temporary", true),
            ("error", "permanent", false),
            ("lost", "true", true),
            ("lost", "false", false),
        ] {
            assert_eq!(
                sought(&[(key, value)]).unwrap().matches(&one),
                fits,
                "{key}={value}"
            );
        }
        assert!(
            !sought(&[("crawler", "news"), ("code", "761")])
                .unwrap()
                .matches(&one)
        );
    }

    #[test]
    fn a_url_and_a_time_select_records() {
        let one = record("http://a.test/x");
        for (time, fits) in [(1_000, false), (1_001, true)] {
            let mut filter = LedgerFilter::default();
            filter.set_last_seen_before(UnixMillis(time));
            assert_eq!(filter.matches(&one), fits, "{time}");
        }
        for (url, fits) in [("http://a.test/x", true), ("http://a.test/", false)] {
            let mut filter = LedgerFilter::default();
            filter.set_url(url);
            assert_eq!(filter.matches(&one), fits, "{url}");
        }
    }

    #[test]
    fn invalid_filters_are_refused() {
        for (key, value) in [
            ("hosts", "a.test"),
            ("host", "a b"),
            ("host", "*."),
            ("status", "FILTER"),
            ("code", "+760"),
            ("code", "99999"),
            ("known", "yes"),
            ("error", "404"),
            ("not_seen_since", "2026-01-01"),
            ("lost", "1"),
        ] {
            assert!(sought(&[(key, value)]).is_err(), "{key}={value}");
        }
    }

    #[test]
    fn hosts_are_cut_out_of_urls() {
        for (url, host) in [
            ("http://a.test/", "a.test"),
            ("https://a.test:81/x:80", "a.test"),
            ("http://[2001:db8::7]/", "[2001:db8::7]"),
            ("http://[2001:db8::7]:81/", "[2001:db8::7]"),
        ] {
            assert_eq!(url_host(url), host, "{url}");
        }
    }

    type BatchResult = Result<Vec<(LedgerKey, Arc<LedgerRecord>)>, ()>;

    /// Reads records with the numbers `from` to `to`; the even ones match.
    fn some(from: u8, to: u8) -> impl Fn(Option<LedgerKey>, usize) -> BatchResult {
        move |after, most| {
            let keys = (from..to)
                .map(|n| LedgerKey([n; 16]))
                .filter(|key| Some(*key) > after)
                .take(most);
            let of = |key: LedgerKey| {
                let LedgerKey([n, ..]) = key;
                let code = if n.is_multiple_of(2) { 760 } else { 761 };
                (
                    key,
                    Arc::new(LedgerRecord {
                        code: Some(code),
                        ..LedgerRecord::default()
                    }),
                )
            };
            Ok(keys.map(of).collect())
        }
    }

    #[test]
    fn pages_are_contiguous() {
        let filter = sought(&[("code", "760")]).unwrap();
        let mut seen = vec![];
        let mut after = None;
        loop {
            let piece =
                read_page(some(0, 100), &filter, after, 7, || TimeBudget::Remaining).unwrap();
            seen.extend(piece.records.iter().map(|(LedgerKey([n, ..]), _)| *n));
            after = piece.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, (0..100).filter(|n| n % 2 == 0).collect::<Vec<_>>());
    }

    #[test]
    fn a_search_ends_when_its_time_is_over() {
        let none = sought(&[("code", "1")]).unwrap();
        let endless = |after: Option<LedgerKey>, most: usize| {
            let first = after.map_or(0, |LedgerKey(bytes)| u128::from_be_bytes(bytes)) + 1;
            let keys = (first..).take(most).map(|n| LedgerKey(n.to_be_bytes()));
            Ok::<_, ()>(keys.map(|key| (key, Arc::default())).collect())
        };
        let mut slices = 0;
        let piece = read_page(endless, &none, None, 1, || {
            slices += 1;
            if slices == 3 {
                TimeBudget::Exhausted
            } else {
                TimeBudget::Remaining
            }
        });
        let piece = piece.unwrap();
        assert!(piece.records.is_empty());
        assert_eq!(
            piece.next,
            Some(LedgerKey((3 * BATCH_RECORDS as u128).to_be_bytes()))
        );
    }

    #[test]
    fn an_unreadable_page_is_not_the_end() {
        let code = sought(&[("code", "760")]).unwrap();
        let breaks = |after: Option<LedgerKey>, most: usize| match after {
            None => Ok((1..=most as u128)
                .map(|n| (LedgerKey(n.to_be_bytes()), Arc::default()))
                .collect()),
            Some(_) => Err("the disk fails"),
        };
        for filter in [&LedgerFilter::default(), &code] {
            let piece = read_page(breaks, filter, None, 3 * BATCH_RECORDS, || {
                TimeBudget::Remaining
            });
            assert_eq!(piece.unwrap_err(), "the disk fails");
        }
    }
}
