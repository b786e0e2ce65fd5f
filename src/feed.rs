//! Delivery of the ledger's events: to a file that lines are appended to, and to a webhook that receives
//! batches.
//!
//! Each target has its own cursor, stored with the ledger once events are delivered: a crash in between
//! sends some of them again, under the same `id`, and loses none. Requests never wait for delivery.

mod file;
mod sink;
mod webhook;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{self, sleep};

use crate::http_client::Endpoint;
use crate::ledger::event::LedgerEvent;
use crate::metrics::Metrics;
use crate::metrics::labels::FeedTarget;
use crate::store::ledger::{FeedCursor, Ledger, LedgerUnavailable};

use file::EventFile;
use sink::{FeedDelivery, FeedDestination, FeedSink};
use webhook::Webhook;

/// The delay before a failing disk is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Events with their numbers.
type EventBatch = Vec<(FeedCursor, Arc<LedgerEvent>)>;

/// The targets of the feed.
#[derive(Debug)]
pub struct FeedSettings {
    /// The file that lines are appended to.
    pub file: Option<PathBuf>,
    /// The endpoint that batches are posted to, and the file for events that it rejects.
    pub webhook: Option<(Endpoint, PathBuf)>,
}

/// The tasks that deliver events.
#[derive(Debug)]
pub struct Feed {
    stop: watch::Sender<()>,
    tasks: Vec<JoinHandle<()>>,
}

impl Feed {
    /// Starts delivery where it last ended. Must be called inside a tokio runtime.
    pub fn start(settings: FeedSettings, ledger: &Ledger, metrics: &Metrics) -> Self {
        let (stop, stopped) = watch::channel(());
        let mut destinations = Vec::new();
        if let Some(path) = settings.file {
            destinations.push((
                FeedTarget::File,
                FeedDestination::File(EventFile::new(path)),
            ));
        }
        if let Some((endpoint, dead)) = settings.webhook {
            let webhook = Box::new(Webhook::new(endpoint));
            let rejected = EventFile::new(dead);
            destinations.push((
                FeedTarget::Webhook,
                FeedDestination::Webhook(webhook, rejected),
            ));
        }
        let mut tasks = Vec::new();
        for (target, destination) in destinations {
            let reader = FeedReader::new(ledger.clone(), target);
            let sink = FeedSink {
                target,
                destination,
                metrics: metrics.clone(),
            };
            tasks.push(tokio::spawn(run_feed(reader, sink, stopped.clone())));
        }
        Self { stop, tasks }
    }

    /// Delivers the remaining events, within this time, and ends. The rest is delivered after the next start.
    pub async fn close(self, timeout: Duration) {
        // All tasks end together: each is notified before the first is awaited.
        let _ = self.stop.send(());
        let ends = async {
            for task in self.tasks {
                let _ = task.await;
            }
        };
        let _ = time::timeout(timeout, ends).await;
    }
}

async fn run_feed(mut reader: FeedReader, sink: FeedSink, mut stop: watch::Receiver<()>) {
    loop {
        let batch = tokio::select! {
            _ = stop.changed() => break,
            batch = reader.next_batch() => batch,
        };
        reader.report_backlog(&sink);
        match sink.deliver(&batch, &mut stop).await {
            FeedDelivery::Completed => reader.advance(&batch, &sink),
            FeedDelivery::Stopped => break,
        }
    }
    // Deliver the remaining batches, each tried once, so that the last events go out before the end.
    loop {
        let batch = reader.available_batch().await.unwrap_or_default();
        if batch.is_empty() || sink.try_deliver(&batch).await.is_err() {
            return;
        }
        reader.advance(&batch, &sink);
    }
}

/// The position of a target in the feed.
#[derive(Debug)]
struct FeedReader {
    ledger: Ledger,
    last_event: watch::Receiver<u64>,
    target: FeedTarget,
    cursor: FeedCursor,
}

impl FeedReader {
    fn new(ledger: Ledger, target: FeedTarget) -> Self {
        let cursor = stored_cursor(&ledger, target);
        Self {
            last_event: ledger.subscribe(),
            ledger,
            target,
            cursor,
        }
    }

    /// Waits for the next events.
    async fn next_batch(&mut self) -> EventBatch {
        loop {
            // An event that arrives from here on wakes this task.
            self.last_event.borrow_and_update();
            let Ok(batch) = self.available_batch().await else {
                sleep(RETRY_DELAY).await;
                continue;
            };
            if !batch.is_empty() {
                return batch;
            }
            if self.last_event.changed().await.is_err() {
                // The ledger is closed: no further events come.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns the next events, if there are any.
    async fn available_batch(&self) -> Result<EventBatch, LedgerUnavailable> {
        let ledger = self.ledger.clone();
        let cursor = self.cursor;
        let most = sink::batch_size(self.target);
        let read = tokio::task::spawn_blocking(move || ledger.events(cursor, most));
        read.await.unwrap_or(Err(LedgerUnavailable))
    }

    fn advance(&mut self, batch: &EventBatch, sink: &FeedSink) {
        let Some((last, _)) = batch.last() else {
            return;
        };
        self.cursor = *last;
        self.ledger
            .store_value(cursor_name(self.target), last.0.to_be_bytes().to_vec());
        self.report_backlog(sink);
    }

    /// Updates the metric of undelivered events.
    fn report_backlog(&self, sink: &FeedSink) {
        sink.metrics.set_feed_backlog(
            self.target,
            self.last_event.borrow().saturating_sub(self.cursor.0),
        );
    }
}

/// Returns the last event that every configured target has delivered; later events must be kept.
pub fn delivered_cursor(
    ledger: &Ledger,
    targets: impl IntoIterator<Item = FeedTarget>,
) -> FeedCursor {
    let cursors = targets
        .into_iter()
        .map(|target| stored_cursor(ledger, target));
    cursors.min().unwrap_or(ledger.stats().last_event)
}

fn stored_cursor(ledger: &Ledger, target: FeedTarget) -> FeedCursor {
    let cursors = ledger
        .load_value(cursor_name(target))
        .and_then(|bytes| bytes.try_into().ok());
    FeedCursor(cursors.map_or(0, u64::from_be_bytes))
}

/// Returns the name under which the ledger stores a cursor.
fn cursor_name(target: FeedTarget) -> &'static str {
    match target {
        FeedTarget::File => "feed:file",
        FeedTarget::Webhook => "feed:webhook",
    }
}

#[cfg(test)]
mod tests {
    use crate::ledger::transition::ErrorTolerance;

    use super::*;

    #[test]
    fn events_are_kept_for_the_slowest_feed() {
        let ledger = Ledger::in_memory(ErrorTolerance {
            temporary_errors: 5,
        });
        let targets = [FeedTarget::File, FeedTarget::Webhook];
        ledger.store_value(
            cursor_name(FeedTarget::Webhook),
            5_u64.to_be_bytes().to_vec(),
        );
        assert_eq!(delivered_cursor(&ledger, targets), FeedCursor(0));
        ledger.store_value(cursor_name(FeedTarget::File), 3_u64.to_be_bytes().to_vec());
        assert_eq!(delivered_cursor(&ledger, targets), FeedCursor(3));
        assert_eq!(
            delivered_cursor(&ledger, [FeedTarget::Webhook]),
            FeedCursor(5)
        );
        assert_eq!(delivered_cursor(&ledger, []), ledger.stats().last_event);
    }
}
