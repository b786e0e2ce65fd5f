//! The wait for the end of a stop, before the wait for the host's turn and within the same maximum wait.

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
    /// The properties that a stop may match.
    pub(crate) coverage: StopQuery<'a>,
    /// The crawler that sent it.
    pub(crate) crawler: &'a Crawler,
    /// The URL, or the host of a tunnel.
    pub(crate) resource: &'a str,
    /// The choice between waiting and being refused.
    pub(crate) overflow: Overflow,
}

impl AdmissionQueue {
    /// Returns the registry of stops.
    pub fn stops(&self) -> &Arc<StopRegistry> {
        &self.stops
    }

    /// Waits until no stop covers the request, for at most `max_wait` since its first arrival. A request that is
    /// refused and sent again keeps its ticket.
    pub(crate) async fn wait_for_stops(
        &self,
        request: &StopWaitRequest<'_>,
        arrival: &mut Option<Arrival>,
        max_wait: Duration,
    ) -> Result<(), StopRefusal> {
        let Some(refusal) = self.stops.find_refusal(&request.coverage) else {
            return Ok(());
        };
        if request.overflow == Overflow::Refuse {
            return Err(refusal);
        }
        let now = self.clock.now();
        let arrival = *arrival
            .get_or_insert_with(|| self.new_arrival(request.crawler, request.resource, now));
        let deadline = now.max(arrival.at + max_wait);
        let result = self
            .stops
            .wait_until_lifted(&request.coverage, request.crawler, deadline)
            .await;
        if result.is_err() {
            self.keep_ticket(request.crawler, request.resource, arrival.ticket);
        }
        result
    }
}
