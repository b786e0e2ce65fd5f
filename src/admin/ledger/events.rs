//! `GET /api/v1/events`: the events after a cursor. The client stores the cursor, so it gets each event once if it does,
//! and loses none if it fails to.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value as Json, json};

use crate::admin::api_request::{ApiError, ApiResult};
use crate::admin::query::{
    DEFAULT_LIMIT, MAX_LIMIT, parse_limit, parse_query, reject_duplicates, unknown_parameter,
};
use crate::admin::response;
use crate::ledger::event::LedgerEventKind;
use crate::ledger::filter::TimeBudget;
use crate::report::event;
use crate::store::ledger::{FeedCursor, LedgerUnavailable};

use super::{LedgerApi, LedgerReadContext};

/// The parameters of `GET /api/v1/events`.
#[derive(Debug)]
struct LedgerEventsQuery {
    after: FeedCursor,
    limit: usize,
    kind: Option<LedgerEventKind>,
}

impl LedgerApi {
    /// `GET /api/v1/events`.
    pub(in crate::admin) async fn list_events(&self, query: Option<&str>) -> ApiResult {
        let query = LedgerEventsQuery::parse(query)?;
        self.read_blocking(move |context| query.response(context))
            .await
    }
}

impl LedgerEventsQuery {
    fn parse(query: Option<&str>) -> Result<Self, ApiError> {
        let keys = ["after", "limit", "kind"];
        let mut parsed = Self {
            after: FeedCursor::default(),
            limit: DEFAULT_LIMIT,
            kind: None,
        };
        for (key, value) in reject_duplicates(parse_query(query)?, &keys)? {
            match key.as_str() {
                "after" => parsed.after = parse_after(&value)?,
                "limit" => parsed.limit = parse_limit(&value)?,
                "kind" if value.is_empty() => {}
                "kind" => parsed.kind = Some(parse_kind(&value)?),
                _ => return Err(unknown_parameter(&keys)),
            }
        }
        Ok(parsed)
    }

    /// Returns the events. `next` is after every event that was examined, matching or not, and `more` is `true` if there
    /// are events after it already.
    fn response(
        &self,
        context: &LedgerReadContext,
    ) -> Result<Response<Full<Bytes>>, LedgerUnavailable> {
        let mut events: Vec<Json> = Vec::new();
        let mut last = self.after;
        let mut time = context.time_check();
        let more = loop {
            let slice = context.ledger.events(last, MAX_LIMIT)?;
            let is_last_slice = slice.len() < MAX_LIMIT;
            let mut remaining = slice.len();
            for (cursor, event) in slice {
                if events.len() >= self.limit {
                    break;
                }
                last = cursor;
                remaining -= 1;
                if self.kind.is_none_or(|kind| kind == event.kind) {
                    events.push(event::to_json(cursor.0, &event));
                }
            }
            if remaining > 0 {
                break true;
            }
            if is_last_slice || events.len() >= self.limit || time() == TimeBudget::Exhausted {
                break !is_last_slice;
            }
        };
        Ok(response::json(
            StatusCode::OK,
            &json!({ "events": events, "next": last.0, "more": more }),
        ))
    }
}

fn parse_after(text: &str) -> Result<FeedCursor, ApiError> {
    let number = text
        .parse()
        .ok()
        .filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    number
        .map(FeedCursor)
        .ok_or_else(|| ApiError::Invalid("`after` is a number, as `next` of a response is".into()))
}

fn parse_kind(word: &str) -> Result<LedgerEventKind, ApiError> {
    LedgerEventKind::from_word(word).ok_or_else(|| {
        let kinds = LedgerEventKind::ALL.map(LedgerEventKind::as_str).join(", ");
        ApiError::Invalid(format!("`kind` is one of {kinds}"))
    })
}
