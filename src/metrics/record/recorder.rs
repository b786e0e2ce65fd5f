//! The recorder of a proxy, which all its records share.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::Method;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::metrics::log::DecisionLog;
use crate::metrics::repeat::{LoggedLosses, Repeats};
use crate::metrics::trace::TraceSampler;

use super::{DecisionId, RequestRecord};

/// Creates records, which are counted and logged with the metrics and the decision log of one proxy. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder(pub(crate) Arc<RecorderInner>);

#[derive(Debug)]
pub(crate) struct RecorderInner {
    pub(crate) metrics: Metrics,
    pub(crate) log: DecisionLog,
    pub(crate) clock: Clock,
    pub(crate) repeats: Repeats,
    pub(crate) logged_losses: LoggedLosses,
    pub(crate) tracing: Option<TraceSampler>,
    instance: u32,
    requests: AtomicU64,
}

impl Recorder {
    /// Creates a recorder with a random instance prefix, so that the decision ids of two runs differ.
    pub fn new(metrics: Metrics, log: DecisionLog, clock: Clock) -> Self {
        Self::with_tracing(metrics, log, clock, None)
    }

    /// Creates a recorder that also exports spans.
    pub fn with_tracing(
        metrics: Metrics,
        log: DecisionLog,
        clock: Clock,
        tracing: Option<TraceSampler>,
    ) -> Self {
        let repeats = Repeats::new(clock.now());
        let logged_losses = LoggedLosses::new(clock.now());
        let instance = RandomState::new().hash_one("instance") as u32;
        Self(Arc::new(RecorderInner {
            metrics,
            log,
            clock,
            repeats,
            logged_losses,
            tracing,
            instance,
            requests: AtomicU64::new(0),
        }))
    }

    /// Creates the record of a request whose head was complete at `began`.
    pub fn begin(&self, began: Instant, method: &Method) -> RequestRecord {
        let metrics = &self.0.metrics;
        metrics.update(|families| families.inflight.inc());
        let number = self.0.requests.fetch_add(1, Ordering::Relaxed);
        RequestRecord::new(Arc::clone(&self.0), number, began, method)
    }

    /// Returns the instance prefix, 8 hexadecimal digits, which identifies this process in decision ids and in `Via`.
    pub fn instance(&self) -> String {
        format!("{:08x}", self.0.instance)
    }

    /// The metrics that records are counted in.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// The log that records are written to.
    pub fn log(&self) -> &DecisionLog {
        &self.0.log
    }

    /// The clock that is read when a record ends.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }
}

impl RecorderInner {
    /// Returns the id of the `number`th request.
    pub(super) fn id(&self, number: u64) -> DecisionId {
        DecisionId::new(self.instance, number)
    }
}
