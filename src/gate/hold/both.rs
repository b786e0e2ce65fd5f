//! Two turns for one request: its host's, and then that of the address behind it, which other hosts may share.
//!
//! Always in this order, so that no two requests can wait for each other. How one turn is waited for is said in `hold`.

use std::sync::Arc;
use std::time::Duration;

use crate::policy::options::politeness::Overflow;
use crate::vocab::reason::Reason;

use super::{Arrival, Asking, Hold, HostTurn, SentAway, Slot, Terms};

/// For how long a host's slot is kept for a request that waits for its address: well below the time of a lease. Then
/// the host's others have their chance.
const KEPT: Duration = Duration::from_secs(30);

impl Hold {
    /// As [`Self::admit`], for both: the slot is one of the host and one of the address. The patience is for the two
    /// waits together. If the address says no the host's slot goes back unused.
    ///
    /// # Errors
    /// As [`Self::admit`], of whichever says no.
    pub async fn admit_both(
        self: &Arc<Self>,
        host: &Asking<'_>,
        address: &Asking<'_>,
        arrival: &mut Option<Arrival>,
        terms: Terms,
    ) -> Result<Slot, SentAway> {
        let patience = terms.patience;
        let mut second: Option<Arrival> = None;
        loop {
            let slot = self.admit(host, arrival, || terms).await?;
            let patience_left = self.left(*arrival, patience).min(KEPT);
            // It keeps its place at the address, and waits there anew.
            if let Some(second) = &mut second {
                second.at = self.clock.now();
            }
            let at_address = || Terms {
                patience: patience_left,
                ..terms
            };
            let admitted = self.admit(address, &mut second, at_address).await;
            *arrival = arrival.or(second);
            match admitted {
                // The host may have begun to rest meanwhile.
                Ok(at_address) if slot.rests().is_none() => return Ok(slot.and(at_address)),
                Ok(_) => {}
                Err(away) if self.is_over(away, address, *arrival, patience) => return Err(away),
                // It does not go away: its place is not for the next that asks for the same.
                Err(_) => {
                    let who = self.returning.who(address.crawler, address.what);
                    let _ = self.returning.take(who, self.clock.now());
                }
            }
            // Others of the host go before it now.
            for arrival in arrival.iter_mut().chain(&mut second) {
                arrival.turn = HostTurn::Awaited;
            }
        }
    }

    fn left(&self, arrival: Option<Arrival>, patience: Duration) -> Duration {
        arrival.map_or(patience, |arrival| {
            patience.saturating_sub(self.since(arrival))
        })
    }

    /// Whether the request has to go, or only gives up the host's slot for a moment.
    fn is_over(
        &self,
        away: SentAway,
        asking: &Asking<'_>,
        arrival: Option<Arrival>,
        patience: Duration,
    ) -> bool {
        let by_time = matches!(away.reason, Reason::RateLimited | Reason::HostBackoff);
        !by_time || asking.overflow == Overflow::Refuse || self.left(arrival, patience).is_zero()
    }
}
