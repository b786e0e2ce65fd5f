//! A slot of a host: held from the permit to the origin's last byte, and given back however that ends.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use http::header::{HeaderMap, HeaderName, RETRY_AFTER};
use http::{HeaderValue, StatusCode};

use crate::pacing::ban::BanSuspicion;
use crate::pacing::pace::HostPace;
pub use crate::pacing::pace::ResendDecision;
use crate::pacing::response_class::{Challenge, ResponseClass};
use crate::pacing::retry_after::RetryAfter;
use crate::store::{Lease, LeaseOutcome};

use super::AdmissionQueue;

/// Where Cloudflare says that it has answered in the origin's place.
const CF_MITIGATED: HeaderName = HeaderName::from_static("cf-mitigated");

/// The right to have one request under way. Dropping it gives it back; before [`Self::begin`], as unused, and behind it
/// as abandoned, unless somebody says what came of it.
#[must_use]
pub struct HostSlot {
    admission: Arc<AdmissionQueue>,
    lease: Option<Lease>,
    /// Of the address, where that is paced too.
    address_lease: Option<Lease>,
    /// Boxed, so that slots without a budget stay small.
    byte_account: Option<Box<ByteAccount>>,
    outcome: LeaseOutcome,
    /// What the host has been told of already.
    reported: ReportedAnswer,
    send_timing: SendTiming,
    answer_timing: AnswerTiming,
    granted_at: Instant,
}

/// What bodies cost: `bytes_per_second`, and the bytes of a day's budget.
#[derive(Debug, Default)]
struct ByteAccount {
    per_second: Option<NonZeroU64>,
    /// Whose budget it is.
    budget_name: Option<Arc<str>>,
    downloaded: u64,
    uploaded: Option<Arc<AtomicU64>>,
}

impl ByteAccount {
    fn new(per_second: NonZeroU64) -> Box<Self> {
        Box::new(Self {
            per_second: Some(per_second),
            ..Self::default()
        })
    }

    fn bytes(&self) -> u64 {
        let up = self
            .uploaded
            .as_ref()
            .map_or(0, |up| up.load(Ordering::Relaxed));
        self.downloaded.saturating_add(up)
    }
}

/// Whether it matters when the request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendTiming {
    Tracked,
    Ignored,
}

/// Whether it matters when it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerTiming {
    Tracked,
    Ignored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportedAnswer {
    Nothing,
    Good,
    Bad,
}

impl HostSlot {
    pub(super) fn new(
        admission: Arc<AdmissionQueue>,
        lease: Lease,
        pace: &HostPace,
        granted: Instant,
    ) -> Self {
        let sending = if pace.has_delay() {
            SendTiming::Tracked
        } else {
            SendTiming::Ignored
        };
        let latency = if pace.adaptive.is_some() {
            AnswerTiming::Tracked
        } else {
            AnswerTiming::Ignored
        };
        Self {
            admission,
            lease: Some(lease),
            address_lease: None,
            byte_account: pace.bytes_per_second.map(ByteAccount::new),
            outcome: LeaseOutcome::Unused,
            reported: ReportedAnswer::Nothing,
            send_timing: sending,
            answer_timing: latency,
            granted_at: granted,
        }
    }

    /// This slot of a host together with one of its address.
    pub(super) fn with_address(mut self, mut at_address: Self) -> Self {
        self.address_lease = at_address.lease.take();
        self
    }

    /// The request is on its way to the origin: from here on the slot counts as used.
    pub fn begin(&mut self) {
        self.outcome = LeaseOutcome::Abandoned;
    }

    /// So many bytes of the answer's body have come.
    pub fn record_received(&mut self, bytes: usize) {
        if let Some(bill) = &mut self.byte_account {
            bill.downloaded = bill.downloaded.saturating_add(bytes as u64);
        }
    }

    /// What it costs counts for this one's budget too.
    pub(crate) fn set_budget(&mut self, name: Arc<str>) {
        self.byte_account.get_or_insert_default().budget_name = Some(name);
    }

    /// The bytes of the request's body are counted there.
    pub fn set_upload_counter(&mut self, bytes: &Arc<AtomicU64>) {
        if let Some(bill) = &mut self.byte_account {
            bill.uploaded = Some(Arc::clone(bytes));
        }
    }

    /// The last byte of the request's head is written: the next one's delay begins.
    pub fn record_sent(&self) {
        if let Some(lease) = &self.address_lease {
            lease.renew(self.admission.clock.now());
            self.admission.queues.notify(lease.key().name);
        }
        let Some(lease) = self
            .lease
            .as_ref()
            .filter(|_| self.send_timing == SendTiming::Tracked)
        else {
            return;
        };
        lease.renew(self.admission.clock.now());
        self.admission.queues.notify(lease.key().name);
    }

    /// The request has to be sent once more, on another connection, since its origin closed the one that it was sent on:
    /// whether it may, and when.
    pub fn retry_advice(&self) -> ResendDecision {
        let Some(lease) = &self.lease else {
            return ResendDecision::Never;
        };
        let now = self.admission.clock.now();
        // The address first: to be asked twice costs it nothing.
        match self
            .address_lease
            .as_ref()
            .map(|lease| lease.retry_permit(now))
        {
            Some(said @ (ResendDecision::After(_) | ResendDecision::Never)) => said,
            Some(ResendDecision::Now) | None => lease.retry_permit(now),
        }
    }

    /// What is left of a rest that the host has begun since this was granted. Asked by those that wait on with their slot:
    /// for their address, or to be sent once more.
    pub fn backoff_left(&self) -> Option<Duration> {
        self.lease
            .as_ref()?
            .backoff_remaining(self.admission.clock.now())
    }

    /// The head of the origin's answer is here. 429 and 503 ask for rest, and three bad answers in a row bring it about.
    pub fn record_answer(&mut self, status: StatusCode, headers: &HeaderMap) {
        let answer = ResponseClass::from_status(status.as_u16());
        let usual = matches!(answer, ResponseClass::Ok | ResponseClass::Other)
            && self.answer_timing == AnswerTiming::Ignored;
        if usual && !self.lease.as_ref().is_some_and(Lease::is_probe) {
            self.outcome = LeaseOutcome::Answered;
        } else {
            self.report_answer(answer, headers);
        }
    }

    /// What was asked of the origin is done, and no answer is waited for: a tunnel is open. That says nothing of what the
    /// origin would answer, so behind a rest it proves nothing.
    pub fn record_tunnel_opened(&mut self) {
        if !self.lease.as_ref().is_some_and(Lease::is_probe) {
            self.outcome = LeaseOutcome::Answered;
        }
    }

    /// The origin has failed: no connection, no answer, or one that broke off. Not for a client that has left.
    pub fn record_failure(&mut self) {
        if self.reported != ReportedAnswer::Bad {
            self.outcome = LeaseOutcome::Failed;
        }
    }

    /// Tells the host at once: a rest must begin, or end, before the last byte of the answer.
    fn report_answer(&mut self, answer: ResponseClass, headers: &HeaderMap) {
        let Some(lease) = &self.lease else { return };
        let (hold, field) = (&self.admission, |name: &HeaderName| headers.get(name));
        let answer = match answer {
            ResponseClass::Rest(_) => ResponseClass::Rest(
                field(&RETRY_AFTER).and_then(|value| hold.parse_retry_after(value)),
            ),
            ResponseClass::Ok
            | ResponseClass::Other
            | ResponseClass::Forbidden
            | ResponseClass::Error => answer,
        };
        let made = answer != ResponseClass::Ok && field(&CF_MITIGATED).is_some();
        let challenge = if made {
            Challenge::Present
        } else {
            Challenge::None
        };
        if lease.record_response(answer, challenge, hold.clock.now()) == BanSuspicion::Ban {
            hold.warn_suspected_ban(lease);
        }
        self.outcome = LeaseOutcome::Abandoned;
        self.reported = if answer.is_good() {
            ReportedAnswer::Good
        } else {
            ReportedAnswer::Bad
        };
        if lease.is_probe() {
            hold.queues.notify(lease.key().name);
        }
    }
}

impl AdmissionQueue {
    /// How long a Retry-After asks to wait.
    fn parse_retry_after(&self, value: &HeaderValue) -> Option<Duration> {
        let told = RetryAfter::parse(value.to_str().ok()?)?;
        Some(
            told.to_delay(
                self.clock
                    .wall_time()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default(),
            ),
        )
    }

    fn warn_suspected_ban(&self, lease: &Lease) {
        self.metrics.record_ban_suspicion();
        let host = lease.key().name;
        tracing::warn!(
            host,
            "the host seems to have banned this proxy: many 403, or a challenge"
        );
    }
}

impl HostSlot {
    /// How the request ended is the host's affair: an address that many hosts share asks for no rest.
    fn release_address(&self, lease: Lease, now: Instant) {
        let name = lease.name();
        let outcome = match self.outcome {
            LeaseOutcome::Unused => LeaseOutcome::Unused,
            LeaseOutcome::Abandoned | LeaseOutcome::Failed | LeaseOutcome::Answered => {
                LeaseOutcome::Abandoned
            }
        };
        lease.release(outcome, now);
        self.admission.queues.notify(&name);
    }
}

impl fmt::Debug for HostSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Slot({:?}, {:?})",
            self.lease.as_ref().map(Lease::key),
            self.outcome
        )
    }
}

impl Drop for HostSlot {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else {
            return;
        };
        let name = lease.name();
        // The clock is read only where the time says more than that the slot was granted before.
        let now = match (self.outcome, self.reported) {
            (LeaseOutcome::Unused | LeaseOutcome::Answered, _)
            | (LeaseOutcome::Abandoned, ReportedAnswer::Good | ReportedAnswer::Bad) => {
                self.granted_at
            }
            (LeaseOutcome::Abandoned, ReportedAnswer::Nothing) | (LeaseOutcome::Failed, _) => {
                self.admission.clock.now()
            }
        };
        if let Some(bill) = self.byte_account.take().filter(|bill| bill.bytes() > 0) {
            if let Some(per_second) = bill.per_second {
                lease.charge(bill.bytes(), per_second, self.admission.clock.now());
            }
            if let Some(name) = &bill.budget_name {
                self.admission.budgets.add_bytes(name, bill.bytes());
            }
        }
        lease.release(self.outcome, now);
        self.admission.queues.notify(&name);
        if let Some(lease) = self.address_lease.take() {
            self.release_address(lease, now);
        }
    }
}
