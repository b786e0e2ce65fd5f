//! A filter that recognizes keys without a record, so that a new URL needs no lookup in the tables: most
//! URLs of a crawl are new, and a lookup walks down a tree.
//!
//! Bloom filters in blocks of one word ("Cache-, Hash- and Space-Efficient Bloom Filters", Putze,
//! Sanders and Singler 2007): a lookup is one load per layer, and a full layer reports about one absent
//! key in two hundred as possibly present. A key is a hash already. Its first bits select the word, so
//! lookups in key order read memory sequentially. A full layer is followed by one of twice its size. Deleted keys
//! stay until the next start.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::ledger::key::LedgerKey;

/// The maximum number of layers; the first one doubled that often is larger than any disk.
const MAX_LAYERS: usize = 24;
/// The minimum number of keys that the first layer has room for.
const FIRST_LAYER_KEYS: usize = 1 << 17;
/// Bits per key; a key sets at most [`SET_BITS`] of them in its word.
const BITS_PER_KEY: usize = 16;
const SET_BITS: u32 = 4;

/// A filter that proves that a key is neither in memory nor in the tables.
pub(super) struct KeyFilter {
    layers: [OnceLock<FilterLayer>; MAX_LAYERS],
    /// The layer to which keys are added.
    active_layer: AtomicUsize,
    /// `true` once every key of the tables has been added.
    complete: AtomicBool,
}

struct FilterLayer {
    words: Box<[AtomicU64]>,
    capacity: usize,
    used: AtomicUsize,
}

impl KeyFilter {
    /// Creates an empty filter. If the tables already have keys (about this many), every key may be
    /// present until all of them have been added.
    pub(super) fn new(keys: usize) -> Self {
        let filter = Self {
            layers: [const { OnceLock::new() }; MAX_LAYERS],
            active_layer: AtomicUsize::new(0),
            complete: AtomicBool::new(keys == 0),
        };
        filter.init_layer(0, keys.saturating_add(keys / 4).max(FIRST_LAYER_KEYS));
        filter
    }

    /// Returns `true` if there is certainly no record with this key.
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

    /// Adds a key, and returns `true` if it was certainly absent. A key that may be present uses no
    /// more room, however often it is added.
    pub(super) fn insert(&self, key: LedgerKey) -> bool {
        // Read first: if the filter is complete by now, the check below sees every key of the tables.
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
        // An approximate count: increments from other threads may be lost in between. A layer that takes
        // more keys has more false positives.
        let taken = layer.used.load(Ordering::Relaxed) + 1;
        layer.used.store(taken, Ordering::Relaxed);
        if taken >= layer.capacity && last + 1 < MAX_LAYERS {
            self.init_layer(last + 1, layer.capacity.saturating_mul(2));
            self.active_layer.fetch_max(last + 1, Ordering::AcqRel);
        }
        whole
    }

    /// Allocates the next layer before it is needed. A large one takes a while, which should not delay
    /// a request.
    pub(super) fn prepare_next_layer(&self) {
        let last = self.active_layer.load(Ordering::Acquire);
        let Some(layer) = self.layers.get(last).and_then(OnceLock::get) else {
            return;
        };
        if layer.used.load(Ordering::Relaxed) > layer.capacity / 4 * 3 {
            self.init_layer(last + 1, layer.capacity.saturating_mul(2));
        }
    }

    /// Marks the filter as complete: every key of the tables has been added.
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

    /// Returns the word of a key. The words are in key order, and there is always at least one.
    fn word(&self, key: LedgerKey) -> Option<&AtomicU64> {
        let word_index = (u128::from(split_key(key).0) * self.words.len() as u128) >> 64;
        self.words.get(usize::try_from(word_index).ok()?)
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

/// Returns the bits of its word that a key sets.
fn bit_mask(key: LedgerKey) -> u64 {
    let second = split_key(key).1;
    (0..SET_BITS).fold(0, |bits, n| bits | 1 << ((second >> (6 * n)) & 63))
}

/// Returns two halves of a key: one selects the word, the other the bits.
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
    fn inserted_keys_are_never_absent_and_few_others_are_present() {
        let filter = KeyFilter::new(0);
        // Two more layers.
        let keys = FIRST_LAYER_KEYS * 5;
        let taken = (0..keys).filter(|n| filter.insert(key(*n))).count();
        assert!(taken > keys - keys / 30, "{taken} of {keys} new ones");
        // Repeated inserts take no room.
        (0..10).for_each(|_| assert!((0..keys).all(|n| !filter.insert(key(n)))));
        let layers = || filter.layers.iter().map_while(OnceLock::get).count();
        // The third layer has room for four times as many keys as the first, and has taken twice as many.
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
            "a layer in reserve"
        );
        let keys = keys + 2 * FIRST_LAYER_KEYS;
        assert!((0..keys).all(|n| !filter.is_absent(key(n))));
        let wrong = (keys..keys + 100_000)
            .filter(|n| !filter.is_absent(key(*n)))
            .count();
        // Each layer has false positives of its own.
        assert!(wrong < 3_000, "{wrong} of 100,000 are taken for known");
    }

    #[test]
    fn no_key_is_absent_before_the_filter_is_complete() {
        let filter = KeyFilter::new(2);
        assert!(!filter.insert(key(1)), "the tables may have had it");
        assert!(!filter.is_absent(key(9)));
        filter.insert(key(2));
        filter.set_complete();
        assert!(filter.insert(key(3)) && !filter.insert(key(3)));
        assert!(filter.is_absent(key(9)) && !filter.is_absent(key(1)) && !filter.is_absent(key(2)));
    }
}
