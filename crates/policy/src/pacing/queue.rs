//! The order of requests that wait for one key: by class, then by crawler, then by arrival.
//!
//! The classes and their weights are those of CloudView's crawler. With [`WaitOrder::Weighted`] the
//! classes share the grants by their weights; with [`WaitOrder::Strict`] (WebCopy's high and low)
//! the highest class goes first, and waiting requests are promoted over time. The caller wakes the
//! waiters and limits their number; the time is an argument.

mod class_shares;
mod crawler_turns;
mod priority;
mod wait_queue;

use std::time::{Duration, Instant};

pub use priority::Priority;
pub use wait_queue::WaitQueue;

/// The time after which a waiting request is promoted by one class with [`WaitOrder::Strict`].
pub const PROMOTION_INTERVAL: Duration = Duration::from_secs(30);

/// The class of a waiting request, the highest first (CloudView, "How Priorities Work").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PriorityClass {
    /// A seed that a user submitted.
    User,
    /// The target of a redirect.
    Redir,
    /// A document that is indexed without following its links.
    Index,
    /// A document that is indexed and whose links are followed.
    IndexFollow,
    /// A document that is fetched for its links only.
    Follow,
    /// A known document that is fetched again.
    Refresh,
}

impl PriorityClass {
    /// All classes, the highest first.
    pub const ALL: [Self; 6] = [
        Self::User,
        Self::Redir,
        Self::Index,
        Self::IndexFollow,
        Self::Follow,
        Self::Refresh,
    ];

    /// The weight of the class: its share of 13,111 grants when requests wait in every class.
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

    /// Returns the class shifted by a priority, clamped to the ends.
    #[must_use]
    pub fn shifted(self, by: Priority) -> Self {
        let steps = usize::from(by.steps().unsigned_abs());
        let index = self as usize;
        let shifted = if by.steps() < 0 {
            index.saturating_sub(steps)
        } else {
            index + steps
        };
        Self::from_index(shifted)
    }

    fn next_higher(self) -> Option<Self> {
        (self as usize).checked_sub(1).map(Self::from_index)
    }

    fn from_index(index: usize) -> Self {
        Self::ALL.get(index).copied().unwrap_or(Self::Refresh)
    }
}

/// The order of classes: the option `politeness.order`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitOrder {
    /// Each class gets a share of the grants.
    #[default]
    Weighted,
    /// The highest class goes first. A waiting request is promoted by one class each
    /// [`PROMOTION_INTERVAL`].
    Strict,
}

/// The rank of a waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRank {
    pub class: PriorityClass,
    /// The order that its policy sets. The queue uses the order of the request that has waited
    /// longest.
    pub order: WaitOrder,
}

/// The arrival of a request, which it keeps if it is refused and comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueTicket {
    /// The unique number of the request among all that had to wait.
    pub number: u64,
    /// The time of its first arrival.
    pub drawn_at: Instant,
}

impl QueueTicket {
    /// Returns the time until the next promotion with [`WaitOrder::Strict`].
    pub fn time_to_promotion(self, now: Instant) -> Duration {
        let wait_time =
            now.saturating_duration_since(self.drawn_at).as_nanos() % PROMOTION_INTERVAL.as_nanos();
        PROMOTION_INTERVAL
            .saturating_sub(Duration::from_nanos(u64::try_from(wait_time).unwrap_or(0)))
    }
}

/// One value for each class.
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
    fn classes_have_an_index_and_a_next_higher_class() {
        let mut above = None;
        for (index, class) in PriorityClass::ALL.into_iter().enumerate() {
            assert_eq!((class as usize, class.next_higher()), (index, above));
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
    fn a_ticket_has_a_time_of_promotion() {
        let drawn = crate::clock::TestClock::manual().0.now();
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
            let remaining = ticket.time_to_promotion(drawn + Duration::from_millis(waited_ms));
            assert_eq!(remaining, Duration::from_millis(left_ms), "{waited_ms}");
        }
    }
}
