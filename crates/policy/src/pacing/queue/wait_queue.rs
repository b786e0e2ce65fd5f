//! A line: who waits for one key in one kind, and who of them is the best.
//!
//! Everything here costs at most the logarithm of how many wait, but [`WaitQueue::count_ahead`] and [`WaitQueue::count_ahead_of_new`], which are asked once
//! by those that are sent away, and a change of the order, which happens where two policies of one host want different ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::model::crawler::Crawler;

use super::class_shares::ClassShares;
use super::crawler_turns::CrawlerTurns;
use super::{PROMOTION_INTERVAL, PerClass, PriorityClass, QueueRank, QueueTicket, WaitOrder};

/// Who waits, each with what the caller keeps of it.
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
    /// The class in which it stands: its own, or the one that it has risen to.
    current_class: PriorityClass,
    /// When it rises next, in strict order.
    promotes_at: Instant,
    payload: W,
}

/// Where they stand.
#[derive(Debug, Default)]
struct QueuePositions {
    order: WaitOrder,
    classes: PerClass<CrawlerTurns>,
    /// In strict order those that can rise, the next one first.
    promotions: BTreeSet<(Instant, u64)>,
}

impl<W> WaitQueue<W> {
    /// One begins to wait.
    pub fn enqueue(&mut self, ticket: QueueTicket, crawler: &Crawler, rank: QueueRank, kept: W) {
        let (crawler, drawn) = (crawler.clone(), ticket.drawn_at);
        let waiter = QueueWaiter {
            crawler,
            rank,
            drawn_at: drawn,
            current_class: rank.class,
            promotes_at: drawn + PROMOTION_INTERVAL,
            payload: kept,
        };
        self.positions.insert(ticket.number, &waiter);
        self.waiters.insert(ticket.number, waiter);
    }

    /// One leaves without a grant: nobody's share changes, and nobody's turn.
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

    /// One goes: its class has had a grant, and its crawler a turn. It need not be the best; a better one may have come
    /// while it asked.
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

    /// The number of the one that is to go next. Asking changes nothing; time does, in strict order alone, when somebody
    /// rises.
    pub fn next_waiter(&mut self, now: Instant) -> Option<u64> {
        self.adopt_oldest_order();
        self.promote_due(now);
        let waits = |class: PriorityClass| self.positions.has_waiters(class);
        let class = match self.positions.order {
            WaitOrder::Weighted => self.shares.next_class(waits),
            WaitOrder::Strict => PriorityClass::ALL.into_iter().find(|class| waits(*class)),
        };
        self.positions.classes.get(class?).first()
    }

    /// How many are likely to go before this one: those of higher classes, and those before it in its own.
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

    /// The same for one that would come now.
    pub fn count_ahead_of_new(&self, crawler: &Crawler, class: PriorityClass) -> usize {
        self.count_in_higher_classes(class)
            + self.positions.classes.get(class).count_before_new(crawler)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// What the caller keeps of one.
    pub fn get(&self, number: u64) -> Option<&W> {
        self.waiters.get(&number).map(|waiter| &waiter.payload)
    }

    /// The crawlers that wait, one entry for each request, by arrival.
    pub fn crawlers(&self) -> impl Iterator<Item = &Crawler> {
        self.waiters.values().map(|waiter| &waiter.crawler)
    }

    /// What the caller keeps of each, by arrival.
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

    /// Takes the order of whoever has waited longest. The crawlers' turns begin anew with it.
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
            (waiter.current_class, waiter.promotes_at) =
                (waiter.rank.class, waiter.drawn_at + PROMOTION_INTERVAL);
            self.positions.insert(*number, waiter);
        }
    }

    /// Lets those rise whose time has come.
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
