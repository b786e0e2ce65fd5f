//! A map whose entries expire after ten minutes, of limited size: the oldest entries are dropped first.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

/// The lifetime of an entry.
const TTL: Duration = Duration::from_secs(600);
/// The maximum number of entries.
const CAPACITY: usize = 10_000;

/// The values of the keys that were inserted last.
#[derive(Debug)]
pub(super) struct RecentMap<V> {
    hasher: RandomState,
    entries: Mutex<RecentEntries<V>>,
    /// `true` if there are no entries; readable without the lock.
    empty: AtomicBool,
}

#[derive(Debug)]
struct RecentEntries<V> {
    values: HashMap<u64, (V, Instant)>,
    /// The keys in the order of insertion, including those that were inserted again or taken since.
    by_age: VecDeque<(u64, Instant)>,
}

/// A hashed key. Two keys with the same hash are mistaken for each other, which must be harmless.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecentKey(u64);

impl<V: Copy> RecentMap<V> {
    pub(super) fn key(&self, value: impl Hash) -> RecentKey {
        RecentKey(self.hasher.hash_one(value))
    }

    /// Inserts a value, in place of an earlier one.
    pub(super) fn insert(&self, key: RecentKey, value: V, now: Instant) {
        let mut entries = self.lock();
        entries.evict_expired(now);
        self.empty.store(false, Ordering::Release);
        entries.values.insert(key.0, (value, now));
        entries.by_age.push_back((key.0, now));
    }

    /// Removes and returns a value.
    pub(super) fn take(&self, key: RecentKey, now: Instant) -> Option<V> {
        let mut entries = self.lock();
        entries.evict_expired(now);
        entries.values.remove(&key.0).map(|(value, _)| value)
    }

    /// Returns a value.
    pub(super) fn get(&self, key: RecentKey, now: Instant) -> Option<V> {
        let mut entries = self.lock();
        entries.evict_expired(now);
        self.empty
            .store(entries.values.is_empty(), Ordering::Release);
        entries.values.get(&key.0).map(|(value, _)| *value)
    }

    /// Returns `true` if there are no entries.
    pub(super) fn is_empty(&self) -> bool {
        self.empty.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, RecentEntries<V>> {
        self.entries.lock()
    }
}

impl<V> Default for RecentMap<V> {
    fn default() -> Self {
        let entries = RecentEntries {
            values: HashMap::new(),
            by_age: VecDeque::new(),
        };
        Self {
            hasher: RandomState::new(),
            entries: Mutex::new(entries),
            empty: AtomicBool::new(true),
        }
    }
}

impl<V> RecentEntries<V> {
    fn evict_expired(&mut self, now: Instant) {
        while let Some(front @ (thing, at)) = self.by_age.front().copied() {
            let is_current = self.is_current(front);
            if is_current && self.values.len() < CAPACITY && now.saturating_duration_since(at) < TTL
            {
                break;
            }
            self.by_age.pop_front();
            if is_current {
                self.values.remove(&thing);
            }
        }
        // A key that is inserted over and over must not displace the others.
        if self.by_age.len() >= 2 * CAPACITY {
            let oldest = std::mem::take(&mut self.by_age);
            self.by_age = oldest
                .into_iter()
                .filter(|entry| self.is_current(*entry))
                .collect();
        }
    }

    fn is_current(&self, (thing, at): (u64, Instant)) -> bool {
        self.values
            .get(&thing)
            .is_some_and(|(_, recorded_at)| *recorded_at == at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn an_entry_is_remembered_for_ten_minutes_and_taken_once() {
        let ((clock, control), recent) = (Clock::manual(), RecentMap::default());
        let key = |name| recent.key(name);
        recent.insert(key("a"), 1, clock.now());
        recent.insert(key("b"), 2, clock.now());
        assert_eq!(recent.take(key("c"), clock.now()), None);
        assert_eq!(recent.take(key("a"), clock.now()), Some(1));
        assert_eq!(recent.take(key("a"), clock.now()), None);
        control.advance(TTL - Duration::from_secs(1));
        recent.insert(key("a"), 3, clock.now());
        assert!(!recent.is_empty());
        assert_eq!(recent.get(key("b"), clock.now()), Some(2));
        control.advance(Duration::from_secs(1));
        assert_eq!(recent.get(key("b"), clock.now()), None);
        assert_eq!(recent.get(key("a"), clock.now()), Some(3));
        assert_eq!(recent.take(key("a"), clock.now()), Some(3));
        assert_eq!(
            (recent.get(key("a"), clock.now()), recent.is_empty()),
            (None, true)
        );
    }

    #[test]
    fn the_number_of_entries_is_limited() {
        let ((clock, _control), recent) = (Clock::manual(), RecentMap::default());
        for number in 0..2 * CAPACITY as u64 {
            recent.insert(RecentKey(number), number, clock.now());
        }
        assert!(
            recent.lock().values.len() <= CAPACITY && recent.lock().by_age.len() <= 2 * CAPACITY
        );
        assert_eq!(recent.take(RecentKey(0), clock.now()), None);
        let last = 2 * CAPACITY as u64 - 1;
        assert_eq!(recent.take(RecentKey(last), clock.now()), Some(last));
    }

    #[test]
    fn a_repeated_entry_does_not_evict_others() {
        let ((clock, control), recent) = (Clock::manual(), RecentMap::default());
        recent.insert(RecentKey(0), 7, clock.now());
        for _ in 0..5 * CAPACITY {
            control.advance(Duration::from_millis(1));
            recent.insert(RecentKey(1), 1, clock.now());
        }
        assert!(recent.lock().by_age.len() <= 2 * CAPACITY);
        assert_eq!(recent.take(RecentKey(0), clock.now()), Some(7));
    }
}
