//! Export of spans by OTLP over HTTP, with protobuf: a task takes finished requests from a bounded queue and
//! posts them to a collector in batches.
//!
//! Requests never wait for the export. Spans that cannot be delivered are dropped and counted, which is logged
//! once a minute. The connection is made as the configuration says; environment variables are ignored. The
//! usual library would read `HTTP_PROXY`, which could name this very proxy.

mod collector;
mod delivery;
mod encode;
pub mod message;

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time;

use crate::metrics::labels::SpanLossReason;
use crate::metrics::trace::{FinishedTrace, TraceReceiver};

pub use collector::{Collector, CollectorSettings};
use delivery::RetryMode;
pub use delivery::TraceDelivery;
pub use encode::ServiceIdentity;

/// The maximum number of requests in one export.
const MAX_BATCH: usize = 256;
/// The time for which a request waits for others to share an export.
const LINGER: Duration = Duration::from_secs(1);

/// The export task.
#[derive(Debug)]
pub struct TraceExporter {
    stop: oneshot::Sender<Duration>,
    task: JoinHandle<()>,
}

impl TraceExporter {
    /// Starts the export; must be called inside a tokio runtime.
    pub fn start(traces: TraceReceiver, delivery: TraceDelivery) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(run_export(traces, delivery, stopped));
        Self { stop, task }
    }

    /// Exports the remaining spans, within this time, and ends. Requests that finish later are counted as
    /// dropped.
    pub async fn close(self, timeout: Duration) {
        if self.stop.send(timeout).is_ok() {
            let _ = self.task.await;
        }
    }
}

type TraceBatch = Vec<Box<FinishedTrace>>;

async fn run_export(
    mut traces: TraceReceiver,
    delivery: TraceDelivery,
    mut stopped: oneshot::Receiver<Duration>,
) {
    let mut batch = TraceBatch::new();
    loop {
        let timeout = tokio::select! {
            timeout = &mut stopped => Some(timeout),
            more = gather_batch(&mut traces, &mut batch) => match more {
                MoreTraces::Yes => None,
                MoreTraces::No => return,
            },
        };
        let timeout = match timeout {
            Some(timeout) => Some(timeout),
            None => tokio::select! {
                () = delivery.deliver(&batch, RetryMode::Several) => None,
                timeout = &mut stopped => Some(timeout),
            },
        };
        if let Some(timeout) = timeout {
            return export_rest(traces, batch, &delivery, timeout.unwrap_or_default()).await;
        }
        batch.clear();
    }
}

/// The result of waiting for requests.
enum MoreTraces {
    Yes,
    /// The queue is closed and empty.
    No,
}

/// Takes finished requests, and briefly waits for more. If cancelled, those already taken stay in the
/// batch.
async fn gather_batch(traces: &mut TraceReceiver, batch: &mut TraceBatch) -> MoreTraces {
    if batch.is_empty() && traces.recv_many(batch, MAX_BATCH).await == 0 {
        return MoreTraces::No;
    }
    let others = async {
        while batch.len() < MAX_BATCH && traces.recv_many(batch, MAX_BATCH - batch.len()).await > 0
        {
        }
    };
    let _ = time::timeout(LINGER, others).await;
    MoreTraces::Yes
}

/// Exports the rest: the interrupted batch again, and everything in the queue. What takes longer than
/// `within` is lost.
async fn export_rest(
    mut traces: TraceReceiver,
    mut batch: TraceBatch,
    delivery: &TraceDelivery,
    timeout: Duration,
) {
    traces.close();
    let rest = async {
        loop {
            while batch.len() < MAX_BATCH
                && let Ok(trace) = traces.try_recv()
            {
                batch.push(trace);
            }
            if batch.is_empty() {
                return;
            }
            delivery.deliver(&batch, RetryMode::One).await;
            batch.clear();
        }
    };
    if time::timeout(timeout, rest).await.is_err() {
        while let Ok(trace) = traces.try_recv() {
            batch.push(trace);
        }
        delivery.record_lost(SpanLossReason::Shutdown, &batch);
    }
}
