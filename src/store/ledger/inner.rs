//! What requests and the writer share: memory before the tables, and how a look is taken into account.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread::sleep;

use tokio::sync::watch;

use crate::ledger::event::LedgerEventKind;
use crate::ledger::key::LedgerKey;
use crate::ledger::observation::{ObservationOutcome, UrlObservation};
use crate::ledger::record::{LedgerRecord, UnixMillis};
use crate::ledger::transition::{self, ErrorTolerance, RecordUpdate};
use crate::model::crawl_status::CrawlStatus;

use super::codec::record::{self, StoredRecord};
use super::database::{LedgerLocation, LedgerReadView, LedgerUnavailable};
use super::journal::JournalChange;
use super::memtable::{Memtable, MemtableShard};
use super::queue::{LedgerQueue, QueuedChange};
use super::{FeedCursor, KEYS_AT_ONCE, LedgerStats, LedgerUpdate, RETRY_DELAY};

/// What requests and the writer share.
pub(super) struct LedgerInner {
    pub(super) tolerance: ErrorTolerance,
    pub(super) location: LedgerLocation,
    pub(super) memtable: Memtable,
    pub(super) view: LedgerReadView,
    /// It is about to be closed.
    pub(super) closing: AtomicBool,
    pub(super) queue: LedgerQueue,
    pub(super) events: [AtomicU64; LedgerEventKind::ALL.len()],
    pub(super) last_event: watch::Sender<u64>,
    pub(super) failing: AtomicBool,
    /// The writer has panicked.
    pub(super) broken: AtomicBool,
    pub(super) failures: AtomicU64,
    /// So many bytes in memory are worth a pass over the tables.
    pub(super) max_unflushed_bytes: usize,
    /// Bytes of the database's own cache.
    pub(super) page_cache_bytes: usize,
}

impl LedgerInner {
    /// A change that is in the journal only.
    pub(super) fn replay_change(&self, change: JournalChange<'_>) {
        let JournalChange {
            key,
            encoded: form,
            content_key: content,
        } = change;
        if let Some(content) = content {
            self.memtable.lock_shard(content).put_content(content, key);
        }
        let mut shard = self.memtable.lock_shard(key);
        let before = shard.get(key).flatten();
        let left = dropped_content(before.as_ref(), form.and_then(record::decode_content_key));
        let write = |to: &mut Vec<u8>| form.into_iter().for_each(|form| to.extend_from_slice(form));
        self.memtable.put(&mut shard, key, write, |_| 0);
        drop(shard);
        self.unlink_content(left, key);
    }

    /// Tells the filter of every key that the tables have. A part at a time: what reads for long keeps old pages from
    /// being used again.
    pub(super) fn fill_filter(&self) {
        let mut after = None;
        while !self.closing.load(Ordering::Relaxed) {
            let Ok(keys) = self.view.keys_after(after, KEYS_AT_ONCE) else {
                sleep(RETRY_DELAY);
                continue;
            };
            keys.iter()
                .for_each(|key| self.memtable.add_table_key(*key));
            if keys.len() < KEYS_AT_ONCE {
                return self.memtable.set_filter_complete();
            }
            after = keys.last().copied();
        }
    }

    /// The writer has panicked.
    pub(super) fn record_writer_panic(&self) {
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

    pub(super) fn record(&self, note: LedgerUpdate) {
        // What cannot be read must not be written over.
        if self.queue.must_drop() || self.try_record(note).is_err() {
            self.queue.record_drop();
        }
    }

    /// Takes a look into account, if what was there can be read.
    pub(super) fn try_record(&self, note: LedgerUpdate) -> Result<(), LedgerUnavailable> {
        // The first that has a content stays the one to be found by it.
        let content = match note.content_key {
            Some(content) => self
                .record_with_content(content)?
                .is_none()
                .then_some(content),
            None => None,
        };
        let mut shard = self.memtable.lock_shard(note.key);
        let before = if self.memtable.is_absent(note.key) {
            None
        } else {
            self.load_record(&mut shard, note.key)?
        };
        let document_at = document_time(&note.observation);
        let noted = transition::apply_observation(
            before.as_ref().map(|entry| &*entry.record),
            note.observation,
            self.tolerance,
        );
        let now = match &noted.update {
            RecordUpdate::Unchanged => return Ok(()),
            RecordUpdate::Forgotten => None,
            RecordUpdate::Changed(record) => Some(record),
        };
        // The key of its document: a new one's, or the one that it had.
        let delivered =
            |record: &LedgerRecord| document_at.is_some() && record.last_fetched == document_at;
        let had = before.as_ref().and_then(|entry| entry.content_key);
        let has = now.and_then(|record| {
            if delivered(record) {
                note.content_key
            } else {
                had
            }
        });
        let moved = (
            before.as_ref().map(|entry| entry.record.status.0),
            now.map(|record| record.status.0),
        );
        let left = dropped_content(before.as_ref(), has);
        let write = |to: &mut Vec<u8>| {
            now.into_iter()
                .for_each(|record| record::encode(record, has, to))
        };
        // In the order in which they hold: the shard is still locked.
        self.memtable.put(&mut shard, note.key, write, |form| {
            let written = JournalChange {
                key: note.key,
                encoded: form,
                content_key: content,
            };
            self.queue.push(QueuedChange {
                journal_change: written,
                event: noted.event,
                status_change: moved,
            })
        });
        drop(shard);
        if let Some(content) = content {
            self.memtable
                .lock_shard(content)
                .put_content(content, note.key);
        }
        self.unlink_content(left, note.key);
        Ok(())
    }

    /// A content that a record has no more does not lead to it. No shard may be locked.
    pub(super) fn unlink_content(&self, left: Option<LedgerKey>, key: LedgerKey) {
        let Some(content) = left else { return };
        self.memtable
            .lock_shard(content)
            .remove_content(content, key);
        // Another look at the URL may have brought it back meanwhile.
        let now = self
            .load_record(&mut self.memtable.lock_shard(key), key)
            .ok()
            .flatten();
        if now.is_some_and(|entry| entry.content_key == Some(content)) {
            self.memtable.lock_shard(content).put_content(content, key);
        }
    }

    pub(super) fn load_record(
        &self,
        shard: &mut MutexGuard<'_, MemtableShard>,
        key: LedgerKey,
    ) -> Result<Option<StoredRecord>, LedgerUnavailable> {
        if let Some(entry) = shard.get(key) {
            return Ok(entry);
        }
        let Some(form) = self.view.record(key)? else {
            return Ok(None);
        };
        shard.cache_record(key, &form);
        Ok(record::decode(&form))
    }

    /// The record that a content leads to, if it still has it.
    pub(super) fn record_with_content(
        &self,
        content: LedgerKey,
    ) -> Result<Option<Arc<LedgerRecord>>, LedgerUnavailable> {
        let in_memory = self.memtable.lock_shard(content).key_by_content(content);
        let key = match in_memory {
            Some(key) => Some(key),
            None => self.view.key_by_content(content)?,
        };
        let Some(key) = key else { return Ok(None) };
        let entry = self.load_record(&mut self.memtable.lock_shard(key), key)?;
        Ok(entry
            .filter(|entry| entry.content_key == Some(content))
            .map(|entry| entry.record))
    }

    /// What memory and tables have, as one. Memory first: what is folded meanwhile is seen twice then, and not never.
    pub(super) fn records(
        &self,
        mut after: Option<LedgerKey>,
        most: usize,
    ) -> Result<Vec<(LedgerKey, Arc<LedgerRecord>)>, LedgerUnavailable> {
        let mut found = Vec::new();
        while found.len() < most {
            let (memory, folded) = (
                self.memtable.records_after(after, most),
                self.view.records_after(after, most)?,
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
            let mut rows: BTreeMap<LedgerKey, Option<StoredRecord>> = folded
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

    pub(super) fn stats(&self) -> LedgerStats {
        let positive = |count| u64::try_from(count).unwrap_or(0);
        let urls = CrawlStatus::ALL
            .into_iter()
            .zip(self.queue.urls().map(positive));
        let events = self
            .events
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        LedgerStats {
            urls: urls.filter(|(_, count)| *count > 0).collect(),
            events: LedgerEventKind::ALL.into_iter().zip(events).collect(),
            last_event: FeedCursor(*self.last_event.borrow()),
            queued: self.queue.waiting(),
            waits: self.queue.waits(),
            dropped: self.queue.dropped(),
            failures: self.failures.load(Ordering::Relaxed),
            failing: self.failing.load(Ordering::Relaxed),
            broken: self.broken.load(Ordering::Relaxed),
        }
    }

    pub(super) fn count_event(&self, kind: LedgerEventKind) {
        for (other, count) in LedgerEventKind::ALL.into_iter().zip(&self.events) {
            count.fetch_add(u64::from(other == kind), Ordering::Relaxed);
        }
    }
}

/// The content that a record had and has no more.
fn dropped_content(before: Option<&StoredRecord>, has: Option<LedgerKey>) -> Option<LedgerKey> {
    before
        .and_then(|entry| entry.content_key)
        .filter(|had| has != Some(*had))
}

/// When a document was delivered, as far as the look tells.
fn document_time(seen: &UrlObservation) -> Option<UnixMillis> {
    match &seen.outcome {
        ObservationOutcome::Answered(answered) => answered.document.is_some().then_some(seen.at),
        ObservationOutcome::Failed { .. }
        | ObservationOutcome::Refused(_)
        | ObservationOutcome::Allowed => None,
    }
}
