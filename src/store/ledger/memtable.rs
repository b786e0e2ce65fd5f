//! What of the ledger is in memory: records that the tables do not have yet, and some of those that they have.
//!
//! Cut into shards by the first bits of the key, each with a lock of its own, so that the shards in their order are the
//! keys in theirs. What is not yet in the tables stays until it is; what is there already is kept in two generations,
//! of which the older one goes when the younger one is full.
//!
//! Records are kept as they are written, one behind the other: a record takes less memory so, goes to the disk as it is,
//! and leaves no piece of the heap behind that somebody has to look for.

use std::collections::BTreeMap;
use std::mem::replace;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use foldhash::fast::RandomState;
use indexmap::IndexMap;

use crate::ledger::key::LedgerKey;
use crate::store::sharded_map::lock;

use super::codec::record::{self, StoredRecord};
use super::filter::KeyFilter;

/// Shards; the first five bits of a key.
pub(super) const SHARD_COUNT: usize = 32;
/// What a table takes for a key besides the record, about.
const KEY_OVERHEAD: usize = 64;
/// What a key and its record take together, about.
const RECORD_ESTIMATE: usize = 256;
/// Bytes that a shard has room for from the start, at most.
const MAX_INITIAL_BYTES: usize = 2 << 20;

/// All shards.
pub(super) struct Memtable {
    shards: Box<[Mutex<MemtableShard>; SHARD_COUNT]>,
    /// What neither memory nor the tables have.
    filter: KeyFilter,
}

/// A table by keys. They are hashes already, but anybody can work out URLs that meet in one place. What is put in goes
/// behind the rest: a new URL touches little memory that is not at hand.
type KeyMap<V> = IndexMap<LedgerKey, V, RandomState>;

/// One shard.
#[derive(Default)]
pub(super) struct MemtableShard {
    unflushed: KeyMap<UnflushedRecord>,
    /// The forms of what is unfolded, and of what it was before.
    encoded: RecordArena,
    contents: BTreeMap<LedgerKey, LedgerKey>,
    young: CacheGeneration,
    old: CacheGeneration,
    /// Bytes of one generation.
    generation_bytes: usize,
}

/// Records in their written form, one behind the other.
#[derive(Debug, Default)]
struct RecordArena(Vec<u8>);

/// Where among [`RecordArena`] a record is. A form is never empty.
#[derive(Clone, Copy, Debug)]
struct ArenaSpan {
    at: usize,
    length: NonZeroU32,
}

/// Some of what the tables have.
#[derive(Default)]
struct CacheGeneration {
    spans: KeyMap<ArenaSpan>,
    encoded: RecordArena,
}

/// What the tables do not have yet.
#[derive(Clone, Copy, Debug)]
struct UnflushedRecord {
    /// The record; none if it was forgotten.
    span: Option<ArenaSpan>,
    /// The number of the change.
    change: u64,
}

/// A part of what the tables do not have, in the order of the keys.
#[derive(Default)]
pub(super) struct MemtableSlice {
    parts: Vec<SlicePart>,
    pub(super) contents: Vec<(LedgerKey, LedgerKey)>,
}

/// That of one shard.
struct SlicePart {
    shard: usize,
    /// With the changes up to this one.
    last_change: u64,
    records: Vec<(LedgerKey, Option<ArenaSpan>)>,
    encoded: RecordArena,
}

impl Memtable {
    /// Empty, with room for so many bytes that wait for the tables; of what those have, about so many keys, so many bytes
    /// are kept.
    pub(super) fn new(unfolded: usize, cache: usize, keys: usize) -> Self {
        let generation = cache / SHARD_COUNT / 2;
        // So that no request has to move what is there. What is not written to takes hardly any memory.
        let room = (unfolded / SHARD_COUNT).min(MAX_INITIAL_BYTES);
        let table =
            || KeyMap::with_capacity_and_hasher(room / RECORD_ESTIMATE, RandomState::default());
        let forms = || RecordArena(Vec::with_capacity(room));
        let shard = |()| {
            Mutex::new(MemtableShard {
                unflushed: table(),
                encoded: forms(),
                generation_bytes: generation,
                ..MemtableShard::default()
            })
        };
        Self {
            shards: Box::new([(); SHARD_COUNT].map(shard)),
            filter: KeyFilter::new(keys),
        }
    }

    /// The shard of a key, locked.
    pub(super) fn lock_shard(&self, key: LedgerKey) -> MutexGuard<'_, MemtableShard> {
        let [first, ..] = &*self.shards;
        lock(self.shards.get(shard_index(key)).unwrap_or(first))
    }

    /// Whether there is no record with this key for certain, neither here nor in the tables.
    pub(super) fn is_absent(&self, key: LedgerKey) -> bool {
        self.filter.is_absent(key)
    }

    /// Gets ready for the keys to come.
    pub(super) fn prepare_filter(&self) {
        self.filter.prepare_next_layer();
    }

    /// The tables have this key.
    pub(super) fn add_table_key(&self, key: LedgerKey) {
        self.filter.insert(key);
    }

    /// It was told of every key of the tables.
    pub(super) fn set_filter_complete(&self) {
        self.filter.set_complete();
    }

    /// Puts a record before what the tables say, or, if nothing is written, that it is forgotten. Its form is handed out
    /// as it is kept, to whoever gives the change its number.
    pub(super) fn put(
        &self,
        shard: &mut MemtableShard,
        key: LedgerKey,
        write: impl FnOnce(&mut Vec<u8>),
        number: impl FnOnce(Option<&[u8]>) -> u64,
    ) {
        // Before anybody could find it.
        let is_new = self.filter.insert(key);
        if !is_new {
            shard.young.spans.swap_remove(&key);
            shard.old.spans.swap_remove(&key);
        }
        let span = shard.encoded.push_with(write);
        // What reaches far into memory comes before the next lock, which waits for all that was written by then. Nobody
        // sees it without a number, since the shard is locked; `number` must not panic.
        let (at, _) = shard.unflushed.insert_full(
            key,
            UnflushedRecord {
                span,
                change: u64::MAX,
            },
        );
        let change = number(span.and_then(|span| shard.encoded.get(span)));
        if let Some((_, unfolded)) = shard.unflushed.get_index_mut(at) {
            unfolded.change = change;
        }
    }

    /// Bytes that wait for the tables.
    pub(super) fn unflushed_bytes(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| lock(shard).unflushed_bytes())
            .sum()
    }

    /// What of these shards the tables do not have; changes behind this one are not written down yet and stay away.
    pub(super) fn unflushed_slice(&self, shards: Range<usize>, change: u64) -> MemtableSlice {
        let mut slice = MemtableSlice::default();
        for (number, shard) in self
            .shards
            .iter()
            .enumerate()
            .take(shards.end)
            .skip(shards.start)
        {
            let shard = lock(shard);
            let (records, forms) = shard.unflushed_up_to(change);
            slice.parts.push(SlicePart {
                shard: number,
                last_change: change,
                records,
                encoded: forms,
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

    /// The tables have this slice: what was not changed meanwhile need not stay.
    pub(super) fn mark_flushed(&self, slice: MemtableSlice) {
        for part in slice.parts {
            let Some(shard) = self.shards.get(part.shard) else {
                continue;
            };
            lock(shard).mark_flushed(&part);
        }
        for (content, key) in slice.contents {
            self.lock_shard(content).remove_content(content, key);
        }
    }

    /// What the tables do not have, behind this key, in the order of the keys.
    pub(super) fn records_after(
        &self,
        after: Option<LedgerKey>,
        most: usize,
    ) -> Vec<(LedgerKey, Option<StoredRecord>)> {
        let mut found = Vec::new();
        for shard in self.shards.iter().skip(after.map_or(0, shard_index)) {
            let (rows, forms) = lock(shard).unflushed_after(after, most - found.len());
            // Read without the lock.
            found.extend(
                rows.into_iter()
                    .map(|(key, span)| (key, span.and_then(|span| forms.decode(span)))),
            );
            if found.len() == most {
                break;
            }
        }
        found
    }
}

impl MemtableShard {
    /// What is known of a key without the tables: the record, or that there is none; nothing if they must be asked.
    pub(super) fn get(&mut self, key: LedgerKey) -> Option<Option<StoredRecord>> {
        self.unflushed_record(key)
            .or_else(|| self.cached_record(key).map(Some))
    }

    fn unflushed_record(&self, key: LedgerKey) -> Option<Option<StoredRecord>> {
        let unfolded = self.unflushed.get(&key)?;
        Some(unfolded.span.and_then(|span| self.encoded.decode(span)))
    }

    /// What waits for the tables.
    fn unflushed_bytes(&self) -> usize {
        self.encoded.0.len() + self.unflushed.len() * KEY_OVERHEAD
    }

    /// What waits for the tables, up to this change.
    fn unflushed_up_to(&self, change: u64) -> (Vec<(LedgerKey, Option<ArenaSpan>)>, RecordArena) {
        let written = self
            .unflushed
            .iter()
            .filter(|(_, unfolded)| unfolded.change <= change);
        self.copy_records(written.map(|(key, unfolded)| (*key, *unfolded)))
    }

    /// The first behind a key, in their order.
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

    /// Copies of these rows' forms.
    fn copy_records(
        &self,
        rows: impl Iterator<Item = (LedgerKey, UnflushedRecord)>,
    ) -> (Vec<(LedgerKey, Option<ArenaSpan>)>, RecordArena) {
        let mut forms = RecordArena::default();
        let rows = rows.map(|(key, unfolded)| {
            (
                key,
                unfolded
                    .span
                    .and_then(|span| forms.copy_from(&self.encoded, span)),
            )
        });
        (rows.collect(), forms)
    }

    /// The tables have this part: what was not changed behind it. What came last stays at hand.
    fn mark_flushed(&mut self, part: &SlicePart) {
        self.unflushed
            .retain(|_, now| now.change > part.last_change);
        self.compact();
        let recent = part.encoded.0.len().saturating_sub(self.generation_bytes);
        for (key, span) in &part.records {
            let span = span.filter(|span| span.at >= recent && !self.unflushed.contains_key(key));
            span.and_then(|span| part.encoded.get(span))
                .into_iter()
                .for_each(|form| self.cache_record(*key, form));
        }
    }

    /// Forms that nobody has any more give back their place.
    fn compact(&mut self) {
        // As many are likely to come next.
        let mut forms = RecordArena(Vec::with_capacity(
            self.encoded.0.len().min(MAX_INITIAL_BYTES),
        ));
        for unfolded in self.unflushed.values_mut() {
            unfolded.span = unfolded
                .span
                .and_then(|span| forms.copy_from(&self.encoded, span));
        }
        self.encoded = forms;
    }

    /// Of what the tables have.
    fn cached_record(&mut self, key: LedgerKey) -> Option<StoredRecord> {
        if let Some(span) = self.young.spans.get(&key) {
            return self.young.encoded.decode(*span);
        }
        let span = self.old.spans.swap_remove(&key)?;
        let form = self.old.encoded.get(span)?.to_vec();
        self.cache_record(key, &form);
        record::decode(&form)
    }

    /// Keeps what the tables have.
    pub(super) fn cache_record(&mut self, key: LedgerKey, form: &[u8]) {
        let Some(span) = self
            .young
            .encoded
            .push_with(|to| to.extend_from_slice(form))
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

    /// The record that has a content.
    pub(super) fn key_by_content(&self, content: LedgerKey) -> Option<LedgerKey> {
        self.contents.get(&content).copied()
    }

    /// Says which record has a content.
    pub(super) fn put_content(&mut self, content: LedgerKey, key: LedgerKey) {
        self.contents.insert(content, key);
    }

    /// Says that this record has it no more.
    pub(super) fn remove_content(&mut self, content: LedgerKey, key: LedgerKey) {
        if self.contents.get(&content) == Some(&key) {
            self.contents.remove(&content);
        }
    }
}

impl RecordArena {
    /// Has a form written behind the others.
    fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Option<ArenaSpan> {
        let at = self.0.len();
        write(&mut self.0);
        let length = u32::try_from(self.0.len() - at)
            .ok()
            .and_then(NonZeroU32::new)?;
        Some(ArenaSpan { at, length })
    }

    /// A copy of one of others.
    fn copy_from(&mut self, others: &Self, span: ArenaSpan) -> Option<ArenaSpan> {
        let form = others.get(span)?;
        self.push_with(|to| to.extend_from_slice(form))
    }

    fn get(&self, span: ArenaSpan) -> Option<&[u8]> {
        self.0.get(span.at..span.at + span.length.get() as usize)
    }

    fn decode(&self, span: ArenaSpan) -> Option<StoredRecord> {
        self.get(span).and_then(record::decode)
    }
}

impl MemtableSlice {
    /// Whether no shard has a part in it.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Keys in their order, with the record's form; none if it was forgotten.
    pub(super) fn records(&self) -> impl Iterator<Item = (LedgerKey, Option<&[u8]>)> {
        self.parts.iter().flat_map(|part| {
            let form = |span: Option<ArenaSpan>| span.and_then(|span| part.encoded.get(span));
            part.records
                .iter()
                .map(move |(key, span)| (*key, form(*span)))
        })
    }
}

/// The first of them, in their order.
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
