//! Emergency stops: consulted by every request, changed by operators, kept over a restart.
//!
//! While there is no stop, a request reads one flag. [`crate::pacing::stops`] defines which requests a stop covers,
//! `stage/stop.rs` and `admission/stop_wait.rs` how a request waits and is refused. Changes block on the disk; the
//! lookups of requests never do.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::model::crawler::Crawler;
pub use crate::pacing::stops::stop::{MAX_STOP_DURATION, parse_stop_duration};
pub use crate::pacing::stops::{EmergencyStop, MAX_STOPS, StopId, StopReason, StopTarget};
use crate::pacing::stops::{StopEntry, StopQuery, StopSet};
use crate::store::stops::{SavedStops, StopsFile, UnreadableFile};

use super::held_requests::HeldRequests;

mod sharing;

use sharing::StopSharing;
pub use sharing::{SharedStop, UnsharedStops};

/// The active stops.
#[derive(Debug)]
pub struct StopRegistry {
    set: ArcSwap<StopSet>,
    /// `true` if there is a stop: all that a request reads while there are no stops.
    any: AtomicBool,
    changed: watch::Sender<()>,
    /// Notified of changes that other nodes are to get.
    unshared_change: Notify,
    /// A thread that changes the set holds the lock, but never while it waits for the disk.
    book: Mutex<StopBook>,
    disk: Mutex<Option<StopsFile>>,
    /// `true` if there are changes to write that no thread is writing.
    dirty: AtomicBool,
    /// `true` if the last write failed.
    write_failed: AtomicBool,
    /// The requests that wait for the end of a stop. They are woken in the order in which they join their host's queue.
    held: HeldRequests,
    closed: AtomicBool,
    clock: Clock,
    metrics: Metrics,
}

/// The properties of the set that concern no request.
#[derive(Debug)]
struct StopBook {
    /// The number of the next stop.
    next: StopId,
    sharing: StopSharing,
}

/// A stop that was added or lifted.
#[derive(Clone, Debug)]
pub struct StopChange {
    pub stop: Arc<EmergencyStop>,
    /// The state of the change on the disk.
    pub persistence: StopPersistence,
}

/// The state of the active stops on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopPersistence {
    /// It has them.
    OnDisk,
    /// It does not, for this reason: a restart would restore an older state. The write is repeated every few seconds.
    InMemory(String),
}

/// The error that there are [`MAX_STOPS`] stops already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyStops;

/// The cause of the refusal of a request that a stop covers.
#[derive(Clone, Debug)]
pub enum StopRefusal {
    /// The stop lasts longer than the request may wait, or too many requests are waiting already.
    Stopped {
        stop: Arc<EmergencyStop>,
        /// The time until it ends, if it has an end.
        remaining: Option<Duration>,
    },
    /// The proxy is shutting down.
    ShuttingDown,
}

impl StopRegistry {
    /// Creates a registry without stops and without a file. At most `max_waiting` requests may wait for the end of a
    /// stop.
    pub fn new(max_waiting: usize, clock: Clock, metrics: Metrics) -> Self {
        Self {
            set: ArcSwap::default(),
            any: AtomicBool::new(false),
            changed: watch::Sender::new(()),
            unshared_change: Notify::new(),
            book: Mutex::new(StopBook {
                next: StopId(1),
                sharing: StopSharing::default(),
            }),
            disk: Mutex::new(None),
            dirty: AtomicBool::new(false),
            write_failed: AtomicBool::new(false),
            held: HeldRequests::new(max_waiting, metrics.clone()),
            closed: AtomicBool::new(false),
            clock,
            metrics,
        }
    }

    /// Activates the stops of a file, and writes changes to it from now on. Stops that have ended meanwhile are
    /// dropped.
    ///
    /// # Errors
    /// If the file exists and cannot be read.
    pub fn restore(&self, file: StopsFile) -> Result<(), UnreadableFile> {
        let saved = file.read()?;
        let now = self.clock.now();
        let wall = self.wall();
        let entries = saved.stops.into_iter().filter_map(|stop| {
            let ends = match stop.until {
                Some(until) => {
                    let remaining = until
                        .checked_sub(wall)
                        .filter(|remaining| !remaining.is_zero())?;
                    now.checked_add(remaining)
                }
                None => None,
            };
            Some(StopEntry {
                stop: Arc::new(stop),
                ends_at: ends,
            })
        });
        *self.disk.lock() = Some(file);
        let mut book = self.book.lock();
        book.next = StopId(saved.next_id.max(1));
        book.sharing.restore(saved.saved_in, saved.lifted);
        self.replace(StopSet::new(entries.collect()));
        Ok(())
    }

    /// Adds a stop, with an end or until it is lifted. Blocks until that has been written; the stop is active before,
    /// and even if the write fails.
    ///
    /// # Errors
    /// If there are too many stops.
    pub fn add(
        &self,
        target: StopTarget,
        reason: StopReason,
        duration: Option<Duration>,
    ) -> Result<StopChange, TooManyStops> {
        let stop = self.insert(target, reason, duration)?;
        self.unshared_change.notify_one();
        Ok(StopChange {
            stop,
            persistence: self.persist(),
        })
    }

    /// Lifts a stop; `None` if no stop has this id. Blocks until that has been written.
    pub fn lift(&self, id: StopId) -> Option<StopChange> {
        let stop = self.remove(id)?;
        self.unshared_change.notify_one();
        Some(StopChange {
            stop,
            persistence: self.persist(),
        })
    }

    /// The active stops.
    pub fn list(&self) -> Vec<Arc<EmergencyStop>> {
        let now = self.clock.now();
        let set = self.set.load();
        set.entries()
            .iter()
            .filter(|entry| entry.is_active(now))
            .map(|entry| Arc::clone(&entry.stop))
            .collect()
    }

    /// Returns the hosts and domains that are stopped by name.
    pub fn stopped_hosts(&self) -> Vec<Box<str>> {
        let stops = self.list();
        let names = stops.iter().filter_map(|stop| match &stop.target {
            StopTarget::Host(name) | StopTarget::Domain(name) => Some(name.clone()),
            StopTarget::Crawler(_) | StopTarget::Rule(_) => None,
        });
        names.collect()
    }

    /// Returns the requests that wait for the end of a stop.
    pub(crate) fn held(&self) -> &HeldRequests {
        &self.held
    }

    /// Returns `true` if there is no stop.
    pub fn is_clear(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Returns the refusal by a stop that covers a request now.
    pub fn find_refusal(&self, query: &StopQuery<'_>) -> Option<StopRefusal> {
        let now = self.clock.now();
        self.set
            .load()
            .find_covering(query, now)
            .map(|entry| refusal_for(entry, now))
    }

    /// Waits until no stop covers a request.
    ///
    /// # Errors
    /// If a stop still covers it at `until`, if too many requests are waiting, or if the proxy is shutting down. A
    /// caller that drops the future stops waiting, and is counted as a client that has left.
    pub async fn wait_until_lifted(
        &self,
        query: &StopQuery<'_>,
        crawler: &Crawler,
        deadline: Instant,
    ) -> Result<(), StopRefusal> {
        let Some(waiting) = self.held.join(query.host, crawler) else {
            return self.find_refusal(query).map_or(Ok(()), Err);
        };
        loop {
            let now = self.clock.now();
            let Some(entry) = self.set.load().find_covering(query, now).cloned() else {
                return waiting.finish(Ok(()));
            };
            if self.closed.load(Ordering::SeqCst) {
                return waiting.finish(Err(StopRefusal::ShuttingDown));
            }
            if deadline <= now {
                return waiting.finish(Err(refusal_for(&entry, now)));
            }
            let wake = entry.ends_at.map_or(deadline, |ends| ends.min(deadline));
            // After the timeout as after a notification, the stops are checked again.
            let _ = timeout(wake.saturating_duration_since(now), waiting.notified()).await;
        }
    }

    /// Waits until no stop covers a request, for at most `max_wait`. Returns the rest of it.
    ///
    /// # Errors
    /// As [`Self::wait_until_lifted`].
    pub async fn wait_until_lifted_for(
        &self,
        query: &StopQuery<'_>,
        crawler: &Crawler,
        max_wait: Duration,
    ) -> Result<Duration, StopRefusal> {
        let deadline = self.clock.now() + max_wait;
        if self.find_refusal(query).is_some() {
            Box::pin(self.wait_until_lifted(query, crawler, deadline)).await?;
        }
        Ok(deadline.saturating_duration_since(self.clock.now()))
    }

    /// Subscribes to changes, for tunnels, which outlive a request.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Refuses all requests that wait now or would have to wait later.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.held.notify_all();
    }

    /// Removes stops that have ended.
    pub fn sweep(&self) {
        if self.is_clear() {
            return;
        }
        let _editing = self.book.lock();
        let now = self.clock.now();
        let set = self.set.load();
        if set.entries().iter().any(|entry| !entry.is_active(now)) {
            self.replace(set.filtered(|entry| entry.is_active(now)));
            self.dirty.store(true, Ordering::SeqCst);
        }
    }

    /// `true` if there are changes to write that no thread is writing.
    pub fn needs_write(&self) -> bool {
        self.dirty.load(Ordering::SeqCst)
    }

    /// Returns `true` if the file differs from the active stops because it cannot be written.
    pub fn has_write_failed(&self) -> bool {
        self.write_failed.load(Ordering::SeqCst)
    }

    /// Writes the active stops to the disk. Blocks.
    pub fn persist(&self) -> StopPersistence {
        let disk = self.disk.lock();
        let Some(file) = disk.as_ref() else {
            return StopPersistence::InMemory("there is no store".into());
        };
        // Cleared before the set is read: a later change is written by the thread that makes it.
        self.dirty.store(false, Ordering::SeqCst);
        let written = file.write(&self.to_saved());
        self.write_failed.store(written.is_err(), Ordering::SeqCst);
        match written {
            Ok(()) => StopPersistence::OnDisk,
            Err(error) => {
                self.dirty.store(true, Ordering::SeqCst);
                StopPersistence::InMemory(write_error_text(file, &error))
            }
        }
    }

    fn to_saved(&self) -> SavedStops {
        let book = self.book.lock();
        let stops: Vec<EmergencyStop> = self
            .list()
            .iter()
            .map(|stop| EmergencyStop::clone(stop))
            .collect();
        SavedStops {
            saved_in: book.sharing.saved_in(&stops),
            lifted: book.sharing.lifted().clone(),
            stops,
            next_id: book.next.0,
        }
    }

    fn insert(
        &self,
        target: StopTarget,
        reason: StopReason,
        duration: Option<Duration>,
    ) -> Result<Arc<EmergencyStop>, TooManyStops> {
        self.sweep();
        let mut book = self.book.lock();
        let now = self.clock.now();
        let set = self.set.load();
        if set.entries().len() >= MAX_STOPS {
            return Err(TooManyStops);
        }
        let started_at = self.wall();
        let mut id = match book.sharing.is_on() {
            true => sharing::fleet_id(started_at).max(book.next),
            false => book.next,
        };
        while set.entry(id).is_some() {
            // Of another node of the fleet.
            id = StopId(id.0.saturating_add(1));
        }
        let until = duration.map(|duration| started_at.saturating_add(duration));
        let stop = Arc::new(EmergencyStop {
            id,
            target,
            reason,
            since: started_at,
            until,
        });
        book.next = StopId(id.0.saturating_add(1));
        let ends = duration.and_then(|duration| now.checked_add(duration));
        self.replace(set.with_entry(StopEntry {
            stop: Arc::clone(&stop),
            ends_at: ends,
        }));
        Ok(stop)
    }

    fn remove(&self, id: StopId) -> Option<Arc<EmergencyStop>> {
        let mut book = self.book.lock();
        let now = self.clock.now();
        let set = self.set.load();
        let stop = set
            .entry(id)
            .filter(|entry| entry.is_active(now))
            .map(|entry| Arc::clone(&entry.stop))?;
        self.replace(set.filtered(|entry| entry.stop.id != id));
        book.sharing.lift(id);
        Some(stop)
    }

    /// Activates a set and notifies subscribers and waiting requests.
    fn replace(&self, set: StopSet) {
        let count = set.entries().len();
        self.set.store(Arc::new(set));
        self.any.store(count > 0, Ordering::Release);
        self.metrics.set_stops(count);
        self.changed.send_replace(());
        self.held.notify_all();
    }

    fn wall(&self) -> Duration {
        self.clock
            .wall_time()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
    }
}

/// Converts a time of a stop.
pub fn wall_time(since_1970: Duration) -> SystemTime {
    UNIX_EPOCH.checked_add(since_1970).unwrap_or(UNIX_EPOCH)
}

fn write_error_text(file: &StopsFile, error: &io::Error) -> String {
    format!("{}: {error}", file.path().display())
}

fn refusal_for(entry: &StopEntry, now: Instant) -> StopRefusal {
    StopRefusal::Stopped {
        stop: Arc::clone(&entry.stop),
        remaining: entry.remaining(now),
    }
}
