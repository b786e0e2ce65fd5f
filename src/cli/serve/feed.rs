//! The ledger's events on their way out, as the settings say.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::cli::origin_roots;
use crate::config::settings::Settings;
use crate::feed::{Feed, FeedSettings};
use crate::http_client::Endpoint;
use crate::metrics::Metrics;
use crate::store::ledger::Ledger;
use crate::urls::target::{Scheme, UrlTarget};

use super::ledger::LedgerCell;

/// How long one post may take.
const POST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the last events may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Under `store.path`: what the webhook does not take.
const DEAD_LETTERS: &str = "events-undelivered.ndjson";

/// How often it is looked whether there is a ledger by now: a reload may bring the first one.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// What ends with the proxy; nothing where there is nobody to tell.
#[derive(Debug)]
pub(super) struct LedgerFeedTask(Option<(oneshot::Sender<()>, JoinHandle<()>)>);

impl LedgerFeedTask {
    /// Begins to tell once there is a ledger. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the webhook cannot be asked, in words.
    pub(super) fn start(
        settings: &Settings,
        ledger: &LedgerCell,
        metrics: &Metrics,
    ) -> Result<Self, String> {
        let events = &settings.ledger.events;
        let webhook = events
            .webhook
            .as_ref()
            .map(|url| webhook_endpoint(url, settings))
            .transpose()?;
        let out = FeedSettings {
            file: events.file.clone(),
            webhook,
        };
        if out.file.is_none() && out.webhook.is_none() {
            return Ok(Self(None));
        }
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(run_feed(out, Arc::clone(ledger), metrics.clone(), stopped));
        Ok(Self(Some((stop, task))))
    }

    /// Tells what is left. To be called while the ledger is still open.
    pub(super) async fn close(self) {
        let Some((stop, task)) = self.0 else { return };
        if stop.send(()).is_ok() {
            let _ = task.await;
        }
    }
}

async fn run_feed(
    out: FeedSettings,
    ledger_cell: LedgerCell,
    metrics: Metrics,
    mut stopped: oneshot::Receiver<()>,
) {
    let ledger = tokio::select! {
        _ = &mut stopped => return,
        ledger = wait_for_ledger(&ledger_cell) => ledger,
    };
    let feed = Feed::start(out, &ledger, &metrics);
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

/// Whoever is told is never told without its certificate being verified.
fn webhook_endpoint(url: &UrlTarget, settings: &Settings) -> Result<(Endpoint, PathBuf), String> {
    let told = |why: String| format!("ledger.events.webhook {}: {why}", url.base());
    let tls = match url.scheme() {
        Scheme::Http => None,
        Scheme::Https => Some(origin_roots::verifying_client_config(&settings.tls).map_err(told)?),
    };
    let endpoint = Endpoint::new(url, url.path_and_query(), [], POST_TIMEOUT, tls).map_err(told)?;
    let directory = settings.store.path.as_deref().unwrap_or(Path::new(""));
    Ok((endpoint, directory.join(DEAD_LETTERS)))
}
