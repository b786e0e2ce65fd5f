//! What is remembered for ten minutes: at most so many things, the oldest go first.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// For how long a thing is remembered.
const KEPT: Duration = Duration::from_secs(600);
/// How many are.
const MOST: usize = 10_000;

/// A value for each of the things that were noted last.
#[derive(Debug)]
pub(super) struct Recent<V> {
    hasher: RandomState,
    things: Mutex<Things<V>>,
    /// Nothing was noted yet, or all of it was forgotten; known without the lock.
    empty: AtomicBool,
}

#[derive(Debug)]
struct Things<V> {
    values: HashMap<u64, (V, Instant)>,
    /// In the order in which they were noted; one that was noted again, or taken since, is in here still.
    oldest: VecDeque<(u64, Instant)>,
}

/// A thing as one number: two that share one by chance are taken for each other, which must be harmless.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thing(u64);

impl<V: Copy> Recent<V> {
    pub(super) fn thing(&self, of: impl Hash) -> Thing {
        Thing(self.hasher.hash_one(of))
    }

    /// Remembers a value from now on, in place of an earlier one.
    pub(super) fn note(&self, thing: Thing, value: V, now: Instant) {
        let mut things = self.things();
        things.forget_old(now);
        self.empty.store(false, Ordering::Release);
        things.values.insert(thing.0, (value, now));
        things.oldest.push_back((thing.0, now));
    }

    /// What is remembered, once.
    pub(super) fn take(&self, thing: Thing, now: Instant) -> Option<V> {
        let mut things = self.things();
        things.forget_old(now);
        things.values.remove(&thing.0).map(|(value, _)| value)
    }

    /// What is remembered.
    pub(super) fn look_up(&self, thing: Thing, now: Instant) -> Option<V> {
        let mut things = self.things();
        things.forget_old(now);
        self.empty
            .store(things.values.is_empty(), Ordering::Release);
        things.values.get(&thing.0).map(|(value, _)| *value)
    }

    /// Whether nothing is remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.empty.load(Ordering::Acquire)
    }

    fn things(&self) -> MutexGuard<'_, Things<V>> {
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        let things = Things {
            values: HashMap::new(),
            oldest: VecDeque::new(),
        };
        Self {
            hasher: RandomState::new(),
            things: Mutex::new(things),
            empty: AtomicBool::new(true),
        }
    }
}

impl<V> Things<V> {
    fn forget_old(&mut self, now: Instant) {
        while let Some(front @ (thing, at)) = self.oldest.front().copied() {
            let stands = self.stands(front);
            if stands && self.values.len() < MOST && now.saturating_duration_since(at) < KEPT {
                break;
            }
            self.oldest.pop_front();
            if stands {
                self.values.remove(&thing);
            }
        }
        // Whoever notes one thing over and over must not crowd out the others.
        if self.oldest.len() >= 2 * MOST {
            let oldest = std::mem::take(&mut self.oldest);
            self.oldest = oldest
                .into_iter()
                .filter(|entry| self.stands(*entry))
                .collect();
        }
    }

    fn stands(&self, (thing, at): (u64, Instant)) -> bool {
        self.values
            .get(&thing)
            .is_some_and(|(_, noted)| *noted == at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_thing_is_remembered_for_ten_minutes_and_taken_once() {
        let ((clock, hand), recent) = (Clock::manual(), Recent::default());
        let thing = |name| recent.thing(name);
        recent.note(thing("a"), 1, clock.now());
        recent.note(thing("b"), 2, clock.now());
        assert_eq!(recent.take(thing("c"), clock.now()), None);
        assert_eq!(recent.take(thing("a"), clock.now()), Some(1));
        assert_eq!(recent.take(thing("a"), clock.now()), None);
        hand.advance(KEPT - Duration::from_secs(1));
        recent.note(thing("a"), 3, clock.now());
        assert!(!recent.is_empty());
        assert_eq!(recent.look_up(thing("b"), clock.now()), Some(2));
        hand.advance(Duration::from_secs(1));
        assert_eq!(recent.look_up(thing("b"), clock.now()), None);
        assert_eq!(recent.look_up(thing("a"), clock.now()), Some(3));
        assert_eq!(recent.take(thing("a"), clock.now()), Some(3));
        assert_eq!(
            (recent.look_up(thing("a"), clock.now()), recent.is_empty()),
            (None, true)
        );
    }

    #[test]
    fn no_more_than_so_many_are_remembered() {
        let ((clock, _hand), recent) = (Clock::manual(), Recent::default());
        for number in 0..2 * MOST as u64 {
            recent.note(Thing(number), number, clock.now());
        }
        assert!(recent.things().values.len() <= MOST && recent.things().oldest.len() <= 2 * MOST);
        assert_eq!(recent.take(Thing(0), clock.now()), None);
        let last = 2 * MOST as u64 - 1;
        assert_eq!(recent.take(Thing(last), clock.now()), Some(last));
    }

    #[test]
    fn what_is_noted_over_and_over_crowds_nothing_out() {
        let ((clock, hand), recent) = (Clock::manual(), Recent::default());
        recent.note(Thing(0), 7, clock.now());
        for _ in 0..5 * MOST {
            hand.advance(Duration::from_millis(1));
            recent.note(Thing(1), 1, clock.now());
        }
        assert!(recent.things().oldest.len() <= 2 * MOST);
        assert_eq!(recent.take(Thing(0), clock.now()), Some(7));
    }
}
