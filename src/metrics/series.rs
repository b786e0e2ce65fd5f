//! Registration of metric families, and tables of series that are found by index instead of by text.

use std::marker::PhantomData;
use std::sync::OnceLock;

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};

use super::families::{MetricFamily, MetricKind, WAIT_BUCKETS};
use super::labels::LabelSet;

/// The error of an invalid name or label, or of a name that is registered twice.
pub type Error = prometheus::Error;

/// The handle of a metric family, created from its row in the table of families.
pub(super) trait Registered: Sized {
    const KIND: MetricKind;

    fn register(registry: &Registry, family: &MetricFamily) -> Result<Self, Error>;
}

/// Implements [`Registered`] for the handles of prometheus: one for a family without labels, one for a family with labels.
macro_rules! registered {
    ($($single:ty, $family:ty, $options:ident, $kind:expr;)+) => {
        $(
            impl Registered for $single {
                const KIND: MetricKind = $kind;

                fn register(registry: &Registry, family: &MetricFamily) -> Result<Self, Error> {
                    register(registry, Self::with_opts($options(family))?)
                }
            }

            impl Registered for $family {
                const KIND: MetricKind = $kind;

                fn register(registry: &Registry, family: &MetricFamily) -> Result<Self, Error> {
                    register(registry, Self::new($options(family), family.labels)?)
                }
            }
        )+
    };
}

registered! {
    IntCounter, IntCounterVec, options, MetricKind::Counter;
    IntGauge, IntGaugeVec, options, MetricKind::Gauge;
    Gauge, GaugeVec, options, MetricKind::Gauge;
    Histogram, HistogramVec, histogram_options, MetricKind::Histogram(WAIT_BUCKETS);
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> Result<C, Error> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

fn options(family: &MetricFamily) -> Opts {
    Opts::new(family.name, family.help)
}

fn histogram_options(family: &MetricFamily) -> HistogramOpts {
    let buckets = match family.kind {
        MetricKind::Histogram(buckets) => buckets.to_vec(),
        MetricKind::Counter | MetricKind::Gauge => Vec::new(),
    };
    HistogramOpts::from(options(family)).buckets(buckets)
}

/// The series of a family whose labels have a closed set of values, all of which exist from the start.
pub(super) struct LabelledSeries<L, B: MetricVecBuilder> {
    series: Box<[B::M]>,
    labels: PhantomData<L>,
}

/// Counters by label.
pub(super) type Counters<L> = LabelledSeries<L, <IntCounterVec as Labelled>::Builder>;
/// Gauges by label.
pub(super) type Gauges<L> = LabelledSeries<L, <IntGaugeVec as Labelled>::Builder>;
/// Histograms by label.
pub(super) type Histograms<L> = LabelledSeries<L, <HistogramVec as Labelled>::Builder>;

/// Names the builder type of a family with labels.
pub(super) trait Labelled {
    type Builder: MetricVecBuilder;
}

impl<B: MetricVecBuilder> Labelled for MetricVec<B> {
    type Builder = B;
}

impl<L: LabelSet, B: MetricVecBuilder> Registered for LabelledSeries<L, B>
where
    MetricVec<B>: Registered,
{
    const KIND: MetricKind = <MetricVec<B> as Registered>::KIND;

    fn register(registry: &Registry, family: &MetricFamily) -> Result<Self, Error> {
        let all = MetricVec::<B>::register(registry, family)?;
        let series = L::all()
            .into_iter()
            .map(|values| all.get_metric_with_label_values(&values));
        Ok(Self {
            series: series.collect::<Result<_, _>>()?,
            labels: PhantomData,
        })
    }
}

impl<L: LabelSet, B: MetricVecBuilder> LabelledSeries<L, B> {
    /// Returns the series with these label values.
    pub(super) fn get(&self, labels: L) -> Option<&B::M> {
        self.series.get(labels.index())
    }

    /// Returns all series, in the order of the label values.
    pub(super) fn iter(&self) -> impl Iterator<Item = &B::M> {
        self.series.iter()
    }
}

impl<L: LabelSet> Counters<L> {
    pub(super) fn increment(&self, labels: L) {
        increment(self.get(labels));
    }

    pub(super) fn add(&self, labels: L, count: u64) {
        if count > 0
            && let Some(counter) = self.get(labels)
        {
            counter.inc_by(count);
        }
    }
}

/// The counters of a family whose label values are closed sets, with many combinations that rarely occur.
///
/// A slot is filled when it is first used. Combinations that can be expected are used once at the start, so that they
/// are exported as 0. After that, counting is one array lookup.
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

    /// Returns the counter in a slot; `labels` returns its label values if it does not exist yet.
    pub(super) fn counter<'l, const N: usize>(
        &self,
        slot: usize,
        labels: impl FnOnce() -> [&'l str; N],
    ) -> Option<&IntCounter> {
        let slot = self.slots.get(slot)?;
        if let Some(counter) = slot.get() {
            return Some(counter);
        }
        let counter = self.family.get_metric_with_label_values(&labels()).ok()?;
        Some(slot.get_or_init(|| counter))
    }

    /// Returns the count of each slot, in order; 0 for an unused one.
    pub(super) fn counts(&self) -> impl Iterator<Item = (usize, u64)> {
        self.slots
            .iter()
            .map(|slot| slot.get().map_or(0, IntCounter::get))
            .enumerate()
    }
}

/// Increments the counter, if it exists.
pub(super) fn increment(counter: Option<&IntCounter>) {
    if let Some(counter) = counter {
        counter.inc();
    }
}

/// Converts a count to the value of a gauge.
pub(super) fn gauge_value(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}
