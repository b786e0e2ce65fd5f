//! What is counted of the ledger. It counts by itself; every few seconds its numbers are brought here.

use prometheus::{IntCounter, IntGauge};

use crate::model::crawl_status::CrawlStatus;

use super::series::{Error, Registrar};
use super::{Metrics, labels, names};

/// The ledger's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerCounts {
    /// URLs by what became of them, in the order of [`CrawlStatus::ALL`].
    pub urls: [u64; CrawlStatus::ALL.len()],
    /// Events since the start, in the order of [`labels::LEDGER_EVENTS`].
    pub events: [u64; labels::LEDGER_EVENTS.len()],
    /// Changes that are not on the disk.
    pub queue: u64,
    /// How often a request waited for room since the start.
    pub waits: u64,
    /// Looks that were lost since the start.
    pub dropped: u64,
    /// Commits that failed since the start.
    pub failures: u64,
    /// Whether its writer has broken down.
    pub broken: bool,
}

pub(super) struct LedgerFamilies {
    urls: Box<[IntGauge]>,
    events: Box<[IntCounter]>,
    queue: IntGauge,
    waits: IntCounter,
    dropped: IntCounter,
    failures: IntCounter,
    broken: IntGauge,
}

impl LedgerFamilies {
    pub(super) fn register(new: &Registrar<'_>) -> Result<Self, Error> {
        let urls = new.gauges(&names::LEDGER_URLS)?;
        let of = |status: CrawlStatus| urls.get_metric_with_label_values(&[status.as_str()]);
        Ok(Self {
            urls: CrawlStatus::ALL
                .into_iter()
                .map(of)
                .collect::<Result<_, _>>()?,
            events: new.closed_counters(&names::LEDGER_EVENTS, &labels::LEDGER_EVENTS)?,
            queue: new.gauge(&names::LEDGER_QUEUE)?,
            waits: new.counter(&names::LEDGER_WAITS)?,
            dropped: new.counter(&names::LEDGER_DROPPED)?,
            failures: new.counter(&names::LEDGER_FAILURES)?,
            broken: new.gauge(&names::LEDGER_BROKEN)?,
        })
    }
}

impl Metrics {
    /// Shows the ledger's numbers of now.
    pub fn set_ledger(&self, counts: &LedgerCounts) {
        let families = &self.families().ledger;
        let gauges = families.urls.iter().chain([&families.queue]);
        for (gauge, now) in gauges.zip(counts.urls.into_iter().chain([counts.queue])) {
            gauge.set(i64::try_from(now).unwrap_or(i64::MAX));
        }
        families.broken.set(counts.broken.into());
        let counters =
            families
                .events
                .iter()
                .chain([&families.waits, &families.dropped, &families.failures]);
        let since =
            counts
                .events
                .into_iter()
                .chain([counts.waits, counts.dropped, counts.failures]);
        for (counter, now) in counters.zip(since) {
            counter.inc_by(now.saturating_sub(counter.get()));
        }
    }
}
