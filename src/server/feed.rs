//! The feed of the ledger's events, to a file and to a webhook.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::config::settings::Settings;
use crate::feed::{Feed, FeedSettings};
use crate::http_client::Endpoint;
use crate::metrics::Metrics;
use crate::store::ledger::Ledger;
use crate::urls::target::UrlTarget;

use super::ledger::LedgerCell;
use super::origin_roots;

/// The time limit of one request to the webhook.
const POST_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit of delivering the last events on shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The file below `store.path` for events that the webhook rejects.
const DEAD_LETTERS: &str = "events-undelivered.ndjson";
/// The interval of checks for a ledger, which a reload may open.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The running feed; `None` if the settings name no destination.
#[derive(Debug)]
pub(super) struct LedgerFeedTask(Option<(oneshot::Sender<()>, JoinHandle<()>)>);

impl LedgerFeedTask {
    /// Starts a task that delivers events once there is a ledger. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the webhook cannot be used.
    pub(super) fn start(
        settings: &Settings,
        ledger: &LedgerCell,
        metrics: &Metrics,
    ) -> Result<Self, String> {
        let events = &settings.ledger.events;
        let webhook = match &events.webhook {
            Some(url) => Some(webhook_endpoint(url, settings)?),
            None => None,
        };
        let feed = FeedSettings {
            file: events.file.clone(),
            webhook,
        };
        if feed.file.is_none() && feed.webhook.is_none() {
            return Ok(Self(None));
        }
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(run_feed(feed, Arc::clone(ledger), metrics.clone(), stopped));
        Ok(Self(Some((stop, task))))
    }

    /// Delivers the remaining events. Must be called while the ledger is still open.
    pub(super) async fn close(self) {
        let Some((stop, task)) = self.0 else { return };
        if stop.send(()).is_ok() {
            let _ = task.await;
        }
    }
}

async fn run_feed(
    settings: FeedSettings,
    ledger_cell: LedgerCell,
    metrics: Metrics,
    mut stopped: oneshot::Receiver<()>,
) {
    let ledger = tokio::select! {
        _ = &mut stopped => return,
        ledger = wait_for_ledger(&ledger_cell) => ledger,
    };
    let feed = Feed::start(settings, &ledger, &metrics);
    let _ = stopped.await;
    feed.close(CLOSE_TIMEOUT).await;
}

async fn wait_for_ledger(ledger_cell: &LedgerCell) -> Ledger {
    loop {
        if let Some(ledger) = ledger_cell.get() {
            return ledger.clone();
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Returns the webhook and the file for events that it rejects. Its certificate is always verified.
fn webhook_endpoint(url: &UrlTarget, settings: &Settings) -> Result<(Endpoint, PathBuf), String> {
    let endpoint = origin_roots::client_config_for(url, &settings.tls)
        .and_then(|tls| Endpoint::new(url, url.path_and_query(), [], POST_TIMEOUT, tls))
        .map_err(|error| format!("ledger.events.webhook {}: {error}", url.base()))?;
    let directory = settings.store.path.as_deref().unwrap_or(Path::new(""));
    Ok((endpoint, directory.join(DEAD_LETTERS)))
}
