//! The wait for the end of a stop: before the wait for the host's turn, and with the same patience.

use std::sync::Arc;
use std::time::Duration;

use crate::model::crawler::Crawler;
use crate::pacing::stops::StopQuery;
use crate::pipeline::stop_registry::{StopRefusal, StopRegistry};
use crate::policy::options::politeness::Overflow;

use super::{AdmissionQueue, Arrival};

/// A request that a stop may cover.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StopWaitRequest<'a> {
    /// What a stop may cover of it.
    pub(crate) coverage: StopQuery<'a>,
    /// Who asks.
    pub(crate) crawler: &'a Crawler,
    /// What for: a URL, or the host of a tunnel.
    pub(crate) resource: &'a str,
    /// Whether it waits at all.
    pub(crate) overflow: Overflow,
}

impl AdmissionQueue {
    /// What an operator has stopped.
    pub fn stops(&self) -> &Arc<StopRegistry> {
        &self.stops
    }

    /// Waits until no stop covers the request, as long as `patience` says, counted from its first arrival. One that is
    /// sent away and comes again stands where it stood.
    pub(crate) async fn wait_for_stops(
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
