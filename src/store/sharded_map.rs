//! A map by name that is shared by many threads, divided into shards with a lock each.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};

/// The number of shards; many more than there are threads that could contend for one.
pub const SHARD_COUNT: usize = 64;

/// The entries of one shard.
pub type MapShard<V> = HashMap<Arc<str>, V, RandomState>;

#[derive(Debug)]
pub struct ShardedMap<V>(Box<[Mutex<MapShard<V>>; SHARD_COUNT]>);

impl<V> ShardedMap<V> {
    /// Creates an empty map.
    pub fn new() -> Self {
        Self(Box::new([(); SHARD_COUNT].map(|()| Mutex::default())))
    }

    /// Returns the locked shard of a name.
    pub fn lock_shard(&self, name: &str) -> MutexGuard<'_, MapShard<V>> {
        let [first, ..] = &*self.0;
        self.0.get(shard_index(name)).unwrap_or(first).lock()
    }

    /// Returns the values of one shard, in no order. The shard is locked only while they are cloned.
    #[allow(clippy::disallowed_methods, reason = "the caller sorts them")]
    pub fn shard_values(&self, shard: usize) -> Vec<V>
    where
        V: Clone,
    {
        self.0
            .get(shard)
            .map_or_else(Vec::new, |shard| shard.lock().values().cloned().collect())
    }

    /// Iterates over the shards, locking one after the other.
    pub fn lock_each(&self) -> impl Iterator<Item = MutexGuard<'_, MapShard<V>>> {
        self.0.iter().map(Mutex::lock)
    }
}

impl<V> Default for ShardedMap<V> {
    fn default() -> Self {
        Self::new()
    }
}

/// Releases memory once a shard has become much smaller than it was.
pub fn shrink_if_sparse<V>(shard: &mut MapShard<V>) {
    let len = shard.len();
    if len < shard.capacity() / 8 {
        shard.shrink_to(2 * len);
    }
}

/// Selects the shard. The map within a shard hashes with a random seed of the process; here a poor
/// distribution only causes contention.
fn shard_index(name: &str) -> usize {
    usize::try_from(hash_name(name) % SHARD_COUNT as u64).unwrap_or(0)
}

/// Returns a hash of a name that is the same on every machine.
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
