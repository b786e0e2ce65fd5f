//! The slots of a request that is also paced by its address, which other hosts may share: first that of the host, then
//! that of the address.
//!
//! The order is always the same, so that no two requests can wait for each other. `admission.rs` implements the wait
//! for one slot.

use std::sync::Arc;
use std::time::Duration;

use crate::policy::options::politeness::Overflow;

use super::{
    AdmissionQueue, AdmissionRefusal, AdmissionRefusalCause, AdmissionRequest, Arrival, HostSlot,
    HostTurn, WaitTerms,
};

/// The time for which a host's slot is kept for a request that waits for its address: well below the duration of a
/// lease. Then other requests for the host have their chance.
const MAX_ADDRESS_WAIT: Duration = Duration::from_secs(30);

impl AdmissionQueue {
    /// Acquires a slot of the host and one of the address, as one. The maximum wait covers both waits together. If the
    /// address refuses the request, the host's slot is returned unused.
    ///
    /// # Errors
    /// As [`Self::acquire`], of the host or of the address.
    pub async fn acquire_host_and_address(
        self: &Arc<Self>,
        host: &AdmissionRequest<'_>,
        address: &AdmissionRequest<'_>,
        arrival: &mut Option<Arrival>,
        terms: WaitTerms,
    ) -> Result<HostSlot, AdmissionRefusal> {
        let max_wait = terms.max_wait;
        let mut address_arrival: Option<Arrival> = None;
        loop {
            let slot = self.acquire(host, arrival, || terms).await?;
            let remaining_wait = self
                .remaining_wait(*arrival, max_wait)
                .min(MAX_ADDRESS_WAIT);
            // The request keeps its ticket at the address, and waits there again.
            if let Some(address_arrival) = &mut address_arrival {
                address_arrival.at = self.clock.now();
            }
            let address_terms = || WaitTerms {
                max_wait: remaining_wait,
                ..terms
            };
            let result = self
                .acquire(address, &mut address_arrival, address_terms)
                .await;
            *arrival = arrival.or(address_arrival);
            match result {
                // The host may have entered a backoff meanwhile.
                Ok(address_slot) if slot.remaining_backoff().is_none() => {
                    return Ok(slot.with_address(address_slot));
                }
                Ok(_) => {}
                Err(refusal) if self.is_final(refusal, address, *arrival, max_wait) => {
                    return Err(refusal);
                }
                // The request keeps its ticket, so the next request for the same URL must not get it.
                Err(_) => {
                    let now = self.clock.now();
                    let tickets = &self.returning_tickets;
                    let _ = tickets.take(address.crawler, address.resource, now);
                }
            }
            // Other requests for the host go before it now.
            for arrival in arrival.iter_mut().chain(&mut address_arrival) {
                arrival.turn = HostTurn::Pending;
            }
        }
    }

    fn remaining_wait(&self, arrival: Option<Arrival>, max_wait: Duration) -> Duration {
        arrival.map_or(max_wait, |arrival| {
            max_wait.saturating_sub(self.time_waited(arrival))
        })
    }

    /// Returns `true` if the refusal of the address ends the wait. Otherwise the request only returns the host's slot
    /// for a moment.
    fn is_final(
        &self,
        refusal: AdmissionRefusal,
        request: &AdmissionRequest<'_>,
        arrival: Option<Arrival>,
        max_wait: Duration,
    ) -> bool {
        let is_timeout = match refusal.cause {
            AdmissionRefusalCause::RateLimited | AdmissionRefusalCause::HostBackoff => true,
            AdmissionRefusalCause::QueueFull | AdmissionRefusalCause::ShuttingDown => false,
        };
        !is_timeout
            || request.overflow == Overflow::Refuse
            || self.remaining_wait(arrival, max_wait).is_zero()
    }
}
