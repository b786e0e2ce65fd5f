//! A table by name that many threads share: cut into shards, each with a lock of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

/// Many more than there are threads that could meet in one.
pub const SHARDS: usize = 64;

/// One shard.
pub type Shard<V> = HashMap<Arc<str>, V, RandomState>;

/// The table.
#[derive(Debug)]
pub struct Shards<V>(Box<[Mutex<Shard<V>>; SHARDS]>);

impl<V> Shards<V> {
    /// An empty table.
    pub fn new() -> Self {
        Self(Box::new([(); SHARDS].map(|()| Mutex::default())))
    }

    /// The shard in which a name is, locked.
    pub fn of(&self, name: &str) -> MutexGuard<'_, Shard<V>> {
        let [first, ..] = &*self.0;
        lock(self.0.get(place(name)).unwrap_or(first))
    }

    /// The values of one shard, which is locked only while they are cloned; in no order.
    #[allow(clippy::disallowed_methods, reason = "who asks puts them in order")]
    pub fn values_of(&self, shard: usize) -> Vec<V>
    where
        V: Clone,
    {
        self.0
            .get(shard)
            .map_or_else(Vec::new, |shard| lock(shard).values().cloned().collect())
    }

    /// Every shard, locked one after the other.
    pub fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Shard<V>>> {
        self.0.iter().map(lock)
    }
}

impl<V> Default for Shards<V> {
    fn default() -> Self {
        Self::new()
    }
}

/// Gives memory back once a shard has become much smaller than it was.
pub fn shrink<V>(shard: &mut Shard<V>) {
    let len = shard.len();
    if len < shard.capacity() / 8 {
        shard.shrink_to(2 * len);
    }
}

/// What is written under these locks is whole whenever anything could panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The map within a shard has a hash with a seed of this process, which nobody is told; here a poor spread costs only
/// waiting.
fn place(name: &str) -> usize {
    usize::try_from(mixed(name) % SHARDS as u64).unwrap_or(0)
}

/// A name as a number; the same on every machine.
pub(super) fn mixed(name: &str) -> u64 {
    let mut sum = 0_u64;
    for chunk in name.as_bytes().chunks(8) {
        let mut word = [0; 8];
        word.iter_mut()
            .zip(chunk)
            .for_each(|(to, from)| *to = *from);
        sum = (sum ^ u64::from_le_bytes(word))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(31);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_look_alike_are_spread() {
        let mut filled = [0; SHARDS];
        for host in 0..6_400 {
            filled[place(&format!("www{host}.example.com"))] += 1;
        }
        assert!(
            filled.iter().all(|count| (50..200).contains(count)),
            "{filled:?}"
        );
    }
}
