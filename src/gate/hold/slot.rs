//! A slot of a host: held from the permit to the origin's last byte, and given back however that ends.

use std::fmt;
use std::sync::Arc;
use std::time::{Instant, UNIX_EPOCH};

use http::StatusCode;
use http::header::{HeaderMap, RETRY_AFTER};

use crate::politeness::pace::Pace;
use crate::politeness::retry_after::RetryAfter;
use crate::store::{Lease, Outcome};

use super::Hold;

/// The right to have one request under way. Dropping it gives it back; before [`Self::begin`], as unused.
#[must_use]
pub struct Slot {
    hold: Arc<Hold>,
    lease: Option<Lease>,
    outcome: Outcome,
    sending: Sending,
    granted: Instant,
}

/// Whether it matters when the request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Counts,
    IsNotAsked,
}

impl Slot {
    pub(super) fn new(hold: Arc<Hold>, lease: Lease, pace: &Pace, granted: Instant) -> Self {
        let sending = if pace.delay.is_zero() { Sending::IsNotAsked } else { Sending::Counts };
        Self { hold, lease: Some(lease), outcome: Outcome::Unused, sending, granted }
    }

    /// The request is on its way to the origin: from here on the slot counts as used.
    pub fn begin(&mut self) {
        self.outcome = Outcome::Failed;
    }

    /// The last byte of the request's head is written: the next one's delay begins.
    pub fn sent(&self) {
        let Some(lease) = self.lease.as_ref().filter(|_| self.sending == Sending::Counts) else { return };
        self.hold.store.renew(lease, self.hold.clock.now());
        self.hold.queue.ring(lease.key().name);
    }

    /// The head of the origin's answer is here. 429 and 503 ask for rest.
    pub fn answered(&mut self, status: StatusCode, headers: &HeaderMap) {
        if !matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            self.outcome = Outcome::Answered;
            return;
        }
        let Some(lease) = &self.lease else { return };
        let clock = &self.hold.clock;
        let told = headers.get(RETRY_AFTER).and_then(|value| RetryAfter::parse(value.to_str().ok()?));
        let wall = clock.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.hold.store.hold_off(lease, told.map(|told| told.from_now(wall)), clock.now());
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({:?}, {:?})", self.lease.as_ref().map(Lease::key), self.outcome)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        let name = lease.name();
        // The clock is read only where the time says more than that the slot was granted before.
        let now = match self.outcome {
            Outcome::Unused | Outcome::Answered => self.granted,
            Outcome::Failed => self.hold.clock.now(),
        };
        self.hold.store.release(lease, self.outcome, now);
        self.hold.queue.ring(&name);
    }
}
