//! The source of the ledger: the running proxy, or the files.

use std::fmt::Write as _;

use serde_json::Value as Json;

use crate::cli::Exit;
use crate::cli::admin_client::{AdminClientError, AdminClientRequest, get_u64};
use crate::cli::args::LedgerSourceArgs;
use crate::cli::console::report_cannot_run;
use crate::cli::running_proxy::RunningProxy;
use crate::config::settings;
use crate::ledger::filter::{LedgerFilter, TimeBudget, read_page};
use crate::ledger::key::LedgerKey;
use crate::report::{self, record};
use crate::store::ledger::{Ledger, LedgerSettings, LedgerUnavailable};

use super::LedgerFilterInput;
use super::forget::{ForgetMode, ForgetSelection};

/// The maximum number of URLs per page.
const PAGE_SIZE: usize = 1_000;

#[derive(Debug)]
pub(in crate::cli) enum LedgerSource {
    /// The admin API of a running proxy.
    Proxy(RunningProxy),
    /// The files under `store.path`.
    Files(Ledger),
}

/// An error of reading the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LedgerSourceError {
    /// The proxy rejects the request as invalid.
    Usage(String),
    /// Any other error.
    Other(String),
}

/// A page of URLs.
#[derive(Debug)]
pub(super) struct LedgerSourcePage {
    pub(super) urls: Vec<Json>,
    /// The key after which the next page starts; `None` on the last page.
    pub(super) next: Option<String>,
}

impl From<AdminClientError> for LedgerSourceError {
    fn from(error: AdminClientError) -> Self {
        match error {
            AdminClientError::Status(400, message) => Self::Usage(message),
            AdminClientError::Status(404 | 409, message) => Self::Other(message),
            other @ (AdminClientError::Status(..) | AdminClientError::Unavailable(_)) => {
                Self::Other(other.to_string())
            }
        }
    }
}

impl From<LedgerUnavailable> for LedgerSourceError {
    fn from(_: LedgerUnavailable) -> Self {
        Self::Other(
            "the ledger can no longer be read (check the disk of store.path): the output is incomplete"
                .into(),
        )
    }
}

impl LedgerSource {
    /// Selects the running proxy, or else the files.
    pub(crate) fn open(args: &LedgerSourceArgs) -> Result<Self, Exit> {
        let (proxy, settings) = RunningProxy::find_with_settings(&args.proxy)?;
        if args.offline {
            return open_files(&settings).map_err(|error| report_cannot_run(&error));
        }
        match proxy.get("/api/v1/ledger") {
            // Even a proxy that refuses the request has locked the files.
            Ok(_) | Err(AdminClientError::Status(..)) => Ok(Self::Proxy(proxy)),
            Err(AdminClientError::Unavailable(reason)) => open_files(&settings)
                .map_err(|error| report_cannot_run(&format!("{reason}; and {error}"))),
        }
    }

    /// Reads at most `limit` URLs that match the filter, starting after a key.
    pub(super) fn read_page(
        &self,
        filter: &LedgerFilterInput,
        after: Option<&str>,
        limit: usize,
    ) -> Result<LedgerSourcePage, LedgerSourceError> {
        match self {
            Self::Proxy(proxy) => {
                let mut path = format!("/api/v1/urls?limit={}", limit.min(PAGE_SIZE));
                let after = after.map(|after| ("after", after.to_owned()));
                for (key, value) in filter.pairs.iter().cloned().chain(after) {
                    let _ = write!(path, "&{key}={}", percent_encode(&value));
                }
                parse_page(&proxy.get(&path)?)
            }
            Self::Files(ledger) => {
                let page = read_page(
                    |after, limit| ledger.records(after, limit),
                    &filter.parsed,
                    after.and_then(LedgerKey::from_hex),
                    limit.min(PAGE_SIZE),
                    || TimeBudget::Remaining,
                )?;
                let urls = page
                    .records
                    .iter()
                    .map(|(key, record)| record::to_json(*key, record))
                    .collect();
                Ok(LedgerSourcePage {
                    urls,
                    next: page.next.map(|key| key.to_string()),
                })
            }
        }
    }

    /// Deletes the selected records, or counts them. Returns their number; what was deleted is on disk.
    pub(super) fn forget(
        &self,
        selection: &ForgetSelection,
        mode: ForgetMode,
    ) -> Result<u64, LedgerSourceError> {
        match self {
            Self::Proxy(proxy) => forget_in_proxy(proxy, selection, mode),
            Self::Files(ledger) => forget_in_files(ledger, &selection.filter, mode),
        }
    }

    /// Returns the ledger of a running proxy, or else the files, if one of them exists.
    pub(in crate::cli) fn find(
        proxy: &RunningProxy,
        settings: &settings::Settings,
    ) -> Option<Self> {
        match proxy.get("/api/v1/ledger") {
            Ok(_) => Some(Self::Proxy(proxy.clone())),
            Err(AdminClientError::Status(..)) => None,
            Err(AdminClientError::Unavailable(_)) => open_files(settings).ok(),
        }
    }

    /// Returns the record of a URL; `None` if it does not exist or cannot be read.
    pub(in crate::cli) fn record_of(&self, crawler: &str, url: &str) -> Option<Json> {
        match self {
            Self::Proxy(proxy) => {
                let path = format!(
                    "/api/v1/urls?url={}&crawler={}",
                    percent_encode(url),
                    percent_encode(crawler)
                );
                let page = proxy.get(&path).ok()?;
                page.get("urls")?.as_array()?.first().cloned()
            }
            Self::Files(ledger) => {
                let key = LedgerKey::for_url(crawler, url);
                let record = ledger.try_look_up(key).ok()??;
                Some(record::to_json(key, &record))
            }
        }
    }

    /// Passes the records of all URLs to `each`, a page at a time, with their number.
    pub(crate) fn for_each_record(
        &self,
        mut each: impl FnMut(&Json, u64),
    ) -> Result<(), LedgerSourceError> {
        let total = self
            .stats()?
            .get("urls")
            .and_then(Json::as_u64)
            .unwrap_or_default();
        let all = LedgerFilterInput::default();
        let mut after = None;
        loop {
            let page = self.read_page(&all, after.as_deref(), PAGE_SIZE)?;
            page.urls.iter().for_each(|url| each(url, total));
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    pub(super) fn stats(&self) -> Result<Json, LedgerSourceError> {
        match self {
            Self::Proxy(proxy) => Ok(proxy.get("/api/v1/ledger")?),
            Self::Files(ledger) => Ok(report::ledger::to_json(
                &ledger.stats(),
                ledger.disk_bytes(),
                None,
                &[],
            )),
        }
    }
}

/// Sends requests until there are no more records.
fn forget_in_proxy(
    proxy: &RunningProxy,
    selection: &ForgetSelection,
    mode: ForgetMode,
) -> Result<u64, LedgerSourceError> {
    let mut body = selection.keys.clone();
    body.insert("dry_run".into(), (mode == ForgetMode::DryRun).into());
    let mut count = 0;
    loop {
        let text = Some(Json::Object(body.clone()).to_string());
        let page = proxy.send(&AdminClientRequest::post("/api/v1/ledger/forget", text))?;
        count += get_u64(&page, "urls");
        match page.get("next").filter(|next| !next.is_null()) {
            Some(next) => body.insert("after".into(), next.clone()),
            None => return Ok(count),
        };
    }
}

fn forget_in_files(
    ledger: &Ledger,
    filter: &LedgerFilter,
    mode: ForgetMode,
) -> Result<u64, LedgerSourceError> {
    let mut count = 0;
    let mut after = None;
    loop {
        let page = read_page(
            |after, limit| ledger.records(after, limit),
            filter,
            after,
            PAGE_SIZE,
            || TimeBudget::Remaining,
        )?;
        for (key, _) in &page.records {
            count += match mode {
                ForgetMode::DryRun => 1,
                ForgetMode::Delete => u64::from(ledger.forget(*key, filter)?),
            };
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    if mode == ForgetMode::Delete {
        // Waits for the disk.
        ledger.close();
        if ledger.stats().dropped > 0 {
            return Err(LedgerUnavailable.into());
        }
    }
    Ok(count)
}

/// Opens the ledger of a proxy that is not running.
fn open_files(settings: &settings::Settings) -> Result<LedgerSource, String> {
    let directory = settings
        .store
        .path
        .as_deref()
        .ok_or("store.path is not set, so there are no files")?;
    let ledger = Ledger::open_existing(directory, LedgerSettings::default());
    ledger
        .map(LedgerSource::Files)
        .map_err(|error| error.to_string())
}

fn parse_page(document: &Json) -> Result<LedgerSourcePage, LedgerSourceError> {
    let urls = document
        .get("urls")
        .and_then(Json::as_array)
        .cloned()
        .ok_or_else(|| {
            LedgerSourceError::Other("the response of the proxy is not a page of URLs".into())
        })?;
    Ok(LedgerSourcePage {
        urls,
        next: document
            .get("next")
            .and_then(Json::as_str)
            .map(str::to_owned),
    })
}

/// Percent-encodes a value of a query.
fn percent_encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_query_are_percent_encoded() {
        assert_eq!(
            percent_encode("*.a.test/x?y&z=ä %"),
            "%2A.a.test%2Fx%3Fy%26z%3D%C3%A4%20%25"
        );
    }
}
