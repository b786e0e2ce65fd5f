//! Who waits for which host, in the order of arrival. A host that nobody waits for is not in here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::politeness::pace::{Class, Wait};
use crate::store::Key;
use crate::store::shards::{Shards, shrink};

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
}

/// The queues of one key: of pages, and of what belongs to them.
#[derive(Debug, Default)]
struct Lines {
    navigations: Line,
    embeds: Line,
}

#[derive(Debug, Default)]
struct Line {
    waiters: BTreeMap<u64, Arc<Notify>>,
    /// What its head was told, and when.
    told: Option<(Wait, Instant)>,
}

impl Lines {
    fn of(&self, class: Class) -> &Line {
        match class {
            Class::Navigation => &self.navigations,
            Class::Embed => &self.embeds,
        }
    }

    fn of_mut(&mut self, class: Class) -> &mut Line {
        match class {
            Class::Navigation => &mut self.navigations,
            Class::Embed => &mut self.embeds,
        }
    }

    fn len(&self) -> usize {
        self.navigations.waiters.len() + self.embeds.waiters.len()
    }

    fn ring_heads(&self) {
        self.navigations.ring_head();
        self.embeds.ring_head();
    }

    fn ring_all(&self) {
        for line in [&self.navigations, &self.embeds] {
            line.waiters.values().for_each(|bell| bell.notify_one());
        }
    }
}

impl Line {
    fn ring_head(&self) {
        if let Some((_, bell)) = self.waiters.first_key_value() {
            bell.notify_one();
        }
    }
}

impl Queue {
    pub(super) fn new(limits: HoldLimits) -> Self {
        Self { lines: Shards::new(), waiting: AtomicUsize::new(0), numbers: AtomicU64::new(0), limits }
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
        self.lines.of(key.name).get(key.name).map_or(0, |lines| lines.of(key.class).waiters.len())
    }

    /// A place behind all others.
    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes a place; none if too many wait already.
    pub(super) fn join(&self, key: Key<'_>, number: u64) -> Option<Place<'_>> {
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
        lines.of_mut(key.class).waiters.insert(number, Arc::clone(&bell));
        Some(Place { queue: self, name, class: key.class, number, bell })
    }

    /// Something was given up: the heads of both queues may ask again.
    ///
    /// Who waits is counted before it asks the store, and who gives up tells the store before it looks here; so one
    /// of them sees the other.
    pub(super) fn ring(&self, name: &str) {
        if self.anybody_waits()
            && let Some(lines) = self.lines.of(name).get(name)
        {
            lines.ring_heads();
        }
    }

    /// Wakes everybody.
    #[allow(clippy::disallowed_methods, reason = "all of them are woken, whatever the order")]
    pub(super) fn ring_all(&self) {
        for shard in self.lines.each() {
            shard.values().for_each(Lines::ring_all);
        }
    }

    /// What the head was told, less the time since.
    pub(super) fn told(&self, key: Key<'_>, now: Instant) -> Option<Wait> {
        let (wait, at) = self.lines.of(key.name).get(key.name)?.of(key.class).told?;
        Some(Wait { time: wait.time.saturating_sub(now.saturating_duration_since(at)), ..wait })
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
    class: Class,
    number: u64,
    bell: Arc<Notify>,
}

impl Place<'_> {
    /// Whether it is the first.
    pub(super) fn is_head(&self) -> bool {
        let shard = self.queue.lines.of(&self.name);
        let first = shard.get(&self.name).and_then(|lines| lines.of(self.class).waiters.first_key_value());
        first.is_some_and(|(number, _)| *number == self.number)
    }

    /// How many are before it.
    pub(super) fn ahead(&self) -> usize {
        let shard = self.queue.lines.of(&self.name);
        shard.get(&self.name).map_or(0, |lines| lines.of(self.class).waiters.range(..self.number).count())
    }

    /// Notes what the store has told it, for those behind.
    pub(super) fn tell(&self, wait: Wait, now: Instant) {
        if let Some(lines) = self.queue.lines.of(&self.name).get_mut(&self.name) {
            lines.of_mut(self.class).told = Some((wait, now));
        }
    }

    /// Ready once it should look again. A ring that comes before is not lost.
    pub(super) async fn rung(&self) {
        self.bell.notified().await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut shard = self.queue.lines.of(&self.name);
        if let Some(lines) = shard.get_mut(&self.name) {
            let line = lines.of_mut(self.class);
            line.waiters.remove(&self.number);
            line.ring_head();
            if lines.len() == 0 {
                shard.remove(&self.name);
                shrink(&mut shard);
            }
        }
        self.queue.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
