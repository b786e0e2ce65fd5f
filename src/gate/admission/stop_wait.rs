//! The wait for the end of a stop: before the wait for the host's turn, and with the same patience.

use std::sync::Arc;
use std::time::Duration;

use crate::gate::stop_registry::{StopRefusal, StopRegistry};
use crate::policy::options::politeness::Overflow;
use crate::politeness::stops::StopQuery;
use crate::vocab::crawler::Crawler;

use super::{AdmissionQueue, Arrival};

/// A request that a stop may cover.
#[derive(Clone, Copy, Debug)]
pub(in crate::gate) struct StopWaitRequest<'a> {
    /// What a stop may cover of it.
    pub(in crate::gate) coverage: StopQuery<'a>,
    /// Who asks.
    pub(in crate::gate) crawler: &'a Crawler,
    /// What for: a URL, or the host of a tunnel.
    pub(in crate::gate) resource: &'a str,
    /// Whether it waits at all.
    pub(in crate::gate) overflow: Overflow,
}

impl AdmissionQueue {
    /// What an operator has stopped.
    pub fn stops(&self) -> &Arc<StopRegistry> {
        &self.stops
    }

    /// Waits until no stop covers the request, as long as `patience` says, counted from its first arrival. One that is
    /// sent away and comes again stands where it stood.
    pub(in crate::gate) async fn wait_for_stops(
        &self,
        request: &StopWaitRequest<'_>,
        arrival: &mut Option<Arrival>,
        patience: Duration,
    ) -> Result<(), StopRefusal> {
        let Some(turned) = self.stops.find_refusal(&request.coverage) else {
            return Ok(());
        };
        if request.overflow == Overflow::Refuse {
            return Err(turned);
        }
        let now = self.clock.now();
        let who = self
            .returning_tickets
            .key(request.crawler, request.resource);
        let arrival = *arrival.get_or_insert_with(|| self.new_arrival(who, now));
        let until = now.max(arrival.at + patience);
        let outlasted = self
            .stops
            .wait_until_lifted(&request.coverage, request.crawler, until)
            .await;
        if outlasted.is_err() {
            self.returning_tickets
                .insert(who, arrival.ticket, self.clock.now());
        }
        outlasted
    }
}
