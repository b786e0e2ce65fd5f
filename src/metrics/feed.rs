//! What is counted of events on their way out: delivered, put aside, failed tries, and how many are still to go.

use prometheus::{IntCounter, IntGauge};

use super::labels::{FeedEnd, FeedOut};
use super::series::{Error, Registrar, bump};
use super::{Metrics, names};

pub(super) struct FeedFamilies {
    /// By outlet, then by end.
    events: Box<[IntCounter]>,
    failures: Box<[IntCounter]>,
    behind: Box<[IntGauge]>,
}

impl FeedFamilies {
    pub(super) fn register(new: &Registrar<'_>) -> Result<Self, Error> {
        let events = new.counters(&names::LEDGER_FEED_EVENTS)?;
        let pairs = FeedOut::ALL
            .into_iter()
            .flat_map(|out| FeedEnd::ALL.map(|end| (out, end)));
        let behind = new.gauges(&names::LEDGER_FEED_BEHIND)?;
        Ok(Self {
            events: pairs
                .map(|(out, end)| {
                    events.get_metric_with_label_values(&[out.as_str(), end.as_str()])
                })
                .collect::<Result<_, _>>()?,
            failures: new.closed(
                &names::LEDGER_FEED_FAILURES,
                &FeedOut::ALL.map(FeedOut::as_str),
            )?,
            behind: FeedOut::ALL
                .into_iter()
                .map(|out| behind.get_metric_with_label_values(&[out.as_str()]))
                .collect::<Result<_, _>>()?,
        })
    }
}

impl Metrics {
    /// So many events are through with an outlet.
    pub fn feed_events(&self, out: FeedOut, end: FeedEnd, count: u64) {
        let place = out as usize * FeedEnd::ALL.len() + end as usize;
        if let Some(counter) = self.families().feed.events.get(place) {
            counter.inc_by(count);
        }
    }

    /// A try has failed.
    pub fn feed_failed(&self, out: FeedOut) {
        bump(self.families().feed.failures.get(out as usize));
    }

    /// So many events are still to go.
    pub fn feed_behind(&self, out: FeedOut, count: u64) {
        if let Some(gauge) = self.families().feed.behind.get(out as usize) {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
