//! Hosts' robots.txt: remembered, and fetched once for all that wait for it.
//!
//! A fetch is a task of its own, so that it goes on if the request that began it is given up. How one fetch runs is in
//! `fetch`; what its outcome means is in `crate::robots::standing`.

mod body;
mod fetch;

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use moka::sync::Cache;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::gate::robots::{Errand, RobotsFiles};
use crate::metrics::Metrics;
use crate::robots::standing::{Ending, Fetched, Known};
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
    memory: Memory,
    /// What came from hosts that have not proved who they are, for those who need no proof.
    unverified: Memory,
    fetcher: Fetcher,
    clock: Clock,
    metrics: Metrics,
}

/// Hosts by scheme, host and port.
type Memory = Cache<Box<str>, Arc<Host>>;

/// One scheme, host and port.
#[derive(Debug, Default)]
struct Host {
    known: ArcSwapOption<Known>,
    /// The fetch under way: its end is that of the sender.
    flight: Mutex<Option<watch::Receiver<()>>>,
}

impl Robots {
    /// Nothing is known yet.
    pub fn new(fetcher: Fetcher, clock: Clock, metrics: Metrics) -> Self {
        let memory = |bytes| Cache::builder().max_capacity(bytes).weigher(weight).build();
        let (memory, unverified) = (memory(REMEMBERED - UNVERIFIED), memory(UNVERIFIED));
        Self(Arc::new(Shared { memory, unverified, fetcher, clock, metrics }))
    }

    /// Tells the metrics how many hosts are remembered; now and then.
    pub fn sweep(&self) {
        let memories = [&self.0.memory, &self.0.unverified];
        memories.iter().for_each(|memory| memory.run_pending_tasks());
        self.0.metrics.robots_remembered(memories.iter().map(|memory| memory.entry_count()).sum());
    }
}

impl RobotsFiles for Robots {
    fn known(&self, target: &UrlTarget, verify: Verify) -> Option<Arc<Known>> {
        let host = self.0.memory(verify).get(target.base())?;
        host.fresh(&self.0.clock)
    }

    async fn fetch(&self, target: &UrlTarget, errand: Errand) -> Arc<Known> {
        let key = || Box::<str>::from(target.base());
        let host = self.0.memory(errand.verify).get_with(key(), Arc::default);
        let Joined::Flight(mut flight) = self.join(&host, target, errand) else {
            return host.last(&self.0.clock);
        };
        // An error is the end of the sender, which is all that is waited for.
        let _ = flight.changed().await;
        host.last(&self.0.clock)
    }
}

/// What became of who wants to know.
enum Joined {
    /// A fetch is under way.
    Flight(watch::Receiver<()>),
    /// One has just ended.
    Landed,
}

impl Robots {
    fn join(&self, host: &Arc<Host>, target: &UrlTarget, errand: Errand) -> Joined {
        let mut flight = host.flight.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = flight.as_ref().filter(|flight| flight.has_changed().is_ok()) {
            return Joined::Flight(flight.clone());
        }
        if host.fresh(&self.0.clock).is_some() {
            return Joined::Landed;
        }
        let (landing, waiting) = watch::channel(());
        *flight = Some(waiting.clone());
        let (shared, host, target) = (Arc::clone(&self.0), Arc::clone(host), target.clone());
        tokio::spawn(async move {
            shared.learn(host, &target, &errand).await;
            drop(landing);
        });
        Joined::Flight(waiting)
    }
}

impl Shared {
    fn memory(&self, verify: Verify) -> &Memory {
        match verify {
            Verify::On => &self.memory,
            Verify::Skip => &self.unverified,
        }
    }

    async fn learn(&self, host: Arc<Host>, target: &UrlTarget, errand: &Errand) {
        let fetch = self.fetcher.fetch(target, errand).await;
        let before = host.known.load_full();
        let known = Known::after(before.as_ref(), &fetch.fetched(), self.clock.now());
        self.metrics.robots_fetched(known.ending as usize);
        host.known.store(Some(Arc::new(known)));
        // Put in again, so that it is weighed with what it holds now.
        self.memory(errand.verify).insert(target.base().into(), host);
    }
}

/// Bytes of memory.
fn weight<K: AsRef<str>>(key: &K, host: &Arc<Host>) -> u32 {
    let known = host.known.load().as_ref().map_or(0, |known| known.bytes());
    u32::try_from(HOST_BYTES + key.as_ref().len() + known).unwrap_or(u32::MAX)
}

impl Host {
    fn fresh(&self, clock: &Clock) -> Option<Arc<Known>> {
        let known = self.known.load();
        known.as_ref().filter(|known| known.is_fresh(clock.now())).map(Arc::clone)
    }

    /// What the last fetch has brought; a fetch that ended in a panic has brought nothing.
    fn last(&self, clock: &Clock) -> Arc<Known> {
        let nothing = || Arc::new(Known::after(None, &Fetched::failed(Ending::Broken), clock.now()));
        self.known.load_full().unwrap_or_else(nothing)
    }
}
