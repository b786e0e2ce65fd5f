//! The ledger's storage: records by key, and the feed of events.
//!
//! An observation takes effect in memory at once, so every later lookup sees it. A single thread
//! writes it to disk, in batches; only callers of [`Ledger::flush`] wait for that. Events are
//! published once they are on disk. They are committed together with the record that caused them, so a
//! crash neither loses nor repeats one.

mod codec;
mod database;
mod filter;
mod inner;
mod journal;
mod memtable;
#[cfg(test)]
mod model;
mod queue;
mod removals;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::ledger::code::OmnifindCode;
use crate::ledger::event::{LedgerEvent, LedgerEventKind};
use crate::ledger::filter::LedgerFilter;
use crate::ledger::key::{ContentKey, LedgerKey};
use crate::ledger::observation::UrlObservation;
use crate::ledger::record::{LedgerRecord, UnixMillis};
use crate::ledger::removal::{RemovalCauseKind, RemovalSchedule};
use crate::ledger::transition::ErrorTolerance;
use crate::model::crawl_status::CrawlStatus;
use crate::model::words::words;

use database::{
    LedgerDatabase, LedgerLocation, LedgerReadView, LedgerWriterState, RetentionCutoff,
};
pub use database::{LedgerOpenError, LedgerUnavailable};
use inner::LedgerInner;
use memtable::Memtable;
use queue::{LedgerQueue, UrlCounts, WriterCommand};
pub use removals::{PendingCause, PendingUrl};
use writer::LedgerWriter;

/// The delay before a failing disk is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The number of keys read in one step.
const KEYS_AT_ONCE: usize = 10_000;

/// A ledger. It is cheap to clone, and is closed with its last clone or by [`Ledger::close`].
#[derive(Clone)]
pub struct Ledger(Arc<LedgerHandle>);

struct LedgerHandle {
    inner: Arc<LedgerInner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// An observation of a URL, and the keys to store it under.
#[derive(Clone, Debug)]
pub struct LedgerUpdate {
    /// The URL's key.
    pub key: LedgerKey,
    pub observation: UrlObservation,
    /// The key of the document, if it was delivered in full and is to be found by its content.
    pub content_key: Option<ContentKey>,
}

/// The number of an event in the feed, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FeedCursor(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerSettings {
    /// Thresholds for the state transitions.
    pub tolerance: ErrorTolerance,
    /// The maximum number of changes that wait to be written.
    pub queue: usize,
    /// The action taken when the queue is full.
    pub on_full: LedgerFullAction,
    /// The approximate number of bytes of memory for records and tables.
    pub cache: usize,
    /// The time at which removals with a grace time or a limit are ordered.
    pub removals: RemovalSchedule,
}

words! {
    /// The action taken for an observation when the queue is full.
    pub enum LedgerFullAction {
        /// The observation is dropped and counted.
        Drop = "drop",
        /// [`Ledger::wait_if_full`] waits.
        Wait = "wait",
    }
}

/// Statistics of a ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerStats {
    /// The number of URLs by status; statuses without a URL are left out.
    pub urls: BTreeMap<CrawlStatus, u64>,
    /// The number of URLs by OmniFind's code; codes without a URL are left out.
    pub codes: BTreeMap<OmnifindCode, u64>,
    /// The number of pending removals by kind of cause.
    pub pending_removals: BTreeMap<RemovalCauseKind, u64>,
    /// The number of events written since the start of the process, by kind.
    pub events: BTreeMap<LedgerEventKind, u64>,
    /// The number of events by kind, including those of earlier processes, from `events_counted_from` on.
    pub total_events: BTreeMap<LedgerEventKind, u64>,
    /// The first event in `total_events`: 1, unless a version that did not count has written earlier ones.
    pub events_counted_from: FeedCursor,
    pub last_event: FeedCursor,
    /// The number of changes that are not on disk yet.
    pub queued: usize,
    /// The number of requests that have waited for room in the queue since the start.
    pub waits: u64,
    /// The number of observations lost since the start.
    pub dropped: u64,
    /// The number of failed commits since the start.
    pub failures: u64,
    /// `true` if the last commit failed.
    pub failing: bool,
    /// `true` if the writer has panicked: nothing is written until the next start.
    pub broken: bool,
}

impl Default for LedgerSettings {
    /// Returns the defaults of the configuration.
    fn default() -> Self {
        Self {
            tolerance: ErrorTolerance {
                temporary_errors: 5,
            },
            queue: 10_000,
            on_full: LedgerFullAction::Wait,
            cache: 64 << 20,
            removals: RemovalSchedule::Immediate,
        }
    }
}

impl Ledger {
    /// Creates a ledger in memory, which is lost when the process ends.
    pub fn in_memory(tolerance: ErrorTolerance) -> Self {
        Self::in_memory_with(LedgerSettings {
            tolerance,
            ..LedgerSettings::default()
        })
    }

    /// Creates a ledger in memory with these settings.
    pub fn in_memory_with(settings: LedgerSettings) -> Self {
        Self::open_at(LedgerLocation::Memory, settings)
            .unwrap_or_else(|error| unreachable!("memory: {error}"))
    }

    /// Opens the ledger in this directory, or creates it. Blocks, and recovers from a crash if necessary.
    ///
    /// # Errors
    /// If another process uses it, a later version has written it, it is damaged, or the disk fails.
    pub fn open(directory: &Path, settings: LedgerSettings) -> Result<Self, LedgerOpenError> {
        let location = LedgerLocation::in_directory(directory);
        std::fs::create_dir_all(directory).map_err(|error| location.open_error(error))?;
        Self::open_at(location, settings)
    }

    /// Returns `true` if there is a ledger in this directory.
    pub fn exists(directory: &Path) -> bool {
        LedgerLocation::in_directory(directory).path().exists()
    }

    /// Opens the ledger in this directory without creating it, to inspect it while no proxy runs.
    ///
    /// # Errors
    /// As [`Self::open`], and if there is no ledger.
    pub fn open_existing(
        directory: &Path,
        settings: LedgerSettings,
    ) -> Result<Self, LedgerOpenError> {
        let location = LedgerLocation::in_directory(directory);
        if !location.path().exists() {
            return Err(LedgerOpenError::Missing(location.path().to_owned()));
        }
        Self::open_at(location, settings)
    }

    fn open_at(
        location: LedgerLocation,
        settings: LedgerSettings,
    ) -> Result<Self, LedgerOpenError> {
        let at = location.clone();
        // The database library panics on some damaged files.
        catch_unwind(AssertUnwindSafe(|| Self::try_open_at(at, settings)))
            .unwrap_or_else(|_| Err(location.panic_error()))
    }

    fn try_open_at(
        location: LedgerLocation,
        settings: LedgerSettings,
    ) -> Result<Self, LedgerOpenError> {
        // Half of the memory is for records that are not in the tables yet: the more records a
        // compaction covers, the more of them share a page. A quarter is for cached records, and a
        // quarter for the database's pages.
        let max_unflushed_bytes = settings.cache / 2;
        let record_cache_bytes = settings.cache / 4;
        let page_cache_bytes = settings.cache / 4;
        let database = LedgerDatabase::open(&location, page_cache_bytes)?;
        let mut state = database
            .writer_state()
            .map_err(|error| location.open_error(error))?;
        let has_counts = state.counted_from > 0 || state.turn == 0;
        if !has_counts {
            count_events(&database, &mut state).map_err(|error| location.open_error(error))?;
        }
        state.counted_from = state.counted_from.max(1);
        let records = database
            .record_count()
            .map_err(|error| location.open_error(error))?;
        let pending = RemovalCauseKind::ALL.map(|kind| {
            let number = codec::removal::kind_number(kind);
            state.pending.get(&number).copied().unwrap_or_default()
        });
        let inner = LedgerInner {
            tolerance: settings.tolerance,
            removals: settings.removals,
            memtable: Memtable::new(
                max_unflushed_bytes,
                record_cache_bytes,
                usize::try_from(records).unwrap_or(usize::MAX),
            ),
            view: LedgerReadView::default(),
            closing: AtomicBool::new(false),
            queue: LedgerQueue::new(
                settings.queue,
                settings.on_full,
                stored_counts(&state),
                pending,
            ),
            events: LedgerEventKind::ALL.map(|_| AtomicU64::new(0)),
            total_events: LedgerEventKind::ALL.map(|kind| {
                let number = codec::event::kind_number(kind);
                AtomicU64::new(state.events.get(&number).copied().unwrap_or_default())
            }),
            events_counted_from: state.counted_from,
            last_event: watch::Sender::new(state.event),
            failing: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            failures: AtomicU64::new(0),
            max_unflushed_bytes,
            page_cache_bytes,
            location: location.clone(),
        };
        database
            .replay_journal(|change| inner.replay_change(change))
            .map_err(|error| location.open_error(error))?;
        inner
            .view
            .publish(&database)
            .map_err(|error| location.open_error(error))?;
        if !has_counts {
            let failing = redb::StorageError::Corrupted(LedgerUnavailable.to_string());
            let by_code = inner
                .count_codes()
                .map_err(|LedgerUnavailable| location.open_error(failing))?;
            inner.queue.set_code_counts(by_code);
            state.codes = OmnifindCode::ALL
                .into_iter()
                .map(|code| u32::from(code.number()))
                .zip(by_code)
                .collect();
        }
        let inner = Arc::new(inner);
        let writer = LedgerWriter::new(Arc::clone(&inner), database, state);
        let thread = Builder::new()
            .name("ledger".into())
            .spawn(move || writer.run());
        let mut threads = vec![thread.map_err(|error| location.open_error(error))?];
        if records > 0 {
            let inner = Arc::clone(&inner);
            // Until the filter is filled, lookups go to the tables.
            threads.extend(
                Builder::new()
                    .name("ledger-filter".into())
                    .spawn(move || inner.fill_filter()),
            );
        }
        Ok(Self(Arc::new(LedgerHandle {
            inner,
            threads: Mutex::new(threads),
        })))
    }

    /// Returns the record of a URL, including everything recorded so far; `None` if it does not exist or
    /// the disk fails.
    pub fn look_up(&self, key: LedgerKey) -> Option<Arc<LedgerRecord>> {
        self.try_look_up(key).ok().flatten()
    }

    /// Returns the record of a URL, and distinguishes a failing disk from a URL without a record.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn try_look_up(
        &self,
        key: LedgerKey,
    ) -> Result<Option<Arc<LedgerRecord>>, LedgerUnavailable> {
        let inner = self.inner();
        if inner.memtable.is_absent(key) {
            return Ok(None);
        }
        let entry = inner.load_record(&mut inner.memtable.lock_shard(key), key)?;
        Ok(entry.map(|entry| entry.record))
    }

    /// Returns the first URL whose document has this part of a [`ContentKey`], while it still has it;
    /// `None` if no URL has it or the disk fails.
    pub fn url_with_content(&self, content: LedgerKey) -> Option<Arc<str>> {
        self.inner()
            .record_with_content(content)
            .ok()
            .flatten()
            .map(|record| Arc::from(&*record.url))
    }

    /// Waits until the queue has room, if the configuration requires it.
    pub async fn wait_if_full(&self) {
        self.inner().queue.wait_if_full().await;
    }

    /// Records an observation. Never waits; if the queue is full, the observation is dropped and
    /// counted.
    pub fn record(&self, update: LedgerUpdate) {
        self.inner().record(update);
    }

    /// Records an observation that must not be lost: waits for room regardless of the configuration,
    /// and retries while the disk fails. Without a writer it is dropped and counted.
    pub async fn record_with_retry(&self, update: LedgerUpdate) {
        let inner = self.inner();
        loop {
            inner.queue.wait_for_room().await;
            if inner.queue.is_closed() {
                return inner.queue.record_drop();
            }
            match inner.try_record(update.clone()) {
                Ok(()) => return,
                Err(LedgerUnavailable) => tokio::time::sleep(RETRY_DELAY).await,
            }
        }
    }

    /// Deletes the record of a URL if it matches the filter, without an event. Returns `true` if there was one. Does not
    /// wait for room in the queue: follow many of these with [`Self::flush`].
    ///
    /// # Errors
    /// If the disk fails, or the writer has ended.
    pub fn forget(&self, key: LedgerKey, filter: &LedgerFilter) -> Result<bool, LedgerUnavailable> {
        self.inner().forget(key, filter)
    }

    /// Waits until everything recorded so far is on disk, or is lost because the writer has ended.
    /// Does not return while the disk keeps failing.
    pub async fn flush(&self) {
        self.inner().queue.flush().await;
    }

    /// Returns records in key order, starting after `after`; fewer than `most` only at the end. Blocks.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn records(
        &self,
        after: Option<LedgerKey>,
        most: usize,
    ) -> Result<Vec<(LedgerKey, Arc<LedgerRecord>)>, LedgerUnavailable> {
        self.inner().records(after, most)
    }

    /// Returns the events after `after` that are on disk, in order; fewer than `most` only at the end.
    /// Blocks.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn events(
        &self,
        after: FeedCursor,
        most: usize,
    ) -> Result<Vec<(FeedCursor, Arc<LedgerEvent>)>, LedgerUnavailable> {
        let events = self.inner().view.events_after(after.0, most)?;
        Ok(events
            .into_iter()
            .map(|(number, event)| (FeedCursor(number), Arc::new(event)))
            .collect())
    }

    /// Returns a receiver that reports the number of the last event.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.inner().last_event.subscribe()
    }

    /// Deletes events that are older than `keep`, up to `upto`. The very last event is always kept.
    pub fn expire_events(&self, now: UnixMillis, retention: Duration, upto: FeedCursor) {
        let retention = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
        let before = UnixMillis(now.0.saturating_sub(retention));
        self.inner().queue.expire_events(RetentionCutoff {
            before,
            now,
            upto: upto.0,
        });
    }

    /// Stores a value under a name, on disk together with everything recorded so far: the progress of
    /// a sweep or of a feed reader.
    pub fn store_value(&self, name: &str, value: Vec<u8>) {
        self.inner().queue.store_value(name, value);
    }

    /// Returns the value stored under a name. Blocks.
    pub fn load_value(&self, name: &str) -> Option<Vec<u8>> {
        let inner = self.inner();
        inner
            .queue
            .pending_value(name)
            .or_else(|| inner.view.value(name).ok().flatten())
    }

    /// Returns counts of URLs, events, queued changes and failures.
    pub fn stats(&self) -> LedgerStats {
        self.inner().stats()
    }

    /// Returns the number of bytes used on disk. Blocks.
    pub fn disk_bytes(&self) -> u64 {
        self.inner().location.disk_bytes()
    }

    /// Writes the remaining changes and closes the file. Blocks; gives up on a failing disk after a few tries.
    pub fn close(&self) {
        self.0.shut_down(WriterCommand::Finish);
    }

    /// Makes the writer panic.
    #[cfg(test)]
    fn break_down(&self) {
        self.inner().queue.panic();
    }

    /// Closes the ledger without writing anything more, as in a crash.
    #[cfg(test)]
    fn abandon(self) {
        self.0.shut_down(WriterCommand::Abandon);
    }

    fn inner(&self) -> &LedgerInner {
        &self.0.inner
    }
}

/// Returns the numbers of URLs on disk.
fn stored_counts(state: &LedgerWriterState) -> UrlCounts {
    UrlCounts {
        by_status: CrawlStatus::ALL.map(|status| {
            let count = state.urls.get(&codec::status_number(status));
            count.copied().unwrap_or_default()
        }),
        by_code: OmnifindCode::ALL.map(|code| {
            let count = state.codes.get(&code.number().into());
            count.copied().unwrap_or_default()
        }),
    }
}

/// Counts the events of a file of a version that did not: those that have not expired.
fn count_events(
    database: &LedgerDatabase,
    state: &mut LedgerWriterState,
) -> Result<(), redb::Error> {
    // Without events on disk, counting starts with the next one.
    state.counted_from = state.event + 1;
    database.for_each_event(|number, kind| {
        state.counted_from = state.counted_from.min(number);
        *state
            .events
            .entry(codec::event::kind_number(kind))
            .or_default() += 1;
    })
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ledger")
            .field(&self.inner().location)
            .finish()
    }
}

impl LedgerHandle {
    fn shut_down(&self, command: WriterCommand) {
        self.inner.queue.send_command(command);
        self.inner.closing.store(true, Ordering::Relaxed);
        let threads = take(&mut *self.threads.lock());
        if threads.into_iter().any(|thread| thread.join().is_err()) {
            tracing::error!("a thread of the ledger has panicked");
        }
    }
}

impl Drop for LedgerHandle {
    fn drop(&mut self) {
        self.shut_down(WriterCommand::Finish);
    }
}
