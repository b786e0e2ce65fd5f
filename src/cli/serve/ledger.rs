//! The ledger of a proxy: opened when the policy first needs it, looked after while it is there, closed at the end.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::admin::health::{CheckState, HealthCheck};
use crate::admin::ledger::sweep::{
    ApiSweepBusy, ApiSweepGap, ApiSweepMode, ApiSweepProgress, ApiSweepState, SweepControl,
};
use crate::clock::Clock;
use crate::config::settings::{self, LedgerMode, Settings};
use crate::feed;
use crate::ledger::record::UnixMillis;
use crate::ledger::transition::ErrorTolerance;
use crate::metrics::Metrics;
use crate::metrics::labels::FeedTarget;
use crate::metrics::ledger::LedgerCounts;
use crate::model::crawl_status::CrawlStatus;
use crate::pipeline::snapshot::{ActivePolicy, PolicySnapshot};
use crate::pipeline::sweep::{self, LedgerSweeper};
use crate::policy::Policy;
use crate::store::ledger::{Ledger, LedgerFullAction, LedgerSettings, LedgerStats};

/// Why a policy cannot be served with `ledger.keep: never`.
pub(crate) const LEDGER_REQUIRED: &str = "the policy needs a ledger (spaces, recrawl, unmodified, duplicate, max_depth, \
     a condition on depth, or budget.new_urls), and ledger.keep is never: set it to auto";
/// How often its numbers are brought to the metrics.
const METRICS_INTERVAL: Duration = Duration::from_secs(2);
/// Looks between two times that old events are forgotten: a minute.
const FORGET_EVERY_TICKS: u64 = 30;
/// How long it may take to write what is left when the proxy ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the ledger is, once there is one. It stays until the proxy ends.
pub(crate) type LedgerCell = Arc<OnceLock<Ledger>>;

/// Opens it.
#[derive(Debug)]
pub(crate) struct LedgerOpener {
    cell: LedgerCell,
    settings: settings::LedgerConfig,
    directory: Option<PathBuf>,
}

impl LedgerOpener {
    /// With a ledger that is there already, if there is one.
    pub(super) fn new(settings: &Settings, ledger: Option<Ledger>) -> Self {
        let kept = ledger.map_or_else(OnceLock::new, OnceLock::from);
        Self {
            cell: Arc::new(kept),
            settings: settings.ledger.clone(),
            directory: settings.store.path.clone(),
        }
    }

    /// Where it is.
    pub(super) fn cell(&self) -> &LedgerCell {
        &self.cell
    }

    /// Makes sure that this policy has what it needs. Blocks.
    ///
    /// # Errors
    /// In words: if it needs a ledger and there can be none.
    pub(crate) fn ensure_open(&self, policy: &Policy) -> Result<(), String> {
        let needed = match self.settings.keep {
            LedgerMode::Always => true,
            LedgerMode::Auto => policy.needs_ledger(),
            LedgerMode::Never if policy.needs_ledger() && self.cell.get().is_none() => {
                return Err(LEDGER_REQUIRED.into());
            }
            LedgerMode::Never => false,
        };
        if needed && self.cell.get().is_none() {
            let ledger = self.open()?;
            // Nobody else opens one: the start is over before the first reload, and reloads follow on each other.
            let _ = self.cell.set(ledger);
        }
        Ok(())
    }

    /// The snapshot, remembering whatever its policy says, if the configuration wants that.
    pub(crate) fn apply_keep_setting(&self, snapshot: PolicySnapshot) -> PolicySnapshot {
        match self.settings.keep {
            LedgerMode::Always => snapshot.with_ledger(),
            LedgerMode::Auto | LedgerMode::Never => snapshot,
        }
    }

    fn open(&self) -> Result<Ledger, String> {
        let of = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let errors = u32::try_from(self.settings.temporary_errors).unwrap_or(u32::MAX);
        let tolerance = ErrorTolerance {
            temporary_errors: errors,
        };
        let Some(directory) = &self.directory else {
            return Ok(Ledger::in_memory(tolerance));
        };
        let settings = LedgerSettings {
            tolerance,
            queue: of(self.settings.queue),
            on_full: match self.settings.on_full {
                settings::OnFullSetting::Wait => LedgerFullAction::Wait,
                settings::OnFullSetting::Drop => LedgerFullAction::Drop,
            },
            cache: of(self.settings.cache),
        };
        let ledger = Ledger::open(directory, settings).map_err(|error| error.to_string())?;
        let urls: u64 = ledger.stats().urls.values().sum();
        tracing::info!(urls, "the ledger is open");
        Ok(ledger)
    }
}

/// Brings its numbers to the metrics, and has old events forgotten, once whoever is to be told has been. Never ends.
pub(super) async fn maintain(
    ledger_cell: LedgerCell,
    metrics: Metrics,
    clock: Clock,
    events: settings::EventsConfig,
) {
    let file = events.file.map(|_| FeedTarget::File);
    let webhook = events.webhook.map(|_| FeedTarget::Webhook);
    let mut turn = tokio::time::interval(METRICS_INTERVAL);
    for looks in 0_u64.. {
        turn.tick().await;
        let Some(ledger) = ledger_cell.get() else {
            continue;
        };
        metrics.set_ledger(&ledger_counts(&ledger.stats()));
        if looks.is_multiple_of(FORGET_EVERY_TICKS) {
            let delivered = feed::delivered_cursor(ledger, file.into_iter().chain(webhook));
            ledger.expire_events(timestamp(clock.wall_time()), events.keep, delivered);
        }
    }
}

/// Writes what is left.
pub(super) async fn close(ledger_cell: &LedgerCell) {
    let Some(ledger) = ledger_cell.get().cloned() else {
        return;
    };
    let closed = tokio::task::spawn_blocking(move || ledger.close());
    if tokio::time::timeout(CLOSE_TIMEOUT, closed).await.is_err() {
        tracing::error!(
            "the ledger could not be closed in time; what it was last told may be lost"
        );
    }
}

/// Whether it can be written; nothing where there is none.
pub(super) fn health_check(ledger_cell: &LedgerCell) -> Option<HealthCheck> {
    let stats = ledger_cell.get()?.stats();
    let state = if stats.broken {
        CheckState::Warn(
            "its writer broke down (the log says why): what becomes of URLs is not remembered until the next start; \
             please report it"
                .into(),
        )
    } else if stats.failing {
        CheckState::Warn(format!(
            "it cannot be written, and is tried again every second; {} changes wait. Is the disk full?",
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
        events: [(); 3].map(|()| events.next().unwrap_or(0)),
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

/// The sweeper, for the admin API.
#[derive(Debug)]
pub(super) struct SweepHandle {
    pub(super) sweeper: LedgerSweeper,
    pub(super) active_policy: Arc<ActivePolicy>,
    pub(super) ledger: LedgerCell,
}

impl SweepControl for SweepHandle {
    fn start(&self, how: ApiSweepMode) -> Result<(), ApiSweepBusy> {
        let how = match how {
            ApiSweepMode::DryRun => sweep::SweepMode::DryRun,
            ApiSweepMode::Apply => sweep::SweepMode::ForGood,
        };
        let policy = Arc::clone(&self.active_policy.load().policy);
        let urls = self
            .ledger
            .get()
            .map_or(0, |ledger| ledger.stats().urls.values().sum());
        self.sweeper
            .order(how, policy.revision(), urls)
            .map_err(|sweep::SweepInProgress| ApiSweepBusy)
    }

    fn progress(&self) -> Option<ApiSweepProgress> {
        let now = self.sweeper.progress()?;
        let gap = |gap: sweep::SweepGap| ApiSweepGap {
            crawler: (*gap.crawler).into(),
            url: (*gap.url).into(),
            rule: gap.rule.map(|rule| (*rule).into()),
            code: Some(gap.code),
        };
        Some(ApiSweepProgress {
            state: match now.state {
                sweep::SweepPhase::Running => ApiSweepState::Running,
                sweep::SweepPhase::Done => ApiSweepState::Done,
            },
            mode: match now.mode {
                sweep::SweepMode::DryRun => ApiSweepMode::DryRun,
                sweep::SweepMode::ForGood => ApiSweepMode::Apply,
            },
            revision: now.revision.to_string(),
            looked_at: now.examined,
            total: now.total,
            removed: now.removed,
            moved: now.moved,
            unchanged: now.unchanged,
            allowed: now.allowed,
            gaps: now.gaps.into_iter().map(gap).collect(),
        })
    }
}
