//! The requests that wait for each host. A host without waiting requests has no entry; `crate::pacing::queue` orders
//! the others.
//!
//! A request that becomes the head of its queue is notified, unless it polls on its own, as new and promoted requests
//! do. So there is always one request that tries to acquire a slot, or sleeps until the time that the store has
//! scheduled for it.

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

/// The limits of the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// The maximum number of waiting requests for a host, address or domain.
    pub per_host: usize,
    /// The maximum number of waiting requests.
    pub total: usize,
    /// The longest wait that a crawler can request.
    pub max_wait: Duration,
}

/// The queues of all limiters.
#[derive(Debug)]
pub(super) struct HostQueues {
    queues: ShardedMap<HostQueue>,
    waiting: AtomicUsize,
    next_number: AtomicU64,
    limits: AdmissionLimits,
    clock: Clock,
}

/// The queues of a limiter: one for pages, one for their resources.
#[derive(Debug, Default)]
struct HostQueue {
    navigations: KindQueue,
    embeds: KindQueue,
}

#[derive(Debug, Default)]
struct KindQueue {
    waiters: queue::WaitQueue<Arc<Notify>>,
    /// The head when it was last determined. It has been notified, or has polled.
    head: Option<u64>,
    /// The last wait that the store returned for the head, and the time of that.
    last_wait: Option<(PaceWait, Instant)>,
}

/// The number of requests that wait for a name.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitCounts {
    pub(super) total: usize,
    pub(super) by_crawler: BTreeMap<Box<str>, usize>,
}

impl WaitCounts {
    /// Adds other waiting requests.
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
        let mut counts = WaitCounts {
            total: self.len(),
            by_crawler: BTreeMap::new(),
        };
        for queue in [&self.navigations, &self.embeds] {
            for crawler in queue.waiters.crawlers() {
                match counts.by_crawler.get_mut(crawler.as_str()) {
                    Some(count) => *count += 1,
                    None => drop(counts.by_crawler.insert(crawler.as_str().into(), 1)),
                }
            }
        }
        counts
    }

    fn notify_heads(&mut self, now: Instant) {
        self.navigations.notify_head(now);
        self.embeds.notify_head(now);
    }

    fn notify_all(&self) {
        for queue in [&self.navigations, &self.embeds] {
            queue
                .waiters
                .payloads()
                .for_each(|notify| notify.notify_one());
        }
    }
}

impl KindQueue {
    /// Returns `true` if a request is the head. If another one has become the head, it is notified.
    fn is_headed_by(&mut self, number: u64, now: Instant) -> bool {
        let next = self.waiters.next_waiter(now);
        let previous = self.head;
        self.head = next;
        if next != previous && next != Some(number) {
            self.notify();
        }
        next == Some(number)
    }

    /// Notifies the head, even if it has not changed.
    fn notify_head(&mut self, now: Instant) {
        self.head = self.waiters.next_waiter(now);
        self.notify();
    }

    fn notify(&self) {
        if let Some(notify) = self.head.and_then(|head| self.waiters.get(head)) {
            notify.notify_one();
        }
    }
}

impl HostQueues {
    pub(super) fn new(limits: AdmissionLimits, clock: Clock) -> Self {
        let waiting = AtomicUsize::new(0);
        let next_number = AtomicU64::new(0);
        Self {
            queues: ShardedMap::new(),
            waiting,
            next_number,
            limits,
            clock,
        }
    }

    pub(super) fn limits(&self) -> AdmissionLimits {
        self.limits
    }

    /// Returns `true` if requests wait for this limiter, which must not be overtaken.
    pub(super) fn has_waiters(&self, key: LimiterKey<'_>) -> bool {
        self.has_any_waiters() && self.len_for(key) > 0
    }

    /// Returns the number of requests that wait for this limiter.
    pub(super) fn len_for(&self, key: LimiterKey<'_>) -> usize {
        self.queues
            .lock_shard(key.name)
            .get(key.name)
            .map_or(0, |queue| queue.for_kind(key.kind).waiters.len())
    }

    /// Returns `true` if too many requests are waiting for another one to join.
    pub(super) fn is_full(&self, key: LimiterKey<'_>) -> bool {
        self.waiting.load(Ordering::SeqCst) >= self.limits.total
            || self
                .queues
                .lock_shard(key.name)
                .get(key.name)
                .is_some_and(|queue| queue.len() >= self.limits.per_host)
    }

    /// Estimates the number of requests that go before one that arrives now.
    pub(super) fn count_ahead_of_new(
        &self,
        key: LimiterKey<'_>,
        crawler: &Crawler,
        class: PriorityClass,
    ) -> usize {
        let shard = self.queues.lock_shard(key.name);
        shard.get(key.name).map_or(0, |queue| {
            queue
                .for_kind(key.kind)
                .waiters
                .count_ahead_of_new(crawler, class)
        })
    }

    /// Returns the ticket of a request that has arrived now.
    pub(super) fn next_ticket(&self, now: Instant) -> QueueTicket {
        QueueTicket {
            number: self.next_number.fetch_add(1, Ordering::Relaxed),
            drawn_at: now,
        }
    }

    /// Joins a queue; returns `None` if too many are waiting. The caller must then check at once whether it is the
    /// head.
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
        let queue = shard.entry(Arc::clone(&name)).or_default();
        if queue.len() >= self.limits.per_host {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        let notify = Arc::new(Notify::new());
        queue
            .for_kind_mut(key.kind)
            .waiters
            .enqueue(ticket, crawler, rank, Arc::clone(&notify));
        Some(QueuePosition {
            queues: self,
            name,
            kind: key.kind,
            ticket,
            notify,
            end: QueuePositionEnd::Abandoned,
        })
    }

    /// Notifies the heads of both queues that a slot was returned.
    ///
    /// A waiting request is counted before it accesses the store, and a slot is returned to the store before this is
    /// called, so that one of them sees the other.
    pub(super) fn notify(&self, name: &str) {
        if self.has_any_waiters()
            && let Some(queue) = self.queues.lock_shard(name).get_mut(name)
        {
            queue.notify_heads(self.clock.now());
        }
    }

    /// Counts the waiting requests of each name and crawler. One shard at a time is locked.
    #[allow(clippy::disallowed_methods, reason = "the caller sorts them")]
    pub(super) fn for_each_wait_counts(&self, mut visit: impl FnMut(&Arc<str>, WaitCounts)) {
        if !self.has_any_waiters() {
            return;
        }
        for shard in self.queues.lock_each() {
            let counts: Vec<_> = shard
                .iter()
                .map(|(name, queue)| (Arc::clone(name), queue.wait_counts()))
                .collect();
            drop(shard);
            counts
                .into_iter()
                .for_each(|(name, waits)| visit(&name, waits));
        }
    }

    /// Counts the waiting requests of a name, by crawler.
    pub(super) fn wait_counts(&self, name: &str) -> WaitCounts {
        self.queues
            .lock_shard(name)
            .get(name)
            .map(HostQueue::wait_counts)
            .unwrap_or_default()
    }

    /// Notifies all waiting requests.
    #[allow(
        clippy::disallowed_methods,
        reason = "all of them are notified, in any order"
    )]
    pub(super) fn notify_all(&self) {
        for shard in self.queues.lock_each() {
            shard.values().for_each(HostQueue::notify_all);
        }
    }

    /// Returns the last wait that the store returned for the head, less the time since.
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

/// A place in a queue, which is left by dropping it.
#[derive(Debug)]
pub(super) struct QueuePosition<'q> {
    queues: &'q HostQueues,
    name: Arc<str>,
    kind: RequestKind,
    ticket: QueueTicket,
    notify: Arc<Notify>,
    end: QueuePositionEnd,
}

/// The way in which a place was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueuePositionEnd {
    Abandoned,
    Granted,
}

impl QueuePosition<'_> {
    /// Returns `true` if it is the head.
    pub(super) fn is_head(&self, now: Instant) -> bool {
        let mut shard = self.queues.queues.lock_shard(&self.name);
        let queue = shard.get_mut(&self.name);
        queue.is_some_and(|lines| {
            lines
                .for_kind_mut(self.kind)
                .is_headed_by(self.ticket.number, now)
        })
    }

    /// Returns the time after which it may have been promoted to the head.
    pub(super) fn time_to_promotion(&self, now: Instant) -> Duration {
        self.ticket.time_to_promotion(now)
    }

    /// Estimates the number of requests that go before it.
    pub(super) fn count_ahead(&self) -> usize {
        let shard = self.queues.queues.lock_shard(&self.name);
        shard.get(&self.name).map_or(0, |queue| {
            queue
                .for_kind(self.kind)
                .waiters
                .count_ahead(self.ticket.number)
        })
    }

    /// Records the wait that the store returned, for the estimates of later requests.
    pub(super) fn record_wait(&self, wait: PaceWait, now: Instant) {
        if let Some(queue) = self
            .queues
            .queues
            .lock_shard(&self.name)
            .get_mut(&self.name)
        {
            queue.for_kind_mut(self.kind).last_wait = Some((wait, now));
        }
    }

    /// Records that the store has admitted it: its class and its crawler have had a turn.
    pub(super) fn mark_granted(&mut self) {
        self.end = QueuePositionEnd::Granted;
    }

    /// Waits until it should look again. An earlier notification is not lost.
    pub(super) async fn notified(&self) {
        self.notify.notified().await;
    }
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        let now = self.queues.clock.now();
        let number = self.ticket.number;
        let mut shard = self.queues.queues.lock_shard(&self.name);
        if let Some(queue) = shard.get_mut(&self.name) {
            let line = queue.for_kind_mut(self.kind);
            match self.end {
                QueuePositionEnd::Abandoned => line.waiters.remove(number),
                QueuePositionEnd::Granted => line.waiters.record_grant(number),
            }
            line.notify_head(now);
            if queue.len() == 0 {
                shard.remove(&self.name);
                shrink_if_sparse(&mut shard);
            }
        }
        self.queues.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
