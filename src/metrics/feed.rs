//! What is counted of events on their way out: delivered, put aside, failed tries, and how many are still to go.

use prometheus::{IntCounter, IntGauge};

use super::labels::{FeedResult, FeedTarget};
use super::series::{Error, Registrar, increment};
use super::{Metrics, names};

pub(super) struct FeedFamilies {
    /// By outlet, then by end.
    events: Box<[IntCounter]>,
    failures: Box<[IntCounter]>,
    backlog: Box<[IntGauge]>,
}

impl FeedFamilies {
    pub(super) fn register(new: &Registrar<'_>) -> Result<Self, Error> {
        let events = new.counters(&names::LEDGER_FEED_EVENTS)?;
        let pairs = FeedTarget::ALL
            .into_iter()
            .flat_map(|out| FeedResult::ALL.map(|end| (out, end)));
        let behind = new.gauges(&names::LEDGER_FEED_BEHIND)?;
        Ok(Self {
            events: pairs
                .map(|(out, end)| {
                    events.get_metric_with_label_values(&[out.as_str(), end.as_str()])
                })
                .collect::<Result<_, _>>()?,
            failures: new.closed_counters(
                &names::LEDGER_FEED_FAILURES,
                &FeedTarget::ALL.map(FeedTarget::as_str),
            )?,
            backlog: FeedTarget::ALL
                .into_iter()
                .map(|out| behind.get_metric_with_label_values(&[out.as_str()]))
                .collect::<Result<_, _>>()?,
        })
    }
}

impl Metrics {
    /// So many events are through with an outlet.
    pub fn add_feed_events(&self, out: FeedTarget, end: FeedResult, count: u64) {
        let place = out as usize * FeedResult::ALL.len() + end as usize;
        if let Some(counter) = self.families().feed.events.get(place) {
            counter.inc_by(count);
        }
    }

    /// A try has failed.
    pub fn record_feed_failure(&self, out: FeedTarget) {
        increment(self.families().feed.failures.get(out as usize));
    }

    /// So many events are still to go.
    pub fn set_feed_backlog(&self, out: FeedTarget, count: u64) {
        if let Some(gauge) = self.families().feed.backlog.get(out as usize) {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
