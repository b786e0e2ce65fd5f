//! The URL ledger, its events, deletions and the sweep: `/api/v1/urls`, `/api/v1/events` and `/api/v1/ledger`.
//!
//! Reads and deletions run on threads that may block, at most `MAX_CONCURRENT_READS` at once and each for a limited time. A filter that
//! few URLs match therefore returns those found so far, and where to continue.

mod events;
mod forget;
mod removals;
mod sweep;
mod urls;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use tokio::sync::Semaphore;

use crate::clock::Clock;
use crate::ledger::filter::TimeBudget;
use crate::model::crawler::Crawler;
use crate::pipeline::snapshot::ActivePolicy;
use crate::pipeline::sweep::LedgerSweeper;
use crate::pipeline::sweep::removals::RemovalScheduler;
use crate::policy::Policy;
use crate::report::ledger;
use crate::store::ledger::{Ledger, LedgerUnavailable};

use super::api_request::{ApiError, ApiResult, run_blocking};
use super::response::{self, problem};

/// The most concurrent reads, since each may go through the whole ledger.
const MAX_CONCURRENT_READS: usize = 2;
/// The time limit for one read.
const READ_TIME_LIMIT: Duration = Duration::from_secs(2);

/// The part of the API that shows the ledger and starts sweeps.
#[derive(Clone, Debug)]
pub struct LedgerApi {
    ledger: Arc<OnceLock<Ledger>>,
    sweeper: LedgerSweeper,
    removals: RemovalScheduler,
    crawlers: Arc<[Crawler]>,
    clock: Clock,
    active_policy: Arc<ActivePolicy>,
    read_permits: Arc<Semaphore>,
}

/// The data that a read needs.
struct LedgerReadContext {
    ledger: Ledger,
    policy: Arc<Policy>,
    crawlers: Arc<[Crawler]>,
    clock: Clock,
}

impl LedgerApi {
    /// Creates the API for a ledger, which a reload may open later. Each of `crawlers` may have a record of a URL, under
    /// the key that the active policy gives it (`strip_params`, `replace`).
    pub fn new(
        ledger: Arc<OnceLock<Ledger>>,
        sweeper: LedgerSweeper,
        removals: RemovalScheduler,
        crawlers: Arc<[Crawler]>,
        active_policy: Arc<ActivePolicy>,
        clock: Clock,
    ) -> Self {
        Self {
            ledger,
            sweeper,
            removals,
            crawlers,
            clock,
            active_policy,
            read_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_READS)),
        }
    }

    /// Reads on a thread that may block.
    async fn read_blocking(
        &self,
        read: impl FnOnce(&LedgerReadContext) -> Result<Response<Full<Bytes>>, LedgerUnavailable>
        + Send
        + 'static,
    ) -> ApiResult {
        let Some(ledger) = self.ledger.get().cloned() else {
            return Ok(no_ledger());
        };
        let permit = Arc::clone(&self.read_permits).acquire_owned().await;
        let permit = permit.map_err(|_| ApiError::Internal)?;
        let context = LedgerReadContext {
            ledger,
            policy: Arc::clone(&self.active_policy.load().policy),
            crawlers: Arc::clone(&self.crawlers),
            clock: self.clock.clone(),
        };
        run_blocking(move || {
            let _permit = permit;
            read(&context).unwrap_or_else(|LedgerUnavailable| ledger_unavailable())
        })
        .await
    }
}

impl LedgerReadContext {
    /// Returns a function that reports, after each slice of a read, if there is time for another.
    fn time_check(&self) -> impl FnMut() -> TimeBudget {
        let clock = self.clock.clone();
        let started = clock.now();
        move || {
            if clock.now().saturating_duration_since(started) < READ_TIME_LIMIT {
                TimeBudget::Remaining
            } else {
                TimeBudget::Exhausted
            }
        }
    }
}

/// Returns a 404 response that names the setting to change.
fn no_ledger() -> Response<Full<Bytes>> {
    problem(
        StatusCode::NOT_FOUND,
        "there is no ledger: with ledger.keep: auto there is one only if a policy has needed it (spaces, recrawl, max_depth, \
         unmodified, duplicate, budget.new_urls); set ledger.keep: always to keep one in any case",
    )
}

/// Returns a 503 response. Rows that were found before the disk failed are left out, since they would look complete.
fn ledger_unavailable() -> Response<Full<Bytes>> {
    problem(
        StatusCode::SERVICE_UNAVAILABLE,
        "the ledger is unavailable because its disk fails or the proxy is shutting down; try again, and see /readyz for the cause",
    )
}

impl LedgerApi {
    /// `GET /api/v1/ledger`: the number of URLs by status, the queue of the writer, and the progress of the sweep.
    pub(super) async fn show_stats(&self) -> ApiResult {
        let sweep = self.sweep_document();
        let held = self.removals.held();
        self.read_blocking(move |context| {
            let stats = context.ledger.stats();
            let disk_bytes = context.ledger.disk_bytes();
            Ok(response::json(
                StatusCode::OK,
                &ledger::to_json(&stats, disk_bytes, sweep, &held),
            ))
        })
        .await
    }
}
