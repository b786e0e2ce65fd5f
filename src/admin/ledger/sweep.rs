//! `POST /api/v1/ledger/sweep`: evaluates every URL of the ledger under the active policy, or only counts.

use std::error::Error;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::admin::api_request::{ApiRequestError, read_body, shorten_message};
use crate::admin::response::{self, problem};
use crate::pipeline::sweep::{SweepInProgress, SweepMode};
use crate::report::ledger;

use super::LedgerApi;

/// The longest body.
const MAX_BODY_BYTES: usize = 1 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct SweepRequest {
    dry_run: bool,
}

impl LedgerApi {
    /// `POST /api/v1/ledger/sweep`: 202; `GET /api/v1/ledger` reports the progress.
    pub(crate) async fn start_sweep<B>(&self, body: B) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let mode = match read_body(body, MAX_BODY_BYTES)
            .await
            .and_then(|bytes| parse_mode(&bytes))
        {
            Ok(mode) => mode,
            Err(error) => return error.into_response(),
        };
        let Some(ledger) = self.ledger.get() else {
            return super::no_ledger();
        };
        let policy = &self.active_policy.load().policy;
        let total = ledger.stats().urls.values().sum();
        match self.sweeper.order(mode, policy.revision(), total) {
            Ok(()) => response::json(
                StatusCode::ACCEPTED,
                &json!({ "sweep": self.sweep_document() }),
            ),
            Err(SweepInProgress) => problem(
                StatusCode::CONFLICT,
                "a sweep is in progress: wait until GET /api/v1/ledger reports that it is done",
            ),
        }
    }

    /// Returns the current or last sweep; `None` if there was none.
    pub(super) fn sweep_document(&self) -> Option<Json> {
        self.sweeper.progress().as_ref().map(ledger::sweep_to_json)
    }
}

fn parse_mode(body: &[u8]) -> Result<SweepMode, ApiRequestError> {
    let request: SweepRequest = serde_json::from_slice(body).map_err(|error| {
        let error = shorten_message(&error);
        ApiRequestError::Invalid(format!(
            "the body is not a JSON object with `dry_run`: {error}"
        ))
    })?;
    Ok(if request.dry_run {
        SweepMode::DryRun
    } else {
        SweepMode::ForGood
    })
}
