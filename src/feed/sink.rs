//! One delivery: tried until it succeeds or is given up, counted, and told when it fails.

use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::clock::{Clock, Rfc3339};
use crate::metrics::Metrics;
use crate::metrics::labels::{FeedEnd, FeedOut};
use crate::post::{Again, Failure};
use crate::report::event;

use super::Batch;
use super::file::Lines;
use super::webhook::Webhook;

/// The pause behind the first failure; each further one is twice as long.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause of our own, and the longest that a reader may send us away.
const LONGEST: Duration = Duration::from_secs(900);
/// How often a batch is posted before it is given up; with the pauses, about an hour and a half.
const TRIES: u32 = 16;

/// Where events go, and what is counted of it.
#[derive(Debug)]
pub(super) struct Sink {
    pub(super) out: FeedOut,
    pub(super) outlet: Outlet,
    pub(super) metrics: Metrics,
}

/// Where events go.
#[derive(Debug)]
pub(super) enum Outlet {
    /// Lines are appended.
    File(Lines),
    /// Batches are posted; what is given up is appended to a file.
    Webhook(Box<Webhook>, Lines),
}

/// How a delivery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Delivered, or given up and put aside.
    Over,
    /// The proxy ends.
    Stopped,
}

/// Events that are delivered at once.
pub(super) fn batch(out: FeedOut) -> usize {
    match out {
        FeedOut::File => 1_000,
        FeedOut::Webhook => 100,
    }
}

impl Sink {
    /// Delivers a batch, however long that takes, unless the proxy ends.
    pub(super) async fn deliver(&self, batch: &Batch, stop: &mut watch::Receiver<()>) -> Outcome {
        let (mut pause, mut tries) = (FIRST, 0);
        loop {
            tries += 1;
            // One that is under way is never cut: what it delivered would be sent again.
            let Err(failure) = self.once(batch).await else {
                return Outcome::Over;
            };
            if self.gives_up(&failure, tries) && self.put_aside(batch, &failure.why).await {
                return Outcome::Over;
            }
            let wait = match failure.again {
                Again::After(time) => time.min(LONGEST),
                Again::Yes | Again::No => pause,
            };
            tracing::warn!(
                "events are not delivered ({}): {}; again in {wait:?}",
                self.name(),
                failure.why
            );
            tokio::select! {
                () = sleep(wait) => {}
                _ = stop.changed() => return Outcome::Stopped,
            }
            pause = (2 * pause).min(LONGEST);
        }
    }

    /// Tries once.
    pub(super) async fn once(&self, batch: &Batch) -> Result<(), Failure> {
        let documents = batch
            .iter()
            .map(|(cursor, event)| event::to_json(cursor.0, event))
            .collect();
        let done = match &self.outlet {
            Outlet::File(lines) => lines.append(documents).await,
            Outlet::Webhook(webhook, _) => webhook.post(&documents).await,
        };
        match &done {
            Ok(()) => self
                .metrics
                .feed_events(self.out, FeedEnd::Delivered, count(batch)),
            Err(_) => self.metrics.feed_failed(self.out),
        }
        done
    }

    fn gives_up(&self, failure: &Failure, tries: u32) -> bool {
        match &self.outlet {
            Outlet::File(_) => false,
            Outlet::Webhook(..) => failure.again == Again::No || tries >= TRIES,
        }
    }

    /// Appends a batch to the dead letters; whether that went well.
    async fn put_aside(&self, batch: &Batch, why: &str) -> bool {
        let Outlet::Webhook(_, dead) = &self.outlet else {
            return false;
        };
        let at = Rfc3339(Clock::system().wall()).to_string();
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
                failure.why
            );
            return false;
        }
        self.metrics
            .feed_events(self.out, FeedEnd::DeadLetter, count(batch));
        tracing::error!(
            events = batch.len(),
            "the webhook does not take events: {why}; they are in {dead}"
        );
        true
    }

    fn name(&self) -> &'static str {
        match self.out {
            FeedOut::File => "ledger.events.file",
            FeedOut::Webhook => "ledger.events.webhook",
        }
    }
}

fn count(batch: &Batch) -> u64 {
    u64::try_from(batch.len()).unwrap_or(u64::MAX)
}
