//! A read-only view of the tables as of the last commit.

use std::ops::Bound;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use redb::{ReadOnlyTable, ReadableDatabase as _, TableError};

use crate::ledger::event::LedgerEvent;
use crate::ledger::key::LedgerKey;
use crate::ledger::record::UnixMillis;
use crate::ledger::removal::RemovalCause;
use crate::store::ledger::codec::record::StoredRecord;
use crate::store::ledger::codec::{event, record};
use crate::store::ledger::removals::{OrderedRowKey, PendingCause, PendingRowKey, PendingUrl};

use super::{
    CONTENTS, EVENTS, LedgerDatabase, LedgerUnavailable, META, ORDERED, PENDING, RECORDS, value_key,
};

/// A read-only view of the tables as of the last commit. While the disk fails, there are none, and reads
/// return [`LedgerUnavailable`].
#[derive(Default)]
pub(crate) struct LedgerReadView(ArcSwapOption<ReadTables>);

struct ReadTables {
    records: ReadOnlyTable<&'static [u8; 16], &'static [u8]>,
    contents: ReadOnlyTable<&'static [u8; 16], &'static [u8; 16]>,
    events: ReadOnlyTable<u64, &'static [u8]>,
    meta: ReadOnlyTable<&'static str, &'static [u8]>,
    /// `None` if the file has no such table yet.
    pending: Option<ReadOnlyTable<&'static [u8; 40], &'static str>>,
    ordered: Option<ReadOnlyTable<&'static [u8; 24], u64>>,
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
            pending: if_exists(read.open_table(PENDING))?,
            ordered: if_exists(read.open_table(ORDERED))?,
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

    /// Returns the causes of pending removals, each with the time of the oldest one.
    pub(crate) fn pending_causes(&self) -> Result<Vec<PendingCause>, LedgerUnavailable> {
        let tables = self.0.load_full().ok_or(LedgerUnavailable)?;
        let Some(pending) = &tables.pending else {
            return Ok(Vec::new());
        };
        let mut causes = Vec::new();
        let mut from = Bound::Unbounded;
        loop {
            let mut rows = pending
                .range::<&[u8; 40]>((from.as_ref(), Bound::Unbounded))
                .map_err(|_| LedgerUnavailable)?;
            let Some(row) = rows.next() else {
                return Ok(causes);
            };
            let (row, cause) = row.map_err(|_| LedgerUnavailable)?;
            let (cause_key, oldest, _) = PendingRowKey(*row.value()).parts();
            let cause = RemovalCause::from_text(cause.value());
            causes.extend(cause.map(|cause| PendingCause { cause, oldest }));
            from = Bound::Excluded(PendingRowKey::last_of(cause_key).0);
        }
    }

    /// Returns pending removals of a cause, oldest first.
    pub(crate) fn pending_removals(
        &self,
        cause: LedgerKey,
        upto: UnixMillis,
        after: Option<PendingRowKey>,
        most: usize,
    ) -> Result<Vec<PendingUrl>, LedgerUnavailable> {
        let tables = self.0.load_full().ok_or(LedgerUnavailable)?;
        let Some(pending) = &tables.pending else {
            return Ok(Vec::new());
        };
        let first = PendingRowKey::new(cause, UnixMillis(0), LedgerKey([0; 16])).0;
        let last = PendingRowKey::new(cause, upto, LedgerKey([u8::MAX; 16])).0;
        let from = after.map_or(Bound::Included(first), |row| Bound::Excluded(row.0));
        let rows = pending
            .range::<&[u8; 40]>((from.as_ref(), Bound::Included(&last)))
            .map_err(|_| LedgerUnavailable)?;
        rows.take(most)
            .map(|row| {
                let (row, _) = row.map_err(|_| LedgerUnavailable)?;
                let (_, since, key) = PendingRowKey(*row.value()).parts();
                Ok(PendingUrl { since, key })
            })
            .collect()
    }

    /// Returns the number of pending removals of a cause.
    pub(crate) fn count_pending_removals(
        &self,
        cause: LedgerKey,
    ) -> Result<u64, LedgerUnavailable> {
        let tables = self.0.load_full().ok_or(LedgerUnavailable)?;
        let Some(pending) = &tables.pending else {
            return Ok(0);
        };
        let first = PendingRowKey::new(cause, UnixMillis(0), LedgerKey([0; 16])).0;
        let last = PendingRowKey::last_of(cause).0;
        let rows = pending
            .range::<&[u8; 40]>(&first..=&last)
            .map_err(|_| LedgerUnavailable)?;
        Ok(rows.count() as u64)
    }

    /// Returns the number of removals that an account has ordered since an hour.
    pub(crate) fn ordered_removals(
        &self,
        account: LedgerKey,
        first_hour: u64,
    ) -> Result<u64, LedgerUnavailable> {
        let tables = self.0.load_full().ok_or(LedgerUnavailable)?;
        let Some(ordered) = &tables.ordered else {
            return Ok(0);
        };
        let first = OrderedRowKey::new(account, first_hour).0;
        let last = OrderedRowKey::new(account, u64::MAX).0;
        let rows = ordered
            .range::<&[u8; 24]>(&first..=&last)
            .map_err(|_| LedgerUnavailable)?;
        rows.map(|row| row.map(|(_, count)| count.value()))
            .sum::<Result<u64, _>>()
            .map_err(|_| LedgerUnavailable)
    }
}

/// Returns `None` for a table that does not exist.
fn if_exists<T>(table: Result<T, TableError>) -> Result<Option<T>, redb::Error> {
    match table {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
