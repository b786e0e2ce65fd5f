//! A delivery: retried until it succeeds or is given up, counted, and logged if it fails.

use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::clock::{Clock, Rfc3339};
use crate::http_client::{DeliveryFailure, RetryAdvice};
use crate::metrics::Metrics;
use crate::metrics::labels::{FeedResult, FeedTarget};
use crate::report::event;

use super::EventBatch;
use super::file::EventFile;
use super::webhook::Webhook;

/// The pause after the first failure; it doubles with every further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The maximum pause, also for a receiver that sends Retry-After.
const MAX_PAUSE: Duration = Duration::from_secs(900);
/// The number of times a batch is posted before it is given up: about an hour and a half with the
/// pauses.
const MAX_TRIES: u32 = 16;

/// A destination of events, and its metrics.
#[derive(Debug)]
pub(super) struct FeedSink {
    pub(super) target: FeedTarget,
    pub(super) destination: FeedDestination,
    pub(super) metrics: Metrics,
}

/// A destination of events.
#[derive(Debug)]
pub(super) enum FeedDestination {
    /// A file that lines are appended to.
    File(EventFile),
    /// A webhook that batches are posted to, and a file for those it does not accept.
    Webhook(Box<Webhook>, EventFile),
}

/// The outcome of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FeedDelivery {
    /// Delivered, or written to the dead letters.
    Completed,
    /// Interrupted: the proxy is shutting down.
    Stopped,
}

/// Returns the maximum number of events in a batch.
pub(super) fn batch_size(target: FeedTarget) -> usize {
    match target {
        FeedTarget::File => 1_000,
        FeedTarget::Webhook => 100,
    }
}

impl FeedSink {
    /// Delivers a batch, however long that takes, unless the proxy is shutting down.
    pub(super) async fn deliver(
        &self,
        batch: &EventBatch,
        stop: &mut watch::Receiver<()>,
    ) -> FeedDelivery {
        let mut pause = FIRST_PAUSE;
        let mut tries = 0;
        loop {
            tries += 1;
            // A delivery in progress is never interrupted: it would be repeated after the next start.
            let Err(failure) = self.try_deliver(batch).await else {
                return FeedDelivery::Completed;
            };
            if self.should_give_up(&failure, tries)
                && self.write_dead_letters(batch, &failure.message).await
            {
                return FeedDelivery::Completed;
            }
            let wait = match failure.retry {
                RetryAdvice::After(time) => time.min(MAX_PAUSE),
                RetryAdvice::AfterBackoff | RetryAdvice::Never => pause,
            };
            tracing::warn!(
                "cannot deliver events ({}): {}; next try in {wait:?}",
                self.setting_name(),
                failure.message
            );
            tokio::select! {
                () = sleep(wait) => {}
                _ = stop.changed() => return FeedDelivery::Stopped,
            }
            pause = (2 * pause).min(MAX_PAUSE);
        }
    }

    /// Tries to deliver a batch once.
    pub(super) async fn try_deliver(&self, batch: &EventBatch) -> Result<(), DeliveryFailure> {
        let documents = batch
            .iter()
            .map(|(cursor, event)| event::to_json(cursor.0, event))
            .collect();
        let done = match &self.destination {
            FeedDestination::File(lines) => lines.append(documents).await,
            FeedDestination::Webhook(webhook, _) => webhook.post(&documents).await,
        };
        match &done {
            Ok(()) => {
                self.metrics
                    .add_feed_events(self.target, FeedResult::Delivered, event_count(batch))
            }
            Err(_) => self.metrics.record_feed_failure(self.target),
        }
        done
    }

    fn should_give_up(&self, failure: &DeliveryFailure, tries: u32) -> bool {
        match &self.destination {
            FeedDestination::File(_) => false,
            FeedDestination::Webhook(..) => {
                failure.retry == RetryAdvice::Never || tries >= MAX_TRIES
            }
        }
    }

    /// Appends a batch to the dead letters, and returns `true` if that succeeded.
    async fn write_dead_letters(&self, batch: &EventBatch, cause: &str) -> bool {
        let FeedDestination::Webhook(_, dead) = &self.destination else {
            return false;
        };
        let at = Rfc3339(Clock::system().wall_time()).to_string();
        let mut documents = Vec::with_capacity(batch.len());
        for (cursor, event) in batch {
            let mut document = event::to_json(cursor.0, event);
            if let Some(members) = document.as_object_mut() {
                members.insert("undelivered".into(), json!({ "at": at, "because": cause }));
            }
            documents.push(document);
        }
        if let Err(failure) = dead.append(documents).await {
            tracing::error!(
                "cannot write events that the webhook rejected to the dead-letter file: {}",
                failure.message
            );
            return false;
        }
        self.metrics
            .add_feed_events(self.target, FeedResult::DeadLetter, event_count(batch));
        tracing::error!(
            events = batch.len(),
            "the webhook rejected events: {cause}; they are in {dead}"
        );
        true
    }

    fn setting_name(&self) -> &'static str {
        match self.target {
            FeedTarget::File => "ledger.events.file",
            FeedTarget::Webhook => "ledger.events.webhook",
        }
    }
}

fn event_count(batch: &EventBatch) -> u64 {
    u64::try_from(batch.len()).unwrap_or(u64::MAX)
}
