//! The admission queue: requests that may not be sent yet wait here, each in its host's queue, and go in the order of
//! `crate::pacing::queue`: by class, then the crawlers in turn, then by arrival.
//!
//! The head of a queue tries to acquire a slot from the store, and tries again when its wait is over or a slot is
//! returned; the others only wait. There is no task for them, and no timer for requests that go at once. A request that
//! is dropped leaves its queue. `stage/pace.rs` computes the limits and builds the refusals.
//!
//! Terms:
//! - A *slot* ([`HostSlot`]) is the right to have one request in flight at a host. It owns the *lease* of the store,
//!   which is identified by a *grant*.
//! - A *permit* ([`crate::pipeline::permit::Permit`]) is the proof that a request passed every stage; it owns a slot.
//! - A *ticket* ([`QueueTicket`]) is the number that orders the requests that wait.
//! - An *arrival* ([`Arrival`]) is the time at which a request began to wait, with its ticket.
//! - A *position* (`QueuePosition`) is the entry of a waiting request in its host's queue.
//! - A request has had its *turn* when, as the head of its queue, it got a slot.

mod forecast;
pub mod handover;
mod host_and_address;
pub mod host_status;
mod queue;
mod recent_map;
mod redirects;
mod returning_tickets;
mod robots_wait;
mod slot;
mod stop_wait;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::model::crawler::Crawler;
use crate::model::reason::Reason;
use crate::pacing::pace::{HostPace, PaceDecision, PaceWait, WaitCause};
use crate::pacing::queue::{QueueRank, QueueTicket};
use crate::pacing::retry_after::{self, DEFAULT_RETRY_AFTER};
use crate::pipeline::budget::BudgetTracker;
use crate::pipeline::held_requests::HeldRequests;
use crate::pipeline::stop_registry::StopRegistry;
use crate::policy::options::politeness::Overflow;
use crate::robots::agent::RobotsTokenSource;
use crate::store::{HostStore, LimiterKey};
use crate::urls::target::UrlTarget;

pub use forecast::TurnForecast;
pub use queue::AdmissionLimits;
use queue::{HostQueues, QueuePosition};
use redirects::RecentRedirects;
use returning_tickets::ReturningTickets;
pub(crate) use robots_wait::{RobotsWaitEnd, RobotsWaitRequest};
pub use slot::{HostSlot, ResendDecision};
pub(crate) use stop_wait::StopWaitRequest;

/// The store of limiters, and the requests that wait for it.
#[derive(Debug)]
pub struct AdmissionQueue {
    store: HostStore,
    queues: HostQueues,
    returning_tickets: ReturningTickets,
    redirects: RecentRedirects,
    clock: Clock,
    metrics: Metrics,
    stops: Arc<StopRegistry>,
    /// Requests that wait for a robots.txt that is being fetched, or could not be.
    robots_waits: HeldRequests,
    budgets: Arc<BudgetTracker>,
    closed: AtomicBool,
}

/// A request for a slot.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionRequest<'a> {
    /// The limiter.
    pub key: LimiterKey<'a>,
    /// Its limits.
    pub pace: HostPace,
    /// The choice between waiting and being refused.
    pub overflow: Overflow,
    /// The crawler that sent it.
    pub crawler: &'a Crawler,
    /// The URL, or the host of a tunnel.
    pub resource: &'a str,
}

/// The terms of a wait, computed only for a request that has to wait, or is refused because of that.
#[derive(Clone, Copy, Debug)]
pub struct WaitTerms {
    /// The maximum wait, counted from its arrival.
    pub max_wait: Duration,
    /// Its rank among others that wait.
    pub rank: QueueRank,
}

/// The time at which a request began to wait, and its ticket. It is kept if the request is evaluated again. The ticket
/// is older if the request was refused before and is sent again.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    at: Instant,
    ticket: QueueTicket,
    turn: HostTurn,
}

/// The state of a request in its host's queue. After its turn it need not queue again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostTurn {
    Taken,
    Pending,
}

/// The refusal of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionRefusal {
    pub cause: AdmissionRefusalCause,
    /// The time for `Retry-After`, in whole seconds.
    pub retry_after: Duration,
    /// The load of the limiter, if that is the cause.
    pub load: Option<LimiterLoad>,
}

/// The cause of the refusal of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionRefusalCause {
    /// The turn of the request would come too late.
    RateLimited,
    /// The host is in backoff.
    HostBackoff,
    /// Too many requests wait.
    QueueFull,
    /// The proxy is shutting down.
    ShuttingDown,
}

impl AdmissionRefusalCause {
    pub(crate) fn reason(self) -> Reason {
        match self {
            Self::RateLimited => Reason::RateLimited,
            Self::HostBackoff => Reason::HostBackoff,
            Self::QueueFull => Reason::QueueFull,
            Self::ShuttingDown => Reason::ShuttingDown,
        }
    }
}

/// The pace of a limiter, and the requests that wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimiterLoad {
    /// The average time between two requests.
    pub interval: Duration,
    /// The maximum number of requests in flight.
    pub concurrency: u32,
    /// The number of other requests that wait.
    pub waiting: usize,
}

impl AdmissionQueue {
    /// Creates a queue in which no request waits.
    pub fn new(store: HostStore, limits: AdmissionLimits, clock: Clock, metrics: Metrics) -> Self {
        let queues = HostQueues::new(limits, clock.clone());
        let returning_tickets = ReturningTickets::default();
        let redirects = RecentRedirects::default();
        let stops = Arc::new(StopRegistry::new(
            limits.total,
            clock.clone(),
            metrics.clone(),
        ));
        let robots_waits = HeldRequests::new(limits.total, metrics.clone());
        let budgets = Arc::new(BudgetTracker::new(clock.clone()));
        let closed = AtomicBool::new(false);
        Self {
            store,
            queues,
            returning_tickets,
            redirects,
            clock,
            metrics,
            stops,
            robots_waits,
            budgets,
            closed,
        }
    }

    /// Returns a slot for a request that need not wait, at the cost of one store access. For any other it returns
    /// `None` and records nothing.
    pub fn try_acquire(self: &Arc<Self>, key: LimiterKey<'_>, pace: &HostPace) -> Option<HostSlot> {
        if self.queues.has_waiters(key) {
            return None;
        }
        match self.acquire_from_store(key, pace, self.clock.now()) {
            PaceDecision::Granted(slot) => Some(slot),
            PaceDecision::Wait(_) => None,
        }
    }

    /// Acquires a slot, and waits for it according to `terms`. A request that goes at once costs one store access. One
    /// that is refused and sent again keeps its ticket, but its maximum wait starts anew.
    ///
    /// # Errors
    /// If the wait would be too long, if too many are waiting already, or if the proxy is shutting down.
    pub async fn acquire(
        self: &Arc<Self>,
        request: &AdmissionRequest<'_>,
        arrival: &mut Option<Arrival>,
        terms: impl FnOnce() -> WaitTerms,
    ) -> Result<HostSlot, AdmissionRefusal> {
        let now = self.clock.now();
        let had_turn = arrival.is_some_and(|arrival| arrival.turn == HostTurn::Taken);
        if had_turn || !self.queues.has_waiters(request.key) {
            match self.acquire_from_store(request.key, &request.pace, now) {
                PaceDecision::Granted(slot) => return Ok(slot),
                PaceDecision::Wait(wait) if request.overflow == Overflow::Refuse => {
                    return Err(self.refusal_for_wait(wait, 0, 0, request));
                }
                PaceDecision::Wait(_) => {}
            }
        } else if request.overflow == Overflow::Refuse {
            return Err(self.refuse_overtaking(request, terms().rank));
        }
        let arrival =
            arrival.get_or_insert_with(|| self.new_arrival(request.crawler, request.resource, now));
        let Arrival { at, ticket, .. } = *arrival;
        let WaitTerms { max_wait, rank } = terms();
        let deadline = now.max(at + max_wait);
        let result = match self.queues.join(request.key, ticket, request.crawler, rank) {
            // Boxed, so that the future of a request that goes at once stays small.
            Some(position) => Box::pin(self.wait(request, position, deadline)).await,
            None => Err(self.refuse_full(request, rank)),
        };
        match result {
            Ok(_) => arrival.turn = HostTurn::Taken,
            Err(_) => self.keep_ticket(request.crawler, request.resource, ticket),
        }
        result
    }

    /// Returns the longest wait that a crawler can request.
    pub fn max_wait(&self) -> Duration {
        self.queues.limits().max_wait
    }

    /// Returns the time that a request has waited.
    pub fn time_waited(&self, arrival: Arrival) -> Duration {
        self.clock.now().saturating_duration_since(arrival.at)
    }

    /// Returns the daily budgets.
    pub fn budgets(&self) -> &Arc<BudgetTracker> {
        &self.budgets
    }

    /// Returns the monotonic time.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns the time of day, for schedules. Pacing does not depend on it.
    pub fn wall(&self) -> SystemTime {
        self.clock.wall_time()
    }

    /// Counts a request that is sent sooner than its host's robots.txt requests.
    pub fn record_capped_delay(&self) {
        self.metrics.record_capped_crawl_delay();
    }

    /// Counts a request for which robots.txt is obeyed, by the source of its product token.
    pub fn record_robots_token(&self, source: RobotsTokenSource) {
        self.metrics.record_robots_token(source);
    }

    /// Records that an origin has redirected to this URL.
    pub fn record_redirect(&self, to: &UrlTarget) {
        self.redirects.record(to, self.clock.now());
    }

    /// Returns `true` if an origin has redirected to this URL within the last ten minutes.
    pub fn is_redirect_target(&self, to: &UrlTarget) -> bool {
        self.redirects.contains(to, self.clock.now())
    }

    /// Records that an origin has redirected this crawler to a URL, from a URL of this depth.
    pub(crate) fn record_redirect_depth(&self, crawler: &Crawler, to: &UrlTarget, depth: u32) {
        self.redirects
            .record_depth(crawler, to, depth, self.clock.now());
    }

    /// Returns the least depth from which the crawler was redirected to a URL within the last ten minutes.
    pub(crate) fn redirect_depth(&self, crawler: &Crawler, to: &UrlTarget) -> Option<u32> {
        if self.redirects.has_no_depths() {
            return None;
        }
        self.redirects.depth(crawler, to, self.clock.now())
    }

    /// Refuses all requests that wait now or would have to wait later.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.queues.notify_all();
        self.stops.close();
        self.robots_waits.notify_all();
    }

    /// Removes idle hosts and stops that have ended, and updates the gauges.
    pub fn sweep(&self) {
        self.stops.sweep();
        self.budgets.sweep();
        let counts = self.store.sweep(self.clock.now());
        self.metrics
            .set_hosts(counts.hosts, counts.backing_off, counts.leases);
    }

    async fn wait(
        self: &Arc<Self>,
        request: &AdmissionRequest<'_>,
        position: QueuePosition<'_>,
        deadline: Instant,
    ) -> Result<HostSlot, AdmissionRefusal> {
        let mut waiting = AdmissionWait::new(self, request.crawler, position);
        loop {
            if self.closed.load(Ordering::SeqCst) {
                return waiting.finish(Err(SHUTTING_DOWN));
            }
            let now = self.clock.now();
            let mut timeout = deadline.saturating_duration_since(now);
            if waiting.position.is_head(now) {
                match self.acquire_from_store(request.key, &request.pace, now) {
                    PaceDecision::Granted(slot) => {
                        waiting.position.mark_granted();
                        return waiting.finish(Ok(slot));
                    }
                    PaceDecision::Wait(wait) => {
                        waiting.position.record_wait(wait, now);
                        timeout = timeout.min(wait.duration);
                    }
                }
            }
            if deadline <= now {
                let refusal = self.refuse_timed_out(request, &waiting.position);
                return waiting.finish(Err(refusal));
            }
            // After the timeout as after a notification, the request tries again.
            let timeout = timeout.min(waiting.position.time_to_promotion(now));
            let _ = tokio::time::timeout(timeout, waiting.position.notified()).await;
        }
    }

    /// Stores the ticket of a refused request for the next one for the same URL.
    fn keep_ticket(&self, crawler: &Crawler, url: &str, ticket: QueueTicket) {
        self.returning_tickets
            .insert(crawler, url, ticket, self.clock.now());
    }

    fn new_arrival(&self, crawler: &Crawler, url: &str, now: Instant) -> Arrival {
        let ticket = self
            .returning_tickets
            .take(crawler, url, now)
            .unwrap_or_else(|| self.queues.next_ticket(now));
        Arrival {
            at: now,
            ticket,
            turn: HostTurn::Pending,
        }
    }

    fn acquire_from_store(
        self: &Arc<Self>,
        key: LimiterKey<'_>,
        pace: &HostPace,
        now: Instant,
    ) -> PaceDecision<HostSlot> {
        match self.store.try_acquire(key, pace, now) {
            PaceDecision::Granted(lease) => {
                PaceDecision::Granted(HostSlot::new(Arc::clone(self), lease, pace, now))
            }
            PaceDecision::Wait(wait) => PaceDecision::Wait(wait),
        }
    }

    /// Refuses a request whose maximum wait is over.
    fn refuse_timed_out(
        &self,
        request: &AdmissionRequest<'_>,
        position: &QueuePosition<'_>,
    ) -> AdmissionRefusal {
        let wait = self
            .queues
            .last_wait(request.key, self.clock.now())
            .unwrap_or(NO_WAIT);
        let others = self.queues.len_for(request.key).saturating_sub(1);
        self.refusal_for_wait(wait, position.count_ahead(), others, request)
    }

    /// Refuses a request that would have to overtake others.
    fn refuse_overtaking(
        &self,
        request: &AdmissionRequest<'_>,
        rank: QueueRank,
    ) -> AdmissionRefusal {
        let wait = self
            .queues
            .last_wait(request.key, self.clock.now())
            .unwrap_or(NO_WAIT);
        let ahead = self
            .queues
            .count_ahead_of_new(request.key, request.crawler, rank.class);
        let others = self.queues.len_for(request.key);
        self.refusal_for_wait(wait, ahead, others, request)
    }

    fn refusal_for_wait(
        &self,
        wait: PaceWait,
        ahead: usize,
        others: usize,
        request: &AdmissionRequest<'_>,
    ) -> AdmissionRefusal {
        let (cause, load) = match wait.cause {
            WaitCause::Time | WaitCause::Slots => (
                AdmissionRefusalCause::RateLimited,
                Some(self.load(request, others)),
            ),
            WaitCause::Backoff | WaitCause::Probe => (AdmissionRefusalCause::HostBackoff, None),
        };
        AdmissionRefusal {
            cause,
            retry_after: retry_after::estimate_retry_after(wait, ahead, &request.pace),
            load,
        }
    }

    fn load(&self, request: &AdmissionRequest<'_>, waiting: usize) -> LimiterLoad {
        let adapted = self
            .store
            .host_snapshot(request.key.name, self.clock.now())
            .map_or(Duration::ZERO, |snapshot| snapshot.delay);
        LimiterLoad {
            // The delay may have adapted to the host's latency.
            interval: request.pace.interval().max(adapted),
            concurrency: request.pace.concurrency,
            waiting,
        }
    }

    fn refuse_full(&self, request: &AdmissionRequest<'_>, rank: QueueRank) -> AdmissionRefusal {
        AdmissionRefusal {
            cause: AdmissionRefusalCause::QueueFull,
            ..self.refuse_overtaking(request, rank)
        }
    }
}

/// The wait of a queue whose head has just arrived.
const NO_WAIT: PaceWait = PaceWait {
    duration: Duration::ZERO,
    cause: WaitCause::Time,
};
/// The refusal at shutdown.
const SHUTTING_DOWN: AdmissionRefusal = AdmissionRefusal {
    cause: AdmissionRefusalCause::ShuttingDown,
    retry_after: DEFAULT_RETRY_AFTER,
    load: None,
};

/// A request in a queue. If it is dropped before its wait has ended, the client has left.
struct AdmissionWait<'h> {
    admission: &'h AdmissionQueue,
    crawler: &'h Crawler,
    position: QueuePosition<'h>,
    end: AdmissionWaitEnd,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AdmissionWaitEnd {
    Abandoned,
    Finished,
}

impl<'h> AdmissionWait<'h> {
    fn new(
        admission: &'h AdmissionQueue,
        crawler: &'h Crawler,
        position: QueuePosition<'h>,
    ) -> Self {
        admission.metrics.inc_held();
        Self {
            admission,
            crawler,
            position,
            end: AdmissionWaitEnd::Abandoned,
        }
    }

    fn finish<T>(mut self, result: T) -> T {
        self.end = AdmissionWaitEnd::Finished;
        result
    }
}

impl Drop for AdmissionWait<'_> {
    fn drop(&mut self) {
        self.admission.metrics.dec_held();
        if self.end == AdmissionWaitEnd::Abandoned {
            self.admission.metrics.record_held_disconnect(self.crawler);
        }
    }
}
