//! The tables of the ledger, in redb: one file, or memory that dies with the process.
//!
//! A batch is appended to the journal as it came, which costs a page or two whatever its keys are. From there it goes
//! into the table of records later and by the key, with many others: a table by random keys takes a page for each
//! record that is put in alone. What the journal has and the tables do not is in memory, and is read back from the
//! journal at the start.

mod location;
mod view;

use std::collections::BTreeMap;
use std::fmt;
#[cfg(test)]
use std::path::Path;

use prost::Message;
use redb::backends::InMemoryBackend;
use redb::{
    Builder, Database, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _,
    TableDefinition, WriteTransaction,
};

use crate::ledger::event::LedgerEvent;
use crate::ledger::key::LedgerKey;
use crate::ledger::record::UnixMillis;

use super::codec::{MalformedMessage, event, record};
use super::journal::{self, JournalChange};
use super::memtable::MemtableSlice;

pub(super) use location::LedgerLocation;
pub use location::LedgerOpenError;
use location::{create_private_file, open_error};
pub(super) use view::LedgerReadView;

/// The name of the file.
pub(super) const FILE_NAME: &str = "ledger.redb";
/// The form of the tables.
const VERSION: u64 = 1;

const RECORDS: TableDefinition<'_, &[u8; 16], &[u8]> = TableDefinition::new("records");
const CONTENTS: TableDefinition<'_, &[u8; 16], &[u8; 16]> = TableDefinition::new("contents");
const JOURNAL: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("journal");
const EVENTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("events");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
/// Rows of META.
const META_VERSION: &str = "version";
const META_STATE: &str = "state";
/// What others keep stands under names that begin so.
const META_VALUE_PREFIX: &str = "kept:";
/// Events that are forgotten in one go.
const MAX_EXPIRED_AT_ONCE: u64 = 10_000;

/// The tables, for the one who writes.
pub(super) struct LedgerDatabase(Database);

/// What the writer must know again after a restart.
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
    /// URLs by the number of their status.
    #[prost(btree_map = "uint32, int64", tag = "4")]
    pub(super) urls: BTreeMap<u32, i64>,
}

/// Which events are to be forgotten.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetentionCutoff {
    /// Those from before this time.
    pub(super) before: UnixMillis,
    /// One from behind this time comes from a clock that was ahead.
    pub(super) now: UnixMillis,
    /// None behind this one.
    pub(super) upto: u64,
}

/// What one commit writes.
pub(super) struct LedgerCommit<'c> {
    pub(super) state: &'c LedgerWriterState,
    /// From the one behind `first_page` on.
    pub(super) pages: &'c [Vec<u8>],
    pub(super) first_page: u64,
    pub(super) events: &'c [LedgerEvent],
    pub(super) first_event: u64,
    pub(super) values: &'c BTreeMap<String, Vec<u8>>,
    pub(super) cutoff: Option<RetentionCutoff>,
    /// Goes from memory into the tables.
    pub(super) slice: &'c MemtableSlice,
    /// The tables have what is in the journal before this page.
    pub(super) flushed_before: u64,
}

/// The tables cannot be read: the disk fails, or the ledger is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerUnavailable;

impl fmt::Display for LedgerUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the ledger cannot be read now: its disk fails, or the proxy ends")
    }
}

impl std::error::Error for LedgerUnavailable {}

impl LedgerDatabase {
    /// Opens the tables, or makes them. A crash before is mended here.
    pub(super) fn open(place: &LedgerLocation, cache: usize) -> Result<Self, LedgerOpenError> {
        let mut builder = Builder::new();
        builder.set_cache_size(cache);
        let path = place.path();
        let opened = match place {
            LedgerLocation::File(path) => {
                create_private_file(path).map_err(|error| {
                    LedgerOpenError::Unreadable(path.clone(), error.to_string())
                })?;
                builder.create(path)
            }
            LedgerLocation::Memory => builder.create_with_backend(InMemoryBackend::new()),
        };
        let base = Self(opened.map_err(|error| open_error(path, error))?);
        base.prepare()
            .map_err(|error| LedgerOpenError::Unreadable(path.to_owned(), error.to_string()))?
            .map_or(Ok(()), |version| {
                if version > VERSION {
                    Err(LedgerOpenError::NewerVersion(path.to_owned(), version))
                } else {
                    Ok(())
                }
            })?;
        Ok(base)
    }

    /// Makes what is missing, and says the version.
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
            // Nothing is to be written, least of all into a later version's file.
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

    /// What the last commit wrote of the writer's own.
    pub(super) fn writer_state(&self) -> Result<LedgerWriterState, redb::Error> {
        let meta = self.0.begin_read()?.open_table(META)?;
        let bytes = meta.get(META_STATE)?;
        Ok(bytes
            .and_then(|bytes| LedgerWriterState::decode(bytes.value()).ok())
            .unwrap_or_default())
    }

    /// How many records the tables have.
    pub(super) fn record_count(&self) -> Result<u64, redb::Error> {
        Ok(self.0.begin_read()?.open_table(RECORDS)?.len()?)
    }

    /// Hands out what the journal has, in the order in which it came.
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

    /// Writes all of it, or nothing. Blocks until it is on the disk.
    pub(super) fn commit(&self, commit: &LedgerCommit<'_>) -> Result<(), redb::Error> {
        let write = self.0.begin_write()?;
        append(&write, commit)?;
        flush_to_tables(&write, commit)?;
        {
            let mut meta = write.open_table(META)?;
            for (name, value) in commit.values {
                meta.insert(value_key(name).as_str(), value.as_slice())?;
            }
            meta.insert(META_STATE, commit.state.encode_to_vec().as_slice())?;
        }
        if let Some(bygone) = commit.cutoff {
            expire_events(&write, bygone)?;
        }
        write.commit()?;
        Ok(())
    }
}

/// Everything in the order in which it came.
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

/// A part of what is in memory, in the order of the keys.
fn flush_to_tables(write: &WriteTransaction, commit: &LedgerCommit<'_>) -> Result<(), redb::Error> {
    if !commit.slice.is_empty() {
        let left = flush_records(write, commit.slice)?;
        prune_contents(write, &left)?;
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

/// Says which records have left which contents.
fn flush_records(
    write: &WriteTransaction,
    slice: &MemtableSlice,
) -> Result<Vec<(LedgerKey, LedgerKey)>, redb::Error> {
    let (mut records, mut left) = (write.open_table(RECORDS)?, Vec::new());
    for (key, form) in slice.records() {
        // What was there comes with the change, without a look of its own.
        let before = match form {
            Some(form) => records.insert(&key.0, form)?,
            None => records.remove(&key.0)?,
        };
        let had = before.and_then(|bytes| record::decode_content_key(bytes.value()));
        left.extend(
            had.filter(|had| form.and_then(record::decode_content_key) != Some(*had))
                .map(|had| (had, key)),
        );
    }
    Ok(left)
}

/// A content does not lead to a record that has left it.
fn prune_contents(
    write: &WriteTransaction,
    left: &[(LedgerKey, LedgerKey)],
) -> Result<(), redb::Error> {
    if left.is_empty() {
        return Ok(());
    }
    let mut contents = write.open_table(CONTENTS)?;
    for (content, key) in left {
        let leads = contents
            .get(&content.0)?
            .is_some_and(|row| *row.value() == key.0);
        if leads {
            contents.remove(&content.0)?;
        }
    }
    Ok(())
}

/// The last event stays, so that numbers go on behind it. One whose time is still to come, by a clock that was ahead, is
/// as old as the next one whose time can be true; so is one that cannot be read.
fn expire_events(write: &WriteTransaction, bygone: RetentionCutoff) -> Result<(), redb::Error> {
    let mut events = write.open_table(EVENTS)?;
    let Some(first) = events.first()?.map(|(number, _)| number.value()) else {
        return Ok(());
    };
    let Some(last) = events.last()?.map(|(number, _)| number.value()) else {
        return Ok(());
    };
    let most = first.saturating_add(MAX_EXPIRED_AT_ONCE);
    let mut upto = 0;
    for row in events.range(..last.min(bygone.upto.saturating_add(1)))? {
        let (number, bytes) = row?;
        match event::decode_time(bytes.value()).filter(|at| *at <= bygone.now) {
            Some(at) if at >= bygone.before => break,
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

/// Makes a file one of another version.
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

    /// Commits that these records have these contents now, or are forgotten.
    fn commit_records(base: &LedgerDatabase, records: &[(u8, Option<u8>)], contents: &[(u8, u8)]) {
        let key = |byte: u8| LedgerKey([byte; 16]);
        let memory = Memtable::new(0, 0, 0);
        for (record, content) in records {
            let blank = LedgerRecord::default();
            let write = |to: &mut Vec<u8>| {
                content
                    .iter()
                    .for_each(|content| record::encode(&blank, Some(key(*content)), to));
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
        base.commit(&LedgerCommit {
            state: &LedgerWriterState::default(),
            pages: &[],
            first_page: 0,
            events: &[],
            first_event: 0,
            values: &BTreeMap::new(),
            cutoff: None,
            slice: &slice,
            flushed_before: 0,
        })
        .unwrap();
    }

    fn contents(base: &LedgerDatabase) -> Vec<(u8, u8)> {
        let contents = base.0.begin_read().unwrap().open_table(CONTENTS).unwrap();
        let rows = contents.iter().unwrap().map(Result::unwrap);
        rows.map(|(content, record)| (content.value()[0], record.value()[0]))
            .collect()
    }

    #[test]
    fn contents_go_with_the_record_that_had_them() {
        let base = LedgerDatabase::open(&LedgerLocation::Memory, 1 << 20).unwrap();
        commit_records(
            &base,
            &[(1, Some(100)), (2, Some(101))],
            &[(100, 1), (101, 2)],
        );
        // The one has another, the other is as it was.
        commit_records(&base, &[(1, Some(102)), (2, Some(101))], &[(102, 1)]);
        assert_eq!(contents(&base), [(101, 2), (102, 1)]);
        // Both have the same; who had it first is found by it.
        commit_records(&base, &[(1, Some(101))], &[]);
        assert_eq!(contents(&base), [(101, 2)]);
        commit_records(&base, &[(1, None)], &[]);
        assert_eq!(contents(&base), [(101, 2)]);
        // Forgotten, while another gets it in the same commit.
        commit_records(&base, &[(2, None), (3, Some(101))], &[(101, 3)]);
        assert_eq!(contents(&base), [(101, 3)]);
        commit_records(&base, &[(3, None)], &[]);
        assert_eq!(contents(&base), []);
    }
}
