//! What is remembered of hosts and who waits for them, for operators who look on. Nothing is changed by looking.
//!
//! A look takes the lock of one shard of the table at a time, for as long as its names are copied, and then that of each host
//! for as long as its state is; the lines of those who wait likewise; and that of those who wait for the end of a stop once,
//! while they are counted. So requests go on while a hundred thousand hosts are listed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::pacing::backoff::BackoffCause;
use crate::pacing::pace::HostPace;
use crate::pacing::stops::StopQuery;
use crate::store::HostSnapshot;

use super::AdmissionQueue;
use super::queue::WaitCounts;
use crate::pipeline::stop_registry::WaitingByCrawler;

/// Whether anything but stops is known of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracking {
    /// It is paced.
    Yes,
    /// It was stopped before anything was asked of it, or is paced under another name.
    No,
}

/// A host, an address or a domain: what is paced as one.
#[derive(Clone, Debug)]
pub struct HostStatus {
    /// Its name; that of an address which is paced beside its hosts begins with `@`.
    pub name: Arc<str>,
    /// Whether the rest says anything; if not, only who waits and whether it is stopped.
    pub tracking: Tracking,
    /// Requests that wait for it, or for the end of a stop.
    pub waiting: usize,
    /// How many of them are of which crawler.
    pub crawlers: WaitingByCrawler,
    /// Requests under way.
    pub in_flight: usize,
    /// How many may be; none if there is no bound.
    pub slots: Option<u32>,
    /// The time until another may go, as far as it is known.
    pub next_in: Duration,
    /// The delay between two requests now, what was learned of its latency included.
    pub delay: Duration,
    /// Its rest, if nobody may go to it.
    pub backoff: Option<HostBackoffStatus>,
    /// When the last request's head was sent.
    pub last_request: Option<SystemTime>,
    /// Bad answers and failures in a row.
    pub failures: u8,
    /// Rests that are remembered; the next one without a time is twice as long for each.
    pub backoff_count: u8,
    /// Whether an operator has stopped it.
    pub stopped: bool,
    /// What the policy wanted of it last.
    pub pace: Option<PaceStatus>,
    /// How long it takes to answer, on average; kept where the delay follows it.
    pub latency: Option<Duration>,
    /// The time until its bodies are paid for, where they have a budget.
    pub byte_debt: Option<Duration>,
}

/// Why nobody goes to a host, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct HostBackoffStatus {
    /// What is left.
    pub left: Duration,
    /// When it ends.
    pub until: SystemTime,
    /// In words.
    pub cause: &'static str,
}

/// What a policy wants of a host: the option `politeness`.
#[derive(Clone, Copy, Debug)]
pub struct PaceStatus {
    /// The least time between two requests, that of the host's robots.txt included.
    pub delay: Duration,
    /// The factors by which it is multiplied.
    pub jitter: (f32, f32),
    /// The time in which one more may go, and how many may go at once.
    pub rate: Option<(Duration, u32)>,
    /// Requests under way at once; none if there is no bound.
    pub concurrency: Option<u32>,
    /// Bytes of bodies a second.
    pub bytes_per_second: Option<u64>,
    /// A delay that follows latency.
    pub adaptive: Option<AdaptivePaceStatus>,
}

/// The option `politeness.adaptive`.
#[derive(Clone, Copy, Debug)]
pub struct AdaptivePaceStatus {
    /// By what the latency is multiplied.
    pub factor: f32,
    /// The least delay.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
}

impl HostStatus {
    /// Whether there is anything to show.
    pub fn is_known(&self) -> bool {
        self.tracking == Tracking::Yes || self.stopped || self.waiting > 0
    }

    /// What a host is paced as, with what is known of the host itself.
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
    /// Shows every host whose name this keeps, in no order. It takes a while where there are many: not for a thread that
    /// serves.
    pub fn host_statuses(&self, keeps: impl Fn(&str) -> bool) -> Vec<HostStatus> {
        let (now, wall) = (self.clock.now(), self.clock.wall_time());
        let mut waits = HashMap::new();
        self.queues
            .for_each_wait_counts(|name, who| drop(waits.insert(Arc::clone(name), who)));
        let mut stopped = self.stops.waiting_by_host();
        for name in self.stops.stopped_hosts() {
            stopped.entry(name).or_default();
        }
        let mut hosts = Vec::new();
        self.store.for_each_host(now, |name, seen| {
            let mut who = waits.remove(name).unwrap_or_default();
            who.add(stopped.remove(&**name).unwrap_or_default());
            if keeps(name) {
                hosts.push(self.tracked_status(name, &seen, who, (now, wall)));
            }
        });
        let others = stopped.into_iter().filter(|(name, _)| keeps(name));
        hosts.extend(others.map(|(name, who)| self.untracked_status(&name, who)));
        hosts
    }

    /// Shows one host; none if it is not tracked.
    pub fn host_status(&self, name: &str) -> Option<HostStatus> {
        let (now, wall) = (self.clock.now(), self.clock.wall_time());
        let seen = self.store.host_snapshot(name, now)?;
        let mut who = self.queues.wait_counts(name);
        who.add(
            self.stops
                .waiting_by_host()
                .remove(name)
                .unwrap_or_default(),
        );
        Some(self.tracked_status(&name.into(), &seen, who, (now, wall)))
    }

    /// What is known of a host beyond its pace: whether it is stopped, and who waits for the end of that.
    pub fn untracked_host_status(&self, name: &str) -> HostStatus {
        self.untracked_status(
            name,
            self.stops
                .waiting_by_host()
                .remove(name)
                .unwrap_or_default(),
        )
    }

    fn untracked_status(&self, name: &str, crawlers: WaitingByCrawler) -> HostStatus {
        HostStatus {
            name: name.into(),
            tracking: Tracking::No,
            waiting: crawlers.values().sum(),
            crawlers,
            in_flight: 0,
            slots: None,
            // Not known: behind all of which it is.
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
        let rest = |(left, cause): (Duration, BackoffCause)| HostBackoffStatus {
            left,
            until: wall + left,
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
            backoff: state.backoff.map(rest),
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
