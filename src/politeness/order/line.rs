//! A line: who waits for one key in one kind, and who of them is the best.
//!
//! Everything here costs at most the logarithm of how many wait, but [`Line::ahead`] and [`Line::ahead_of_new`], which are asked once
//! by those that are sent away, and a change of the order, which happens where two policies of one host want different ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::vocab::crawler::Crawler;

use super::shares::Shares;
use super::turns::Turns;
use super::{ByClass, Class, Order, RISES_EVERY, Rank, Ticket};

/// Who waits, each with what the caller keeps of it.
#[derive(Debug)]
pub struct Line<W> {
    waiters: BTreeMap<u64, Waiter<W>>,
    places: Places,
    shares: Shares,
}

#[derive(Debug)]
struct Waiter<W> {
    crawler: Crawler,
    rank: Rank,
    drawn: Instant,
    /// The class in which it stands: its own, or the one that it has risen to.
    stands: Class,
    /// When it rises next, in strict order.
    rises: Instant,
    kept: W,
}

/// Where they stand.
#[derive(Debug, Default)]
struct Places {
    order: Order,
    classes: ByClass<Turns>,
    /// In strict order those that can rise, the next one first.
    rising: BTreeSet<(Instant, u64)>,
}

impl<W> Line<W> {
    /// One begins to wait.
    pub fn join(&mut self, ticket: Ticket, crawler: &Crawler, rank: Rank, kept: W) {
        let (crawler, drawn) = (crawler.clone(), ticket.drawn);
        let waiter = Waiter {
            crawler,
            rank,
            drawn,
            stands: rank.class,
            rises: drawn + RISES_EVERY,
            kept,
        };
        self.places.enter(ticket.number, &waiter);
        self.waiters.insert(ticket.number, waiter);
    }

    /// One leaves without a grant: nobody's share changes, and nobody's turn.
    pub fn leave(&mut self, number: u64) {
        if let Some(waiter) = self.waiters.remove(&number) {
            self.places.rising.remove(&(waiter.rises, number));
            self.places
                .classes
                .of_mut(waiter.stands)
                .leave(&waiter.crawler, number);
        }
    }

    /// One goes: its class has had a grant, and its crawler a turn. It need not be the best; a better one may have come
    /// while it asked.
    pub fn taken(&mut self, number: u64) {
        let Some(waiter) = self.waiters.remove(&number) else {
            return;
        };
        if self.places.order == Order::Weighted {
            self.shares
                .charge(waiter.stands, |class| self.places.is_waited_in(class));
        }
        self.places.rising.remove(&(waiter.rises, number));
        self.places
            .classes
            .of_mut(waiter.stands)
            .taken(&waiter.crawler, number);
    }

    /// The number of the one that is to go next. Asking changes nothing; time does, in strict order alone, when somebody
    /// rises.
    pub fn best(&mut self, now: Instant) -> Option<u64> {
        self.settle_order();
        self.raise(now);
        let waits = |class: Class| self.places.is_waited_in(class);
        let class = match self.places.order {
            Order::Weighted => self.shares.next(waits),
            Order::Strict => Class::ALL.into_iter().find(|class| waits(*class)),
        };
        self.places.classes.of(class?).first()
    }

    /// How many are likely to go before this one: those of higher classes, and those before it in its own.
    pub fn ahead(&self, number: u64) -> usize {
        let Some(waiter) = self.waiters.get(&number) else {
            return 0;
        };
        self.above(waiter.stands)
            + self
                .places
                .classes
                .of(waiter.stands)
                .before(&waiter.crawler, number)
    }

    /// The same for one that would come now.
    pub fn ahead_of_new(&self, crawler: &Crawler, class: Class) -> usize {
        self.above(class) + self.places.classes.of(class).before_new(crawler)
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
        self.waiters.get(&number).map(|waiter| &waiter.kept)
    }

    /// The crawlers that wait, one entry for each request, by arrival.
    pub fn crawlers(&self) -> impl Iterator<Item = &Crawler> {
        self.waiters.values().map(|waiter| &waiter.crawler)
    }

    /// What the caller keeps of each, by arrival.
    pub fn all(&self) -> impl Iterator<Item = &W> {
        self.waiters.values().map(|waiter| &waiter.kept)
    }

    fn above(&self, class: Class) -> usize {
        let higher = Class::ALL.into_iter().filter(|higher| *higher < class);
        higher
            .map(|class| self.places.classes.of(class).len())
            .sum()
    }

    /// Takes the order of whoever has waited longest. The crawlers' turns begin anew with it.
    fn settle_order(&mut self) {
        let Some(first) = self.waiters.values().next() else {
            return;
        };
        if first.rank.order == self.places.order {
            return;
        }
        self.places = Places {
            order: first.rank.order,
            ..Places::default()
        };
        for (number, waiter) in &mut self.waiters {
            (waiter.stands, waiter.rises) = (waiter.rank.class, waiter.drawn + RISES_EVERY);
            self.places.enter(*number, waiter);
        }
    }

    /// Lets those rise whose time has come.
    fn raise(&mut self, now: Instant) {
        while let Some((at, number)) = self
            .places
            .rising
            .first()
            .copied()
            .filter(|(at, _)| *at <= now)
        {
            self.places.rising.remove(&(at, number));
            let Some(waiter) = self.waiters.get_mut(&number) else {
                continue;
            };
            self.places
                .classes
                .of_mut(waiter.stands)
                .leave(&waiter.crawler, number);
            waiter.stands = waiter.stands.above().unwrap_or(Class::User);
            waiter.rises = at + RISES_EVERY;
            self.places.enter(number, waiter);
        }
    }
}

impl<W> Default for Line<W> {
    fn default() -> Self {
        Self {
            waiters: BTreeMap::new(),
            places: Places::default(),
            shares: Shares::default(),
        }
    }
}

impl Places {
    fn enter<W>(&mut self, number: u64, waiter: &Waiter<W>) {
        if self.order == Order::Strict && waiter.stands.above().is_some() {
            self.rising.insert((waiter.rises, number));
        }
        self.classes
            .of_mut(waiter.stands)
            .join(&waiter.crawler, number);
    }

    fn is_waited_in(&self, class: Class) -> bool {
        self.classes.of(class).len() > 0
    }
}
