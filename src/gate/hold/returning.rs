//! Who was sent away keeps its place: a crawler that asks again for a URL within ten minutes stands where it stood.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::vocab::crawler::Crawler;

/// For how long a place is kept.
const KEPT: Duration = Duration::from_secs(600);
/// How many are kept; the oldest go first.
const MOST: usize = 10_000;

/// The places of those who were sent away, by crawler and URL.
#[derive(Debug, Default)]
pub(super) struct Returning {
    hasher: RandomState,
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    numbers: HashMap<u64, (u64, Instant)>,
    /// In the order in which they were sent away; a place that was taken up since is in here still.
    oldest: VecDeque<(u64, Instant)>,
}

/// Who asks for what, as one number: two that share one by chance only change places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who(u64);

impl Returning {
    pub(super) fn who(&self, crawler: &Crawler, url: &str) -> Who {
        Who(self.hasher.hash_one((crawler.as_str(), url)))
    }

    /// It is sent away.
    pub(super) fn keep(&self, who: Who, number: u64, now: Instant) {
        let mut places = self.places();
        places.forget_old(now);
        places.numbers.insert(who.0, (number, now));
        places.oldest.push_back((who.0, now));
    }

    /// It is here again: the number that it had.
    pub(super) fn take(&self, who: Who, now: Instant) -> Option<u64> {
        let mut places = self.places();
        places.forget_old(now);
        places.numbers.remove(&who.0).map(|(number, _)| number)
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    fn forget_old(&mut self, now: Instant) {
        while let Some((who, at)) = self.oldest.front().copied() {
            if self.oldest.len() < MOST && now.saturating_duration_since(at) < KEPT {
                return;
            }
            self.oldest.pop_front();
            if self.numbers.get(&who).is_some_and(|(_, kept)| *kept == at) {
                self.numbers.remove(&who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_place_is_kept_once_and_for_ten_minutes() {
        let ((clock, hand), returning) = (Clock::manual(), Returning::default());
        let who = |url| returning.who(&Crawler::anonymous(), url);
        returning.keep(who("a"), 1, clock.now());
        returning.keep(who("b"), 2, clock.now());
        assert_eq!(returning.take(who("c"), clock.now()), None);
        assert_eq!(returning.take(who("a"), clock.now()), Some(1));
        assert_eq!(returning.take(who("a"), clock.now()), None);
        hand.advance(KEPT - Duration::from_secs(1));
        returning.keep(who("a"), 3, clock.now());
        hand.advance(Duration::from_secs(1));
        assert_eq!(returning.take(who("b"), clock.now()), None);
        assert_eq!(returning.take(who("a"), clock.now()), Some(3));
    }

    #[test]
    fn no_more_than_so_many_are_kept() {
        let ((clock, _hand), returning) = (Clock::manual(), Returning::default());
        for number in 0..2 * MOST as u64 {
            returning.keep(Who(number), number, clock.now());
        }
        assert!(returning.places().numbers.len() <= MOST && returning.places().oldest.len() <= MOST);
        assert_eq!(returning.take(Who(0), clock.now()), None);
        let last = 2 * MOST as u64 - 1;
        assert_eq!(returning.take(Who(last), clock.now()), Some(last));
    }
}
