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

use crate::ledger::key::LedgerKey;

/// Layers: the first one doubled so often is more than any disk has.
const MAX_LAYERS: usize = 24;
/// Keys that the first layer has room for, at least.
const FIRST_LAYER_KEYS: usize = 1 << 17;
/// Bits for a key; it sets [`SET_BITS`] of a word's, at most.
const BITS_PER_KEY: usize = 16;
const SET_BITS: u32 = 4;

/// What is known not to be there: neither in memory nor in the tables.
pub(super) struct KeyFilter {
    layers: [OnceLock<FilterLayer>; MAX_LAYERS],
    /// The layer that takes keys.
    active_layer: AtomicUsize,
    /// Every key of the tables is in it.
    complete: AtomicBool,
}

struct FilterLayer {
    words: Box<[AtomicU64]>,
    capacity: usize,
    used: AtomicUsize,
}

impl KeyFilter {
    /// Without a key. If the tables have some, about so many, it says nothing until it was told of all of them.
    pub(super) fn new(keys: usize) -> Self {
        let filter = Self {
            layers: [const { OnceLock::new() }; MAX_LAYERS],
            active_layer: AtomicUsize::new(0),
            complete: AtomicBool::new(keys == 0),
        };
        filter.init_layer(0, keys.saturating_add(keys / 4).max(FIRST_LAYER_KEYS));
        filter
    }

    /// Whether there is no record with this key for certain.
    pub(super) fn is_absent(&self, key: LedgerKey) -> bool {
        self.complete.load(Ordering::Acquire) && !self.may_contain(key)
    }

    fn may_contain(&self, key: LedgerKey) -> bool {
        let used = self
            .layers
            .iter()
            .take(self.active_layer.load(Ordering::Acquire) + 1);
        used.filter_map(OnceLock::get)
            .any(|layer| layer.may_contain(key))
    }

    /// There is a record with this key from now on; says whether there was none for certain. One that may be there takes
    /// no more room, however often it is written.
    pub(super) fn insert(&self, key: LedgerKey) -> bool {
        // First: if the filter was told of every key of the tables by now, the look behind this sees them all.
        let whole = self.complete.load(Ordering::Acquire);
        if self.may_contain(key) {
            return false;
        }
        let last = self.active_layer.load(Ordering::Acquire);
        let Some(layer) = self
            .layers
            .iter()
            .take(last + 1)
            .filter_map(OnceLock::get)
            .last()
        else {
            return whole;
        };
        layer.insert(key);
        // About so many: what others count between the two is forgotten. A layer that takes more errs more often.
        let taken = layer.used.load(Ordering::Relaxed) + 1;
        layer.used.store(taken, Ordering::Relaxed);
        if taken >= layer.capacity && last + 1 < MAX_LAYERS {
            self.init_layer(last + 1, layer.capacity.saturating_mul(2));
            self.active_layer.fetch_max(last + 1, Ordering::AcqRel);
        }
        whole
    }

    /// Makes the next layer before it is needed: a large one takes its time, which is not a request's.
    pub(super) fn prepare_next_layer(&self) {
        let last = self.active_layer.load(Ordering::Acquire);
        let Some(layer) = self.layers.get(last).and_then(OnceLock::get) else {
            return;
        };
        if layer.used.load(Ordering::Relaxed) > layer.capacity / 4 * 3 {
            self.init_layer(last + 1, layer.capacity.saturating_mul(2));
        }
    }

    /// It was told of all keys that the tables had.
    pub(super) fn set_complete(&self) {
        self.complete.store(true, Ordering::Release);
    }

    fn init_layer(&self, at: usize, room: usize) {
        if let Some(layer) = self.layers.get(at) {
            layer.get_or_init(|| FilterLayer::new(room));
        }
    }
}

impl FilterLayer {
    fn new(room: usize) -> Self {
        let words = room.saturating_mul(BITS_PER_KEY).div_ceil(64).max(1);
        let words = std::iter::repeat_with(AtomicU64::default)
            .take(words)
            .collect();
        Self {
            words,
            capacity: room,
            used: AtomicUsize::new(0),
        }
    }

    /// Words in the order of keys; none is never met.
    fn word(&self, key: LedgerKey) -> Option<&AtomicU64> {
        let place = (u128::from(split_key(key).0) * self.words.len() as u128) >> 64;
        self.words.get(usize::try_from(place).ok()?)
    }

    fn may_contain(&self, key: LedgerKey) -> bool {
        let bits = bit_mask(key);
        self.word(key)
            .is_none_or(|word| word.load(Ordering::Relaxed) & bits == bits)
    }

    fn insert(&self, key: LedgerKey) {
        self.word(key)
            .map(|word| word.fetch_or(bit_mask(key), Ordering::Relaxed));
    }
}

/// Which bits of its word are a key's.
fn bit_mask(key: LedgerKey) -> u64 {
    let second = split_key(key).1;
    (0..SET_BITS).fold(0, |bits, n| bits | 1 << ((second >> (6 * n)) & 63))
}

/// The first chooses the word, the second the bits.
fn split_key(key: LedgerKey) -> (u64, u64) {
    let number = u128::from_be_bytes(key.0);
    ((number >> 64) as u64, number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> LedgerKey {
        LedgerKey::for_url("news", &format!("http://h.test/{n}"))
    }

    #[test]
    fn what_was_put_in_is_never_lacked_and_little_else_is_not() {
        let filter = KeyFilter::new(0);
        // Two layers more.
        let keys = FIRST_LAYER_KEYS * 5;
        let taken = (0..keys).filter(|n| filter.insert(key(*n))).count();
        assert!(taken > keys - keys / 30, "{taken} of {keys} new ones");
        // Written again and again.
        (0..10).for_each(|_| assert!((0..keys).all(|n| !filter.insert(key(n)))));
        let layers = || filter.layers.iter().map_while(OnceLock::get).count();
        // The third has room for four times as many as the first, and took twice as many.
        filter.prepare_next_layer();
        assert_eq!(layers(), 3);
        assert!(
            (keys..keys + 2 * FIRST_LAYER_KEYS)
                .filter(|n| filter.insert(key(*n)))
                .count()
                > FIRST_LAYER_KEYS
        );
        filter.prepare_next_layer();
        assert_eq!(
            (layers(), filter.active_layer.load(Ordering::Relaxed)),
            (4, 2),
            "one to come"
        );
        let keys = keys + 2 * FIRST_LAYER_KEYS;
        assert!((0..keys).all(|n| !filter.is_absent(key(n))));
        let wrong = (keys..keys + 100_000)
            .filter(|n| !filter.is_absent(key(*n)))
            .count();
        // Each layer errs for itself.
        assert!(wrong < 3_000, "{wrong} of 100,000 are taken for known");
    }

    #[test]
    fn nothing_is_lacked_before_every_key_is_there() {
        let filter = KeyFilter::new(2);
        assert!(!filter.insert(key(1)), "the tables may have had it");
        assert!(!filter.is_absent(key(9)));
        filter.insert(key(2));
        filter.set_complete();
        assert!(filter.insert(key(3)) && !filter.insert(key(3)));
        assert!(filter.is_absent(key(9)) && !filter.is_absent(key(1)) && !filter.is_absent(key(2)));
    }
}
