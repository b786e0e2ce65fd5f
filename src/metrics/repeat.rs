//! Detection of repeated refusals, for a metric and for the log.
//!
//! The metric counts a crawler that requests the same URL again within ten minutes ([`Repeats`]): a fixed table of
//! hashes, each in one slot, where the latest wins. Memory is limited, no lock is needed, and the count is a lower bound:
//! two URLs that share a slot hide each other.
//!
//! The log leaves out the URL of a lost request if it has shown it within the last minute ([`LoggedLosses`]); its line
//! names the one that has the URL. There, two URLs must never hide each other, so each has its own entry.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use parking_lot::Mutex;

use super::CrawlerIndex;
use super::record::DecisionId;

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

/// The time for which the URL of a lost request is left out after a line with it.
const LOGGED_WINDOW: Duration = Duration::from_secs(60);
/// The maximum number of entries, about 6 MiB. URLs beyond are always logged.
const MAX_LOGGED: usize = 1 << 16;
/// The least time between two searches for expired entries while there is no room.
const PURGE_INTERVAL: Duration = Duration::from_secs(1);

/// The lost requests whose URLs the log has shown within the last minute. Only refusals and failures get here.
#[derive(Debug)]
pub(crate) struct LoggedLosses {
    /// Two hashes with random keys: no two requests have the same 128 bits, by accident or by intent.
    hashers: [RandomState; 2],
    logged: Mutex<LoggedLossTable>,
}

/// The line that has the URL of a lost request.
#[derive(Clone, Copy, Debug)]
struct LoggedLoss {
    at: Instant,
    decision: DecisionId,
}

#[derive(Debug)]
struct LoggedLossTable {
    logged: HashMap<u128, LoggedLoss>,
    purged_at: Instant,
}

impl LoggedLosses {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            hashers: [RandomState::new(), RandomState::new()],
            logged: Mutex::new(LoggedLossTable {
                logged: HashMap::new(),
                purged_at: now,
            }),
        }
    }

    /// Records a lost request whose URL is about to be logged with this decision, unless it was logged within the last
    /// minute; then returns the decision whose line has it.
    pub(super) fn record(
        &self,
        (crawler, method, reason, url): (CrawlerIndex, &Method, &str, &str),
        decision: DecisionId,
        now: Instant,
    ) -> Option<DecisionId> {
        let request = (crawler, method, reason, url);
        let [high, low] = self
            .hashers
            .each_ref()
            .map(|hasher| u128::from(hasher.hash_one(request)));
        let loss = LoggedLoss { at: now, decision };
        self.logged.lock().record(high << 64 | low, loss)
    }
}

impl LoggedLossTable {
    fn record(&mut self, key: u128, loss: LoggedLoss) -> Option<DecisionId> {
        let earlier = self.logged.get(&key).copied();
        if let Some(earlier) = earlier
            && loss.at.saturating_duration_since(earlier.at) < LOGGED_WINDOW
        {
            return Some(earlier.decision);
        }
        if earlier.is_some() || self.has_room(loss.at) {
            self.logged.insert(key, loss);
        }
        None
    }

    /// Removes expired entries if the table is full. Returns `false` if it is still full.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.logged.len() < MAX_LOGGED {
            return true;
        }
        if now.saturating_duration_since(self.purged_at) < PURGE_INTERVAL {
            return false;
        }
        self.purged_at = now;
        self.logged
            .retain(|_, loss| now.saturating_duration_since(loss.at) < LOGGED_WINDOW);
        self.logged.len() < MAX_LOGGED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_url_is_left_out_only_within_a_minute_of_a_line_with_it() {
        let (clock, control) = Clock::manual();
        let losses = LoggedLosses::new(clock.now());
        let decisions = std::cell::Cell::new(0);
        let record = |crawler, method, reason, url| {
            let request = (CrawlerIndex(crawler), method, reason, url);
            decisions.set(decisions.get() + 1);
            losses.record(request, DecisionId::new(7, decisions.get()), clock.now())
        };
        let first = || record(0, &Method::GET, "rate_limited", "http://a/");
        assert_eq!(first(), None);
        control.advance(Duration::from_secs(59));
        assert_eq!(first(), Some(DecisionId::new(7, 1)));
        for (crawler, method, reason, url) in [
            (1, &Method::GET, "rate_limited", "http://a/"),
            (0, &Method::HEAD, "rate_limited", "http://a/"),
            (0, &Method::GET, "queue_full", "http://a/"),
            (0, &Method::GET, "rate_limited", "http://b/"),
        ] {
            assert_eq!(record(crawler, method, reason, url), None, "{url}");
        }
        // A minute after the line; the repetitions since then do not extend it.
        control.advance(Duration::from_secs(1));
        assert_eq!((first(), first()), (None, Some(DecisionId::new(7, 7))));
    }

    #[test]
    fn urls_are_logged_if_there_is_no_room_to_remember_them() {
        let (clock, control) = Clock::manual();
        let mut table = LoggedLosses::new(clock.now()).logged.into_inner();
        let loss = |number| LoggedLoss {
            at: clock.now(),
            decision: DecisionId::new(0, number),
        };
        for key in 0..MAX_LOGGED as u64 {
            assert_eq!(table.record(key.into(), loss(key)), None);
        }
        for _ in 0..2 {
            assert_eq!(table.record(u128::MAX, loss(1)), None);
        }
        assert_eq!(table.record(7, loss(1)), Some(DecisionId::new(0, 7)));
        assert_eq!(table.logged.len(), MAX_LOGGED);
        control.advance(LOGGED_WINDOW);
        assert_eq!(table.record(u128::MAX, loss(2)), None);
        assert_eq!(
            table.record(u128::MAX, loss(3)),
            Some(DecisionId::new(0, 2))
        );
        assert_eq!(table.logged.len(), 1);
    }

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
