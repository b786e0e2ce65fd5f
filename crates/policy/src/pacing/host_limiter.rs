//! The limiter of one key and kind: delay, rate and concurrency together.
//!
//! A grant is a lease. It is *granted*, then *sent* when the last byte of the request head is
//! written, which is when the delay starts, and released at the origin's last byte, or when it
//! expires.

use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::pace::{HostPace, MAX_WAIT, PaceDecision, PaceWait, RequestSpacing, ResendDecision};
use super::token_bucket::{BucketCharge, TokenBucket};

/// The lifetime of a lease from its grant, and again from the time it is sent: a client that reads
/// a response slowly must not starve the host's other requests.
pub const LEASE_TIMEOUT: Duration = Duration::from_secs(60);
/// The minimum time for which a limiter is kept after its last request: another rule may set a
/// longer delay.
const MIN_RETENTION: Duration = Duration::from_secs(60);

/// The id of a lease within its limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseId(u64);

/// The use that a request made of its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseUse {
    /// No attempt was made; the lease has no effect.
    Unused,
    /// An attempt was made; the delay starts at its time.
    Used,
}

/// The state of a key for one kind of requests.
#[derive(Debug, Default)]
pub struct HostLimiter {
    /// The time at which the last request head was written.
    last_sent: Option<Instant>,
    /// The random number that jitter applies to the next delay.
    draw: f32,
    leases: SmallVec<[LimiterLease; 2]>,
    granted_count: u64,
    bucket: TokenBucket,
    /// The longest delay that was in effect.
    longest_delay: Duration,
}

/// The state of a limiter for another process that continues with it. Times are relative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LimiterRecord {
    /// The time since the last request head was written.
    pub since_sent: Option<Duration>,
    /// The random number that jitter applies to the next delay.
    pub draw: f32,
    /// The number of requests in flight.
    pub in_flight: u32,
    /// The time in which the last of them must end.
    pub in_flight_for: Duration,
    /// The time until the bucket of the rate is full.
    pub until_full: Duration,
    /// The longest delay that was in effect.
    pub longest_delay: Duration,
}

/// The maximum number of requests in flight that are taken over.
const MAX_RESTORED_LEASES: u32 = 4_096;

#[derive(Debug)]
struct LimiterLease {
    id: LeaseId,
    expires_at: Instant,
    progress: LeaseProgress,
    charge: BucketCharge,
    /// The spacing at the time of the grant.
    spacing: RequestSpacing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseProgress {
    Granted,
    Sent,
}

impl HostLimiter {
    /// Requests a lease.
    pub fn try_acquire(&mut self, pace: &HostPace, now: Instant) -> PaceDecision<LeaseId> {
        self.longest_delay = self.longest_delay.max(pace.jittered_delay(1.0));
        if let Some(wait) = self.due(pace, now) {
            return PaceDecision::Wait(wait);
        }
        let has_unsent = self.leases.iter().any(LimiterLease::is_unsent);
        if has_unsent || pace.max_leases() <= self.leases.len() {
            self.forget_expired(now);
        }
        // The bucket comes last, since taking a token changes it.
        let charge = match pace.rate {
            Some(rate) => self.bucket.take(rate, now),
            None => Ok(BucketCharge::default()),
        };
        match charge {
            Ok(charge) => PaceDecision::Granted(self.grant(pace, charge, now)),
            Err(time) => PaceDecision::Wait(PaceWait::time(time)),
        }
    }

    /// Records that the request head was written. `draw` is a random number from 0 to 1 for the
    /// jitter of the next delay. May be called again if the request is resent on another
    /// connection.
    pub fn record_sent(&mut self, id: LeaseId, draw: f32, now: Instant) {
        self.update_last_sent(now);
        self.draw = draw;
        if let Some(lease) = self.leases.iter_mut().find(|lease| lease.id == id) {
            lease.progress = LeaseProgress::Sent;
            lease.expires_at = now + LEASE_TIMEOUT;
        }
    }

    /// Requests to resend a request on another connection. It keeps its slot and waits like a new
    /// request otherwise.
    pub fn try_resend(&mut self, id: LeaseId, now: Instant) -> ResendDecision {
        let other_unsent = self
            .leases
            .iter()
            .any(|lease| lease.id != id && lease.is_unsent() && lease.is_active(now));
        let Some(lease) = self.leases.iter_mut().find(|lease| lease.id == id) else {
            return ResendDecision::Never;
        };
        let spacing = lease.spacing;
        if !spacing.delay.is_zero() {
            // The other request's time of sending is not known yet. It is not held up, since this
            // lease stays as it is.
            if other_unsent {
                return ResendDecision::After(spacing.delay);
            }
            lease.progress = LeaseProgress::Granted;
            lease.expires_at = now + LEASE_TIMEOUT;
            if let Some(time) = time_left(self.last_sent, spacing.jittered_delay(self.draw), now) {
                return ResendDecision::After(time);
            }
        }
        match self.bucket.retake(lease.charge, now) {
            Ok(()) => ResendDecision::Now,
            Err(time) => ResendDecision::After(time),
        }
    }

    /// Releases a lease, after the origin's last byte or a failure. An expired lease may be gone
    /// already.
    pub fn release(&mut self, id: LeaseId, used: LeaseUse, now: Instant) {
        let Some(index) = self.leases.iter().position(|lease| lease.id == id) else {
            return;
        };
        let lease = self.leases.swap_remove(index);
        match (used, lease.progress) {
            (LeaseUse::Unused, _) => self.bucket.refund(lease.charge),
            (LeaseUse::Used, LeaseProgress::Granted) => self.update_last_sent(now),
            (LeaseUse::Used, LeaseProgress::Sent) => {}
        }
    }

    /// The time at which the lease's request head was written, if it was and the lease has not
    /// expired.
    pub fn sent_at(&self, id: LeaseId) -> Option<Instant> {
        let lease = self.leases.iter().find(|lease| lease.id == id)?;
        if lease.progress == LeaseProgress::Sent {
            lease.expires_at.checked_sub(LEASE_TIMEOUT)
        } else {
            None
        }
    }

    /// The time at which the last request head was written, if any was.
    pub fn last_sent(&self) -> Option<Instant> {
        self.last_sent
    }

    /// Returns the wait that [`try_acquire`](Self::try_acquire) would report, without a change;
    /// `None` if a request could go now.
    pub fn peek(&self, pace: &HostPace, now: Instant) -> Option<PaceWait> {
        if let Some(wait) = self.due(pace, now) {
            return Some(wait);
        }
        let mut bucket = self.bucket;
        bucket.take(pace.rate?, now).err().map(PaceWait::time)
    }

    /// Returns the wait for the delay or for a slot, if there is one.
    fn due(&self, pace: &HostPace, now: Instant) -> Option<PaceWait> {
        if !pace.delay.is_zero()
            && let Some(wait) = self.wait_for_delay(pace, now)
        {
            return Some(wait);
        }
        if self.leases.len() < pace.max_leases() {
            return None;
        }
        let active = self.leases.iter().filter(|lease| lease.is_active(now));
        let expires = active.clone().map(|lease| lease.expires_at).min()?;
        (pace.max_leases() <= active.count())
            .then(|| PaceWait::slot(expires.saturating_duration_since(now)))
    }

    /// Between a grant and its sending the start of the delay is unknown, so no other request goes.
    fn wait_for_delay(&self, pace: &HostPace, now: Instant) -> Option<PaceWait> {
        let mut last_sent = self.last_sent;
        let unsent = self.leases.iter().filter(|lease| lease.is_unsent());
        if let Some(expires) = unsent.map(|lease| lease.expires_at).max() {
            if now < expires {
                return Some(PaceWait::slot(expires - now));
            }
            // A lease that was never used counts as sent when it expired.
            last_sent = last_sent.max(Some(expires));
        }
        time_left(last_sent, pace.jittered_delay(self.draw), now).map(PaceWait::time)
    }

    /// The remaining lifetime of a lease.
    pub fn remaining(&self, id: LeaseId, now: Instant) -> Option<Duration> {
        let lease = self.leases.iter().find(|lease| lease.id == id)?;
        lease
            .expires_at
            .checked_duration_since(now)
            .filter(|remaining| !remaining.is_zero())
    }

    /// The number of requests in flight.
    pub fn active_leases(&self, now: Instant) -> usize {
        self.leases
            .iter()
            .filter(|lease| lease.is_active(now))
            .count()
    }

    /// Returns `true` if the state can be dropped without effect.
    pub fn is_idle(&self, now: Instant) -> bool {
        let retention = MIN_RETENTION.max(self.longest_delay);
        let is_spaced = self
            .last_sent
            .is_none_or(|last| retention <= now.saturating_duration_since(last));
        is_spaced && self.active_leases(now) == 0 && self.bucket.is_full(now)
    }

    /// Returns the state for another process; `None` if it has no effect.
    pub fn record(&self, now: Instant) -> Option<LimiterRecord> {
        if self.is_idle(now) {
            return None;
        }
        let active = self.leases.iter().filter(|lease| lease.is_active(now));
        let mut last_sent = self.last_sent;
        for lease in self.leases.iter().filter(|lease| lease.is_unsent()) {
            // Its head may be written at this moment.
            last_sent = last_sent.max(Some(lease.expires_at.min(now)));
        }
        let expires = active.clone().map(|lease| lease.expires_at).max();
        Some(LimiterRecord {
            since_sent: last_sent.map(|last| now.saturating_duration_since(last)),
            draw: self.draw,
            in_flight: u32::try_from(active.count()).unwrap_or(u32::MAX),
            in_flight_for: expires.map_or(Duration::ZERO, |end| end.saturating_duration_since(now)),
            until_full: self.bucket.until_full(now),
            longest_delay: self.longest_delay,
        })
    }

    /// Adds the state of another process. Its requests in flight take slots until they must have ended.
    pub fn restore(&mut self, record: &LimiterRecord, now: Instant) {
        let last_sent = record
            .since_sent
            .and_then(|elapsed| now.checked_sub(elapsed));
        if self.last_sent < last_sent {
            self.last_sent = last_sent;
            self.draw = record.draw.clamp(0.0, 1.0);
        }
        self.longest_delay = self.longest_delay.max(record.longest_delay.min(MAX_WAIT));
        self.bucket.restore(record.until_full, now);
        self.forget_expired(now);
        for _ in 0..record.in_flight.min(MAX_RESTORED_LEASES) {
            let id = self.next_id();
            self.leases.push(LimiterLease {
                id,
                expires_at: now + record.in_flight_for.min(LEASE_TIMEOUT),
                progress: LeaseProgress::Sent,
                charge: BucketCharge::default(),
                spacing: HostPace::UNLIMITED.spacing(),
            });
        }
    }

    /// Returns the wait if another process may have sent requests until a time in the past, as many at once as `pace` allows.
    pub fn wait_after_others(
        &mut self,
        until: Instant,
        pace: &HostPace,
        now: Instant,
    ) -> Option<PaceWait> {
        if let Some(rate) = pace.rate {
            self.bucket.empty_at(until, rate);
        }
        // The other process may have drawn any factor of the jitter.
        time_left(Some(until), pace.jittered_delay(1.0), now).map(PaceWait::time)
    }

    fn next_id(&mut self) -> LeaseId {
        self.granted_count += 1;
        LeaseId(self.granted_count)
    }

    fn grant(&mut self, pace: &HostPace, charge: BucketCharge, now: Instant) -> LeaseId {
        let id = self.next_id();
        // Without a delay, the time of sending does not matter.
        let progress = if pace.delay.is_zero() {
            LeaseProgress::Sent
        } else {
            LeaseProgress::Granted
        };
        if progress == LeaseProgress::Sent {
            self.update_last_sent(now);
        }
        self.leases.push(LimiterLease {
            id,
            expires_at: now + LEASE_TIMEOUT,
            progress,
            charge,
            spacing: pace.spacing(),
        });
        id
    }

    fn forget_expired(&mut self, now: Instant) {
        let mut last = self.last_sent;
        self.leases.retain(|lease| {
            if lease.is_unsent() && !lease.is_active(now) {
                last = last.max(Some(lease.expires_at));
            }
            lease.is_active(now)
        });
        self.last_sent = last;
    }

    fn update_last_sent(&mut self, now: Instant) {
        self.last_sent = self.last_sent.max(Some(now));
    }
}

impl LimiterLease {
    fn is_active(&self, now: Instant) -> bool {
        now < self.expires_at
    }

    fn is_unsent(&self) -> bool {
        self.progress == LeaseProgress::Granted
    }
}

/// Returns the rest of a gap that started at `last`.
fn time_left(last: Option<Instant>, gap: Duration, now: Instant) -> Option<Duration> {
    gap.checked_sub(now.saturating_duration_since(last?))
        .filter(|time| !time.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{TestClock, TestClockControl};
    use crate::pacing::pace::{RateLimit, WaitCause};

    const SECOND: Duration = Duration::from_secs(1);
    const POLITE: HostPace = HostPace {
        delay: SECOND,
        concurrency: 2,
        ..HostPace::UNLIMITED
    };

    fn new_limiter() -> (HostLimiter, TestClock, TestClockControl) {
        let (clock, control) = TestClock::manual();
        (HostLimiter::default(), clock, control)
    }

    fn go(limiter: &mut HostLimiter, pace: &HostPace, now: Instant) -> LeaseId {
        assert_eq!(limiter.peek(pace, now), None);
        match limiter.try_acquire(pace, now) {
            PaceDecision::Granted(id) => id,
            PaceDecision::Wait(wait) => panic!("{wait:?}"),
        }
    }

    /// Acquires in vain, after `peek` has reported the same wait.
    fn wait(limiter: &mut HostLimiter, pace: &HostPace, now: Instant) -> (Duration, WaitCause) {
        let peeked = limiter.peek(pace, now);
        match limiter.try_acquire(pace, now) {
            PaceDecision::Granted(id) => panic!("{id:?}"),
            PaceDecision::Wait(wait) => {
                assert_eq!(peeked, Some(wait));
                (wait.duration, wait.cause)
            }
        }
    }

    #[test]
    fn the_delay_counts_from_the_last_byte_of_the_head() {
        let (mut limiter, clock, control) = new_limiter();
        let first = go(&mut limiter, &POLITE, clock.now());
        assert_eq!(
            wait(&mut limiter, &POLITE, clock.now()),
            (LEASE_TIMEOUT, WaitCause::Slots)
        );
        control.advance(SECOND * 3);
        limiter.record_sent(first, 0.0, clock.now());
        assert_eq!(
            wait(&mut limiter, &POLITE, clock.now()),
            (SECOND, WaitCause::Time)
        );
        control.advance(SECOND);
        go(&mut limiter, &POLITE, clock.now());
    }

    #[test]
    fn an_unused_grant_is_refunded_and_a_failed_one_counts() {
        let (mut limiter, clock, control) = new_limiter();
        let pace = HostPace {
            rate: Some(RateLimit::new(1, SECOND * 9, 1)),
            ..POLITE
        };
        let unused = go(&mut limiter, &pace, clock.now());
        limiter.release(unused, LeaseUse::Unused, clock.now());
        let failed = go(&mut limiter, &pace, clock.now());
        control.advance(SECOND / 2);
        limiter.release(failed, LeaseUse::Used, clock.now());
        assert_eq!(
            wait(&mut limiter, &POLITE, clock.now()),
            (SECOND, WaitCause::Time)
        );
        control.advance(SECOND);
        assert_eq!(
            wait(&mut limiter, &pace, clock.now()),
            (SECOND * 15 / 2, WaitCause::Time)
        );
    }

    #[test]
    fn slots_are_held_to_the_last_byte_or_until_they_expire() {
        let (mut limiter, clock, control) = new_limiter();
        let pace = HostPace {
            delay: Duration::ZERO,
            ..POLITE
        };
        let first = go(&mut limiter, &pace, clock.now());
        control.advance(SECOND);
        go(&mut limiter, &pace, clock.now());
        assert_eq!(
            wait(&mut limiter, &pace, clock.now()),
            (LEASE_TIMEOUT - SECOND, WaitCause::Slots)
        );
        limiter.release(first, LeaseUse::Used, clock.now());
        go(&mut limiter, &pace, clock.now());
        assert_eq!(limiter.active_leases(clock.now()), 2);
        control.advance(LEASE_TIMEOUT);
        assert_eq!(limiter.active_leases(clock.now()), 0);
        go(&mut limiter, &pace, clock.now());
        limiter.release(first, LeaseUse::Used, clock.now());
        assert_eq!(limiter.active_leases(clock.now()), 1);
    }

    #[test]
    fn a_resent_request_waits_like_a_new_one_and_is_not_overtaken() {
        let (mut limiter, clock, control) = new_limiter();
        let pace = HostPace {
            rate: Some(RateLimit::new(1, SECOND * 3, 1)),
            ..POLITE
        };
        let id = go(&mut limiter, &pace, clock.now());
        limiter.record_sent(id, 0.0, clock.now());
        control.advance(SECOND / 4);
        assert_eq!(
            limiter.try_resend(id, clock.now()),
            ResendDecision::After(SECOND * 3 / 4)
        );
        control.advance(SECOND);
        assert_eq!(wait(&mut limiter, &POLITE, clock.now()).1, WaitCause::Slots);
        assert_eq!(
            limiter.try_resend(id, clock.now()),
            ResendDecision::After(SECOND * 7 / 4)
        );
        control.advance(SECOND * 2);
        assert_eq!(limiter.try_resend(id, clock.now()), ResendDecision::Now);
        limiter.record_sent(id, 0.0, clock.now());
        assert_eq!(
            wait(&mut limiter, &POLITE, clock.now()),
            (SECOND, WaitCause::Time)
        );
        control.advance(SECOND);
        let other = go(&mut limiter, &POLITE, clock.now());
        assert_eq!(
            limiter.try_resend(id, clock.now()),
            ResendDecision::After(SECOND),
            "the other is on its way"
        );
        limiter.record_sent(other, 0.0, clock.now());
        limiter.release(id, LeaseUse::Used, clock.now());
        assert_eq!(
            limiter.try_resend(id, clock.now()),
            ResendDecision::Never,
            "its slot is gone"
        );
    }

    #[test]
    fn a_grant_that_is_never_sent_counts_as_sent_when_it_expires() {
        let (mut limiter, clock, control) = new_limiter();
        go(&mut limiter, &POLITE, clock.now());
        control.advance(LEASE_TIMEOUT + SECOND / 4);
        assert_eq!(
            wait(&mut limiter, &POLITE, clock.now()),
            (SECOND * 3 / 4, WaitCause::Time)
        );
        control.advance(SECOND);
        go(&mut limiter, &POLITE, clock.now());
    }

    #[test]
    fn a_limiter_is_idle_when_it_equals_a_new_one() {
        let (mut limiter, clock, control) = new_limiter();
        assert!(limiter.is_idle(clock.now()));
        let id = go(
            &mut limiter,
            &HostPace {
                delay: SECOND * 100,
                ..POLITE
            },
            clock.now(),
        );
        limiter.record_sent(id, 0.0, clock.now());
        limiter.release(id, LeaseUse::Used, clock.now());
        control.advance(SECOND * 99);
        assert!(!limiter.is_idle(clock.now()));
        control.advance(SECOND);
        assert!(limiter.is_idle(clock.now()));
    }
}
