//! A read-only view of the tables as of the last commit.

use std::ops::Bound;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use redb::{ReadOnlyTable, ReadableDatabase as _};

use crate::ledger::event::LedgerEvent;
use crate::ledger::key::LedgerKey;
use crate::store::ledger::codec::record::StoredRecord;
use crate::store::ledger::codec::{event, record};

use super::{CONTENTS, EVENTS, LedgerDatabase, LedgerUnavailable, META, RECORDS, value_key};

/// A read-only view of the tables as of the last commit. While the disk fails, there are none, and reads
/// return [`LedgerUnavailable`].
#[derive(Default)]
pub(crate) struct LedgerReadView(ArcSwapOption<ReadTables>);

struct ReadTables {
    records: ReadOnlyTable<&'static [u8; 16], &'static [u8]>,
    contents: ReadOnlyTable<&'static [u8; 16], &'static [u8; 16]>,
    events: ReadOnlyTable<u64, &'static [u8]>,
    meta: ReadOnlyTable<&'static str, &'static [u8]>,
}

impl LedgerReadView {
    /// Publishes the state of the last commit.
    pub(crate) fn publish(&self, database: &LedgerDatabase) -> Result<(), redb::Error> {
        let read = database.0.begin_read()?;
        self.0.store(Some(Arc::new(ReadTables {
            records: read.open_table(RECORDS)?,
            contents: read.open_table(CONTENTS)?,
            events: read.open_table(EVENTS)?,
            meta: read.open_table(META)?,
        })));
        Ok(())
    }

    /// Removes the view; the file can then be closed.
    pub(crate) fn clear(&self) {
        self.0.store(None);
    }

    /// Returns an encoded record.
    pub(crate) fn record(&self, key: LedgerKey) -> Result<Option<Vec<u8>>, LedgerUnavailable> {
        let tables = self.0.load();
        let row = tables
            .as_ref()
            .ok_or(LedgerUnavailable)?
            .records
            .get(&key.0)
            .map_err(|_| LedgerUnavailable)?;
        Ok(row.map(|row| row.value().to_vec()))
    }

    pub(crate) fn key_by_content(
        &self,
        content: LedgerKey,
    ) -> Result<Option<LedgerKey>, LedgerUnavailable> {
        let tables = self.0.load();
        let row = tables
            .as_ref()
            .ok_or(LedgerUnavailable)?
            .contents
            .get(&content.0)
            .map_err(|_| LedgerUnavailable)?;
        Ok(row.map(|row| LedgerKey(*row.value())))
    }

    pub(crate) fn value(&self, name: &str) -> Result<Option<Vec<u8>>, LedgerUnavailable> {
        let tables = self.0.load();
        let row = tables
            .as_ref()
            .ok_or(LedgerUnavailable)?
            .meta
            .get(value_key(name).as_str())
            .map_err(|_| LedgerUnavailable)?;
        Ok(row.map(|row| row.value().to_vec()))
    }

    /// Returns keys in order, starting after `after`.
    pub(crate) fn keys_after(
        &self,
        after: Option<LedgerKey>,
        most: usize,
    ) -> Result<Vec<LedgerKey>, LedgerUnavailable> {
        let tables = self.0.load_full().ok_or(LedgerUnavailable)?;
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.0));
        let from = (from.as_ref(), Bound::Unbounded);
        let rows = tables
            .records
            .range::<&[u8; 16]>(from)
            .map_err(|_| LedgerUnavailable)?;
        rows.take(most)
            .map(|row| {
                row.map(|(key, _)| LedgerKey(*key.value()))
                    .map_err(|_| LedgerUnavailable)
            })
            .collect()
    }

    /// Returns records in key order, starting after `after`.
    pub(crate) fn records_after(
        &self,
        after: Option<LedgerKey>,
        most: usize,
    ) -> Result<Vec<(LedgerKey, StoredRecord)>, LedgerUnavailable> {
        let tables = self.0.load_full().ok_or(LedgerUnavailable)?;
        let mut found = Vec::new();
        let from = after.map_or([0; 16], |key| key.0);
        for row in tables
            .records
            .range::<&[u8; 16]>(&from..)
            .map_err(|_| LedgerUnavailable)?
        {
            let (key, bytes) = row.map_err(|_| LedgerUnavailable)?;
            let key = LedgerKey(*key.value());
            if Some(key) == after {
                continue;
            }
            found.extend(record::decode(bytes.value()).map(|entry| (key, entry)));
            if found.len() >= most {
                break;
            }
        }
        Ok(found)
    }

    /// Returns events in order, starting after `after`.
    pub(crate) fn events_after(
        &self,
        after: u64,
        most: usize,
    ) -> Result<Vec<(u64, LedgerEvent)>, LedgerUnavailable> {
        let tables = self.0.load_full().ok_or(LedgerUnavailable)?;
        let rows = tables
            .events
            .range(after.saturating_add(1)..)
            .map_err(|_| LedgerUnavailable)?;
        let mut found = Vec::new();
        for row in rows {
            if found.len() >= most {
                break;
            }
            let (number, bytes) = row.map_err(|_| LedgerUnavailable)?;
            found.extend(event::decode_event(bytes.value()).map(|event| (number.value(), event)));
        }
        Ok(found)
    }
}
