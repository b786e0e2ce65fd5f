//! Two turns for one request: that of its host, and then that of its address, which other hosts may share.
//!
//! The order is always the same, so that no two requests can wait for each other. `admission.rs` implements the wait
//! for one turn.

use std::sync::Arc;
use std::time::Duration;

use crate::model::reason::Reason;
use crate::policy::options::politeness::Overflow;

use super::{
    AdmissionQueue, AdmissionRefusal, AdmissionRequest, Arrival, HostSlot, HostTurn, WaitTerms,
};

/// The time for which a host's slot is kept for a request that waits for its address: well below the duration of a
/// lease. Then other requests for the host have their chance.
const MAX_ADDRESS_WAIT: Duration = Duration::from_secs(30);

impl AdmissionQueue {
    /// Like [`Self::admit`], for both: the slot is one of the host and one of the address. The patience covers both
    /// waits together. If the address refuses, the host's slot is returned unused.
    ///
    /// # Errors
    /// As [`Self::admit`], of the host or of the address.
    pub async fn admit_host_and_address(
        self: &Arc<Self>,
        host: &AdmissionRequest<'_>,
        address: &AdmissionRequest<'_>,
        arrival: &mut Option<Arrival>,
        terms: WaitTerms,
    ) -> Result<HostSlot, AdmissionRefusal> {
        let patience = terms.patience;
        let mut second: Option<Arrival> = None;
        loop {
            let slot = self.admit(host, arrival, || terms).await?;
            let patience_left = self
                .remaining_patience(*arrival, patience)
                .min(MAX_ADDRESS_WAIT);
            // It keeps its place at the address, and waits there again.
            if let Some(second) = &mut second {
                second.at = self.clock.now();
            }
            let at_address = || WaitTerms {
                patience: patience_left,
                ..terms
            };
            let admitted = self.admit(address, &mut second, at_address).await;
            *arrival = arrival.or(second);
            match admitted {
                // The host may have entered a backoff meanwhile.
                Ok(at_address) if slot.backoff_left().is_none() => {
                    return Ok(slot.with_address(at_address));
                }
                Ok(_) => {}
                Err(refused) if self.is_final(refused, address, *arrival, patience) => {
                    return Err(refused);
                }
                // It has not left: its place is not for the next request for the same URL.
                Err(_) => {
                    let ticket_key = self
                        .returning_tickets
                        .key(address.crawler, address.resource);
                    let _ = self.returning_tickets.take(ticket_key, self.clock.now());
                }
            }
            // Other requests for the host go before it now.
            for arrival in arrival.iter_mut().chain(&mut second) {
                arrival.turn = HostTurn::Pending;
            }
        }
    }

    fn remaining_patience(&self, arrival: Option<Arrival>, patience: Duration) -> Duration {
        arrival.map_or(patience, |arrival| {
            patience.saturating_sub(self.time_waited(arrival))
        })
    }

    /// Returns `true` if the request is refused, and does not only return the host's slot for a moment.
    fn is_final(
        &self,
        refusal: AdmissionRefusal,
        request: &AdmissionRequest<'_>,
        arrival: Option<Arrival>,
        patience: Duration,
    ) -> bool {
        let by_time = matches!(refusal.reason, Reason::RateLimited | Reason::HostBackoff);
        !by_time
            || request.overflow == Overflow::Refuse
            || self.remaining_patience(arrival, patience).is_zero()
    }
}
