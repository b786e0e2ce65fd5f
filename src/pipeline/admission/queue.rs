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
use crate::model::crawler::Crawler;
use crate::pacing::pace::{PaceWait, RequestKind};
use crate::pacing::queue::{self, PriorityClass, QueueRank, QueueTicket};
use crate::store::LimiterKey;
use crate::store::sharded_map::{ShardedMap, shrink_if_sparse};

/// How many may wait, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// For one host, address or domain.
    pub per_host: usize,
    /// In all.
    pub total: usize,
    /// The longest wait that a crawler can ask for.
    pub max_wait: Duration,
}

/// All queues.
#[derive(Debug)]
pub(super) struct HostQueues {
    queues: ShardedMap<HostQueue>,
    waiting: AtomicUsize,
    next_number: AtomicU64,
    limits: AdmissionLimits,
    clock: Clock,
}

/// The queues of one key: of pages, and of what belongs to them.
#[derive(Debug, Default)]
struct HostQueue {
    navigations: KindQueue,
    embeds: KindQueue,
}

#[derive(Debug, Default)]
struct KindQueue {
    waiters: queue::WaitQueue<Arc<Notify>>,
    /// The best when somebody last looked: it knows that it is.
    head: Option<u64>,
    /// What the head was told, and when.
    last_wait: Option<(PaceWait, Instant)>,
}

/// Who waits for a name, for who looks on.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitCounts {
    pub(super) total: usize,
    pub(super) by_crawler: BTreeMap<Box<str>, usize>,
}

impl WaitCounts {
    /// These wait, too.
    pub(super) fn add(&mut self, others: BTreeMap<Box<str>, usize>) {
        for (crawler, waiting) in others {
            self.total += waiting;
            *self.by_crawler.entry(crawler).or_default() += waiting;
        }
    }
}

impl HostQueue {
    fn for_kind(&self, kind: RequestKind) -> &KindQueue {
        match kind {
            RequestKind::Navigation => &self.navigations,
            RequestKind::Embed => &self.embeds,
        }
    }

    fn for_kind_mut(&mut self, kind: RequestKind) -> &mut KindQueue {
        match kind {
            RequestKind::Navigation => &mut self.navigations,
            RequestKind::Embed => &mut self.embeds,
        }
    }

    fn len(&self) -> usize {
        self.navigations.waiters.len() + self.embeds.waiters.len()
    }

    fn wait_counts(&self) -> WaitCounts {
        let mut waits = WaitCounts {
            total: self.len(),
            by_crawler: BTreeMap::new(),
        };
        for line in [&self.navigations, &self.embeds] {
            for crawler in line.waiters.crawlers() {
                match waits.by_crawler.get_mut(crawler.as_str()) {
                    Some(count) => *count += 1,
                    None => drop(waits.by_crawler.insert(crawler.as_str().into(), 1)),
                }
            }
        }
        waits
    }

    fn notify_heads(&mut self, now: Instant) {
        self.navigations.notify_head(now);
        self.embeds.notify_head(now);
    }

    fn notify_all(&self) {
        for line in [&self.navigations, &self.embeds] {
            line.waiters.payloads().for_each(|bell| bell.notify_one());
        }
    }
}

impl KindQueue {
    /// Whether one is the best. If another one has come to be, that one is rung.
    fn is_headed_by(&mut self, number: u64, now: Instant) -> bool {
        let (best, before) = (self.waiters.next_waiter(now), self.head);
        self.head = best;
        if best != before && best != Some(number) {
            self.notify();
        }
        best == Some(number)
    }

    /// Rings the best, whether it knows or not.
    fn notify_head(&mut self, now: Instant) {
        self.head = self.waiters.next_waiter(now);
        self.notify();
    }

    fn notify(&self) {
        if let Some(bell) = self.head.and_then(|head| self.waiters.get(head)) {
            bell.notify_one();
        }
    }
}

impl HostQueues {
    pub(super) fn new(limits: AdmissionLimits, clock: Clock) -> Self {
        let (waiting, numbers) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self {
            queues: ShardedMap::new(),
            waiting,
            next_number: numbers,
            limits,
            clock,
        }
    }

    pub(super) fn limits(&self) -> AdmissionLimits {
        self.limits
    }

    /// Whether somebody waits for this key; nobody overtakes them.
    pub(super) fn has_waiters(&self, key: LimiterKey<'_>) -> bool {
        self.has_any_waiters() && self.len_for(key) > 0
    }

    /// How many wait for this key.
    pub(super) fn len_for(&self, key: LimiterKey<'_>) -> usize {
        self.queues
            .lock_shard(key.name)
            .get(key.name)
            .map_or(0, |lines| lines.for_kind(key.kind).waiters.len())
    }

    /// How many are likely to go before one that comes now.
    pub(super) fn count_ahead_of_new(
        &self,
        key: LimiterKey<'_>,
        crawler: &Crawler,
        class: PriorityClass,
    ) -> usize {
        let shard = self.queues.lock_shard(key.name);
        shard.get(key.name).map_or(0, |lines| {
            lines
                .for_kind(key.kind)
                .waiters
                .count_ahead_of_new(crawler, class)
        })
    }

    /// The place of one that has come now.
    pub(super) fn next_ticket(&self, now: Instant) -> QueueTicket {
        QueueTicket {
            number: self.next_number.fetch_add(1, Ordering::Relaxed),
            drawn_at: now,
        }
    }

    /// Takes a place; none if too many wait already. Who has one looks at once whether it is the first.
    pub(super) fn join(
        &self,
        key: LimiterKey<'_>,
        ticket: QueueTicket,
        crawler: &Crawler,
        rank: QueueRank,
    ) -> Option<QueuePosition<'_>> {
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= self.limits.total {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        let name: Arc<str> = key.name.into();
        let mut shard = self.queues.lock_shard(key.name);
        let lines = shard.entry(Arc::clone(&name)).or_default();
        if lines.len() >= self.limits.per_host {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        let bell = Arc::new(Notify::new());
        lines
            .for_kind_mut(key.kind)
            .waiters
            .enqueue(ticket, crawler, rank, Arc::clone(&bell));
        Some(QueuePosition {
            queues: self,
            name,
            kind: key.kind,
            ticket,
            notify: bell,
            end: QueuePositionEnd::Abandoned,
        })
    }

    /// Something was given up: the heads of both queues may ask again.
    ///
    /// Who waits is counted before it asks the store, and who gives up tells the store before it looks here; so one
    /// of them sees the other.
    pub(super) fn notify(&self, name: &str) {
        if self.has_any_waiters()
            && let Some(lines) = self.queues.lock_shard(name).get_mut(name)
        {
            lines.notify_heads(self.clock.now());
        }
    }

    /// Shows how many wait for each name, and of which crawlers; one shard at a time is locked.
    #[allow(clippy::disallowed_methods, reason = "who asks puts them in order")]
    pub(super) fn for_each_wait_counts(&self, mut show: impl FnMut(&Arc<str>, WaitCounts)) {
        if !self.has_any_waiters() {
            return;
        }
        for shard in self.queues.lock_each() {
            let seen: Vec<_> = shard
                .iter()
                .map(|(name, lines)| (Arc::clone(name), lines.wait_counts()))
                .collect();
            drop(shard);
            seen.into_iter()
                .for_each(|(name, waits)| show(&name, waits));
        }
    }

    /// How many wait for a name, and of which crawlers.
    pub(super) fn wait_counts(&self, name: &str) -> WaitCounts {
        self.queues
            .lock_shard(name)
            .get(name)
            .map(HostQueue::wait_counts)
            .unwrap_or_default()
    }

    /// Wakes everybody.
    #[allow(
        clippy::disallowed_methods,
        reason = "all of them are woken, whatever the order"
    )]
    pub(super) fn notify_all(&self) {
        for shard in self.queues.lock_each() {
            shard.values().for_each(HostQueue::notify_all);
        }
    }

    /// What the head was told, less the time since.
    pub(super) fn last_wait(&self, key: LimiterKey<'_>, now: Instant) -> Option<PaceWait> {
        let (wait, at) = self
            .queues
            .lock_shard(key.name)
            .get(key.name)?
            .for_kind(key.kind)
            .last_wait?;
        Some(PaceWait {
            duration: wait
                .duration
                .saturating_sub(now.saturating_duration_since(at)),
            ..wait
        })
    }

    fn has_any_waiters(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }
}

/// A place in a queue, left by dropping it.
#[derive(Debug)]
pub(super) struct QueuePosition<'q> {
    queues: &'q HostQueues,
    name: Arc<str>,
    kind: RequestKind,
    ticket: QueueTicket,
    notify: Arc<Notify>,
    end: QueuePositionEnd,
}

/// How a place is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueuePositionEnd {
    Abandoned,
    Granted,
}

impl QueuePosition<'_> {
    /// Whether it is the first.
    pub(super) fn is_head(&self, now: Instant) -> bool {
        let mut shard = self.queues.queues.lock_shard(&self.name);
        let lines = shard.get_mut(&self.name);
        lines.is_some_and(|lines| {
            lines
                .for_kind_mut(self.kind)
                .is_headed_by(self.ticket.number, now)
        })
    }

    /// The time until it is worth a look whether it has risen to be the first.
    pub(super) fn time_to_promotion(&self, now: Instant) -> Duration {
        self.ticket.time_to_promotion(now)
    }

    /// How many are likely to go before it.
    pub(super) fn count_ahead(&self) -> usize {
        let shard = self.queues.queues.lock_shard(&self.name);
        shard.get(&self.name).map_or(0, |lines| {
            lines
                .for_kind(self.kind)
                .waiters
                .count_ahead(self.ticket.number)
        })
    }

    /// Notes what the store has told it, for those behind.
    pub(super) fn record_wait(&self, wait: PaceWait, now: Instant) {
        if let Some(lines) = self
            .queues
            .queues
            .lock_shard(&self.name)
            .get_mut(&self.name)
        {
            lines.for_kind_mut(self.kind).last_wait = Some((wait, now));
        }
    }

    /// Notes that it goes, by the store's leave: its class and its crawler have had a turn.
    pub(super) fn mark_granted(&mut self) {
        self.end = QueuePositionEnd::Granted;
    }

    /// Ready once it should look again. A ring that comes before is not lost.
    pub(super) async fn notified(&self) {
        self.notify.notified().await;
    }
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        let (now, number) = (self.queues.clock.now(), self.ticket.number);
        let mut shard = self.queues.queues.lock_shard(&self.name);
        if let Some(lines) = shard.get_mut(&self.name) {
            let line = lines.for_kind_mut(self.kind);
            match self.end {
                QueuePositionEnd::Abandoned => line.waiters.remove(number),
                QueuePositionEnd::Granted => line.waiters.record_grant(number),
            }
            line.notify_head(now);
            if lines.len() == 0 {
                shard.remove(&self.name);
                shrink_if_sparse(&mut shard);
            }
        }
        self.queues.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
