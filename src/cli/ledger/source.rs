//! Where the ledger is read: in the proxy that has it, or in its files.

use std::fmt::Write as _;

use serde_json::Value as Json;

use crate::cli::Exit;
use crate::cli::admin::{self, Asked, Refused};
use crate::cli::args::PlaceArgs;
use crate::cli::open;
use crate::cli::out::say_and_fail;
use crate::config::settings;
use crate::ledger::key::Key;
use crate::ledger::sought::{Time, piece};
use crate::report::{self, record};
use crate::store::ledger::{Failed, Ledger, LedgerSettings};

use super::SoughtIn;

/// URLs that one answer brings at most.
const PAGE: usize = 1_000;

/// Who is asked.
#[derive(Debug)]
pub(super) enum Source {
    /// The admin API of a running proxy.
    Proxy(settings::Admin),
    /// The files under `store.path`.
    Files(Ledger),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// What was asked for is not understood.
    Usage(String),
    /// Anything else, in words.
    Other(String),
}

/// A page of URLs.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) urls: Vec<Json>,
    /// Behind which key to go on; none at the end.
    pub(super) next: Option<String>,
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Answered(400, words) => Self::Usage(words),
            Refused::Answered(404 | 409, words) => Self::Other(words),
            other @ (Refused::Answered(..) | Refused::NotAsked(_)) => {
                Self::Other(other.to_string())
            }
        }
    }
}

impl From<Failed> for Failure {
    fn from(_: Failed) -> Self {
        Self::Other(
            "the ledger can no longer be read (does its disk fail?): what was written so far is not all of it"
                .into(),
        )
    }
}

impl Source {
    /// Finds out who has it.
    pub(super) fn open(place: &PlaceArgs) -> Result<Self, Exit> {
        let settings = open::settings_alone(&place.proxy.overrides())?;
        if place.offline {
            return files(&settings).map_err(|words| say_and_fail(&words));
        }
        match admin::ask(&settings.admin, &Asked::get("/api/v1/ledger")) {
            // Whoever runs there has the files.
            Ok(_) | Err(Refused::Answered(..)) => Ok(Self::Proxy(settings.admin)),
            Err(Refused::NotAsked(why)) => {
                files(&settings).map_err(|words| say_and_fail(&format!("{why}; and {words}")))
            }
        }
    }

    /// At most so many of the URLs that fit, behind a key.
    pub(super) fn page(
        &self,
        sought: &SoughtIn,
        after: Option<&str>,
        most: usize,
    ) -> Result<Page, Failure> {
        match self {
            Self::Proxy(admin) => {
                let mut path = format!("/api/v1/urls?limit={}", most.min(PAGE));
                let after = after.map(|after| ("after", after.to_owned()));
                for (key, value) in sought.said.iter().cloned().chain(after) {
                    let _ = write!(path, "&{key}={}", escaped(&value));
                }
                page(&admin::ask(admin, &Asked::get(&path))?)
            }
            Self::Files(ledger) => {
                let read = |after, most| ledger.records(after, most);
                let (after, most) = (after.and_then(Key::from_hex), most.min(PAGE));
                let piece = piece(read, &sought.sought, after, most, || Time::Left)?;
                let urls = piece
                    .found
                    .iter()
                    .map(|(key, found)| record::to_json(*key, found))
                    .collect();
                Ok(Page {
                    urls,
                    next: piece.next.map(|key| key.to_string()),
                })
            }
        }
    }

    /// How many there are.
    pub(super) fn stats(&self) -> Result<Json, Failure> {
        match self {
            Self::Proxy(admin) => Ok(admin::ask(admin, &Asked::get("/api/v1/ledger"))?),
            Self::Files(ledger) => Ok(report::ledger::to_json(
                &ledger.stats(),
                ledger.bytes(),
                None,
            )),
        }
    }
}

/// The ledger of a proxy that does not run.
fn files(settings: &settings::Settings) -> Result<Source, String> {
    let directory = settings
        .store
        .path
        .as_deref()
        .ok_or("store.path is not set, so no files are kept")?;
    let ledger = Ledger::open_existing(directory, LedgerSettings::default());
    ledger.map(Source::Files).map_err(|error| error.to_string())
}

fn page(document: &Json) -> Result<Page, Failure> {
    let no_page = || Failure::Other("what the proxy answers is no page of URLs".into());
    let urls = document
        .get("urls")
        .and_then(Json::as_array)
        .cloned()
        .ok_or_else(no_page)?;
    Ok(Page {
        urls,
        next: document
            .get("next")
            .and_then(Json::as_str)
            .map(str::to_owned),
    })
}

/// A value of a query.
fn escaped(text: &str) -> String {
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
            escaped("*.a.test/x?y&z=ä %"),
            "%2A.a.test%2Fx%3Fy%26z%3D%C3%A4%20%25"
        );
    }
}
