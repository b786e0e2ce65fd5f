//! `POST /api/v1/ledger/sweep`: looks at every URL that is remembered under the policy in force, or only counts.

use std::error::Error;
use std::fmt;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::admin::api_request::{ApiRequestError, read_body, shorten_message};
use crate::admin::response::{self, problem};

use super::LedgerApi;

/// The longest body.
const MAX_BODY_BYTES: usize = 1 << 10;

/// What sweeps the ledger.
pub trait SweepControl: fmt::Debug + Send + Sync {
    /// Begins to sweep.
    ///
    /// # Errors
    /// If it does already.
    fn start(&self, mode: ApiSweepMode) -> Result<(), ApiSweepBusy>;

    /// The sweep that runs, or is asked for, or the last one that did; `None` if none ever has.
    fn progress(&self) -> Option<ApiSweepProgress>;
}

/// What a sweep does with what it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiSweepMode {
    /// Counts it.
    DryRun,
    /// Writes it down, and orders removals.
    Apply,
}

/// A sweep is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiSweepBusy;

/// How far a sweep is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiSweepProgress {
    /// Whether it is still under way.
    pub state: ApiSweepState,
    /// What it does.
    pub mode: ApiSweepMode,
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
    pub gaps: Vec<ApiSweepGap>,
}

/// Whether a sweep is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiSweepState {
    /// It is.
    Running,
    /// It is over.
    Done,
}

/// A URL that fell out of a crawler's space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiSweepGap {
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
    pub(crate) async fn start_sweep<B>(&self, body: B) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let how = match read_body(body, MAX_BODY_BYTES)
            .await
            .and_then(|bytes| parse_mode(&bytes))
        {
            Ok(how) => how,
            Err(mistake) => return mistake.into_response(),
        };
        if self.provider.ledger().is_none() {
            return super::no_ledger();
        }
        match self.sweeper.start(how) {
            Ok(()) => response::json(
                StatusCode::ACCEPTED,
                &json!({ "sweep": self.sweep_document() }),
            ),
            Err(ApiSweepBusy) => problem(
                StatusCode::CONFLICT,
                "a sweep is under way; wait for its end, GET /api/v1/ledger tells how far it is",
            ),
        }
    }

    /// The sweep as a document.
    pub(super) fn sweep_document(&self) -> Option<Json> {
        self.sweeper.progress().as_ref().map(progress_to_json)
    }
}

fn parse_mode(body: &[u8]) -> Result<ApiSweepMode, ApiRequestError> {
    let order: Order = serde_json::from_slice(body).map_err(|error| {
        let error = shorten_message(&error);
        ApiRequestError::Invalid(format!(
            "the body is no JSON object with `dry_run`: {error}"
        ))
    })?;
    Ok(if order.dry_run {
        ApiSweepMode::DryRun
    } else {
        ApiSweepMode::Apply
    })
}

fn progress_to_json(progress: &ApiSweepProgress) -> Json {
    let gap = |gap: &ApiSweepGap| json!({ "crawler": gap.crawler, "url": gap.url, "rule": gap.rule, "code": gap.code });
    json!({
        "state": match progress.state {
            ApiSweepState::Running => "running",
            ApiSweepState::Done => "done",
        },
        "dry_run": progress.mode == ApiSweepMode::DryRun,
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
