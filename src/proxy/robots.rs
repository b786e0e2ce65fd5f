//! Hosts' robots.txt: remembered, and fetched once for all that wait for it.
//!
//! A fetch is a task of its own, so that it goes on if the request that began it is given up. How one fetch runs is in
//! `fetch`; what its outcome means is in `crate::robots::state`.

mod body;
mod fetch;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use moka::sync::Cache;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::model::certificate_verification::CertificateVerification;
use crate::pipeline::robots_fetch::inspection::RobotsFileStatus;
use crate::pipeline::robots_fetch::{CachedRobots, RobotsFetchRequest, RobotsProvider};
use crate::robots::fetch_outcome::RobotsFetchOutcome;
use crate::robots::state::{RobotsFetchResult, RobotsState};
use crate::urls::target::UrlTarget;

pub use fetch::{RobotsFetch, RobotsFetcher};

/// Bytes of memory for all hosts together.
const CACHE_BYTES: u64 = 256 << 20;
/// Of them for those that are not verified.
const UNVERIFIED_BYTES: u64 = 16 << 20;
/// What a host costs beside its file: its name, and its places in the memory's tables.
const HOST_BYTES: usize = 512;

/// What is known of hosts' robots.txt.
#[derive(Debug)]
pub struct RobotsFileCache(Arc<RobotsFileCacheState>);

#[derive(Debug)]
struct RobotsFileCacheState {
    verified: RobotsCachePartition,
    /// What came from hosts that have not proved who they are, for those who need no proof.
    unverified: RobotsCachePartition,
    fetcher: RobotsFetcher,
    clock: Clock,
    metrics: Metrics,
}

/// Hosts by what their URLs begin with: scheme, host and port.
#[derive(Debug)]
struct RobotsCachePartition {
    entries: Cache<Box<str>, Arc<RobotsState>, RandomState>,
    fetches: Mutex<InFlightFetches>,
}

/// Fetches under way, by what the URLs of their hosts begin with.
type InFlightFetches = HashMap<Box<str>, InFlightFetch>;

/// A fetch under way, and then what it has brought. Its end is that of the sender.
type InFlightFetch = watch::Receiver<Option<Arc<RobotsState>>>;

impl RobotsFileCache {
    /// Nothing is known yet.
    pub fn new(fetcher: RobotsFetcher, clock: Clock, metrics: Metrics) -> Self {
        let (verified, unverified) = (
            RobotsCachePartition::new(CACHE_BYTES - UNVERIFIED_BYTES),
            RobotsCachePartition::new(UNVERIFIED_BYTES),
        );
        Self(Arc::new(RobotsFileCacheState {
            verified,
            unverified,
            fetcher,
            clock,
            metrics,
        }))
    }

    /// Tells the metrics how many hosts are remembered; now and then.
    pub fn sweep(&self) {
        let memories = [&self.0.verified.entries, &self.0.unverified.entries];
        memories
            .iter()
            .for_each(|memory| memory.run_pending_tasks());
        self.0
            .metrics
            .set_robots_cache_entries(memories.iter().map(|memory| memory.entry_count()).sum());
    }
}

impl RobotsFileCache {
    /// What is remembered of a host in canonical form, under every scheme and port. All that is remembered is looked
    /// through.
    pub fn inspect_host(&self, host: &str) -> Vec<RobotsFileStatus> {
        let times = (self.0.clock.now(), self.0.clock.wall_time());
        let memories = [
            (CertificateVerification::On, &self.0.verified.entries),
            (CertificateVerification::Skip, &self.0.unverified.entries),
        ];
        let entries = memories
            .into_iter()
            .flat_map(|(verify, known)| known.iter().map(move |e| (verify, e)));
        let of_host = entries.filter(|(_, (base, _))| base_has_host(base, host));
        let mut seen: Vec<RobotsFileStatus> = of_host
            .filter_map(|(verify, (base, known))| {
                RobotsFileStatus::new(&base, verify, &known, times)
            })
            .collect();
        seen.sort_by(|a, b| (&a.scheme, &a.authority).cmp(&(&b.scheme, &b.authority)));
        seen
    }
}

/// Whether what URLs begin with, `scheme://host[:port]/`, has this host.
fn base_has_host(base: &str, host: &str) -> bool {
    let authority = base.split_once("://").map(|(_, rest)| rest);
    let behind = authority.and_then(|authority| authority.strip_prefix(host));
    behind.is_some_and(|behind| behind.starts_with(['/', ':']))
}

impl RobotsProvider for RobotsFileCache {
    fn cached(&self, target: &UrlTarget, verify: CertificateVerification) -> Option<CachedRobots> {
        let now = self.0.clock.now();
        let known = self.0.partition(verify).entries.get(target.base())?;
        match known.is_fresh(now) {
            true => Some(CachedRobots::Fresh(known)),
            false => known
                .is_usable_stale(now)
                .then_some(CachedRobots::Expired(known)),
        }
    }

    fn refresh(
        &self,
        target: &UrlTarget,
        verify: CertificateVerification,
        request: impl FnOnce() -> RobotsFetchRequest,
    ) {
        let memory = self.0.partition(verify);
        let mut flights = memory.fetches();
        let now = self.0.clock.now();
        // It may have been renewed between the two looks.
        let needless = |flights: &InFlightFetches| {
            let known = || memory.entries.get(target.base());
            find_in_flight(flights, target).is_some()
                || known().is_some_and(|known| known.is_fresh(now) || known.is_renewal_paused(now))
        };
        if !needless(&flights) {
            self.begin_fetch(target, request(), &mut flights);
        }
    }

    async fn fetch(&self, target: &UrlTarget, request: RobotsFetchRequest) -> Arc<RobotsState> {
        let mut flight = match self.join_fetch(target, request) {
            FetchJoin::InFlight(flight) => flight,
            FetchJoin::Done(known) => return known,
        };
        // An error is the end of the sender, behind which stands what there is.
        let _ = flight.changed().await;
        let brought = flight.borrow().clone();
        // A fetch that ended in a panic has brought nothing.
        let nothing = || {
            Arc::new(RobotsState::from_fetch(
                None,
                &RobotsFetchResult::failed(RobotsFetchOutcome::Broken),
                self.0.clock.now(),
            ))
        };
        brought.unwrap_or_else(nothing)
    }
}

/// What became of who wants to know.
enum FetchJoin {
    /// A fetch is under way.
    InFlight(InFlightFetch),
    /// One has just ended.
    Done(Arc<RobotsState>),
}

impl RobotsFileCache {
    fn join_fetch(&self, target: &UrlTarget, request: RobotsFetchRequest) -> FetchJoin {
        let memory = self.0.partition(request.verify);
        let mut flights = memory.fetches();
        if let Some(flight) = find_in_flight(&flights, target) {
            return FetchJoin::InFlight(flight.clone());
        }
        if let Some(known) = memory.fresh(target.base(), &self.0.clock) {
            return FetchJoin::Done(known);
        }
        FetchJoin::InFlight(self.begin_fetch(target, request, &mut flights))
    }

    /// Begins a fetch of its own.
    fn begin_fetch(
        &self,
        target: &UrlTarget,
        request: RobotsFetchRequest,
        fetches: &mut InFlightFetches,
    ) -> InFlightFetch {
        let (landing, flight) = watch::channel(None);
        fetches.insert(target.base().into(), flight.clone());
        let (shared, target) = (Arc::clone(&self.0), target.clone());
        // Boxed, since a task is moved several times before it is in its place.
        tokio::spawn(Box::pin(async move {
            let known = shared.fetch_and_store(&target, &request).await;
            // Nobody may be waiting any more.
            let _ = landing.send(Some(known));
            shared
                .partition(request.verify)
                .fetches()
                .remove(target.base());
        }));
        flight
    }
}

/// The fetch of a host's file that has not ended.
fn find_in_flight<'f>(
    fetches: &'f InFlightFetches,
    target: &UrlTarget,
) -> Option<&'f InFlightFetch> {
    fetches
        .get(target.base())
        .filter(|flight| flight.has_changed().is_ok())
}

impl RobotsFileCacheState {
    fn partition(&self, verify: CertificateVerification) -> &RobotsCachePartition {
        match verify {
            CertificateVerification::On => &self.verified,
            CertificateVerification::Skip => &self.unverified,
        }
    }

    async fn fetch_and_store(
        &self,
        target: &UrlTarget,
        request: &RobotsFetchRequest,
    ) -> Arc<RobotsState> {
        let memory = self.partition(request.verify);
        let before = memory.entries.get(target.base());
        let asked_by = before
            .as_deref()
            .and_then(RobotsState::validators)
            .unwrap_or_default();
        let fetch = self.fetcher.fetch(target, request, asked_by).await;
        let known = Arc::new(RobotsState::from_fetch(
            before.as_ref(),
            &fetch.fetched(),
            self.clock.now(),
        ));
        // Without a turn what is known stays, and with it how that ended.
        let ending = if fetch.outcome == RobotsFetchOutcome::NotAdmitted {
            RobotsFetchOutcome::NotAdmitted
        } else {
            known.outcome
        };
        self.metrics.record_robots_fetch(ending);
        memory
            .entries
            .insert(target.base().into(), Arc::clone(&known));
        known
    }
}

impl RobotsCachePartition {
    fn new(bytes: u64) -> Self {
        let known = Cache::builder().max_capacity(bytes).weigher(entry_weight);
        let known = known.build_with_hasher(RandomState::default());
        Self {
            entries: known,
            fetches: Mutex::default(),
        }
    }

    fn fresh(&self, base: &str, clock: &Clock) -> Option<Arc<RobotsState>> {
        self.entries
            .get(base)
            .filter(|known| known.is_fresh(clock.now()))
    }

    fn fetches(&self) -> MutexGuard<'_, InFlightFetches> {
        self.fetches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of memory.
fn entry_weight<K: AsRef<str>>(key: &K, known: &Arc<RobotsState>) -> u32 {
    u32::try_from(HOST_BYTES + key.as_ref().len() + known.memory_size()).unwrap_or(u32::MAX)
}
