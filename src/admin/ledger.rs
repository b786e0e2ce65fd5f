//! The URLs that are remembered, what was told of them, and the sweep: `/api/v1/urls`, `/api/v1/events` and
//! `/api/v1/ledger`.
//!
//! Nothing here decides what is remembered. A look takes a thread of those that may block, at most `LOOKS` of them at
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
use crate::gate::snapshot::InForce;
use crate::ledger::sought::Time;
use crate::metrics::policy::PolicyMetrics;
use crate::policy::Policy;
use crate::store::ledger::{Failed, Ledger};
use crate::vocab::crawler::Crawler;

use super::page::{self, problem};
use super::query::Mistake;
use sweep::Sweeps;

/// Looks at once: each may go through all that is kept.
const LOOKS: usize = 2;
/// How long one look may take.
const LOOK: Duration = Duration::from_secs(2);
/// The most rows, and how many if nothing is said.
const MOST: usize = 1_000;
const USUAL: usize = 100;

/// Where the ledger is. It may come and go with a reload.
pub trait Kept: fmt::Debug + Send + Sync {
    /// The ledger, if one is kept.
    fn ledger(&self) -> Option<Ledger>;
}

impl Kept for Ledger {
    fn ledger(&self) -> Option<Ledger> {
        Some(self.clone())
    }
}

impl Kept for OnceLock<Ledger> {
    fn ledger(&self) -> Option<Ledger> {
        self.get().cloned()
    }
}

/// What the proxy remembers of URLs.
#[derive(Clone, Debug)]
pub struct LedgerApi {
    kept: Arc<dyn Kept>,
    sweeps: Arc<dyn Sweeps>,
    crawlers: Arc<[Crawler]>,
    clock: Clock,
    in_force: Option<Arc<InForce<Arc<PolicyMetrics>>>>,
    looks: Arc<Semaphore>,
}

/// What a look has at hand.
struct Look {
    ledger: Ledger,
    policy: Option<Arc<Policy>>,
    crawlers: Arc<[Crawler]>,
    clock: Clock,
}

impl LedgerApi {
    /// Shows what these know; `crawlers` may each have a record of a URL.
    pub fn new(
        kept: Arc<dyn Kept>,
        sweeps: Arc<dyn Sweeps>,
        crawlers: Arc<[Crawler]>,
        clock: Clock,
    ) -> Self {
        Self {
            kept,
            sweeps,
            crawlers,
            clock,
            in_force: None,
            looks: Arc::new(Semaphore::new(LOOKS)),
        }
    }

    /// Asks this policy under which URL a request is kept (`strip_params`, `replace`).
    pub fn under(self, in_force: Arc<InForce<Arc<PolicyMetrics>>>) -> Self {
        Self {
            in_force: Some(in_force),
            ..self
        }
    }

    /// Looks apart from the threads that serve.
    async fn look(
        &self,
        look: impl FnOnce(&Look) -> Result<Response<Full<Bytes>>, Failed> + Send + 'static,
    ) -> Response<Full<Bytes>> {
        let Some(ledger) = self.kept.ledger() else {
            return none_kept();
        };
        let Ok(place) = Arc::clone(&self.looks).acquire_owned().await else {
            return page::broken();
        };
        let crawlers = Arc::clone(&self.crawlers);
        let policy = self
            .in_force
            .as_ref()
            .map(|in_force| Arc::clone(&in_force.load().policy));
        let at_hand = Look {
            ledger,
            policy,
            crawlers,
            clock: self.clock.clone(),
        };
        let looked = tokio::task::spawn_blocking(move || {
            let _place = place;
            look(&at_hand).unwrap_or_else(|Failed| unread())
        });
        looked.await.unwrap_or_else(|_| page::broken())
    }
}

impl Look {
    /// Says of each slice whether there is time for another.
    fn time(&self) -> impl FnMut() -> Time {
        let (clock, began) = (self.clock.clone(), self.clock.now());
        move || match clock.now().saturating_duration_since(began) < LOOK {
            true => Time::Left,
            false => Time::Over,
        }
    }
}

/// 404, with the cure.
fn none_kept() -> Response<Full<Bytes>> {
    problem(
        StatusCode::NOT_FOUND,
        "no ledger is kept: with ledger.keep: auto there is one only if the policy asks for memory (spaces, recrawl, \
         max_depth, unmodified, duplicate, budget.new_urls); set ledger.keep: always to have one all the same",
    )
}

/// 503: what was found before the disk failed is not told, or it would look like all that there is.
fn unread() -> Response<Full<Bytes>> {
    problem(
        StatusCode::SERVICE_UNAVAILABLE,
        "the ledger cannot be read now: its disk fails, or the proxy ends; ask again, and see /readyz for the cause",
    )
}

fn limit(text: &str) -> Result<usize, Mistake> {
    let limit = text
        .parse()
        .ok()
        .filter(|limit| (1..=MOST).contains(limit) && !text.starts_with('+'));
    limit.ok_or_else(|| Mistake(format!("`limit` is a number from 1 to {MOST}")))
}
