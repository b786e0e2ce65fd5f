//! The hold: requests that may not go yet wait here, each in its host's queue, and go in the order of
//! `politeness/order`: by class, then the crawlers in turn, then by arrival.
//!
//! The best of a queue asks the store, and asks again when its wait is over or something is given up; the others
//! only wait. Nobody else does anything for them: no task, no timer for requests that go at once. A request that is
//! dropped leaves its queue by that. What the pace is, and what a refusal looks like, is said in `stage/pace.rs`.

mod both;
mod queue;
mod recent;
mod redirects;
mod returning;
pub mod seen;
mod slot;
mod stopped;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::clock::Clock;
use crate::gate::budget::Budgets;
use crate::gate::stops::Stops;
use crate::metrics::Metrics;
use crate::policy::options::politeness::Overflow;
use crate::politeness::order::{Rank, Ticket};
use crate::politeness::pace::{Pace, Turn, Wait, Why};
use crate::politeness::retry_after;
use crate::store::{Key, Store};
use crate::vocab::crawler::Crawler;
use crate::vocab::reason::Reason;
use crate::vocab::target::UrlTarget;

pub use queue::HoldLimits;
use queue::{Place, Queue};
use redirects::Redirects;
use returning::{Returning, Who};
pub use slot::{Again, Slot};
pub(in crate::gate) use stopped::Stoppable;

/// The store, and who waits for it.
#[derive(Debug)]
pub struct Hold {
    store: Store,
    queue: Queue,
    returning: Returning,
    redirects: Redirects,
    clock: Clock,
    metrics: Metrics,
    stops: Arc<Stops>,
    budgets: Arc<Budgets>,
    closed: AtomicBool,
}

/// A request that wants to go.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// What is paced as one.
    pub key: Key<'a>,
    /// How.
    pub pace: Pace,
    /// Whether it waits at all.
    pub overflow: Overflow,
    /// Who asks.
    pub crawler: &'a Crawler,
    /// What for: a URL, or the host of a tunnel.
    pub what: &'a str,
}

/// What is asked of a request only if it has to wait, or is sent away for it.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// For how long at the most, counted from its arrival.
    pub patience: Duration,
    /// How it stands to others that wait.
    pub rank: Rank,
}

/// When a request had to wait, and its place among all that did: kept if it is judged again and has to ask again. Its
/// ticket is older if it was sent away before.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    at: Instant,
    ticket: Ticket,
    turn: HostTurn,
}

/// Whether a request has had its host's turn already: then it need not stand in line again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostTurn {
    Had,
    Awaited,
}

/// Why a request does not go, and when it might.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentAway {
    /// The reason.
    pub reason: Reason,
    /// When to come back; whole seconds.
    pub retry_after: Duration,
}

impl Hold {
    /// Nobody waits yet.
    pub fn new(store: Store, limits: HoldLimits, clock: Clock, metrics: Metrics) -> Self {
        let queue = Queue::new(limits, clock.clone());
        let (returning, redirects) = (Returning::default(), Redirects::default());
        let stops = Arc::new(Stops::new(limits.of_all, clock.clone(), metrics.clone()));
        let (budgets, closed) = (
            Arc::new(Budgets::new(clock.clone())),
            AtomicBool::new(false),
        );
        Self {
            store,
            queue,
            returning,
            redirects,
            clock,
            metrics,
            stops,
            budgets,
            closed,
        }
    }

    /// A slot for a request that need not wait: one look into the store. None for any other, which nothing is told of.
    pub fn at_once(self: &Arc<Self>, key: Key<'_>, pace: &Pace) -> Option<Slot> {
        if self.queue.has_line(key) {
            return None;
        }
        match self.ask(key, pace, self.clock.now()) {
            Turn::Go(slot) => Some(slot),
            Turn::Wait(_) => None,
        }
    }

    /// Asks for a slot, and waits for it by its `terms`. What it costs a request that goes at once is one look into the
    /// store. One that is sent away and comes again stands where it stood, though its patience begins anew.
    ///
    /// # Errors
    /// If the wait would be longer, or too many wait already, or the proxy goes down.
    pub async fn admit(
        self: &Arc<Self>,
        asking: &Asking<'_>,
        arrival: &mut Option<Arrival>,
        terms: impl FnOnce() -> Terms,
    ) -> Result<Slot, SentAway> {
        let now = self.clock.now();
        let had = arrival.is_some_and(|arrival| arrival.turn == HostTurn::Had);
        if had || !self.queue.has_line(asking.key) {
            match self.ask(asking.key, &asking.pace, now) {
                Turn::Go(slot) => return Ok(slot),
                Turn::Wait(wait) if asking.overflow == Overflow::Refuse => {
                    return Err(sent_away(wait, 0, asking));
                }
                Turn::Wait(_) => {}
            }
        } else if asking.overflow == Overflow::Refuse {
            return Err(self.behind_others(asking, terms().rank));
        }
        let who = self.returning.who(asking.crawler, asking.what);
        let arrival = arrival.get_or_insert_with(|| self.arrival(who, now));
        let Arrival { at, ticket, .. } = *arrival;
        let Terms { patience, rank } = terms();
        let until = now.max(at + patience);
        let waited = match self.queue.join(asking.key, ticket, asking.crawler, rank) {
            // Boxed, so that those that go at once are not as big as those that wait.
            Some(place) => Box::pin(self.wait(asking, place, until)).await,
            None => Err(self.full(asking, rank)),
        };
        match waited {
            Ok(_) => arrival.turn = HostTurn::Had,
            Err(_) => self.returning.keep(who, ticket, self.clock.now()),
        }
        waited
    }

    /// The longest wait that a crawler can ask for.
    pub fn longest(&self) -> Duration {
        self.queue.limits().longest
    }

    /// For how long a request has waited.
    pub fn since(&self, arrival: Arrival) -> Duration {
        self.clock.now().saturating_duration_since(arrival.at)
    }

    /// What was spent of the days' budgets.
    pub fn budgets(&self) -> &Arc<Budgets> {
        &self.budgets
    }

    /// Monotonic time.
    pub(in crate::gate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The time of day, for schedules: nothing that is paced goes by it.
    pub fn wall(&self) -> SystemTime {
        self.clock.wall()
    }

    /// A request goes sooner than its host's robots.txt asks.
    pub fn delay_is_capped(&self) {
        self.metrics.crawl_delay_capped();
    }

    /// An origin has redirected somebody to this URL.
    pub fn redirected(&self, to: &UrlTarget) {
        self.redirects.note(to, self.clock.now());
    }

    /// Whether an origin has, within the last ten minutes.
    pub fn is_redirected(&self, to: &UrlTarget) -> bool {
        self.redirects.lead_to(to, self.clock.now())
    }

    /// An origin has redirected this crawler there, from a URL of this depth.
    pub(in crate::gate) fn redirected_at(&self, crawler: &Crawler, to: &UrlTarget, depth: u32) {
        self.redirects
            .note_depth(crawler, to, depth, self.clock.now());
    }

    /// The least depth from which the crawler was redirected there within the last ten minutes.
    pub(in crate::gate) fn redirected_from(
        &self,
        crawler: &Crawler,
        to: &UrlTarget,
    ) -> Option<u32> {
        if self.redirects.have_no_depths() {
            return None;
        }
        self.redirects.depth(crawler, to, self.clock.now())
    }

    /// Sends away who waits, and from now on who would have to.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.queue.ring_all();
        self.stops.close();
    }

    /// Forgets hosts that are idle and stops that have ended, and tells the metrics how many are left.
    pub fn sweep(&self) {
        self.stops.sweep();
        self.budgets.sweep();
        let census = self.store.sweep(self.clock.now());
        self.metrics
            .hosts(census.hosts, census.resting, census.leases);
    }

    async fn wait(
        self: &Arc<Self>,
        asking: &Asking<'_>,
        place: Place<'_>,
        until: Instant,
    ) -> Result<Slot, SentAway> {
        let mut waiting = Waiting::new(self, asking.crawler, place);
        loop {
            if self.closed.load(Ordering::SeqCst) {
                return waiting.ended(Err(SHUTTING_DOWN));
            }
            let now = self.clock.now();
            let mut left = until.saturating_duration_since(now);
            if waiting.place.is_head(now) {
                match self.ask(asking.key, &asking.pace, now) {
                    Turn::Go(slot) => {
                        waiting.place.goes();
                        return waiting.ended(Ok(slot));
                    }
                    Turn::Wait(wait) => {
                        waiting.place.tell(wait, now);
                        left = left.min(wait.time);
                    }
                }
            }
            if until <= now {
                let away = self.turned_away(asking, &waiting.place);
                return waiting.ended(Err(away));
            }
            // Over or rung: either is a reason to look again.
            let left = left.min(waiting.place.rises_in(now));
            let _ = tokio::time::timeout(left, waiting.place.rung()).await;
        }
    }

    fn arrival(&self, who: Who, now: Instant) -> Arrival {
        let ticket = self
            .returning
            .take(who, now)
            .unwrap_or_else(|| self.queue.next_ticket(now));
        Arrival {
            at: now,
            ticket,
            turn: HostTurn::Awaited,
        }
    }

    fn ask(self: &Arc<Self>, key: Key<'_>, pace: &Pace, now: Instant) -> Turn<Slot> {
        match self.store.admit(key, pace, now) {
            Turn::Go(lease) => Turn::Go(Slot::new(Arc::clone(self), lease, pace, now)),
            Turn::Wait(wait) => Turn::Wait(wait),
        }
    }

    /// Its time is over.
    fn turned_away(&self, asking: &Asking<'_>, place: &Place<'_>) -> SentAway {
        let wait = self
            .queue
            .told(asking.key, self.clock.now())
            .unwrap_or(NOT_LONG);
        sent_away(wait, place.ahead(), asking)
    }

    /// Others wait, and it would not.
    fn behind_others(&self, asking: &Asking<'_>, rank: Rank) -> SentAway {
        let wait = self
            .queue
            .told(asking.key, self.clock.now())
            .unwrap_or(NOT_LONG);
        sent_away(
            wait,
            self.queue
                .ahead_of_new(asking.key, asking.crawler, rank.class),
            asking,
        )
    }

    fn full(&self, asking: &Asking<'_>, rank: Rank) -> SentAway {
        SentAway {
            reason: Reason::QueueFull,
            ..self.behind_others(asking, rank)
        }
    }
}

/// What the best of a queue was told is not known: it has only just come.
const NOT_LONG: Wait = Wait {
    time: Duration::ZERO,
    why: Why::Time,
};
/// Whoever takes this proxy's place needs a moment.
const SHUTTING_DOWN: SentAway = SentAway {
    reason: Reason::ShuttingDown,
    retry_after: Duration::from_secs(5),
};

fn sent_away(wait: Wait, ahead: usize, asking: &Asking<'_>) -> SentAway {
    let reason = match wait.why {
        Why::Time | Why::Slots => Reason::RateLimited,
        Why::Backoff | Why::Probe => Reason::HostBackoff,
    };
    SentAway {
        reason,
        retry_after: retry_after::after(wait, ahead, &asking.pace),
    }
}

/// A request in a queue. If it is dropped before its wait has ended the client has left.
struct Waiting<'h> {
    hold: &'h Hold,
    crawler: &'h Crawler,
    place: Place<'h>,
    end: End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Left,
    Answered,
}

impl<'h> Waiting<'h> {
    fn new(hold: &'h Hold, crawler: &'h Crawler, place: Place<'h>) -> Self {
        hold.metrics.hold_begins();
        Self {
            hold,
            crawler,
            place,
            end: End::Left,
        }
    }

    fn ended<T>(mut self, with: T) -> T {
        self.end = End::Answered;
        with
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.hold.metrics.hold_ends();
        if self.end == End::Left {
            self.hold.metrics.left_while_held(self.crawler);
        }
    }
}
