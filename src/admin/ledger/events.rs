//! `GET /api/v1/events`: the feed behind a cursor. Who asks keeps the cursor, so nothing is told twice to one who does, and
//! nothing is lost to one who does not.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value as Json, json};

use crate::admin::query::{ParameterError, parse_query, reject_duplicates};
use crate::admin::response;
use crate::ledger::event::LedgerEventKind;
use crate::ledger::filter::TimeBudget;
use crate::report::event;
use crate::store::ledger::{FeedCursor, LedgerUnavailable};

use super::{DEFAULT_LIMIT, LedgerApi, LedgerReadContext, MAX_LIMIT, parse_limit};

/// What is asked for.
#[derive(Debug)]
struct LedgerEventsQuery {
    after: FeedCursor,
    limit: usize,
    kind: Option<LedgerEventKind>,
}

impl LedgerApi {
    /// `GET /api/v1/events`.
    pub(crate) async fn list_events(&self, query: Option<&str>) -> Response<Full<Bytes>> {
        match LedgerEventsQuery::parse(query) {
            Ok(asked) => self.read_blocking(move |look| asked.response(look)).await,
            Err(mistake) => mistake.to_response(),
        }
    }
}

impl LedgerEventsQuery {
    fn parse(query: Option<&str>) -> Result<Self, ParameterError> {
        let keys = ["after", "limit", "kind"];
        let mut asked = Self {
            after: FeedCursor::default(),
            limit: DEFAULT_LIMIT,
            kind: None,
        };
        for (key, value) in reject_duplicates(parse_query(query)?, &keys)? {
            match key.as_str() {
                "after" => asked.after = parse_after(&value)?,
                "limit" => asked.limit = parse_limit(&value)?,
                "kind" if value.is_empty() => {}
                "kind" => asked.kind = Some(parse_kind(&value)?),
                _ => {
                    let words = format!("there is no such parameter; allowed: {}", keys.join(", "));
                    return Err(ParameterError(words));
                }
            }
        }
        Ok(asked)
    }

    /// `next` is behind everything that was looked at, whether it was asked for or not; `more` says whether there is
    /// anything behind that already.
    fn response(
        &self,
        context: &LedgerReadContext,
    ) -> Result<Response<Full<Bytes>>, LedgerUnavailable> {
        let (mut events, mut last, mut time) =
            (Vec::<Json>::new(), self.after, context.time_check());
        let more = loop {
            let slice = context.ledger.events(last, MAX_LIMIT)?;
            let whole = slice.len() < MAX_LIMIT;
            let mut left = slice.len();
            for (cursor, event) in slice {
                if events.len() >= self.limit {
                    break;
                }
                (last, left) = (cursor, left - 1);
                if self.kind.is_none_or(|kind| kind == event.kind) {
                    events.push(event::to_json(cursor.0, &event));
                }
            }
            if left > 0 {
                break true;
            }
            if whole || events.len() >= self.limit || time() == TimeBudget::Exhausted {
                break !whole;
            }
        };
        Ok(response::json(
            StatusCode::OK,
            &json!({ "events": events, "next": last.0, "more": more }),
        ))
    }
}

fn parse_after(text: &str) -> Result<FeedCursor, ParameterError> {
    let number = text
        .parse()
        .ok()
        .filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    number
        .map(FeedCursor)
        .ok_or_else(|| ParameterError("`after` is a number, as `next` of an answer is".into()))
}

fn parse_kind(word: &str) -> Result<LedgerEventKind, ParameterError> {
    let words = || {
        ParameterError(format!(
            "`kind` is {}",
            LedgerEventKind::ALL.map(LedgerEventKind::as_str).join(", ")
        ))
    };
    LedgerEventKind::from_word(word).ok_or_else(words)
}
