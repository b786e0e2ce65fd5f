//! Who waits for which host. A host that nobody waits for is not in here; who of those that wait is the best is said in
//! `politeness/order`.
//!
//! Whoever comes to be the best of a line is rung, unless it looks by itself: who comes looks, and so does who rises by
//! having waited. So there is always one that asks the store, or sleeps until the store has told it to ask again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::politeness::order::{self, Class, Rank, Ticket};
use crate::politeness::pace::{Kind, Wait};
use crate::store::Key;
use crate::store::shards::{Shards, shrink};
use crate::vocab::crawler::Crawler;

/// How many may wait, and how long.
#[derive(Clone, Copy, Debug)]
pub struct HoldLimits {
    /// For one host, address or domain.
    pub of_one: usize,
    /// In all.
    pub of_all: usize,
    /// The longest wait that a crawler can ask for.
    pub longest: Duration,
}

/// All queues.
#[derive(Debug)]
pub(super) struct Queue {
    lines: Shards<Lines>,
    waiting: AtomicUsize,
    numbers: AtomicU64,
    limits: HoldLimits,
    clock: Clock,
}

/// The queues of one key: of pages, and of what belongs to them.
#[derive(Debug, Default)]
struct Lines {
    navigations: Line,
    embeds: Line,
}

#[derive(Debug, Default)]
struct Line {
    waiters: order::Line<Arc<Notify>>,
    /// The best when somebody last looked: it knows that it is.
    head: Option<u64>,
    /// What the head was told, and when.
    told: Option<(Wait, Instant)>,
}

/// Who waits for a name, for who looks on.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    pub(super) all: usize,
    pub(super) crawlers: BTreeMap<Box<str>, usize>,
}

impl Waits {
    /// These wait, too.
    pub(super) fn add(&mut self, others: BTreeMap<Box<str>, usize>) {
        for (crawler, waiting) in others {
            self.all += waiting;
            *self.crawlers.entry(crawler).or_default() += waiting;
        }
    }
}

impl Lines {
    fn of(&self, kind: Kind) -> &Line {
        match kind {
            Kind::Navigation => &self.navigations,
            Kind::Embed => &self.embeds,
        }
    }

    fn of_mut(&mut self, kind: Kind) -> &mut Line {
        match kind {
            Kind::Navigation => &mut self.navigations,
            Kind::Embed => &mut self.embeds,
        }
    }

    fn len(&self) -> usize {
        self.navigations.waiters.len() + self.embeds.waiters.len()
    }

    fn waits(&self) -> Waits {
        let mut waits = Waits {
            all: self.len(),
            crawlers: BTreeMap::new(),
        };
        for line in [&self.navigations, &self.embeds] {
            for crawler in line.waiters.crawlers() {
                match waits.crawlers.get_mut(crawler.as_str()) {
                    Some(count) => *count += 1,
                    None => drop(waits.crawlers.insert(crawler.as_str().into(), 1)),
                }
            }
        }
        waits
    }

    fn ring_heads(&mut self, now: Instant) {
        self.navigations.ring_head(now);
        self.embeds.ring_head(now);
    }

    fn ring_all(&self) {
        for line in [&self.navigations, &self.embeds] {
            line.waiters.all().for_each(|bell| bell.notify_one());
        }
    }
}

impl Line {
    /// Whether one is the best. If another one has come to be, that one is rung.
    fn is_headed_by(&mut self, number: u64, now: Instant) -> bool {
        let (best, before) = (self.waiters.best(now), self.head);
        self.head = best;
        if best != before && best != Some(number) {
            self.ring();
        }
        best == Some(number)
    }

    /// Rings the best, whether it knows or not.
    fn ring_head(&mut self, now: Instant) {
        self.head = self.waiters.best(now);
        self.ring();
    }

    fn ring(&self) {
        if let Some(bell) = self.head.and_then(|head| self.waiters.get(head)) {
            bell.notify_one();
        }
    }
}

impl Queue {
    pub(super) fn new(limits: HoldLimits, clock: Clock) -> Self {
        let (waiting, numbers) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self {
            lines: Shards::new(),
            waiting,
            numbers,
            limits,
            clock,
        }
    }

    pub(super) fn limits(&self) -> HoldLimits {
        self.limits
    }

    /// Whether somebody waits for this key; nobody overtakes them.
    pub(super) fn has_line(&self, key: Key<'_>) -> bool {
        self.anybody_waits() && self.len_of(key) > 0
    }

    /// How many wait for this key.
    pub(super) fn len_of(&self, key: Key<'_>) -> usize {
        self.lines
            .of(key.name)
            .get(key.name)
            .map_or(0, |lines| lines.of(key.kind).waiters.len())
    }

    /// How many are likely to go before one that comes now.
    pub(super) fn ahead_of_new(&self, key: Key<'_>, crawler: &Crawler, class: Class) -> usize {
        let shard = self.lines.of(key.name);
        shard.get(key.name).map_or(0, |lines| {
            lines.of(key.kind).waiters.ahead_of_new(crawler, class)
        })
    }

    /// The place of one that has come now.
    pub(super) fn next_ticket(&self, now: Instant) -> Ticket {
        Ticket {
            number: self.numbers.fetch_add(1, Ordering::Relaxed),
            drawn: now,
        }
    }

    /// Takes a place; none if too many wait already. Who has one looks at once whether it is the first.
    pub(super) fn join(
        &self,
        key: Key<'_>,
        ticket: Ticket,
        crawler: &Crawler,
        rank: Rank,
    ) -> Option<Place<'_>> {
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= self.limits.of_all {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        let name: Arc<str> = key.name.into();
        let mut shard = self.lines.of(key.name);
        let lines = shard.entry(Arc::clone(&name)).or_default();
        if lines.len() >= self.limits.of_one {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        let bell = Arc::new(Notify::new());
        lines
            .of_mut(key.kind)
            .waiters
            .join(ticket, crawler, rank, Arc::clone(&bell));
        Some(Place {
            queue: self,
            name,
            kind: key.kind,
            ticket,
            bell,
            end: End::Left,
        })
    }

    /// Something was given up: the heads of both queues may ask again.
    ///
    /// Who waits is counted before it asks the store, and who gives up tells the store before it looks here; so one
    /// of them sees the other.
    pub(super) fn ring(&self, name: &str) {
        if self.anybody_waits()
            && let Some(lines) = self.lines.of(name).get_mut(name)
        {
            lines.ring_heads(self.clock.now());
        }
    }

    /// Shows how many wait for each name, and of which crawlers; one shard at a time is locked.
    #[allow(clippy::disallowed_methods, reason = "who asks puts them in order")]
    pub(super) fn each_seen(&self, mut show: impl FnMut(&Arc<str>, Waits)) {
        if !self.anybody_waits() {
            return;
        }
        for shard in self.lines.each() {
            let seen: Vec<_> = shard
                .iter()
                .map(|(name, lines)| (Arc::clone(name), lines.waits()))
                .collect();
            drop(shard);
            seen.into_iter()
                .for_each(|(name, waits)| show(&name, waits));
        }
    }

    /// How many wait for a name, and of which crawlers.
    pub(super) fn seen_of(&self, name: &str) -> Waits {
        self.lines
            .of(name)
            .get(name)
            .map(Lines::waits)
            .unwrap_or_default()
    }

    /// Wakes everybody.
    #[allow(
        clippy::disallowed_methods,
        reason = "all of them are woken, whatever the order"
    )]
    pub(super) fn ring_all(&self) {
        for shard in self.lines.each() {
            shard.values().for_each(Lines::ring_all);
        }
    }

    /// What the head was told, less the time since.
    pub(super) fn told(&self, key: Key<'_>, now: Instant) -> Option<Wait> {
        let (wait, at) = self.lines.of(key.name).get(key.name)?.of(key.kind).told?;
        Some(Wait {
            time: wait.time.saturating_sub(now.saturating_duration_since(at)),
            ..wait
        })
    }

    fn anybody_waits(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }
}

/// A place in a queue, left by dropping it.
#[derive(Debug)]
pub(super) struct Place<'q> {
    queue: &'q Queue,
    name: Arc<str>,
    kind: Kind,
    ticket: Ticket,
    bell: Arc<Notify>,
    end: End,
}

/// How a place is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Left,
    Granted,
}

impl Place<'_> {
    /// Whether it is the first.
    pub(super) fn is_head(&self, now: Instant) -> bool {
        let mut shard = self.queue.lines.of(&self.name);
        let lines = shard.get_mut(&self.name);
        lines.is_some_and(|lines| {
            lines
                .of_mut(self.kind)
                .is_headed_by(self.ticket.number, now)
        })
    }

    /// The time until it is worth a look whether it has risen to be the first.
    pub(super) fn rises_in(&self, now: Instant) -> Duration {
        self.ticket.rises_in(now)
    }

    /// How many are likely to go before it.
    pub(super) fn ahead(&self) -> usize {
        let shard = self.queue.lines.of(&self.name);
        shard.get(&self.name).map_or(0, |lines| {
            lines.of(self.kind).waiters.ahead(self.ticket.number)
        })
    }

    /// Notes what the store has told it, for those behind.
    pub(super) fn tell(&self, wait: Wait, now: Instant) {
        if let Some(lines) = self.queue.lines.of(&self.name).get_mut(&self.name) {
            lines.of_mut(self.kind).told = Some((wait, now));
        }
    }

    /// Notes that it goes, by the store's leave: its class and its crawler have had a turn.
    pub(super) fn goes(&mut self) {
        self.end = End::Granted;
    }

    /// Ready once it should look again. A ring that comes before is not lost.
    pub(super) async fn rung(&self) {
        self.bell.notified().await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let (now, number) = (self.queue.clock.now(), self.ticket.number);
        let mut shard = self.queue.lines.of(&self.name);
        if let Some(lines) = shard.get_mut(&self.name) {
            let line = lines.of_mut(self.kind);
            match self.end {
                End::Left => line.waiters.leave(number),
                End::Granted => line.waiters.taken(number),
            }
            line.ring_head(now);
            if lines.len() == 0 {
                shard.remove(&self.name);
                shrink(&mut shard);
            }
        }
        self.queue.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
