//! Where records begin and end: the books of one proxy, which all its records share.
//!
//! Nothing is counted or written here; that is `flush.rs`.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::Method;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::metrics::log::DecisionLog;
use crate::metrics::repeat::Repeats;
use crate::metrics::trace::TraceSampler;

use super::{DecisionId, RequestRecord};

/// Begins records, and is where they end: the metrics and the decision log of one proxy. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder(pub(crate) Arc<RecorderInner>);

#[derive(Debug)]
pub(crate) struct RecorderInner {
    pub(crate) metrics: Metrics,
    pub(crate) log: DecisionLog,
    pub(crate) clock: Clock,
    pub(crate) repeats: Repeats,
    pub(crate) tracing: Option<TraceSampler>,
    instance: u32,
    requests: AtomicU64,
}

impl Recorder {
    /// A recorder with a random instance prefix, so that decision ids of two runs differ.
    pub fn new(metrics: Metrics, log: DecisionLog, clock: Clock) -> Self {
        Self::with_tracing(metrics, log, clock, None)
    }

    /// The same, of whose requests spans are made.
    pub fn with_tracing(
        metrics: Metrics,
        log: DecisionLog,
        clock: Clock,
        tracing: Option<TraceSampler>,
    ) -> Self {
        let repeats = Repeats::new(clock.now());
        let instance = RandomState::new().hash_one("instance") as u32;
        Self(Arc::new(RecorderInner {
            metrics,
            log,
            clock,
            repeats,
            tracing,
            instance,
            requests: AtomicU64::new(0),
        }))
    }

    /// Begins the record of a request whose head was complete at `began`.
    pub fn begin(&self, began: Instant, method: &Method) -> RequestRecord {
        self.0
            .metrics
            .enabled_families()
            .iter()
            .for_each(|families| families.inflight.inc());
        let number = self.0.requests.fetch_add(1, Ordering::Relaxed);
        RequestRecord::new(Arc::clone(&self.0), number, began, method)
    }

    /// The instance prefix, 8 hex digits: what tells this process from others in decision ids and in `Via`.
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

    /// The clock that tells when a record ends.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }
}

impl RecorderInner {
    /// The name of the `number`th request.
    pub(super) fn id(&self, number: u64) -> DecisionId {
        DecisionId::new(self.instance, number)
    }
}
