//! Which keys the ledger does not have, told without a look at its tables: most URLs of a crawl are new, and a table is
//! a walk down a tree.
//!
//! Bloom filters in blocks of one word ("Cache-, Hash- and Space-Efficient Bloom Filters", Putze, Sanders and Singler
//! 2007): a look is one load a layer, and of keys that are not there a full layer takes about one in two hundred for one
//! that may be. A key is a hash already; its first bits choose the word, so that keys in their order are written through
//! memory once. When a layer is full, a new one of twice its size takes over. What was forgotten stays in it until the
//! next start.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::ledger::key::Key;

/// Layers: the first one doubled so often is more than any disk has.
const LAYERS: usize = 24;
/// Keys that the first layer has room for, at least.
const FIRST: usize = 1 << 17;
/// Bits for a key; it sets [`SET`] of a word's, at most.
const BITS: usize = 16;
const SET: u32 = 4;

/// What is known not to be there: neither in memory nor in the tables.
pub(super) struct Filter {
    layers: [OnceLock<Layer>; LAYERS],
    /// The layer that takes keys.
    last: AtomicUsize,
    /// Every key of the tables is in it.
    whole: AtomicBool,
}

struct Layer {
    words: Box<[AtomicU64]>,
    room: usize,
    taken: AtomicUsize,
}

impl Filter {
    /// Without a key. If the tables have some, about so many, it says nothing until it was told of all of them.
    pub(super) fn new(keys: usize) -> Self {
        let filter = Self {
            layers: [const { OnceLock::new() }; LAYERS],
            last: AtomicUsize::new(0),
            whole: AtomicBool::new(keys == 0),
        };
        filter.layer(0, keys.saturating_add(keys / 4).max(FIRST));
        filter
    }

    /// Whether there is no record with this key for certain.
    pub(super) fn lacks(&self, key: Key) -> bool {
        self.whole.load(Ordering::Acquire) && !self.may_have(key)
    }

    fn may_have(&self, key: Key) -> bool {
        let used = self
            .layers
            .iter()
            .take(self.last.load(Ordering::Acquire) + 1);
        used.filter_map(OnceLock::get)
            .any(|layer| layer.may_have(key))
    }

    /// There is a record with this key from now on; says whether there was none for certain. One that may be there takes
    /// no more room, however often it is written.
    pub(super) fn insert(&self, key: Key) -> bool {
        // First: if the filter was told of every key of the tables by now, the look behind this sees them all.
        let whole = self.whole.load(Ordering::Acquire);
        if self.may_have(key) {
            return false;
        }
        let last = self.last.load(Ordering::Acquire);
        let Some(layer) = self
            .layers
            .iter()
            .take(last + 1)
            .filter_map(OnceLock::get)
            .last()
        else {
            return whole;
        };
        layer.put(key);
        // About so many: what others count between the two is forgotten. A layer that takes more errs more often.
        let taken = layer.taken.load(Ordering::Relaxed) + 1;
        layer.taken.store(taken, Ordering::Relaxed);
        if taken >= layer.room && last + 1 < LAYERS {
            self.layer(last + 1, layer.room.saturating_mul(2));
            self.last.fetch_max(last + 1, Ordering::AcqRel);
        }
        whole
    }

    /// Makes the next layer before it is needed: a large one takes its time, which is not a request's.
    pub(super) fn make_room(&self) {
        let last = self.last.load(Ordering::Acquire);
        let Some(layer) = self.layers.get(last).and_then(OnceLock::get) else {
            return;
        };
        if layer.taken.load(Ordering::Relaxed) > layer.room / 4 * 3 {
            self.layer(last + 1, layer.room.saturating_mul(2));
        }
    }

    /// It was told of all keys that the tables had.
    pub(super) fn is_whole(&self) {
        self.whole.store(true, Ordering::Release);
    }

    fn layer(&self, at: usize, room: usize) {
        if let Some(layer) = self.layers.get(at) {
            layer.get_or_init(|| Layer::new(room));
        }
    }
}

impl Layer {
    fn new(room: usize) -> Self {
        let words = room.saturating_mul(BITS).div_ceil(64).max(1);
        let words = std::iter::repeat_with(AtomicU64::default)
            .take(words)
            .collect();
        Self {
            words,
            room,
            taken: AtomicUsize::new(0),
        }
    }

    /// Words in the order of keys; none is never met.
    fn word(&self, key: Key) -> Option<&AtomicU64> {
        let place = (u128::from(halves(key).0) * self.words.len() as u128) >> 64;
        self.words.get(usize::try_from(place).ok()?)
    }

    fn may_have(&self, key: Key) -> bool {
        let bits = bits(key);
        self.word(key)
            .is_none_or(|word| word.load(Ordering::Relaxed) & bits == bits)
    }

    fn put(&self, key: Key) {
        self.word(key)
            .map(|word| word.fetch_or(bits(key), Ordering::Relaxed));
    }
}

/// Which bits of its word are a key's.
fn bits(key: Key) -> u64 {
    let second = halves(key).1;
    (0..SET).fold(0, |bits, n| bits | 1 << ((second >> (6 * n)) & 63))
}

/// The first chooses the word, the second the bits.
fn halves(key: Key) -> (u64, u64) {
    let number = u128::from_be_bytes(key.0);
    ((number >> 64) as u64, number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> Key {
        Key::of_url("news", &format!("http://h.test/{n}"))
    }

    #[test]
    fn what_was_put_in_is_never_lacked_and_little_else_is_not() {
        let filter = Filter::new(0);
        // Two layers more.
        let keys = FIRST * 5;
        let taken = (0..keys).filter(|n| filter.insert(key(*n))).count();
        assert!(taken > keys - keys / 30, "{taken} of {keys} new ones");
        // Written again and again.
        (0..10).for_each(|_| assert!((0..keys).all(|n| !filter.insert(key(n)))));
        let layers = || filter.layers.iter().map_while(OnceLock::get).count();
        // The third has room for four times as many as the first, and took twice as many.
        filter.make_room();
        assert_eq!(layers(), 3);
        assert!(
            (keys..keys + 2 * FIRST)
                .filter(|n| filter.insert(key(*n)))
                .count()
                > FIRST
        );
        filter.make_room();
        assert_eq!(
            (layers(), filter.last.load(Ordering::Relaxed)),
            (4, 2),
            "one to come"
        );
        let keys = keys + 2 * FIRST;
        assert!((0..keys).all(|n| !filter.lacks(key(n))));
        let wrong = (keys..keys + 100_000)
            .filter(|n| !filter.lacks(key(*n)))
            .count();
        // Each layer errs for itself.
        assert!(wrong < 3_000, "{wrong} of 100,000 are taken for known");
    }

    #[test]
    fn nothing_is_lacked_before_every_key_is_there() {
        let filter = Filter::new(2);
        assert!(!filter.insert(key(1)), "the tables may have had it");
        assert!(!filter.lacks(key(9)));
        filter.insert(key(2));
        filter.is_whole();
        assert!(filter.insert(key(3)) && !filter.insert(key(3)));
        assert!(filter.lacks(key(9)) && !filter.lacks(key(1)) && !filter.lacks(key(2)));
    }
}
