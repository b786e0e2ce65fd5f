//! A URL of the ledger as a document, as shown by the admin API and `crawlgate ledger`.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use serde_json::{Value as Json, json};

use crate::clock::Rfc3339;
use crate::ledger::key::LedgerKey;
use crate::ledger::observation::FailureKind;
use crate::ledger::record::{IndexState, LedgerRecord, UnixMillis};

/// The keys of the document, in the order of the table's columns.
pub const COLUMNS: [&str; 26] = [
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
];

/// Returns the document of a record.
pub fn to_json(key: LedgerKey, record: &LedgerRecord) -> Json {
    let (indexed, removed_at) = match record.index_state {
        IndexState::Never => ("never", None),
        IndexState::Possible => ("perhaps", None),
        IndexState::Removed { at, .. } => ("removed", Some(at)),
        IndexState::Restored => ("restored", None),
    };
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
}
