//! A batch on its way: encoded once, tried a few times, counted, and what fails is told now and then.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message;
use tokio::time::sleep;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::metrics::labels::SpansLost;
use crate::metrics::trace::FinishedTrace;

use crate::post::{Again, Failure};

use super::collector::Collector;
use super::encode::{self, Resource};

/// The pauses before the second and third try.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// How often failures are told.
const TELL: Duration = Duration::from_secs(60);

/// What brings batches to a collector.
#[derive(Debug)]
pub struct Delivery {
    resource: Resource,
    collector: Collector,
    metrics: Metrics,
    clock: Clock,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    at: Option<Instant>,
    lost_since: u64,
}

/// How often a batch is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tries {
    One,
    Several,
}

impl Delivery {
    /// Delivers in the name of this program, and counts in these metrics.
    pub fn new(resource: Resource, collector: Collector, metrics: Metrics, clock: Clock) -> Self {
        Self {
            resource,
            collector,
            metrics,
            clock,
            told: Mutex::default(),
        }
    }

    /// Delivers a batch, or counts it as lost.
    pub(super) async fn deliver(&self, batch: &[Box<FinishedTrace>], tries: Tries) {
        let body = Bytes::from(encode::request(&self.resource, batch).encode_to_vec());
        match self.post(body, tries).await {
            Ok(rejected) => {
                let spans = count(batch);
                self.metrics.spans_exported(spans.saturating_sub(rejected));
                self.metrics
                    .spans_lost(SpansLost::Rejected, rejected.min(spans));
                if rejected > 0 {
                    self.tell("it did not take all of them", rejected);
                }
            }
            Err(failure) => {
                self.lost(SpansLost::Failed, batch);
                self.tell(&failure.why, count(batch));
            }
        }
    }

    /// Counts a batch as lost.
    pub(super) fn lost(&self, why: SpansLost, batch: &[Box<FinishedTrace>]) {
        self.metrics.spans_lost(why, count(batch));
    }

    async fn post(&self, body: Bytes, tries: Tries) -> Result<u64, Failure> {
        let pauses: &[Duration] = if tries == Tries::Several {
            &PAUSES
        } else {
            &[]
        };
        for pause in pauses {
            match self.collector.post(body.clone()).await {
                Err(Failure {
                    again: Again::Yes, ..
                }) => sleep(*pause).await,
                Err(Failure {
                    again: Again::After(time),
                    ..
                }) => sleep(time).await,
                answer => return answer,
            }
        }
        self.collector.post(body).await
    }

    fn tell(&self, why: &str, lost: u64) {
        let now = self.clock.now();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.lost_since += lost;
        if told
            .at
            .is_some_and(|at| now.saturating_duration_since(at) < TELL)
        {
            return;
        }
        tracing::warn!(
            collector = ?self.collector,
            spans = told.lost_since,
            "spans are lost, since the collector of telemetry.otlp cannot be used: {why}. Told once a minute; \
             crawlgate_trace_spans_dropped_total counts them all"
        );
        *told = Told {
            at: Some(now),
            lost_since: 0,
        };
    }
}

fn count(batch: &[Box<FinishedTrace>]) -> u64 {
    batch.iter().map(|trace| trace.spans()).sum()
}
