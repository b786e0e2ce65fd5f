//! Delivery of a batch: encoded once, tried a few times and counted; failures are logged occasionally.

use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
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
/// The minimum interval between reports of failures.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Delivers batches to a collector.
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

/// The number of attempts for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryMode {
    One,
    Several,
}

impl TraceDelivery {
    /// Creates a delivery on behalf of this service, counted in these metrics.
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
                    self.report_loss("it rejected some spans", rejected);
                }
            }
            Err(failure) => {
                self.record_lost(SpanLossReason::Failed, batch);
                self.report_loss(&failure.message, span_count(batch));
            }
        }
    }

    /// Counts a batch as lost.
    pub(super) fn record_lost(&self, reason: SpanLossReason, batch: &[Box<FinishedTrace>]) {
        self.metrics.add_lost_spans(reason, span_count(batch));
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

    fn report_loss(&self, cause: &str, lost: u64) {
        let now = self.clock.now();
        let mut report = self.last_report.lock();
        report.lost_since += lost;
        if report
            .at
            .is_some_and(|at| now.saturating_duration_since(at) < REPORT_INTERVAL)
        {
            return;
        }
        tracing::warn!(
            collector = ?self.collector,
            spans = report.lost_since,
            "spans are lost because the collector of telemetry.otlp fails: {cause}. Logged once a minute; \
             crawlgate_trace_spans_dropped_total counts them all"
        );
        *report = LossReport {
            at: Some(now),
            lost_since: 0,
        };
    }
}

fn span_count(batch: &[Box<FinishedTrace>]) -> u64 {
    batch.iter().map(|trace| trace.span_count()).sum()
}
