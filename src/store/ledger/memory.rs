//! What of the ledger is in memory: records that the tables do not have yet, and some of those that they have.
//!
//! Cut into shards by the first bits of the key, each with a lock of its own, so that the shards in their order are the
//! keys in theirs. What is not yet in the tables stays until it is; what is there already is kept in two generations,
//! of which the older one goes when the younger one is full.

use std::collections::{BTreeMap, HashMap};
use std::mem::{replace, size_of};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use foldhash::fast::RandomState;

use crate::ledger::key::Key;
use crate::ledger::record::Record;
use crate::store::shards::lock;

use super::filter::Filter;
use super::form::Entry;

/// Shards; the first six bits of a key.
pub(super) const SHARDS: usize = 64;
/// What a map takes for an entry besides the record.
const OVERHEAD: usize = 80;

/// All shards.
pub(super) struct Memory {
    shards: Box<[Mutex<Shard>; SHARDS]>,
    /// Bytes that wait for the tables.
    unfolded: AtomicUsize,
    /// What the tables do not have.
    filter: Filter,
}

/// A table by keys. They are hashes already, but anybody can work out URLs that meet in one place.
type Table<V> = HashMap<Key, V, RandomState>;

/// One shard.
#[derive(Default)]
pub(super) struct Shard {
    unfolded: Table<Unfolded>,
    contents: BTreeMap<Key, Key>,
    young: Table<Entry>,
    old: Table<Entry>,
    young_bytes: usize,
    /// Bytes of one generation.
    generation: usize,
}

/// What the tables do not have yet.
#[derive(Clone)]
pub(super) struct Unfolded {
    /// The record; none if it was forgotten.
    pub(super) entry: Option<Entry>,
    /// The number of the change.
    pub(super) change: u64,
    /// What it takes in memory, about.
    bytes: usize,
}

/// A part of what the tables do not have, in the order of the keys.
#[derive(Default)]
pub(super) struct Slice {
    pub(super) records: Vec<(Key, Unfolded)>,
    pub(super) contents: Vec<(Key, Key)>,
}

impl Memory {
    /// Empty; of what the tables have, about so many keys, so many bytes are kept.
    pub(super) fn new(cache: usize, keys: usize) -> Self {
        let generation = cache / SHARDS / 2;
        let shard = |()| Mutex::new(Shard { generation, ..Shard::default() });
        Self {
            shards: Box::new([(); SHARDS].map(shard)),
            unfolded: AtomicUsize::new(0),
            filter: Filter::new(keys),
        }
    }

    /// The shard of a key, locked.
    pub(super) fn of(&self, key: Key) -> MutexGuard<'_, Shard> {
        let [first, ..] = &*self.shards;
        lock(self.shards.get(place(key)).unwrap_or(first))
    }

    /// What is known of a key without the tables: the record, or that there is none; nothing if they must be asked.
    pub(super) fn get(&self, shard: &mut Shard, key: Key) -> Option<Option<Entry>> {
        if let Some(unfolded) = shard.unfolded.get(&key) {
            return Some(unfolded.entry.clone());
        }
        if self.filter.lacks(key) {
            return Some(None);
        }
        shard.cached(key).map(Some)
    }

    /// The tables have this key, or are about to.
    pub(super) fn tables_have(&self, key: Key) {
        self.filter.insert(key);
    }

    /// It was told of every key of the tables.
    pub(super) fn knows_tables(&self) {
        self.filter.is_whole();
    }

    /// Puts a record, or that it is forgotten, before what the tables say.
    pub(super) fn put(&self, shard: &mut Shard, key: Key, unfolded: Unfolded) {
        if !self.filter.lacks(key) {
            shard.young.remove(&key);
            shard.old.remove(&key);
        }
        self.unfolded.fetch_add(unfolded.bytes, Ordering::Relaxed);
        if let Some(before) = shard.unfolded.insert(key, unfolded) {
            self.unfolded.fetch_sub(before.bytes, Ordering::Relaxed);
        }
    }

    /// Bytes that wait for the tables.
    pub(super) fn unfolded_bytes(&self) -> usize {
        self.unfolded.load(Ordering::Relaxed)
    }

    /// What of these shards the tables do not have; changes behind this one are not written down yet and stay away.
    pub(super) fn slice(&self, shards: std::ops::Range<usize>, change: u64) -> Slice {
        let mut slice = Slice::default();
        for shard in self.shards.get(shards).into_iter().flatten() {
            let shard = lock(shard);
            let written = shard.unfolded().filter(|(_, unfolded)| unfolded.change <= change);
            slice.records.extend(written.map(|(key, unfolded)| (*key, unfolded.clone())));
            slice.contents.extend(shard.contents.iter().map(|(content, key)| (*content, *key)));
        }
        slice.records.sort_unstable_by_key(|(key, _)| *key);
        slice
    }

    /// The tables have this slice: what was not changed meanwhile need not stay.
    pub(super) fn folded(&self, slice: Slice) {
        for (key, folded) in slice.records {
            let mut shard = self.of(key);
            if shard.unfolded.get(&key).is_none_or(|now| now.change != folded.change) {
                continue;
            }
            shard.unfolded.remove(&key);
            self.unfolded.fetch_sub(folded.bytes, Ordering::Relaxed);
            if let Some(entry) = folded.entry {
                shard.cache_of(key, entry, folded.bytes);
            }
        }
        for (content, key) in slice.contents {
            self.of(content).drop_content(content, key);
        }
    }

    /// What the tables do not have, behind this key, in the order of the keys.
    pub(super) fn behind(&self, after: Option<Key>, most: usize) -> Vec<(Key, Option<Entry>)> {
        let mut found = Vec::new();
        for shard in self.shards.iter().skip(after.map_or(0, place)) {
            let shard = lock(shard);
            let keys = shard.unfolded().map(|(key, _)| *key);
            let next = least(keys.filter(|key| Some(*key) > after).collect(), most - found.len());
            let entry = |key| shard.unfolded.get(&key).map(|unfolded| (key, unfolded.entry.clone()));
            found.extend(next.into_iter().filter_map(entry));
            if found.len() == most {
                break;
            }
        }
        found
    }
}

impl Unfolded {
    pub(super) fn new(entry: Option<Entry>, change: u64) -> Self {
        Self { bytes: bytes_of(entry.as_ref()), entry, change }
    }
}

impl Shard {
    #[allow(clippy::disallowed_methods, reason = "who asks puts them in order")]
    fn unfolded(&self) -> impl Iterator<Item = (&Key, &Unfolded)> {
        self.unfolded.iter()
    }

    /// Of what the tables have.
    fn cached(&mut self, key: Key) -> Option<Entry> {
        if let Some(entry) = self.young.get(&key) {
            return Some(entry.clone());
        }
        let entry = self.old.remove(&key)?;
        self.cache(key, entry.clone());
        Some(entry)
    }

    /// Keeps what the tables have.
    pub(super) fn cache(&mut self, key: Key, entry: Entry) {
        let bytes = bytes_of(Some(&entry));
        self.cache_of(key, entry, bytes);
    }

    fn cache_of(&mut self, key: Key, entry: Entry, bytes: usize) {
        self.young_bytes += bytes;
        self.young.insert(key, entry);
        if self.young_bytes > self.generation {
            let capacity = self.young.len();
            self.old =
                replace(&mut self.young, Table::with_capacity_and_hasher(capacity, RandomState::default()));
            self.young_bytes = 0;
        }
    }

    /// The record that has a content.
    pub(super) fn content(&self, content: Key) -> Option<Key> {
        self.contents.get(&content).copied()
    }

    /// Says which record has a content.
    pub(super) fn put_content(&mut self, content: Key, key: Key) {
        self.contents.insert(content, key);
    }

    /// Says that this record has it no more.
    pub(super) fn drop_content(&mut self, content: Key, key: Key) {
        if self.contents.get(&content) == Some(&key) {
            self.contents.remove(&content);
        }
    }
}

/// The first of them, in their order.
fn least(mut keys: Vec<Key>, most: usize) -> Vec<Key> {
    if keys.len() > most {
        keys.select_nth_unstable(most);
        keys.truncate(most);
    }
    keys.sort_unstable();
    keys
}

fn place(key: Key) -> usize {
    let [first, ..] = key.0;
    usize::from(first >> 2)
}

/// What a record, or that there is none, takes in memory, about.
fn bytes_of(entry: Option<&Entry>) -> usize {
    let Some(Entry { record, .. }) = entry else { return OVERHEAD };
    let optional = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len() + 16);
    OVERHEAD
        + size_of::<Record>()
        + record.crawler.len()
        + record.url.len()
        + record.content_type.len()
        + optional(&record.validators.etag)
        + optional(&record.validators.last_modified)
        + optional(&record.source)
        + optional(&record.space)
        + 64
}
