//! `POST /api/v1/ledger/sweep`: looks at every URL that is remembered under the policy in force, or only counts.

use std::error::Error;
use std::fmt;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::admin::ask::{Mistake, beginning, received};
use crate::admin::page::{self, problem};

use super::LedgerApi;

/// The longest body.
const BODY: usize = 1 << 10;

/// What sweeps the ledger.
pub trait Sweeps: fmt::Debug + Send + Sync {
    /// Begins to sweep.
    ///
    /// # Errors
    /// If it does already.
    fn begin(&self, how: How) -> Result<(), Busy>;

    /// The sweep that runs, or is asked for, or the last one that did; `None` if none ever has.
    fn progress(&self) -> Option<Progress>;
}

/// What a sweep does with what it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Counts it.
    DryRun,
    /// Writes it down, and orders removals.
    ForGood,
}

/// A sweep is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// How far a sweep is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Whether it is still under way.
    pub state: State,
    /// What it does.
    pub how: How,
    /// The revision of the policy.
    pub revision: String,
    /// URLs that it has seen.
    pub looked_at: u64,
    /// URLs that there are.
    pub total: u64,
    /// Those that get 760: they leave.
    pub removed: u64,
    /// Those that get 761: they stay in another crawler's space.
    pub moved: u64,
    /// Those that have the one or the other from before.
    pub unchanged: u64,
    /// Those that the policy allows.
    pub allowed: u64,
    /// URLs of a dry run that would be removed or moved; the first ones.
    pub gaps: Vec<Gap>,
}

/// Whether a sweep is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is.
    Running,
    /// It is over.
    Done,
}

/// A URL that fell out of a crawler's space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The crawler.
    pub crawler: String,
    /// The URL.
    pub url: String,
    /// The rule or the space that decides.
    pub rule: Option<String>,
    /// 760 or 761.
    pub code: Option<u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    dry_run: bool,
}

impl LedgerApi {
    /// `POST /api/v1/ledger/sweep`: 202, and `GET /api/v1/ledger` tells how far it is.
    pub(in crate::admin) async fn sweep<B>(&self, body: B) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let how = match received(body, BODY).await.and_then(|bytes| read(&bytes)) {
            Ok(how) => how,
            Err(mistake) => return mistake.answer(),
        };
        if self.kept.ledger().is_none() {
            return super::none_kept();
        }
        match self.sweeps.begin(how) {
            Ok(()) => page::json(StatusCode::ACCEPTED, &json!({ "sweep": self.sweeping() })),
            Err(Busy) => problem(
                StatusCode::CONFLICT,
                "a sweep is under way; wait for its end, GET /api/v1/ledger tells how far it is",
            ),
        }
    }

    /// The sweep as a document.
    pub(super) fn sweeping(&self) -> Option<Json> {
        self.sweeps.progress().as_ref().map(shown)
    }
}

fn read(body: &[u8]) -> Result<How, Mistake> {
    let order: Order = serde_json::from_slice(body).map_err(|error| {
        let error = beginning(&error);
        Mistake::Words(format!(
            "the body is no JSON object with `dry_run`: {error}"
        ))
    })?;
    Ok(if order.dry_run {
        How::DryRun
    } else {
        How::ForGood
    })
}

fn shown(progress: &Progress) -> Json {
    let gap = |gap: &Gap| json!({ "crawler": gap.crawler, "url": gap.url, "rule": gap.rule, "code": gap.code });
    json!({
        "state": match progress.state {
            State::Running => "running",
            State::Done => "done",
        },
        "dry_run": progress.how == How::DryRun,
        "revision": progress.revision,
        "looked_at": progress.looked_at,
        "total": progress.total,
        "removed": progress.removed,
        "moved": progress.moved,
        "unchanged": progress.unchanged,
        "allowed": progress.allowed,
        "gaps": progress.gaps.iter().map(gap).collect::<Vec<_>>(),
    })
}
