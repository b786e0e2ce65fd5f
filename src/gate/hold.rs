//! The hold: requests that may not go yet wait here, each in its host's queue, and go in the order of their arrival.
//!
//! The head of a queue asks the store, and asks again when its wait is over or something is given up; those behind
//! only wait. Nobody else does anything for them: no task, no timer for requests that go at once. A request that is
//! dropped leaves its queue by that. What the pace is, and what a refusal looks like, is said in `stage/pace.rs`.

mod queue;
mod returning;
mod slot;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::policy::options::politeness::Overflow;
use crate::politeness::pace::{Pace, Turn, Wait, Why};
use crate::politeness::retry_after;
use crate::store::{Key, Store};
use crate::vocab::crawler::Crawler;
use crate::vocab::reason::Reason;

pub use queue::HoldLimits;
use queue::{Place, Queue};
use returning::{Returning, Who};
pub use slot::Slot;

/// The store, and who waits for it.
#[derive(Debug)]
pub struct Hold {
    store: Store,
    queue: Queue,
    returning: Returning,
    clock: Clock,
    metrics: Metrics,
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

/// When a request first had to wait, and its place among all that did: kept if it is judged again and has to ask
/// again.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    at: Instant,
    number: u64,
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
        let (queue, returning, closed) = (Queue::new(limits), Returning::default(), AtomicBool::new(false));
        Self { store, queue, returning, clock, metrics, closed }
    }

    /// Asks for a slot, and waits for it as long as `patience` says, counted from the first arrival. What it costs a
    /// request that goes at once is one look into the store. One that is sent away and comes again stands where it
    /// stood, though it has to wait anew.
    ///
    /// # Errors
    /// If the wait would be longer, or too many wait already, or the proxy goes down.
    pub async fn admit(
        self: &Arc<Self>,
        asking: &Asking<'_>,
        arrival: &mut Option<Arrival>,
        patience: impl FnOnce() -> Duration,
    ) -> Result<Slot, SentAway> {
        let now = self.clock.now();
        if arrival.is_some() || !self.queue.has_line(asking.key) {
            match self.ask(asking, now) {
                Turn::Go(slot) => return Ok(slot),
                Turn::Wait(wait) if asking.overflow == Overflow::Refuse => {
                    return Err(sent_away(wait, 0, asking));
                }
                Turn::Wait(_) => {}
            }
        } else if asking.overflow == Overflow::Refuse {
            return Err(self.behind_others(asking));
        }
        let who = self.returning.who(asking.crawler, asking.what);
        let arrival = *arrival.get_or_insert_with(|| Arrival { at: now, number: self.number(who, now) });
        let until = now.max(arrival.at + patience());
        let waited = match self.queue.join(asking.key, arrival.number) {
            // Boxed, so that those that go at once are not as big as those that wait.
            Some(place) => Box::pin(self.wait(asking, place, until)).await,
            None => Err(self.full(asking)),
        };
        if waited.is_err() {
            self.returning.keep(who, arrival.number, self.clock.now());
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

    /// Sends away who waits, and from now on who would have to.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.queue.ring_all();
    }

    /// Forgets hosts that are idle, and tells the metrics how many are left.
    pub fn sweep(&self) {
        let census = self.store.sweep(self.clock.now());
        self.metrics.hosts(census.hosts, census.resting, census.leases);
    }

    async fn wait(
        self: &Arc<Self>,
        asking: &Asking<'_>,
        place: Place<'_>,
        until: Instant,
    ) -> Result<Slot, SentAway> {
        let waiting = Waiting::new(self, asking.crawler, place);
        loop {
            if self.closed.load(Ordering::SeqCst) {
                return waiting.ended(Err(SHUTTING_DOWN));
            }
            let now = self.clock.now();
            let mut left = until.saturating_duration_since(now);
            if waiting.place.is_head() {
                match self.ask(asking, now) {
                    Turn::Go(slot) => return waiting.ended(Ok(slot)),
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
            let _ = tokio::time::timeout(left, waiting.place.rung()).await;
        }
    }

    fn number(&self, who: Who, now: Instant) -> u64 {
        self.returning.take(who, now).unwrap_or_else(|| self.queue.next_number())
    }

    fn ask(self: &Arc<Self>, asking: &Asking<'_>, now: Instant) -> Turn<Slot> {
        match self.store.admit(asking.key, &asking.pace, now) {
            Turn::Go(lease) => Turn::Go(Slot::new(Arc::clone(self), lease, &asking.pace, now)),
            Turn::Wait(wait) => Turn::Wait(wait),
        }
    }

    /// Its time is over.
    fn turned_away(&self, asking: &Asking<'_>, place: &Place<'_>) -> SentAway {
        let wait = self.queue.told(asking.key, self.clock.now()).unwrap_or(NOT_LONG);
        sent_away(wait, place.ahead(), asking)
    }

    /// Others wait, and it would not.
    fn behind_others(&self, asking: &Asking<'_>) -> SentAway {
        let wait = self.queue.told(asking.key, self.clock.now()).unwrap_or(NOT_LONG);
        sent_away(wait, self.queue.len_of(asking.key), asking)
    }

    fn full(&self, asking: &Asking<'_>) -> SentAway {
        SentAway { reason: Reason::QueueFull, ..self.behind_others(asking) }
    }
}

/// What the head of a queue was told is not known: it has only just come.
const NOT_LONG: Wait = Wait { time: Duration::ZERO, why: Why::Time };
/// Whoever takes this proxy's place needs a moment.
const SHUTTING_DOWN: SentAway =
    SentAway { reason: Reason::ShuttingDown, retry_after: Duration::from_secs(5) };

fn sent_away(wait: Wait, ahead: usize, asking: &Asking<'_>) -> SentAway {
    let reason = match wait.why {
        Why::Time | Why::Slots => Reason::RateLimited,
        Why::Backoff => Reason::HostBackoff,
    };
    SentAway { reason, retry_after: retry_after::after(wait, ahead, &asking.pace) }
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
        Self { hold, crawler, place, end: End::Left }
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
