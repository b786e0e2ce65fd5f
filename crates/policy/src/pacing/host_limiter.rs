//! What went to one key in one kind, and whether the next may go: delay, rate and concurrency together.
//!
//! A grant is a lease. It is *granted*, then *sent* when the last byte of the request's head is written, which is the
//! moment that the delay counts from, and given up at the origin's last byte, or when its time is over.

use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::pace::{HostPace, PaceDecision, PaceWait, RequestSpacing, ResendDecision, WaitCause};
use super::token_bucket::{BucketCharge, TokenBucket};

/// For how long a lease lasts from its grant, and again from the moment it is sent: a reader that takes its time with
/// an answer must not starve the host's other requests.
pub const LEASE_TIMEOUT: Duration = Duration::from_secs(60);
/// For how long a lane is remembered behind its last request at least: another rule may want a longer delay.
const MIN_RETENTION: Duration = Duration::from_secs(60);

/// The name of a lease within its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseId(u64);

/// What became of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseUse {
    /// Nothing was tried: as if it had never been granted.
    Unused,
    /// Something was: the delay counts from then.
    Used,
}

/// The memory of a key in one kind.
#[derive(Debug, Default)]
pub struct HostLimiter {
    /// When the last head was sent.
    last_sent: Option<Instant>,
    /// Chance, drawn when it was: the next one's delay.
    draw: f32,
    leases: SmallVec<[LimiterLease; 2]>,
    granted_count: u64,
    bucket: TokenBucket,
    /// The longest delay that was asked for.
    longest_delay: Duration,
}

#[derive(Debug)]
struct LimiterLease {
    id: LeaseId,
    expires_at: Instant,
    progress: LeaseProgress,
    charge: BucketCharge,
    /// What was asked for when it was granted.
    spacing: RequestSpacing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseProgress {
    Granted,
    Sent,
}

impl HostLimiter {
    /// Asks to go.
    pub fn try_acquire(&mut self, pace: &HostPace, now: Instant) -> PaceDecision<LeaseId> {
        self.longest_delay = self.longest_delay.max(pace.jittered_delay(1.0));
        if let Some(wait) = self
            .wait_for_delay(pace, now)
            .or_else(|| self.wait_for_slot(pace, now))
        {
            return PaceDecision::Wait(wait);
        }
        // Last, since it takes.
        match pace.rate.map_or(Ok(BucketCharge::default()), |rate| {
            self.bucket.take(rate, now)
        }) {
            Ok(taken) => PaceDecision::Go(self.grant(pace, taken, now)),
            Err(time) => PaceDecision::Wait(PaceWait {
                duration: time,
                cause: WaitCause::Time,
            }),
        }
    }

    /// The head of the request is written; `draw`, from 0 to 1, is what jitter does with the next one's delay. It may
    /// be sent again, on another connection.
    pub fn record_sent(&mut self, id: LeaseId, draw: f32, now: Instant) {
        self.update_last_sent(now);
        self.draw = draw;
        if let Some(lease) = self.leases.iter_mut().find(|lease| lease.id == id) {
            lease.progress = LeaseProgress::Sent;
            lease.expires_at = now + LEASE_TIMEOUT;
        }
    }

    /// A request that was sent has to be sent once more, on another connection: at the pace of a new one, in the slot that
    /// it has.
    pub fn try_resend(&mut self, id: LeaseId, now: Instant) -> ResendDecision {
        let is_unsent = |lease: &LimiterLease| {
            lease.progress == LeaseProgress::Granted && now < lease.expires_at
        };
        let other_unsent = self
            .leases
            .iter()
            .any(|lease| lease.id != id && is_unsent(lease));
        let Some(lease) = self.leases.iter_mut().find(|lease| lease.id == id) else {
            return ResendDecision::Never;
        };
        let spacing = lease.spacing;
        if !spacing.delay.is_zero() {
            // When that one is sent is not known; nor is it held up, since this one stays as it was.
            if other_unsent {
                return ResendDecision::After(spacing.delay);
            }
            (lease.progress, lease.expires_at) = (LeaseProgress::Granted, now + LEASE_TIMEOUT);
            if let Some(time) = time_left(self.last_sent, spacing.jittered_delay(self.draw), now) {
                return ResendDecision::After(time);
            }
        }
        match self.bucket.retake(lease.charge, now) {
            Ok(()) => ResendDecision::Now,
            Err(time) => ResendDecision::After(time),
        }
    }

    /// The origin's last byte is here, or there will be none. One that has expired is forgotten already.
    pub fn release(&mut self, id: LeaseId, used: LeaseUse, now: Instant) {
        let Some(place) = self.leases.iter().position(|lease| lease.id == id) else {
            return;
        };
        let lease = self.leases.swap_remove(place);
        match (used, lease.progress) {
            (LeaseUse::Unused, _) => self.bucket.refund(lease.charge),
            (LeaseUse::Used, LeaseProgress::Granted) => self.update_last_sent(now),
            (LeaseUse::Used, LeaseProgress::Sent) => {}
        }
    }

    /// When a lease's head was written, if it was and the lease has not expired.
    pub fn sent_at(&self, id: LeaseId) -> Option<Instant> {
        let lease = self.leases.iter().find(|lease| lease.id == id)?;
        if lease.progress == LeaseProgress::Sent {
            lease.expires_at.checked_sub(LEASE_TIMEOUT)
        } else {
            None
        }
    }

    /// When the last head was sent, if any was.
    pub fn last_sent(&self) -> Option<Instant> {
        self.last_sent
    }

    /// What a request of this pace would have to wait for now; none if it could go. Nothing is changed by it.
    pub fn peek(&self, pace: &HostPace, now: Instant) -> Option<PaceWait> {
        let slots = |expires: Instant| PaceWait {
            duration: expires.saturating_duration_since(now),
            cause: WaitCause::Slots,
        };
        let lives = |lease: &&LimiterLease| now < lease.expires_at;
        let living = || self.leases.iter().filter(lives);
        if !pace.delay.is_zero() {
            let unsent = |lease: &&LimiterLease| lease.progress == LeaseProgress::Granted;
            if let Some(expires) = living().filter(unsent).map(|lease| lease.expires_at).max() {
                return Some(slots(expires));
            }
            // One that was never sent counts as sent when it expired.
            let expired = self
                .leases
                .iter()
                .filter(|lease| !lives(lease) && unsent(lease));
            let last = self
                .last_sent
                .max(expired.map(|lease| lease.expires_at).max());
            if let Some(time) = time_left(last, pace.jittered_delay(self.draw), now) {
                return Some(PaceWait {
                    duration: time,
                    cause: WaitCause::Time,
                });
            }
        }
        let most = usize::try_from(pace.concurrency.max(1)).unwrap_or(usize::MAX);
        if most <= living().count() {
            return living().map(|lease| lease.expires_at).min().map(slots);
        }
        let mut bucket = self.bucket;
        let time = bucket.take(pace.rate?, now).err()?;
        Some(PaceWait {
            duration: time,
            cause: WaitCause::Time,
        })
    }

    /// The time that a lease has left.
    pub fn remaining(&self, id: LeaseId, now: Instant) -> Option<Duration> {
        let lease = self.leases.iter().find(|lease| lease.id == id)?;
        lease
            .expires_at
            .checked_duration_since(now)
            .filter(|left| !left.is_zero())
    }

    /// Requests under way.
    pub fn active_leases(&self, now: Instant) -> usize {
        self.leases
            .iter()
            .filter(|lease| now < lease.expires_at)
            .count()
    }

    /// Whether forgetting it changes nothing.
    pub fn is_idle(&self, now: Instant) -> bool {
        let remembered = MIN_RETENTION.max(self.longest_delay);
        let rested = self
            .last_sent
            .is_none_or(|last| remembered <= now.saturating_duration_since(last));
        rested && self.active_leases(now) == 0 && self.bucket.is_full(now)
    }

    /// Between a grant and its sending nobody knows when the delay will begin, so nobody else goes.
    fn wait_for_delay(&mut self, pace: &HostPace, now: Instant) -> Option<PaceWait> {
        if pace.delay.is_zero() {
            return None;
        }
        let unsent = |lease: &&LimiterLease| lease.progress == LeaseProgress::Granted;
        if let Some(expires) = self
            .leases
            .iter()
            .filter(unsent)
            .map(|lease| lease.expires_at)
            .max()
        {
            if now < expires {
                return Some(PaceWait {
                    duration: expires - now,
                    cause: WaitCause::Slots,
                });
            }
            self.forget_expired(now);
        }
        let time = time_left(self.last_sent, pace.jittered_delay(self.draw), now)?;
        Some(PaceWait {
            duration: time,
            cause: WaitCause::Time,
        })
    }

    fn wait_for_slot(&mut self, pace: &HostPace, now: Instant) -> Option<PaceWait> {
        let most = usize::try_from(pace.concurrency.max(1)).unwrap_or(usize::MAX);
        if self.leases.len() < most {
            return None;
        }
        self.forget_expired(now);
        if self.leases.len() < most {
            return None;
        }
        let expires = self.leases.iter().map(|lease| lease.expires_at).min()?;
        Some(PaceWait {
            duration: expires.saturating_duration_since(now),
            cause: WaitCause::Slots,
        })
    }

    fn grant(&mut self, pace: &HostPace, taken: BucketCharge, now: Instant) -> LeaseId {
        self.granted_count += 1;
        let id = LeaseId(self.granted_count);
        // Without a delay nobody asks when it is sent.
        let progress = if pace.delay.is_zero() {
            LeaseProgress::Sent
        } else {
            LeaseProgress::Granted
        };
        if progress == LeaseProgress::Sent {
            self.update_last_sent(now);
        }
        let spacing = pace.spacing();
        self.leases.push(LimiterLease {
            id,
            expires_at: now + LEASE_TIMEOUT,
            progress,
            charge: taken,
            spacing,
        });
        id
    }

    fn forget_expired(&mut self, now: Instant) {
        let mut last = self.last_sent;
        self.leases.retain(|lease| {
            let lives = now < lease.expires_at;
            if !lives && lease.progress == LeaseProgress::Granted {
                last = last.max(Some(lease.expires_at));
            }
            lives
        });
        self.last_sent = last;
    }

    fn update_last_sent(&mut self, now: Instant) {
        self.last_sent = self.last_sent.max(Some(now));
    }
}

/// What is left of a gap behind the last head that was sent.
fn time_left(last: Option<Instant>, gap: Duration, now: Instant) -> Option<Duration> {
    gap.checked_sub(now.saturating_duration_since(last?))
        .filter(|time| !time.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, ManualClock};
    use crate::pacing::pace::RateLimit;

    const SECOND: Duration = Duration::from_secs(1);
    const POLITE: HostPace = HostPace {
        delay: SECOND,
        concurrency: 2,
        ..HostPace::UNLIMITED
    };

    fn lane() -> (HostLimiter, Clock, ManualClock) {
        let (clock, hand) = Clock::manual();
        (HostLimiter::default(), clock, hand)
    }

    fn go(lane: &mut HostLimiter, pace: &HostPace, now: Instant) -> LeaseId {
        assert_eq!(lane.peek(pace, now), None);
        match lane.try_acquire(pace, now) {
            PaceDecision::Go(id) => id,
            PaceDecision::Wait(wait) => panic!("{wait:?}"),
        }
    }

    /// What is told is what could be seen before.
    fn wait(lane: &mut HostLimiter, pace: &HostPace, now: Instant) -> (Duration, WaitCause) {
        let seen = lane.peek(pace, now);
        match lane.try_acquire(pace, now) {
            PaceDecision::Go(id) => panic!("{id:?}"),
            PaceDecision::Wait(wait) => {
                assert_eq!(seen, Some(wait));
                (wait.duration, wait.cause)
            }
        }
    }

    #[test]
    fn the_delay_counts_from_the_last_byte_of_the_head() {
        let (mut lane, clock, hand) = lane();
        let first = go(&mut lane, &POLITE, clock.now());
        assert_eq!(
            wait(&mut lane, &POLITE, clock.now()),
            (LEASE_TIMEOUT, WaitCause::Slots)
        );
        hand.advance(SECOND * 3);
        lane.record_sent(first, 0.0, clock.now());
        assert_eq!(
            wait(&mut lane, &POLITE, clock.now()),
            (SECOND, WaitCause::Time)
        );
        hand.advance(SECOND);
        go(&mut lane, &POLITE, clock.now());
    }

    #[test]
    fn an_unused_grant_leaves_no_trace_and_a_failed_one_counts() {
        let (mut lane, clock, hand) = lane();
        let pace = HostPace {
            rate: Some(RateLimit::new(1, SECOND * 9, 1)),
            ..POLITE
        };
        let unused = go(&mut lane, &pace, clock.now());
        lane.release(unused, LeaseUse::Unused, clock.now());
        let failed = go(&mut lane, &pace, clock.now());
        hand.advance(SECOND / 2);
        lane.release(failed, LeaseUse::Used, clock.now());
        assert_eq!(
            wait(&mut lane, &POLITE, clock.now()),
            (SECOND, WaitCause::Time)
        );
        hand.advance(SECOND);
        assert_eq!(
            wait(&mut lane, &pace, clock.now()),
            (SECOND * 15 / 2, WaitCause::Time)
        );
    }

    #[test]
    fn slots_are_held_to_the_last_byte_or_until_they_expire() {
        let (mut lane, clock, hand) = lane();
        let pace = HostPace {
            delay: Duration::ZERO,
            ..POLITE
        };
        let first = go(&mut lane, &pace, clock.now());
        hand.advance(SECOND);
        go(&mut lane, &pace, clock.now());
        assert_eq!(
            wait(&mut lane, &pace, clock.now()),
            (LEASE_TIMEOUT - SECOND, WaitCause::Slots)
        );
        lane.release(first, LeaseUse::Used, clock.now());
        go(&mut lane, &pace, clock.now());
        assert_eq!(lane.active_leases(clock.now()), 2);
        hand.advance(LEASE_TIMEOUT);
        assert_eq!(lane.active_leases(clock.now()), 0);
        go(&mut lane, &pace, clock.now());
        lane.release(first, LeaseUse::Used, clock.now());
        assert_eq!(lane.active_leases(clock.now()), 1);
    }

    #[test]
    fn what_is_sent_once_more_waits_like_a_new_one_and_nobody_overtakes_it() {
        let (mut lane, clock, hand) = lane();
        let pace = HostPace {
            rate: Some(RateLimit::new(1, SECOND * 3, 1)),
            ..POLITE
        };
        let id = go(&mut lane, &pace, clock.now());
        lane.record_sent(id, 0.0, clock.now());
        hand.advance(SECOND / 4);
        assert_eq!(
            lane.try_resend(id, clock.now()),
            ResendDecision::After(SECOND * 3 / 4)
        );
        hand.advance(SECOND);
        assert_eq!(wait(&mut lane, &POLITE, clock.now()).1, WaitCause::Slots);
        assert_eq!(
            lane.try_resend(id, clock.now()),
            ResendDecision::After(SECOND * 7 / 4)
        );
        hand.advance(SECOND * 2);
        assert_eq!(lane.try_resend(id, clock.now()), ResendDecision::Now);
        lane.record_sent(id, 0.0, clock.now());
        assert_eq!(
            wait(&mut lane, &POLITE, clock.now()),
            (SECOND, WaitCause::Time)
        );
        hand.advance(SECOND);
        let other = go(&mut lane, &POLITE, clock.now());
        assert_eq!(
            lane.try_resend(id, clock.now()),
            ResendDecision::After(SECOND),
            "the other is on its way"
        );
        lane.record_sent(other, 0.0, clock.now());
        lane.release(id, LeaseUse::Used, clock.now());
        assert_eq!(
            lane.try_resend(id, clock.now()),
            ResendDecision::Never,
            "its slot is gone"
        );
    }

    #[test]
    fn a_grant_that_is_never_sent_counts_as_sent_when_it_expires() {
        let (mut lane, clock, hand) = lane();
        go(&mut lane, &POLITE, clock.now());
        hand.advance(LEASE_TIMEOUT + SECOND / 4);
        assert_eq!(
            wait(&mut lane, &POLITE, clock.now()),
            (SECOND * 3 / 4, WaitCause::Time)
        );
        hand.advance(SECOND);
        go(&mut lane, &POLITE, clock.now());
    }

    #[test]
    fn a_lane_is_idle_once_nobody_could_tell() {
        let (mut lane, clock, hand) = lane();
        assert!(lane.is_idle(clock.now()));
        let id = go(
            &mut lane,
            &HostPace {
                delay: SECOND * 100,
                ..POLITE
            },
            clock.now(),
        );
        lane.record_sent(id, 0.0, clock.now());
        lane.release(id, LeaseUse::Used, clock.now());
        hand.advance(SECOND * 99);
        assert!(!lane.is_idle(clock.now()));
        hand.advance(SECOND);
        assert!(lane.is_idle(clock.now()));
    }
}
