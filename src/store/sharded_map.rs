//! A table by name that many threads share: cut into shards, each with a lock of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

/// Many more than there are threads that could meet in one.
pub const SHARD_COUNT: usize = 64;

/// One shard.
pub type MapShard<V> = HashMap<Arc<str>, V, RandomState>;

/// The table.
#[derive(Debug)]
pub struct ShardedMap<V>(Box<[Mutex<MapShard<V>>; SHARD_COUNT]>);

impl<V> ShardedMap<V> {
    /// An empty table.
    pub fn new() -> Self {
        Self(Box::new([(); SHARD_COUNT].map(|()| Mutex::default())))
    }

    /// The shard in which a name is, locked.
    pub fn lock_shard(&self, name: &str) -> MutexGuard<'_, MapShard<V>> {
        let [first, ..] = &*self.0;
        lock(self.0.get(shard_index(name)).unwrap_or(first))
    }

    /// The values of one shard, which is locked only while they are cloned; in no order.
    #[allow(clippy::disallowed_methods, reason = "who asks puts them in order")]
    pub fn shard_values(&self, shard: usize) -> Vec<V>
    where
        V: Clone,
    {
        self.0
            .get(shard)
            .map_or_else(Vec::new, |shard| lock(shard).values().cloned().collect())
    }

    /// Every shard, locked one after the other.
    pub fn lock_each(&self) -> impl Iterator<Item = MutexGuard<'_, MapShard<V>>> {
        self.0.iter().map(lock)
    }
}

impl<V> Default for ShardedMap<V> {
    fn default() -> Self {
        Self::new()
    }
}

/// Gives memory back once a shard has become much smaller than it was.
pub fn shrink_if_sparse<V>(shard: &mut MapShard<V>) {
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
fn shard_index(name: &str) -> usize {
    usize::try_from(hash_name(name) % SHARD_COUNT as u64).unwrap_or(0)
}

/// A name as a number; the same on every machine.
pub(super) fn hash_name(name: &str) -> u64 {
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
        let mut filled = [0; SHARD_COUNT];
        for host in 0..6_400 {
            filled[shard_index(&format!("www{host}.example.com"))] += 1;
        }
        assert!(
            filled.iter().all(|count| (50..200).contains(count)),
            "{filled:?}"
        );
    }
}
