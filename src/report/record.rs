//! A URL of the ledger as a document, as shown by the admin API and `crawlgate ledger`.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Value as Json, json};

use crate::clock::Rfc3339;
use crate::ledger::event::LedgerEventReason;
use crate::ledger::key::LedgerKey;
use crate::ledger::record::{
    IndexState, LedgerRecord, RecordStatus, RemovalSource, UnixMillis, VisitState,
};
use crate::ledger::removal::{PendingRemoval, RemovalCause};
use crate::model::crawl_status::CrawlStatus;
use crate::model::failure_kind::FailureKind;

/// The keys of the document, in the order of the table's columns.
pub const COLUMNS: [&str; 29] = [
    "key",
    "crawler",
    "url",
    "status",
    "code",
    "origin_status",
    "known",
    "indexed",
    "removed_at",
    "first_seen",
    "last_seen",
    "last_fetched",
    "last_error",
    "last_changed",
    "temporary_errors",
    "depth",
    "space",
    "source",
    "address",
    "content_type",
    "size",
    "etag",
    "last_modified",
    "content",
    "error",
    "lost",
    "refused_unasked",
    "pending_removal",
    "pending_since",
];

/// Returns the document of a record.
pub fn to_json(key: LedgerKey, record: &LedgerRecord) -> Json {
    let (indexed, removed_at) = match record.index_state {
        IndexState::Never => ("never", None),
        IndexState::Possible => ("perhaps", None),
        IndexState::Removed { at, .. } => ("removed", Some(at)),
        IndexState::Restored => ("restored", None),
    };
    let pending = record.pending_removal.as_deref();
    json!({
        "key": key.to_string(),
        "crawler": &*record.crawler,
        "url": &*record.url,
        "status": record.status.0.as_str(),
        "code": record.code,
        "origin_status": record.origin_status,
        "known": record.is_known(),
        "indexed": indexed,
        "removed_at": removed_at.map(rfc3339),
        "first_seen": rfc3339(record.first_seen),
        "last_seen": rfc3339(record.last_seen),
        "last_fetched": record.last_fetched.map(rfc3339),
        "last_error": record.last_error.map(rfc3339),
        "last_changed": record.last_changed.map(rfc3339),
        "temporary_errors": record.temporary_errors,
        "depth": record.depth,
        "space": record.space.as_deref(),
        "source": record.source.as_deref(),
        "address": record.address.as_ref().map(IpAddr::to_string),
        "content_type": Some(&*record.content_type).filter(|content_type| !content_type.is_empty()),
        "size": record.last_fetched.map(|_| record.size),
        "etag": record.validators.etag.as_deref(),
        "last_modified": record.validators.last_modified.as_deref(),
        "content": record.content_hash.as_ref().map(|hash| hex(hash)),
        "error": record.error.map(FailureKind::as_str),
        "lost": record.lost.map(rfc3339),
        "refused_unasked": record.refused_unasked,
        "pending_removal": pending.map(|pending| pending.cause.to_string()),
        "pending_since": pending.map(|pending| rfc3339(pending.since)),
    })
}

/// Reads the part of a document that an evaluation of the URL needs; `None` if it is not the document of a record.
pub fn evaluated_from_json(document: &Json) -> Option<LedgerRecord> {
    let text = |key: &str| document.get(key).and_then(Json::as_str);
    let number = |key: &str| document.get(key).and_then(Json::as_u64);
    let flag = |key: &str| document.get(key).and_then(Json::as_bool);
    let pending_removal = text("pending_removal").and_then(|cause| {
        Some(Box::new(PendingRemoval {
            since: UnixMillis::default(),
            cause: RemovalCause::from_text(cause)?,
            reason: LedgerEventReason::Excluded,
            status: None,
            rule: None,
            revision: Arc::default(),
            user_agent: None,
        }))
    });
    Some(LedgerRecord {
        visit_state: if flag("known")? {
            VisitState::Answered
        } else {
            VisitState::RefusedOnly
        },
        index_state: match text("indexed")? {
            "perhaps" => IndexState::Possible,
            "removed" => IndexState::Removed {
                at: UnixMillis::default(),
                by: RemovalSource::Policy,
            },
            "restored" => IndexState::Restored,
            _ => IndexState::Never,
        },
        status: RecordStatus(CrawlStatus::from_word(text("status")?)?),
        code: number("code").and_then(|code| code.try_into().ok()),
        address: text("address").and_then(|address| address.parse().ok()),
        depth: number("depth").and_then(|depth| depth.try_into().ok()),
        // A proxy of an earlier version does not report it.
        refused_unasked: flag("refused_unasked").unwrap_or(false),
        pending_removal,
        ..LedgerRecord::new(
            text("crawler")?.into(),
            text("url")?.into(),
            UnixMillis::default(),
        )
    })
}

/// Formats a time as RFC 3339, in UTC.
pub fn rfc3339(at: UnixMillis) -> String {
    let wall = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(at.0));
    Rfc3339(wall.unwrap_or(SystemTime::UNIX_EPOCH)).to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ledger::record::RemovalSource;

    #[test]
    fn every_key_has_a_column() {
        let document = to_json(LedgerKey([7; 16]), &LedgerRecord::default());
        let keys: BTreeSet<&str> = document
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(keys, COLUMNS.into_iter().collect());
    }

    #[test]
    fn values_round_trip() {
        let record = LedgerRecord {
            index_state: IndexState::Removed {
                at: UnixMillis(1_767_225_600_000),
                by: RemovalSource::Policy,
            },
            content_hash: Some([0xab; 32]),
            size: 9,
            ..LedgerRecord::default()
        };
        let document = to_json(LedgerKey([0; 16]), &record);
        assert_eq!(document["removed_at"], "2026-01-01T00:00:00.000Z");
        assert_eq!(document["content"], "ab".repeat(32));
        assert_eq!(
            (&document["size"], &document["content_type"]),
            (&Json::Null, &Json::Null)
        );
    }

    #[test]
    fn the_evaluated_part_of_a_record_round_trips() {
        let pending = PendingRemoval {
            since: UnixMillis::default(),
            cause: RemovalCause::Policy {
                revision: "3f9c2a1b".into(),
            },
            reason: LedgerEventReason::Excluded,
            status: None,
            rule: None,
            revision: Arc::default(),
            user_agent: None,
        };
        let record = LedgerRecord {
            visit_state: VisitState::Answered,
            index_state: IndexState::Possible,
            status: RecordStatus(CrawlStatus::Filter),
            code: Some(760),
            address: "2001:db8::7".parse().ok(),
            depth: Some(3),
            refused_unasked: true,
            pending_removal: Some(Box::new(pending)),
            ..LedgerRecord::new(
                "news".into(),
                "http://h.test/".into(),
                UnixMillis::default(),
            )
        };
        for record in [
            record.clone(),
            LedgerRecord {
                index_state: IndexState::Removed {
                    at: UnixMillis::default(),
                    by: RemovalSource::Policy,
                },
                pending_removal: None,
                ..record
            },
            LedgerRecord::new(
                "news".into(),
                "http://h.test/".into(),
                UnixMillis::default(),
            ),
        ] {
            let document = to_json(LedgerKey([7; 16]), &record);
            assert_eq!(evaluated_from_json(&document), Some(record));
        }
        assert_eq!(
            evaluated_from_json(&json!({ "url": "http://h.test/" })),
            None
        );
    }
}
