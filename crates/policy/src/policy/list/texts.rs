//! Many short texts in little memory: one text that holds them all, and numbers that say where each ends.
//!
//! A list may have a million items; a box for each would take twice the memory and a million allocations. What is
//! asked of the texts is in [`TextSet`] and [`SortedTexts`].

use std::fmt;
use std::hash::{BuildHasher, RandomState};

/// The most bytes that the items of one list may have together: places are kept in 32 bits.
pub const MAX_BYTES: usize = u32::MAX as usize;

/// Texts one behind the other.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PackedTexts {
    buffer: String,
    ends: Vec<u32>,
}

impl PackedTexts {
    /// Room for so many texts of so many bytes together.
    pub fn with_capacity(count: usize, bytes: usize) -> Self {
        Self {
            buffer: String::with_capacity(bytes),
            ends: Vec::with_capacity(count),
        }
    }

    /// Adds a text; `false` where it has no room ([`MAX_BYTES`]).
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

    /// The text at a place.
    pub fn get(&self, at: usize) -> Option<&str> {
        let to = *self.ends.get(at)?;
        let from = at
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .map_or(0, |end| *end);
        self.buffer.get(from as usize..to as usize)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All of them in their order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    /// Gives back the memory that was reserved and not used.
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

/// A set of texts that are looked up whole: a hash table of places, open, and at most half full.
#[derive(Clone)]
pub struct TextSet {
    texts: PackedTexts,
    /// A place in `texts` plus one, or 0.
    slots: Box<[u32]>,
    hasher: RandomState,
}

/// The same items, in whatever order they were given.
impl PartialEq for TextSet {
    fn eq(&self, other: &Self) -> bool {
        let within = |a: &Self, b: &Self| a.texts.iter().all(|text| b.contains(text));
        within(self, other) && within(other, self)
    }
}

impl TextSet {
    /// The set of these texts; those that stand there twice count once.
    pub fn new(mut texts: PackedTexts) -> Self {
        texts.shrink_to_fit();
        let seats = (texts.len() * 2).next_power_of_two().max(2);
        let mut set = Self {
            texts,
            slots: vec![0; seats].into(),
            hasher: RandomState::new(),
        };
        for at in 0..set.texts.len() {
            set.insert_slot(at);
        }
        set
    }

    /// Whether a text is in the set.
    pub fn contains(&self, text: &str) -> bool {
        self.find(text).is_ok()
    }

    /// Its texts; one that was given twice stands twice.
    pub fn texts(&self) -> &PackedTexts {
        &self.texts
    }

    fn insert_slot(&mut self, at: usize) {
        let Some(Err(free)) = self.texts.get(at).map(|text| self.find(text)) else {
            return;
        };
        if let (Some(seat), Ok(number)) = (self.slots.get_mut(free), u32::try_from(at + 1)) {
            *seat = number;
        }
    }

    /// Whether a text is there; if not, the free seat at which its search ended.
    fn find(&self, text: &str) -> Result<(), usize> {
        let mask = self.slots.len() - 1;
        let hash = self.hasher.hash_one(text.as_bytes());
        // The lower half of a hash is enough for as many seats as there can be.
        let mut seat = hash as usize & mask;
        loop {
            match self.slots.get(seat) {
                None | Some(0) => return Err(seat),
                Some(number) if self.texts.get(*number as usize - 1) == Some(text) => return Ok(()),
                Some(_) => seat = (seat + 1) & mask,
            }
        }
    }
}

impl fmt::Debug for TextSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.texts.fmt(f)
    }
}

/// Texts in byte order, of which none begins another, so that one binary search finds the one that begins a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SortedTexts(PackedTexts);

impl SortedTexts {
    /// Sorts texts, and drops those that a shorter one begins.
    pub fn new(texts: &PackedTexts) -> Self {
        let mut order: Vec<&str> = texts.iter().collect();
        order.sort_unstable();
        let mut kept = PackedTexts::with_capacity(order.len(), texts.buffer.len());
        for text in order {
            let covered = kept
                .get(kept.len().wrapping_sub(1))
                .is_some_and(|shorter| text.starts_with(shorter));
            // There is room: together they are no longer than before.
            let _ = !covered && kept.push(text);
        }
        kept.shrink_to_fit();
        Self(kept)
    }

    /// Its texts.
    pub fn texts(&self) -> &PackedTexts {
        &self.0
    }

    /// Whether a text is one of them.
    pub fn contains(&self, text: &str) -> bool {
        self.last_not_after(text) == Some(text)
    }

    /// Whether a text begins with one of them.
    pub fn has_prefix_of(&self, text: &str) -> bool {
        self.last_not_after(text)
            .is_some_and(|nearest| text.starts_with(nearest))
    }

    /// Whether one of them begins with a text.
    pub fn has_any_starting_with(&self, text: &str) -> bool {
        let first = self.count_not_after(text);
        let here = |at: usize| self.0.get(at).is_some_and(|item| item.starts_with(text));
        here(first) || first.checked_sub(1).is_some_and(here)
    }

    /// The last one that does not come after a text.
    fn last_not_after(&self, text: &str) -> Option<&str> {
        self.count_not_after(text)
            .checked_sub(1)
            .and_then(|at| self.0.get(at))
    }

    /// How many do not come after a text.
    fn count_not_after(&self, text: &str) -> usize {
        let (mut from, mut to) = (0, self.0.len());
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
    fn sets_hold_what_they_were_given_and_nothing_else() {
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
        let given: Vec<String> = (0..60).map(|_| word()).collect();
        let all = texts(&given.iter().map(String::as_str).collect::<Vec<_>>());
        let (set, sorted) = (TextSet::new(all.clone()), SortedTexts::new(&all));
        let tree: BTreeSet<&str> = given.iter().map(String::as_str).collect();
        let (mut found, mut missed) = (0, 0);
        for _ in 0..2_000 {
            let asked = word();
            assert_eq!(set.contains(&asked), tree.contains(&*asked), "{asked}");
            assert_eq!(
                sorted.has_prefix_of(&asked),
                tree.iter().any(|text| asked.starts_with(text)),
                "{asked}"
            );
            if tree.contains(&*asked) {
                found += 1
            } else {
                missed += 1
            }
        }
        assert!(found > 100 && missed > 100, "{found} {missed}");
    }

    #[test]
    fn of_sorted_texts_the_shortest_are_kept() {
        let sorted = SortedTexts::new(&texts(&["b/", "a/x/", "a/x/y", "a/x", "b/"]));
        assert_eq!(sorted.texts().iter().collect::<Vec<_>>(), ["a/x", "b/"]);
        assert!(sorted.has_prefix_of("a/x/y/z") && sorted.contains("b/"));
        assert!(!sorted.has_prefix_of("a/w") && !sorted.contains("b") && !sorted.has_prefix_of(""));
    }
}
