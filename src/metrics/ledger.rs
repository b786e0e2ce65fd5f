//! Metrics of the ledger and its feed. The ledger keeps its own counts, which are copied here every few seconds.

use crate::ledger::code::OmnifindCode;
use crate::ledger::event::LedgerEventKind;
use crate::ledger::removal::RemovalCauseKind;
use crate::model::crawl_status::CrawlStatus;

use super::Metrics;
use super::labels::{FeedResult, FeedTarget};
use super::series::gauge_value;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerCounts {
    /// The number of URLs by status, in the order of [`CrawlStatus::ALL`].
    pub urls: [u64; CrawlStatus::ALL.len()],
    /// The number of URLs by code, in the order of [`OmnifindCode::ALL`].
    pub codes: [u64; OmnifindCode::ALL.len()],
    /// The number of events since the start, in the order of [`LedgerEventKind::ALL`].
    pub events: [u64; LedgerEventKind::ALL.len()],
    /// The number of pending removals, in the order of [`RemovalCauseKind::ALL`].
    pub pending_removals: [u64; RemovalCauseKind::ALL.len()],
    /// The number of those that are held.
    pub held_removals: [u64; RemovalCauseKind::ALL.len()],
    /// The number of changes that are not on disk.
    pub queue: u64,
    /// The number of requests that have waited for room in the queue since the start.
    pub waits: u64,
    /// The number of observations lost since the start.
    pub dropped: u64,
    /// The number of failed commits since the start.
    pub failures: u64,
    /// `true` if the writer has panicked.
    pub broken: bool,
}

impl Metrics {
    /// Updates the metrics of the ledger.
    pub fn set_ledger(&self, counts: &LedgerCounts) {
        let families = self.families();
        for (gauge, count) in families.ledger_urls.iter().zip(counts.urls) {
            gauge.set(gauge_value(count));
        }
        for (gauge, count) in families.ledger_codes.iter().zip(counts.codes) {
            gauge.set(gauge_value(count));
        }
        let pending = families.ledger_pending_removals.iter();
        let held = families.ledger_held_removals.iter();
        let counts_by_cause = counts
            .pending_removals
            .into_iter()
            .chain(counts.held_removals);
        for (gauge, count) in pending.chain(held).zip(counts_by_cause) {
            gauge.set(gauge_value(count));
        }
        families.ledger_queue.set(gauge_value(counts.queue));
        families.ledger_broken.set(counts.broken.into());
        let events = families.ledger_events.iter().zip(counts.events);
        let others = [
            (&families.ledger_waits, counts.waits),
            (&families.ledger_dropped, counts.dropped),
            (&families.ledger_failures, counts.failures),
        ];
        for (counter, count) in events.chain(others) {
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }

    /// Counts events that were delivered to a target, or written to its dead letters.
    pub fn add_feed_events(&self, target: FeedTarget, result: FeedResult, count: u64) {
        self.families().feed_events.add((target, result), count);
    }

    /// Counts a failed attempt to deliver events.
    pub fn record_feed_failure(&self, target: FeedTarget) {
        self.families().feed_failures.increment(target);
    }

    /// Sets the number of undelivered events.
    pub fn set_feed_backlog(&self, target: FeedTarget, count: u64) {
        if let Some(gauge) = self.families().feed_backlog.get(target) {
            gauge.set(gauge_value(count));
        }
    }
}
