//! What requests and the writer share: memory before the tables, and how a look is taken into account.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread::sleep;

use tokio::sync::watch;

use crate::ledger::event::EventKind;
use crate::ledger::key::Key;
use crate::ledger::record::{At, Record};
use crate::ledger::seen::{Seen, What};
use crate::ledger::transition::{self, Kept, Tolerance};
use crate::vocab::crawl_status::CrawlStatus;

use super::disk::{Failed, Place, View};
use super::form::record::{self, Entry};
use super::journal::Written;
use super::memory::{Memory, Shard};
use super::queue::{Change, Queue};
use super::{AGAIN, Cursor, KEYS_AT_ONCE, Note, Stats};

/// What requests and the writer share.
pub(super) struct Inner {
    pub(super) tolerance: Tolerance,
    pub(super) place: Place,
    pub(super) memory: Memory,
    pub(super) view: View,
    /// It is about to be closed.
    pub(super) ends: AtomicBool,
    pub(super) queue: Queue,
    pub(super) events: [AtomicU64; EventKind::ALL.len()],
    pub(super) told: watch::Sender<u64>,
    pub(super) failing: AtomicBool,
    /// The writer has panicked.
    pub(super) broken: AtomicBool,
    pub(super) failures: AtomicU64,
    /// So many bytes in memory are worth a pass over the tables.
    pub(super) unfolded_most: usize,
    /// Bytes of the database's own cache.
    pub(super) pages: usize,
}

impl Inner {
    /// A change that is in the journal only.
    pub(super) fn read_back(&self, change: Written<'_>) {
        let Written { key, form, content } = change;
        if let Some(content) = content {
            self.memory.of(content).put_content(content, key);
        }
        let mut shard = self.memory.of(key);
        let before = shard.get(key).flatten();
        let left = left(before.as_ref(), form.and_then(record::content_of));
        let write = |to: &mut Vec<u8>| form.into_iter().for_each(|form| to.extend_from_slice(form));
        self.memory.put(&mut shard, key, write, |_| 0);
        drop(shard);
        self.leave(left, key);
    }

    /// Tells the filter of every key that the tables have. A part at a time: what reads for long keeps old pages from
    /// being used again.
    pub(super) fn read_keys(&self) {
        let mut after = None;
        while !self.ends.load(Ordering::Relaxed) {
            let Ok(keys) = self.view.keys(after, KEYS_AT_ONCE) else {
                sleep(AGAIN);
                continue;
            };
            keys.iter().for_each(|key| self.memory.tables_have(*key));
            if keys.len() < KEYS_AT_ONCE {
                return self.memory.knows_tables();
            }
            after = keys.last().copied();
        }
    }

    /// The writer has panicked.
    pub(super) fn broken(&self) {
        let lost = self.queue.dropped();
        tracing::error!(
            lost,
            "the ledger's writer has broken down, please report it: what becomes of URLs is not remembered until the \
             next start"
        );
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.failing.store(true, Ordering::Relaxed);
        self.broken.store(true, Ordering::Relaxed);
    }

    pub(super) fn note(&self, note: Note) {
        // What cannot be read must not be written over.
        if self.queue.must_drop() || self.take(note).is_err() {
            self.queue.drop_one();
        }
    }

    /// Takes a look into account, if what was there can be read.
    pub(super) fn take(&self, note: Note) -> Result<(), Failed> {
        // The first that has a content stays the one to be found by it.
        let content = match note.content {
            Some(content) => self.holder(content)?.is_none().then_some(content),
            None => None,
        };
        let mut shard = self.memory.of(note.key);
        let before = if self.memory.lacks(note.key) {
            None
        } else {
            self.entry(&mut shard, note.key)?
        };
        let document_at = document_at(&note.seen);
        let noted = transition::note(
            before.as_ref().map(|entry| &*entry.record),
            note.seen,
            self.tolerance,
        );
        let now = match &noted.kept {
            Kept::Same => return Ok(()),
            Kept::Forgotten => None,
            Kept::Changed(record) => Some(record),
        };
        // The key of its document: a new one's, or the one that it had.
        let delivered =
            |record: &Record| document_at.is_some() && record.last_fetched == document_at;
        let had = before.as_ref().and_then(|entry| entry.content);
        let has = now.and_then(|record| if delivered(record) { note.content } else { had });
        let moved = (
            before.as_ref().map(|entry| entry.record.status.0),
            now.map(|record| record.status.0),
        );
        let left = left(before.as_ref(), has);
        let write = |to: &mut Vec<u8>| {
            now.into_iter()
                .for_each(|record| record::write(record, has, to))
        };
        // In the order in which they hold: the shard is still locked.
        self.memory.put(&mut shard, note.key, write, |form| {
            let written = Written {
                key: note.key,
                form,
                content,
            };
            self.queue.push(Change {
                written,
                event: noted.owed,
                moved,
            })
        });
        drop(shard);
        if let Some(content) = content {
            self.memory.of(content).put_content(content, note.key);
        }
        self.leave(left, note.key);
        Ok(())
    }

    /// A content that a record has no more does not lead to it. No shard may be locked.
    pub(super) fn leave(&self, left: Option<Key>, key: Key) {
        let Some(content) = left else { return };
        self.memory.of(content).drop_content(content, key);
        // Another look at the URL may have brought it back meanwhile.
        let now = self.entry(&mut self.memory.of(key), key).ok().flatten();
        if now.is_some_and(|entry| entry.content == Some(content)) {
            self.memory.of(content).put_content(content, key);
        }
    }

    pub(super) fn entry(
        &self,
        shard: &mut MutexGuard<'_, Shard>,
        key: Key,
    ) -> Result<Option<Entry>, Failed> {
        if let Some(entry) = shard.get(key) {
            return Ok(entry);
        }
        let Some(form) = self.view.record(key)? else {
            return Ok(None);
        };
        shard.cache(key, &form);
        Ok(record::read(&form))
    }

    /// The record that a content leads to, if it still has it.
    pub(super) fn holder(&self, content: Key) -> Result<Option<Arc<Record>>, Failed> {
        let in_memory = self.memory.of(content).content(content);
        let key = match in_memory {
            Some(key) => Some(key),
            None => self.view.content(content)?,
        };
        let Some(key) = key else { return Ok(None) };
        let entry = self.entry(&mut self.memory.of(key), key)?;
        Ok(entry
            .filter(|entry| entry.content == Some(content))
            .map(|entry| entry.record))
    }

    /// What memory and tables have, as one. Memory first: what is folded meanwhile is seen twice then, and not never.
    pub(super) fn records(
        &self,
        mut after: Option<Key>,
        most: usize,
    ) -> Result<Vec<(Key, Arc<Record>)>, Failed> {
        let mut found = Vec::new();
        while found.len() < most {
            let (memory, folded) = (
                self.memory.behind(after, most),
                self.view.behind(after, most)?,
            );
            // Behind the last one of a list that was cut short there may be others.
            let ends = [
                (memory.len(), memory.last().map(|row| row.0)),
                (folded.len(), folded.last().map(|row| row.0)),
            ];
            let end = ends
                .into_iter()
                .filter(|(rows, _)| *rows >= most)
                .filter_map(|(_, last)| last)
                .min();
            let mut rows: BTreeMap<Key, Option<Entry>> = folded
                .into_iter()
                .map(|(key, entry)| (key, Some(entry)))
                .collect();
            rows.extend(memory);
            let rows = rows
                .into_iter()
                .filter(|(key, _)| end.is_none_or(|end| *key <= end));
            found.extend(rows.filter_map(|(key, entry)| Some((key, entry?.record))));
            after = end;
            if end.is_none() {
                break;
            }
        }
        found.truncate(most);
        Ok(found)
    }

    pub(super) fn stats(&self) -> Stats {
        let positive = |count| u64::try_from(count).unwrap_or(0);
        let urls = CrawlStatus::ALL
            .into_iter()
            .zip(self.queue.urls().map(positive));
        let events = self
            .events
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        Stats {
            urls: urls.filter(|(_, count)| *count > 0).collect(),
            events: EventKind::ALL.into_iter().zip(events).collect(),
            last_event: Cursor(*self.told.borrow()),
            queue: self.queue.waiting(),
            waits: self.queue.waits(),
            dropped: self.queue.dropped(),
            failures: self.failures.load(Ordering::Relaxed),
            failing: self.failing.load(Ordering::Relaxed),
            broken: self.broken.load(Ordering::Relaxed),
        }
    }

    pub(super) fn count_event(&self, kind: EventKind) {
        for (other, count) in EventKind::ALL.into_iter().zip(&self.events) {
            count.fetch_add(u64::from(other == kind), Ordering::Relaxed);
        }
    }
}

/// The content that a record had and has no more.
fn left(before: Option<&Entry>, has: Option<Key>) -> Option<Key> {
    before
        .and_then(|entry| entry.content)
        .filter(|had| has != Some(*had))
}

/// When a document was delivered, as far as the look tells.
fn document_at(seen: &Seen) -> Option<At> {
    match &seen.what {
        What::Answered(answered) => answered.document.is_some().then_some(seen.at),
        What::Failed { .. } | What::Refused(_) | What::Allowed => None,
    }
}
