//! What is remembered of hosts and who waits for them, for operators who look on. Nothing is changed by looking.
//!
//! A look takes the lock of one shard of the table at a time, for as long as its names are copied, and then that of each host
//! for as long as its state is; the lines of those who wait likewise; and that of those who wait for the end of a stop once,
//! while they are counted. So requests go on while a hundred thousand hosts are listed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::politeness::backoff::Cause;
use crate::politeness::pace::Pace;
use crate::politeness::stops::Covers;
use crate::store::Seen;

use super::Hold;
use super::queue::Waits;
use crate::gate::stops::Crawlers;

/// Whether anything but stops is known of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracked {
    /// It is paced.
    Yes,
    /// It was stopped before anything was asked of it, or is paced under another name.
    No,
}

/// A host, an address or a domain: what is paced as one.
#[derive(Clone, Debug)]
pub struct HostSeen {
    /// Its name; that of an address which is paced beside its hosts begins with `@`.
    pub name: Arc<str>,
    /// Whether the rest says anything; if not, only who waits and whether it is stopped.
    pub tracked: Tracked,
    /// Requests that wait for it, or for the end of a stop.
    pub waiting: usize,
    /// How many of them are of which crawler.
    pub crawlers: Crawlers,
    /// Requests under way.
    pub under_way: usize,
    /// How many may be; none if there is no bound.
    pub slots: Option<u32>,
    /// The time until another may go, as far as it is known.
    pub next: Duration,
    /// The delay between two requests now, what was learned of its latency included.
    pub delay: Duration,
    /// Its rest, if nobody may go to it.
    pub rest: Option<Rest>,
    /// When the last request's head was sent.
    pub last: Option<SystemTime>,
    /// Bad answers and failures in a row.
    pub failures: u8,
    /// Rests that are remembered; the next one without a time is twice as long for each.
    pub rests: u8,
    /// Whether an operator has stopped it.
    pub stopped: bool,
    /// What the policy wanted of it last.
    pub pace: Option<PaceSeen>,
    /// How long it takes to answer, on average; kept where the delay follows it.
    pub latency: Option<Duration>,
    /// The time until its bodies are paid for, where they have a budget.
    pub owed: Option<Duration>,
}

/// Why nobody goes to a host, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Rest {
    /// What is left.
    pub left: Duration,
    /// When it ends.
    pub until: SystemTime,
    /// In words.
    pub why: &'static str,
}

/// What a policy wants of a host: the option `politeness`.
#[derive(Clone, Copy, Debug)]
pub struct PaceSeen {
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
    pub adaptive: Option<AdaptiveSeen>,
}

/// The option `politeness.adaptive`.
#[derive(Clone, Copy, Debug)]
pub struct AdaptiveSeen {
    /// By what the latency is multiplied.
    pub factor: f32,
    /// The least delay.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
}

impl HostSeen {
    /// Whether there is anything to show.
    pub fn is_known(&self) -> bool {
        self.tracked == Tracked::Yes || self.stopped || self.waiting > 0
    }

    /// What a host is paced as, with what is known of the host itself.
    #[must_use]
    pub fn with(mut self, host: HostSeen) -> Self {
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

impl PaceSeen {
    fn of(pace: &Pace) -> Self {
        Self {
            delay: pace.delay,
            jitter: pace.jitter.range(),
            rate: pace.rate.map(|rate| (rate.interval(), rate.burst().get())),
            concurrency: bounded(pace.concurrency),
            bytes_per_second: pace.bytes.map(u64::from),
            adaptive: pace.adaptive.map(|adaptive| AdaptiveSeen {
                factor: adaptive.factor(),
                min: adaptive.least(),
                max: adaptive.most(),
            }),
        }
    }
}

fn bounded(concurrency: u32) -> Option<u32> {
    (concurrency < u32::MAX).then_some(concurrency)
}

impl Hold {
    /// Shows every host whose name this keeps, in no order. It takes a while where there are many: not for a thread that
    /// serves.
    pub fn seen(&self, keeps: impl Fn(&str) -> bool) -> Vec<HostSeen> {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        let mut waits = HashMap::new();
        self.queue
            .each_seen(|name, who| drop(waits.insert(Arc::clone(name), who)));
        let mut stopped = self.stops.waiting();
        for name in self.stops.hosts() {
            stopped.entry(name).or_default();
        }
        let mut hosts = Vec::new();
        self.store.each_seen(now, |name, seen| {
            let mut who = waits.remove(name).unwrap_or_default();
            who.add(stopped.remove(&**name).unwrap_or_default());
            if keeps(name) {
                hosts.push(self.shown(name, &seen, who, (now, wall)));
            }
        });
        let others = stopped.into_iter().filter(|(name, _)| keeps(name));
        hosts.extend(others.map(|(name, who)| self.untracked(&name, who)));
        hosts
    }

    /// Shows one host; none if it is not tracked.
    pub fn seen_of(&self, name: &str) -> Option<HostSeen> {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        let seen = self.store.seen_of(name, now)?;
        let mut who = self.queue.seen_of(name);
        who.add(self.stops.waiting().remove(name).unwrap_or_default());
        Some(self.shown(&name.into(), &seen, who, (now, wall)))
    }

    /// What is known of a host beyond its pace: whether it is stopped, and who waits for the end of that.
    pub fn stopped(&self, name: &str) -> HostSeen {
        self.untracked(name, self.stops.waiting().remove(name).unwrap_or_default())
    }

    fn untracked(&self, name: &str, crawlers: Crawlers) -> HostSeen {
        HostSeen {
            name: name.into(),
            tracked: Tracked::No,
            waiting: crawlers.values().sum(),
            crawlers,
            under_way: 0,
            slots: None,
            // Not known: behind all of which it is.
            next: Duration::MAX,
            delay: Duration::ZERO,
            rest: None,
            last: None,
            failures: 0,
            rests: 0,
            stopped: self.is_stopped(name),
            pace: None,
            latency: None,
            owed: None,
        }
    }

    fn shown(
        &self,
        name: &Arc<str>,
        seen: &Seen,
        waits: Waits,
        (now, wall): (Instant, SystemTime),
    ) -> HostSeen {
        let rest = |(left, cause): (Duration, Cause)| Rest {
            left,
            until: wall + left,
            why: cause.words(),
        };
        HostSeen {
            name: Arc::clone(name),
            tracked: Tracked::Yes,
            waiting: waits.all,
            crawlers: waits.crawlers,
            under_way: seen.under_way,
            slots: bounded(seen.concurrency),
            next: seen.next,
            delay: seen.delay,
            rest: seen.rest.map(rest),
            last: seen
                .last
                .and_then(|last| wall.checked_sub(now.saturating_duration_since(last))),
            failures: seen.failures,
            rests: seen.rests,
            stopped: self.is_stopped(name),
            pace: seen.pace.as_ref().map(PaceSeen::of),
            latency: seen.latency,
            owed: seen.owed,
        }
    }

    fn is_stopped(&self, host: &str) -> bool {
        !self.stops.is_clear()
            && self
                .stops
                .covering(&Covers {
                    host,
                    crawler: None,
                    rules: &[],
                })
                .is_some()
    }
}
