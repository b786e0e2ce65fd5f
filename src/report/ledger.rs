//! Statistics of the ledger, as shown by the admin API and `crawlgate ledger stats`.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::ledger::event::LedgerEventKind;
use crate::store::ledger::LedgerStats;

/// Returns the document. `sweep` is the current or the last sweep.
pub fn to_json(stats: &LedgerStats, bytes: u64, sweep: Option<Json>) -> Json {
    let by_status: Map<String, Json> = stats
        .urls
        .iter()
        .map(|(status, count)| (status.as_str().to_owned(), (*count).into()))
        .collect();
    let by_code: Map<String, Json> = stats
        .codes
        .iter()
        .map(|(code, count)| (code.as_str().to_owned(), (*count).into()))
        .collect();
    json!({
        "urls": stats.urls.values().sum::<u64>(),
        "by_status": by_status,
        "by_code": by_code,
        "events": events_to_json(&stats.total_events),
        "events_counted_from": stats.events_counted_from.0,
        "last_event": stats.last_event.0,
        "events_since_start": events_to_json(&stats.events),
        "queue": stats.queued,
        "waits": stats.waits,
        "dropped": stats.dropped,
        "failures": stats.failures,
        "failing": stats.failing,
        "broken": stats.broken,
        "bytes": bytes,
        "sweep": sweep,
    })
}

fn events_to_json(counts: &BTreeMap<LedgerEventKind, u64>) -> Map<String, Json> {
    let counts = counts.iter();
    counts
        .map(|(kind, count)| (kind.as_str().to_owned(), (*count).into()))
        .collect()
}
