//! The slot of a host, held from the permit to the origin's last byte, and returned however that ends.

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

/// The header field by which Cloudflare marks responses that are not the origin's.
const CF_MITIGATED: HeaderName = HeaderName::from_static("cf-mitigated");

/// The right to have one request in flight. Dropping it returns it: before [`Self::begin`] as unused, after that as
/// abandoned, unless the outcome has been recorded.
#[must_use]
pub struct HostSlot {
    admission: Arc<AdmissionQueue>,
    lease: Option<Lease>,
    /// The lease of the address, if that is paced too.
    address_lease: Option<Lease>,
    /// Boxed, so that slots without a budget stay small.
    byte_account: Option<Box<ByteAccount>>,
    outcome: LeaseOutcome,
    /// The part of the response that has been reported to the limiter already.
    reported: ReportedResponse,
    send_timing: SendTiming,
    response_timing: ResponseTiming,
    granted_at: Instant,
}

/// The cost of bodies: `bytes_per_second`, and the bytes of a daily budget.
#[derive(Debug, Default)]
struct ByteAccount {
    per_second: Option<NonZeroU64>,
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
        let uploaded = self
            .uploaded
            .as_ref()
            .map_or(0, |uploaded| uploaded.load(Ordering::Relaxed));
        self.downloaded.saturating_add(uploaded)
    }
}

/// `Tracked` if the limiter depends on the time at which the request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendTiming {
    Tracked,
    Ignored,
}

/// `Tracked` if the limiter depends on the time of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseTiming {
    Tracked,
    Ignored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportedResponse {
    Nothing,
    Good,
    Bad,
}

impl HostSlot {
    pub(super) fn new(
        admission: Arc<AdmissionQueue>,
        lease: Lease,
        pace: &HostPace,
        granted_at: Instant,
    ) -> Self {
        let send_timing = if pace.has_delay() {
            SendTiming::Tracked
        } else {
            SendTiming::Ignored
        };
        let response_timing = if pace.adaptive.is_some() {
            ResponseTiming::Tracked
        } else {
            ResponseTiming::Ignored
        };
        Self {
            admission,
            lease: Some(lease),
            address_lease: None,
            byte_account: pace.bytes_per_second.map(ByteAccount::new),
            outcome: LeaseOutcome::Unused,
            reported: ReportedResponse::Nothing,
            send_timing,
            response_timing,
            granted_at,
        }
    }

    /// Adds the slot of the address.
    pub(super) fn with_address(mut self, mut address_slot: Self) -> Self {
        self.address_lease = address_slot.lease.take();
        self
    }

    /// Marks the slot as used, since the request is on its way to the origin.
    pub fn begin(&mut self) {
        self.outcome = LeaseOutcome::Abandoned;
    }

    /// Marks the slot as unused again: the request was not sent after all.
    pub fn revoke(&mut self) {
        self.outcome = LeaseOutcome::Unused;
    }

    /// Adds bytes of the response's body.
    pub fn record_received(&mut self, bytes: usize) {
        if let Some(account) = &mut self.byte_account {
            account.downloaded = account.downloaded.saturating_add(bytes as u64);
        }
    }

    /// Sets the daily budget that the bytes count for.
    pub(crate) fn set_budget(&mut self, name: Arc<str>) {
        self.byte_account.get_or_insert_default().budget_name = Some(name);
    }

    /// Sets the counter of the bytes of the request's body.
    pub fn set_upload_counter(&mut self, bytes: &Arc<AtomicU64>) {
        if let Some(account) = &mut self.byte_account {
            account.uploaded = Some(Arc::clone(bytes));
        }
    }

    /// Records that the last byte of the request's head has been written, at which the delay of the next request
    /// begins.
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

    /// Returns the decision on sending the request again, on another connection, since its origin closed the first
    /// one.
    pub fn resend_decision(&self) -> ResendDecision {
        let Some(lease) = &self.lease else {
            return ResendDecision::Never;
        };
        let now = self.admission.clock.now();
        // The address first: `retry_permit` may be called twice for it.
        match self
            .address_lease
            .as_ref()
            .map(|lease| lease.retry_permit(now))
        {
            Some(decision @ (ResendDecision::After(_) | ResendDecision::Never)) => decision,
            Some(ResendDecision::Now) | None => lease.retry_permit(now),
        }
    }

    /// Returns `true` if other requests wait for this host or its address.
    pub fn has_waiters(&self) -> bool {
        [&self.lease, &self.address_lease]
            .into_iter()
            .flatten()
            .any(|lease| self.admission.queues.has_waiters(lease.key()))
    }

    /// Returns the rest of a backoff that the host has entered since this slot was granted, for requests that wait
    /// with their slot: for their address, or to be sent again.
    pub fn remaining_backoff(&self) -> Option<Duration> {
        self.lease
            .as_ref()?
            .backoff_remaining(self.admission.clock.now())
    }

    /// Records the head of the origin's response. 429 and 503 cause a backoff, and so do three bad responses in a row.
    pub fn record_response(&mut self, status: StatusCode, headers: &HeaderMap) {
        let response = ResponseClass::from_status(status.as_u16());
        let is_usual = matches!(response, ResponseClass::Ok | ResponseClass::Other)
            && self.response_timing == ResponseTiming::Ignored;
        if is_usual && !self.lease.as_ref().is_some_and(Lease::is_probe) {
            self.outcome = LeaseOutcome::Answered;
        } else {
            self.report_response(response, headers);
        }
    }

    /// Records that a tunnel is open. That does not show how the origin responds, so it does not end a backoff.
    pub fn record_tunnel_opened(&mut self) {
        if !self.lease.as_ref().is_some_and(Lease::is_probe) {
            self.outcome = LeaseOutcome::Answered;
        }
    }

    /// Records that the origin has failed: no connection, no response, or one that broke off. Not for a client that has
    /// left.
    pub fn record_failure(&mut self) {
        if self.reported != ReportedResponse::Bad {
            self.outcome = LeaseOutcome::Failed;
        }
    }

    /// Reports to the limiter at once, since a backoff must begin or end before the last byte of the response.
    fn report_response(&mut self, response: ResponseClass, headers: &HeaderMap) {
        let Some(lease) = &self.lease else { return };
        let admission = &self.admission;
        let response = match response {
            ResponseClass::Overloaded(_) => ResponseClass::Overloaded(
                headers
                    .get(RETRY_AFTER)
                    .and_then(|value| admission.parse_retry_after(value)),
            ),
            ResponseClass::Ok
            | ResponseClass::Other
            | ResponseClass::Forbidden
            | ResponseClass::Error => response,
        };
        let is_synthetic = response != ResponseClass::Ok && headers.contains_key(CF_MITIGATED);
        let challenge = if is_synthetic {
            Challenge::Present
        } else {
            Challenge::None
        };
        if lease.record_response(response, challenge, admission.clock.now()) == BanSuspicion::Ban {
            admission.warn_suspected_ban(lease);
        }
        self.outcome = LeaseOutcome::Abandoned;
        self.reported = if response.is_good() {
            ReportedResponse::Good
        } else {
            ReportedResponse::Bad
        };
        if lease.is_probe() {
            admission.queues.notify(lease.key().name);
        }
    }
}

impl AdmissionQueue {
    /// Returns the duration of a Retry-After.
    fn parse_retry_after(&self, value: &HeaderValue) -> Option<Duration> {
        let retry_after = RetryAfter::parse(value.to_str().ok()?)?;
        Some(
            retry_after.to_delay(
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
    /// Returns the slot of the address. The outcome counts for the host only: an address that many hosts share has no
    /// backoff.
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
        // The clock is read only if the time matters beyond that of the grant.
        let now = match (self.outcome, self.reported) {
            (LeaseOutcome::Unused | LeaseOutcome::Answered, _)
            | (LeaseOutcome::Abandoned, ReportedResponse::Good | ReportedResponse::Bad) => {
                self.granted_at
            }
            (LeaseOutcome::Abandoned, ReportedResponse::Nothing) | (LeaseOutcome::Failed, _) => {
                self.admission.clock.now()
            }
        };
        if let Some(account) = self
            .byte_account
            .take()
            .filter(|account| account.bytes() > 0)
        {
            if let Some(per_second) = account.per_second {
                lease.charge(account.bytes(), per_second, self.admission.clock.now());
            }
            if let Some(name) = &account.budget_name {
                self.admission.budgets.add_bytes(name, account.bytes());
            }
        }
        lease.release(self.outcome, now);
        self.admission.queues.notify(&name);
        if let Some(lease) = self.address_lease.take() {
            self.release_address(lease, now);
        }
    }
}
