//! The lookup of one of the latest decisions, by its id or its trace.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Map, Value as Json, json};

use crate::metrics::log::query::is_redacted;
use crate::metrics::log::tap::RecentLines;
use crate::policy::decide::ExclusionCode;

use crate::admin::response::{self, problem, problem_with};

/// The most ids of other decisions of a trace.
const MAX_OTHERS: usize = 100;

/// The id of a decision or a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DecisionLookupKey {
    /// The value of `Crawl-Decision`: `9f3c01ab-1f`.
    Decision(String),
    /// The trace id of W3C Trace Context: 32 hex digits.
    Trace(String),
}

impl DecisionLookupKey {
    /// Returns `None` if the text is neither.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() == 32 && is_hex(text) {
            return Some(Self::Trace(text.to_ascii_lowercase()));
        }
        let (instance, number) = text.split_once('-')?;
        let is_valid = instance.len() == 8
            && (1..=16).contains(&number.len())
            && is_hex(instance)
            && is_hex(number);
        is_valid.then(|| Self::Decision(text.to_ascii_lowercase()))
    }

    fn field(&self) -> &'static str {
        match self {
            Self::Decision(_) => "decision",
            Self::Trace(_) => "trace",
        }
    }

    /// Returns the member that a line with this id contains.
    fn json_member(&self) -> String {
        format!("\"{}\":\"{}\"", self.field(), self.as_str())
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Decision(text) | Self::Trace(text) => text,
        }
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns a 400 response for an invalid id.
pub(super) fn invalid_id() -> Response<Full<Bytes>> {
    problem(
        StatusCode::BAD_REQUEST,
        "an id is the value of Crawl-Decision, such as 9f3c01ab-1f, or a trace id of 32 hex digits",
    )
}

/// Returns the line of a decision, with the facts that `POST /api/v1/explain` takes. For a trace, it returns the latest
/// decision, with the ids of the others.
pub(super) fn find_decision(recent: &RecentLines, id: &DecisionLookupKey) -> Response<Full<Bytes>> {
    let lines = recent
        .containing(&id.json_member())
        .filter_map(|line| serde_json::from_slice::<Map<_, _>>(line).ok());
    let mut found = lines.filter(|line| {
        line.get(id.field())
            .is_some_and(|value| value == id.as_str())
    });
    let Some(mut line) = found.next() else {
        return not_found(recent);
    };
    line.insert("facts".into(), request_facts(&line));
    if let DecisionLookupKey::Trace(_) = id {
        let others = found
            .take(MAX_OTHERS)
            .map(|mut line| line.remove("decision").unwrap_or_default());
        line.insert("others".into(), others.collect());
    }
    response::json(StatusCode::OK, &Json::Object(line))
}

/// Returns the facts of a request, or null if the line does not have its whole URL.
pub fn request_facts(line: &Map<String, Json>) -> Json {
    let keys = [
        ("url", "url"),
        ("method", "method"),
        ("crawler", "crawler"),
        ("status", "origin_status"),
        ("content_type", "content_type"),
    ];
    let facts = keys.into_iter().filter_map(|(fact, key)| {
        let value = line.get(key).filter(|value| !value.is_null())?;
        Some((fact.to_owned(), value.clone()))
    });
    let known = was_known(line).then(|| ("known".to_owned(), Json::Bool(true)));
    let facts = facts.chain(known);
    let url = line.get("url").and_then(Json::as_str);
    if url.is_some_and(|url| !is_redacted(url)) {
        Json::Object(facts.collect())
    } else {
        Json::Null
    }
}

/// Returns `true` if the URL was in the ledger at the time of the decision, as the code of its refusal shows. By now it may
/// have been removed.
fn was_known(line: &Map<String, Json>) -> bool {
    let code = line.get("code").and_then(Json::as_u64);
    [ExclusionCode::Remove, ExclusionCode::Keep]
        .iter()
        .any(|one| Some(u64::from(one.number())) == code)
}

/// Returns a 404 response that reports how far the ring reaches back, since the decision may be older.
fn not_found(recent: &RecentLines) -> Response<Full<Bytes>> {
    let oldest = recent.oldest_time();
    let lines = recent.line_count();
    let detail = match &oldest {
        Some(oldest) => format!(
            "no such decision among the latest {lines}, which reach back to {oldest}; older ones are in the decision log"
        ),
        None => "no such decision: there are none yet".to_owned(),
    };
    let members = json!({ "detail": detail, "since": oldest, "decisions": lines });
    problem_with(StatusCode::NOT_FOUND, &members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_decisions_and_traces() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        for (text, id) in [
            (
                "9f3c01ab-1f",
                Some(DecisionLookupKey::Decision("9f3c01ab-1f".into())),
            ),
            (
                "9F3C01AB-ffffffffffffffff",
                Some(DecisionLookupKey::Decision(
                    "9f3c01ab-ffffffffffffffff".into(),
                )),
            ),
            (trace, Some(DecisionLookupKey::Trace(trace.into()))),
            ("", None),
            ("-", None),
            ("9f3c01ab-", None),
            ("9f3c01ab", None),
            ("9f3c01a-1", None),
            ("9f3c01ab-1g", None),
            ("9f3c01ab-fffffffffffffffff", None),
            ("9f3c01ab-1/x", None),
            ("9f3c01ab-1%31", None),
        ] {
            assert_eq!(DecisionLookupKey::parse(text), id, "{text}");
        }
    }
}
