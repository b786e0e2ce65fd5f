//! The ledger's store: records by key, and the feed of events.
//!
//! A look is taken into account at once, in memory: whoever looks up behind it sees what it came to. It is written
//! down by one thread, in batches. Nobody waits for that but those who ask to ([`Ledger::committed`]). Events are told
//! once they are on the disk, in the same commit as the record that owes them: over a crash none is lost or told twice.

mod disk;
mod filter;
mod form;
mod inner;
mod journal;
mod memory;
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

use crate::ledger::event::{Event, EventKind};
use crate::ledger::key::Key;
use crate::ledger::record::{At, Record};
use crate::ledger::seen::Seen;
use crate::ledger::transition::Tolerance;
use crate::vocab::crawl_status::CrawlStatus;

use disk::{Base, Bygone, Place, View};
pub use disk::{Failed, OpenError};
use inner::Inner;
use memory::Memory;
use queue::{Queue, Then};
use writer::Writer;

/// How long a disk that fails is left alone.
const AGAIN: Duration = Duration::from_secs(1);
/// Keys that are read in one go.
const KEYS_AT_ONCE: usize = 10_000;

/// A ledger. Cheap to clone; it is closed with the last clone, or by [`Ledger::close`].
#[derive(Clone)]
pub struct Ledger(Arc<Handle>);

struct Handle {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A look at a URL, and where it is to be written.
#[derive(Clone, Debug)]
pub struct Note {
    /// The URL's key.
    pub key: Key,
    /// What was seen.
    pub seen: Seen,
    /// The key of the document that was delivered whole, if it is to be found by that.
    pub content: Option<Key>,
}

/// The number of an event in the feed, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor(pub u64);

/// How a ledger is kept.
#[derive(Clone, Copy, Debug)]
pub struct LedgerSettings {
    /// What the transitions need to know.
    pub tolerance: Tolerance,
    /// So many changes may wait to be written.
    pub queue: usize,
    /// What happens when they do.
    pub on_full: OnFull,
    /// Bytes of memory for records and tables, about.
    pub cache: usize,
}

/// What happens to a note without room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// [`Ledger::room`] waits.
    Wait,
    /// It is dropped, and counted.
    Drop,
}

/// What there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// URLs by what became of them; those of no URL are left out.
    pub urls: BTreeMap<CrawlStatus, u64>,
    /// Events that were written since the start, by kind.
    pub events: BTreeMap<EventKind, u64>,
    /// The last event.
    pub last_event: Cursor,
    /// Changes that are not on the disk.
    pub queue: usize,
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
            tolerance: Tolerance {
                temporary_errors: 5,
            },
            queue: 10_000,
            on_full: OnFull::Wait,
            cache: 64 << 20,
        }
    }
}

impl Ledger {
    /// A ledger that dies with the process.
    pub fn in_memory(tolerance: Tolerance) -> Self {
        let settings = LedgerSettings {
            tolerance,
            ..LedgerSettings::default()
        };
        Self::at(Place::Memory, settings).unwrap_or_else(|error| unreachable!("memory: {error}"))
    }

    /// The ledger in this directory, which is made if it is not there. Blocks: a crash before is mended here.
    ///
    /// # Errors
    /// If another process has it, a later version wrote it, or it cannot be read.
    pub fn open(directory: &Path, settings: LedgerSettings) -> Result<Self, OpenError> {
        let place = Place::in_directory(directory);
        let made = std::fs::create_dir_all(directory);
        made.map_err(|error| OpenError::Unreadable(place.path().to_owned(), error.to_string()))?;
        Self::at(place, settings)
    }

    /// The same, without making one: for a look at it while no proxy runs.
    ///
    /// # Errors
    /// As [`Self::open`], and if there is none.
    pub fn open_existing(directory: &Path, settings: LedgerSettings) -> Result<Self, OpenError> {
        let place = Place::in_directory(directory);
        if !place.path().exists() {
            return Err(OpenError::Missing(place.path().to_owned()));
        }
        Self::at(place, settings)
    }

    fn at(place: Place, settings: LedgerSettings) -> Result<Self, OpenError> {
        // Half for what is not in the tables yet: the more records a pass over the tables takes along, the more of them
        // share a page. A quarter for records that are, a quarter for the database's pages.
        let (unfolded_most, quarter) = (settings.cache / 2, settings.cache / 4);
        let pages = quarter;
        let unreadable = |error: &dyn fmt::Display| {
            OpenError::Unreadable(place.path().to_owned(), error.to_string())
        };
        let base = Base::open(&place, pages)?;
        let state = base.state().map_err(|error| unreadable(&error))?;
        let records = base.records().map_err(|error| unreadable(&error))?;
        let urls = CrawlStatus::ALL.map(|status| {
            state
                .urls
                .get(&form::number_of(status))
                .copied()
                .unwrap_or_default()
        });
        let inner = Inner {
            tolerance: settings.tolerance,
            memory: Memory::new(
                unfolded_most,
                quarter,
                usize::try_from(records).unwrap_or(usize::MAX),
            ),
            view: View::default(),
            ends: AtomicBool::new(false),
            queue: Queue::new(settings.queue, settings.on_full, urls),
            events: EventKind::ALL.map(|_| AtomicU64::new(0)),
            told: watch::Sender::new(state.event),
            failing: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            failures: AtomicU64::new(0),
            unfolded_most,
            pages,
            place: place.clone(),
        };
        base.journal(|change| inner.read_back(change))
            .map_err(|error| unreadable(&error))?;
        inner.view.show(&base).map_err(|error| unreadable(&error))?;
        let inner = Arc::new(inner);
        let writer = Writer::new(Arc::clone(&inner), base, state);
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
                    .spawn(move || inner.read_keys()),
            );
        }
        Ok(Self(Arc::new(Handle {
            inner,
            threads: Mutex::new(threads),
        })))
    }

    /// What is remembered of a URL, with all that was noted before. Nothing if the disk fails.
    pub fn look_up(&self, key: Key) -> Option<Arc<Record>> {
        self.find(key).ok().flatten()
    }

    /// The same, for whoever must know that from a URL of which nothing is remembered.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn find(&self, key: Key) -> Result<Option<Arc<Record>>, Failed> {
        let inner = self.inner();
        if inner.memory.lacks(key) {
            return Ok(None);
        }
        let entry = inner.entry(&mut inner.memory.of(key), key)?;
        Ok(entry.map(|entry| entry.record))
    }

    /// The URL whose document has this content: the first, for as long as it does. Nothing if the disk fails.
    pub fn with_content(&self, content: Key) -> Option<Arc<str>> {
        self.inner()
            .holder(content)
            .ok()
            .flatten()
            .map(|record| Arc::from(&*record.url))
    }

    /// Waits until there is room for a note, if the configuration wants that.
    pub async fn room(&self) {
        self.inner().queue.room().await;
    }

    /// Takes a look into account. Never waits; without room it is dropped, and counted.
    pub fn note(&self, note: Note) {
        self.inner().note(note);
    }

    /// The same for a look that must not be lost: waits for room whatever the configuration says, and for a disk that
    /// fails. Without a writer it is lost, and counted.
    pub async fn insist(&self, note: Note) {
        let inner = self.inner();
        loop {
            inner.queue.wait_for_room().await;
            if inner.queue.is_closed() {
                return inner.queue.drop_one();
            }
            match inner.take(note.clone()) {
                Ok(()) => return,
                Err(Failed) => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    /// Waits until everything that was noted before is on the disk, or is lost since there is no writer any more; for
    /// ever if the disk fails for ever.
    pub async fn committed(&self) {
        self.inner().queue.committed().await;
    }

    /// Records in the order of their keys, behind this one; fewer than asked for only at the end. Blocks.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn records(
        &self,
        after: Option<Key>,
        most: usize,
    ) -> Result<Vec<(Key, Arc<Record>)>, Failed> {
        self.inner().records(after, most)
    }

    /// Events behind this one, in their order, as far as they are on the disk; fewer than asked for only at the end.
    /// Blocks.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn events(&self, after: Cursor, most: usize) -> Result<Vec<(Cursor, Arc<Event>)>, Failed> {
        let events = self.inner().view.events(after.0, most)?;
        Ok(events
            .into_iter()
            .map(|(number, event)| (Cursor(number), Arc::new(event)))
            .collect())
    }

    /// Says when there are new events: the number of the last one.
    pub fn told(&self) -> watch::Receiver<u64> {
        self.inner().told.subscribe()
    }

    /// Has events forgotten that are older than this, up to this one; the last event of all stays.
    pub fn forget_events(&self, now: At, keep: Duration, upto: Cursor) {
        let keep = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
        let before = At(now.0.saturating_sub(keep));
        self.inner().queue.forget(Bygone {
            before,
            now,
            upto: upto.0,
        });
    }

    /// Keeps a value under a name, on the disk together with what was noted before: how far a sweep or a reader of the
    /// feed has come.
    pub fn keep(&self, name: &str, value: Vec<u8>) {
        self.inner().queue.keep(name, value);
    }

    /// What was kept under a name before the last start, or is on the disk since. Blocks.
    pub fn kept(&self, name: &str) -> Option<Vec<u8>> {
        let inner = self.inner();
        inner
            .queue
            .kept(name)
            .or_else(|| inner.view.kept(name).ok().flatten())
    }

    /// What there is.
    pub fn stats(&self) -> Stats {
        self.inner().stats()
    }

    /// Bytes on the disk. Blocks.
    pub fn bytes(&self) -> u64 {
        self.inner().place.bytes()
    }

    /// Writes what is left and closes the file. Blocks; a disk that fails is given up after a few tries.
    pub fn close(&self) {
        self.0.end(Then::Finish);
    }

    /// Has the writer break down.
    #[cfg(test)]
    fn break_down(&self) {
        self.inner().queue.panic();
    }

    /// Leaves everything as a crash would.
    #[cfg(test)]
    fn abandon(self) {
        self.0.end(Then::Abandon);
    }

    fn inner(&self) -> &Inner {
        &self.0.inner
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ledger").field(&self.inner().place).finish()
    }
}

impl Handle {
    fn end(&self, then: Then) {
        self.inner.queue.end(then);
        self.inner.ends.store(true, Ordering::Relaxed);
        let threads = take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        if threads.into_iter().any(|thread| thread.join().is_err()) {
            tracing::error!("a thread of the ledger has panicked");
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.end(Then::Finish);
    }
}
