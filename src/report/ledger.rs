//! Statistics of the ledger, as shown by the admin API and `crawlgate ledger stats`.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::ledger::event::LedgerEventKind;
use crate::pipeline::sweep::removals::HeldAccount;
use crate::pipeline::sweep::{SweepMode, SweepPhase, SweepProgress};
use crate::store::ledger::LedgerStats;

use super::record::rfc3339;

/// Returns the document. `sweep` is the current or the last sweep, and `held` the removals that are held.
pub fn to_json(stats: &LedgerStats, bytes: u64, sweep: Option<Json>, held: &[HeldAccount]) -> Json {
    let pending: Map<String, Json> = stats
        .pending_removals
        .iter()
        .map(|(kind, count)| (kind.as_str().to_owned(), (*count).into()))
        .collect();
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
        "pending_removals": pending,
        "held_removals": held.iter().map(held_to_json).collect::<Vec<_>>(),
    })
}

/// Returns the document of removals that are held.
fn held_to_json(account: &HeldAccount) -> Json {
    json!({
        "account": account.account.to_string(),
        "cause": account.held.cause.to_string(),
        "held": account.count,
        "since": rfc3339(account.held.since),
        "ordered": account.held.ordered,
        "limit": account.held.limit,
    })
}

/// Returns the document of a sweep.
pub fn sweep_to_json(progress: &SweepProgress) -> Json {
    let gaps = progress.gaps.iter().map(
        |gap| json!({ "crawler": *gap.crawler, "url": *gap.url, "rule": gap.rule.as_deref(), "code": gap.code }),
    );
    json!({
        "state": match progress.state {
            SweepPhase::Running => "running",
            SweepPhase::Done => "done",
        },
        "dry_run": progress.mode == SweepMode::DryRun,
        "revision": *progress.revision,
        "looked_at": progress.examined,
        "total": progress.total,
        "removed": progress.removed,
        "moved": progress.moved,
        "unchanged": progress.unchanged,
        "refused": progress.refused,
        "allowed": progress.allowed,
        "gaps": gaps.collect::<Vec<_>>(),
    })
}

fn events_to_json(counts: &BTreeMap<LedgerEventKind, u64>) -> Map<String, Json> {
    let counts = counts.iter();
    counts
        .map(|(kind, count)| (kind.as_str().to_owned(), (*count).into()))
        .collect()
}
