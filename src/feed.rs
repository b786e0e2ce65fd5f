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

use crate::ledger::event::Event;
use crate::metrics::Metrics;
use crate::metrics::labels::FeedOut;
use crate::post::Endpoint;
use crate::store::ledger::{Cursor, Failed, Ledger};

use file::Lines;
use sink::{Outcome, Outlet, Sink};
use webhook::Webhook;

/// How long a disk that fails is left alone.
const AGAIN: Duration = Duration::from_secs(1);

/// Events with their numbers.
type Batch = Vec<(Cursor, Arc<Event>)>;

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
        let file = settings
            .file
            .map(|path| (FeedOut::File, Outlet::File(Lines::at(path))));
        let webhook = settings.webhook.map(|(endpoint, dead)| {
            (
                FeedOut::Webhook,
                Outlet::Webhook(Box::new(Webhook::new(endpoint)), Lines::at(dead)),
            )
        });
        let (stop, stopped) = watch::channel(());
        let start = |(out, outlet)| {
            let reader = Reader::new(ledger.clone(), out);
            tokio::spawn(run(
                reader,
                Sink {
                    out,
                    outlet,
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

async fn run(mut reader: Reader, sink: Sink, mut stop: watch::Receiver<()>) {
    loop {
        let batch = tokio::select! {
            _ = stop.changed() => break,
            batch = reader.next() => batch,
        };
        reader.show(&sink);
        match sink.deliver(&batch, &mut stop).await {
            Outcome::Over => reader.passed(&batch, &sink),
            Outcome::Stopped => break,
        }
    }
    // Once more, each batch once: what an origin's last answers owed goes out before the end, if it can.
    loop {
        let batch = reader.at_hand().await.unwrap_or_default();
        if batch.is_empty() || sink.once(&batch).await.is_err() {
            return;
        }
        reader.passed(&batch, &sink);
    }
}

/// Where in the feed an outlet is.
#[derive(Debug)]
struct Reader {
    ledger: Ledger,
    told: watch::Receiver<u64>,
    out: FeedOut,
    cursor: Cursor,
}

impl Reader {
    fn new(ledger: Ledger, out: FeedOut) -> Self {
        let cursor = cursor(&ledger, out);
        Self {
            told: ledger.told(),
            ledger,
            out,
            cursor,
        }
    }

    /// The next events, once there are some.
    async fn next(&mut self) -> Batch {
        loop {
            // What comes from here on wakes us, however soon.
            self.told.borrow_and_update();
            let Ok(batch) = self.at_hand().await else {
                sleep(AGAIN).await;
                continue;
            };
            if !batch.is_empty() {
                return batch;
            }
            if self.told.changed().await.is_err() {
                // The ledger is closed: there is nothing more to come.
                std::future::pending::<()>().await;
            }
        }
    }

    /// The next events, if there are some.
    async fn at_hand(&self) -> Result<Batch, Failed> {
        let (ledger, cursor, most) = (self.ledger.clone(), self.cursor, sink::batch(self.out));
        let read = tokio::task::spawn_blocking(move || ledger.events(cursor, most));
        read.await.unwrap_or(Err(Failed))
    }

    fn passed(&mut self, batch: &Batch, sink: &Sink) {
        let Some((last, _)) = batch.last() else {
            return;
        };
        self.cursor = *last;
        self.ledger
            .keep(name(self.out), last.0.to_be_bytes().to_vec());
        self.show(sink);
    }

    /// Shows how many are still to go.
    fn show(&self, sink: &Sink) {
        sink.metrics
            .feed_behind(self.out, self.told.borrow().saturating_sub(self.cursor.0));
    }
}

/// The last event that every outlet in use has delivered: those behind it must not be forgotten.
pub fn delivered(ledger: &Ledger, outlets: impl IntoIterator<Item = FeedOut>) -> Cursor {
    let cursors = outlets.into_iter().map(|out| cursor(ledger, out));
    cursors.min().unwrap_or(ledger.stats().last_event)
}

fn cursor(ledger: &Ledger, out: FeedOut) -> Cursor {
    let kept = ledger
        .kept(name(out))
        .and_then(|bytes| bytes.try_into().ok());
    Cursor(kept.map_or(0, u64::from_be_bytes))
}

/// Under which the ledger keeps a cursor.
fn name(out: FeedOut) -> &'static str {
    match out {
        FeedOut::File => "feed:file",
        FeedOut::Webhook => "feed:webhook",
    }
}

#[cfg(test)]
mod tests {
    use crate::ledger::transition::Tolerance;

    use super::*;

    #[test]
    fn what_the_slowest_outlet_in_use_has_is_delivered() {
        let ledger = Ledger::in_memory(Tolerance {
            temporary_errors: 5,
        });
        let both = [FeedOut::File, FeedOut::Webhook];
        ledger.keep(name(FeedOut::Webhook), 5_u64.to_be_bytes().to_vec());
        assert_eq!(delivered(&ledger, both), Cursor(0));
        ledger.keep(name(FeedOut::File), 3_u64.to_be_bytes().to_vec());
        assert_eq!(delivered(&ledger, both), Cursor(3));
        assert_eq!(delivered(&ledger, [FeedOut::Webhook]), Cursor(5));
        assert_eq!(delivered(&ledger, []), ledger.stats().last_event);
    }
}
