//! The ledger of a proxy: opened when the policy first needs it, or if there is one, maintained while it is open, closed at
//! the end.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::admin::health::{CheckState, HealthCheck};
use crate::clock::Clock;
use crate::config::settings::{EventsConfig, LedgerConfig, LedgerMode, Settings};
use crate::feed;
use crate::ledger::code::OmnifindCode;
use crate::ledger::event::LedgerEventKind;
use crate::ledger::record::UnixMillis;
use crate::ledger::removal::RemovalCauseKind;
use crate::metrics::Metrics;
use crate::metrics::labels::FeedTarget;
use crate::metrics::ledger::LedgerCounts;
use crate::model::crawl_status::CrawlStatus;
use crate::pipeline::snapshot::PolicySnapshot;
use crate::pipeline::sweep::removals::RemovalScheduler;
use crate::policy::Policy;
use crate::store::ledger::{Ledger, LedgerSettings, LedgerStats};

/// The message if a policy cannot be used with `ledger.keep: never`.
pub(crate) const LEDGER_REQUIRED: &str = "the policy needs a ledger (spaces, recrawl, unmodified, duplicate, max_depth, \
     a condition on depth, or budget.new_urls), and ledger.keep is never: set it to auto";
/// The interval at which the ledger's numbers are copied to the metrics.
const METRICS_INTERVAL: Duration = Duration::from_secs(2);
/// The number of these intervals after which expired events are removed: one minute.
const FORGET_EVERY_TICKS: u64 = 30;
/// The time limit of writing the pending changes on shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The ledger, once it is open. It stays open until the proxy ends.
pub(crate) type LedgerCell = Arc<OnceLock<Ledger>>;

/// Opens the ledger when a policy needs it.
#[derive(Debug)]
pub(crate) struct LedgerOpener {
    cell: LedgerCell,
    settings: LedgerConfig,
    directory: Option<PathBuf>,
    metrics: Metrics,
}

impl LedgerOpener {
    /// Creates an opener, optionally with a ledger that is already open.
    pub(super) fn new(settings: &Settings, ledger: Option<Ledger>, metrics: Metrics) -> Self {
        if let Some(ledger) = &ledger {
            metrics.set_ledger(&ledger_counts(&ledger.stats()));
        }
        Self {
            metrics,
            cell: Arc::new(ledger.map_or_else(OnceLock::new, OnceLock::from)),
            settings: settings.ledger.clone(),
            directory: settings.store.path.clone(),
        }
    }

    pub(super) fn cell(&self) -> &LedgerCell {
        &self.cell
    }

    /// Opens the ledger if this policy needs it, or an earlier one did: the ledger knows which pages the index lacks, and
    /// has events that were not delivered. Blocks.
    ///
    /// # Errors
    /// If the policy needs a ledger or there is one, and it cannot be opened.
    pub(crate) fn ensure_open(&self, policy: &Policy) -> Result<(), String> {
        let needed = match self.settings.keep {
            LedgerMode::Always => true,
            LedgerMode::Auto => policy.needs_ledger() || self.exists(),
            LedgerMode::Never if policy.needs_ledger() && self.cell.get().is_none() => {
                return Err(LEDGER_REQUIRED.into());
            }
            LedgerMode::Never => false,
        };
        if needed && self.cell.get().is_none() {
            let ledger = self.open()?;
            // At once: a scrape before the first update would report a ledger without URLs.
            self.metrics.set_ledger(&ledger_counts(&ledger.stats()));
            // This cannot race: the start ends before the first reload, and reloads run one at a time.
            let _ = self.cell.set(ledger);
        }
        Ok(())
    }

    /// Makes the snapshot use the ledger even if its policy does not need it, with `ledger.keep: always`.
    pub(crate) fn apply_keep_setting(&self, snapshot: PolicySnapshot) -> PolicySnapshot {
        match self.settings.keep {
            LedgerMode::Always => snapshot.with_ledger(),
            LedgerMode::Auto | LedgerMode::Never => snapshot,
        }
    }

    fn exists(&self) -> bool {
        self.directory.as_deref().is_some_and(Ledger::exists)
    }

    fn open(&self) -> Result<Ledger, String> {
        let settings = LedgerSettings {
            removals: self.settings.removal_guard.schedule(),
            ..self.settings.store
        };
        let Some(directory) = &self.directory else {
            return Ok(Ledger::in_memory_with(settings));
        };
        let ledger = Ledger::open(directory, settings).map_err(|error| error.to_string())?;
        let urls: u64 = ledger.stats().urls.values().sum();
        tracing::info!(urls, "the ledger is open");
        Ok(ledger)
    }
}

/// Copies the ledger's numbers to the metrics, and removes expired events after they were delivered. Never ends.
pub(super) async fn maintain(
    ledger_cell: LedgerCell,
    metrics: Metrics,
    clock: Clock,
    events: EventsConfig,
    removals: RemovalScheduler,
) {
    let file = events.file.map(|_| FeedTarget::File);
    let webhook = events.webhook.map(|_| FeedTarget::Webhook);
    let mut interval = tokio::time::interval(METRICS_INTERVAL);
    for tick in 0_u64.. {
        interval.tick().await;
        let Some(ledger) = ledger_cell.get() else {
            continue;
        };
        metrics.set_ledger(&LedgerCounts {
            held_removals: held_counts(&removals),
            ..ledger_counts(&ledger.stats())
        });
        if tick.is_multiple_of(FORGET_EVERY_TICKS) {
            let delivered = feed::delivered_cursor(ledger, file.into_iter().chain(webhook));
            ledger.expire_events(timestamp(clock.wall_time()), events.keep, delivered);
        }
    }
}

/// Writes the pending changes and closes the ledger.
pub(super) async fn close(ledger_cell: &LedgerCell) {
    let Some(ledger) = ledger_cell.get().cloned() else {
        return;
    };
    let closed = tokio::task::spawn_blocking(move || ledger.close());
    if tokio::time::timeout(CLOSE_TIMEOUT, closed).await.is_err() {
        tracing::error!("the ledger could not be closed in time: its last changes may be lost");
    }
}

/// Returns a warning if removals are held.
pub(super) fn removals_check(removals: &RemovalScheduler) -> Option<HealthCheck> {
    let held = removals.held();
    let causes: Vec<String> = held
        .iter()
        .map(|account| {
            format!(
                "{} by {} ({} were ordered within 24 hours, the limit was {})",
                account.count, account.held.cause, account.held.ordered, account.held.limit
            )
        })
        .collect();
    (!causes.is_empty()).then(|| {
        let message = format!(
            "removals from the index are held: {}. Correct the cause, or confirm them: crawlgate ledger sweep --confirm",
            causes.join(", ")
        );
        HealthCheck::new("removals", CheckState::Warn(message))
    })
}

fn held_counts(removals: &RemovalScheduler) -> [u64; RemovalCauseKind::ALL.len()] {
    let held = removals.held();
    RemovalCauseKind::ALL.map(|kind| {
        let of_kind = held.iter().filter(|held| held.account.kind() == kind);
        of_kind.map(|held| held.count).sum()
    })
}

/// Returns the check of whether the ledger can be written, if there is one.
pub(super) fn health_check(ledger_cell: &LedgerCell) -> Option<HealthCheck> {
    let stats = ledger_cell.get()?.stats();
    let state = if stats.broken {
        CheckState::Warn(
            "its writer failed because of a bug (the log has the panic): the outcome of requests is not recorded until the \
             next start; please report it"
                .into(),
        )
    } else if stats.failing {
        CheckState::Warn(format!(
            "it cannot be written; {} changes wait, and the write is retried every second. Is the disk full?",
            stats.queued
        ))
    } else {
        CheckState::Ok("writing".into())
    };
    Some(HealthCheck::new("ledger", state))
}

fn ledger_counts(stats: &LedgerStats) -> LedgerCounts {
    let mut events = stats.events.values().copied();
    LedgerCounts {
        urls: CrawlStatus::ALL.map(|status| stats.urls.get(&status).copied().unwrap_or(0)),
        codes: OmnifindCode::ALL.map(|code| stats.codes.get(&code).copied().unwrap_or(0)),
        events: LedgerEventKind::ALL.map(|_| events.next().unwrap_or(0)),
        pending_removals: RemovalCauseKind::ALL
            .map(|kind| stats.pending_removals.get(&kind).copied().unwrap_or(0)),
        held_removals: [0; RemovalCauseKind::ALL.len()],
        queue: stats.queued as u64,
        waits: stats.waits,
        dropped: stats.dropped,
        failures: stats.failures,
        broken: stats.broken,
    }
}

fn timestamp(now: SystemTime) -> UnixMillis {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
