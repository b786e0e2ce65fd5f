//! One event of the feed as a document: what the admin API, the feed's file and the webhook send.

use serde_json::{Value as Json, json};

use crate::ledger::event::LedgerEvent;

use super::record::rfc3339;

/// The document of an event with this number. The number tells it from every other one, whenever and however often it
/// is sent.
pub fn to_json(id: u64, event: &LedgerEvent) -> Json {
    json!({
        "id": id,
        "at": rfc3339(event.at),
        "kind": event.kind.as_str(),
        "why": event.reason.as_str(),
        "crawler": &*event.crawler,
        "url": &*event.url,
        "code": event.code,
        "status": event.status,
        "rule": event.rule.as_deref(),
        "revision": &*event.revision,
    })
}
