//! From a [`MetricFamily`] to registered collectors, and tables of counters that are found by number instead of by text.

use std::sync::OnceLock;

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

use super::names::{MetricFamily, MetricKind};

/// What goes wrong if a family's name or labels are not valid, or a name is registered twice.
pub type Error = prometheus::Error;

/// Makes collectors and registers each of them.
pub(super) struct Registrar<'r>(pub(super) &'r Registry);

impl Registrar<'_> {
    pub(super) fn counters(&self, family: &MetricFamily) -> Result<IntCounterVec, Error> {
        self.register(IntCounterVec::new(opts(family), family.labels)?)
    }

    pub(super) fn counter(&self, family: &MetricFamily) -> Result<IntCounter, Error> {
        self.register(IntCounter::with_opts(opts(family))?)
    }

    pub(super) fn gauges(&self, family: &MetricFamily) -> Result<IntGaugeVec, Error> {
        self.register(IntGaugeVec::new(opts(family), family.labels)?)
    }

    pub(super) fn gauge(&self, family: &MetricFamily) -> Result<IntGauge, Error> {
        self.register(IntGauge::with_opts(opts(family))?)
    }

    pub(super) fn histograms(&self, family: &MetricFamily) -> Result<HistogramVec, Error> {
        self.register(HistogramVec::new(histogram_opts(family), family.labels)?)
    }

    pub(super) fn histogram(&self, family: &MetricFamily) -> Result<Histogram, Error> {
        self.register(Histogram::with_opts(histogram_opts(family))?)
    }

    /// Counters of a family with one closed label, in the order of its values.
    pub(super) fn closed_counters(
        &self,
        family: &MetricFamily,
        values: &[&str],
    ) -> Result<Box<[IntCounter]>, Error> {
        let counters = self.counters(family)?;
        values
            .iter()
            .map(|value| counters.get_metric_with_label_values(&[value]))
            .collect()
    }

    fn register<C: Collector + Clone + 'static>(&self, collector: C) -> Result<C, Error> {
        self.0.register(Box::new(collector.clone()))?;
        Ok(collector)
    }
}

fn opts(family: &MetricFamily) -> Opts {
    Opts::new(family.name, family.help)
}

fn histogram_opts(family: &MetricFamily) -> HistogramOpts {
    let buckets = match family.kind {
        MetricKind::Histogram(buckets) => buckets.to_vec(),
        MetricKind::Counter | MetricKind::Gauge => Vec::new(),
    };
    HistogramOpts::from(opts(family)).buckets(buckets)
}

/// The counters of a family with several closed labels, each in a place of its own.
///
/// A place is filled when it is first asked for: combinations that can occur are asked for at the start, so that
/// they are shown as 0; the others appear when they do occur. After that a count is one look at an array.
pub(super) struct CounterTable {
    family: IntCounterVec,
    slots: Box<[OnceLock<IntCounter>]>,
}

impl CounterTable {
    pub(super) fn new(family: &IntCounterVec, len: usize) -> Self {
        Self {
            family: family.clone(),
            slots: (0..len).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The counter in a place; `labels` gives its label values if it is not there yet.
    pub(super) fn counter<'l, const N: usize>(
        &self,
        place: usize,
        labels: impl FnOnce() -> [&'l str; N],
    ) -> Option<&IntCounter> {
        let place = self.slots.get(place)?;
        if let Some(counter) = place.get() {
            return Some(counter);
        }
        let counter = self.family.get_metric_with_label_values(&labels()).ok()?;
        Some(place.get_or_init(|| counter))
    }
}

impl CounterTable {
    /// What each place counts, in their order; 0 where nothing has occurred.
    pub(super) fn counts(&self) -> impl Iterator<Item = (usize, u64)> {
        self.slots
            .iter()
            .map(|place| place.get().map_or(0, IntCounter::get))
            .enumerate()
    }
}

/// Adds one, if there is such a counter.
pub(super) fn increment(counter: Option<&IntCounter>) {
    if let Some(counter) = counter {
        counter.inc();
    }
}
