//! Detection of repeated refusals: the same crawler requests the same URL again within ten minutes.
//!
//! A fixed table of hashes, each in one slot, where the latest wins. Memory is limited, no lock is needed, and the count
//! is a lower bound: two URLs that share a slot hide each other.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::CrawlerIndex;

/// 16,384 slots, 128 KiB.
const SLOTS: usize = 1 << 14;
const WINDOW_SECS: u64 = 600;
const SECOND_BITS: u32 = 24;
const SECOND_MASK: u64 = (1 << SECOND_BITS) - 1;

/// The result of recording a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RepeatState {
    First,
    Repeated,
}

/// The table. Its hash has a random key, so that no client can choose URLs that share a slot.
#[derive(Debug)]
pub(crate) struct Repeats {
    hasher: RandomState,
    began: Instant,
    slots: Box<[AtomicU64]>,
}

impl Repeats {
    pub(super) fn new(now: Instant) -> Self {
        let slots = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Self {
            hasher: RandomState::new(),
            began: now,
            slots,
        }
    }

    /// Records a refusal.
    pub(super) fn record(&self, crawler: CrawlerIndex, url: &str, now: Instant) -> RepeatState {
        let hash = self.hasher.hash_one((crawler, url));
        // Bit 24 is always set, so that an empty slot, 0, matches nothing.
        let tag = hash & !SECOND_MASK | 1 << SECOND_BITS;
        let second = now.saturating_duration_since(self.began).as_secs() & SECOND_MASK;
        let Some(slot) = self.slots.get(hash as usize % SLOTS) else {
            return RepeatState::First;
        };
        let before = slot.swap(tag | second, Ordering::Relaxed);
        let age = second.wrapping_sub(before & SECOND_MASK) & SECOND_MASK;
        if before & !SECOND_MASK == tag && age < WINDOW_SECS {
            RepeatState::Repeated
        } else {
            RepeatState::First
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use std::time::Duration;

    #[test]
    fn a_repeat_is_the_same_url_and_crawler_within_ten_minutes() {
        let (clock, control) = Clock::manual();
        let repeats = Repeats::new(clock.now());
        assert_eq!(
            repeats.record(CrawlerIndex(0), "http://a/", clock.now()),
            RepeatState::First
        );
        assert_eq!(
            repeats.record(CrawlerIndex(0), "http://a/", clock.now()),
            RepeatState::Repeated
        );
        assert_eq!(
            repeats.record(CrawlerIndex(1), "http://a/", clock.now()),
            RepeatState::First
        );
        assert_eq!(
            repeats.record(CrawlerIndex(0), "http://b/", clock.now()),
            RepeatState::First
        );
        control.advance(Duration::from_secs(599));
        assert_eq!(
            repeats.record(CrawlerIndex(1), "http://a/", clock.now()),
            RepeatState::Repeated
        );
        control.advance(Duration::from_secs(600));
        assert_eq!(
            repeats.record(CrawlerIndex(1), "http://a/", clock.now()),
            RepeatState::First
        );
    }
}
