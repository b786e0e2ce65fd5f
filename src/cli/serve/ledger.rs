//! The ledger of a proxy: opened when the policy first needs it, looked after while it is there, closed at the end.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::admin::health::{Check, CheckState};
use crate::admin::ledger::sweep::{Busy, Gap, How, Progress, State, Sweeps};
use crate::clock::Clock;
use crate::config::settings::{self, KeepLedger, Settings};
use crate::feed;
use crate::gate::snapshot::{InForce, Snapshot};
use crate::gate::sweep::{self, Sweeper};
use crate::ledger::record::At;
use crate::ledger::transition::Tolerance;
use crate::metrics::Metrics;
use crate::metrics::labels::FeedOut;
use crate::metrics::ledger::LedgerCounts;
use crate::metrics::policy::PolicyMetrics;
use crate::policy::Policy;
use crate::store::ledger::{Ledger, LedgerSettings, OnFull, Stats};
use crate::vocab::crawl_status::CrawlStatus;

/// Why a policy cannot be served with `ledger.keep: never`.
pub(in crate::cli) const NOT_KEPT: &str = "the policy needs a ledger (spaces, recrawl, unmodified, duplicate, max_depth, \
     a condition on depth, or budget.new_urls), and ledger.keep is never: set it to auto";
/// How often its numbers are brought to the metrics.
const LOOK: Duration = Duration::from_secs(2);
/// Looks between two times that old events are forgotten: a minute.
const FORGETTING: u64 = 30;
/// How long it may take to write what is left when the proxy ends.
const CLOSE: Duration = Duration::from_secs(10);

/// Where the ledger is, once there is one. It stays until the proxy ends.
pub(in crate::cli) type Kept = Arc<OnceLock<Ledger>>;

/// Opens it.
#[derive(Debug)]
pub(in crate::cli) struct Keeper {
    kept: Kept,
    settings: settings::Ledger,
    directory: Option<PathBuf>,
}

impl Keeper {
    /// With a ledger that is there already, if there is one.
    pub(super) fn new(settings: &Settings, ledger: Option<Ledger>) -> Self {
        let kept = ledger.map_or_else(OnceLock::new, OnceLock::from);
        Self {
            kept: Arc::new(kept),
            settings: settings.ledger.clone(),
            directory: settings.store.path.clone(),
        }
    }

    /// Where it is.
    pub(super) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Makes sure that this policy has what it needs. Blocks.
    ///
    /// # Errors
    /// In words: if it needs a ledger and there can be none.
    pub(in crate::cli) fn prepare(&self, policy: &Policy) -> Result<(), String> {
        let needed = match self.settings.keep {
            KeepLedger::Always => true,
            KeepLedger::Auto => policy.remembers(),
            KeepLedger::Never if policy.remembers() && self.kept.get().is_none() => {
                return Err(NOT_KEPT.into());
            }
            KeepLedger::Never => false,
        };
        if needed && self.kept.get().is_none() {
            let ledger = self.open()?;
            // Nobody else opens one: the start is over before the first reload, and reloads follow on each other.
            let _ = self.kept.set(ledger);
        }
        Ok(())
    }

    /// The snapshot, remembering whatever its policy says, if the configuration wants that.
    pub(in crate::cli) fn under<C>(&self, snapshot: Snapshot<C>) -> Snapshot<C> {
        match self.settings.keep {
            KeepLedger::Always => snapshot.remembering(),
            KeepLedger::Auto | KeepLedger::Never => snapshot,
        }
    }

    fn open(&self) -> Result<Ledger, String> {
        let of = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let errors = u32::try_from(self.settings.temporary_errors).unwrap_or(u32::MAX);
        let tolerance = Tolerance {
            temporary_errors: errors,
        };
        let Some(directory) = &self.directory else {
            return Ok(Ledger::in_memory(tolerance));
        };
        let settings = LedgerSettings {
            tolerance,
            queue: of(self.settings.queue),
            on_full: match self.settings.on_full {
                settings::OnFull::Wait => OnFull::Wait,
                settings::OnFull::Drop => OnFull::Drop,
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
pub(super) async fn look_after(
    kept: Kept,
    metrics: Metrics,
    clock: Clock,
    events: settings::Events,
) {
    let file = events.file.map(|_| FeedOut::File);
    let webhook = events.webhook.map(|_| FeedOut::Webhook);
    let mut turn = tokio::time::interval(LOOK);
    for looks in 0_u64.. {
        turn.tick().await;
        let Some(ledger) = kept.get() else { continue };
        metrics.ledger(&counts(&ledger.stats()));
        if looks.is_multiple_of(FORGETTING) {
            let delivered = feed::delivered(ledger, file.into_iter().chain(webhook));
            ledger.forget_events(at(clock.wall()), events.keep, delivered);
        }
    }
}

/// Writes what is left.
pub(super) async fn close(kept: &Kept) {
    let Some(ledger) = kept.get().cloned() else {
        return;
    };
    let closed = tokio::task::spawn_blocking(move || ledger.close());
    if tokio::time::timeout(CLOSE, closed).await.is_err() {
        tracing::error!(
            "the ledger could not be closed in time; what it was last told may be lost"
        );
    }
}

/// Whether it can be written; nothing where there is none.
pub(super) fn check(kept: &Kept) -> Option<Check> {
    let stats = kept.get()?.stats();
    let state = if stats.broken {
        CheckState::Warn(
            "its writer broke down (the log says why): what becomes of URLs is not remembered until the next start; \
             please report it"
                .into(),
        )
    } else if stats.failing {
        CheckState::Warn(format!(
            "it cannot be written, and is tried again every second; {} changes wait. Is the disk full?",
            stats.queue
        ))
    } else {
        CheckState::Ok("writing".into())
    };
    Some(Check::new("ledger", state))
}

fn counts(stats: &Stats) -> LedgerCounts {
    let mut events = stats.events.values().copied();
    LedgerCounts {
        urls: CrawlStatus::ALL.map(|status| stats.urls.get(&status).copied().unwrap_or(0)),
        events: [(); 3].map(|()| events.next().unwrap_or(0)),
        queue: stats.queue as u64,
        waits: stats.waits,
        dropped: stats.dropped,
        failures: stats.failures,
        broken: stats.broken,
    }
}

fn at(now: SystemTime) -> At {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    At(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The sweeper, for the admin API.
#[derive(Debug)]
pub(super) struct Swept {
    pub(super) sweeper: Sweeper,
    pub(super) in_force: Arc<InForce<Arc<PolicyMetrics>>>,
    pub(super) kept: Kept,
}

impl Sweeps for Swept {
    fn begin(&self, how: How) -> Result<(), Busy> {
        let how = match how {
            How::DryRun => sweep::How::DryRun,
            How::ForGood => sweep::How::ForGood,
        };
        let policy = Arc::clone(&self.in_force.load().policy);
        let urls = self
            .kept
            .get()
            .map_or(0, |ledger| ledger.stats().urls.values().sum());
        self.sweeper
            .order(how, policy.revision(), urls)
            .map_err(|sweep::Busy| Busy)
    }

    fn progress(&self) -> Option<Progress> {
        let now = self.sweeper.progress()?;
        let gap = |gap: sweep::Gap| Gap {
            crawler: (*gap.crawler).into(),
            url: (*gap.url).into(),
            rule: gap.rule.map(|rule| (*rule).into()),
            code: Some(gap.code),
        };
        Some(Progress {
            state: match now.state {
                sweep::State::Running => State::Running,
                sweep::State::Done => State::Done,
            },
            how: match now.how {
                sweep::How::DryRun => How::DryRun,
                sweep::How::ForGood => How::ForGood,
            },
            revision: now.revision.to_string(),
            looked_at: now.looked_at,
            total: now.total,
            removed: now.removed,
            moved: now.moved,
            unchanged: now.unchanged,
            allowed: now.allowed,
            gaps: now.gaps.into_iter().map(gap).collect(),
        })
    }
}
