//! Reads the policy again while the proxy runs, and puts it in force if nothing is wrong with it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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
    crawlers: Vec<Registration>,
    in_force: Arc<InForce<Arc<PolicyMetrics>>>,
    metrics: Metrics,
    clock: Clock,
    watch: Mutex<Watch>,
}

impl Reloading {
    /// Puts the first policy in force.
    pub(super) fn new(settings: &Settings, opened: Opened, metrics: Metrics, clock: Clock) -> Self {
        let in_force = Arc::new(InForce::new(snapshot(opened.policy, &metrics, &clock)));
        let (settings, crawlers) = (settings.policy.clone(), settings.crawlers.clone());
        Self { settings, crawlers, in_force, metrics, clock, watch: Mutex::new(Watch::new(opened.footprint)) }
    }

    /// The policy in force.
    pub(super) fn in_force(&self) -> &Arc<InForce<Arc<PolicyMetrics>>> {
        &self.in_force
    }

    /// What is in force, in words.
    pub(super) fn status(&self) -> String {
        let snapshot = self.in_force.load();
        format!("policy {}@{} is in force", snapshot.policy.name(), snapshot.policy.revision())
    }

    /// One attempt. Reading and compiling are done apart from the threads that serve.
    pub(super) async fn attempt(&self, trigger: Trigger) -> Outcome {
        let origin = self.settings.origin.clone();
        let read = tokio::task::spawn_blocking(move || policy::accept_noting(&origin)).await;
        let outcome = match read {
            Ok((read, footprint)) => {
                self.watch.lock().unwrap_or_else(PoisonError::into_inner).was_read(footprint);
                match read {
                    Ok(compiled) => self.accept(compiled),
                    Err(problems) => Outcome::Refused(problems),
                }
            }
            Err(_) => Outcome::Refused(vec![panicked(&self.settings.origin)]),
        };
        self.say(trigger, &outcome);
        outcome
    }

    fn accept(&self, compiled: Compiled) -> Outcome {
        let before = self.in_force.load();
        if before.policy.revision() == compiled.policy.revision() {
            self.metrics.policy_unchanged(self.clock.wall());
            return Outcome::Unchanged;
        }
        tell(&compiled.problems);
        tell(&policy::unknown_crawlers(&compiled.crawlers, &self.crawlers));
        self.in_force.replace(snapshot(compiled.policy, &self.metrics, &self.clock));
        Outcome::Loaded { before: before.policy.revision().to_owned() }
    }

    fn say(&self, trigger: Trigger, outcome: &Outcome) {
        let snapshot = self.in_force.load();
        let (name, revision) = (snapshot.policy.name(), snapshot.policy.revision());
        match outcome {
            Outcome::Loaded { before } => {
                tracing::info!(%trigger, before, "policy {name}@{revision} is in force");
            }
            Outcome::Unchanged => {
                tracing::info!(%trigger, "policy {name}@{revision} is in force still: nothing changed")
            }
            Outcome::Refused(problems) => {
                self.metrics.policy_failed();
                tell(problems);
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
            let look = move || this.watch.lock().unwrap_or_else(PoisonError::into_inner).look();
            if tokio::task::spawn_blocking(look).await.unwrap_or(false) {
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
    Snapshot { policy, counters }
}

fn panicked(origin: &PolicyOrigin) -> Problem {
    let file = match origin {
        PolicyOrigin::Path(path) => path.to_string_lossy().into(),
        PolicyOrigin::BuiltIn => "built-in".into(),
    };
    Problem::error(&Place::of_file(&file), "crawlgate broke down on this policy; please report it")
}
