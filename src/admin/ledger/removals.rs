//! `POST /api/v1/ledger/removals`: confirms removals that are held.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::admin::api_request::{ApiError, ApiResult, RequestBody, read_object};
use crate::admin::response::{self, problem};
use crate::ledger::removal::RemovalAccount;

use super::LedgerApi;

/// The longest body.
const MAX_BODY_BYTES: usize = 1 << 10;

/// The body: which removals to confirm.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct ConfirmationRequest {
    /// `all`, or an account as in `held_removals`.
    confirm: String,
}

impl LedgerApi {
    /// `POST /api/v1/ledger/removals` with `{"confirm"}`: 200 with the confirmed causes.
    pub(in crate::admin) async fn confirm_removals(&self, body: RequestBody) -> ApiResult {
        let request: ConfirmationRequest =
            read_object(body, MAX_BODY_BYTES, "with `confirm`").await?;
        let only = parse_account(&request.confirm)?;
        let Some(ledger) = self.ledger.get() else {
            return Ok(super::no_ledger());
        };
        let causes: Vec<String> = self
            .removals
            .confirm(ledger, only.as_ref())
            .iter()
            .map(ToString::to_string)
            .collect();
        if causes.is_empty() {
            return Ok(problem(
                StatusCode::CONFLICT,
                "no such removals are held: see held_removals of GET /api/v1/ledger",
            ));
        }
        if !self.flush().await {
            return Ok(super::ledger_unavailable());
        }
        for cause in &causes {
            tracing::warn!(%cause, "the held removals are confirmed, and are ordered");
        }
        Ok(response::json(
            StatusCode::OK,
            &confirmation_document(&causes),
        ))
    }
}

fn confirmation_document(causes: &[String]) -> Json {
    json!({ "confirmed": causes })
}

/// Reads the account whose removals to confirm; `None` for all.
fn parse_account(text: &str) -> Result<Option<RemovalAccount>, ApiError> {
    if text == "all" {
        return Ok(None);
    }
    RemovalAccount::from_text(text).map(Some).ok_or_else(|| {
        ApiError::Invalid("`confirm` is all, policy, robots_txt:HOST or noindex:HOST".into())
    })
}
