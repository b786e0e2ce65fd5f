//! The queue of requests that wait for one key in one kind.
//!
//! All operations take logarithmic time, except [`WaitQueue::count_ahead`] and
//! [`WaitQueue::count_ahead_of_new`], which run once for each refused request, and a change of the
//! order, which happens where two policies set different orders for one host.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::model::crawler::Crawler;

use super::class_shares::ClassShares;
use super::crawler_turns::CrawlerTurns;
use super::{PROMOTION_INTERVAL, PerClass, PriorityClass, QueueRank, QueueTicket, WaitOrder};

/// The waiting requests, each with a value of the caller.
#[derive(Debug)]
pub struct WaitQueue<W> {
    waiters: BTreeMap<u64, QueueWaiter<W>>,
    positions: QueuePositions,
    shares: ClassShares,
}

#[derive(Debug)]
struct QueueWaiter<W> {
    crawler: Crawler,
    rank: QueueRank,
    drawn_at: Instant,
    /// The class that it waits in: its own, or the one that it was promoted to.
    current_class: PriorityClass,
    /// The time of its next promotion, in strict order.
    promotes_at: Instant,
    payload: W,
}

/// The positions of the waiting requests.
#[derive(Debug, Default)]
struct QueuePositions {
    order: WaitOrder,
    classes: PerClass<CrawlerTurns>,
    /// In strict order, the requests that can be promoted, by the time of the promotion.
    promotions: BTreeSet<(Instant, u64)>,
}

impl<W> WaitQueue<W> {
    /// Adds a waiting request.
    pub fn enqueue(&mut self, ticket: QueueTicket, crawler: &Crawler, rank: QueueRank, payload: W) {
        let waiter = QueueWaiter {
            crawler: crawler.clone(),
            rank,
            drawn_at: ticket.drawn_at,
            current_class: rank.class,
            promotes_at: ticket.drawn_at + PROMOTION_INTERVAL,
            payload,
        };
        self.positions.insert(ticket.number, &waiter);
        self.waiters.insert(ticket.number, waiter);
    }

    /// Removes a request without a grant; no share and no turn changes.
    pub fn remove(&mut self, number: u64) {
        if let Some(waiter) = self.waiters.remove(&number) {
            self.positions
                .promotions
                .remove(&(waiter.promotes_at, number));
            self.positions
                .classes
                .get_mut(waiter.current_class)
                .remove(&waiter.crawler, number);
        }
    }

    /// Removes a request with a grant and charges it to its class and its crawler. It need not be
    /// the next one: a better one may have arrived in the meantime.
    pub fn record_grant(&mut self, number: u64) {
        let Some(waiter) = self.waiters.remove(&number) else {
            return;
        };
        if self.positions.order == WaitOrder::Weighted {
            self.shares.charge(waiter.current_class, |class| {
                self.positions.has_waiters(class)
            });
        }
        self.positions
            .promotions
            .remove(&(waiter.promotes_at, number));
        self.positions
            .classes
            .get_mut(waiter.current_class)
            .record_grant(&waiter.crawler, number);
    }

    /// Returns the number of the request that goes next. The result changes by itself only in
    /// strict order, by promotions.
    pub fn next_waiter(&mut self, now: Instant) -> Option<u64> {
        self.adopt_oldest_order();
        self.promote_due(now);
        let positions = &self.positions;
        let class = match positions.order {
            WaitOrder::Weighted => self.shares.next_class(|class| positions.has_waiters(class)),
            WaitOrder::Strict => PriorityClass::ALL
                .into_iter()
                .find(|class| positions.has_waiters(*class)),
        };
        positions.classes.get(class?).first()
    }

    /// Returns how many requests are likely to go before this one: those of higher classes, and
    /// those before it in its own.
    pub fn count_ahead(&self, number: u64) -> usize {
        let Some(waiter) = self.waiters.get(&number) else {
            return 0;
        };
        self.count_in_higher_classes(waiter.current_class)
            + self
                .positions
                .classes
                .get(waiter.current_class)
                .count_before(&waiter.crawler, number)
    }

    /// Returns how many requests are likely to go before a new one.
    pub fn count_ahead_of_new(&self, crawler: &Crawler, class: PriorityClass) -> usize {
        self.count_in_higher_classes(class)
            + self.positions.classes.get(class).count_before_new(crawler)
    }

    /// The number of waiting requests.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Returns `true` if no request waits.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The caller's value of a request.
    pub fn get(&self, number: u64) -> Option<&W> {
        self.waiters.get(&number).map(|waiter| &waiter.payload)
    }

    /// The crawler of each waiting request, by arrival.
    pub fn crawlers(&self) -> impl Iterator<Item = &Crawler> {
        self.waiters.values().map(|waiter| &waiter.crawler)
    }

    /// The caller's values, by arrival.
    pub fn payloads(&self) -> impl Iterator<Item = &W> {
        self.waiters.values().map(|waiter| &waiter.payload)
    }

    fn count_in_higher_classes(&self, class: PriorityClass) -> usize {
        let higher = PriorityClass::ALL
            .into_iter()
            .filter(|higher| *higher < class);
        higher
            .map(|class| self.positions.classes.get(class).len())
            .sum()
    }

    /// Adopts the order of the request that has waited longest. A change resets the crawlers'
    /// turns.
    fn adopt_oldest_order(&mut self) {
        let Some(first) = self.waiters.values().next() else {
            return;
        };
        if first.rank.order == self.positions.order {
            return;
        }
        self.positions = QueuePositions {
            order: first.rank.order,
            ..QueuePositions::default()
        };
        for (number, waiter) in &mut self.waiters {
            waiter.current_class = waiter.rank.class;
            waiter.promotes_at = waiter.drawn_at + PROMOTION_INTERVAL;
            self.positions.insert(*number, waiter);
        }
    }

    /// Promotes the requests whose time has come.
    fn promote_due(&mut self, now: Instant) {
        while let Some((at, number)) = self
            .positions
            .promotions
            .first()
            .copied()
            .filter(|(at, _)| *at <= now)
        {
            self.positions.promotions.remove(&(at, number));
            let Some(waiter) = self.waiters.get_mut(&number) else {
                continue;
            };
            self.positions
                .classes
                .get_mut(waiter.current_class)
                .remove(&waiter.crawler, number);
            waiter.current_class = waiter
                .current_class
                .next_higher()
                .unwrap_or(PriorityClass::User);
            waiter.promotes_at = at + PROMOTION_INTERVAL;
            self.positions.insert(number, waiter);
        }
    }
}

impl<W> Default for WaitQueue<W> {
    fn default() -> Self {
        Self {
            waiters: BTreeMap::new(),
            positions: QueuePositions::default(),
            shares: ClassShares::default(),
        }
    }
}

impl QueuePositions {
    fn insert<W>(&mut self, number: u64, waiter: &QueueWaiter<W>) {
        if self.order == WaitOrder::Strict && waiter.current_class.next_higher().is_some() {
            self.promotions.insert((waiter.promotes_at, number));
        }
        self.classes
            .get_mut(waiter.current_class)
            .insert(&waiter.crawler, number);
    }

    fn has_waiters(&self, class: PriorityClass) -> bool {
        self.classes.get(class).len() > 0
    }
}
