//! Requests that are held because nothing is known of their host's robots.txt: it is being fetched, or that has failed and
//! is tried again.

use std::future::ready;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{AdmissionQueue, Arrival};
use crate::model::crawler::Crawler;

/// A request that waits for its host's robots.txt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RobotsWaitRequest<'a> {
    pub(crate) host: &'a str,
    pub(crate) crawler: &'a Crawler,
    /// The URL.
    pub(crate) resource: &'a str,
    /// The maximum wait, counted from its arrival.
    pub(crate) max_wait: Duration,
}

/// The cause of the end of a wait, if robots.txt is still unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RobotsWaitEnd {
    /// The request may not wait for so long, or too many are waiting already.
    TimedOut,
    /// The proxy is shutting down.
    ShuttingDown,
}

impl AdmissionQueue {
    /// Returns an error if a request may not wait until `at`, the time of the next fetch: then it need not wait at all,
    /// since nothing can change before. One that is sent again keeps its ticket.
    pub(crate) fn check_robots_wait(
        &self,
        request: &RobotsWaitRequest<'_>,
        arrival: Option<Arrival>,
        at: Instant,
    ) -> Result<(), RobotsWaitEnd> {
        let wait = at.saturating_duration_since(self.clock.now());
        if wait < self.remaining_robots_wait(request, arrival) {
            return Ok(());
        }
        if let Some(arrival) = arrival {
            self.keep_ticket(request.crawler, request.resource, arrival.ticket);
        }
        Err(self.robots_wait_end())
    }

    /// Holds a request until `event`, unless that has happened already. One that is refused and sent again keeps its ticket.
    pub(crate) async fn wait_for_robots<T>(
        &self,
        request: &RobotsWaitRequest<'_>,
        arrival: &mut Option<Arrival>,
        event: impl Future<Output = T>,
    ) -> Result<T, RobotsWaitEnd> {
        let mut event = pin!(event);
        let at_once = tokio::select! {
            biased;
            value = &mut event => Some(value),
            () = ready(()) => None,
        };
        if let Some(value) = at_once {
            return Ok(value);
        }
        let now = self.clock.now();
        let arrival = *arrival
            .get_or_insert_with(|| self.new_arrival(request.crawler, request.resource, now));
        let remaining = self.remaining_robots_wait(request, Some(arrival));
        let result = self.hold_for_robots(request, remaining, event).await;
        if result.is_err() {
            self.keep_ticket(request.crawler, request.resource, arrival.ticket);
        }
        result
    }

    /// Returns the rest of a host's backoff.
    pub(crate) fn backoff_remaining(&self, name: &str) -> Duration {
        let snapshot = self.store.host_snapshot(name, self.clock.now());
        let backoff = snapshot.and_then(|snapshot| snapshot.backoff);
        backoff.map_or(Duration::ZERO, |(remaining, _)| remaining)
    }

    async fn hold_for_robots<T>(
        &self,
        request: &RobotsWaitRequest<'_>,
        remaining: Duration,
        event: impl Future<Output = T>,
    ) -> Result<T, RobotsWaitEnd> {
        let Some(held) = self.robots_waits.join(request.host, request.crawler) else {
            return Err(self.robots_wait_end());
        };
        // Checked after joining, since those that join later are not woken.
        if self.closed.load(Ordering::SeqCst) {
            return held.finish(Err(RobotsWaitEnd::ShuttingDown));
        }
        let result = tokio::select! {
            biased;
            value = event => Ok(value),
            () = held.notified() => Err(RobotsWaitEnd::ShuttingDown),
            () = tokio::time::sleep(remaining) => Err(RobotsWaitEnd::TimedOut),
        };
        held.finish(result)
    }

    fn remaining_robots_wait(
        &self,
        request: &RobotsWaitRequest<'_>,
        arrival: Option<Arrival>,
    ) -> Duration {
        let waited = arrival.map_or(Duration::ZERO, |arrival| self.time_waited(arrival));
        request.max_wait.saturating_sub(waited)
    }

    fn robots_wait_end(&self) -> RobotsWaitEnd {
        if self.closed.load(Ordering::SeqCst) {
            RobotsWaitEnd::ShuttingDown
        } else {
            RobotsWaitEnd::TimedOut
        }
    }
}
