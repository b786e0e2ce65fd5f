//! Who goes first among those that wait for one key (policy.md section 5): by class, then by crawler, then by arrival.
//!
//! The classes and their weights are those of CloudView's crawler. A [`WaitQueue`] holds who waits and says who is the best of
//! them; by [`WaitOrder::Weighted`] the classes share the grants by their weights, by [`WaitOrder::Strict`] (WebCopy's high and
//! low) the highest goes first and who waits rises. What wakes the waiters, and how many there may be, is not here; the
//! time is an argument.

mod class_shares;
mod crawler_turns;
mod priority;
mod wait_queue;

use std::time::{Duration, Instant};

pub use priority::Priority;
pub use wait_queue::WaitQueue;

/// By [`WaitOrder::Strict`] a waiter rises by one class each time it has waited for so long.
pub const PROMOTION_INTERVAL: Duration = Duration::from_secs(30);

/// What a waiting request is to its crawler, the highest first (CloudView, "How Priorities Work").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PriorityClass {
    /// A root that a user has submitted.
    User,
    /// The target of a redirection.
    Redir,
    /// A document that is indexed and whose links are not followed.
    Index,
    /// A document that is indexed and whose links are followed.
    IndexFollow,
    /// A document that is fetched for its links, if for anything.
    Follow,
    /// A document that is known and fetched again.
    Refresh,
}

impl PriorityClass {
    /// Every class, the highest first.
    pub const ALL: [Self; 6] = [
        Self::User,
        Self::Redir,
        Self::Index,
        Self::IndexFollow,
        Self::Follow,
        Self::Refresh,
    ];

    /// Its share of the grants, of 13,111 where somebody waits in every class.
    pub const fn weight(self) -> u32 {
        match self {
            Self::User => 10_000,
            Self::Redir => 2_000,
            Self::Index => 1_000,
            Self::IndexFollow => 100,
            Self::Follow => 10,
            Self::Refresh => 1,
        }
    }

    /// The class that a priority makes of it: so many places along, the ends clamped.
    #[must_use]
    pub fn shifted(self, by: Priority) -> Self {
        let steps = usize::from(by.steps().unsigned_abs());
        let place = self as usize;
        Self::from_index(if by.steps() < 0 {
            place.saturating_sub(steps)
        } else {
            place + steps
        })
    }

    /// The next higher class; none above the highest.
    fn next_higher(self) -> Option<Self> {
        (self as usize).checked_sub(1).map(Self::from_index)
    }

    fn from_index(place: usize) -> Self {
        Self::ALL.get(place).copied().unwrap_or(Self::Refresh)
    }
}

/// How classes are chosen from: the option `politeness.order`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitOrder {
    /// Each class gets its share of the grants.
    #[default]
    Weighted,
    /// The highest class goes first, and who waits rises by one each [`PROMOTION_INTERVAL`].
    Strict,
}

/// How a waiting request stands to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRank {
    /// Its class.
    pub class: PriorityClass,
    /// The order that its policy wants. A line is kept in the order of whoever has waited longest.
    pub order: WaitOrder,
}

/// When a request came first, kept by one that is sent away and comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueTicket {
    /// Its place among all that ever had to wait; no two have the same.
    pub number: u64,
    /// When it was drawn.
    pub drawn_at: Instant,
}

impl QueueTicket {
    /// The time until it rises next, by [`WaitOrder::Strict`].
    pub fn time_to_promotion(self, now: Instant) -> Duration {
        let waited =
            now.saturating_duration_since(self.drawn_at).as_nanos() % PROMOTION_INTERVAL.as_nanos();
        PROMOTION_INTERVAL.saturating_sub(Duration::from_nanos(u64::try_from(waited).unwrap_or(0)))
    }
}

/// One of something for each class.
#[derive(Debug, Default)]
struct PerClass<T>([T; 6]);

impl<T> PerClass<T> {
    fn get(&self, class: PriorityClass) -> &T {
        let [user, redir, index, index_follow, follow, refresh] = &self.0;
        match class {
            PriorityClass::User => user,
            PriorityClass::Redir => redir,
            PriorityClass::Index => index,
            PriorityClass::IndexFollow => index_follow,
            PriorityClass::Follow => follow,
            PriorityClass::Refresh => refresh,
        }
    }

    fn get_mut(&mut self, class: PriorityClass) -> &mut T {
        let [user, redir, index, index_follow, follow, refresh] = &mut self.0;
        match class {
            PriorityClass::User => user,
            PriorityClass::Redir => redir,
            PriorityClass::Index => index,
            PriorityClass::IndexFollow => index_follow,
            PriorityClass::Follow => follow,
            PriorityClass::Refresh => refresh,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_moves_along_the_classes_and_not_past_the_ends() {
        for (class, by, moved) in [
            (PriorityClass::IndexFollow, -2, PriorityClass::Redir),
            (PriorityClass::IndexFollow, -1, PriorityClass::Index),
            (PriorityClass::IndexFollow, 0, PriorityClass::IndexFollow),
            (PriorityClass::IndexFollow, 1, PriorityClass::Follow),
            (PriorityClass::IndexFollow, 2, PriorityClass::Refresh),
            (PriorityClass::User, -2, PriorityClass::User),
            (PriorityClass::Redir, -2, PriorityClass::User),
            (PriorityClass::Follow, 2, PriorityClass::Refresh),
        ] {
            assert_eq!(
                class.shifted(Priority::new(by).unwrap()),
                moved,
                "{class:?} {by}"
            );
        }
    }

    #[test]
    fn each_class_knows_its_place_and_the_one_above() {
        let mut above = None;
        for (place, class) in PriorityClass::ALL.into_iter().enumerate() {
            assert_eq!((class as usize, class.next_higher()), (place, above));
            above = Some(class);
        }
        assert_eq!(
            PriorityClass::ALL
                .iter()
                .map(|class| class.weight())
                .sum::<u32>(),
            13_111
        );
    }

    #[test]
    fn a_ticket_says_when_it_rises() {
        let drawn = crate::clock::Clock::manual().0.now();
        let ticket = QueueTicket {
            number: 0,
            drawn_at: drawn,
        };
        for (waited_ms, left_ms) in [
            (0, 30_000),
            (29_999, 1),
            (30_000, 30_000),
            (100_000, 20_000),
        ] {
            let left = ticket.time_to_promotion(drawn + Duration::from_millis(waited_ms));
            assert_eq!(left, Duration::from_millis(left_ms), "{waited_ms}");
        }
    }
}
