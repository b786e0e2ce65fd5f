//! The queue between requests, which add changes, and the writer, which takes them in batches.

use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
#[cfg(test)]
use std::mem::take;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};

use crate::ledger::code::OmnifindCode;
use crate::ledger::event::LedgerEvent;
use crate::ledger::record::LedgerRecord;
use crate::model::crawl_status::CrawlStatus;

use super::LedgerFullAction;
use super::database::RetentionCutoff;
use super::journal::{JournalChange, JournalPages};
use super::removals::{PendingCounts, PendingRowKey, RemovalBatch, RemovalChanges};

/// The time for which the writer waits for more changes, so that a batch is worth a commit.
const GATHER_TIME: Duration = Duration::from_secs(1);
/// The number of changes that are written without waiting for more.
const FLUSH_THRESHOLD: usize = 4_096;

/// The effect of an observation.
pub(super) struct QueuedChange<'c> {
    pub(super) journal_change: JournalChange<'c>,
    pub(super) event: Option<LedgerEvent>,
    /// The URL as it is counted before and after; `None` without a record.
    pub(super) count_change: (Option<CountedRecord>, Option<CountedRecord>),
    pub(super) removals: RemovalChanges,
}

/// The properties by which a record is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CountedRecord {
    status: CrawlStatus,
    code: Option<OmnifindCode>,
}

impl From<&LedgerRecord> for CountedRecord {
    fn from(record: &LedgerRecord) -> Self {
        Self {
            status: record.status.0,
            code: record.code.map(OmnifindCode::from_number),
        }
    }
}

/// The number of URLs of each status, and of each code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct UrlCounts {
    pub(super) by_status: [i64; CrawlStatus::ALL.len()],
    pub(super) by_code: [i64; OmnifindCode::ALL.len()],
}

impl UrlCounts {
    /// Adds a number of records of one kind.
    pub(super) fn add_record(&mut self, record: CountedRecord, delta: i64) {
        let status = self.by_status.get_mut(record.status.index());
        let code = record.code.map(OmnifindCode::index);
        let code = code.and_then(|code| self.by_code.get_mut(code));
        for count in status.into_iter().chain(code) {
            *count += delta;
        }
    }

    fn add(&mut self, more: &Self) {
        let codes = self.by_code.iter_mut().zip(more.by_code);
        for (count, delta) in self.by_status.iter_mut().zip(more.by_status).chain(codes) {
            *count += delta;
        }
    }
}

/// A batch of changes for the writer.
#[derive(Debug, Default)]
pub(super) struct WriteBatch {
    /// The number of changes.
    pub(super) changes: usize,
    /// The changes as pages of the journal.
    pub(super) pages: JournalPages,
    /// The events caused by the changes.
    pub(super) events: Vec<LedgerEvent>,
    /// The changes in the numbers of URLs.
    pub(super) urls: UrlCounts,
    /// The changes to pending removals and to the accounts of ordered ones.
    pub(super) removals: RemovalBatch,
    /// Values stored by other parts of the program, by name.
    pub(super) values: BTreeMap<String, Vec<u8>>,
    /// Events to delete.
    pub(super) cutoff: Option<RetentionCutoff>,
    /// The number of the last change.
    pub(super) last_change: u64,
}

/// The writer's next step after a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriterCommand {
    /// Continues.
    Continue,
    /// Ends once everything is written.
    Finish,
    /// Ends without writing.
    #[cfg(test)]
    Abandon,
}

/// Work that the writer has left without new changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RemainingWork {
    Nothing,
    /// A compaction is in progress.
    Some,
}

/// The queue between requests and the writer.
pub(super) struct LedgerQueue {
    state: Mutex<LedgerQueueState>,
    work: Condvar,
    /// The number of changes that are not on disk; written under the lock only.
    waiting: AtomicUsize,
    capacity: usize,
    flush_threshold: usize,
    on_full: LedgerFullAction,
    room: Notify,
    durable: watch::Sender<u64>,
    waits: AtomicU64,
    dropped: AtomicU64,
    /// `true` once the writer has ended.
    closed: AtomicBool,
}

#[derive(Default)]
struct LedgerQueueState {
    batch: WriteBatch,
    /// The numbers of URLs, without the changes of the batch.
    urls: UrlCounts,
    /// The number of pending removals of each kind, without the changes of the batch.
    pending: PendingCounts,
    flush_requested: bool,
    command: Option<WriterCommand>,
    /// The writer panics with its next batch.
    #[cfg(test)]
    panic: bool,
}

impl LedgerQueue {
    /// Creates an empty queue; `urls` and `pending` are the counts on disk.
    pub(super) fn new(
        most: usize,
        on_full: LedgerFullAction,
        urls: UrlCounts,
        pending: PendingCounts,
    ) -> Self {
        Self {
            state: Mutex::new(LedgerQueueState {
                urls,
                pending,
                ..LedgerQueueState::default()
            }),
            work: Condvar::new(),
            waiting: AtomicUsize::new(0),
            capacity: most.max(1),
            flush_threshold: FLUSH_THRESHOLD.min(most.div_ceil(2)).max(1),
            on_full,
            room: Notify::new(),
            durable: watch::Sender::new(0),
            waits: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Adds a change and returns its number, from 1.
    pub(super) fn push(&self, change: QueuedChange<'_>) -> u64 {
        let mut state = self.state.lock();
        if self.is_closed() {
            self.record_drop();
            return state.batch.last_change;
        }
        // Only written under the lock, so an atomic increment is not needed.
        self.waiting.store(self.waiting() + 1, Ordering::Relaxed);
        state.batch.push(change);
        let number = state.batch.last_change;
        let is_large = state.batch.changes;
        drop(state);
        // For any other count the writer is awake, or waits for more.
        if is_large == 1 || is_large == self.flush_threshold {
            self.work.notify_one();
        }
        number
    }

    /// Stores a value, together with the changes before it.
    pub(super) fn store_value(&self, name: &str, value: Vec<u8>) {
        self.state
            .lock()
            .batch
            .values
            .insert(name.to_owned(), value);
        self.work.notify_one();
    }

    /// Returns a value that is not on disk yet.
    pub(super) fn pending_value(&self, name: &str) -> Option<Vec<u8>> {
        self.state.lock().batch.values.get(name).cloned()
    }

    /// Requests the deletion of events.
    pub(super) fn expire_events(&self, cutoff: RetentionCutoff) {
        self.state.lock().batch.cutoff = Some(cutoff);
        self.work.notify_one();
    }

    /// Returns `true` if another change must be dropped: the queue is full or the writer has ended.
    pub(super) fn must_drop(&self) -> bool {
        self.is_closed() || self.on_full == LedgerFullAction::Drop && self.is_full()
    }

    /// Counts a lost change.
    pub(super) fn record_drop(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until there is room, if the configuration requires it.
    pub(super) async fn wait_if_full(&self) {
        if self.on_full == LedgerFullAction::Drop || !self.is_full() {
            return;
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.wait_for_room().await;
    }

    /// Waits until there is room, or the writer has ended.
    pub(super) async fn wait_for_room(&self) {
        loop {
            let notified = self.room.notified();
            if !self.is_full() {
                return;
            }
            notified.await;
        }
    }

    /// Waits until everything added so far is on disk, or is lost because the writer has ended.
    pub(super) async fn flush(&self) {
        let mut durable = self.durable.subscribe();
        let target = {
            let mut state = self.state.lock();
            state.flush_requested = true;
            state.batch.last_change
        };
        self.work.notify_one();
        let _ = durable
            .wait_for(|upto| *upto >= target || self.is_closed())
            .await;
    }

    /// Closes the queue after the writer has ended: waiting changes are lost, and nothing waits for them.
    pub(super) fn close(&self) {
        let state = self.state.lock();
        self.closed.store(true, Ordering::Release);
        let lost = self.waiting.swap(0, Ordering::Relaxed);
        drop(state);
        self.dropped.fetch_add(lost as u64, Ordering::Relaxed);
        // Later callers see that the queue is closed; current waiters are woken and check again.
        self.durable.send_modify(|_| {});
        self.room.notify_waiters();
    }

    /// Returns `true` if the writer has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Waits until the writer receives a command to end.
    pub(super) fn wait_for_end(&self) {
        self.work
            .wait_while(&mut self.state.lock(), |state| state.command.is_none());
    }

    /// Makes the writer panic with its next batch.
    #[cfg(test)]
    pub(super) fn panic(&self) {
        self.state.lock().panic = true;
    }

    /// Panics if a panic was requested.
    #[cfg(test)]
    pub(super) fn panic_if_requested(&self) {
        assert!(!take(&mut self.state.lock().panic), "requested by the test");
    }

    /// Sets the writer's command after its next batch.
    pub(super) fn send_command(&self, command: WriterCommand) {
        self.state.lock().command.get_or_insert(command);
        self.work.notify_one();
    }

    /// Waits for work, and then a little for more of it.
    pub(super) fn take_batch(&self, remaining: RemainingWork) -> (WriteBatch, WriterCommand) {
        let mut state = self.state.lock();
        self.work.wait_while(&mut state, |state| {
            remaining == RemainingWork::Nothing && !state.is_urgent() && state.batch.is_empty()
        });
        self.work.wait_while_for(
            &mut state,
            |state| !state.is_urgent() && state.batch.changes < self.flush_threshold,
            GATHER_TIME,
        );
        state.flush_requested = false;
        let taken = state.batch.urls;
        state.urls.add(&taken);
        let pending = state.batch.removals.pending;
        add_counts(&mut state.pending, pending);
        let mut next = WriteBatch {
            last_change: state.batch.last_change,
            ..WriteBatch::default()
        };
        next.pages.take_spare_from(&mut state.batch.pages);
        let command = state.command.unwrap_or(WriterCommand::Continue);
        (std::mem::replace(&mut state.batch, next), command)
    }

    /// Waits before the disk is tried again; returns the pending command, which limits further tries.
    pub(super) fn wait_before_retry(&self, time: Duration) -> WriterCommand {
        let mut state = self.state.lock();
        self.work
            .wait_while_for(&mut state, |state| state.command.is_none(), time);
        state.command.unwrap_or(WriterCommand::Continue)
    }

    /// Marks a batch as written to disk.
    pub(super) fn complete(&self, batch: WriteBatch) {
        let mut state = self.state.lock();
        self.waiting.store(
            self.waiting().saturating_sub(batch.changes),
            Ordering::Relaxed,
        );
        let unused = state.batch.pages.recycle(batch.pages);
        drop(state);
        self.durable.send_replace(batch.last_change);
        drop(unused);
        self.room.notify_waiters();
    }

    /// Returns the numbers of URLs, including changes that are not on disk.
    pub(super) fn urls(&self) -> UrlCounts {
        let state = self.state.lock();
        let mut urls = state.urls;
        urls.add(&state.batch.urls);
        urls
    }

    /// Replaces the numbers of URLs by code, before the first change.
    pub(super) fn set_code_counts(&self, by_code: [i64; OmnifindCode::ALL.len()]) {
        self.state.lock().urls.by_code = by_code;
    }

    /// Returns the number of pending removals of each kind, including changes that are not on disk.
    pub(super) fn pending_removals(&self) -> PendingCounts {
        let state = self.state.lock();
        let mut pending = state.pending;
        add_counts(&mut pending, state.batch.removals.pending);
        pending
    }

    /// Deletes the row of a pending removal that no record has.
    pub(super) fn delete_pending_row(&self, row: PendingRowKey) {
        self.state.lock().batch.removals.rows.insert(row, None);
        self.work.notify_one();
    }

    /// Returns the number of changes that are not on disk.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns how often a request has waited for room.
    pub(super) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Returns the number of lost changes.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        self.waiting() >= self.capacity && !self.is_closed()
    }
}

impl LedgerQueueState {
    /// Returns `true` if the batch must be written without waiting for more changes.
    fn is_urgent(&self) -> bool {
        self.flush_requested || self.command.is_some()
    }
}

impl WriteBatch {
    fn is_empty(&self) -> bool {
        self.changes == 0
            && self.values.is_empty()
            && self.cutoff.is_none()
            && self.removals.is_empty()
    }

    fn push(&mut self, change: QueuedChange<'_>) {
        self.changes += 1;
        self.last_change += 1;
        self.pages.append(&change.journal_change);
        self.events.extend(change.event);
        self.removals.push(change.removals);
        let (before, now) = change.count_change;
        if before != now {
            before
                .into_iter()
                .for_each(|record| self.urls.add_record(record, -1));
            now.into_iter()
                .for_each(|record| self.urls.add_record(record, 1));
        }
    }

    /// Appends a later batch.
    pub(super) fn extend(&mut self, mut later: Self) {
        self.changes += later.changes;
        self.pages.extend(later.pages);
        self.events.append(&mut later.events);
        self.urls.add(&later.urls);
        self.removals.append(later.removals);
        self.values.append(&mut later.values);
        self.cutoff = later.cutoff.or(self.cutoff);
        self.last_change = later.last_change;
    }
}

fn add_counts<const N: usize>(counts: &mut [i64; N], more: [i64; N]) {
    for (count, delta) in counts.iter_mut().zip(more) {
        *count += delta;
    }
}
