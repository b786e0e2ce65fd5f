//! `GET /api/v1/events`: the feed behind a cursor. Who asks keeps the cursor, so nothing is told twice to one who does, and
//! nothing is lost to one who does not.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value as Json, json};

use crate::admin::page;
use crate::admin::query::{Mistake, parameters, single};
use crate::ledger::event::EventKind;
use crate::ledger::sought::Time;
use crate::report::event;
use crate::store::ledger::{Cursor, Failed};

use super::{LedgerApi, Look, MOST, USUAL, limit};

/// What is asked for.
#[derive(Debug)]
struct Asked {
    after: Cursor,
    limit: usize,
    kind: Option<EventKind>,
}

impl LedgerApi {
    /// `GET /api/v1/events`.
    pub(in crate::admin) async fn events(&self, query: Option<&str>) -> Response<Full<Bytes>> {
        match Asked::read(query) {
            Ok(asked) => self.look(move |look| asked.answer(look)).await,
            Err(mistake) => mistake.answer(),
        }
    }
}

impl Asked {
    fn read(query: Option<&str>) -> Result<Self, Mistake> {
        let keys = ["after", "limit", "kind"];
        let mut asked = Self {
            after: Cursor::default(),
            limit: USUAL,
            kind: None,
        };
        for (key, value) in single(parameters(query)?, &keys)? {
            match key.as_str() {
                "after" => asked.after = after(&value)?,
                "limit" => asked.limit = limit(&value)?,
                "kind" if value.is_empty() => {}
                "kind" => asked.kind = Some(kind(&value)?),
                _ => {
                    let words = format!("there is no such parameter; allowed: {}", keys.join(", "));
                    return Err(Mistake(words));
                }
            }
        }
        Ok(asked)
    }

    /// `next` is behind everything that was looked at, whether it was asked for or not; `more` says whether there is
    /// anything behind that already.
    fn answer(&self, look: &Look) -> Result<Response<Full<Bytes>>, Failed> {
        let (mut events, mut last, mut time) = (Vec::<Json>::new(), self.after, look.time());
        let more = loop {
            let slice = look.ledger.events(last, MOST)?;
            let whole = slice.len() < MOST;
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
            if whole || events.len() >= self.limit || time() == Time::Over {
                break !whole;
            }
        };
        Ok(page::json(
            StatusCode::OK,
            &json!({ "events": events, "next": last.0, "more": more }),
        ))
    }
}

fn after(text: &str) -> Result<Cursor, Mistake> {
    let number = text
        .parse()
        .ok()
        .filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    number
        .map(Cursor)
        .ok_or_else(|| Mistake("`after` is a number, as `next` of an answer is".into()))
}

fn kind(word: &str) -> Result<EventKind, Mistake> {
    let words = || {
        Mistake(format!(
            "`kind` is {}",
            EventKind::ALL.map(EventKind::as_str).join(", ")
        ))
    };
    EventKind::from_word(word).ok_or_else(words)
}
