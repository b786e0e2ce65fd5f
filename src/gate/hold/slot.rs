//! A slot of a host: held from the permit to the origin's last byte, and given back however that ends.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use http::header::{HeaderMap, HeaderName, RETRY_AFTER};
use http::{HeaderValue, StatusCode};

use crate::politeness::ban::Suspicion;
use crate::politeness::heard::{Answer, Challenge};
pub use crate::politeness::pace::Again;
use crate::politeness::pace::Pace;
use crate::politeness::retry_after::RetryAfter;
use crate::store::{Lease, Outcome};

use super::Hold;

/// Where Cloudflare says that it has answered in the origin's place.
const CF_MITIGATED: HeaderName = HeaderName::from_static("cf-mitigated");

/// The right to have one request under way. Dropping it gives it back; before [`Self::begin`], as unused, and behind it
/// as abandoned, unless somebody says what came of it.
#[must_use]
pub struct Slot {
    hold: Arc<Hold>,
    lease: Option<Lease>,
    /// Of the address, where that is paced too.
    at_address: Option<Lease>,
    /// Boxed, so that slots without a budget stay small.
    bill: Option<Box<Bill>>,
    outcome: Outcome,
    /// What the host has been told of already.
    told: Told,
    sending: Sending,
    latency: Latency,
    granted: Instant,
}

/// What bodies cost: `bytes_per_second`, and the bytes of a day's budget.
#[derive(Debug, Default)]
struct Bill {
    per_second: Option<NonZeroU64>,
    /// Whose budget it is.
    budget: Option<Arc<str>>,
    down: u64,
    up: Option<Arc<AtomicU64>>,
}

impl Bill {
    fn new(per_second: NonZeroU64) -> Box<Self> {
        Box::new(Self {
            per_second: Some(per_second),
            ..Self::default()
        })
    }

    fn bytes(&self) -> u64 {
        let up = self.up.as_ref().map_or(0, |up| up.load(Ordering::Relaxed));
        self.down.saturating_add(up)
    }
}

/// Whether it matters when the request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Counts,
    IsNotAsked,
}

/// Whether it matters when it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Latency {
    Counts,
    IsNotAsked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Good,
    Bad,
}

impl Slot {
    pub(super) fn new(hold: Arc<Hold>, lease: Lease, pace: &Pace, granted: Instant) -> Self {
        let sending = if pace.has_delay() {
            Sending::Counts
        } else {
            Sending::IsNotAsked
        };
        let latency = if pace.adaptive.is_some() {
            Latency::Counts
        } else {
            Latency::IsNotAsked
        };
        Self {
            hold,
            lease: Some(lease),
            at_address: None,
            bill: pace.bytes.map(Bill::new),
            outcome: Outcome::Unused,
            told: Told::Nothing,
            sending,
            latency,
            granted,
        }
    }

    /// This slot of a host together with one of its address.
    pub(super) fn and(mut self, mut at_address: Self) -> Self {
        self.at_address = at_address.lease.take();
        self
    }

    /// The request is on its way to the origin: from here on the slot counts as used.
    pub fn begin(&mut self) {
        self.outcome = Outcome::Abandoned;
    }

    /// So many bytes of the answer's body have come.
    pub fn received(&mut self, bytes: usize) {
        if let Some(bill) = &mut self.bill {
            bill.down = bill.down.saturating_add(bytes as u64);
        }
    }

    /// What it costs counts for this one's budget too.
    pub(in crate::gate) fn spends_of(&mut self, name: Arc<str>) {
        self.bill.get_or_insert_default().budget = Some(name);
    }

    /// The bytes of the request's body are counted there.
    pub fn uploads(&mut self, bytes: &Arc<AtomicU64>) {
        if let Some(bill) = &mut self.bill {
            bill.up = Some(Arc::clone(bytes));
        }
    }

    /// The last byte of the request's head is written: the next one's delay begins.
    pub fn sent(&self) {
        if let Some(lease) = &self.at_address {
            self.hold.store.renew(lease, self.hold.clock.now());
            self.hold.queue.ring(lease.key().name);
        }
        let Some(lease) = self
            .lease
            .as_ref()
            .filter(|_| self.sending == Sending::Counts)
        else {
            return;
        };
        self.hold.store.renew(lease, self.hold.clock.now());
        self.hold.queue.ring(lease.key().name);
    }

    /// The request has to be sent once more, on another connection, since its origin closed the one that it was sent on:
    /// whether it may, and when.
    pub fn again(&self) -> Again {
        let Some(lease) = &self.lease else {
            return Again::Never;
        };
        let (store, now) = (&self.hold.store, self.hold.clock.now());
        // The address first: to be asked twice costs it nothing.
        match self
            .at_address
            .as_ref()
            .map(|lease| store.again(lease, now))
        {
            Some(said @ (Again::In(_) | Again::Never)) => said,
            Some(Again::Now) | None => store.again(lease, now),
        }
    }

    /// What is left of a rest that the host has begun since this was granted. Asked by those that wait on with their slot:
    /// for their address, or to be sent once more.
    pub fn rests(&self) -> Option<Duration> {
        self.hold
            .store
            .rests(self.lease.as_ref()?, self.hold.clock.now())
    }

    /// The head of the origin's answer is here. 429 and 503 ask for rest, and three bad answers in a row bring it about.
    pub fn answered(&mut self, status: StatusCode, headers: &HeaderMap) {
        let answer = Answer::of(status.as_u16());
        let usual =
            matches!(answer, Answer::Ok | Answer::Other) && self.latency == Latency::IsNotAsked;
        if usual && !self.lease.as_ref().is_some_and(Lease::probes) {
            self.outcome = Outcome::Answered;
        } else {
            self.tell(answer, headers);
        }
    }

    /// What was asked of the origin is done, and no answer is waited for: a tunnel is open. That says nothing of what the
    /// origin would answer, so behind a rest it proves nothing.
    pub fn opened(&mut self) {
        if !self.lease.as_ref().is_some_and(Lease::probes) {
            self.outcome = Outcome::Answered;
        }
    }

    /// The origin has failed: no connection, no answer, or one that broke off. Not for a client that has left.
    pub fn failed(&mut self) {
        if self.told != Told::Bad {
            self.outcome = Outcome::Failed;
        }
    }

    /// Tells the host at once: a rest must begin, or end, before the last byte of the answer.
    fn tell(&mut self, answer: Answer, headers: &HeaderMap) {
        let Some(lease) = &self.lease else { return };
        let (hold, field) = (&self.hold, |name: &HeaderName| headers.get(name));
        let answer = match answer {
            Answer::Rest(_) => Answer::Rest(field(&RETRY_AFTER).and_then(|value| hold.told(value))),
            Answer::Ok | Answer::Other | Answer::Forbidden | Answer::Error => answer,
        };
        let made = answer != Answer::Ok && field(&CF_MITIGATED).is_some();
        let challenge = if made {
            Challenge::Made
        } else {
            Challenge::None
        };
        if hold.store.hear(lease, answer, challenge, hold.clock.now()) == Suspicion::Ban {
            hold.suspects(lease);
        }
        self.outcome = Outcome::Abandoned;
        self.told = if answer.is_good() {
            Told::Good
        } else {
            Told::Bad
        };
        if lease.probes() {
            hold.queue.ring(lease.key().name);
        }
    }
}

impl Hold {
    /// How long a Retry-After asks to wait.
    fn told(&self, value: &HeaderValue) -> Option<Duration> {
        let told = RetryAfter::parse(value.to_str().ok()?)?;
        Some(
            told.from_now(
                self.clock
                    .wall()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default(),
            ),
        )
    }

    fn suspects(&self, lease: &Lease) {
        self.metrics.ban_suspected();
        let host = lease.key().name;
        tracing::warn!(
            host,
            "the host seems to have banned this proxy: many 403, or a challenge"
        );
    }
}

impl Slot {
    /// How the request ended is the host's affair: an address that many hosts share asks for no rest.
    fn release_address(&self, lease: Lease, now: Instant) {
        let name = lease.name();
        let outcome = match self.outcome {
            Outcome::Unused => Outcome::Unused,
            Outcome::Abandoned | Outcome::Failed | Outcome::Answered => Outcome::Abandoned,
        };
        self.hold.store.release(lease, outcome, now);
        self.hold.queue.ring(&name);
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Slot({:?}, {:?})",
            self.lease.as_ref().map(Lease::key),
            self.outcome
        )
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else {
            return;
        };
        let name = lease.name();
        // The clock is read only where the time says more than that the slot was granted before.
        let now = match (self.outcome, self.told) {
            (Outcome::Unused | Outcome::Answered, _)
            | (Outcome::Abandoned, Told::Good | Told::Bad) => self.granted,
            (Outcome::Abandoned, Told::Nothing) | (Outcome::Failed, _) => self.hold.clock.now(),
        };
        if let Some(bill) = self.bill.take().filter(|bill| bill.bytes() > 0) {
            if let Some(per_second) = bill.per_second {
                self.hold
                    .store
                    .charge(&lease, bill.bytes(), per_second, self.hold.clock.now());
            }
            if let Some(name) = &bill.budget {
                self.hold.budgets.passed(name, bill.bytes());
            }
        }
        self.hold.store.release(lease, self.outcome, now);
        self.hold.queue.ring(&name);
        if let Some(lease) = self.at_address.take() {
            self.release_address(lease, now);
        }
    }
}
