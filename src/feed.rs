//! The ledger's events on their way out: a file that lines are appended to, and a webhook that batches are posted to.
//!
//! Each has a cursor of its own, which is kept with the ledger once the events behind it are delivered: a crash between the
//! two sends some of them again, under the same `id`, and loses none. Requests never wait for any of this.

mod file;
mod sink;
mod webhook;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::http_client::Endpoint;
use crate::ledger::event::LedgerEvent;
use crate::metrics::Metrics;
use crate::metrics::labels::FeedTarget;
use crate::store::ledger::{FeedCursor, Ledger, LedgerUnavailable};

use file::EventFile;
use sink::{FeedDelivery, FeedDestination, FeedSink};
use webhook::Webhook;

/// How long a disk that fails is left alone.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Events with their numbers.
type EventBatch = Vec<(FeedCursor, Arc<LedgerEvent>)>;

/// Where events go.
#[derive(Debug)]
pub struct FeedSettings {
    /// Lines are appended to this file.
    pub file: Option<PathBuf>,
    /// Batches are posted here; those that it does not take are appended to the file beside it.
    pub webhook: Option<(Endpoint, PathBuf)>,
}

/// The tasks that bring events out.
#[derive(Debug)]
pub struct Feed {
    stop: watch::Sender<()>,
    tasks: Vec<JoinHandle<()>>,
}

impl Feed {
    /// Goes on where it was when it last ended. Must be called inside a tokio runtime.
    pub fn start(settings: FeedSettings, ledger: &Ledger, metrics: &Metrics) -> Self {
        let file = settings.file.map(|path| {
            (
                FeedTarget::File,
                FeedDestination::File(EventFile::new(path)),
            )
        });
        let webhook = settings.webhook.map(|(endpoint, dead)| {
            (
                FeedTarget::Webhook,
                FeedDestination::Webhook(Box::new(Webhook::new(endpoint)), EventFile::new(dead)),
            )
        });
        let (stop, stopped) = watch::channel(());
        let start = |(out, outlet)| {
            let reader = FeedReader::new(ledger.clone(), out);
            tokio::spawn(run_feed(
                reader,
                FeedSink {
                    target: out,
                    destination: outlet,
                    metrics: metrics.clone(),
                },
                stopped.clone(),
            ))
        };
        let tasks = file.into_iter().chain(webhook).map(start).collect();
        Self { stop, tasks }
    }

    /// Delivers what is left, within this time, and ends. What is not delivered then is when it next starts.
    pub async fn close(self, within: Duration) {
        // The ends of all tasks are waited for together: each began when the first was told.
        let _ = self.stop.send(());
        let ends = async {
            for task in self.tasks {
                let _ = task.await;
            }
        };
        let _ = timeout(within, ends).await;
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
    // Once more, each batch once: what an origin's last answers owed goes out before the end, if it can.
    loop {
        let batch = reader.available_batch().await.unwrap_or_default();
        if batch.is_empty() || sink.try_deliver(&batch).await.is_err() {
            return;
        }
        reader.advance(&batch, &sink);
    }
}

/// Where in the feed an outlet is.
#[derive(Debug)]
struct FeedReader {
    ledger: Ledger,
    last_event: watch::Receiver<u64>,
    target: FeedTarget,
    cursor: FeedCursor,
}

impl FeedReader {
    fn new(ledger: Ledger, out: FeedTarget) -> Self {
        let cursor = stored_cursor(&ledger, out);
        Self {
            last_event: ledger.subscribe(),
            ledger,
            target: out,
            cursor,
        }
    }

    /// The next events, once there are some.
    async fn next_batch(&mut self) -> EventBatch {
        loop {
            // What comes from here on wakes us, however soon.
            self.last_event.borrow_and_update();
            let Ok(batch) = self.available_batch().await else {
                sleep(RETRY_DELAY).await;
                continue;
            };
            if !batch.is_empty() {
                return batch;
            }
            if self.last_event.changed().await.is_err() {
                // The ledger is closed: there is nothing more to come.
                std::future::pending::<()>().await;
            }
        }
    }

    /// The next events, if there are some.
    async fn available_batch(&self) -> Result<EventBatch, LedgerUnavailable> {
        let (ledger, cursor, most) = (
            self.ledger.clone(),
            self.cursor,
            sink::batch_size(self.target),
        );
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

    /// Shows how many are still to go.
    fn report_backlog(&self, sink: &FeedSink) {
        sink.metrics.set_feed_backlog(
            self.target,
            self.last_event.borrow().saturating_sub(self.cursor.0),
        );
    }
}

/// The last event that every outlet in use has delivered: those behind it must not be forgotten.
pub fn delivered_cursor(
    ledger: &Ledger,
    outlets: impl IntoIterator<Item = FeedTarget>,
) -> FeedCursor {
    let cursors = outlets.into_iter().map(|out| stored_cursor(ledger, out));
    cursors.min().unwrap_or(ledger.stats().last_event)
}

fn stored_cursor(ledger: &Ledger, out: FeedTarget) -> FeedCursor {
    let kept = ledger
        .load_value(cursor_name(out))
        .and_then(|bytes| bytes.try_into().ok());
    FeedCursor(kept.map_or(0, u64::from_be_bytes))
}

/// Under which the ledger keeps a cursor.
fn cursor_name(out: FeedTarget) -> &'static str {
    match out {
        FeedTarget::File => "feed:file",
        FeedTarget::Webhook => "feed:webhook",
    }
}

#[cfg(test)]
mod tests {
    use crate::ledger::transition::ErrorTolerance;

    use super::*;

    #[test]
    fn what_the_slowest_outlet_in_use_has_is_delivered() {
        let ledger = Ledger::in_memory(ErrorTolerance {
            temporary_errors: 5,
        });
        let both = [FeedTarget::File, FeedTarget::Webhook];
        ledger.store_value(
            cursor_name(FeedTarget::Webhook),
            5_u64.to_be_bytes().to_vec(),
        );
        assert_eq!(delivered_cursor(&ledger, both), FeedCursor(0));
        ledger.store_value(cursor_name(FeedTarget::File), 3_u64.to_be_bytes().to_vec());
        assert_eq!(delivered_cursor(&ledger, both), FeedCursor(3));
        assert_eq!(
            delivered_cursor(&ledger, [FeedTarget::Webhook]),
            FeedCursor(5)
        );
        assert_eq!(delivered_cursor(&ledger, []), ledger.stats().last_event);
    }
}
