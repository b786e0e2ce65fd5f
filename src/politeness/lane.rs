//! What went to one key in one kind, and whether the next may go: delay, rate and concurrency together.
//!
//! A grant is a lease. It is *granted*, then *sent* when the last byte of the request's head is written, which is the
//! moment that the delay counts from, and given up at the origin's last byte, or when its time is over.

use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::pace::{Again, Pace, Spacing, Turn, Wait, Why};
use super::rate::{Bucket, Taken};

/// For how long a lease lasts from its grant, and again from the moment it is sent: a reader that takes its time with
/// an answer must not starve the host's other requests.
pub const SLOT_MAX: Duration = Duration::from_secs(60);
/// For how long a lane is remembered behind its last request at least: another rule may want a longer delay.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The name of a lease within its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseId(u64);

/// What became of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Nothing was tried: as if it had never been granted.
    Unused,
    /// Something was: the delay counts from then.
    Used,
}

/// The memory of a key in one kind.
#[derive(Debug, Default)]
pub struct Lane {
    /// When the last head was sent.
    last: Option<Instant>,
    /// Chance, drawn when it was: the next one's delay.
    draw: f32,
    leases: SmallVec<[Lease; 2]>,
    granted: u64,
    bucket: Bucket,
    /// The longest delay that was asked for.
    longest: Duration,
}

#[derive(Debug)]
struct Lease {
    id: LeaseId,
    expires: Instant,
    progress: Progress,
    taken: Taken,
    /// What was asked for when it was granted.
    spacing: Spacing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Granted,
    Sent,
}

impl Lane {
    /// Asks to go.
    pub fn ask(&mut self, pace: &Pace, now: Instant) -> Turn<LeaseId> {
        self.longest = self.longest.max(pace.gap(1.0));
        if let Some(wait) = self.delay(pace, now).or_else(|| self.slots(pace, now)) {
            return Turn::Wait(wait);
        }
        // Last, since it takes.
        match pace
            .rate
            .map_or(Ok(Taken::default()), |rate| self.bucket.take(rate, now))
        {
            Ok(taken) => Turn::Go(self.grant(pace, taken, now)),
            Err(time) => Turn::Wait(Wait {
                time,
                why: Why::Time,
            }),
        }
    }

    /// The head of the request is written; `draw`, from 0 to 1, is what jitter does with the next one's delay. It may
    /// be sent again, on another connection.
    pub fn sent(&mut self, id: LeaseId, draw: f32, now: Instant) {
        self.note_sent(now);
        self.draw = draw;
        if let Some(lease) = self.leases.iter_mut().find(|lease| lease.id == id) {
            lease.progress = Progress::Sent;
            lease.expires = now + SLOT_MAX;
        }
    }

    /// A request that was sent has to be sent once more, on another connection: at the pace of a new one, in the slot that
    /// it has.
    pub fn again(&mut self, id: LeaseId, now: Instant) -> Again {
        let is_unsent = |lease: &Lease| lease.progress == Progress::Granted && now < lease.expires;
        let other_unsent = self
            .leases
            .iter()
            .any(|lease| lease.id != id && is_unsent(lease));
        let Some(lease) = self.leases.iter_mut().find(|lease| lease.id == id) else {
            return Again::Never;
        };
        let spacing = lease.spacing;
        if !spacing.delay.is_zero() {
            // When that one is sent is not known; nor is it held up, since this one stays as it was.
            if other_unsent {
                return Again::In(spacing.delay);
            }
            (lease.progress, lease.expires) = (Progress::Granted, now + SLOT_MAX);
            if let Some(time) = time_left(self.last, spacing.gap(self.draw), now) {
                return Again::In(time);
            }
        }
        match self.bucket.take_again(lease.taken, now) {
            Ok(()) => Again::Now,
            Err(time) => Again::In(time),
        }
    }

    /// The origin's last byte is here, or there will be none. One that has expired is forgotten already.
    pub fn release(&mut self, id: LeaseId, used: Use, now: Instant) {
        let Some(place) = self.leases.iter().position(|lease| lease.id == id) else {
            return;
        };
        let lease = self.leases.swap_remove(place);
        match (used, lease.progress) {
            (Use::Unused, _) => self.bucket.give_back(lease.taken),
            (Use::Used, Progress::Granted) => self.note_sent(now),
            (Use::Used, Progress::Sent) => {}
        }
    }

    /// When a lease's head was written, if it was and the lease has not expired.
    pub fn sent_at(&self, id: LeaseId) -> Option<Instant> {
        let lease = self.leases.iter().find(|lease| lease.id == id)?;
        if lease.progress == Progress::Sent {
            lease.expires.checked_sub(SLOT_MAX)
        } else {
            None
        }
    }

    /// When the last head was sent, if any was.
    pub fn last(&self) -> Option<Instant> {
        self.last
    }

    /// What a request of this pace would have to wait for now; none if it could go. Nothing is changed by it.
    pub fn peek(&self, pace: &Pace, now: Instant) -> Option<Wait> {
        let slots = |expires: Instant| Wait {
            time: expires.saturating_duration_since(now),
            why: Why::Slots,
        };
        let lives = |lease: &&Lease| now < lease.expires;
        let living = || self.leases.iter().filter(lives);
        if !pace.delay.is_zero() {
            let unsent = |lease: &&Lease| lease.progress == Progress::Granted;
            if let Some(expires) = living().filter(unsent).map(|lease| lease.expires).max() {
                return Some(slots(expires));
            }
            // One that was never sent counts as sent when it expired.
            let expired = self
                .leases
                .iter()
                .filter(|lease| !lives(lease) && unsent(lease));
            let last = self.last.max(expired.map(|lease| lease.expires).max());
            if let Some(time) = time_left(last, pace.gap(self.draw), now) {
                return Some(Wait {
                    time,
                    why: Why::Time,
                });
            }
        }
        let most = usize::try_from(pace.concurrency.max(1)).unwrap_or(usize::MAX);
        if most <= living().count() {
            return living().map(|lease| lease.expires).min().map(slots);
        }
        let mut bucket = self.bucket;
        let time = bucket.take(pace.rate?, now).err()?;
        Some(Wait {
            time,
            why: Why::Time,
        })
    }

    /// The time that a lease has left.
    pub fn left(&self, id: LeaseId, now: Instant) -> Option<Duration> {
        let lease = self.leases.iter().find(|lease| lease.id == id)?;
        lease
            .expires
            .checked_duration_since(now)
            .filter(|left| !left.is_zero())
    }

    /// Requests under way.
    pub fn leases(&self, now: Instant) -> usize {
        self.leases
            .iter()
            .filter(|lease| now < lease.expires)
            .count()
    }

    /// Whether forgetting it changes nothing.
    pub fn is_idle(&self, now: Instant) -> bool {
        let remembered = REMEMBERED.max(self.longest);
        let rested = self
            .last
            .is_none_or(|last| remembered <= now.saturating_duration_since(last));
        rested && self.leases(now) == 0 && self.bucket.is_full(now)
    }

    /// Between a grant and its sending nobody knows when the delay will begin, so nobody else goes.
    fn delay(&mut self, pace: &Pace, now: Instant) -> Option<Wait> {
        if pace.delay.is_zero() {
            return None;
        }
        let unsent = |lease: &&Lease| lease.progress == Progress::Granted;
        if let Some(expires) = self
            .leases
            .iter()
            .filter(unsent)
            .map(|lease| lease.expires)
            .max()
        {
            if now < expires {
                return Some(Wait {
                    time: expires - now,
                    why: Why::Slots,
                });
            }
            self.forget_expired(now);
        }
        let time = time_left(self.last, pace.gap(self.draw), now)?;
        Some(Wait {
            time,
            why: Why::Time,
        })
    }

    fn slots(&mut self, pace: &Pace, now: Instant) -> Option<Wait> {
        let most = usize::try_from(pace.concurrency.max(1)).unwrap_or(usize::MAX);
        if self.leases.len() < most {
            return None;
        }
        self.forget_expired(now);
        if self.leases.len() < most {
            return None;
        }
        let expires = self.leases.iter().map(|lease| lease.expires).min()?;
        Some(Wait {
            time: expires.saturating_duration_since(now),
            why: Why::Slots,
        })
    }

    fn grant(&mut self, pace: &Pace, taken: Taken, now: Instant) -> LeaseId {
        self.granted += 1;
        let id = LeaseId(self.granted);
        // Without a delay nobody asks when it is sent.
        let progress = if pace.delay.is_zero() {
            Progress::Sent
        } else {
            Progress::Granted
        };
        if progress == Progress::Sent {
            self.note_sent(now);
        }
        let spacing = pace.spacing();
        self.leases.push(Lease {
            id,
            expires: now + SLOT_MAX,
            progress,
            taken,
            spacing,
        });
        id
    }

    fn forget_expired(&mut self, now: Instant) {
        let mut last = self.last;
        self.leases.retain(|lease| {
            let lives = now < lease.expires;
            if !lives && lease.progress == Progress::Granted {
                last = last.max(Some(lease.expires));
            }
            lives
        });
        self.last = last;
    }

    fn note_sent(&mut self, now: Instant) {
        self.last = self.last.max(Some(now));
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
    use crate::clock::{Clock, Hand};
    use crate::politeness::pace::Rate;

    const SECOND: Duration = Duration::from_secs(1);
    const POLITE: Pace = Pace {
        delay: SECOND,
        concurrency: 2,
        ..Pace::FREE
    };

    fn lane() -> (Lane, Clock, Hand) {
        let (clock, hand) = Clock::manual();
        (Lane::default(), clock, hand)
    }

    fn go(lane: &mut Lane, pace: &Pace, now: Instant) -> LeaseId {
        assert_eq!(lane.peek(pace, now), None);
        match lane.ask(pace, now) {
            Turn::Go(id) => id,
            Turn::Wait(wait) => panic!("{wait:?}"),
        }
    }

    /// What is told is what could be seen before.
    fn wait(lane: &mut Lane, pace: &Pace, now: Instant) -> (Duration, Why) {
        let seen = lane.peek(pace, now);
        match lane.ask(pace, now) {
            Turn::Go(id) => panic!("{id:?}"),
            Turn::Wait(wait) => {
                assert_eq!(seen, Some(wait));
                (wait.time, wait.why)
            }
        }
    }

    #[test]
    fn the_delay_counts_from_the_last_byte_of_the_head() {
        let (mut lane, clock, hand) = lane();
        let first = go(&mut lane, &POLITE, clock.now());
        assert_eq!(
            wait(&mut lane, &POLITE, clock.now()),
            (SLOT_MAX, Why::Slots)
        );
        hand.advance(SECOND * 3);
        lane.sent(first, 0.0, clock.now());
        assert_eq!(wait(&mut lane, &POLITE, clock.now()), (SECOND, Why::Time));
        hand.advance(SECOND);
        go(&mut lane, &POLITE, clock.now());
    }

    #[test]
    fn an_unused_grant_leaves_no_trace_and_a_failed_one_counts() {
        let (mut lane, clock, hand) = lane();
        let pace = Pace {
            rate: Some(Rate::new(1, SECOND * 9, 1)),
            ..POLITE
        };
        let unused = go(&mut lane, &pace, clock.now());
        lane.release(unused, Use::Unused, clock.now());
        let failed = go(&mut lane, &pace, clock.now());
        hand.advance(SECOND / 2);
        lane.release(failed, Use::Used, clock.now());
        assert_eq!(wait(&mut lane, &POLITE, clock.now()), (SECOND, Why::Time));
        hand.advance(SECOND);
        assert_eq!(
            wait(&mut lane, &pace, clock.now()),
            (SECOND * 15 / 2, Why::Time)
        );
    }

    #[test]
    fn slots_are_held_to_the_last_byte_or_until_they_expire() {
        let (mut lane, clock, hand) = lane();
        let pace = Pace {
            delay: Duration::ZERO,
            ..POLITE
        };
        let first = go(&mut lane, &pace, clock.now());
        hand.advance(SECOND);
        go(&mut lane, &pace, clock.now());
        assert_eq!(
            wait(&mut lane, &pace, clock.now()),
            (SLOT_MAX - SECOND, Why::Slots)
        );
        lane.release(first, Use::Used, clock.now());
        go(&mut lane, &pace, clock.now());
        assert_eq!(lane.leases(clock.now()), 2);
        hand.advance(SLOT_MAX);
        assert_eq!(lane.leases(clock.now()), 0);
        go(&mut lane, &pace, clock.now());
        lane.release(first, Use::Used, clock.now());
        assert_eq!(lane.leases(clock.now()), 1);
    }

    #[test]
    fn what_is_sent_once_more_waits_like_a_new_one_and_nobody_overtakes_it() {
        let (mut lane, clock, hand) = lane();
        let pace = Pace {
            rate: Some(Rate::new(1, SECOND * 3, 1)),
            ..POLITE
        };
        let id = go(&mut lane, &pace, clock.now());
        lane.sent(id, 0.0, clock.now());
        hand.advance(SECOND / 4);
        assert_eq!(lane.again(id, clock.now()), Again::In(SECOND * 3 / 4));
        hand.advance(SECOND);
        assert_eq!(wait(&mut lane, &POLITE, clock.now()).1, Why::Slots);
        assert_eq!(lane.again(id, clock.now()), Again::In(SECOND * 7 / 4));
        hand.advance(SECOND * 2);
        assert_eq!(lane.again(id, clock.now()), Again::Now);
        lane.sent(id, 0.0, clock.now());
        assert_eq!(wait(&mut lane, &POLITE, clock.now()), (SECOND, Why::Time));
        hand.advance(SECOND);
        let other = go(&mut lane, &POLITE, clock.now());
        assert_eq!(
            lane.again(id, clock.now()),
            Again::In(SECOND),
            "the other is on its way"
        );
        lane.sent(other, 0.0, clock.now());
        lane.release(id, Use::Used, clock.now());
        assert_eq!(
            lane.again(id, clock.now()),
            Again::Never,
            "its slot is gone"
        );
    }

    #[test]
    fn a_grant_that_is_never_sent_counts_as_sent_when_it_expires() {
        let (mut lane, clock, hand) = lane();
        go(&mut lane, &POLITE, clock.now());
        hand.advance(SLOT_MAX + SECOND / 4);
        assert_eq!(
            wait(&mut lane, &POLITE, clock.now()),
            (SECOND * 3 / 4, Why::Time)
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
            &Pace {
                delay: SECOND * 100,
                ..POLITE
            },
            clock.now(),
        );
        lane.sent(id, 0.0, clock.now());
        lane.release(id, Use::Used, clock.now());
        hand.advance(SECOND * 99);
        assert!(!lane.is_idle(clock.now()));
        hand.advance(SECOND);
        assert!(lane.is_idle(clock.now()));
    }
}
