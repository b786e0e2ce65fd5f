//! The state shared by requests and the writer: the memtable in front of the tables, and the recording of
//! observations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;

use parking_lot::MutexGuard;
use tokio::sync::watch;

use crate::ledger::code::OmnifindCode;
use crate::ledger::event::LedgerEventKind;
use crate::ledger::filter::LedgerFilter;
use crate::ledger::key::{ContentKey, LedgerKey};
use crate::ledger::observation::{ObservationOutcome, UrlObservation};
use crate::ledger::record::{LedgerRecord, UnixMillis};
use crate::ledger::removal::{RemovalAccount, RemovalCauseKind, RemovalDecision, RemovalSchedule};
use crate::ledger::transition::{self, ErrorTolerance};
use crate::model::crawl_status::CrawlStatus;

use super::codec::record::{self, StoredRecord};
use super::database::{LedgerLocation, LedgerReadView, LedgerUnavailable};
use super::journal::JournalChange;
use super::memtable::{Memtable, MemtableShard};
use super::queue::{CountedRecord, LedgerQueue, QueuedChange, UrlCounts};
use super::removals::{self, PendingRowKey, RemovalChanges};
use super::{FeedCursor, KEYS_AT_ONCE, LedgerStats, LedgerUpdate, RETRY_DELAY};

/// Counters of events, in the order of [`LedgerEventKind::ALL`].
pub(super) type EventCounters = [AtomicU64; LedgerEventKind::ALL.len()];

/// The state shared by requests and the writer.
pub(super) struct LedgerInner {
    pub(super) tolerance: ErrorTolerance,
    pub(super) removals: RemovalSchedule,
    pub(super) location: LedgerLocation,
    pub(super) memtable: Memtable,
    pub(super) view: LedgerReadView,
    /// `true` while the ledger is being closed.
    pub(super) closing: AtomicBool,
    pub(super) queue: LedgerQueue,
    /// The number of events by kind since the start of the process.
    pub(super) events: EventCounters,
    /// The number of events by kind from `events_counted_from` on.
    pub(super) total_events: EventCounters,
    /// The number of the first event in `total_events`.
    pub(super) events_counted_from: u64,
    pub(super) last_event: watch::Sender<u64>,
    pub(super) failing: AtomicBool,
    /// `true` if the writer has panicked.
    pub(super) broken: AtomicBool,
    pub(super) failures: AtomicU64,
    /// The number of bytes in memory that start a compaction.
    pub(super) max_unflushed_bytes: usize,
    /// The size of the database's own cache, in bytes.
    pub(super) page_cache_bytes: usize,
}

impl LedgerInner {
    /// Applies a change that is only in the journal.
    pub(super) fn replay_change(&self, change: JournalChange<'_>) {
        let JournalChange {
            key,
            encoded,
            content_key: content,
        } = change;
        self.link_content(content, key);
        let mut shard = self.memtable.lock_shard(key);
        let before = shard.get(key).flatten();
        let dropped_key = dropped_content(
            before.as_ref(),
            encoded.and_then(record::decode_content_key),
        );
        let write = |to: &mut Vec<u8>| to.extend_from_slice(encoded.unwrap_or_default());
        self.memtable.put(&mut shard, key, write, |_| 0);
        drop(shard);
        self.unlink_content(dropped_key, key);
    }

    /// Adds every key of the tables to the filter, in steps: a long read transaction would keep old
    /// pages from being reused.
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

    pub(super) fn record_writer_panic(&self) {
        let lost = self.queue.dropped();
        tracing::error!(
            lost,
            "the ledger's writer has panicked; please report this. Nothing is recorded about URLs until the next \
            start"
        );
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.failing.store(true, Ordering::Relaxed);
        self.broken.store(true, Ordering::Relaxed);
    }

    pub(super) fn record(&self, update: LedgerUpdate) {
        // A record that cannot be read must not be overwritten.
        if self.queue.must_drop() || self.try_record(update).is_err() {
            self.queue.record_drop();
        }
    }

    /// Records an observation, if the current record can be read.
    pub(super) fn try_record(&self, update: LedgerUpdate) -> Result<(), LedgerUnavailable> {
        let new_content = self.unclaimed_content(update.content_key)?;
        let mut shard = self.memtable.lock_shard(update.key);
        let before = if self.memtable.is_absent(update.key) {
            None
        } else {
            self.load_record(&mut shard, update.key)?
        };
        let document_at = document_time(&update.observation);
        let counted = counted_removal(&update.observation);
        let transition = transition::apply_observation(
            before.as_ref().map(|entry| &*entry.record),
            update.observation,
            self.tolerance,
            self.removals,
        );
        let Some(record) = &transition.record else {
            return Ok(());
        };
        // A newly delivered document has a new content key; otherwise the record keeps its own.
        let old_key = before.as_ref().and_then(|entry| entry.content_key);
        let new_key = if document_at.is_some() && record.last_fetched == document_at {
            update.content_key
        } else {
            old_key
        };
        let count_change = (
            before
                .as_ref()
                .map(|entry| CountedRecord::from(&*entry.record)),
            Some(CountedRecord::from(record)),
        );
        let removal_changes = RemovalChanges::new(
            update.key,
            before.as_ref().map(|entry| &*entry.record),
            Some(record),
            counted.filter(|_| transition.event.is_some()),
        );
        let dropped_key = dropped_content(before.as_ref(), new_key);
        let write = |to: &mut Vec<u8>| record::encode(record, new_key, to);
        // Changes are queued in the order in which they take effect: the shard is still locked.
        self.memtable.put(&mut shard, update.key, write, |encoded| {
            let journal_change = JournalChange {
                key: update.key,
                encoded,
                content_key: new_content,
            };
            self.queue.push(QueuedChange {
                journal_change,
                event: transition.event,
                count_change,
                removals: removal_changes,
            })
        });
        drop(shard);
        self.link_content(new_content, update.key);
        self.unlink_content(dropped_key, update.key);
        Ok(())
    }

    /// Deletes the record of a URL, if it matches the filter. Returns `true` if it did.
    pub(super) fn forget(
        &self,
        key: LedgerKey,
        filter: &LedgerFilter,
    ) -> Result<bool, LedgerUnavailable> {
        if self.queue.is_closed() {
            return Err(LedgerUnavailable);
        }
        let mut shard = self.memtable.lock_shard(key);
        let before = if self.memtable.is_absent(key) {
            None
        } else {
            self.load_record(&mut shard, key)?
        };
        let Some(before) = before.filter(|entry| filter.matches(&entry.record)) else {
            return Ok(false);
        };
        let removals = RemovalChanges::new(key, Some(&before.record), None, None);
        self.memtable.put(
            &mut shard,
            key,
            |_| {},
            |encoded| {
                self.queue.push(QueuedChange {
                    journal_change: JournalChange {
                        key,
                        encoded,
                        content_key: None,
                    },
                    event: None,
                    count_change: (Some(CountedRecord::from(&*before.record)), None),
                    removals,
                })
            },
        );
        drop(shard);
        self.unlink_content(before.content_key, key);
        Ok(true)
    }

    /// Counts the URLs by code, in a ledger of a version that did not count them.
    pub(super) fn count_codes(&self) -> Result<[i64; OmnifindCode::ALL.len()], LedgerUnavailable> {
        let mut counts = UrlCounts::default();
        let mut after = None;
        loop {
            let records = self.records(after, KEYS_AT_ONCE)?;
            for (_, record) in &records {
                counts.add_record(CountedRecord::from(&**record), 1);
            }
            if records.len() < KEYS_AT_ONCE {
                return Ok(counts.by_code);
            }
            after = records.last().map(|(key, _)| *key);
        }
    }

    /// Deletes a row of the index of pending removals, unless the record has this removal.
    pub(super) fn delete_stale_entry(&self, key: LedgerKey, row: PendingRowKey) {
        // Locked until the deletion is queued: an observation may bring the removal back.
        let mut shard = self.memtable.lock_shard(key);
        let Ok(entry) = self.load_record(&mut shard, key) else {
            return;
        };
        let pending = entry
            .as_ref()
            .and_then(|entry| entry.record.pending_removal.as_deref());
        if pending.is_none_or(|pending| removals::row_key(pending, key) != row) {
            self.queue.delete_pending_row(row);
        }
    }

    /// Returns the keys of a content that lead to no other record: each leads to the first that has it.
    fn unclaimed_content(
        &self,
        content: Option<ContentKey>,
    ) -> Result<Option<ContentKey>, LedgerUnavailable> {
        let Some(content) = content else {
            return Ok(None);
        };
        let mut unclaimed = [None; 2];
        for (slot, part) in unclaimed.iter_mut().zip(content.parts()) {
            *slot = self.record_with_content(part)?.is_none().then_some(part);
        }
        Ok(ContentKey::from_parts(unclaimed))
    }

    /// Adds the entries of a content. No shard may be locked.
    fn link_content(&self, content: Option<ContentKey>, key: LedgerKey) {
        for part in content.iter().flat_map(ContentKey::parts) {
            self.memtable.lock_shard(part).put_content(part, key);
        }
    }

    /// Removes the entries of a content that a record has lost. No shard may be locked.
    pub(super) fn unlink_content(&self, dropped_key: Option<ContentKey>, key: LedgerKey) {
        for part in dropped_key.iter().flat_map(ContentKey::parts) {
            self.memtable.lock_shard(part).remove_content(part, key);
            // A concurrent observation of the URL may have restored it.
            let current = self
                .load_record(&mut self.memtable.lock_shard(key), key)
                .ok()
                .flatten();
            if current.is_some_and(|entry| entry.has_content(part)) {
                self.memtable.lock_shard(part).put_content(part, key);
            }
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
        let Some(encoded) = self.view.record(key)? else {
            return Ok(None);
        };
        shard.cache_record(key, &encoded);
        Ok(record::decode(&encoded))
    }

    /// Returns the record that a content leads to, if it still has that content.
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
            .filter(|entry| entry.has_content(content))
            .map(|entry| entry.record))
    }

    /// Returns records from memory and the tables. Memory is read first: a record that is flushed in the
    /// meantime is then seen twice rather than never.
    pub(super) fn records(
        &self,
        mut after: Option<LedgerKey>,
        most: usize,
    ) -> Result<Vec<(LedgerKey, Arc<LedgerRecord>)>, LedgerUnavailable> {
        let mut found = Vec::new();
        while found.len() < most {
            let memory = self.memtable.records_after(after, most);
            let flushed = self.view.records_after(after, most)?;
            // If a list was cut short, other records may follow its last one.
            let ends = [
                (memory.len(), memory.last().map(|row| row.0)),
                (flushed.len(), flushed.last().map(|row| row.0)),
            ];
            let end = ends
                .into_iter()
                .filter(|(rows, _)| *rows >= most)
                .filter_map(|(_, last)| last)
                .min();
            let mut rows: BTreeMap<LedgerKey, Option<StoredRecord>> = flushed
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
        let counts = self.queue.urls();
        LedgerStats {
            urls: positive_counts(CrawlStatus::ALL, counts.by_status),
            codes: positive_counts(OmnifindCode::ALL, counts.by_code),
            events: event_counts(&self.events),
            total_events: event_counts(&self.total_events),
            events_counted_from: FeedCursor(self.events_counted_from),
            pending_removals: RemovalCauseKind::ALL
                .into_iter()
                .zip(self.queue.pending_removals())
                .map(|(kind, count)| (kind, u64::try_from(count).unwrap_or(0)))
                .collect(),
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
        for counts in [&self.events, &self.total_events] {
            for (other, count) in LedgerEventKind::ALL.into_iter().zip(counts) {
                count.fetch_add(u64::from(other == kind), Ordering::Relaxed);
            }
        }
    }
}

/// Returns the counts that are not 0.
fn positive_counts<K: Ord, const N: usize>(keys: [K; N], counts: [i64; N]) -> BTreeMap<K, u64> {
    let counts = counts.map(|count| u64::try_from(count).unwrap_or(0));
    keys.into_iter()
        .zip(counts)
        .filter(|(_, count)| *count > 0)
        .collect()
}

fn event_counts(counts: &EventCounters) -> BTreeMap<LedgerEventKind, u64> {
    let counts = counts.iter().map(|count| count.load(Ordering::Relaxed));
    LedgerEventKind::ALL.into_iter().zip(counts).collect()
}

/// Returns the content that a record had and has lost.
fn dropped_content(
    before: Option<&StoredRecord>,
    new_key: Option<ContentKey>,
) -> Option<ContentKey> {
    before?.content_key?.without(new_key.as_ref())
}

/// Returns the time at which an observation delivered a document.
fn document_time(observation: &UrlObservation) -> Option<UnixMillis> {
    match &observation.outcome {
        ObservationOutcome::Answered(response) => {
            response.document.is_some().then_some(observation.at)
        }
        ObservationOutcome::Failed { .. }
        | ObservationOutcome::Refused(_)
        | ObservationOutcome::SweptRefusal(_)
        | ObservationOutcome::Allowed
        | ObservationOutcome::PendingRemoval(..) => None,
    }
}

/// Returns the account and the time of a removal that counts, if the observation orders one.
fn counted_removal(observation: &UrlObservation) -> Option<(RemovalAccount, UnixMillis)> {
    match &observation.outcome {
        ObservationOutcome::PendingRemoval(pending, RemovalDecision::Order) => {
            Some((pending.cause.account()?, observation.at))
        }
        ObservationOutcome::PendingRemoval(
            _,
            RemovalDecision::OrderConfirmed | RemovalDecision::Cancel,
        )
        | ObservationOutcome::Answered(_)
        | ObservationOutcome::Failed { .. }
        | ObservationOutcome::Refused(_)
        | ObservationOutcome::SweptRefusal(_)
        | ObservationOutcome::Allowed => None,
    }
}
