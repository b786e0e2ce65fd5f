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
use crate::gate::written::{Before, Written};
use crate::metrics::Metrics;
use crate::metrics::labels::{RuleKind, RuleMode};
use crate::metrics::policy::PolicyMetrics;
use crate::policy::Policy;
use crate::policy::compile::Compiled;
use crate::policy::rule::{Mode, RuleBody};
use crate::proxy::drain::DrainWatch;
use crate::vocab::problem::{Place, Problem};
use crate::vocab::rule_id::RuleId;

use super::out::tell;
use super::serve::ledger::Keeper;

/// How often the policy's files are looked at. Twice in a row they must be the same, so a change is in force within
/// two of these.
const LOOK: Duration = Duration::from_secs(1);

/// A policy to run under, the files that it was read from, and what stands in its shadow.
#[derive(Debug)]
pub struct Opened {
    /// The policy.
    pub policy: Policy,
    /// How it is written.
    pub written: Written,
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
        Self {
            policy,
            written: Written::default(),
            footprint: Footprint::default(),
            shadow: None,
        }
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
    /// Opens the ledger for a policy that needs it.
    keeper: Arc<Keeper>,
    /// Locked while the disk is asked, so only apart from the threads that serve.
    watch: Mutex<Watch>,
    shadow_watch: Mutex<Watch>,
}

/// What was read: problems, or a policy whose cases pass.
type Read = Result<Compiled, Vec<Problem>>;
type InShadow = Option<Arc<ShadowPolicy<Arc<PolicyMetrics>>>>;

impl Reloading {
    /// Puts the first policy in force.
    pub(super) fn new(
        settings: &Settings,
        opened: Opened,
        keeper: Arc<Keeper>,
        metrics: Metrics,
        clock: Clock,
    ) -> Self {
        let (shadow, shadow_footprint) = opened
            .shadow
            .map(|beside| (beside.policy, beside.footprint))
            .unzip();
        let live = Live::load(opened.policy, opened.written, &metrics, &clock);
        let shadow = shadow.map(|policy| in_shadow(Arc::new(policy), &metrics, &clock));
        let in_force = Arc::new(InForce::new(keeper.under(live.in_front_of(shadow))));
        Self {
            keeper,
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
        let read = tokio::task::spawn_blocking(move || {
            let live = this.read();
            let written = live
                .as_ref()
                .and_then(|read| this.written(read.as_ref().ok()?));
            (live, written.unwrap_or_default(), this.read_shadow())
        });
        let (live, written, shadow) = read.await.unwrap_or_else(|_| self.broken_down());
        let made = self.accept(live, written, shadow);
        self.say(trigger, &made.live);
        self.say_shadow(trigger, made.shadow.as_ref());
        self.count(&made.live);
        made
    }

    /// Blocks. `None` if no file stands behind the policy.
    fn read(&self) -> Option<Read> {
        match &self.settings.origin {
            PolicyOrigin::BuiltIn => None,
            origin @ PolicyOrigin::Path(path) => {
                let read = self.read_at(origin, &self.watch);
                Some(read.and_then(|read| self.with_ledger(read, path)))
            }
        }
    }

    /// A policy that needs a ledger takes force only with one.
    fn with_ledger(&self, read: Compiled, path: &Path) -> Read {
        let problem = |words: String| {
            vec![Problem::error(
                &Place::of_file(&path.to_string_lossy().into()),
                words,
            )]
        };
        self.keeper
            .prepare(&read.policy)
            .map(|()| read)
            .map_err(problem)
    }

    /// Blocks. `None` if there is no shadow policy.
    fn read_shadow(&self) -> Option<Read> {
        let path = self.settings.shadow.as_ref()?;
        Some(self.read_at(&PolicyOrigin::Path(path.clone()), &self.shadow_watch))
    }

    /// How that is written which was read, behind the policy in force, if it is another. Puts every rule into words.
    fn written(&self, compiled: &Compiled) -> Option<Written> {
        let now = self.in_force.load();
        let changed = now.policy.revision() != compiled.policy.revision();
        let before = || Before::of(&now.policy, &now.written, &compiled.policy);
        changed.then(|| written(&self.settings.origin, compiled).after(before()))
    }

    fn read_at(&self, origin: &PolicyOrigin, watch: &Mutex<Watch>) -> Read {
        let (mut read, footprint) = policy::accept_noting(origin);
        locked(watch).was_read(footprint);
        if let Ok(compiled) = &mut read {
            compiled
                .problems
                .extend(policy::unknown_crawlers(&compiled.crawlers, &self.crawlers));
        }
        read
    }

    /// What is said if reading did not come to an end.
    fn broken_down(&self) -> (Option<Read>, Written, Option<Read>) {
        let live = match &self.settings.origin {
            PolicyOrigin::BuiltIn => None,
            PolicyOrigin::Path(path) => Some(Err(vec![panicked(path)])),
        };
        (
            live,
            Written::default(),
            self.settings
                .shadow
                .as_ref()
                .map(|path| Err(vec![panicked(path)])),
        )
    }

    /// Puts in force what is new. A mistake in one of the two policies does not keep the other from being loaded.
    fn accept(&self, live: Option<Read>, written: Written, shadow: Option<Read>) -> Made {
        let now = self.in_force.load();
        let (live, outcome) = self.accept_live(live, written, &now);
        let old = &now.shadow;
        let (shadow, of_shadow) = match shadow {
            None => (None, None),
            Some(Err(problems)) => (old.clone(), Some(Outcome::Refused(problems))),
            Some(Ok(compiled)) => {
                let outcome = loaded(old.as_ref().map(|old| old.policy.revision()), &compiled);
                let stays = matches!(outcome, Outcome::Unchanged) && live.is_none();
                let new = || {
                    Some(in_shadow(
                        Arc::new(compiled.policy),
                        &self.metrics,
                        &self.clock,
                    ))
                };
                (if stays { old.clone() } else { new() }, Some(outcome))
            }
        };
        let same_shadow = match (old, &shadow) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if live.is_some() || !same_shadow {
            let live = live.unwrap_or_else(|| Live::of(&now));
            self.in_force
                .replace(self.keeper.under(live.in_front_of(shadow)));
        }
        Made {
            live: outcome,
            shadow: of_shadow,
        }
    }

    /// What takes force, if anything does.
    fn accept_live(
        &self,
        read: Option<Read>,
        written: Written,
        now: &Snapshot<Arc<PolicyMetrics>>,
    ) -> (Option<Live>, Outcome) {
        let compiled = match read {
            None => return (None, Outcome::NothingToRead),
            Some(Err(problems)) => return (None, Outcome::Refused(problems)),
            Some(Ok(compiled)) => compiled,
        };
        match loaded(Some(now.policy.revision()), &compiled) {
            outcome @ Outcome::Loaded { .. } => (
                Some(Live::load(
                    compiled.policy,
                    written,
                    &self.metrics,
                    &self.clock,
                )),
                outcome,
            ),
            outcome @ (Outcome::Unchanged | Outcome::NothingToRead | Outcome::Refused(_)) => {
                (None, outcome)
            }
        }
    }

    fn count(&self, outcome: &Outcome) {
        match outcome {
            // Counted with its rules.
            Outcome::Loaded { .. } => {}
            Outcome::Unchanged | Outcome::NothingToRead => {
                self.metrics.policy_unchanged(self.clock.wall())
            }
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
        let (Some(outcome), Some(shadow)) = (outcome, &snapshot.shadow) else {
            return;
        };
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
        let nothing =
            self.settings.origin == PolicyOrigin::BuiltIn && self.settings.shadow.is_none();
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
            if tokio::task::spawn_blocking(move || this.look())
                .await
                .unwrap_or(false)
            {
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
    Outcome::Loaded {
        before: before.to_owned(),
        warnings: compiled.problems.clone(),
    }
}

/// How a policy is written that was read from there.
pub(super) fn written(origin: &PolicyOrigin, compiled: &Compiled) -> Written {
    match origin {
        PolicyOrigin::BuiltIn => Written::default(),
        PolicyOrigin::Path(path) => Written::of(compiled, path),
    }
}

/// A policy, its counters and how it is written.
struct Live {
    policy: Arc<Policy>,
    counters: Arc<PolicyMetrics>,
    written: Arc<Written>,
}

impl Live {
    /// One that takes force now.
    fn load(policy: Policy, written: Written, metrics: &Metrics, clock: &Clock) -> Self {
        let counters =
            metrics.policy_loaded(policy.name(), policy.revision(), counted(&policy), clock);
        Self {
            policy: Arc::new(policy),
            counters,
            written: Arc::new(written.since(clock.wall())),
        }
    }

    /// The one that is in force.
    fn of(snapshot: &Snapshot<Arc<PolicyMetrics>>) -> Self {
        Self {
            policy: Arc::clone(&snapshot.policy),
            counters: Arc::clone(&snapshot.counters),
            written: Arc::clone(&snapshot.written),
        }
    }

    fn in_front_of(self, shadow: InShadow) -> Snapshot<Arc<PolicyMetrics>> {
        Snapshot::new(self.policy, self.counters)
            .written(self.written)
            .beside(shadow)
    }
}

/// A policy that is judged in shadow from now on, its book empty: what it would change is asked of the live one of now.
fn in_shadow(
    policy: Arc<Policy>,
    metrics: &Metrics,
    clock: &Clock,
) -> Arc<ShadowPolicy<Arc<PolicyMetrics>>> {
    let counters = metrics.shadow_loaded(policy.name(), policy.revision(), counted(&policy), clock);
    Arc::new(ShadowPolicy { policy, counters })
}

fn counted(policy: &Policy) -> impl Iterator<Item = (&RuleId, RuleMode, RuleKind)> {
    policy.rules().iter().map(|rule| {
        let mode = match rule.mode {
            Mode::Enforce => RuleMode::Enforce,
            Mode::Shadow => RuleMode::Shadow,
            Mode::Disabled => RuleMode::Disabled,
        };
        let kind = match &rule.body {
            RuleBody::Filter(_) => RuleKind::Filter,
            RuleBody::Group(_) => RuleKind::Group,
        };
        (&rule.id, mode, kind)
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
pub(super) fn standing(
    snapshot: &Snapshot<Arc<PolicyMetrics>>,
    last: Option<&Outcome>,
) -> CheckState {
    let in_force = format!("{}@{}", snapshot.policy.name(), snapshot.policy.revision());
    match last {
        Some(Outcome::Refused(problems)) => {
            let errors = match problems.iter().filter(|problem| problem.is_error()).count() {
                1 => "1 error".to_owned(),
                count => format!("{count} errors"),
            };
            CheckState::Warn(format!(
                "{in_force} stays in force: the last reload found {errors}"
            ))
        }
        Some(Outcome::Loaded { .. } | Outcome::Unchanged | Outcome::NothingToRead) | None => {
            CheckState::Ok(in_force)
        }
    }
}

fn panicked(path: &Path) -> Problem {
    let place = Place::of_file(&path.to_string_lossy().into());
    Problem::error(
        &place,
        "crawlgate broke down on this policy; please report it",
    )
}
