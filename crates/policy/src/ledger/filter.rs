//! Which records somebody looks for: the filters of `GET /api/v1/urls` and of `crawlgate ledger`, in one form.
//!
//! Records are kept by a hash, so a filter is a look at each of them. [`piece`] goes through them in slices and ends when
//! enough was found or the time is over; nothing here says how long that is.

use std::fmt;
use std::sync::Arc;

use crate::model::crawl_status::CrawlStatus;
use crate::urls::target::canonical_host;

use super::key::LedgerKey;
use super::record::LedgerRecord;

/// Records that are read at once when most of them may not fit.
const BATCH_RECORDS: usize = 1_000;

/// What a record must be; what is not set says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerFilter {
    crawler: Option<Box<str>>,
    host: Option<HostFilter>,
    status: Option<CrawlStatus>,
    code: Option<u16>,
    prefix: Option<Box<str>>,
    known: Option<bool>,
}

/// One host, or a domain with all below it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HostFilter {
    Exact(String),
    /// With a dot in front.
    DomainAndSubdomains(String),
}

/// Why a filter is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerFilterError {
    /// There is no such key.
    UnknownKey,
    /// The value cannot be one; what could be, in words.
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
    /// The filters.
    pub const KEYS: [&str; 6] = ["crawler", "host", "status", "code", "prefix", "known"];

    /// Sets a filter. An empty value is no condition, so that a form can be sent as it is.
    ///
    /// # Errors
    /// If there is no such filter, or its value cannot be one.
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
            _ => self.known = Some(parse_known(value)?),
        }
        Ok(())
    }

    /// Whether every record fits.
    pub fn matches_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a record fits.
    pub fn matches(&self, record: &LedgerRecord) -> bool {
        self.crawler
            .as_ref()
            .is_none_or(|crawler| **crawler == *record.crawler)
            && self.status.is_none_or(|status| status == record.status.0)
            && self.code.is_none_or(|code| record.code == Some(code))
            && self.known.is_none_or(|known| known == record.is_known())
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
    const WORDS: &str = "`host` is a host, or *.HOST for it and all below it";
    let canonical = |host| canonical_host(host).map_err(|_| LedgerFilterError::InvalidValue(WORDS));
    match text.strip_prefix("*.") {
        Some(domain) => Ok(HostFilter::DomainAndSubdomains(
            [".", &canonical(domain)?].concat(),
        )),
        None => Ok(HostFilter::Exact(canonical(text)?)),
    }
}

fn parse_crawl_status(word: &str) -> Result<CrawlStatus, LedgerFilterError> {
    const WORDS: &str = "`status` is a word of Crawl-Status, such as ACCEPTED or REJECTED_FILTER";
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

fn parse_known(word: &str) -> Result<bool, LedgerFilterError> {
    word.parse()
        .map_err(|_| LedgerFilterError::InvalidValue("`known` is true or false"))
}

/// The host of a URL in canonical form, which has no user and a lower-case host; brackets stay.
fn url_host(url: &str) -> &str {
    let behind = url.split_once("://").map_or(url, |(_, behind)| behind);
    let authority = behind.split(['/', '?', '#']).next().unwrap_or(behind);
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        Some(_) | None => authority,
    }
}

/// A part of what fits.
#[derive(Clone, Debug, Default)]
pub struct RecordPage {
    /// In the order of their keys.
    pub records: Vec<(LedgerKey, Arc<LedgerRecord>)>,
    /// Behind which key to go on; `None` at the end.
    pub next: Option<LedgerKey>,
}

/// Whether there is time to read more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeBudget {
    /// There is.
    Remaining,
    /// It is over.
    Exhausted,
}

/// What fits behind a key, at most so many. `read` gives records behind a key, as many as asked for unless there are no
/// more; `time` is asked after each slice, so a piece may hold less than there is, and even nothing.
///
/// # Errors
/// If `read` fails: what it did not give must not look as if it were not there.
pub fn read_page<E>(
    mut read: impl FnMut(Option<LedgerKey>, usize) -> Result<Vec<(LedgerKey, Arc<LedgerRecord>)>, E>,
    sought: &LedgerFilter,
    after: Option<LedgerKey>,
    limit: usize,
    mut time: impl FnMut() -> TimeBudget,
) -> Result<RecordPage, E> {
    let (mut found, mut last) = (Vec::new(), after);
    loop {
        let size = if sought.matches_all() {
            (limit - found.len()).min(BATCH_RECORDS)
        } else {
            BATCH_RECORDS
        };
        let slice = read(last, size)?;
        let whole = slice.len() < size;
        for (key, record) in slice {
            last = Some(key);
            if !sought.matches(&record) {
                continue;
            }
            found.push((key, record));
            if found.len() >= limit {
                return Ok(RecordPage {
                    records: found,
                    next: last,
                });
            }
        }
        if whole {
            return Ok(RecordPage {
                records: found,
                next: None,
            });
        }
        if time() == TimeBudget::Exhausted {
            return Ok(RecordPage {
                records: found,
                next: last,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::record::{RecordStatus, VisitState};

    fn sought(filters: &[(&str, &str)]) -> Result<LedgerFilter, LedgerFilterError> {
        let mut sought = LedgerFilter::default();
        filters
            .iter()
            .try_for_each(|(key, value)| sought.set(key, value))?;
        Ok(sought)
    }

    fn record(url: &str) -> LedgerRecord {
        LedgerRecord {
            crawler: "news".into(),
            url: url.into(),
            visit_state: VisitState::Answered,
            status: RecordStatus(CrawlStatus::Filter),
            code: Some(760),
            ..LedgerRecord::default()
        }
    }

    #[test]
    fn each_filter_tells_records_apart() {
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
    fn what_is_no_filter_is_refused() {
        for (key, value) in [
            ("hosts", "a.test"),
            ("host", "a b"),
            ("host", "*."),
            ("status", "FILTER"),
            ("code", "+760"),
            ("code", "99999"),
            ("known", "yes"),
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

    /// Records with these numbers, of which the even ones fit.
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
    fn pieces_follow_on_each_other() {
        let sought = sought(&[("code", "760")]).unwrap();
        let (mut seen, mut after) = (vec![], None);
        loop {
            let piece =
                read_page(some(0, 100), &sought, after, 7, || TimeBudget::Remaining).unwrap();
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
            let key = |n: usize| LedgerKey((first + n as u128).to_be_bytes());
            Ok::<_, ()>((0..most).map(|n| (key(n), Arc::default())).collect())
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
    fn what_cannot_be_read_is_no_end() {
        let code = sought(&[("code", "760")]).unwrap();
        let breaks = |after: Option<LedgerKey>, most: usize| match after {
            None => Ok((1..=most as u128)
                .map(|n| (LedgerKey(n.to_be_bytes()), Arc::default()))
                .collect()),
            Some(_) => Err("the disk fails"),
        };
        for sought in [&LedgerFilter::default(), &code] {
            let piece = read_page(breaks, sought, None, 3 * BATCH_RECORDS, || {
                TimeBudget::Remaining
            });
            assert_eq!(piece.unwrap_err(), "the disk fails");
        }
    }
}
