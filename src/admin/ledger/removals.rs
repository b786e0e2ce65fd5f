//! `POST /api/v1/ledger/removals`: confirms removals that are held.

use std::error::Error;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::admin::api_request::{ApiRequestError, read_body, shorten_message};
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
    pub(crate) async fn confirm_removals<B>(&self, body: B) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let only = match read_body(body, MAX_BODY_BYTES)
            .await
            .and_then(|bytes| parse_account(&bytes))
        {
            Ok(only) => only,
            Err(error) => return error.into_response(),
        };
        let Some(ledger) = self.ledger.get() else {
            return super::no_ledger();
        };
        let causes: Vec<String> = self
            .removals
            .confirm(ledger, only.as_ref())
            .iter()
            .map(ToString::to_string)
            .collect();
        if causes.is_empty() {
            return problem(
                StatusCode::CONFLICT,
                "no such removals are held: see held_removals of GET /api/v1/ledger",
            );
        }
        if !self.flush().await {
            return super::ledger_unavailable();
        }
        for cause in &causes {
            tracing::warn!(%cause, "the held removals are confirmed, and are ordered");
        }
        response::json(StatusCode::OK, &confirmation_document(&causes))
    }
}

fn confirmation_document(causes: &[String]) -> Json {
    json!({ "confirmed": causes })
}

/// Reads the account whose removals to confirm; `None` for all.
fn parse_account(body: &[u8]) -> Result<Option<RemovalAccount>, ApiRequestError> {
    let request: ConfirmationRequest = serde_json::from_slice(body).map_err(|error| {
        let error = shorten_message(&error);
        ApiRequestError::Invalid(format!(
            "the body is not a JSON object with `confirm`: {error}"
        ))
    })?;
    if request.confirm == "all" {
        return Ok(None);
    }
    RemovalAccount::from_text(&request.confirm)
        .map(Some)
        .ok_or_else(|| {
            ApiRequestError::Invalid(
                "`confirm` is all, policy, robots_txt:HOST or noindex:HOST".into(),
            )
        })
}
