//! `POST /api/v1/ledger/sweep`: evaluates every URL of the ledger under the active policy, or only counts.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::admin::api_request::{ApiResult, RequestBody, read_object};
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
    pub(in crate::admin) async fn start_sweep(&self, body: RequestBody) -> ApiResult {
        let request: SweepRequest = read_object(body, MAX_BODY_BYTES, "with `dry_run`").await?;
        let mode = if request.dry_run {
            SweepMode::DryRun
        } else {
            SweepMode::ForGood
        };
        let Some(ledger) = self.ledger.get() else {
            return Ok(super::no_ledger());
        };
        let policy = &self.active_policy.load().policy;
        let total = ledger.stats().urls.values().sum();
        Ok(match self.sweeper.order(mode, policy.revision(), total) {
            Ok(()) => response::json(
                StatusCode::ACCEPTED,
                &json!({ "sweep": self.sweep_document() }),
            ),
            Err(SweepInProgress) => problem(
                StatusCode::CONFLICT,
                "a sweep is in progress: wait until GET /api/v1/ledger reports that it is done",
            ),
        })
    }

    /// Returns the current or last sweep; `None` if there was none.
    pub(super) fn sweep_document(&self) -> Option<Json> {
        self.sweeper.progress().as_ref().map(ledger::sweep_to_json)
    }
}
