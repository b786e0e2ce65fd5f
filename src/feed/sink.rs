//! One delivery: tried until it succeeds or is given up, counted, and told when it fails.

use std::time::Duration;

use serde_json::{Value as Json, json};
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

/// The pause behind the first failure; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause of our own, and the longest that a reader may send us away.
const MAX_PAUSE: Duration = Duration::from_secs(900);
/// How often a batch is posted before it is given up; with the pauses, about an hour and a half.
const MAX_TRIES: u32 = 16;

/// Where events go, and what is counted of it.
#[derive(Debug)]
pub(super) struct FeedSink {
    pub(super) target: FeedTarget,
    pub(super) destination: FeedDestination,
    pub(super) metrics: Metrics,
}

/// Where events go.
#[derive(Debug)]
pub(super) enum FeedDestination {
    /// Lines are appended.
    File(EventFile),
    /// Batches are posted; what is given up is appended to a file.
    Webhook(Box<Webhook>, EventFile),
}

/// How a delivery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FeedDelivery {
    /// Delivered, or given up and put aside.
    Completed,
    /// The proxy ends.
    Stopped,
}

/// Events that are delivered at once.
pub(super) fn batch_size(out: FeedTarget) -> usize {
    match out {
        FeedTarget::File => 1_000,
        FeedTarget::Webhook => 100,
    }
}

impl FeedSink {
    /// Delivers a batch, however long that takes, unless the proxy ends.
    pub(super) async fn deliver(
        &self,
        batch: &EventBatch,
        stop: &mut watch::Receiver<()>,
    ) -> FeedDelivery {
        let (mut pause, mut tries) = (FIRST_PAUSE, 0);
        loop {
            tries += 1;
            // One that is under way is never cut: what it delivered would be sent again.
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
                "events are not delivered ({}): {}; again in {wait:?}",
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

    /// Tries once.
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

    /// Appends a batch to the dead letters; whether that went well.
    async fn write_dead_letters(&self, batch: &EventBatch, why: &str) -> bool {
        let FeedDestination::Webhook(_, dead) = &self.destination else {
            return false;
        };
        let at = Rfc3339(Clock::system().wall_time()).to_string();
        let marked = |mut document: Json| {
            if let Some(members) = document.as_object_mut() {
                members.insert("undelivered".into(), json!({ "at": at, "because": why }));
            }
            document
        };
        let documents = batch
            .iter()
            .map(|(cursor, event)| marked(event::to_json(cursor.0, event)))
            .collect();
        if let Err(failure) = dead.append(documents).await {
            tracing::error!(
                "events that the webhook does not take cannot be put aside: {}",
                failure.message
            );
            return false;
        }
        self.metrics
            .add_feed_events(self.target, FeedResult::DeadLetter, event_count(batch));
        tracing::error!(
            events = batch.len(),
            "the webhook does not take events: {why}; they are in {dead}"
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
