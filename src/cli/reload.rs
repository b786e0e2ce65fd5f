//! Reads the policy again while the proxy runs, and puts it in force if nothing is wrong with it.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::admin::health::CheckState;
use crate::clock::Clock;
use crate::config::policy;
use crate::config::settings::{PolicyOrigin, PolicySettings, Settings};
use crate::config::watch::{Footprint, Watch};
use crate::gate::crawlers::Registration;
use crate::gate::reload::{Outcome, Reloads, Trigger};
use crate::gate::snapshot::{InForce, Snapshot};
use crate::metrics::Metrics;
use crate::metrics::labels::RuleMode;
use crate::metrics::policy::PolicyMetrics;
use crate::policy::Policy;
use crate::policy::compile::Compiled;
use crate::policy::rule::Mode;
use crate::proxy::drain::DrainWatch;
use crate::vocab::problem::{Place, Problem};

use super::out::tell;

/// How often the policy's files are looked at. Twice in a row they must be the same, so a change is in force within
/// two of these.
const LOOK: Duration = Duration::from_secs(1);

/// A policy to run under, and the files that it was read from.
#[derive(Debug)]
pub struct Opened {
    /// The policy.
    pub policy: Policy,
    /// Its files; none to be watched by default.
    pub footprint: Footprint,
}

impl From<Policy> for Opened {
    /// A policy that no file stands behind.
    fn from(policy: Policy) -> Self {
        Self { policy, footprint: Footprint::default() }
    }
}

/// What an attempt needs.
#[derive(Debug)]
pub(super) struct Reloading {
    settings: PolicySettings,
    in_force: Arc<InForce<Arc<PolicyMetrics>>>,
    metrics: Metrics,
    clock: Clock,
    /// Who is known, for rules that speak of others.
    crawlers: Vec<Registration>,
    /// Locked while the disk is asked, so only apart from the threads that serve.
    watch: Mutex<Watch>,
}

impl Reloading {
    /// Puts the first policy in force.
    pub(super) fn new(settings: &Settings, opened: Opened, metrics: Metrics, clock: Clock) -> Self {
        let in_force = Arc::new(InForce::new(snapshot(opened.policy, &metrics, &clock)));
        let (crawlers, watch) = (settings.crawlers.clone(), Mutex::new(Watch::new(opened.footprint)));
        Self { settings: settings.policy.clone(), in_force, metrics, clock, crawlers, watch }
    }

    /// The policy in force.
    pub(super) fn in_force(&self) -> &Arc<InForce<Arc<PolicyMetrics>>> {
        &self.in_force
    }

    /// What is in force, and whether it should be, in words.
    pub(super) fn status(&self, outcome: &Outcome) -> String {
        let words = match standing(&self.in_force.load(), Some(outcome)) {
            CheckState::Ok(in_force) => format!("{in_force} is in force"),
            CheckState::Warn(words) | CheckState::Fail(words) => words,
        };
        format!("policy {words}")
    }

    /// One attempt. Reading and compiling are done apart from the threads that serve.
    pub(super) async fn attempt(self: Arc<Self>, trigger: Trigger) -> Outcome {
        let outcome = match &self.settings.origin {
            PolicyOrigin::BuiltIn => Outcome::NothingToRead,
            PolicyOrigin::Path(path) => {
                let this = Arc::clone(&self);
                let read = tokio::task::spawn_blocking(move || this.read()).await;
                self.accept(read.unwrap_or_else(|_| Err(vec![panicked(path)])))
            }
        };
        self.say(trigger, &outcome);
        self.count(&outcome);
        outcome
    }

    /// Blocks.
    fn read(&self) -> Result<Compiled, Vec<Problem>> {
        let (mut read, footprint) = policy::accept_noting(&self.settings.origin);
        self.watched().was_read(footprint);
        if let Ok(compiled) = &mut read {
            compiled.problems.extend(policy::unknown_crawlers(&compiled.crawlers, &self.crawlers));
        }
        read
    }

    fn watched(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(&self, read: Result<Compiled, Vec<Problem>>) -> Outcome {
        let compiled = match read {
            Ok(compiled) => compiled,
            Err(problems) => return Outcome::Refused(problems),
        };
        let before = self.in_force.load();
        if before.policy.revision() == compiled.policy.revision() {
            return Outcome::Unchanged;
        }
        self.in_force.replace(snapshot(compiled.policy, &self.metrics, &self.clock));
        Outcome::Loaded { before: before.policy.revision().to_owned(), warnings: compiled.problems }
    }

    fn count(&self, outcome: &Outcome) {
        match outcome {
            // Counted with its rules.
            Outcome::Loaded { .. } => {}
            Outcome::Unchanged | Outcome::NothingToRead => self.metrics.policy_unchanged(self.clock.wall()),
            Outcome::Refused(_) => self.metrics.policy_failed(),
        }
    }

    fn say(&self, trigger: Trigger, outcome: &Outcome) {
        let snapshot = self.in_force.load();
        let (name, revision) = (snapshot.policy.name(), snapshot.policy.revision());
        tell(outcome.problems());
        match outcome {
            Outcome::Loaded { before, .. } => {
                tracing::info!(%trigger, before, "policy {name}@{revision} is in force");
            }
            Outcome::Unchanged => {
                tracing::info!(%trigger, "policy {name}@{revision} is in force still: nothing changed")
            }
            Outcome::NothingToRead => {
                tracing::info!(%trigger, "policy {name}@{revision} is in force still: no file stands behind it");
            }
            Outcome::Refused(_) => {
                tracing::error!(%trigger, "the policy was not loaded; {name}@{revision} stays in force");
            }
        }
    }

    /// Asks for a reload whenever the files have changed, until the drain.
    pub(super) async fn watch(self: Arc<Self>, reloads: Reloads, mut drain: DrainWatch) {
        if !self.settings.watch || self.settings.origin == PolicyOrigin::BuiltIn {
            return;
        }
        let mut turn = tokio::time::interval(LOOK);
        turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = drain.begun() => return,
                _ = turn.tick() => {}
            }
            let this = Arc::clone(&self);
            if tokio::task::spawn_blocking(move || this.watched().look()).await.unwrap_or(false) {
                reloads.reload(Trigger::Files).await;
            }
        }
    }
}

fn snapshot(policy: Policy, metrics: &Metrics, clock: &Clock) -> Snapshot<Arc<PolicyMetrics>> {
    let modes = policy.rules().iter().map(|rule| {
        let mode = match rule.mode {
            Mode::Enforce => RuleMode::Enforce,
            Mode::Shadow => RuleMode::Shadow,
            Mode::Disabled => RuleMode::Disabled,
        };
        (&rule.id, mode)
    });
    let counters = metrics.policy_loaded(policy.name(), policy.revision(), modes, clock.wall());
    Snapshot::new(policy, counters)
}

/// The policy in force, for readiness; a warning if a newer one was refused.
pub(super) fn standing(snapshot: &Snapshot<Arc<PolicyMetrics>>, last: Option<&Outcome>) -> CheckState {
    let in_force = format!("{}@{}", snapshot.policy.name(), snapshot.policy.revision());
    match last {
        Some(Outcome::Refused(problems)) => {
            let errors = match problems.iter().filter(|problem| problem.is_error()).count() {
                1 => "1 error".to_owned(),
                count => format!("{count} errors"),
            };
            CheckState::Warn(format!("{in_force} stays in force: the last reload found {errors}"))
        }
        Some(Outcome::Loaded { .. } | Outcome::Unchanged | Outcome::NothingToRead) | None => {
            CheckState::Ok(in_force)
        }
    }
}

fn panicked(path: &Path) -> Problem {
    let place = Place::of_file(&path.to_string_lossy().into());
    Problem::error(&place, "crawlgate broke down on this policy; please report it")
}
