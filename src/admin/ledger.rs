//! The URLs that are remembered, what was told of them, and the sweep: `/api/v1/urls`, `/api/v1/events` and
//! `/api/v1/ledger`.
//!
//! Nothing here decides what is remembered. A look takes a thread of those that may block, at most `MAX_CONCURRENT_READS` of them at
//! once, each for a bounded time: a filter that little fits brings back what was found so far, and where to go on.

mod events;
mod stats;
pub mod sweep;
mod urls;

use std::fmt;
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
use crate::policy::Policy;
use crate::store::ledger::{Ledger, LedgerUnavailable};

use super::query::ParameterError;
use super::response::{self, problem};
use sweep::SweepControl;

/// Looks at once: each may go through all that is kept.
const MAX_CONCURRENT_READS: usize = 2;
/// How long one look may take.
const READ_TIME_LIMIT: Duration = Duration::from_secs(2);
/// The most rows, and how many if nothing is said.
const MAX_LIMIT: usize = 1_000;
const DEFAULT_LIMIT: usize = 100;

/// Where the ledger is. It may come and go with a reload.
pub trait LedgerProvider: fmt::Debug + Send + Sync {
    /// The ledger, if one is kept.
    fn ledger(&self) -> Option<Ledger>;
}

impl LedgerProvider for Ledger {
    fn ledger(&self) -> Option<Ledger> {
        Some(self.clone())
    }
}

impl LedgerProvider for OnceLock<Ledger> {
    fn ledger(&self) -> Option<Ledger> {
        self.get().cloned()
    }
}

/// What the proxy remembers of URLs.
#[derive(Clone, Debug)]
pub struct LedgerApi {
    provider: Arc<dyn LedgerProvider>,
    sweeper: Arc<dyn SweepControl>,
    crawlers: Arc<[Crawler]>,
    clock: Clock,
    active_policy: Option<Arc<ActivePolicy>>,
    read_permits: Arc<Semaphore>,
}

/// What a look has at hand.
struct LedgerReadContext {
    ledger: Ledger,
    policy: Option<Arc<Policy>>,
    crawlers: Arc<[Crawler]>,
    clock: Clock,
}

impl LedgerApi {
    /// Shows what these know; `crawlers` may each have a record of a URL.
    pub fn new(
        provider: Arc<dyn LedgerProvider>,
        sweeper: Arc<dyn SweepControl>,
        crawlers: Arc<[Crawler]>,
        clock: Clock,
    ) -> Self {
        Self {
            provider,
            sweeper,
            crawlers,
            clock,
            active_policy: None,
            read_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_READS)),
        }
    }

    /// Asks this policy under which URL a request is kept (`strip_params`, `replace`).
    pub fn with_policy(self, active_policy: Arc<ActivePolicy>) -> Self {
        Self {
            active_policy: Some(active_policy),
            ..self
        }
    }

    /// Looks apart from the threads that serve.
    async fn read_blocking(
        &self,
        read: impl FnOnce(&LedgerReadContext) -> Result<Response<Full<Bytes>>, LedgerUnavailable>
        + Send
        + 'static,
    ) -> Response<Full<Bytes>> {
        let Some(ledger) = self.provider.ledger() else {
            return no_ledger();
        };
        let Ok(place) = Arc::clone(&self.read_permits).acquire_owned().await else {
            return response::internal_error();
        };
        let crawlers = Arc::clone(&self.crawlers);
        let policy = self
            .active_policy
            .as_ref()
            .map(|in_force| Arc::clone(&in_force.load().policy));
        let at_hand = LedgerReadContext {
            ledger,
            policy,
            crawlers,
            clock: self.clock.clone(),
        };
        let looked = tokio::task::spawn_blocking(move || {
            let _place = place;
            read(&at_hand).unwrap_or_else(|LedgerUnavailable| ledger_unavailable())
        });
        looked.await.unwrap_or_else(|_| response::internal_error())
    }
}

impl LedgerReadContext {
    /// Says of each slice whether there is time for another.
    fn time_check(&self) -> impl FnMut() -> TimeBudget {
        let (clock, began) = (self.clock.clone(), self.clock.now());
        move || match clock.now().saturating_duration_since(began) < READ_TIME_LIMIT {
            true => TimeBudget::Remaining,
            false => TimeBudget::Exhausted,
        }
    }
}

/// 404, with the cure.
fn no_ledger() -> Response<Full<Bytes>> {
    problem(
        StatusCode::NOT_FOUND,
        "no ledger is kept: with ledger.keep: auto there is one only if the policy asks for memory (spaces, recrawl, \
         max_depth, unmodified, duplicate, budget.new_urls); set ledger.keep: always to have one all the same",
    )
}

/// 503: what was found before the disk failed is not told, or it would look like all that there is.
fn ledger_unavailable() -> Response<Full<Bytes>> {
    problem(
        StatusCode::SERVICE_UNAVAILABLE,
        "the ledger cannot be read now: its disk fails, or the proxy ends; ask again, and see /readyz for the cause",
    )
}

fn parse_limit(text: &str) -> Result<usize, ParameterError> {
    let limit = text
        .parse()
        .ok()
        .filter(|limit| (1..=MAX_LIMIT).contains(limit) && !text.starts_with('+'));
    limit.ok_or_else(|| ParameterError(format!("`limit` is a number from 1 to {MAX_LIMIT}")))
}
