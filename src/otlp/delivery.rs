//! A batch on its way: encoded once, tried a few times, counted, and what fails is told now and then.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message;
use tokio::time::sleep;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::metrics::labels::SpanLossReason;
use crate::metrics::trace::FinishedTrace;

use crate::http_client::{DeliveryFailure, RetryAdvice};

use super::collector::Collector;
use super::encode::{self, ServiceIdentity};

/// The pauses before the second and third try.
const RETRY_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// How often failures are told.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// What brings batches to a collector.
#[derive(Debug)]
pub struct TraceDelivery {
    resource: ServiceIdentity,
    collector: Collector,
    metrics: Metrics,
    clock: Clock,
    last_report: Mutex<LossReport>,
}

#[derive(Debug, Default)]
struct LossReport {
    at: Option<Instant>,
    lost_since: u64,
}

/// How often a batch is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryMode {
    One,
    Several,
}

impl TraceDelivery {
    /// Delivers in the name of this program, and counts in these metrics.
    pub fn new(
        resource: ServiceIdentity,
        collector: Collector,
        metrics: Metrics,
        clock: Clock,
    ) -> Self {
        Self {
            resource,
            collector,
            metrics,
            clock,
            last_report: Mutex::default(),
        }
    }

    /// Delivers a batch, or counts it as lost.
    pub(super) async fn deliver(&self, batch: &[Box<FinishedTrace>], tries: RetryMode) {
        let body = Bytes::from(encode::export_request(&self.resource, batch).encode_to_vec());
        match self.post(body, tries).await {
            Ok(rejected) => {
                let spans = span_count(batch);
                self.metrics
                    .add_exported_spans(spans.saturating_sub(rejected));
                self.metrics
                    .add_lost_spans(SpanLossReason::Rejected, rejected.min(spans));
                if rejected > 0 {
                    self.report_loss("it did not take all of them", rejected);
                }
            }
            Err(failure) => {
                self.record_lost(SpanLossReason::Failed, batch);
                self.report_loss(&failure.message, span_count(batch));
            }
        }
    }

    /// Counts a batch as lost.
    pub(super) fn record_lost(&self, why: SpanLossReason, batch: &[Box<FinishedTrace>]) {
        self.metrics.add_lost_spans(why, span_count(batch));
    }

    async fn post(&self, body: Bytes, tries: RetryMode) -> Result<u64, DeliveryFailure> {
        let pauses: &[Duration] = if tries == RetryMode::Several {
            &RETRY_PAUSES
        } else {
            &[]
        };
        for pause in pauses {
            match self.collector.post(body.clone()).await {
                Err(DeliveryFailure {
                    retry: RetryAdvice::AfterBackoff,
                    ..
                }) => sleep(*pause).await,
                Err(DeliveryFailure {
                    retry: RetryAdvice::After(time),
                    ..
                }) => sleep(time).await,
                answer => return answer,
            }
        }
        self.collector.post(body).await
    }

    fn report_loss(&self, why: &str, lost: u64) {
        let now = self.clock.now();
        let mut told = self
            .last_report
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        told.lost_since += lost;
        if told
            .at
            .is_some_and(|at| now.saturating_duration_since(at) < REPORT_INTERVAL)
        {
            return;
        }
        tracing::warn!(
            collector = ?self.collector,
            spans = told.lost_since,
            "spans are lost, since the collector of telemetry.otlp cannot be used: {why}. Told once a minute; \
             crawlgate_trace_spans_dropped_total counts them all"
        );
        *told = LossReport {
            at: Some(now),
            lost_since: 0,
        };
    }
}

fn span_count(batch: &[Box<FinishedTrace>]) -> u64 {
    batch.iter().map(|trace| trace.span_count()).sum()
}
