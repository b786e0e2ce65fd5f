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
use crate::gate::reload::{Made, Outcome, Reloads, Trigger};
use crate::gate::shadow::ShadowPolicy;
use crate::gate::snapshot::{InForce, Snapshot};
use crate::metrics::Metrics;
use crate::metrics::labels::RuleMode;
use crate::metrics::policy::PolicyMetrics;
use crate::policy::Policy;
use crate::policy::compile::Compiled;
use crate::policy::rule::Mode;
use crate::proxy::drain::DrainWatch;
use crate::vocab::problem::{Place, Problem};
use crate::vocab::rule_id::RuleId;

use super::out::tell;

/// How often the policy's files are looked at. Twice in a row they must be the same, so a change is in force within
/// two of these.
const LOOK: Duration = Duration::from_secs(1);

/// A policy to run under, the files that it was read from, and what stands in its shadow.
#[derive(Debug)]
pub struct Opened {
    /// The policy.
    pub policy: Policy,
    /// Its files; none to be watched by default.
    pub footprint: Footprint,
    /// The policy that is judged beside it.
    pub shadow: Option<Beside>,
}

/// A policy that is judged beside the one in force, and its files.
#[derive(Debug)]
pub struct Beside {
    /// The policy.
    pub policy: Policy,
    /// Its files.
    pub footprint: Footprint,
}

impl From<Policy> for Opened {
    /// A policy that no file stands behind.
    fn from(policy: Policy) -> Self {
        Self { policy, footprint: Footprint::default(), shadow: None }
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
    shadow_watch: Mutex<Watch>,
}

/// What was read: problems, or a policy whose cases pass.
type Read = Result<Compiled, Vec<Problem>>;
type InShadow = Option<Arc<ShadowPolicy<Arc<PolicyMetrics>>>>;

impl Reloading {
    /// Puts the first policy in force.
    pub(super) fn new(settings: &Settings, opened: Opened, metrics: Metrics, clock: Clock) -> Self {
        let (shadow, shadow_footprint) =
            opened.shadow.map(|beside| (beside.policy, beside.footprint)).unzip();
        let live = Live::load(opened.policy, &metrics, &clock);
        let shadow = shadow.map(|policy| in_shadow(Arc::new(policy), &metrics));
        let in_force = Arc::new(InForce::new(live.in_front_of(shadow)));
        Self {
            settings: settings.policy.clone(),
            in_force,
            metrics,
            clock,
            crawlers: settings.crawlers.clone(),
            watch: Mutex::new(Watch::new(opened.footprint)),
            shadow_watch: Mutex::new(Watch::new(shadow_footprint.unwrap_or_default())),
        }
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
    pub(super) async fn attempt(self: Arc<Self>, trigger: Trigger) -> Made {
        let this = Arc::clone(&self);
        let read = tokio::task::spawn_blocking(move || (this.read(), this.read_shadow())).await;
        let (live, shadow) = read.unwrap_or_else(|_| self.broken_down());
        let made = self.accept(live, shadow);
        self.say(trigger, &made.live);
        self.say_shadow(trigger, made.shadow.as_ref());
        self.count(&made.live);
        made
    }

    /// Blocks. `None` if no file stands behind the policy.
    fn read(&self) -> Option<Read> {
        match &self.settings.origin {
            PolicyOrigin::BuiltIn => None,
            origin @ PolicyOrigin::Path(_) => Some(self.read_at(origin, &self.watch)),
        }
    }

    /// Blocks. `None` if there is no shadow policy.
    fn read_shadow(&self) -> Option<Read> {
        let path = self.settings.shadow.as_ref()?;
        Some(self.read_at(&PolicyOrigin::Path(path.clone()), &self.shadow_watch))
    }

    fn read_at(&self, origin: &PolicyOrigin, watch: &Mutex<Watch>) -> Read {
        let (mut read, footprint) = policy::accept_noting(origin);
        locked(watch).was_read(footprint);
        if let Ok(compiled) = &mut read {
            compiled.problems.extend(policy::unknown_crawlers(&compiled.crawlers, &self.crawlers));
        }
        read
    }

    /// What is said if reading did not come to an end.
    fn broken_down(&self) -> (Option<Read>, Option<Read>) {
        let live = match &self.settings.origin {
            PolicyOrigin::BuiltIn => None,
            PolicyOrigin::Path(path) => Some(Err(vec![panicked(path)])),
        };
        (live, self.settings.shadow.as_ref().map(|path| Err(vec![panicked(path)])))
    }

    /// Puts in force what is new. A mistake in one of the two policies does not keep the other from being loaded.
    fn accept(&self, live: Option<Read>, shadow: Option<Read>) -> Made {
        let before = self.in_force.load();
        let (live, outcome) = self.accept_live(live, &before);
        let old = &before.shadow;
        let (shadow, of_shadow) = match shadow {
            None => (None, None),
            Some(Err(problems)) => (old.clone(), Some(Outcome::Refused(problems))),
            Some(Ok(compiled)) => {
                let outcome = loaded(old.as_ref().map(|old| old.policy.revision()), &compiled);
                let stays = matches!(outcome, Outcome::Unchanged) && live.is_none();
                let new = || Some(in_shadow(Arc::new(compiled.policy), &self.metrics));
                (if stays { old.clone() } else { new() }, Some(outcome))
            }
        };
        let same_shadow = match (old, &shadow) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if live.is_some() || !same_shadow {
            let live = live.unwrap_or_else(|| Live::of(&before));
            self.in_force.replace(live.in_front_of(shadow));
        }
        Made { live: outcome, shadow: of_shadow }
    }

    /// What takes force, if anything does.
    fn accept_live(
        &self,
        read: Option<Read>,
        before: &Snapshot<Arc<PolicyMetrics>>,
    ) -> (Option<Live>, Outcome) {
        let compiled = match read {
            None => return (None, Outcome::NothingToRead),
            Some(Err(problems)) => return (None, Outcome::Refused(problems)),
            Some(Ok(compiled)) => compiled,
        };
        match loaded(Some(before.policy.revision()), &compiled) {
            outcome @ Outcome::Loaded { .. } => {
                (Some(Live::load(compiled.policy, &self.metrics, &self.clock)), outcome)
            }
            outcome @ (Outcome::Unchanged | Outcome::NothingToRead | Outcome::Refused(_)) => (None, outcome),
        }
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

    fn say_shadow(&self, trigger: Trigger, outcome: Option<&Outcome>) {
        let snapshot = self.in_force.load();
        let (Some(outcome), Some(shadow)) = (outcome, &snapshot.shadow) else { return };
        let (name, revision) = (shadow.policy.name(), shadow.policy.revision());
        tell(outcome.problems());
        match outcome {
            Outcome::Loaded { before, .. } => {
                tracing::info!(%trigger, before, "shadow policy {name}@{revision} is judged beside it");
            }
            Outcome::Unchanged | Outcome::NothingToRead => {}
            Outcome::Refused(_) => {
                tracing::error!(%trigger, "the shadow policy was not loaded; {name}@{revision} stays in shadow");
            }
        }
    }

    /// Asks for a reload whenever the files have changed, until the drain.
    pub(super) async fn watch(self: Arc<Self>, reloads: Reloads, mut drain: DrainWatch) {
        let nothing = self.settings.origin == PolicyOrigin::BuiltIn && self.settings.shadow.is_none();
        if !self.settings.watch || nothing {
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
            if tokio::task::spawn_blocking(move || this.look()).await.unwrap_or(false) {
                reloads.reload(Trigger::Files).await;
            }
        }
    }

    /// Whether files have changed and come to rest. Blocks.
    fn look(&self) -> bool {
        let live = locked(&self.watch).look();
        locked(&self.shadow_watch).look() || live
    }
}

fn locked(watch: &Mutex<Watch>) -> MutexGuard<'_, Watch> {
    watch.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether what was read is another policy.
fn loaded(before: Option<&str>, compiled: &Compiled) -> Outcome {
    let before = before.unwrap_or_default();
    if before == compiled.policy.revision() {
        return Outcome::Unchanged;
    }
    Outcome::Loaded { before: before.to_owned(), warnings: compiled.problems.clone() }
}

/// A policy and its counters.
struct Live {
    policy: Arc<Policy>,
    counters: Arc<PolicyMetrics>,
}

impl Live {
    /// One that takes force now.
    fn load(policy: Policy, metrics: &Metrics, clock: &Clock) -> Self {
        let counters = metrics.policy_loaded(policy.name(), policy.revision(), modes(&policy), clock.wall());
        Self { policy: Arc::new(policy), counters }
    }

    /// The one that is in force.
    fn of(snapshot: &Snapshot<Arc<PolicyMetrics>>) -> Self {
        Self { policy: Arc::clone(&snapshot.policy), counters: Arc::clone(&snapshot.counters) }
    }

    fn in_front_of(self, shadow: InShadow) -> Snapshot<Arc<PolicyMetrics>> {
        Snapshot::new(self.policy, self.counters).beside(shadow)
    }
}

/// A policy that is judged in shadow from now on, its book empty: what it would change is asked of the live one of now.
fn in_shadow(policy: Arc<Policy>, metrics: &Metrics) -> Arc<ShadowPolicy<Arc<PolicyMetrics>>> {
    let counters = metrics.shadow_loaded(policy.name(), policy.revision(), modes(&policy));
    Arc::new(ShadowPolicy { policy, counters })
}

fn modes(policy: &Policy) -> impl Iterator<Item = (&RuleId, RuleMode)> {
    policy.rules().iter().map(|rule| {
        let mode = match rule.mode {
            Mode::Enforce => RuleMode::Enforce,
            Mode::Shadow => RuleMode::Shadow,
            Mode::Disabled => RuleMode::Disabled,
        };
        (&rule.id, mode)
    })
}

/// The shadow policy, for readiness; a warning if a newer one was refused. `None` if there is none.
pub(super) fn standing_in_shadow(
    snapshot: &Snapshot<Arc<PolicyMetrics>>,
    last: Option<&Outcome>,
) -> Option<CheckState> {
    let shadow = snapshot.shadow.as_ref()?;
    let shown = format!("{}@{}", shadow.policy.name(), shadow.policy.revision());
    Some(match last {
        Some(Outcome::Refused(_)) => CheckState::Warn(format!(
            "{shown} stays in shadow: the last reload found mistakes in the new one"
        )),
        Some(Outcome::Loaded { .. } | Outcome::Unchanged | Outcome::NothingToRead) | None => {
            CheckState::Ok(shown)
        }
    })
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
