//! Compact storage of many short texts: one buffer with all of them, and the offsets of their ends.
//!
//! A list may have a million items. A box for each would take twice the memory and a million
//! allocations. [`TextSet`] and [`SortedTexts`] add lookups.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

/// The maximum total size of a list's items, since offsets have 32 bits.
pub const MAX_BYTES: usize = u32::MAX as usize;

/// Texts in one buffer.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PackedTexts {
    buffer: String,
    ends: Vec<u32>,
}

impl PackedTexts {
    /// Creates storage with capacity for `count` texts with `bytes` in total.
    pub fn with_capacity(count: usize, bytes: usize) -> Self {
        Self {
            buffer: String::with_capacity(bytes),
            ends: Vec::with_capacity(count),
        }
    }

    /// Adds a text. Returns `false` if there is no room ([`MAX_BYTES`]).
    #[must_use]
    pub fn push(&mut self, text: &str) -> bool {
        let end = self
            .buffer
            .len()
            .checked_add(text.len())
            .and_then(|end| u32::try_from(end).ok());
        if let Some(end) = end {
            self.buffer.push_str(text);
            self.ends.push(end);
        }
        end.is_some()
    }

    /// Returns the text with this index.
    pub fn get(&self, at: usize) -> Option<&str> {
        let to = *self.ends.get(at)?;
        let from = at
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .map_or(0, |end| *end);
        self.buffer.get(from as usize..to as usize)
    }

    /// The number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns `true` if there are no texts.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The texts, in the order of insertion.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    /// Releases unused capacity.
    fn shrink_to_fit(&mut self) {
        self.buffer.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

impl fmt::Debug for PackedTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} texts of {} bytes", self.len(), self.buffer.len())
    }
}

/// A set of texts for exact lookups: an open-addressing hash table of indexes, at most half full.
#[derive(Clone)]
pub struct TextSet {
    texts: PackedTexts,
    /// An index in `texts` plus one, or 0.
    slots: Box<[u32]>,
    hasher: RandomState,
}

/// Compares the items, regardless of their order.
impl PartialEq for TextSet {
    fn eq(&self, other: &Self) -> bool {
        self.texts.iter().all(|text| other.contains(text))
            && other.texts.iter().all(|text| self.contains(text))
    }
}

impl TextSet {
    /// Creates a set. Duplicates count once.
    pub fn new(mut texts: PackedTexts) -> Self {
        texts.shrink_to_fit();
        let slot_count = (texts.len() * 2).next_power_of_two().max(2);
        let mut set = Self {
            texts,
            slots: vec![0; slot_count].into(),
            hasher: RandomState::new(),
        };
        for at in 0..set.texts.len() {
            set.insert_slot(at);
        }
        set
    }

    /// Returns `true` if a text is in the set.
    pub fn contains(&self, text: &str) -> bool {
        self.find(text).is_ok()
    }

    /// Returns the index of a text in [`Self::texts`]; of duplicates the first.
    pub fn position(&self, text: &str) -> Option<usize> {
        self.find(text).ok()
    }

    /// Returns `true` if a host is in the set or a subdomain of one that is. Takes one lookup per
    /// label.
    pub fn has_parent_of(&self, host: &str) -> bool {
        let mut rest = host;
        loop {
            if self.contains(rest) {
                return true;
            }
            match rest.split_once('.') {
                Some((_, parent)) => rest = parent,
                None => return false,
            }
        }
    }

    /// The texts, including duplicates.
    pub fn texts(&self) -> &PackedTexts {
        &self.texts
    }

    fn insert_slot(&mut self, at: usize) {
        let Some(Err(free)) = self.texts.get(at).map(|text| self.find(text)) else {
            return;
        };
        if let (Some(slot), Ok(number)) = (self.slots.get_mut(free), u32::try_from(at + 1)) {
            *slot = number;
        }
    }

    /// Returns the index of a text, or the free slot at which the search ended if it is missing.
    fn find(&self, text: &str) -> Result<usize, usize> {
        let mask = self.slots.len() - 1;
        let hash = self.hasher.hash_one(text.as_bytes());
        // The lower half of a hash suffices for the maximum number of slots.
        let mut slot = hash as usize & mask;
        loop {
            match self.slots.get(slot) {
                None | Some(0) => return Err(slot),
                Some(number) if self.texts.get(*number as usize - 1) == Some(text) => {
                    return Ok(*number as usize - 1);
                }
                Some(_) => slot = (slot + 1) & mask,
            }
        }
    }
}

impl fmt::Debug for TextSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.texts.fmt(f)
    }
}

/// Sorted texts of which none is a prefix of another, so that one binary search finds the prefix of
/// a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SortedTexts(PackedTexts);

impl SortedTexts {
    /// Sorts texts and drops those that have a shorter one as a prefix.
    pub fn new(texts: &PackedTexts) -> Self {
        let mut order: Vec<&str> = texts.iter().collect();
        order.sort_unstable();
        let mut prefixes = PackedTexts::with_capacity(order.len(), texts.buffer.len());
        for text in order {
            let covered = prefixes
                .get(prefixes.len().wrapping_sub(1))
                .is_some_and(|shorter| text.starts_with(shorter));
            // Cannot fail: the total is not greater than before.
            let _ = !covered && prefixes.push(text);
        }
        prefixes.shrink_to_fit();
        Self(prefixes)
    }

    pub fn texts(&self) -> &PackedTexts {
        &self.0
    }

    /// Returns `true` if a text is one of the items.
    pub fn contains(&self, text: &str) -> bool {
        self.last_not_after(text) == Some(text)
    }

    /// Returns `true` if a text begins with an item.
    pub fn has_prefix_of(&self, text: &str) -> bool {
        self.last_not_after(text)
            .is_some_and(|nearest| text.starts_with(nearest))
    }

    /// Returns `true` if an item begins with a text.
    pub fn has_any_starting_with(&self, text: &str) -> bool {
        let first = self.count_not_after(text);
        [Some(first), first.checked_sub(1)]
            .into_iter()
            .flatten()
            .any(|at| self.0.get(at).is_some_and(|item| item.starts_with(text)))
    }

    /// Returns the last item that does not sort after a text.
    fn last_not_after(&self, text: &str) -> Option<&str> {
        self.count_not_after(text)
            .checked_sub(1)
            .and_then(|at| self.0.get(at))
    }

    /// Returns the number of items that do not sort after a text.
    fn count_not_after(&self, text: &str) -> usize {
        let mut from = 0;
        let mut to = self.0.len();
        while from < to {
            let middle = from + (to - from) / 2;
            if self.0.get(middle).is_some_and(|item| item <= text) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn texts(all: &[&str]) -> PackedTexts {
        let mut texts = PackedTexts::default();
        assert!(all.iter().all(|text| texts.push(text)));
        texts
    }

    #[test]
    fn sets_contain_exactly_their_items() {
        let all = ["b", "", "a", "b", "aa", "ä"];
        let set = TextSet::new(texts(&all));
        assert!(all.iter().all(|text| set.contains(text)));
        assert!(
            !["c", "ab", "aaa", "Ä"]
                .iter()
                .any(|text| set.contains(text))
        );
        assert!(!TextSet::new(PackedTexts::default()).contains(""));
    }

    #[test]
    fn many_texts_are_found_as_in_a_tree() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut word = || {
            (0..random.usize(0..4))
                .map(|_| random.char('a'..='d'))
                .collect::<String>()
        };
        let words: Vec<String> = (0..60).map(|_| word()).collect();
        let all = texts(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let set = TextSet::new(all.clone());
        let sorted = SortedTexts::new(&all);
        let tree: BTreeSet<&str> = words.iter().map(String::as_str).collect();
        let mut hits = 0;
        let mut missed = 0;
        for _ in 0..2_000 {
            let query = word();
            assert_eq!(set.contains(&query), tree.contains(&*query), "{query}");
            assert_eq!(
                sorted.has_prefix_of(&query),
                tree.iter().any(|text| query.starts_with(text)),
                "{query}"
            );
            if tree.contains(&*query) {
                hits += 1
            } else {
                missed += 1
            }
        }
        assert!(hits > 100 && missed > 100, "{hits} {missed}");
    }

    #[test]
    fn of_sorted_texts_the_shortest_are_kept() {
        let sorted = SortedTexts::new(&texts(&["b/", "a/x/", "a/x/y", "a/x", "b/"]));
        assert_eq!(sorted.texts().iter().collect::<Vec<_>>(), ["a/x", "b/"]);
        assert!(sorted.has_prefix_of("a/x/y/z") && sorted.contains("b/"));
        assert!(!sorted.has_prefix_of("a/w") && !sorted.contains("b") && !sorted.has_prefix_of(""));
    }
}
