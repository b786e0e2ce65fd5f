//! The stop button: the stops in force, asked by every request, changed by operators, kept over a restart.
//!
//! While there is no stop a request is asked one flag. Which request a stop covers is said in
//! [`crate::pacing::stops`], how a request of the gate waits and is refused in `stage/stop.rs` and `hold/stopped.rs`.
//! What changes stops blocks on the disk; what requests ask never does.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::model::crawler::Crawler;
pub use crate::pacing::stops::stop::{MAX_STOP_DURATION, parse_stop_duration};
pub use crate::pacing::stops::{EmergencyStop, MAX_STOPS, StopId, StopReason, StopTarget};
use crate::pacing::stops::{StopEntry, StopQuery, StopSet};
use crate::store::stops::{SavedStops, StopsFile, UnreadableFile};

/// The stops in force.
#[derive(Debug)]
pub struct StopRegistry {
    set: ArcSwap<StopSet>,
    /// Whether there is any: all that a request asks as long as there is none.
    any: AtomicBool,
    changed: watch::Sender<()>,
    /// The number of the next one. Whoever changes the set holds it, and never while the disk is waited for.
    next: Mutex<StopId>,
    disk: Mutex<Option<StopsFile>>,
    /// Whether the disk has to be told something that nobody is telling it.
    dirty: AtomicBool,
    /// Whether it could not be told the last time.
    write_failed: AtomicBool,
    waiters: Mutex<StopWaiters>,
    max_waiting: usize,
    closed: AtomicBool,
    clock: Clock,
    metrics: Metrics,
}

/// Those that wait, in the order in which they came: so they are woken, and so they ask for their host's turn.
#[derive(Debug, Default)]
struct StopWaiters {
    waiters: BTreeMap<u64, StopWaiter>,
    next: u64,
}

#[derive(Debug)]
struct StopWaiter {
    notify: Arc<Notify>,
    host: Box<str>,
    crawler: Box<str>,
}

/// How many of which crawler wait.
pub type WaitingByCrawler = BTreeMap<Box<str>, usize>;

/// A stop that was given or lifted.
#[derive(Clone, Debug)]
pub struct StopChange {
    /// The stop.
    pub stop: Arc<EmergencyStop>,
    /// Whether a restart will know of it.
    pub persistence: StopPersistence,
}

/// Whether the disk says what is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopPersistence {
    /// It does.
    OnDisk,
    /// It does not, for this reason: a restart would go back to what it says. It is tried again every few seconds.
    InMemory(String),
}

/// There are [`MAX_STOPS`] stops already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyStops;

/// Why a request that a stop covers does not go.
#[derive(Clone, Debug)]
pub enum StopRefusal {
    /// The stop lasts longer than the request may wait, or too many wait already.
    Stopped {
        /// The stop.
        stop: Arc<EmergencyStop>,
        /// How long it still lasts, if it ends by itself.
        left: Option<Duration>,
    },
    /// The proxy goes down.
    ShuttingDown,
}

impl StopRegistry {
    /// No stops, kept in memory alone. So many requests may wait for the end of one.
    pub fn new(max_waiting: usize, clock: Clock, metrics: Metrics) -> Self {
        Self {
            set: ArcSwap::default(),
            any: AtomicBool::new(false),
            changed: watch::Sender::new(()),
            next: Mutex::new(StopId(1)),
            disk: Mutex::new(None),
            dirty: AtomicBool::new(false),
            write_failed: AtomicBool::new(false),
            waiters: Mutex::default(),
            max_waiting,
            closed: AtomicBool::new(false),
            clock,
            metrics,
        }
    }

    /// Puts in force what this file says, and keeps it there from now on. What has ended meanwhile is left out.
    ///
    /// # Errors
    /// If the file is there and cannot be read.
    pub fn restore(&self, file: StopsFile) -> Result<(), UnreadableFile> {
        let saved = file.read()?;
        let (now, wall) = (self.clock.now(), self.wall());
        let entries = saved.stops.into_iter().filter_map(|stop| {
            let ends = match stop.until {
                Some(until) => {
                    let left = until.checked_sub(wall).filter(|left| !left.is_zero())?;
                    now.checked_add(left)
                }
                None => None,
            };
            Some(StopEntry {
                stop: Arc::new(stop),
                ends_at: ends,
            })
        });
        *lock(&self.disk) = Some(file);
        let mut next = lock(&self.next);
        *next = StopId(saved.next_id.max(1));
        self.replace(StopSet::new(entries.collect()));
        Ok(())
    }

    /// Stops something from now on, for so long or until it is lifted. Blocks until that is on the disk; it is in force
    /// before that, and whatever the disk says.
    ///
    /// # Errors
    /// If there are too many.
    pub fn add(
        &self,
        target: StopTarget,
        reason: StopReason,
        duration: Option<Duration>,
    ) -> Result<StopChange, TooManyStops> {
        let stop = self.insert(target, reason, duration)?;
        Ok(StopChange {
            stop,
            persistence: self.persist(),
        })
    }

    /// Lifts a stop; `None` if there is none of this id. Blocks until that is on the disk.
    pub fn lift(&self, id: StopId) -> Option<StopChange> {
        let stop = self.remove(id)?;
        Some(StopChange {
            stop,
            persistence: self.persist(),
        })
    }

    /// The stops in force.
    pub fn list(&self) -> Vec<Arc<EmergencyStop>> {
        let now = self.clock.now();
        let set = self.set.load();
        set.entries()
            .iter()
            .filter(|entry| entry.is_active(now))
            .map(|entry| Arc::clone(&entry.stop))
            .collect()
    }

    /// The hosts and domains that are stopped by name.
    pub fn stopped_hosts(&self) -> Vec<Box<str>> {
        let stops = self.list();
        let names = stops.iter().filter_map(|stop| match &stop.target {
            StopTarget::Host(name) | StopTarget::Domain(name) => Some(name.clone()),
            StopTarget::Crawler(_) | StopTarget::Rule(_) => None,
        });
        names.collect()
    }

    /// Who waits for the end of a stop, by host.
    pub fn waiting_by_host(&self) -> BTreeMap<Box<str>, WaitingByCrawler> {
        let mut hosts = BTreeMap::<_, WaitingByCrawler>::new();
        for StopWaiter { host, crawler, .. } in lock(&self.waiters).waiters.values() {
            *hosts
                .entry(host.clone())
                .or_default()
                .entry(crawler.clone())
                .or_default() += 1;
        }
        hosts
    }

    /// Whether nothing is stopped.
    pub fn is_clear(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// The stop that covers this now.
    pub fn find_refusal(&self, covers: &StopQuery<'_>) -> Option<StopRefusal> {
        let now = self.clock.now();
        self.set
            .load()
            .find_covering(covers, now)
            .map(|entry| refusal_for(entry, now))
    }

    /// Waits until no stop covers this.
    ///
    /// # Errors
    /// If one does at the time `until`, or too many wait already, or the proxy goes down. Whoever drops this does not
    /// wait any more, and is counted as a client that has left.
    pub async fn wait_until_lifted(
        &self,
        covers: &StopQuery<'_>,
        crawler: &Crawler,
        until: Instant,
    ) -> Result<(), StopRefusal> {
        let Some(waiting) = StopWait::join(self, covers.host, crawler) else {
            return self.find_refusal(covers).map_or(Ok(()), Err);
        };
        loop {
            let now = self.clock.now();
            let Some(entry) = self.set.load().find_covering(covers, now).cloned() else {
                return waiting.finish(Ok(()));
            };
            if self.closed.load(Ordering::SeqCst) {
                return waiting.finish(Err(StopRefusal::ShuttingDown));
            }
            if until <= now {
                return waiting.finish(Err(refusal_for(&entry, now)));
            }
            let wake = entry.ends_at.map_or(until, |ends| ends.min(until));
            // Over or told: either is a reason to look again.
            let _ = timeout(
                wake.saturating_duration_since(now),
                waiting.notify.notified(),
            )
            .await;
        }
    }

    /// The same for so long; what is left of it.
    ///
    /// # Errors
    /// As [`Self::wait_until_lifted`].
    pub async fn wait_until_lifted_for(
        &self,
        covers: &StopQuery<'_>,
        crawler: &Crawler,
        patience: Duration,
    ) -> Result<Duration, StopRefusal> {
        let until = self.clock.now() + patience;
        if self.find_refusal(covers).is_some() {
            Box::pin(self.wait_until_lifted(covers, crawler, until)).await?;
        }
        Ok(until.saturating_duration_since(self.clock.now()))
    }

    /// Sees each change from now on: for what stays open longer than a request.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Sends away who waits, and from now on who would have to.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.notify_all();
    }

    /// Forgets stops that have ended.
    pub fn sweep(&self) {
        if self.is_clear() {
            return;
        }
        let _editing = lock(&self.next);
        let (now, set) = (self.clock.now(), self.set.load());
        if set.entries().iter().any(|entry| !entry.is_active(now)) {
            self.replace(set.filtered(|entry| entry.is_active(now)));
            self.dirty.store(true, Ordering::SeqCst);
        }
    }

    /// Whether the disk has to be told something: [`Self::keep`] does.
    pub fn needs_write(&self) -> bool {
        self.dirty.load(Ordering::SeqCst)
    }

    /// Whether the disk says something else than what is in force, because it cannot be written.
    pub fn has_write_failed(&self) -> bool {
        self.write_failed.load(Ordering::SeqCst)
    }

    /// Writes what is in force to the disk. Blocks.
    pub fn persist(&self) -> StopPersistence {
        let disk = lock(&self.disk);
        let Some(file) = disk.as_ref() else {
            return StopPersistence::InMemory("there is no store".into());
        };
        // Before it is read: a change behind this is written by whoever makes it.
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
        let next = lock(&self.next);
        SavedStops {
            stops: self
                .list()
                .iter()
                .map(|stop| EmergencyStop::clone(stop))
                .collect(),
            next_id: next.0,
        }
    }

    fn insert(
        &self,
        target: StopTarget,
        reason: StopReason,
        duration: Option<Duration>,
    ) -> Result<Arc<EmergencyStop>, TooManyStops> {
        self.sweep();
        let mut next = lock(&self.next);
        let (now, set) = (self.clock.now(), self.set.load());
        if set.entries().len() >= MAX_STOPS {
            return Err(TooManyStops);
        }
        let (id, since) = (*next, self.wall());
        let until = duration.map(|lasts| since.saturating_add(lasts));
        let stop = Arc::new(EmergencyStop {
            id,
            target,
            reason,
            since,
            until,
        });
        *next = StopId(id.0.saturating_add(1));
        let ends = duration.and_then(|lasts| now.checked_add(lasts));
        self.replace(set.with_entry(StopEntry {
            stop: Arc::clone(&stop),
            ends_at: ends,
        }));
        Ok(stop)
    }

    fn remove(&self, id: StopId) -> Option<Arc<EmergencyStop>> {
        let _editing = lock(&self.next);
        let (now, set) = (self.clock.now(), self.set.load());
        let stop = set
            .entry(id)
            .filter(|entry| entry.is_active(now))
            .map(|entry| Arc::clone(&entry.stop))?;
        self.replace(set.filtered(|entry| entry.stop.id != id));
        Some(stop)
    }

    /// Puts a set in force and tells everybody.
    fn replace(&self, set: StopSet) {
        let count = set.entries().len();
        self.set.store(Arc::new(set));
        self.any.store(count > 0, Ordering::Release);
        self.metrics.set_stops(count);
        self.changed.send_replace(());
        self.notify_all();
    }

    /// Wakes everybody.
    fn notify_all(&self) {
        lock(&self.waiters)
            .waiters
            .values()
            .for_each(|waiting| waiting.notify.notify_one());
    }

    fn wall(&self) -> Duration {
        self.clock
            .wall_time()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
    }
}

/// A wall time of a stop.
pub fn wall_time(since_1970: Duration) -> SystemTime {
    UNIX_EPOCH.checked_add(since_1970).unwrap_or(UNIX_EPOCH)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write_error_text(file: &StopsFile, error: &io::Error) -> String {
    format!("{}: {error}", file.path().display())
}

fn refusal_for(entry: &StopEntry, now: Instant) -> StopRefusal {
    StopRefusal::Stopped {
        stop: Arc::clone(&entry.stop),
        left: entry.remaining(now),
    }
}

/// One that waits. If it is dropped before its wait has ended the client has left.
struct StopWait<'s> {
    stops: &'s StopRegistry,
    crawler: &'s Crawler,
    number: u64,
    notify: Arc<Notify>,
    end: StopWaitEnd,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StopWaitEnd {
    Abandoned,
    Answered,
}

impl<'s> StopWait<'s> {
    /// A place; none if too many wait already.
    fn join(stops: &'s StopRegistry, host: &str, crawler: &'s Crawler) -> Option<Self> {
        let mut waiting = lock(&stops.waiters);
        if waiting.waiters.len() >= stops.max_waiting {
            return None;
        }
        let (number, bell) = (waiting.next, Arc::new(Notify::new()));
        waiting.next += 1;
        let (host, name) = (host.into(), crawler.as_str().into());
        waiting.waiters.insert(
            number,
            StopWaiter {
                notify: Arc::clone(&bell),
                host,
                crawler: name,
            },
        );
        stops.metrics.inc_held();
        Some(Self {
            stops,
            crawler,
            number,
            notify: bell,
            end: StopWaitEnd::Abandoned,
        })
    }

    fn finish<T>(mut self, result: T) -> T {
        self.end = StopWaitEnd::Answered;
        result
    }
}

impl Drop for StopWait<'_> {
    fn drop(&mut self) {
        self.stops.metrics.dec_held();
        lock(&self.stops.waiters).waiters.remove(&self.number);
        if self.end == StopWaitEnd::Abandoned {
            self.stops.metrics.record_held_disconnect(self.crawler);
        }
    }
}
