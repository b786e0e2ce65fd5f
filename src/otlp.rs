//! Spans by OTLP over HTTP, with protobuf: requests that are over come out of a bounded queue, and go to a collector in
//! batches, from a task of their own.
//!
//! Nothing here makes a request wait. What cannot be delivered is dropped, counted and told once a minute. The connection
//! is the operator's choice and goes where the configuration says: no variable of the environment has a say, as it
//! would with the usual library, for which `HTTP_PROXY` could name this very proxy.

mod collector;
mod delivery;
mod encode;
pub mod message;

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::metrics::labels::SpanLossReason;
use crate::metrics::trace::{FinishedTrace, TraceReceiver};

pub use collector::{Collector, CollectorSettings};
use delivery::RetryMode;
pub use delivery::TraceDelivery;
pub use encode::ServiceIdentity;

/// Requests in one export.
const MAX_BATCH: usize = 256;
/// How long a request waits for others to go with.
const LINGER: Duration = Duration::from_secs(1);

/// The task that exports.
#[derive(Debug)]
pub struct TraceExporter {
    stop: oneshot::Sender<Duration>,
    task: JoinHandle<()>,
}

impl TraceExporter {
    /// Begins to export; must be called inside a tokio runtime.
    pub fn start(traces: TraceReceiver, delivery: TraceDelivery) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(run_export(traces, delivery, stopped));
        Self { stop, task }
    }

    /// Exports what is left, within this time, and ends. Requests that end later are counted as dropped.
    pub async fn close(self, within: Duration) {
        if self.stop.send(within).is_ok() {
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
        let within = tokio::select! {
            within = &mut stopped => Some(within),
            more = gather_batch(&mut traces, &mut batch) => match more {
                MoreTraces::Yes => None,
                MoreTraces::No => return,
            },
        };
        let within = match within {
            Some(within) => Some(within),
            None => tokio::select! {
                () = delivery.deliver(&batch, RetryMode::Several) => None,
                within = &mut stopped => Some(within),
            },
        };
        if let Some(within) = within {
            return export_rest(traces, batch, &delivery, within.unwrap_or_default()).await;
        }
        batch.clear();
    }
}

/// Whether there is anything to export.
enum MoreTraces {
    Yes,
    /// The proxy is gone.
    No,
}

/// Takes what has come, and for a moment what comes behind it. What was taken stays in the batch if this is broken off.
async fn gather_batch(traces: &mut TraceReceiver, batch: &mut TraceBatch) -> MoreTraces {
    if batch.is_empty() && traces.recv_many(batch, MAX_BATCH).await == 0 {
        return MoreTraces::No;
    }
    let others = async {
        while batch.len() < MAX_BATCH && traces.recv_many(batch, MAX_BATCH - batch.len()).await > 0
        {
        }
    };
    let _ = timeout(LINGER, others).await;
    MoreTraces::Yes
}

/// Exports the rest: a batch that was under way once more, and all that waits. What takes longer is lost.
async fn export_rest(
    mut traces: TraceReceiver,
    mut batch: TraceBatch,
    delivery: &TraceDelivery,
    within: Duration,
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
    if timeout(within, rest).await.is_err() {
        while let Ok(trace) = traces.try_recv() {
            batch.push(trace);
        }
        delivery.record_lost(SpanLossReason::Shutdown, &batch);
    }
}
