//! Hosts' robots.txt: remembered, and fetched once for all that wait for it.
//!
//! A fetch is a task of its own, so that it goes on if the request that began it is given up. How one fetch runs is in
//! `fetch`; what its outcome means is in `crate::robots::standing`.

mod body;
mod fetch;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use moka::sync::Cache;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::gate::robots::seen::RobotsSeen;
use crate::gate::robots::{Errand, Found, RobotsFiles};
use crate::metrics::Metrics;
use crate::robots::ending::Ending;
use crate::robots::standing::{Fetched, Known};
use crate::vocab::target::UrlTarget;
use crate::vocab::verify::Verify;

pub use fetch::{Fetch, Fetcher};

/// Bytes of memory for all hosts together.
const REMEMBERED: u64 = 256 << 20;
/// Of them for those that are not verified.
const UNVERIFIED: u64 = 16 << 20;
/// What a host costs beside its file: its name, and its places in the memory's tables.
const HOST_BYTES: usize = 512;

/// What is known of hosts' robots.txt.
#[derive(Debug)]
pub struct Robots(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    verified: Memory,
    /// What came from hosts that have not proved who they are, for those who need no proof.
    unverified: Memory,
    fetcher: Fetcher,
    clock: Clock,
    metrics: Metrics,
}

/// Hosts by what their URLs begin with: scheme, host and port.
#[derive(Debug)]
struct Memory {
    known: Cache<Box<str>, Arc<Known>, RandomState>,
    flights: Mutex<Flights>,
}

/// Fetches under way, by what the URLs of their hosts begin with.
type Flights = HashMap<Box<str>, Flight>;

/// A fetch under way, and then what it has brought. Its end is that of the sender.
type Flight = watch::Receiver<Option<Arc<Known>>>;

impl Robots {
    /// Nothing is known yet.
    pub fn new(fetcher: Fetcher, clock: Clock, metrics: Metrics) -> Self {
        let (verified, unverified) = (
            Memory::new(REMEMBERED - UNVERIFIED),
            Memory::new(UNVERIFIED),
        );
        Self(Arc::new(Shared {
            verified,
            unverified,
            fetcher,
            clock,
            metrics,
        }))
    }

    /// Tells the metrics how many hosts are remembered; now and then.
    pub fn sweep(&self) {
        let memories = [&self.0.verified.known, &self.0.unverified.known];
        memories
            .iter()
            .for_each(|memory| memory.run_pending_tasks());
        self.0
            .metrics
            .robots_remembered(memories.iter().map(|memory| memory.entry_count()).sum());
    }
}

impl Robots {
    /// What is remembered of a host in canonical form, under every scheme and port. All that is remembered is looked
    /// through.
    pub fn of_host(&self, host: &str) -> Vec<RobotsSeen> {
        let times = (self.0.clock.now(), self.0.clock.wall());
        let memories = [
            (Verify::On, &self.0.verified.known),
            (Verify::Skip, &self.0.unverified.known),
        ];
        let entries = memories
            .into_iter()
            .flat_map(|(verify, known)| known.iter().map(move |e| (verify, e)));
        let of_host = entries.filter(|(_, (base, _))| is_of(base, host));
        let mut seen: Vec<RobotsSeen> = of_host
            .filter_map(|(verify, (base, known))| RobotsSeen::new(&base, verify, &known, times))
            .collect();
        seen.sort_by(|a, b| (&a.scheme, &a.authority).cmp(&(&b.scheme, &b.authority)));
        seen
    }
}

/// Whether what URLs begin with, `scheme://host[:port]/`, has this host.
fn is_of(base: &str, host: &str) -> bool {
    let authority = base.split_once("://").map(|(_, rest)| rest);
    let behind = authority.and_then(|authority| authority.strip_prefix(host));
    behind.is_some_and(|behind| behind.starts_with(['/', ':']))
}

impl RobotsFiles for Robots {
    fn known(&self, target: &UrlTarget, verify: Verify) -> Option<Found> {
        let now = self.0.clock.now();
        let known = self.0.memory(verify).known.get(target.base())?;
        match known.is_fresh(now) {
            true => Some(Found::Fresh(known)),
            false => known.holds_on(now).then_some(Found::Past(known)),
        }
    }

    fn renew(&self, target: &UrlTarget, verify: Verify, errand: impl FnOnce() -> Errand) {
        let memory = self.0.memory(verify);
        let mut flights = memory.flights();
        let now = self.0.clock.now();
        // It may have been renewed between the two looks.
        let needless = |flights: &Flights| {
            let known = || memory.known.get(target.base());
            under_way(flights, target).is_some()
                || known().is_some_and(|known| known.is_fresh(now) || known.rests(now))
        };
        if !needless(&flights) {
            self.begin(target, errand(), &mut flights);
        }
    }

    async fn fetch(&self, target: &UrlTarget, errand: Errand) -> Arc<Known> {
        let mut flight = match self.join(target, errand) {
            Joined::Flight(flight) => flight,
            Joined::Landed(known) => return known,
        };
        // An error is the end of the sender, behind which stands what there is.
        let _ = flight.changed().await;
        let brought = flight.borrow().clone();
        // A fetch that ended in a panic has brought nothing.
        let nothing = || {
            Arc::new(Known::after(
                None,
                &Fetched::failed(Ending::Broken),
                self.0.clock.now(),
            ))
        };
        brought.unwrap_or_else(nothing)
    }
}

/// What became of who wants to know.
enum Joined {
    /// A fetch is under way.
    Flight(Flight),
    /// One has just ended.
    Landed(Arc<Known>),
}

impl Robots {
    fn join(&self, target: &UrlTarget, errand: Errand) -> Joined {
        let memory = self.0.memory(errand.verify);
        let mut flights = memory.flights();
        if let Some(flight) = under_way(&flights, target) {
            return Joined::Flight(flight.clone());
        }
        if let Some(known) = memory.fresh(target.base(), &self.0.clock) {
            return Joined::Landed(known);
        }
        Joined::Flight(self.begin(target, errand, &mut flights))
    }

    /// Begins a fetch of its own.
    fn begin(&self, target: &UrlTarget, errand: Errand, flights: &mut Flights) -> Flight {
        let (landing, flight) = watch::channel(None);
        flights.insert(target.base().into(), flight.clone());
        let (shared, target) = (Arc::clone(&self.0), target.clone());
        // Boxed, since a task is moved several times before it is in its place.
        tokio::spawn(Box::pin(async move {
            let known = shared.learn(&target, &errand).await;
            // Nobody may be waiting any more.
            let _ = landing.send(Some(known));
            shared.memory(errand.verify).flights().remove(target.base());
        }));
        flight
    }
}

/// The fetch of a host's file that has not ended.
fn under_way<'f>(flights: &'f Flights, target: &UrlTarget) -> Option<&'f Flight> {
    flights
        .get(target.base())
        .filter(|flight| flight.has_changed().is_ok())
}

impl Shared {
    fn memory(&self, verify: Verify) -> &Memory {
        match verify {
            Verify::On => &self.verified,
            Verify::Skip => &self.unverified,
        }
    }

    async fn learn(&self, target: &UrlTarget, errand: &Errand) -> Arc<Known> {
        let memory = self.memory(errand.verify);
        let before = memory.known.get(target.base());
        let asked_by = before
            .as_deref()
            .and_then(Known::validators)
            .unwrap_or_default();
        let fetch = self.fetcher.fetch(target, errand, asked_by).await;
        let known = Arc::new(Known::after(
            before.as_ref(),
            &fetch.fetched(),
            self.clock.now(),
        ));
        // Without a turn what is known stays, and with it how that ended.
        let ending = if fetch.ending == Ending::Held {
            Ending::Held
        } else {
            known.ending
        };
        self.metrics.robots_fetched(ending as usize);
        memory
            .known
            .insert(target.base().into(), Arc::clone(&known));
        known
    }
}

impl Memory {
    fn new(bytes: u64) -> Self {
        let known = Cache::builder().max_capacity(bytes).weigher(weight);
        let known = known.build_with_hasher(RandomState::default());
        Self {
            known,
            flights: Mutex::default(),
        }
    }

    fn fresh(&self, base: &str, clock: &Clock) -> Option<Arc<Known>> {
        self.known
            .get(base)
            .filter(|known| known.is_fresh(clock.now()))
    }

    fn flights(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of memory.
fn weight<K: AsRef<str>>(key: &K, known: &Arc<Known>) -> u32 {
    u32::try_from(HOST_BYTES + key.as_ref().len() + known.bytes()).unwrap_or(u32::MAX)
}
