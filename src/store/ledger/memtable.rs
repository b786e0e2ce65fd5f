//! The part of the ledger in memory: records that are not in the tables yet, and a cache of some that are.
//!
//! It is divided into shards by the first bits of the key, so the order of the shards is the order of the
//! keys. Each shard has its own lock. Unflushed records stay until they are in the tables. The cache has
//! two generations; the older one is dropped when the younger one is full.
//!
//! Records are stored encoded, one after the other. This takes less memory, a record is written to disk as
//! it is, and no small heap allocations are left behind.

use std::collections::BTreeMap;
use std::mem::replace;
use std::num::NonZeroU32;
use std::ops::Range;

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use parking_lot::{Mutex, MutexGuard};

use crate::ledger::key::LedgerKey;

use super::codec::record::{self, StoredRecord};
use super::filter::KeyFilter;

/// The number of shards: the first five bits of a key.
pub(super) const SHARD_COUNT: usize = 32;
/// The approximate size of a table entry besides its record.
const KEY_OVERHEAD: usize = 64;
/// The approximate size of a key and its record.
const RECORD_ESTIMATE: usize = 256;
/// The maximum number of bytes that a shard allocates at the start.
const MAX_INITIAL_BYTES: usize = 2 << 20;

/// All shards, and the filter in front of them.
pub(super) struct Memtable {
    shards: Box<[Mutex<MemtableShard>; SHARD_COUNT]>,
    /// The keys that may be in memory or in the tables.
    filter: KeyFilter,
}

/// A table by key. Keys are hashes, but URLs whose keys collide could be constructed, so they are
/// hashed again with a seed. A new key is appended: a new URL touches little memory that is not cached.
type KeyMap<V> = IndexMap<LedgerKey, V, RandomState>;

#[derive(Default)]
pub(super) struct MemtableShard {
    unflushed: KeyMap<UnflushedRecord>,
    /// The encoded unflushed records, including replaced ones.
    encoded: RecordArena,
    contents: BTreeMap<LedgerKey, LedgerKey>,
    young: CacheGeneration,
    old: CacheGeneration,
    /// The maximum size of a generation, in bytes.
    generation_bytes: usize,
}

/// Encoded records, one after the other.
#[derive(Debug, Default)]
struct RecordArena(Vec<u8>);

/// The position of a record in a [`RecordArena`]. An encoded record is never empty.
#[derive(Clone, Copy, Debug)]
struct ArenaSpan {
    at: usize,
    length: NonZeroU32,
}

/// A generation of cached records.
#[derive(Default)]
struct CacheGeneration {
    spans: KeyMap<ArenaSpan>,
    encoded: RecordArena,
}

/// A change that is not in the tables yet.
#[derive(Clone, Copy, Debug)]
struct UnflushedRecord {
    /// The record; `None` if it was deleted.
    span: Option<ArenaSpan>,
    /// The number of the change.
    change: u64,
}

/// A part of the unflushed records, in key order.
#[derive(Default)]
pub(super) struct MemtableSlice {
    parts: Vec<SlicePart>,
    pub(super) contents: Vec<(LedgerKey, LedgerKey)>,
}

/// The part of one shard.
struct SlicePart {
    shard: usize,
    /// Includes the changes up to this number.
    last_change: u64,
    records: Vec<(LedgerKey, Option<ArenaSpan>)>,
    encoded: RecordArena,
}

impl Memtable {
    /// Creates an empty memtable with room for `unflushed` bytes of unflushed records and a cache of
    /// `cache` bytes. `keys` is the approximate number of keys in the tables.
    pub(super) fn new(unflushed: usize, cache: usize, keys: usize) -> Self {
        let generation = cache / SHARD_COUNT / 2;
        // Allocated up front, so that no request has to move existing records. Untouched memory costs
        // hardly anything.
        let room = (unflushed / SHARD_COUNT).min(MAX_INITIAL_BYTES);
        let entries = room / RECORD_ESTIMATE;
        let shards = [(); SHARD_COUNT].map(|()| {
            Mutex::new(MemtableShard {
                unflushed: KeyMap::with_capacity_and_hasher(entries, RandomState::default()),
                encoded: RecordArena(Vec::with_capacity(room)),
                generation_bytes: generation,
                ..MemtableShard::default()
            })
        });
        Self {
            shards: Box::new(shards),
            filter: KeyFilter::new(keys),
        }
    }

    /// Returns the locked shard of a key.
    pub(super) fn lock_shard(&self, key: LedgerKey) -> MutexGuard<'_, MemtableShard> {
        let [first, ..] = &*self.shards;
        self.shards.get(shard_index(key)).unwrap_or(first).lock()
    }

    /// Returns `true` if there is certainly no record with this key, neither here nor in the tables.
    pub(super) fn is_absent(&self, key: LedgerKey) -> bool {
        self.filter.is_absent(key)
    }

    /// Prepares the filter for further keys.
    pub(super) fn prepare_filter(&self) {
        self.filter.prepare_next_layer();
    }

    /// Adds a key of the tables to the filter.
    pub(super) fn add_table_key(&self, key: LedgerKey) {
        self.filter.insert(key);
    }

    /// Marks the filter as complete: every key of the tables has been added.
    pub(super) fn set_filter_complete(&self) {
        self.filter.set_complete();
    }

    /// Stores a record in front of the tables, or a deletion if `write` writes nothing. `number`
    /// receives the encoded record and returns the number of the change.
    pub(super) fn put(
        &self,
        shard: &mut MemtableShard,
        key: LedgerKey,
        write: impl FnOnce(&mut Vec<u8>),
        number: impl FnOnce(Option<&[u8]>) -> u64,
    ) {
        // The filter first, before anything can look the record up.
        let is_new = self.filter.insert(key);
        if !is_new {
            shard.young.spans.swap_remove(&key);
            shard.old.spans.swap_remove(&key);
        }
        let span = shard.encoded.push_with(write);
        // Random access to memory happens before the next lock is taken, whose release waits for all
        // earlier writes. The entry is invisible without a number, since the shard is locked; `number`
        // must not panic.
        let (at, _) = shard.unflushed.insert_full(
            key,
            UnflushedRecord {
                span,
                change: u64::MAX,
            },
        );
        let change = number(span.and_then(|span| shard.encoded.get(span)));
        if let Some((_, unflushed)) = shard.unflushed.get_index_mut(at) {
            unflushed.change = change;
        }
    }

    /// Returns the number of bytes that wait to be flushed.
    pub(super) fn unflushed_bytes(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().unflushed_bytes())
            .sum()
    }

    /// Returns the unflushed records of these shards, except changes after `change`, which are not in
    /// the journal yet.
    pub(super) fn unflushed_slice(&self, shards: Range<usize>, change: u64) -> MemtableSlice {
        let mut slice = MemtableSlice::default();
        for (number, shard) in self
            .shards
            .iter()
            .enumerate()
            .take(shards.end)
            .skip(shards.start)
        {
            let shard = shard.lock();
            let (records, arena) = shard.unflushed_up_to(change);
            slice.parts.push(SlicePart {
                shard: number,
                last_change: change,
                records,
                encoded: arena,
            });
            slice
                .contents
                .extend(shard.contents.iter().map(|(content, key)| (*content, *key)));
        }
        for part in &mut slice.parts {
            part.records.sort_unstable_by_key(|(key, _)| *key);
        }
        slice
    }

    /// Removes a slice that has been flushed to the tables, except records that have changed since.
    pub(super) fn mark_flushed(&self, slice: MemtableSlice) {
        for part in slice.parts {
            let Some(shard) = self.shards.get(part.shard) else {
                continue;
            };
            shard.lock().mark_flushed(&part);
        }
        for (content, key) in slice.contents {
            self.lock_shard(content).remove_content(content, key);
        }
    }

    /// Returns unflushed records in key order, starting after `after`.
    pub(super) fn records_after(
        &self,
        after: Option<LedgerKey>,
        most: usize,
    ) -> Vec<(LedgerKey, Option<StoredRecord>)> {
        let mut found = Vec::new();
        for shard in self.shards.iter().skip(after.map_or(0, shard_index)) {
            let (rows, arena) = shard.lock().unflushed_after(after, most - found.len());
            // Decoded without the lock.
            found.extend(
                rows.into_iter()
                    .map(|(key, span)| (key, span.and_then(|span| arena.decode(span)))),
            );
            if found.len() == most {
                break;
            }
        }
        found
    }
}

impl MemtableShard {
    /// Returns the record of a key, or the fact that it was deleted; `None` if the tables have to be
    /// read.
    pub(super) fn get(&mut self, key: LedgerKey) -> Option<Option<StoredRecord>> {
        self.unflushed_record(key)
            .or_else(|| self.cached_record(key).map(Some))
    }

    fn unflushed_record(&self, key: LedgerKey) -> Option<Option<StoredRecord>> {
        let unflushed = self.unflushed.get(&key)?;
        Some(unflushed.span.and_then(|span| self.encoded.decode(span)))
    }

    /// Returns the number of bytes that wait to be flushed.
    fn unflushed_bytes(&self) -> usize {
        self.encoded.0.len() + self.unflushed.len() * KEY_OVERHEAD
    }

    /// Copies the unflushed records, up to this change.
    fn unflushed_up_to(&self, change: u64) -> (Vec<(LedgerKey, Option<ArenaSpan>)>, RecordArena) {
        let written = self
            .unflushed
            .iter()
            .filter(|(_, unflushed)| unflushed.change <= change);
        self.copy_records(written.map(|(key, unflushed)| (*key, *unflushed)))
    }

    /// Copies the first unflushed records after a key, in key order.
    fn unflushed_after(
        &self,
        after: Option<LedgerKey>,
        most: usize,
    ) -> (Vec<(LedgerKey, Option<ArenaSpan>)>, RecordArena) {
        let keys = self
            .unflushed
            .keys()
            .copied()
            .filter(|key| Some(*key) > after);
        let next = smallest_keys(keys.collect(), most).into_iter();
        self.copy_records(next.filter_map(|key| Some((key, *self.unflushed.get(&key)?))))
    }

    /// Copies the encoded records of these rows.
    fn copy_records(
        &self,
        rows: impl Iterator<Item = (LedgerKey, UnflushedRecord)>,
    ) -> (Vec<(LedgerKey, Option<ArenaSpan>)>, RecordArena) {
        let mut arena = RecordArena::default();
        let rows = rows.map(|(key, unflushed)| {
            (
                key,
                unflushed
                    .span
                    .and_then(|span| arena.copy_from(&self.encoded, span)),
            )
        });
        (rows.collect(), arena)
    }

    /// Removes a part that has been flushed, except records that have changed since. The most recent
    /// records stay in the cache.
    fn mark_flushed(&mut self, part: &SlicePart) {
        self.unflushed
            .retain(|_, now| now.change > part.last_change);
        self.compact();
        let recent = part.encoded.0.len().saturating_sub(self.generation_bytes);
        for (key, span) in &part.records {
            let span = span.filter(|span| span.at >= recent && !self.unflushed.contains_key(key));
            if let Some(encoded) = span.and_then(|span| part.encoded.get(span)) {
                self.cache_record(*key, encoded);
            }
        }
    }

    /// Reclaims the space of replaced records.
    fn compact(&mut self) {
        // About as many records are likely to follow.
        let mut arena = RecordArena(Vec::with_capacity(
            self.encoded.0.len().min(MAX_INITIAL_BYTES),
        ));
        for unflushed in self.unflushed.values_mut() {
            unflushed.span = unflushed
                .span
                .and_then(|span| arena.copy_from(&self.encoded, span));
        }
        self.encoded = arena;
    }

    /// Returns a cached record, and moves it to the younger generation.
    fn cached_record(&mut self, key: LedgerKey) -> Option<StoredRecord> {
        if let Some(span) = self.young.spans.get(&key) {
            return self.young.encoded.decode(*span);
        }
        let span = self.old.spans.swap_remove(&key)?;
        let encoded = self.old.encoded.get(span)?.to_vec();
        self.cache_record(key, &encoded);
        record::decode(&encoded)
    }

    /// Caches a record that is in the tables.
    pub(super) fn cache_record(&mut self, key: LedgerKey, encoded: &[u8]) {
        let Some(span) = self
            .young
            .encoded
            .push_with(|to| to.extend_from_slice(encoded))
        else {
            return;
        };
        self.young.spans.insert(key, span);
        if self.young.encoded.0.len() + self.young.spans.len() * KEY_OVERHEAD
            > self.generation_bytes
        {
            let next = CacheGeneration {
                spans: KeyMap::with_capacity_and_hasher(
                    self.young.spans.len(),
                    RandomState::default(),
                ),
                encoded: RecordArena(Vec::with_capacity(self.young.encoded.0.len())),
            };
            self.old = replace(&mut self.young, next);
        }
    }

    /// Returns the key of the record that has a content.
    pub(super) fn key_by_content(&self, content: LedgerKey) -> Option<LedgerKey> {
        self.contents.get(&content).copied()
    }

    /// Sets the record that has a content.
    pub(super) fn put_content(&mut self, content: LedgerKey, key: LedgerKey) {
        self.contents.insert(content, key);
    }

    /// Removes a content, if it belongs to this record.
    pub(super) fn remove_content(&mut self, content: LedgerKey, key: LedgerKey) {
        if self.contents.get(&content) == Some(&key) {
            self.contents.remove(&content);
        }
    }
}

impl RecordArena {
    /// Appends an encoded record.
    fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Option<ArenaSpan> {
        let at = self.0.len();
        write(&mut self.0);
        let length = u32::try_from(self.0.len() - at)
            .ok()
            .and_then(NonZeroU32::new)?;
        Some(ArenaSpan { at, length })
    }

    /// Appends a copy of a record of another arena.
    fn copy_from(&mut self, others: &Self, span: ArenaSpan) -> Option<ArenaSpan> {
        let encoded = others.get(span)?;
        self.push_with(|to| to.extend_from_slice(encoded))
    }

    fn get(&self, span: ArenaSpan) -> Option<&[u8]> {
        self.0.get(span.at..span.at + span.length.get() as usize)
    }

    fn decode(&self, span: ArenaSpan) -> Option<StoredRecord> {
        self.get(span).and_then(record::decode)
    }
}

impl MemtableSlice {
    /// Returns `true` if no shard has a part in the slice.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns keys in order, with the encoded record; `None` if it was deleted.
    pub(super) fn records(&self) -> impl Iterator<Item = (LedgerKey, Option<&[u8]>)> {
        self.parts.iter().flat_map(|part| {
            part.records
                .iter()
                .map(|(key, span)| (*key, span.and_then(|span| part.encoded.get(span))))
        })
    }
}

/// Returns the smallest keys, in order.
fn smallest_keys(mut keys: Vec<LedgerKey>, most: usize) -> Vec<LedgerKey> {
    if keys.len() > most {
        keys.select_nth_unstable(most);
        keys.truncate(most);
    }
    keys.sort_unstable();
    keys
}

fn shard_index(key: LedgerKey) -> usize {
    let [first, ..] = key.0;
    usize::from(first >> 3)
}
