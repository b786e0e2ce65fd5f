//! What waits to be written: noted by requests, taken by the writer, and who waits for that.

use std::collections::BTreeMap;
#[cfg(test)]
use std::mem::take;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::ledger::event::LedgerEvent;
use crate::model::crawl_status::CrawlStatus;

use super::LedgerFullAction;
use super::database::RetentionCutoff;
use super::journal::{JournalChange, JournalPages};

/// For so long the writer waits for more, so that a batch is worth its way to the disk.
const GATHER_TIME: Duration = Duration::from_secs(1);
/// So many changes are worth it at once.
const FLUSH_THRESHOLD: usize = 4_096;

/// What a look has changed.
pub(super) struct QueuedChange<'c> {
    pub(super) journal_change: JournalChange<'c>,
    pub(super) event: Option<LedgerEvent>,
    /// The URL's status before and behind.
    pub(super) status_change: StatusChange,
}

/// The status of a URL before and behind a change; none without a record.
pub(super) type StatusChange = (Option<CrawlStatus>, Option<CrawlStatus>);

/// URLs of each status.
pub(super) type UrlCounts = [i64; CrawlStatus::ALL.len()];

/// What the writer takes.
#[derive(Debug, Default)]
pub(super) struct WriteBatch {
    /// Changes.
    pub(super) changes: usize,
    /// The same for the journal.
    pub(super) pages: JournalPages,
    /// What is owed for them.
    pub(super) events: Vec<LedgerEvent>,
    /// By how many the URLs of each status have become more.
    pub(super) urls: UrlCounts,
    /// What others keep here, by name.
    pub(super) values: BTreeMap<String, Vec<u8>>,
    /// These events are to be forgotten.
    pub(super) cutoff: Option<RetentionCutoff>,
    /// The number of the last change.
    pub(super) last_change: u64,
}

/// What the writer is to do behind a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriterCommand {
    /// It goes on.
    Continue,
    /// It ends once everything is written.
    Finish,
    /// It ends as it is.
    #[cfg(test)]
    Abandon,
}

/// What the writer has left to do without a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RemainingWork {
    /// Nothing.
    Nothing,
    /// A part of the way.
    Some,
}

/// The queue.
pub(super) struct LedgerQueue {
    state: Mutex<LedgerQueueState>,
    work: Condvar,
    /// Changes that are not on the disk; written under the lock only.
    waiting: AtomicUsize,
    capacity: usize,
    flush_threshold: usize,
    on_full: LedgerFullAction,
    room: Notify,
    durable: watch::Sender<u64>,
    waits: AtomicU64,
    dropped: AtomicU64,
    /// Nobody takes anything out any more.
    closed: AtomicBool,
}

#[derive(Default)]
struct LedgerQueueState {
    batch: WriteBatch,
    /// URLs of each status, without what the batch changes.
    urls: UrlCounts,
    flush_requested: bool,
    command: Option<WriterCommand>,
    /// The writer is to panic with its next batch.
    #[cfg(test)]
    panic: bool,
}

impl LedgerQueue {
    /// There are these URLs already.
    pub(super) fn new(most: usize, on_full: LedgerFullAction, urls: UrlCounts) -> Self {
        Self {
            state: Mutex::new(LedgerQueueState {
                urls,
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

    /// Puts a change in and says its number, from 1.
    pub(super) fn push(&self, change: QueuedChange<'_>) -> u64 {
        let mut state = self.lock();
        if self.is_closed() {
            self.record_drop();
            return state.batch.last_change;
        }
        // Nobody else writes it meanwhile: no need for the processor to see to that.
        self.waiting.store(self.waiting() + 1, Ordering::Relaxed);
        state.batch.push(change);
        let (number, many) = (state.batch.last_change, state.batch.changes);
        drop(state);
        // In between the writer is awake, or waits for more.
        if many == 1 || many == self.flush_threshold {
            self.work.notify_one();
        }
        number
    }

    /// Keeps a value, together with the changes before it.
    pub(super) fn store_value(&self, name: &str, value: Vec<u8>) {
        self.lock().batch.values.insert(name.to_owned(), value);
        self.work.notify_one();
    }

    /// A value that still waits.
    pub(super) fn pending_value(&self, name: &str) -> Option<Vec<u8>> {
        self.lock().batch.values.get(name).cloned()
    }

    /// Has these events forgotten.
    pub(super) fn expire_events(&self, bygone: RetentionCutoff) {
        self.lock().batch.cutoff = Some(bygone);
        self.work.notify_one();
    }

    /// Whether another change would be one too many, or one that nobody writes.
    pub(super) fn must_drop(&self) -> bool {
        self.is_closed() || self.on_full == LedgerFullAction::Drop && self.is_full()
    }

    /// Counts a change that is lost.
    pub(super) fn record_drop(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until there is room, if it is to be waited for.
    pub(super) async fn wait_if_full(&self) {
        if self.on_full == LedgerFullAction::Drop || !self.is_full() {
            return;
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.wait_for_room().await;
    }

    /// Waits until there is room, or nobody makes any.
    pub(super) async fn wait_for_room(&self) {
        loop {
            let notified = self.room.notified();
            if !self.is_full() {
                return;
            }
            notified.await;
        }
    }

    /// Waits until everything that was put in before is on the disk, or is lost because nobody writes any more.
    pub(super) async fn flush(&self) {
        let mut durable = self.durable.subscribe();
        let target = {
            let mut state = self.lock();
            state.flush_requested = true;
            state.batch.last_change
        };
        self.work.notify_one();
        let _ = durable
            .wait_for(|upto| *upto >= target || self.is_closed())
            .await;
    }

    /// The writer has gone: what waits is lost, and nobody waits for it.
    pub(super) fn close(&self) {
        let state = self.lock();
        self.closed.store(true, Ordering::Release);
        let lost = self.waiting.swap(0, Ordering::Relaxed);
        drop(state);
        self.dropped.fetch_add(lost as u64, Ordering::Relaxed);
        // Whoever looks from here on sees that it is closed; whoever waits already looks again.
        self.durable.send_modify(|_| {});
        self.room.notify_waiters();
    }

    /// Whether the writer has gone.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Waits until the writer is told to end.
    pub(super) fn wait_for_end(&self) {
        let ended = self
            .work
            .wait_while(self.lock(), |state| state.command.is_none());
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }

    /// Has the writer panic with its next batch.
    #[cfg(test)]
    pub(super) fn panic(&self) {
        self.lock().panic = true;
    }

    /// Panics, if it is to.
    #[cfg(test)]
    pub(super) fn panic_if_requested(&self) {
        assert!(!take(&mut self.lock().panic), "the test wants it");
    }

    /// Says what the writer is to do behind its next batch.
    pub(super) fn send_command(&self, then: WriterCommand) {
        self.lock().command.get_or_insert(then);
        self.work.notify_one();
    }

    /// Waits for work, and then a little for more of it.
    pub(super) fn take_batch(&self, left: RemainingWork) -> (WriteBatch, WriterCommand) {
        let state = self.lock();
        let idle = |state: &mut LedgerQueueState| {
            let batch = &state.batch;
            let nothing = batch.changes == 0 && batch.values.is_empty() && batch.cutoff.is_none();
            nothing
                && left == RemainingWork::Nothing
                && !state.flush_requested
                && state.command.is_none()
        };
        let state = self
            .work
            .wait_while(state, idle)
            .unwrap_or_else(PoisonError::into_inner);
        let more = |state: &mut LedgerQueueState| {
            !state.flush_requested
                && state.command.is_none()
                && state.batch.changes < self.flush_threshold
        };
        let waited = self.work.wait_timeout_while(state, GATHER_TIME, more);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.flush_requested = false;
        let taken = state.batch.urls;
        add_counts(&mut state.urls, taken);
        let mut next = WriteBatch {
            last_change: state.batch.last_change,
            ..WriteBatch::default()
        };
        next.pages.take_spare_from(&mut state.batch.pages);
        let then = state.command.unwrap_or(WriterCommand::Continue);
        (std::mem::replace(&mut state.batch, next), then)
    }

    /// Waits for so long before the disk is tried again; says whether it is to be given up soon.
    pub(super) fn wait_before_retry(&self, time: Duration) -> WriterCommand {
        let waited = self
            .work
            .wait_timeout_while(self.lock(), time, |state| state.command.is_none());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.command.unwrap_or(WriterCommand::Continue)
    }

    /// This batch is on the disk.
    pub(super) fn complete(&self, batch: WriteBatch) {
        let mut state = self.lock();
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

    /// URLs of each status, with those that are not on the disk.
    pub(super) fn urls(&self) -> UrlCounts {
        let state = self.lock();
        let mut urls = state.urls;
        add_counts(&mut urls, state.batch.urls);
        urls
    }

    /// Changes that are not on the disk.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How often somebody waited for room.
    pub(super) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Changes that were lost.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        self.waiting() >= self.capacity && !self.is_closed()
    }

    fn lock(&self) -> MutexGuard<'_, LedgerQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WriteBatch {
    fn push(&mut self, change: QueuedChange<'_>) {
        self.changes += 1;
        self.last_change += 1;
        self.pages.append(&change.journal_change);
        self.events.extend(change.event);
        for (status, by) in count_deltas(change.status_change) {
            self.urls
                .get_mut(status.index())
                .into_iter()
                .for_each(|count| *count += by);
        }
    }

    /// Puts what came later behind this.
    pub(super) fn extend(&mut self, mut later: Self) {
        self.changes += later.changes;
        self.pages.extend(later.pages);
        self.events.append(&mut later.events);
        add_counts(&mut self.urls, later.urls);
        self.values.append(&mut later.values);
        self.cutoff = later.cutoff.or(self.cutoff);
        self.last_change = later.last_change;
    }
}

fn add_counts(urls: &mut UrlCounts, more: UrlCounts) {
    urls.iter_mut()
        .zip(more)
        .for_each(|(count, by)| *count += by);
}

/// The counts that a change moves, and by how much.
fn count_deltas((before, now): StatusChange) -> impl Iterator<Item = (CrawlStatus, i64)> {
    let (left, entered) = if before == now {
        (None, None)
    } else {
        (before, now)
    };
    left.map(|status| (status, -1))
        .into_iter()
        .chain(entered.map(|status| (status, 1)))
}
