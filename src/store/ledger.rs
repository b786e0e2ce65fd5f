//! The ledger's store: records by key, and the feed of events.
//!
//! A look is taken into account at once, in memory: whoever looks up behind it sees what it came to. It is written
//! down by one thread, in batches. Nobody waits for that but those who ask to ([`Ledger::flush`]). Events are told
//! once they are on the disk, in the same commit as the record that owes them: over a crash none is lost or told twice.

mod codec;
mod database;
mod filter;
mod inner;
mod journal;
mod memtable;
#[cfg(test)]
mod model;
mod queue;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::mem::take;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tokio::sync::watch;

use crate::ledger::event::{LedgerEvent, LedgerEventKind};
use crate::ledger::key::LedgerKey;
use crate::ledger::observation::UrlObservation;
use crate::ledger::record::{LedgerRecord, UnixMillis};
use crate::ledger::transition::ErrorTolerance;
use crate::model::crawl_status::CrawlStatus;

use database::{LedgerDatabase, LedgerLocation, LedgerReadView, RetentionCutoff};
pub use database::{LedgerOpenError, LedgerUnavailable};
use inner::LedgerInner;
use memtable::Memtable;
use queue::{LedgerQueue, WriterCommand};
use writer::LedgerWriter;

/// How long a disk that fails is left alone.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Keys that are read in one go.
const KEYS_AT_ONCE: usize = 10_000;

/// A ledger. Cheap to clone; it is closed with the last clone, or by [`Ledger::close`].
#[derive(Clone)]
pub struct Ledger(Arc<LedgerHandle>);

struct LedgerHandle {
    inner: Arc<LedgerInner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A look at a URL, and where it is to be written.
#[derive(Clone, Debug)]
pub struct LedgerUpdate {
    /// The URL's key.
    pub key: LedgerKey,
    /// What was seen.
    pub observation: UrlObservation,
    /// The key of the document that was delivered whole, if it is to be found by that.
    pub content_key: Option<LedgerKey>,
}

/// The number of an event in the feed, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FeedCursor(pub u64);

/// How a ledger is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerSettings {
    /// What the transitions need to know.
    pub tolerance: ErrorTolerance,
    /// So many changes may wait to be written.
    pub queue: usize,
    /// What happens when they do.
    pub on_full: LedgerFullAction,
    /// Bytes of memory for records and tables, about.
    pub cache: usize,
}

/// What happens to a note without room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerFullAction {
    /// [`Ledger::wait_if_full`] waits.
    Wait,
    /// It is dropped, and counted.
    Drop,
}

/// What there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerStats {
    /// URLs by what became of them; those of no URL are left out.
    pub urls: BTreeMap<CrawlStatus, u64>,
    /// Events that were written since the start, by kind.
    pub events: BTreeMap<LedgerEventKind, u64>,
    /// The last event.
    pub last_event: FeedCursor,
    /// Changes that are not on the disk.
    pub queued: usize,
    /// How often a request waited for room since the start.
    pub waits: u64,
    /// Looks that were lost since the start.
    pub dropped: u64,
    /// Commits that failed since the start.
    pub failures: u64,
    /// Whether the last one did.
    pub failing: bool,
    /// Whether the writer broke down: nothing is written any more until the next start.
    pub broken: bool,
}

impl Default for LedgerSettings {
    /// As the configuration has it.
    fn default() -> Self {
        Self {
            tolerance: ErrorTolerance {
                temporary_errors: 5,
            },
            queue: 10_000,
            on_full: LedgerFullAction::Wait,
            cache: 64 << 20,
        }
    }
}

impl Ledger {
    /// A ledger that dies with the process.
    pub fn in_memory(tolerance: ErrorTolerance) -> Self {
        let settings = LedgerSettings {
            tolerance,
            ..LedgerSettings::default()
        };
        Self::open_at(LedgerLocation::Memory, settings)
            .unwrap_or_else(|error| unreachable!("memory: {error}"))
    }

    /// The ledger in this directory, which is made if it is not there. Blocks: a crash before is mended here.
    ///
    /// # Errors
    /// If another process has it, a later version wrote it, or it cannot be read.
    pub fn open(directory: &Path, settings: LedgerSettings) -> Result<Self, LedgerOpenError> {
        let place = LedgerLocation::in_directory(directory);
        let made = std::fs::create_dir_all(directory);
        made.map_err(|error| {
            LedgerOpenError::Unreadable(place.path().to_owned(), error.to_string())
        })?;
        Self::open_at(place, settings)
    }

    /// The same, without making one: for a look at it while no proxy runs.
    ///
    /// # Errors
    /// As [`Self::open`], and if there is none.
    pub fn open_existing(
        directory: &Path,
        settings: LedgerSettings,
    ) -> Result<Self, LedgerOpenError> {
        let place = LedgerLocation::in_directory(directory);
        if !place.path().exists() {
            return Err(LedgerOpenError::Missing(place.path().to_owned()));
        }
        Self::open_at(place, settings)
    }

    fn open_at(place: LedgerLocation, settings: LedgerSettings) -> Result<Self, LedgerOpenError> {
        // Half for what is not in the tables yet: the more records a pass over the tables takes along, the more of them
        // share a page. A quarter for records that are, a quarter for the database's pages.
        let (unfolded_most, quarter) = (settings.cache / 2, settings.cache / 4);
        let pages = quarter;
        let unreadable = |error: &dyn fmt::Display| {
            LedgerOpenError::Unreadable(place.path().to_owned(), error.to_string())
        };
        let base = LedgerDatabase::open(&place, pages)?;
        let state = base.writer_state().map_err(|error| unreadable(&error))?;
        let records = base.record_count().map_err(|error| unreadable(&error))?;
        let urls = CrawlStatus::ALL.map(|status| {
            state
                .urls
                .get(&codec::status_number(status))
                .copied()
                .unwrap_or_default()
        });
        let inner = LedgerInner {
            tolerance: settings.tolerance,
            memtable: Memtable::new(
                unfolded_most,
                quarter,
                usize::try_from(records).unwrap_or(usize::MAX),
            ),
            view: LedgerReadView::default(),
            closing: AtomicBool::new(false),
            queue: LedgerQueue::new(settings.queue, settings.on_full, urls),
            events: LedgerEventKind::ALL.map(|_| AtomicU64::new(0)),
            last_event: watch::Sender::new(state.event),
            failing: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            failures: AtomicU64::new(0),
            max_unflushed_bytes: unfolded_most,
            page_cache_bytes: pages,
            location: place.clone(),
        };
        base.replay_journal(|change| inner.replay_change(change))
            .map_err(|error| unreadable(&error))?;
        inner
            .view
            .publish(&base)
            .map_err(|error| unreadable(&error))?;
        let inner = Arc::new(inner);
        let writer = LedgerWriter::new(Arc::clone(&inner), base, state);
        let thread = Builder::new()
            .name("ledger".into())
            .spawn(move || writer.run());
        let mut threads = vec![thread.map_err(|error| unreadable(&error))?];
        if records > 0 {
            let inner = Arc::clone(&inner);
            // Without it look-ups ask the tables.
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

    /// What is remembered of a URL, with all that was noted before. Nothing if the disk fails.
    pub fn look_up(&self, key: LedgerKey) -> Option<Arc<LedgerRecord>> {
        self.try_look_up(key).ok().flatten()
    }

    /// The same, for whoever must know that from a URL of which nothing is remembered.
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

    /// The URL whose document has this content: the first, for as long as it does. Nothing if the disk fails.
    pub fn url_with_content(&self, content: LedgerKey) -> Option<Arc<str>> {
        self.inner()
            .record_with_content(content)
            .ok()
            .flatten()
            .map(|record| Arc::from(&*record.url))
    }

    /// Waits until there is room for a note, if the configuration wants that.
    pub async fn wait_if_full(&self) {
        self.inner().queue.wait_if_full().await;
    }

    /// Takes a look into account. Never waits; without room it is dropped, and counted.
    pub fn record(&self, note: LedgerUpdate) {
        self.inner().record(note);
    }

    /// The same for a look that must not be lost: waits for room whatever the configuration says, and for a disk that
    /// fails. Without a writer it is lost, and counted.
    pub async fn record_with_retry(&self, note: LedgerUpdate) {
        let inner = self.inner();
        loop {
            inner.queue.wait_for_room().await;
            if inner.queue.is_closed() {
                return inner.queue.record_drop();
            }
            match inner.try_record(note.clone()) {
                Ok(()) => return,
                Err(LedgerUnavailable) => tokio::time::sleep(RETRY_DELAY).await,
            }
        }
    }

    /// Waits until everything that was noted before is on the disk, or is lost since there is no writer any more; for
    /// ever if the disk fails for ever.
    pub async fn flush(&self) {
        self.inner().queue.flush().await;
    }

    /// Records in the order of their keys, behind this one; fewer than asked for only at the end. Blocks.
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

    /// Events behind this one, in their order, as far as they are on the disk; fewer than asked for only at the end.
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

    /// Says when there are new events: the number of the last one.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.inner().last_event.subscribe()
    }

    /// Has events forgotten that are older than this, up to this one; the last event of all stays.
    pub fn expire_events(&self, now: UnixMillis, keep: Duration, upto: FeedCursor) {
        let keep = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
        let before = UnixMillis(now.0.saturating_sub(keep));
        self.inner().queue.expire_events(RetentionCutoff {
            before,
            now,
            upto: upto.0,
        });
    }

    /// Keeps a value under a name, on the disk together with what was noted before: how far a sweep or a reader of the
    /// feed has come.
    pub fn store_value(&self, name: &str, value: Vec<u8>) {
        self.inner().queue.store_value(name, value);
    }

    /// What was kept under a name before the last start, or is on the disk since. Blocks.
    pub fn load_value(&self, name: &str) -> Option<Vec<u8>> {
        let inner = self.inner();
        inner
            .queue
            .pending_value(name)
            .or_else(|| inner.view.value(name).ok().flatten())
    }

    /// What there is.
    pub fn stats(&self) -> LedgerStats {
        self.inner().stats()
    }

    /// Bytes on the disk. Blocks.
    pub fn disk_bytes(&self) -> u64 {
        self.inner().location.disk_bytes()
    }

    /// Writes what is left and closes the file. Blocks; a disk that fails is given up after a few tries.
    pub fn close(&self) {
        self.0.shut_down(WriterCommand::Finish);
    }

    /// Has the writer break down.
    #[cfg(test)]
    fn break_down(&self) {
        self.inner().queue.panic();
    }

    /// Leaves everything as a crash would.
    #[cfg(test)]
    fn abandon(self) {
        self.0.shut_down(WriterCommand::Abandon);
    }

    fn inner(&self) -> &LedgerInner {
        &self.0.inner
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ledger")
            .field(&self.inner().location)
            .finish()
    }
}

impl LedgerHandle {
    fn shut_down(&self, then: WriterCommand) {
        self.inner.queue.send_command(then);
        self.inner.closing.store(true, Ordering::Relaxed);
        let threads = take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
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
