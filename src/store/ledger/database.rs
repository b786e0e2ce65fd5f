//! The tables of the ledger, in redb: a file, or memory that is lost with the process.
//!
//! A batch is first appended to the journal, which costs a page or two whatever its keys are. Later a
//! compaction moves it into the table of records in key order, together with many others: in a table
//! with random keys, a record that is inserted alone costs a whole page. Records that are in the
//! journal but not in the tables are in memory, and are read back from the journal at the start.

#[cfg(test)]
mod ledger_files;
mod location;
mod view;

use std::collections::BTreeMap;
#[cfg(test)]
use std::path::Path;

use prost::Message;
use redb::backends::InMemoryBackend;
use redb::{
    Builder, Database, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _,
    TableDefinition, WriteTransaction,
};

use crate::ledger::event::{LedgerEvent, LedgerEventKind};
use crate::ledger::key::{ContentKey, LedgerKey};
use crate::ledger::record::UnixMillis;

use super::codec::{MalformedMessage, event, record};
use super::journal::{self, JournalChange};
use super::memtable::MemtableSlice;
use super::removals::{OrderedRowKey, RemovalBatch};

pub(super) use location::LedgerLocation;
pub use location::LedgerOpenError;
use location::{FileOrigin, create_private_file};
pub(super) use view::LedgerReadView;

pub(super) const FILE_NAME: &str = "ledger.redb";
/// The version of the table format.
const VERSION: u64 = 1;

const RECORDS: TableDefinition<'_, &[u8; 16], &[u8]> = TableDefinition::new("records");
const CONTENTS: TableDefinition<'_, &[u8; 16], &[u8; 16]> = TableDefinition::new("contents");
const JOURNAL: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("journal");
const EVENTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("events");
/// Pending removals by cause and time, with the text of the cause. Files of version 0.1.0 lack this table and the next
/// one until they are first needed.
const PENDING: TableDefinition<'_, &[u8; 40], &str> = TableDefinition::new("pending_removals");
/// The number of removals that an account has ordered within an hour.
const ORDERED: TableDefinition<'_, &[u8; 24], u64> = TableDefinition::new("ordered_removals");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
/// Rows of META.
const META_VERSION: &str = "version";
const META_STATE: &str = "state";
/// The prefix of the rows with values that other parts of the program store.
const META_VALUE_PREFIX: &str = "kept:";
/// The number of hours after which the number of ordered removals is deleted: more than are counted.
const ORDERED_HOURS_KEPT: u64 = 48;
/// The maximum number of events deleted in one transaction.
const MAX_EXPIRED_AT_ONCE: u64 = 10_000;

/// The tables, for the writer.
pub(super) struct LedgerDatabase(Database);

/// The writer's state, restored after a restart.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LedgerWriterState {
    /// The number of the last commit.
    #[prost(uint64, tag = "1")]
    pub(super) turn: u64,
    /// The number of the last event.
    #[prost(uint64, tag = "2")]
    pub(super) event: u64,
    /// The number of the last page of the journal.
    #[prost(uint64, tag = "3")]
    pub(super) page: u64,
    /// The number of URLs by status number.
    #[prost(btree_map = "uint32, int64", tag = "4")]
    pub(super) urls: BTreeMap<u32, i64>,
    /// The number of URLs by code; 0 is any code that has no count of its own.
    #[prost(btree_map = "uint32, int64", tag = "5")]
    pub(super) codes: BTreeMap<u32, i64>,
    /// The number of events by the number of their kind.
    #[prost(btree_map = "uint32, uint64", tag = "6")]
    pub(super) events: BTreeMap<u32, u64>,
    /// The number of the first event in `events`; 0 if an earlier version wrote the file, which had none of these counts.
    #[prost(uint64, tag = "7")]
    pub(super) counted_from: u64,
    /// The number of pending removals by the number of their kind.
    #[prost(btree_map = "uint32, int64", tag = "8")]
    pub(super) pending: BTreeMap<u32, i64>,
}

/// The range of events to delete.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetentionCutoff {
    /// Events before this time are deleted.
    pub(super) before: UnixMillis,
    /// An event after this time comes from a clock that was ahead.
    pub(super) now: UnixMillis,
    /// No event after this one is deleted.
    pub(super) upto: u64,
}

/// The contents of one commit.
pub(super) struct LedgerCommit<'c> {
    pub(super) state: &'c LedgerWriterState,
    /// Pages of the journal, numbered from `first_page + 1`.
    pub(super) pages: &'c [Vec<u8>],
    pub(super) first_page: u64,
    pub(super) events: &'c [LedgerEvent],
    pub(super) first_event: u64,
    pub(super) values: &'c BTreeMap<String, Vec<u8>>,
    pub(super) removals: &'c RemovalBatch,
    pub(super) cutoff: Option<RetentionCutoff>,
    /// Records to move from memory into the tables.
    pub(super) slice: &'c MemtableSlice,
    /// The tables contain everything in the journal before this page.
    pub(super) flushed_before: u64,
}

/// The tables cannot be read: the disk fails, or the ledger is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ledger cannot be read now: its disk fails, or the proxy is shutting down")]
pub struct LedgerUnavailable;

impl LedgerDatabase {
    /// Opens the tables, or creates them. Recovers from a crash if necessary.
    pub(super) fn open(location: &LedgerLocation, cache: usize) -> Result<Self, LedgerOpenError> {
        let mut builder = Builder::new();
        builder.set_cache_size(cache);
        let LedgerLocation::File(path) = location else {
            let opened = builder.create_with_backend(InMemoryBackend::new());
            let database = opened.map_err(|error| location.open_error(error))?;
            return Self(database).checked(location);
        };
        let file = create_private_file(path).map_err(|error| location.open_error(error))?;
        let opened = builder.create(path);
        let opened = opened.map_err(|error| location.open_error(error));
        let checked = opened.and_then(|database| Self(database).checked(location));
        if checked.is_err() && file == FileOrigin::Created {
            // A full disk: half a ledger would look damaged at the next start.
            let _ = std::fs::remove_file(path);
        }
        checked
    }

    /// Creates missing tables, and checks the version.
    fn checked(self, location: &LedgerLocation) -> Result<Self, LedgerOpenError> {
        let version = self.prepare().map_err(|error| location.open_error(error))?;
        match version {
            Some(version) if version > VERSION => Err(LedgerOpenError::NewerVersion(
                location.path().to_owned(),
                version,
            )),
            Some(_) | None => Ok(self),
        }
    }

    /// Creates missing tables, and returns the version of an existing file.
    fn prepare(&self) -> Result<Option<u64>, redb::Error> {
        let write = self.0.begin_write()?;
        let version = {
            let mut meta = write.open_table(META)?;
            let version = meta
                .get(META_VERSION)?
                .map(|bytes| parse_number(bytes.value()));
            if version.is_none() {
                meta.insert(META_VERSION, VERSION.to_le_bytes().as_slice())?;
            }
            version
        };
        if version.is_some() {
            // Nothing is written, least of all into the file of a later version.
            write.abort()?;
            return Ok(version);
        }
        write.open_table(RECORDS)?;
        write.open_table(CONTENTS)?;
        write.open_table(JOURNAL)?;
        write.open_table(EVENTS)?;
        write.commit()?;
        Ok(None)
    }

    /// Returns the writer's state as of the last commit.
    pub(super) fn writer_state(&self) -> Result<LedgerWriterState, redb::Error> {
        let meta = self.0.begin_read()?.open_table(META)?;
        let bytes = meta.get(META_STATE)?;
        Ok(bytes
            .and_then(|bytes| LedgerWriterState::decode(bytes.value()).ok())
            .unwrap_or_default())
    }

    /// Returns the number of records in the tables.
    pub(super) fn record_count(&self) -> Result<u64, redb::Error> {
        Ok(self.0.begin_read()?.open_table(RECORDS)?.len()?)
    }

    /// Passes the number and the kind of every event to `each`.
    pub(super) fn for_each_event(
        &self,
        mut each: impl FnMut(u64, LedgerEventKind),
    ) -> Result<(), redb::Error> {
        let events = self.0.begin_read()?.open_table(EVENTS)?;
        for row in events.iter()? {
            let (number, bytes) = row?;
            if let Some(event) = event::decode_event(bytes.value()) {
                each(number.value(), event.kind);
            }
        }
        Ok(())
    }

    /// Passes every change in the journal to `each`, in order.
    pub(super) fn replay_journal(
        &self,
        mut each: impl FnMut(JournalChange<'_>),
    ) -> Result<(), redb::Error> {
        let journal = self.0.begin_read()?.open_table(JOURNAL)?;
        for row in journal.iter()? {
            let (number, page) = row?;
            journal::read_page(page.value(), &mut each).map_err(|MalformedMessage| {
                redb::StorageError::Corrupted(format!("page {} of the journal", number.value()))
            })?;
        }
        Ok(())
    }

    /// Writes the whole commit, or nothing. Blocks until it is on disk.
    pub(super) fn commit(&self, commit: &LedgerCommit<'_>) -> Result<(), redb::Error> {
        let write = self.0.begin_write()?;
        append(&write, commit)?;
        flush_to_tables(&write, commit)?;
        write_removals(&write, commit.removals)?;
        {
            let mut meta = write.open_table(META)?;
            for (name, value) in commit.values {
                meta.insert(value_key(name).as_str(), value.as_slice())?;
            }
            meta.insert(META_STATE, commit.state.encode_to_vec().as_slice())?;
        }
        if let Some(cutoff) = commit.cutoff {
            expire_events(&write, cutoff)?;
        }
        write.commit()?;
        Ok(())
    }
}

/// Appends pages to the journal and events to the feed.
fn append(write: &WriteTransaction, commit: &LedgerCommit<'_>) -> Result<(), redb::Error> {
    let mut journal = write.open_table(JOURNAL)?;
    for (number, page) in (commit.first_page + 1..).zip(commit.pages) {
        journal.insert(number, page.as_slice())?;
    }
    if commit.events.is_empty() {
        return Ok(());
    }
    let mut events = write.open_table(EVENTS)?;
    for (number, event) in (commit.first_event + 1..).zip(commit.events) {
        events.insert(number, event::encode_event(event).as_slice())?;
    }
    Ok(())
}

/// Writes the changes of the index of pending removals, and counts ordered ones.
fn write_removals(write: &WriteTransaction, removals: &RemovalBatch) -> Result<(), redb::Error> {
    if !removals.rows.is_empty() {
        let mut pending = write.open_table(PENDING)?;
        for (row, cause) in &removals.rows {
            match cause {
                Some(cause) => pending.insert(&row.0, cause.as_str())?,
                None => pending.remove(&row.0)?,
            };
        }
    }
    let Some(newest) = removals.ordered.keys().map(OrderedRowKey::hour).max() else {
        return Ok(());
    };
    let mut ordered = write.open_table(ORDERED)?;
    let first = newest.saturating_sub(ORDERED_HOURS_KEPT);
    ordered.retain(|row, _| OrderedRowKey(*row).hour() >= first)?;
    for (row, count) in &removals.ordered {
        let before = ordered.get(&row.0)?.map_or(0, |count| count.value());
        ordered.insert(&row.0, before.saturating_add(*count))?;
    }
    Ok(())
}

/// Writes a slice of the memtable to the tables, in key order.
fn flush_to_tables(write: &WriteTransaction, commit: &LedgerCommit<'_>) -> Result<(), redb::Error> {
    if !commit.slice.is_empty() {
        let dropped_keys = flush_records(write, commit.slice)?;
        prune_contents(write, &dropped_keys)?;
    }
    if !commit.slice.contents.is_empty() {
        let mut contents = write.open_table(CONTENTS)?;
        for (content, key) in &commit.slice.contents {
            contents.insert(&content.0, &key.0)?;
        }
    }
    if commit.flushed_before > 0 {
        let mut journal = write.open_table(JOURNAL)?;
        journal.retain_in(..commit.flushed_before, |_, _| false)?;
    }
    Ok(())
}

/// Writes records, and returns which of them have lost which contents.
fn flush_records(
    write: &WriteTransaction,
    slice: &MemtableSlice,
) -> Result<Vec<(LedgerKey, LedgerKey)>, redb::Error> {
    let mut records = write.open_table(RECORDS)?;
    let mut dropped_keys = Vec::new();
    for (key, encoded) in slice.records() {
        // `insert` and `remove` return the previous value, so no separate lookup is needed.
        let before = match encoded {
            Some(encoded) => records.insert(&key.0, encoded)?,
            None => records.remove(&key.0)?,
        };
        let old_key = before.and_then(|bytes| record::decode_content_key(bytes.value()));
        let Some(old_key) = old_key else { continue };
        let new_key = encoded.and_then(record::decode_content_key);
        let dropped = old_key.without(new_key.as_ref());
        dropped_keys.extend(
            dropped
                .iter()
                .flat_map(ContentKey::parts)
                .map(|part| (part, key)),
        );
    }
    Ok(dropped_keys)
}

/// Removes the entries of contents that their record has lost.
fn prune_contents(
    write: &WriteTransaction,
    dropped_keys: &[(LedgerKey, LedgerKey)],
) -> Result<(), redb::Error> {
    if dropped_keys.is_empty() {
        return Ok(());
    }
    let mut contents = write.open_table(CONTENTS)?;
    for (content, key) in dropped_keys {
        let is_current = contents
            .get(&content.0)?
            .is_some_and(|row| *row.value() == key.0);
        if is_current {
            contents.remove(&content.0)?;
        }
    }
    Ok(())
}

/// Deletes old events. The last event stays, so that numbering continues after it. An event in the
/// future, from a clock that was ahead, and one that cannot be read are treated as being as old as the
/// next event with a plausible time.
fn expire_events(write: &WriteTransaction, cutoff: RetentionCutoff) -> Result<(), redb::Error> {
    let mut events = write.open_table(EVENTS)?;
    let Some(first) = events.first()?.map(|(number, _)| number.value()) else {
        return Ok(());
    };
    let Some(last) = events.last()?.map(|(number, _)| number.value()) else {
        return Ok(());
    };
    let most = first.saturating_add(MAX_EXPIRED_AT_ONCE);
    let mut upto = 0;
    for row in events.range(..last.min(cutoff.upto.saturating_add(1)))? {
        let (number, bytes) = row?;
        match event::decode_time(bytes.value()).filter(|at| *at <= cutoff.now) {
            Some(at) if at >= cutoff.before => break,
            Some(_) => upto = number.value(),
            None => {}
        }
        if upto >= most {
            break;
        }
    }
    events.retain_in(..=upto.min(most), |_, _| false)?;
    Ok(())
}

fn value_key(name: &str) -> String {
    format!("{META_VALUE_PREFIX}{name}")
}

fn parse_number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(u64::MAX, u64::from_le_bytes)
}

/// Changes the version of a file.
#[cfg(test)]
pub(super) fn pretend_version(path: &Path, version: u64) {
    let write = Builder::new().open(path).unwrap().begin_write().unwrap();
    write
        .open_table(META)
        .unwrap()
        .insert(META_VERSION, version.to_le_bytes().as_slice())
        .unwrap();
    write.commit().unwrap();
}

#[cfg(test)]
mod tests {
    use crate::ledger::record::LedgerRecord;
    use crate::store::ledger::memtable::{Memtable, SHARD_COUNT};

    use super::*;

    /// Commits records with the given contents; `None` deletes a record.
    fn commit_records(
        database: &LedgerDatabase,
        records: &[(u8, Option<u8>)],
        contents: &[(u8, u8)],
    ) {
        let key = |byte: u8| LedgerKey([byte; 16]);
        let memory = Memtable::new(0, 0, 0);
        for (record, content) in records {
            let blank = LedgerRecord::default();
            let write = |to: &mut Vec<u8>| {
                content.iter().for_each(|content| {
                    let content = ContentKey::from_parts([Some(key(*content)), None]);
                    record::encode(&blank, content, to);
                });
            };
            memory.put(
                &mut memory.lock_shard(key(*record)),
                key(*record),
                write,
                |_| 0,
            );
        }
        for (content, record) in contents {
            memory
                .lock_shard(key(*content))
                .put_content(key(*content), key(*record));
        }
        let slice = memory.unflushed_slice(0..SHARD_COUNT, 0);
        database
            .commit(&LedgerCommit {
                state: &LedgerWriterState::default(),
                pages: &[],
                first_page: 0,
                events: &[],
                first_event: 0,
                values: &BTreeMap::new(),
                removals: &RemovalBatch::default(),
                cutoff: None,
                slice: &slice,
                flushed_before: 0,
            })
            .unwrap();
    }

    fn contents(database: &LedgerDatabase) -> Vec<(u8, u8)> {
        let contents = database
            .0
            .begin_read()
            .unwrap()
            .open_table(CONTENTS)
            .unwrap();
        let rows = contents.iter().unwrap().map(Result::unwrap);
        rows.map(|(content, record)| (content.value()[0], record.value()[0]))
            .collect()
    }

    #[test]
    fn contents_are_removed_with_their_record() {
        let database = LedgerDatabase::open(&LedgerLocation::Memory, 1 << 20).unwrap();
        commit_records(
            &database,
            &[(1, Some(100)), (2, Some(101))],
            &[(100, 1), (101, 2)],
        );
        // The first has a new content, the second is unchanged.
        commit_records(&database, &[(1, Some(102)), (2, Some(101))], &[(102, 1)]);
        assert_eq!(contents(&database), [(101, 2), (102, 1)]);
        // Both have the same content; it leads to the record that had it first.
        commit_records(&database, &[(1, Some(101))], &[]);
        assert_eq!(contents(&database), [(101, 2)]);
        commit_records(&database, &[(1, None)], &[]);
        assert_eq!(contents(&database), [(101, 2)]);
        // Deleted, while another record gets its content in the same commit.
        commit_records(&database, &[(2, None), (3, Some(101))], &[(101, 3)]);
        assert_eq!(contents(&database), [(101, 3)]);
        commit_records(&database, &[(3, None)], &[]);
        assert_eq!(contents(&database), []);
    }
}
