//! Reads the policy again while the proxy runs, and puts it in force if nothing is wrong with it.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::admin::health::CheckState;
use crate::clock::Clock;
use crate::config::policy;
use crate::config::settings::{PolicyConfig, PolicyOrigin, Settings};
use crate::config::watch::{PathStamps, PolicyWatcher};
use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::metrics::Metrics;
use crate::metrics::labels::{RuleKind, RuleMode};
use crate::metrics::policy::PolicyMetrics;
use crate::model::rule_id::RuleId;
use crate::pipeline::crawlers::CrawlerRegistration;
use crate::pipeline::policy_source::{PolicySource, PreviousPolicy};
use crate::pipeline::reload::{ReloadHandle, ReloadOutcome, ReloadOutcomes, ReloadTrigger};
use crate::pipeline::shadow::ShadowPolicy;
use crate::pipeline::snapshot::{ActivePolicy, PolicySnapshot};
use crate::policy::Policy;
use crate::policy::compile::CompiledPolicy;
use crate::policy::rule::{EnforcementMode, RuleBody};
use crate::proxy::drain::DrainWatch;

use super::console::print_problems;
use super::serve::ledger::LedgerOpener;

/// How often the policy's files are looked at. Twice in a row they must be the same, so a change is in force within
/// two of these.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A policy to run under, the files that it was read from, and what stands in its shadow.
#[derive(Debug)]
pub struct LoadedPolicy {
    /// The policy.
    pub policy: Policy,
    /// How it is written.
    pub source: PolicySource,
    /// Its files; none to be watched by default.
    pub files: PathStamps,
    /// The policy that is judged beside it.
    pub shadow: Option<LoadedShadowPolicy>,
}

/// A policy that is judged beside the one in force, and its files.
#[derive(Debug)]
pub struct LoadedShadowPolicy {
    /// The policy.
    pub policy: Policy,
    /// Its files.
    pub files: PathStamps,
}

impl From<Policy> for LoadedPolicy {
    /// A policy that no file stands behind.
    fn from(policy: Policy) -> Self {
        Self {
            policy,
            source: PolicySource::default(),
            files: PathStamps::default(),
            shadow: None,
        }
    }
}

/// What an attempt needs.
#[derive(Debug)]
pub(super) struct PolicyFileReloader {
    settings: PolicyConfig,
    active_policy: Arc<ActivePolicy>,
    metrics: Metrics,
    clock: Clock,
    /// Who is known, for rules that speak of others.
    crawlers: Vec<CrawlerRegistration>,
    /// Opens the ledger for a policy that needs it.
    ledger_opener: Arc<LedgerOpener>,
    /// Locked while the disk is asked, so only apart from the threads that serve.
    watch: Mutex<PolicyWatcher>,
    shadow_watch: Mutex<PolicyWatcher>,
}

/// What was read: problems, or a policy whose cases pass.
type CompileResult = Result<CompiledPolicy, Vec<Problem>>;
type OptionalShadowPolicy = Option<Arc<ShadowPolicy>>;

impl PolicyFileReloader {
    /// Puts the first policy in force.
    pub(super) fn new(
        settings: &Settings,
        opened: LoadedPolicy,
        keeper: Arc<LedgerOpener>,
        metrics: Metrics,
        clock: Clock,
    ) -> Self {
        let (shadow, shadow_footprint) = opened
            .shadow
            .map(|beside| (beside.policy, beside.files))
            .unzip();
        let live = SnapshotParts::load(opened.policy, opened.source, &metrics, &clock);
        let shadow = shadow.map(|policy| load_shadow_policy(Arc::new(policy), &metrics, &clock));
        let in_force = Arc::new(ActivePolicy::new(
            keeper.apply_keep_setting(live.into_snapshot(shadow)),
        ));
        Self {
            ledger_opener: keeper,
            settings: settings.policy.clone(),
            active_policy: in_force,
            metrics,
            clock,
            crawlers: settings.crawlers.clone(),
            watch: Mutex::new(PolicyWatcher::new(opened.files)),
            shadow_watch: Mutex::new(PolicyWatcher::new(shadow_footprint.unwrap_or_default())),
        }
    }

    /// The policy in force.
    pub(super) fn active_policy(&self) -> &Arc<ActivePolicy> {
        &self.active_policy
    }

    /// What is in force, and whether it should be, in words.
    pub(super) fn status(&self, outcome: &ReloadOutcome) -> String {
        let words = match policy_state(&self.active_policy.load(), Some(outcome)) {
            CheckState::Ok(in_force) => format!("{in_force} is in force"),
            CheckState::Warn(words) | CheckState::Fail(words) => words,
        };
        format!("policy {words}")
    }

    /// One attempt. Reading and compiling are done apart from the threads that serve.
    pub(super) async fn attempt(self: Arc<Self>, trigger: ReloadTrigger) -> ReloadOutcomes {
        let this = Arc::clone(&self);
        let read = tokio::task::spawn_blocking(move || {
            let live = this.read();
            let written = live
                .as_ref()
                .and_then(|read| this.new_source(read.as_ref().ok()?));
            (live, written.unwrap_or_default(), this.read_shadow())
        });
        let (live, written, shadow) = read.await.unwrap_or_else(|_| self.panic_results());
        let made = self.apply(live, written, shadow);
        self.log_outcome(trigger, &made.live);
        self.log_shadow_outcome(trigger, made.shadow.as_ref());
        self.count_outcome(&made.live);
        made
    }

    /// Blocks. `None` if no file stands behind the policy.
    fn read(&self) -> Option<CompileResult> {
        match &self.settings.origin {
            PolicyOrigin::BuiltIn => None,
            origin @ PolicyOrigin::Path(path) => {
                let read = self.read_at(origin, &self.watch);
                Some(read.and_then(|read| self.ensure_ledger(read, path)))
            }
        }
    }

    /// A policy that needs a ledger takes force only with one.
    fn ensure_ledger(&self, read: CompiledPolicy, path: &Path) -> CompileResult {
        let problem = |words: String| {
            vec![Problem::error(
                &SourceLocation::for_file(&path.to_string_lossy().into()),
                words,
            )]
        };
        self.ledger_opener
            .ensure_open(&read.policy)
            .map(|()| read)
            .map_err(problem)
    }

    /// Blocks. `None` if there is no shadow policy.
    fn read_shadow(&self) -> Option<CompileResult> {
        let path = self.settings.shadow.as_ref()?;
        Some(self.read_at(&PolicyOrigin::Path(path.clone()), &self.shadow_watch))
    }

    /// How that is written which was read, behind the policy in force, if it is another. Puts every rule into words.
    fn new_source(&self, compiled: &CompiledPolicy) -> Option<PolicySource> {
        let now = self.active_policy.load();
        let changed = now.policy.revision() != compiled.policy.revision();
        let before = || PreviousPolicy::new(&now.policy, &now.source, &compiled.policy);
        changed.then(|| policy_source(&self.settings.origin, compiled).with_previous(before()))
    }

    fn read_at(&self, origin: &PolicyOrigin, watch: &Mutex<PolicyWatcher>) -> CompileResult {
        let (mut read, footprint) = policy::open_and_test_watched(origin);
        lock_watch(watch).set_loaded(footprint);
        if let Ok(compiled) = &mut read {
            compiled.problems.extend(policy::unknown_crawlers(
                &compiled.named_crawlers,
                &self.crawlers,
            ));
        }
        read
    }

    /// What is said if reading did not come to an end.
    fn panic_results(&self) -> (Option<CompileResult>, PolicySource, Option<CompileResult>) {
        let live = match &self.settings.origin {
            PolicyOrigin::BuiltIn => None,
            PolicyOrigin::Path(path) => Some(Err(vec![panic_problem(path)])),
        };
        (
            live,
            PolicySource::default(),
            self.settings
                .shadow
                .as_ref()
                .map(|path| Err(vec![panic_problem(path)])),
        )
    }

    /// Puts in force what is new. A mistake in one of the two policies does not keep the other from being loaded.
    fn apply(
        &self,
        live: Option<CompileResult>,
        written: PolicySource,
        shadow: Option<CompileResult>,
    ) -> ReloadOutcomes {
        let now = self.active_policy.load();
        let (live, outcome) = self.apply_live(live, written, &now);
        let old = &now.shadow;
        let (shadow, of_shadow) = match shadow {
            None => (None, None),
            Some(Err(problems)) => (old.clone(), Some(ReloadOutcome::Refused(problems))),
            Some(Ok(compiled)) => {
                let outcome =
                    reload_outcome(old.as_ref().map(|old| old.policy.revision()), &compiled);
                let stays = matches!(outcome, ReloadOutcome::Unchanged) && live.is_none();
                let new = || {
                    Some(load_shadow_policy(
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
            let live = live.unwrap_or_else(|| SnapshotParts::from_snapshot(&now));
            self.active_policy.replace(
                self.ledger_opener
                    .apply_keep_setting(live.into_snapshot(shadow)),
            );
        }
        ReloadOutcomes {
            live: outcome,
            shadow: of_shadow,
        }
    }

    /// What takes force, if anything does.
    fn apply_live(
        &self,
        read: Option<CompileResult>,
        written: PolicySource,
        now: &PolicySnapshot,
    ) -> (Option<SnapshotParts>, ReloadOutcome) {
        let compiled = match read {
            None => return (None, ReloadOutcome::NoSource),
            Some(Err(problems)) => return (None, ReloadOutcome::Refused(problems)),
            Some(Ok(compiled)) => compiled,
        };
        match reload_outcome(Some(now.policy.revision()), &compiled) {
            outcome @ ReloadOutcome::Loaded { .. } => (
                Some(SnapshotParts::load(
                    compiled.policy,
                    written,
                    &self.metrics,
                    &self.clock,
                )),
                outcome,
            ),
            outcome @ (ReloadOutcome::Unchanged
            | ReloadOutcome::NoSource
            | ReloadOutcome::Refused(_)) => (None, outcome),
        }
    }

    fn count_outcome(&self, outcome: &ReloadOutcome) {
        match outcome {
            // Counted with its rules.
            ReloadOutcome::Loaded { .. } => {}
            ReloadOutcome::Unchanged | ReloadOutcome::NoSource => {
                self.metrics.record_unchanged_policy(self.clock.wall_time())
            }
            ReloadOutcome::Refused(_) => self.metrics.record_failed_reload(),
        }
    }

    fn log_outcome(&self, trigger: ReloadTrigger, outcome: &ReloadOutcome) {
        let snapshot = self.active_policy.load();
        let (name, revision) = (snapshot.policy.name(), snapshot.policy.revision());
        print_problems(outcome.problems());
        match outcome {
            ReloadOutcome::Loaded {
                previous_revision: before,
                ..
            } => {
                tracing::info!(%trigger, before, "policy {name}@{revision} is in force");
            }
            ReloadOutcome::Unchanged => {
                tracing::info!(%trigger, "policy {name}@{revision} is in force still: nothing changed")
            }
            ReloadOutcome::NoSource => {
                tracing::info!(%trigger, "policy {name}@{revision} is in force still: no file stands behind it");
            }
            ReloadOutcome::Refused(_) => {
                tracing::error!(%trigger, "the policy was not loaded; {name}@{revision} stays in force");
            }
        }
    }

    fn log_shadow_outcome(&self, trigger: ReloadTrigger, outcome: Option<&ReloadOutcome>) {
        let snapshot = self.active_policy.load();
        let (Some(outcome), Some(shadow)) = (outcome, &snapshot.shadow) else {
            return;
        };
        let (name, revision) = (shadow.policy.name(), shadow.policy.revision());
        print_problems(outcome.problems());
        match outcome {
            ReloadOutcome::Loaded {
                previous_revision: before,
                ..
            } => {
                tracing::info!(%trigger, before, "shadow policy {name}@{revision} is judged beside it");
            }
            ReloadOutcome::Unchanged | ReloadOutcome::NoSource => {}
            ReloadOutcome::Refused(_) => {
                tracing::error!(%trigger, "the shadow policy was not loaded; {name}@{revision} stays in shadow");
            }
        }
    }

    /// Asks for a reload whenever the files have changed, until the drain.
    pub(super) async fn watch(self: Arc<Self>, reloads: ReloadHandle, mut drain: DrainWatch) {
        let nothing =
            self.settings.origin == PolicyOrigin::BuiltIn && self.settings.shadow.is_none();
        if !self.settings.watch || nothing {
            return;
        }
        let mut turn = tokio::time::interval(POLL_INTERVAL);
        turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = drain.wait_begun() => return,
                _ = turn.tick() => {}
            }
            let this = Arc::clone(&self);
            if tokio::task::spawn_blocking(move || this.have_files_changed())
                .await
                .unwrap_or(false)
            {
                reloads.reload(ReloadTrigger::Files).await;
            }
        }
    }

    /// Whether files have changed and come to rest. Blocks.
    fn have_files_changed(&self) -> bool {
        let live = lock_watch(&self.watch).poll_changed();
        lock_watch(&self.shadow_watch).poll_changed() || live
    }
}

fn lock_watch(watch: &Mutex<PolicyWatcher>) -> MutexGuard<'_, PolicyWatcher> {
    watch.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether what was read is another policy.
fn reload_outcome(before: Option<&str>, compiled: &CompiledPolicy) -> ReloadOutcome {
    let before = before.unwrap_or_default();
    if before == compiled.policy.revision() {
        return ReloadOutcome::Unchanged;
    }
    ReloadOutcome::Loaded {
        previous_revision: before.to_owned(),
        warnings: compiled.problems.clone(),
    }
}

/// How a policy is written that was read from there.
pub(super) fn policy_source(origin: &PolicyOrigin, compiled: &CompiledPolicy) -> PolicySource {
    match origin {
        PolicyOrigin::BuiltIn => PolicySource::default(),
        PolicyOrigin::Path(path) => PolicySource::from_compiled(compiled, path),
    }
}

/// A policy, its counters and how it is written.
struct SnapshotParts {
    policy: Arc<Policy>,
    counters: Arc<PolicyMetrics>,
    source: Arc<PolicySource>,
}

impl SnapshotParts {
    /// One that takes force now.
    fn load(policy: Policy, written: PolicySource, metrics: &Metrics, clock: &Clock) -> Self {
        let counters = metrics.register_policy(
            policy.name(),
            policy.revision(),
            rule_labels(&policy),
            clock,
        );
        Self {
            policy: Arc::new(policy),
            counters,
            source: Arc::new(written.with_loaded_at(clock.wall_time())),
        }
    }

    /// The one that is in force.
    fn from_snapshot(snapshot: &PolicySnapshot) -> Self {
        Self {
            policy: Arc::clone(&snapshot.policy),
            counters: Arc::clone(&snapshot.counters),
            source: Arc::clone(&snapshot.source),
        }
    }

    fn into_snapshot(self, shadow: OptionalShadowPolicy) -> PolicySnapshot {
        PolicySnapshot::new(self.policy, self.counters)
            .with_source(self.source)
            .with_shadow(shadow)
    }
}

/// A policy that is judged in shadow from now on, its book empty: what it would change is asked of the live one of now.
fn load_shadow_policy(policy: Arc<Policy>, metrics: &Metrics, clock: &Clock) -> Arc<ShadowPolicy> {
    let counters = metrics.register_shadow_policy(
        policy.name(),
        policy.revision(),
        rule_labels(&policy),
        clock,
    );
    Arc::new(ShadowPolicy { policy, counters })
}

fn rule_labels(policy: &Policy) -> impl Iterator<Item = (&RuleId, RuleMode, RuleKind)> {
    policy.rules().iter().map(|rule| {
        let mode = match rule.mode {
            EnforcementMode::Enforce => RuleMode::Enforce,
            EnforcementMode::Shadow => RuleMode::Shadow,
            EnforcementMode::Disabled => RuleMode::Disabled,
        };
        let kind = match &rule.body {
            RuleBody::Filter(_) => RuleKind::Filter,
            RuleBody::Group(_) => RuleKind::Group,
        };
        (&rule.id, mode, kind)
    })
}

/// The shadow policy, for readiness; a warning if a newer one was refused. `None` if there is none.
pub(super) fn shadow_policy_state(
    snapshot: &PolicySnapshot,
    last: Option<&ReloadOutcome>,
) -> Option<CheckState> {
    let shadow = snapshot.shadow.as_ref()?;
    let shown = format!("{}@{}", shadow.policy.name(), shadow.policy.revision());
    Some(match last {
        Some(ReloadOutcome::Refused(_)) => CheckState::Warn(format!(
            "{shown} stays in shadow: the last reload found mistakes in the new one"
        )),
        Some(ReloadOutcome::Loaded { .. } | ReloadOutcome::Unchanged | ReloadOutcome::NoSource)
        | None => CheckState::Ok(shown),
    })
}

/// The policy in force, for readiness; a warning if a newer one was refused.
pub(super) fn policy_state(snapshot: &PolicySnapshot, last: Option<&ReloadOutcome>) -> CheckState {
    let in_force = format!("{}@{}", snapshot.policy.name(), snapshot.policy.revision());
    match last {
        Some(ReloadOutcome::Refused(problems)) => {
            let errors = match problems.iter().filter(|problem| problem.is_error()).count() {
                1 => "1 error".to_owned(),
                count => format!("{count} errors"),
            };
            CheckState::Warn(format!(
                "{in_force} stays in force: the last reload found {errors}"
            ))
        }
        Some(ReloadOutcome::Loaded { .. } | ReloadOutcome::Unchanged | ReloadOutcome::NoSource)
        | None => CheckState::Ok(in_force),
    }
}

fn panic_problem(path: &Path) -> Problem {
    let place = SourceLocation::for_file(&path.to_string_lossy().into());
    Problem::error(
        &place,
        "crawlgate broke down on this policy; please report it",
    )
}
