//! The cache of the hosts' robots.txt files. Each file is fetched once for all requests that wait
//! for it.
//!
//! A fetch runs in a task of its own, so that it continues if the request that started it is
//! cancelled. The `fetch` module performs the fetch, and `crate::robots::state` interprets its
//! outcome.

mod body;
mod fetch;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use foldhash::fast::RandomState;
use moka::sync::Cache;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::fleet::handover::{RobotsFileRecord, RobotsHandover};
use crate::long_work::{LongWork, run_long};
use crate::metrics::Metrics;
use crate::model::certificate_verification::CertificateVerification;
use crate::pipeline::robots_fetch::inspection::RobotsFileStatus;
use crate::pipeline::robots_fetch::{CachedRobots, RobotsFetchRequest, RobotsProvider};
use crate::robots::fetch_outcome::RobotsFetchOutcome;
use crate::robots::state::{RobotsFetchResult, RobotsState};
use crate::urls::target::UrlTarget;

pub use fetch::{RobotsFetch, RobotsFetcher};

/// The memory limit for all hosts, in bytes.
const CACHE_BYTES: u64 = 256 << 20;
/// The part of it for hosts with unverified certificates.
const UNVERIFIED_BYTES: u64 = 16 << 20;
/// The size from which a file is parsed on the blocking pool: the largest ones take milliseconds.
const LONG_FILE_BYTES: usize = 16 << 10;
/// The memory of a host in addition to its file: its name and its entries in the tables.
const HOST_BYTES: usize = 512;

/// The cache of robots.txt files.
#[derive(Clone, Debug)]
pub struct RobotsFileCache(Arc<RobotsFileCacheState>);

#[derive(Debug)]
struct RobotsFileCacheState {
    verified: RobotsCachePartition,
    /// Files from hosts with unverified certificates, for requests that require no verification.
    unverified: RobotsCachePartition,
    fetcher: RobotsFetcher,
    clock: Clock,
    metrics: Metrics,
}

/// Files by origin: scheme, host and port.
#[derive(Debug)]
struct RobotsCachePartition {
    entries: Cache<Box<str>, Arc<RobotsState>, RandomState>,
    fetches: Mutex<InFlightFetches>,
}

/// Fetches in progress, by origin.
type InFlightFetches = HashMap<Box<str>, InFlightFetch>;

/// A fetch in progress, and afterwards its result. The fetch has ended when the sender is dropped.
type InFlightFetch = watch::Receiver<Option<Arc<RobotsState>>>;

impl RobotsFileCache {
    /// Creates an empty cache.
    pub fn new(fetcher: RobotsFetcher, clock: Clock, metrics: Metrics) -> Self {
        Self(Arc::new(RobotsFileCacheState {
            verified: RobotsCachePartition::new(CACHE_BYTES - UNVERIFIED_BYTES),
            unverified: RobotsCachePartition::new(UNVERIFIED_BYTES),
            fetcher,
            clock,
            metrics,
        }))
    }

    /// Updates the metric of cached hosts. Called periodically.
    pub fn sweep(&self) {
        let mut entries = 0;
        for partition in [&self.0.verified, &self.0.unverified] {
            partition.entries.run_pending_tasks();
            entries += partition.entries.entry_count();
        }
        self.0.metrics.set_robots_cache_entries(entries);
    }
}

impl RobotsFileCache {
    /// Returns the cached files of a host in canonical form, for every scheme and port. Searches
    /// the whole cache.
    pub fn inspect_host(&self, host: &str) -> Vec<RobotsFileStatus> {
        let times = (self.0.clock.now(), self.0.clock.wall_time());
        let mut found: Vec<RobotsFileStatus> = [
            (CertificateVerification::On, &self.0.verified),
            (CertificateVerification::Skip, &self.0.unverified),
        ]
        .into_iter()
        .flat_map(|(verify, partition)| partition.entries.iter().map(move |e| (verify, e)))
        .filter(|(_, (base, _))| base_has_host(base, host))
        .filter_map(|(verify, (base, state))| RobotsFileStatus::new(&base, verify, &state, times))
        .collect();
        found.sort_by(|a, b| (&a.scheme, &a.authority).cmp(&(&b.scheme, &b.authority)));
        found
    }
}

/// Returns `true` if a base URL, `scheme://host[:port]/`, has this host.
fn base_has_host(base: &str, host: &str) -> bool {
    base.split_once("://")
        .and_then(|(_, authority)| authority.strip_prefix(host))
        .is_some_and(|rest| rest.starts_with(['/', ':']))
}

/// Files of hosts with unverified certificates are not handed over: the next owner may verify them.
impl RobotsHandover for RobotsFileCache {
    fn records(&self, select: &mut dyn FnMut(&str, usize) -> bool) -> Vec<RobotsFileRecord> {
        let now = self.0.clock.now();
        let mut records = vec![];
        for (base, state) in &self.0.verified.entries {
            if select(&base, state.memory_size())
                && let Some(record) = state.record(now)
            {
                let base = base.as_ref().clone();
                records.push(RobotsFileRecord { base, record });
            }
        }
        records
    }

    fn restore(&self, file: &RobotsFileRecord) {
        let Some(state) = RobotsState::from_record(&file.record, self.0.clock.now()) else {
            return;
        };
        let entries = &self.0.verified.entries;
        let is_newer = entries
            .get(&*file.base)
            .is_none_or(|known| state.is_newer_than(&known));
        if is_newer {
            entries.insert(file.base.clone(), Arc::new(state));
        }
    }
}

impl RobotsProvider for RobotsFileCache {
    fn cached(&self, target: &UrlTarget, verify: CertificateVerification) -> Option<CachedRobots> {
        let now = self.0.clock.now();
        let state = self.0.partition(verify).entries.get(target.base())?;
        match state.is_fresh(now) {
            true => Some(CachedRobots::Fresh(state)),
            false => state
                .is_usable_stale(now)
                .then_some(CachedRobots::Expired(state)),
        }
    }

    fn last_known(
        &self,
        target: &UrlTarget,
        verify: CertificateVerification,
    ) -> Option<Arc<RobotsState>> {
        let state = self.0.partition(verify).entries.get(target.base())?;
        state.is_known().then_some(state)
    }

    fn refresh(
        &self,
        target: &UrlTarget,
        verify: CertificateVerification,
        newer_than: Option<Instant>,
        request: impl FnOnce() -> RobotsFetchRequest,
    ) {
        let partition = self.0.partition(verify);
        let mut fetches = partition.fetches.lock();
        if find_in_flight(&fetches, target).is_some() {
            return;
        }
        // It may have been renewed since the caller looked.
        let now = self.0.clock.now();
        let is_current = partition
            .entries
            .get(target.base())
            .is_some_and(|state| !state.needs_renewal(newer_than, now));
        if !is_current {
            self.begin_fetch(target, request(), &mut fetches);
        }
    }

    async fn fetch(&self, target: &UrlTarget, request: RobotsFetchRequest) -> Arc<RobotsState> {
        let mut fetch = match self.join_fetch(target, request) {
            FetchJoin::InFlight(fetch) => fetch,
            FetchJoin::Done(state) => return state,
        };
        // An error means that the sender was dropped; the result may still be there.
        let _ = fetch.changed().await;
        let result = fetch.borrow().clone();
        // A fetch that ended in a panic has no result.
        result.unwrap_or_else(|| {
            Arc::new(RobotsState::from_fetch(
                None,
                &RobotsFetchResult::failed(RobotsFetchOutcome::Broken),
                self.0.clock.now(),
            ))
        })
    }
}

/// The result of joining a fetch.
enum FetchJoin {
    /// A fetch is in progress.
    InFlight(InFlightFetch),
    /// A fetch has just ended.
    Done(Arc<RobotsState>),
}

impl RobotsFileCache {
    fn join_fetch(&self, target: &UrlTarget, request: RobotsFetchRequest) -> FetchJoin {
        let partition = self.0.partition(request.verify);
        let mut fetches = partition.fetches.lock();
        if let Some(fetch) = find_in_flight(&fetches, target) {
            return FetchJoin::InFlight(fetch.clone());
        }
        if let Some(state) = partition.fresh(target.base(), &self.0.clock) {
            return FetchJoin::Done(state);
        }
        FetchJoin::InFlight(self.begin_fetch(target, request, &mut fetches))
    }

    /// Starts a fetch in a task of its own.
    fn begin_fetch(
        &self,
        target: &UrlTarget,
        request: RobotsFetchRequest,
        fetches: &mut InFlightFetches,
    ) -> InFlightFetch {
        let (sender, receiver) = watch::channel(None);
        fetches.insert(target.base().into(), receiver.clone());
        let shared = Arc::clone(&self.0);
        let target = target.clone();
        // Boxed because a task is moved several times before it reaches its place on the heap.
        tokio::spawn(Box::pin(async move {
            let state = shared.fetch_and_store(&target, &request).await;
            // Fails if no request waits any more.
            let _ = sender.send(Some(state));
            shared
                .partition(request.verify)
                .fetches
                .lock()
                .remove(target.base());
        }));
        receiver
    }
}

/// Returns the fetch of a host's file that is in progress.
fn find_in_flight<'f>(
    fetches: &'f InFlightFetches,
    target: &UrlTarget,
) -> Option<&'f InFlightFetch> {
    fetches
        .get(target.base())
        .filter(|fetch| fetch.has_changed().is_ok())
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
        let partition = self.partition(request.verify);
        let before = partition.entries.get(target.base());
        let validators = before
            .as_deref()
            .and_then(RobotsState::validators)
            .unwrap_or_default();
        let fetch = self.fetcher.fetch(target, request, validators).await;
        let now = self.clock.now();
        let fetch_outcome = fetch.outcome;
        let state = Arc::new(state_after(before, fetch, now).await);
        // Then the cached state stays, including its outcome.
        let outcome = if state.is_renewal_paused(now) {
            fetch_outcome
        } else {
            state.outcome
        };
        self.metrics.record_robots_fetch(outcome);
        partition
            .entries
            .insert(target.base().into(), Arc::clone(&state));
        state
    }
}

/// Returns the state after a fetch that ended at `now`.
async fn state_after(
    before: Option<Arc<RobotsState>>,
    fetch: RobotsFetch,
    now: Instant,
) -> RobotsState {
    if fetch.body.len() < LONG_FILE_BYTES {
        return RobotsState::from_fetch(before.as_ref(), &fetch.fetched(), now);
    }
    let known = before.clone();
    run_long(LongWork::Robots, move || {
        RobotsState::from_fetch(known.as_ref(), &fetch.fetched(), now)
    })
    .await
    .unwrap_or_else(|| {
        let failed = RobotsFetchResult::failed(RobotsFetchOutcome::Broken);
        RobotsState::from_fetch(before.as_ref(), &failed, now)
    })
}

impl RobotsCachePartition {
    fn new(bytes: u64) -> Self {
        Self {
            entries: Cache::builder()
                .max_capacity(bytes)
                .weigher(entry_weight)
                .build_with_hasher(RandomState::default()),
            fetches: Mutex::default(),
        }
    }

    fn fresh(&self, base: &str, clock: &Clock) -> Option<Arc<RobotsState>> {
        self.entries
            .get(base)
            .filter(|state| state.is_fresh(clock.now()))
    }
}

/// Returns the memory of an entry in bytes.
fn entry_weight<K: AsRef<str>>(key: &K, state: &Arc<RobotsState>) -> u32 {
    u32::try_from(HOST_BYTES + key.as_ref().len() + state.memory_size()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[tokio::test]
    async fn a_large_file_is_parsed_on_another_thread() {
        for (lines, is_large) in [(10, false), (40_000, true)] {
            let mut fetch = RobotsFetch::failed(RobotsFetchOutcome::File);
            fetch.body = "Disallow: /a\n".repeat(lines).into_bytes();
            let now = Clock::manual().0.now();
            let mut state = pin!(state_after(None, fetch, now));
            let first = state.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(first.is_pending(), is_large, "{lines} lines");
            let state = match first {
                std::task::Poll::Ready(state) => state,
                std::task::Poll::Pending => state.await,
            };
            let file = state.file().unwrap();
            assert_eq!(file.directives() as usize, lines);
        }
    }
}
