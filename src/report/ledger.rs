//! Statistics of the ledger, as shown by the admin API and `crawlgate ledger stats`.

use serde_json::{Map, Value as Json, json};

use crate::store::ledger::LedgerStats;

/// Returns the document. `sweep` is the current or the last sweep.
pub fn to_json(stats: &LedgerStats, bytes: u64, sweep: Option<Json>) -> Json {
    let by_status: Map<String, Json> = stats
        .urls
        .iter()
        .map(|(status, count)| (status.as_str().to_owned(), (*count).into()))
        .collect();
    let events: Map<String, Json> = stats
        .events
        .iter()
        .map(|(kind, count)| (kind.as_str().to_owned(), (*count).into()))
        .collect();
    json!({
        "urls": stats.urls.values().sum::<u64>(),
        "by_status": by_status,
        "events": events,
        "last_event": stats.last_event.0,
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
