//! An event of the feed as a document, as sent by the admin API, the feed's file and the webhook.

use serde_json::{Value as Json, json};

use crate::ledger::event::LedgerEvent;

use super::record::rfc3339;

/// Returns the document of an event. `id` identifies the event, whenever and however often it is sent.
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
