//! Where the ledger is read: in the proxy that has it, or in its files.

use std::fmt::Write as _;

use serde_json::Value as Json;

use crate::cli::Exit;
use crate::cli::admin_client::{self, AdminClientError, AdminClientRequest};
use crate::cli::args::LedgerSourceArgs;
use crate::cli::console::report_cannot_run;
use crate::cli::inputs;
use crate::config::settings;
use crate::ledger::filter::{TimeBudget, read_page};
use crate::ledger::key::LedgerKey;
use crate::report::{self, record};
use crate::store::ledger::{Ledger, LedgerSettings, LedgerUnavailable};

use super::LedgerFilterInput;

/// URLs that one answer brings at most.
const PAGE_SIZE: usize = 1_000;

/// Who is asked.
#[derive(Debug)]
pub(super) enum LedgerSource {
    /// The admin API of a running proxy.
    Proxy(settings::AdminConfig),
    /// The files under `store.path`.
    Files(Ledger),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LedgerSourceError {
    /// What was asked for is not understood.
    Usage(String),
    /// Anything else, in words.
    Other(String),
}

/// A page of URLs.
#[derive(Debug)]
pub(super) struct LedgerSourcePage {
    pub(super) urls: Vec<Json>,
    /// Behind which key to go on; none at the end.
    pub(super) next: Option<String>,
}

impl From<AdminClientError> for LedgerSourceError {
    fn from(refused: AdminClientError) -> Self {
        match refused {
            AdminClientError::Status(400, words) => Self::Usage(words),
            AdminClientError::Status(404 | 409, words) => Self::Other(words),
            other @ (AdminClientError::Status(..) | AdminClientError::Unavailable(_)) => {
                Self::Other(other.to_string())
            }
        }
    }
}

impl From<LedgerUnavailable> for LedgerSourceError {
    fn from(_: LedgerUnavailable) -> Self {
        Self::Other(
            "the ledger can no longer be read (does its disk fail?): what was written so far is not all of it"
                .into(),
        )
    }
}

impl LedgerSource {
    /// Finds out who has it.
    pub(super) fn open(args: &LedgerSourceArgs) -> Result<Self, Exit> {
        let settings = inputs::load_settings_quietly(&args.proxy.overrides())?;
        if args.offline {
            return open_files(&settings).map_err(|words| report_cannot_run(&words));
        }
        match admin_client::send(&settings.admin, &AdminClientRequest::get("/api/v1/ledger")) {
            // Whoever runs there has the files.
            Ok(_) | Err(AdminClientError::Status(..)) => Ok(Self::Proxy(settings.admin)),
            Err(AdminClientError::Unavailable(why)) => open_files(&settings)
                .map_err(|words| report_cannot_run(&format!("{why}; and {words}"))),
        }
    }

    /// At most so many of the URLs that fit, behind a key.
    pub(super) fn read_page(
        &self,
        filter: &LedgerFilterInput,
        after: Option<&str>,
        limit: usize,
    ) -> Result<LedgerSourcePage, LedgerSourceError> {
        match self {
            Self::Proxy(admin) => {
                let mut path = format!("/api/v1/urls?limit={}", limit.min(PAGE_SIZE));
                let after = after.map(|after| ("after", after.to_owned()));
                for (key, value) in filter.pairs.iter().cloned().chain(after) {
                    let _ = write!(path, "&{key}={}", percent_encode(&value));
                }
                parse_page(&admin_client::send(admin, &AdminClientRequest::get(&path))?)
            }
            Self::Files(ledger) => {
                let read = |after, most| ledger.records(after, most);
                let (after, most) = (after.and_then(LedgerKey::from_hex), limit.min(PAGE_SIZE));
                let piece = read_page(read, &filter.parsed, after, most, || TimeBudget::Remaining)?;
                let urls = piece
                    .records
                    .iter()
                    .map(|(key, found)| record::to_json(*key, found))
                    .collect();
                Ok(LedgerSourcePage {
                    urls,
                    next: piece.next.map(|key| key.to_string()),
                })
            }
        }
    }

    /// How many there are.
    pub(super) fn stats(&self) -> Result<Json, LedgerSourceError> {
        match self {
            Self::Proxy(admin) => Ok(admin_client::send(
                admin,
                &AdminClientRequest::get("/api/v1/ledger"),
            )?),
            Self::Files(ledger) => Ok(report::ledger::to_json(
                &ledger.stats(),
                ledger.disk_bytes(),
                None,
            )),
        }
    }
}

/// The ledger of a proxy that does not run.
fn open_files(settings: &settings::Settings) -> Result<LedgerSource, String> {
    let directory = settings
        .store
        .path
        .as_deref()
        .ok_or("store.path is not set, so no files are kept")?;
    let ledger = Ledger::open_existing(directory, LedgerSettings::default());
    ledger
        .map(LedgerSource::Files)
        .map_err(|error| error.to_string())
}

fn parse_page(document: &Json) -> Result<LedgerSourcePage, LedgerSourceError> {
    let no_page = || LedgerSourceError::Other("what the proxy answers is no page of URLs".into());
    let urls = document
        .get("urls")
        .and_then(Json::as_array)
        .cloned()
        .ok_or_else(no_page)?;
    Ok(LedgerSourcePage {
        urls,
        next: document
            .get("next")
            .and_then(Json::as_str)
            .map(str::to_owned),
    })
}

/// A value of a query.
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
    fn values_go_into_a_query_whole() {
        assert_eq!(
            percent_encode("*.a.test/x?y&z=ä %"),
            "%2A.a.test%2Fx%3Fy%26z%3D%C3%A4%20%25"
        );
    }
}
