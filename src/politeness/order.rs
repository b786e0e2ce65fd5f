//! Who goes first among those that wait for one key (policy.md section 5): by class, then by crawler, then by arrival.
//!
//! The classes and their weights are those of CloudView's crawler. A [`Line`] holds who waits and says who is the best of
//! them; by [`Order::Weighted`] the classes share the grants by their weights, by [`Order::Strict`] (WebCopy's high and
//! low) the highest goes first and who waits rises. What wakes the waiters, and how many there may be, is not here; the
//! time is an argument.

mod line;
mod priority;
mod shares;
mod turns;

use std::time::{Duration, Instant};

pub use line::Line;
pub use priority::Priority;

/// By [`Order::Strict`] a waiter rises by one class each time it has waited for so long.
pub const RISES_EVERY: Duration = Duration::from_secs(30);

/// What a waiting request is to its crawler, the highest first (CloudView, "How Priorities Work").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
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

impl Class {
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
        Self::at(if by.steps() < 0 {
            place.saturating_sub(steps)
        } else {
            place + steps
        })
    }

    /// The next higher class; none above the highest.
    fn above(self) -> Option<Self> {
        (self as usize).checked_sub(1).map(Self::at)
    }

    fn at(place: usize) -> Self {
        Self::ALL.get(place).copied().unwrap_or(Self::Refresh)
    }
}

/// How classes are chosen from: the option `politeness.order`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Each class gets its share of the grants.
    #[default]
    Weighted,
    /// The highest class goes first, and who waits rises by one each [`RISES_EVERY`].
    Strict,
}

/// How a waiting request stands to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Its class.
    pub class: Class,
    /// The order that its policy wants. A line is kept in the order of whoever has waited longest.
    pub order: Order,
}

/// When a request came first, kept by one that is sent away and comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Its place among all that ever had to wait; no two have the same.
    pub number: u64,
    /// When it was drawn.
    pub drawn: Instant,
}

impl Ticket {
    /// The time until it rises next, by [`Order::Strict`].
    pub fn rises_in(self, now: Instant) -> Duration {
        let waited = now.saturating_duration_since(self.drawn).as_nanos() % RISES_EVERY.as_nanos();
        RISES_EVERY.saturating_sub(Duration::from_nanos(u64::try_from(waited).unwrap_or(0)))
    }
}

/// One of something for each class.
#[derive(Debug, Default)]
struct ByClass<T>([T; 6]);

impl<T> ByClass<T> {
    fn of(&self, class: Class) -> &T {
        let [user, redir, index, index_follow, follow, refresh] = &self.0;
        match class {
            Class::User => user,
            Class::Redir => redir,
            Class::Index => index,
            Class::IndexFollow => index_follow,
            Class::Follow => follow,
            Class::Refresh => refresh,
        }
    }

    fn of_mut(&mut self, class: Class) -> &mut T {
        let [user, redir, index, index_follow, follow, refresh] = &mut self.0;
        match class {
            Class::User => user,
            Class::Redir => redir,
            Class::Index => index,
            Class::IndexFollow => index_follow,
            Class::Follow => follow,
            Class::Refresh => refresh,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_moves_along_the_classes_and_not_past_the_ends() {
        for (class, by, moved) in [
            (Class::IndexFollow, -2, Class::Redir),
            (Class::IndexFollow, -1, Class::Index),
            (Class::IndexFollow, 0, Class::IndexFollow),
            (Class::IndexFollow, 1, Class::Follow),
            (Class::IndexFollow, 2, Class::Refresh),
            (Class::User, -2, Class::User),
            (Class::Redir, -2, Class::User),
            (Class::Follow, 2, Class::Refresh),
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
        for (place, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!((class as usize, class.above()), (place, above));
            above = Some(class);
        }
        assert_eq!(
            Class::ALL.iter().map(|class| class.weight()).sum::<u32>(),
            13_111
        );
    }

    #[test]
    fn a_ticket_says_when_it_rises() {
        let drawn = crate::clock::Clock::manual().0.now();
        let ticket = Ticket { number: 0, drawn };
        for (waited_ms, left_ms) in [
            (0, 30_000),
            (29_999, 1),
            (30_000, 30_000),
            (100_000, 20_000),
        ] {
            let left = ticket.rises_in(drawn + Duration::from_millis(waited_ms));
            assert_eq!(left, Duration::from_millis(left_ms), "{waited_ms}");
        }
    }
}
