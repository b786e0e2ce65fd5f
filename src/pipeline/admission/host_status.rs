//! The state of hosts and of the requests that wait for them, for operators. Reading it changes nothing.
//!
//! A read locks one shard of the table at a time, for as long as its names are copied, and then each host while its
//! state is copied; the queues likewise; and once the requests that wait for the end of a stop, while they are counted.
//! So requests go on while a hundred thousand hosts are listed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::pacing::backoff::BackoffCause;
use crate::pacing::pace::HostPace;
use crate::pacing::stops::StopQuery;
use crate::store::HostSnapshot;

use super::AdmissionQueue;
use super::queue::WaitCounts;
use crate::pipeline::held_requests::WaitingByCrawler;

/// The source of a host's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracking {
    /// It is paced.
    Yes,
    /// It was stopped before any request, or is paced under another name.
    No,
}

/// The state of a limiter: of a host, an address or a domain.
#[derive(Clone, Debug)]
pub struct HostStatus {
    /// The name; that of an address that is paced in addition to its hosts begins with `@`.
    pub name: Arc<str>,
    /// The source of the status: without a limiter only the waiting requests and the stop are known.
    pub tracking: Tracking,
    /// The number of requests that wait for it, for the end of a stop, or for its robots.txt.
    pub waiting: usize,
    /// The number of those of each crawler.
    pub crawlers: WaitingByCrawler,
    /// The number of requests in flight.
    pub in_flight: usize,
    /// The maximum number in flight; `None` if there is no limit.
    pub slots: Option<u32>,
    /// The time until another request may go, as far as it is known.
    pub next_in: Duration,
    /// The current delay between two requests, adapted to the latency.
    pub delay: Duration,
    /// The backoff, if there is one.
    pub backoff: Option<HostBackoffStatus>,
    /// The time at which the head of the last request was sent.
    pub last_request: Option<SystemTime>,
    /// The number of bad responses and failures in a row.
    pub failures: u8,
    /// The number of backoffs that are remembered; the next one without a stated time is twice as long for each.
    pub backoff_count: u8,
    /// `true` if an operator has stopped it.
    pub stopped: bool,
    /// The limits that the policy set last.
    pub pace: Option<PaceStatus>,
    /// The average latency, if the delay adapts to it.
    pub latency: Option<Duration>,
    /// The time until the bytes of its bodies are paid back, if they are limited.
    pub byte_debt: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
pub struct HostBackoffStatus {
    /// The time left.
    pub remaining: Duration,
    /// The time at which it ends.
    pub until: SystemTime,
    /// The cause in words.
    pub cause: &'static str,
}

/// The limits of a host: the option `politeness`.
#[derive(Clone, Copy, Debug)]
pub struct PaceStatus {
    /// The least time between two requests, including that of the host's robots.txt.
    pub delay: Duration,
    /// The range of the factor that it is multiplied by.
    pub jitter: (f32, f32),
    /// The interval of the rate, and the burst.
    pub rate: Option<(Duration, u32)>,
    /// The maximum number of requests in flight; `None` if there is no limit.
    pub concurrency: Option<u32>,
    /// The bytes of bodies per second.
    pub bytes_per_second: Option<u64>,
    /// The delay that adapts to the latency.
    pub adaptive: Option<AdaptivePaceStatus>,
}

/// The option `politeness.adaptive`.
#[derive(Clone, Copy, Debug)]
pub struct AdaptivePaceStatus {
    /// The factor of the latency.
    pub factor: f32,
    /// The least delay.
    pub min: Duration,
    /// The longest delay.
    pub max: Duration,
}

impl HostStatus {
    /// Returns `true` if anything is known.
    pub fn is_known(&self) -> bool {
        self.tracking == Tracking::Yes || self.stopped || self.waiting > 0
    }

    /// Adds the data of the host itself to the state of its limiter.
    #[must_use]
    pub fn merge_host(mut self, host: HostStatus) -> Self {
        if self.name != host.name {
            self.stopped |= host.stopped;
            self.waiting += host.waiting;
            for (crawler, waiting) in host.crawlers {
                *self.crawlers.entry(crawler).or_default() += waiting;
            }
        }
        self
    }
}

impl PaceStatus {
    fn from_pace(pace: &HostPace) -> Self {
        Self {
            delay: pace.delay,
            jitter: pace.jitter.range(),
            rate: pace.rate.map(|rate| (rate.interval(), rate.burst().get())),
            concurrency: bounded_concurrency(pace.concurrency),
            bytes_per_second: pace.bytes_per_second.map(u64::from),
            adaptive: pace.adaptive.map(|adaptive| AdaptivePaceStatus {
                factor: adaptive.factor(),
                min: adaptive.min_delay(),
                max: adaptive.max_delay(),
            }),
        }
    }
}

fn bounded_concurrency(concurrency: u32) -> Option<u32> {
    (concurrency < u32::MAX).then_some(concurrency)
}

impl AdmissionQueue {
    /// Returns the state of each host whose name `keeps` accepts, in no particular order. It takes a while if there are
    /// many, so it must not run on a thread that serves connections.
    pub fn host_statuses(&self, is_included: impl Fn(&str) -> bool) -> Vec<HostStatus> {
        let now = self.clock.now();
        let wall = self.clock.wall_time();
        let mut waits = HashMap::new();
        self.queues
            .for_each_wait_counts(|name, counts| drop(waits.insert(Arc::clone(name), counts)));
        let mut held = self.held_by_host();
        for name in self.stops.stopped_hosts() {
            held.entry(name).or_default();
        }
        let mut hosts = Vec::new();
        self.store.for_each_host(now, |name, snapshot| {
            let mut counts = waits.remove(name).unwrap_or_default();
            counts.add(held.remove(&**name).unwrap_or_default());
            if is_included(name) {
                hosts.push(self.tracked_status(name, &snapshot, counts, (now, wall)));
            }
        });
        let others = held.into_iter().filter(|(name, _)| is_included(name));
        hosts.extend(others.map(|(name, counts)| self.untracked_status(&name, counts)));
        hosts
    }

    /// Returns the state of a host; `None` if it has no limiter.
    pub fn host_status(&self, name: &str) -> Option<HostStatus> {
        let now = self.clock.now();
        let wall = self.clock.wall_time();
        let snapshot = self.store.host_snapshot(name, now)?;
        let mut counts = self.queues.wait_counts(name);
        counts.add(self.held_by_host().remove(name).unwrap_or_default());
        Some(self.tracked_status(&name.into(), &snapshot, counts, (now, wall)))
    }

    /// Returns the status of a host without a limiter: whether it is stopped, and the requests that are held.
    pub fn untracked_host_status(&self, name: &str) -> HostStatus {
        self.untracked_status(name, self.held_by_host().remove(name).unwrap_or_default())
    }

    /// Returns the numbers of requests that are held outside of the queues, by host.
    fn held_by_host(&self) -> BTreeMap<Box<str>, WaitingByCrawler> {
        let mut hosts = BTreeMap::new();
        self.stops.held().count_by_host(&mut hosts);
        self.robots_waits.count_by_host(&mut hosts);
        hosts
    }

    fn untracked_status(&self, name: &str, crawlers: WaitingByCrawler) -> HostStatus {
        HostStatus {
            name: name.into(),
            tracking: Tracking::No,
            waiting: crawlers.values().sum(),
            crawlers,
            in_flight: 0,
            slots: None,
            // Unknown, so it sorts after those for which it is known.
            next_in: Duration::MAX,
            delay: Duration::ZERO,
            backoff: None,
            last_request: None,
            failures: 0,
            backoff_count: 0,
            stopped: self.is_stopped(name),
            pace: None,
            latency: None,
            byte_debt: None,
        }
    }

    fn tracked_status(
        &self,
        name: &Arc<str>,
        state: &HostSnapshot,
        waits: WaitCounts,
        (now, wall): (Instant, SystemTime),
    ) -> HostStatus {
        let backoff_status = |(remaining, cause): (Duration, BackoffCause)| HostBackoffStatus {
            remaining,
            until: wall + remaining,
            cause: cause.description(),
        };
        HostStatus {
            name: Arc::clone(name),
            tracking: Tracking::Yes,
            waiting: waits.total,
            crawlers: waits.by_crawler,
            in_flight: state.in_flight,
            slots: bounded_concurrency(state.concurrency),
            next_in: state.until_next,
            delay: state.delay,
            backoff: state.backoff.map(backoff_status),
            last_request: state
                .last_sent
                .and_then(|last| wall.checked_sub(now.saturating_duration_since(last))),
            failures: state.failures,
            backoff_count: state.backoff_count,
            stopped: self.is_stopped(name),
            pace: state.pace.as_ref().map(PaceStatus::from_pace),
            latency: state.latency,
            byte_debt: state.byte_debt,
        }
    }

    fn is_stopped(&self, host: &str) -> bool {
        !self.stops.is_clear()
            && self
                .stops
                .find_refusal(&StopQuery {
                    host,
                    crawler: None,
                    rules: &[],
                })
                .is_some()
    }
}
