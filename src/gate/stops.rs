//! The stop button: the stops in force, asked by every request, changed by operators, kept over a restart.
//!
//! While there is no stop a request is asked one flag. Which request a stop covers is said in
//! [`crate::politeness::stops`], how a request of the gate waits and is refused in `stage/stop.rs` and `hold/stopped.rs`.
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
pub use crate::politeness::stops::stop::{LONGEST, lasting};
use crate::politeness::stops::{Covers, Entry, StopSet};
pub use crate::politeness::stops::{MOST, Stop, StopId, StopReason, Target};
use crate::store::stops::{Saved, StopsFile, Unreadable};
use crate::vocab::crawler::Crawler;

/// The stops in force.
#[derive(Debug)]
pub struct Stops {
    set: ArcSwap<StopSet>,
    /// Whether there is any: all that a request asks as long as there is none.
    any: AtomicBool,
    changed: watch::Sender<()>,
    /// The number of the next one. Whoever changes the set holds it, and never while the disk is waited for.
    next: Mutex<StopId>,
    disk: Mutex<Option<StopsFile>>,
    /// Whether the disk has to be told something that nobody is telling it.
    behind: AtomicBool,
    /// Whether it could not be told the last time.
    fails: AtomicBool,
    waiting: Mutex<Bells>,
    most_waiting: usize,
    closed: AtomicBool,
    clock: Clock,
    metrics: Metrics,
}

/// Those that wait, in the order in which they came: so they are woken, and so they ask for their host's turn.
#[derive(Debug, Default)]
struct Bells {
    bells: BTreeMap<u64, Bell>,
    next: u64,
}

#[derive(Debug)]
struct Bell {
    bell: Arc<Notify>,
    host: Box<str>,
    crawler: Box<str>,
}

/// How many of which crawler wait.
pub type Crawlers = BTreeMap<Box<str>, usize>;

/// A stop that was given or lifted.
#[derive(Clone, Debug)]
pub struct Change {
    /// The stop.
    pub stop: Arc<Stop>,
    /// Whether a restart will know of it.
    pub kept: Kept,
}

/// Whether the disk says what is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It does.
    OnDisk,
    /// It does not, for this reason: a restart would go back to what it says. It is tried again every few seconds.
    InMemory(String),
}

/// There are [`MOST`] stops already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// Why a request that a stop covers does not go.
#[derive(Clone, Debug)]
pub enum Turned {
    /// The stop lasts longer than the request may wait, or too many wait already.
    Stopped {
        /// The stop.
        stop: Arc<Stop>,
        /// How long it still lasts, if it ends by itself.
        left: Option<Duration>,
    },
    /// The proxy goes down.
    ShuttingDown,
}

impl Stops {
    /// No stops, kept in memory alone. So many requests may wait for the end of one.
    pub fn new(most_waiting: usize, clock: Clock, metrics: Metrics) -> Self {
        Self {
            set: ArcSwap::default(),
            any: AtomicBool::new(false),
            changed: watch::Sender::new(()),
            next: Mutex::new(StopId(1)),
            disk: Mutex::new(None),
            behind: AtomicBool::new(false),
            fails: AtomicBool::new(false),
            waiting: Mutex::default(),
            most_waiting,
            closed: AtomicBool::new(false),
            clock,
            metrics,
        }
    }

    /// Puts in force what this file says, and keeps it there from now on. What has ended meanwhile is left out.
    ///
    /// # Errors
    /// If the file is there and cannot be read.
    pub fn restore(&self, file: StopsFile) -> Result<(), Unreadable> {
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
            Some(Entry {
                stop: Arc::new(stop),
                ends,
            })
        });
        *lock(&self.disk) = Some(file);
        let mut next = lock(&self.next);
        *next = StopId(saved.next.max(1));
        self.replace(StopSet::new(entries.collect()));
        Ok(())
    }

    /// Stops something from now on, for so long or until it is lifted. Blocks until that is on the disk; it is in force
    /// before that, and whatever the disk says.
    ///
    /// # Errors
    /// If there are too many.
    pub fn press(
        &self,
        target: Target,
        reason: StopReason,
        lasts: Option<Duration>,
    ) -> Result<Change, TooMany> {
        let stop = self.put(target, reason, lasts)?;
        Ok(Change {
            stop,
            kept: self.keep(),
        })
    }

    /// Lifts a stop; `None` if there is none of this id. Blocks until that is on the disk.
    pub fn lift(&self, id: StopId) -> Option<Change> {
        let stop = self.take(id)?;
        Some(Change {
            stop,
            kept: self.keep(),
        })
    }

    /// The stops in force.
    pub fn list(&self) -> Vec<Arc<Stop>> {
        let now = self.clock.now();
        let set = self.set.load();
        set.entries()
            .iter()
            .filter(|entry| entry.holds(now))
            .map(|entry| Arc::clone(&entry.stop))
            .collect()
    }

    /// The hosts and domains that are stopped by name.
    pub fn hosts(&self) -> Vec<Box<str>> {
        let stops = self.list();
        let names = stops.iter().filter_map(|stop| match &stop.target {
            Target::Host(name) | Target::Domain(name) => Some(name.clone()),
            Target::Crawler(_) | Target::Rule(_) => None,
        });
        names.collect()
    }

    /// Who waits for the end of a stop, by host.
    pub fn waiting(&self) -> BTreeMap<Box<str>, Crawlers> {
        let mut hosts = BTreeMap::<_, Crawlers>::new();
        for Bell { host, crawler, .. } in lock(&self.waiting).bells.values() {
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
    pub fn covering(&self, covers: &Covers<'_>) -> Option<Turned> {
        let now = self.clock.now();
        self.set
            .load()
            .covering(covers, now)
            .map(|entry| turned(entry, now))
    }

    /// Waits until no stop covers this.
    ///
    /// # Errors
    /// If one does at the time `until`, or too many wait already, or the proxy goes down. Whoever drops this does not
    /// wait any more, and is counted as a client that has left.
    pub async fn outlast(
        &self,
        covers: &Covers<'_>,
        crawler: &Crawler,
        until: Instant,
    ) -> Result<(), Turned> {
        let Some(waiting) = Waiting::join(self, covers.host, crawler) else {
            return self.covering(covers).map_or(Ok(()), Err);
        };
        loop {
            let now = self.clock.now();
            let Some(entry) = self.set.load().covering(covers, now).cloned() else {
                return waiting.ended(Ok(()));
            };
            if self.closed.load(Ordering::SeqCst) {
                return waiting.ended(Err(Turned::ShuttingDown));
            }
            if until <= now {
                return waiting.ended(Err(turned(&entry, now)));
            }
            let wake = entry.ends.map_or(until, |ends| ends.min(until));
            // Over or told: either is a reason to look again.
            let _ = timeout(wake.saturating_duration_since(now), waiting.bell.notified()).await;
        }
    }

    /// The same for so long; what is left of it.
    ///
    /// # Errors
    /// As [`Self::outlast`].
    pub async fn outlast_for(
        &self,
        covers: &Covers<'_>,
        crawler: &Crawler,
        patience: Duration,
    ) -> Result<Duration, Turned> {
        let until = self.clock.now() + patience;
        if self.covering(covers).is_some() {
            Box::pin(self.outlast(covers, crawler, until)).await?;
        }
        Ok(until.saturating_duration_since(self.clock.now()))
    }

    /// Sees each change from now on: for what stays open longer than a request.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Sends away who waits, and from now on who would have to.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// Forgets stops that have ended.
    pub fn sweep(&self) {
        if self.is_clear() {
            return;
        }
        let _editing = lock(&self.next);
        let (now, set) = (self.clock.now(), self.set.load());
        if set.entries().iter().any(|entry| !entry.holds(now)) {
            self.replace(set.keeping(|entry| entry.holds(now)));
            self.behind.store(true, Ordering::SeqCst);
        }
    }

    /// Whether the disk has to be told something: [`Self::keep`] does.
    pub fn is_behind(&self) -> bool {
        self.behind.load(Ordering::SeqCst)
    }

    /// Whether the disk says something else than what is in force, because it cannot be written.
    pub fn is_unkept(&self) -> bool {
        self.fails.load(Ordering::SeqCst)
    }

    /// Writes what is in force to the disk. Blocks.
    pub fn keep(&self) -> Kept {
        let disk = lock(&self.disk);
        let Some(file) = disk.as_ref() else {
            return Kept::InMemory("there is no store".into());
        };
        // Before it is read: a change behind this is written by whoever makes it.
        self.behind.store(false, Ordering::SeqCst);
        let written = file.write(&self.saved());
        self.fails.store(written.is_err(), Ordering::SeqCst);
        match written {
            Ok(()) => Kept::OnDisk,
            Err(error) => {
                self.behind.store(true, Ordering::SeqCst);
                Kept::InMemory(told(file, &error))
            }
        }
    }

    fn saved(&self) -> Saved {
        let next = lock(&self.next);
        Saved {
            stops: self.list().iter().map(|stop| Stop::clone(stop)).collect(),
            next: next.0,
        }
    }

    fn put(
        &self,
        target: Target,
        reason: StopReason,
        lasts: Option<Duration>,
    ) -> Result<Arc<Stop>, TooMany> {
        self.sweep();
        let mut next = lock(&self.next);
        let (now, set) = (self.clock.now(), self.set.load());
        if set.entries().len() >= MOST {
            return Err(TooMany);
        }
        let (id, since) = (*next, self.wall());
        let until = lasts.map(|lasts| since.saturating_add(lasts));
        let stop = Arc::new(Stop {
            id,
            target,
            reason,
            since,
            until,
        });
        *next = StopId(id.0.saturating_add(1));
        let ends = lasts.and_then(|lasts| now.checked_add(lasts));
        self.replace(set.with(Entry {
            stop: Arc::clone(&stop),
            ends,
        }));
        Ok(stop)
    }

    fn take(&self, id: StopId) -> Option<Arc<Stop>> {
        let _editing = lock(&self.next);
        let (now, set) = (self.clock.now(), self.set.load());
        let stop = set
            .entry(id)
            .filter(|entry| entry.holds(now))
            .map(|entry| Arc::clone(&entry.stop))?;
        self.replace(set.keeping(|entry| entry.stop.id != id));
        Some(stop)
    }

    /// Puts a set in force and tells everybody.
    fn replace(&self, set: StopSet) {
        let count = set.entries().len();
        self.set.store(Arc::new(set));
        self.any.store(count > 0, Ordering::Release);
        self.metrics.stops(count);
        self.changed.send_replace(());
        self.ring();
    }

    /// Wakes everybody.
    fn ring(&self) {
        lock(&self.waiting)
            .bells
            .values()
            .for_each(|waiting| waiting.bell.notify_one());
    }

    fn wall(&self) -> Duration {
        self.clock
            .wall()
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

fn told(file: &StopsFile, error: &io::Error) -> String {
    format!("{}: {error}", file.path().display())
}

fn turned(entry: &Entry, now: Instant) -> Turned {
    Turned::Stopped {
        stop: Arc::clone(&entry.stop),
        left: entry.left(now),
    }
}

/// One that waits. If it is dropped before its wait has ended the client has left.
struct Waiting<'s> {
    stops: &'s Stops,
    crawler: &'s Crawler,
    number: u64,
    bell: Arc<Notify>,
    end: End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Left,
    Answered,
}

impl<'s> Waiting<'s> {
    /// A place; none if too many wait already.
    fn join(stops: &'s Stops, host: &str, crawler: &'s Crawler) -> Option<Self> {
        let mut waiting = lock(&stops.waiting);
        if waiting.bells.len() >= stops.most_waiting {
            return None;
        }
        let (number, bell) = (waiting.next, Arc::new(Notify::new()));
        waiting.next += 1;
        let (host, name) = (host.into(), crawler.as_str().into());
        waiting.bells.insert(
            number,
            Bell {
                bell: Arc::clone(&bell),
                host,
                crawler: name,
            },
        );
        stops.metrics.hold_begins();
        Some(Self {
            stops,
            crawler,
            number,
            bell,
            end: End::Left,
        })
    }

    fn ended<T>(mut self, with: T) -> T {
        self.end = End::Answered;
        with
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.stops.metrics.hold_ends();
        lock(&self.stops.waiting).bells.remove(&self.number);
        if self.end == End::Left {
            self.stops.metrics.left_while_held(self.crawler);
        }
    }
}
