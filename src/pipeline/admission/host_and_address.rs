//! Two turns for one request: its host's, and then that of the address behind it, which other hosts may share.
//!
//! Always in this order, so that no two requests can wait for each other. How one turn is waited for is said in `hold`.

use std::sync::Arc;
use std::time::Duration;

use crate::model::reason::Reason;
use crate::policy::options::politeness::Overflow;

use super::{
    AdmissionQueue, AdmissionRefusal, AdmissionRequest, Arrival, HostSlot, HostTurn, WaitTerms,
};

/// For how long a host's slot is kept for a request that waits for its address: well below the time of a lease. Then
/// the host's others have their chance.
const MAX_ADDRESS_WAIT: Duration = Duration::from_secs(30);

impl AdmissionQueue {
    /// As [`Self::admit`], for both: the slot is one of the host and one of the address. The patience is for the two
    /// waits together. If the address says no the host's slot goes back unused.
    ///
    /// # Errors
    /// As [`Self::admit`], of whichever says no.
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
            // It keeps its place at the address, and waits there anew.
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
                // The host may have begun to rest meanwhile.
                Ok(at_address) if slot.backoff_left().is_none() => {
                    return Ok(slot.with_address(at_address));
                }
                Ok(_) => {}
                Err(away) if self.is_final(away, address, *arrival, patience) => return Err(away),
                // It does not go away: its place is not for the next that asks for the same.
                Err(_) => {
                    let who = self
                        .returning_tickets
                        .key(address.crawler, address.resource);
                    let _ = self.returning_tickets.take(who, self.clock.now());
                }
            }
            // Others of the host go before it now.
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

    /// Whether the request has to go, or only gives up the host's slot for a moment.
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
