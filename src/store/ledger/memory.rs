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

use crate::ledger::key::Key;
use crate::store::shards::lock;

use super::filter::Filter;
use super::form::record::{self, Entry};

/// Shards; the first five bits of a key.
pub(super) const SHARDS: usize = 32;
/// What a table takes for a key besides the record, about.
const OVERHEAD: usize = 64;
/// What a key and its record take together, about.
const RECORD: usize = 256;
/// Bytes that a shard has room for from the start, at most.
const ROOM: usize = 2 << 20;

/// All shards.
pub(super) struct Memory {
    shards: Box<[Mutex<Shard>; SHARDS]>,
    /// What neither memory nor the tables have.
    filter: Filter,
}

/// A table by keys. They are hashes already, but anybody can work out URLs that meet in one place. What is put in goes
/// behind the rest: a new URL touches little memory that is not at hand.
type Table<V> = IndexMap<Key, V, RandomState>;

/// One shard.
#[derive(Default)]
pub(super) struct Shard {
    unfolded: Table<Unfolded>,
    /// The forms of what is unfolded, and of what it was before.
    forms: Forms,
    contents: BTreeMap<Key, Key>,
    young: Generation,
    old: Generation,
    /// Bytes of one generation.
    generation: usize,
}

/// Records in their written form, one behind the other.
#[derive(Debug, Default)]
struct Forms(Vec<u8>);

/// Where among [`Forms`] a record is. A form is never empty.
#[derive(Clone, Copy, Debug)]
struct Span {
    at: usize,
    length: NonZeroU32,
}

/// Some of what the tables have.
#[derive(Default)]
struct Generation {
    spans: Table<Span>,
    forms: Forms,
}

/// What the tables do not have yet.
#[derive(Clone, Copy, Debug)]
struct Unfolded {
    /// The record; none if it was forgotten.
    span: Option<Span>,
    /// The number of the change.
    change: u64,
}

/// A part of what the tables do not have, in the order of the keys.
#[derive(Default)]
pub(super) struct Slice {
    parts: Vec<Part>,
    pub(super) contents: Vec<(Key, Key)>,
}

/// That of one shard.
struct Part {
    shard: usize,
    /// With the changes up to this one.
    change: u64,
    records: Vec<(Key, Option<Span>)>,
    forms: Forms,
}

impl Memory {
    /// Empty, with room for so many bytes that wait for the tables; of what those have, about so many keys, so many bytes
    /// are kept.
    pub(super) fn new(unfolded: usize, cache: usize, keys: usize) -> Self {
        let generation = cache / SHARDS / 2;
        // So that no request has to move what is there. What is not written to takes hardly any memory.
        let room = (unfolded / SHARDS).min(ROOM);
        let table = || Table::with_capacity_and_hasher(room / RECORD, RandomState::default());
        let forms = || Forms(Vec::with_capacity(room));
        let shard = |()| {
            Mutex::new(Shard {
                unfolded: table(),
                forms: forms(),
                generation,
                ..Shard::default()
            })
        };
        Self {
            shards: Box::new([(); SHARDS].map(shard)),
            filter: Filter::new(keys),
        }
    }

    /// The shard of a key, locked.
    pub(super) fn of(&self, key: Key) -> MutexGuard<'_, Shard> {
        let [first, ..] = &*self.shards;
        lock(self.shards.get(place(key)).unwrap_or(first))
    }

    /// Whether there is no record with this key for certain, neither here nor in the tables.
    pub(super) fn lacks(&self, key: Key) -> bool {
        self.filter.lacks(key)
    }

    /// Gets ready for the keys to come.
    pub(super) fn make_room(&self) {
        self.filter.make_room();
    }

    /// The tables have this key.
    pub(super) fn tables_have(&self, key: Key) {
        self.filter.insert(key);
    }

    /// It was told of every key of the tables.
    pub(super) fn knows_tables(&self) {
        self.filter.is_whole();
    }

    /// Puts a record before what the tables say, or, if nothing is written, that it is forgotten. Its form is handed out
    /// as it is kept, to whoever gives the change its number.
    pub(super) fn put(
        &self,
        shard: &mut Shard,
        key: Key,
        write: impl FnOnce(&mut Vec<u8>),
        number: impl FnOnce(Option<&[u8]>) -> u64,
    ) {
        // Before anybody could find it.
        let is_new = self.filter.insert(key);
        if !is_new {
            shard.young.spans.swap_remove(&key);
            shard.old.spans.swap_remove(&key);
        }
        let span = shard.forms.add(write);
        // What reaches far into memory comes before the next lock, which waits for all that was written by then. Nobody
        // sees it without a number, since the shard is locked; `number` must not panic.
        let (at, _) = shard.unfolded.insert_full(
            key,
            Unfolded {
                span,
                change: u64::MAX,
            },
        );
        let change = number(span.and_then(|span| shard.forms.get(span)));
        if let Some((_, unfolded)) = shard.unfolded.get_index_mut(at) {
            unfolded.change = change;
        }
    }

    /// Bytes that wait for the tables.
    pub(super) fn unfolded_bytes(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).bytes()).sum()
    }

    /// What of these shards the tables do not have; changes behind this one are not written down yet and stay away.
    pub(super) fn slice(&self, shards: Range<usize>, change: u64) -> Slice {
        let mut slice = Slice::default();
        for (number, shard) in self
            .shards
            .iter()
            .enumerate()
            .take(shards.end)
            .skip(shards.start)
        {
            let shard = lock(shard);
            let (records, forms) = shard.written(change);
            slice.parts.push(Part {
                shard: number,
                change,
                records,
                forms,
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
    pub(super) fn folded(&self, slice: Slice) {
        for part in slice.parts {
            let Some(shard) = self.shards.get(part.shard) else {
                continue;
            };
            lock(shard).folded(&part);
        }
        for (content, key) in slice.contents {
            self.of(content).drop_content(content, key);
        }
    }

    /// What the tables do not have, behind this key, in the order of the keys.
    pub(super) fn behind(&self, after: Option<Key>, most: usize) -> Vec<(Key, Option<Entry>)> {
        let mut found = Vec::new();
        for shard in self.shards.iter().skip(after.map_or(0, place)) {
            let (rows, forms) = lock(shard).behind(after, most - found.len());
            // Read without the lock.
            found.extend(
                rows.into_iter()
                    .map(|(key, span)| (key, span.and_then(|span| forms.read(span)))),
            );
            if found.len() == most {
                break;
            }
        }
        found
    }
}

impl Shard {
    /// What is known of a key without the tables: the record, or that there is none; nothing if they must be asked.
    pub(super) fn get(&mut self, key: Key) -> Option<Option<Entry>> {
        self.unfolded_entry(key)
            .or_else(|| self.cached(key).map(Some))
    }

    fn unfolded_entry(&self, key: Key) -> Option<Option<Entry>> {
        let unfolded = self.unfolded.get(&key)?;
        Some(unfolded.span.and_then(|span| self.forms.read(span)))
    }

    /// What waits for the tables.
    fn bytes(&self) -> usize {
        self.forms.0.len() + self.unfolded.len() * OVERHEAD
    }

    /// What waits for the tables, up to this change.
    fn written(&self, change: u64) -> (Vec<(Key, Option<Span>)>, Forms) {
        let written = self
            .unfolded
            .iter()
            .filter(|(_, unfolded)| unfolded.change <= change);
        self.copied(written.map(|(key, unfolded)| (*key, *unfolded)))
    }

    /// The first behind a key, in their order.
    fn behind(&self, after: Option<Key>, most: usize) -> (Vec<(Key, Option<Span>)>, Forms) {
        let keys = self
            .unfolded
            .keys()
            .copied()
            .filter(|key| Some(*key) > after);
        let next = least(keys.collect(), most).into_iter();
        self.copied(next.filter_map(|key| Some((key, *self.unfolded.get(&key)?))))
    }

    /// Copies of these rows' forms.
    fn copied(
        &self,
        rows: impl Iterator<Item = (Key, Unfolded)>,
    ) -> (Vec<(Key, Option<Span>)>, Forms) {
        let mut forms = Forms::default();
        let rows = rows.map(|(key, unfolded)| {
            (
                key,
                unfolded.span.and_then(|span| forms.copy(&self.forms, span)),
            )
        });
        (rows.collect(), forms)
    }

    /// The tables have this part: what was not changed behind it. What came last stays at hand.
    fn folded(&mut self, part: &Part) {
        self.unfolded.retain(|_, now| now.change > part.change);
        self.gather();
        let recent = part.forms.0.len().saturating_sub(self.generation);
        for (key, span) in &part.records {
            let span = span.filter(|span| span.at >= recent && !self.unfolded.contains_key(key));
            span.and_then(|span| part.forms.get(span))
                .into_iter()
                .for_each(|form| self.cache(*key, form));
        }
    }

    /// Forms that nobody has any more give back their place.
    fn gather(&mut self) {
        // As many are likely to come next.
        let mut forms = Forms(Vec::with_capacity(self.forms.0.len().min(ROOM)));
        for unfolded in self.unfolded.values_mut() {
            unfolded.span = unfolded.span.and_then(|span| forms.copy(&self.forms, span));
        }
        self.forms = forms;
    }

    /// Of what the tables have.
    fn cached(&mut self, key: Key) -> Option<Entry> {
        if let Some(span) = self.young.spans.get(&key) {
            return self.young.forms.read(*span);
        }
        let span = self.old.spans.swap_remove(&key)?;
        let form = self.old.forms.get(span)?.to_vec();
        self.cache(key, &form);
        record::read(&form)
    }

    /// Keeps what the tables have.
    pub(super) fn cache(&mut self, key: Key, form: &[u8]) {
        let Some(span) = self.young.forms.add(|to| to.extend_from_slice(form)) else {
            return;
        };
        self.young.spans.insert(key, span);
        if self.young.forms.0.len() + self.young.spans.len() * OVERHEAD > self.generation {
            let next = Generation {
                spans: Table::with_capacity_and_hasher(
                    self.young.spans.len(),
                    RandomState::default(),
                ),
                forms: Forms(Vec::with_capacity(self.young.forms.0.len())),
            };
            self.old = replace(&mut self.young, next);
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

impl Forms {
    /// Has a form written behind the others.
    fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Option<Span> {
        let at = self.0.len();
        write(&mut self.0);
        let length = u32::try_from(self.0.len() - at)
            .ok()
            .and_then(NonZeroU32::new)?;
        Some(Span { at, length })
    }

    /// A copy of one of others.
    fn copy(&mut self, others: &Self, span: Span) -> Option<Span> {
        let form = others.get(span)?;
        self.add(|to| to.extend_from_slice(form))
    }

    fn get(&self, span: Span) -> Option<&[u8]> {
        self.0.get(span.at..span.at + span.length.get() as usize)
    }

    fn read(&self, span: Span) -> Option<Entry> {
        self.get(span).and_then(record::read)
    }
}

impl Slice {
    /// Whether no shard has a part in it.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Keys in their order, with the record's form; none if it was forgotten.
    pub(super) fn records(&self) -> impl Iterator<Item = (Key, Option<&[u8]>)> {
        self.parts.iter().flat_map(|part| {
            let form = |span: Option<Span>| span.and_then(|span| part.forms.get(span));
            part.records
                .iter()
                .map(move |(key, span)| (*key, form(*span)))
        })
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
    usize::from(first >> 3)
}
