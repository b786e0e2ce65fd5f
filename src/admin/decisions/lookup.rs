//! One decision of those that are still in the ring, by its id or by the trace that it belongs to.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Map, Value as Json, json};

use crate::metrics::log::REDACTED;
use crate::metrics::log::tap::RecentLines;

use crate::admin::response::{self, problem, problem_with};

/// The most ids of other decisions of a trace that are named.
const MAX_OTHERS: usize = 100;

/// By what a decision is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DecisionLookupKey {
    /// What `Crawl-Decision` says: `9f3c01ab-1f`.
    Decision(String),
    /// A trace of W3C Trace Context: 32 hex digits.
    Trace(String),
}

impl DecisionLookupKey {
    /// `None` if it is neither.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let lower = || text.to_ascii_lowercase();
        if text.len() == 32 && hex(text) {
            return Some(Self::Trace(lower()));
        }
        let (instance, number) = text.split_once('-')?;
        let fits =
            instance.len() == 8 && (1..=16).contains(&number.len()) && hex(instance) && hex(number);
        fits.then(|| Self::Decision(lower()))
    }

    fn field(&self) -> &'static str {
        match self {
            Self::Decision(_) => "decision",
            Self::Trace(_) => "trace",
        }
    }

    /// As it stands in a line.
    fn json_member(&self) -> String {
        format!("\"{}\":\"{}\"", self.field(), self.as_str())
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Decision(text) | Self::Trace(text) => text,
        }
    }
}

/// What was asked for cannot be one.
pub(super) fn invalid_id() -> Response<Full<Bytes>> {
    problem(
        StatusCode::BAD_REQUEST,
        "an id is that of Crawl-Decision, such as 9f3c01ab-1f, or that of a trace, 32 hex digits",
    )
}

/// The line, with the facts that `POST /api/v1/explain` takes; of a trace the latest, with the ids of the others.
pub(super) fn find_decision(kept: &RecentLines, id: &DecisionLookupKey) -> Response<Full<Bytes>> {
    let lines = kept
        .containing(&id.json_member())
        .filter_map(|line| serde_json::from_slice::<Map<_, _>>(line).ok());
    let mut found = lines.filter(|line| {
        line.get(id.field())
            .is_some_and(|value| value == id.as_str())
    });
    let Some(mut line) = found.next() else {
        return not_found(kept);
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

/// What is known of the request, by the names of facts; null where its URL was not kept, or not the whole of it.
fn request_facts(line: &Map<String, Json>) -> Json {
    let keys = [
        ("url", "url"),
        ("method", "method"),
        ("crawler", "crawler"),
        ("status", "origin_status"),
        ("content_type", "content_type"),
    ];
    let known = keys.into_iter().filter_map(|(fact, key)| {
        let value = line.get(key).filter(|value| !value.is_null())?;
        Some((fact.to_owned(), value.clone()))
    });
    let url = line.get("url").and_then(Json::as_str);
    let has_url = url.is_some_and(|url| !url.ends_with(REDACTED));
    if has_url {
        Json::Object(known.collect())
    } else {
        Json::Null
    }
}

/// How far the ring reaches back, since that may be why.
fn not_found(kept: &RecentLines) -> Response<Full<Bytes>> {
    let (since, lines) = (kept.oldest_time(), kept.line_count());
    let detail = match &since {
        Some(since) => format!(
            "no such decision is remembered: the latest {lines} reach back to {since}; older ones are in the decision log"
        ),
        None => "no such decision is remembered: there is none yet".to_owned(),
    };
    let members = json!({ "detail": detail, "since": since, "decisions": lines });
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
