//! Reloads the policy while the proxy runs, and activates it if it has no errors and its cases pass.

mod history;
mod rollout;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::Builder;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::admin::health::CheckState;
use crate::clock::Clock;
use crate::config::policy::{self, WatchedPolicy};
use crate::config::settings::{ParentConfig, PolicyConfig, PolicyOrigin, Settings};
use crate::config::timed_read::ReadTimeoutError;
use crate::config::watch::{PathStamps, PolicyWatcher};
use crate::console::print_problems;
use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::heap;
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
use crate::policy::source::{PolicyFileDigests, PolicyFileSet};
use crate::proxy::drain::DrainWatch;
use crate::store::policies::{PolicyActivation, ShadowAssignment};

use super::ledger::LedgerOpener;
pub(super) use history::PolicyStoreAccess;
pub(super) use rollout::PolicyRollout;

/// The interval at which the policy's files are polled. Since a change is used only after two equal polls, it is active
/// within two intervals.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The time in which a policy that came in force must be recorded before the reload ends without that.
const RECORD_TIMEOUT: Duration = Duration::from_secs(10);

/// The time for which a reload waits for a change of the policy to end. Such a change may hang, since it writes to the store.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);

/// The time for which a reload waits for the files to be renamed.
const RENAMING_TIMEOUT: Duration = Duration::from_secs(10);

/// The duration from which readiness warns of a reload in progress.
const SLOW_RELOAD: Duration = Duration::from_secs(5);

const PANIC_MESSAGE: &str =
    "crawlgate failed to read this policy because of a bug; please report it";
const RENAMING_MESSAGE: &str =
    "the files are being replaced, and the disk does not answer (policy.path)";

/// A policy that was loaded, with its source and its shadow policy.
#[derive(Debug)]
pub struct LoadedPolicy {
    pub policy: Policy,
    /// The text of the policy.
    pub source: PolicySource,
    /// The state of its files, to detect changes.
    pub stamps: PathStamps,
    /// Its files, to keep them; `None` if they are too large.
    pub files: Option<PolicyFileSet>,
    pub shadow: Option<LoadedShadowPolicy>,
}

/// A shadow policy that was loaded, and the state of its files.
#[derive(Debug)]
pub struct LoadedShadowPolicy {
    pub policy: Policy,
    /// The state of its files, to detect changes.
    pub stamps: PathStamps,
}

impl From<Policy> for LoadedPolicy {
    /// Wraps a policy that was not read from a file.
    fn from(policy: Policy) -> Self {
        Self {
            policy,
            source: PolicySource::default(),
            stamps: PathStamps::default(),
            files: None,
            shadow: None,
        }
    }
}

/// Reloads the policies of a running proxy from their files.
#[derive(Debug)]
pub(super) struct PolicyFileReloader {
    settings: PolicyConfig,
    active_policy: Arc<ActivePolicy>,
    metrics: Metrics,
    clock: Clock,
    /// The known crawlers, for warnings about rules that name others.
    crawlers: Vec<CrawlerRegistration>,
    /// The parent proxies that a policy may name.
    parents: Vec<ParentConfig>,
    ledger_opener: Arc<LedgerOpener>,
    /// Never locked while a file is examined, since the disk may hang.
    watcher: Mutex<PolicyWatcher>,
    shadow_watcher: Mutex<PolicyWatcher>,
    store: PolicyStoreAccess,
    /// The files of the active policy when it was loaded.
    live_files: Mutex<PolicyFileDigests>,
    /// The policy whose files are being written, to record who activated it.
    expected: Mutex<Option<PolicyActivation>>,
    /// Set if a replacement of the files could not be ended.
    is_replacement_pending: AtomicBool,
    /// Held by a reload, and by a change of the policy. A reload goes on without it if it takes too long.
    turn: tokio::sync::Mutex<()>,
    /// Held while the files of the policy are renamed or read.
    renaming: Mutex<()>,
    /// Held while the snapshot is replaced by another one that has parts of it.
    updating: Mutex<()>,
}

/// The result of reading a policy: problems, or a policy whose cases pass.
type CompileResult = Result<CompiledPolicy, Vec<Problem>>;
type OptionalShadowPolicy = Option<Arc<ShadowPolicy>>;

/// The results of reading both policies; `None` for a policy that has no file, or was set while the proxy ran.
struct ReadPolicies {
    live: Option<CompileResult>,
    /// The text of the live policy, if it has changed.
    source: PolicySource,
    /// The files of the live policy, if they can be kept.
    files: Option<PolicyFileSet>,
    digests: PolicyFileDigests,
    shadow: Option<CompileResult>,
}

impl PolicyFileReloader {
    /// Activates the first policy.
    pub(super) fn new(
        settings: &Settings,
        loaded: LoadedPolicy,
        ledger_opener: Arc<LedgerOpener>,
        metrics: &Metrics,
        clock: Clock,
    ) -> Self {
        let store = history::open_store(settings);
        if settings.policy.origin != PolicyOrigin::BuiltIn {
            history::record_start(&store, &loaded, &clock);
        }
        let is_replacement_pending = store
            .as_ref()
            .is_ok_and(|store| !matches!(store.pending_replacement(), Ok(None)));
        let digests = loaded.files.as_ref().map(PolicyFileSet::digests);
        let live = SnapshotParts::load(loaded.policy, loaded.source, metrics, &clock);
        let (configured, shadow_stamps) = match loaded.shadow {
            Some(shadow) => (Some(shadow.policy), shadow.stamps),
            None => (None, PathStamps::default()),
        };
        let shadow = match history::restore_shadow(&store) {
            Some((policy, assignment)) => Some(load_shadow_policy(
                policy,
                Some(Arc::new(assignment)),
                metrics,
                &clock,
            )),
            None => configured.map(|policy| load_shadow_policy(policy, None, metrics, &clock)),
        };
        let snapshot = ledger_opener.apply_keep_setting(live.into_snapshot(shadow));
        // Reading a policy takes several times the memory that it has in the end.
        heap::give_back();
        Self {
            ledger_opener,
            settings: settings.policy.clone(),
            active_policy: Arc::new(ActivePolicy::new(snapshot)),
            metrics: metrics.clone(),
            clock,
            crawlers: settings.crawlers.clone(),
            parents: settings.parents.clone(),
            watcher: Mutex::new(PolicyWatcher::new(loaded.stamps)),
            shadow_watcher: Mutex::new(PolicyWatcher::new(shadow_stamps)),
            store,
            live_files: Mutex::new(digests.unwrap_or_default()),
            expected: Mutex::default(),
            is_replacement_pending: AtomicBool::new(is_replacement_pending),
            turn: tokio::sync::Mutex::default(),
            renaming: Mutex::default(),
            updating: Mutex::default(),
        }
    }

    pub(super) fn active_policy(&self) -> &Arc<ActivePolicy> {
        &self.active_policy
    }

    /// Returns the policies that are kept.
    pub(super) fn store(&self) -> &PolicyStoreAccess {
        &self.store
    }

    /// Returns a status line: the active policy, and whether a newer one was refused.
    pub(super) fn status(&self, outcome: &ReloadOutcome) -> String {
        match policy_state(&self.active_policy.load(), Some(outcome), None) {
            CheckState::Ok(active) => format!("policy {active} is active"),
            CheckState::Warn(message) | CheckState::Fail(message) => format!("policy {message}"),
        }
    }

    /// Reloads both policies. They are read and compiled on a thread that does not serve requests.
    pub(super) async fn attempt(self: Arc<Self>, trigger: ReloadTrigger) -> ReloadOutcomes {
        let turn = tokio::time::timeout(TURN_TIMEOUT, self.turn.lock()).await;
        let turn = turn
            .inspect_err(|_| {
                tracing::warn!(
                    "a change of the policy has not ended for {TURN_TIMEOUT:?}: does the disk of store.path answer? The files are \
                     read meanwhile"
                );
            })
            .ok();
        let has_turn = turn.is_some();
        self.metrics.set_reload_start(Some(self.clock.wall_time()));
        let this = Arc::clone(&self);
        let read = run_on_thread(move || this.read_policies(has_turn)).await;
        let before = self.active_policy.load();
        let mut read = read.unwrap_or_else(|| self.unread_results(PANIC_MESSAGE));
        let files = read.files.take();
        let digests = std::mem::take(&mut read.digests);
        let outcomes = self.apply(read);
        let activation = self.new_activation(trigger, &outcomes.live);
        if activation.is_some() {
            *self.live_files.lock() = digests;
        }
        // A large policy is freed on a thread that does not serve requests.
        let this = Arc::clone(&self);
        let is_read = has_turn && !matches!(outcomes.live, ReloadOutcome::Refused(_));
        let finish = run_on_thread(move || {
            drop(before);
            if let Some(activation) = activation {
                history::record(&this.store, activation, files.as_ref());
            }
            if is_read {
                this.retry_conclusion();
            }
            drop(files);
            heap::give_back();
        });
        if tokio::time::timeout(RECORD_TIMEOUT, finish).await.is_err() {
            tracing::warn!(
                "the history of policies is not written yet: the disk does not answer (store.path)"
            );
        }
        self.metrics.set_reload_start(None);
        self.log_outcome(trigger, &outcomes.live);
        self.log_shadow_outcome(trigger, outcomes.shadow.as_ref());
        self.count_outcome(&outcomes.live);
        outcomes
    }

    /// Reads both policies. Without the turn, a replacement of the files may be in progress. Blocks.
    fn read_policies(&self, has_turn: bool) -> ReadPolicies {
        let Some(_renaming) = self.renaming.try_lock_for(RENAMING_TIMEOUT) else {
            return self.unread_results(RENAMING_MESSAGE);
        };
        let recovered = if has_turn {
            self.recover_files()
        } else {
            Ok(())
        };
        let (live, files) = match recovered {
            Ok(()) => self.read_live(),
            Err(problems) => (Some(Err(problems)), None),
        };
        let source = match &live {
            Some(Ok(compiled)) => self.new_source(compiled),
            Some(Err(_)) | None => None,
        };
        ReadPolicies {
            live,
            source: source.unwrap_or_default(),
            digests: files
                .as_ref()
                .map(PolicyFileSet::digests)
                .unwrap_or_default(),
            files,
            shadow: self.read_shadow(),
        }
    }

    /// Reads the live policy, and opens the ledger if it needs one: without it the policy must not become active.
    fn read_live(&self) -> (Option<CompileResult>, Option<PolicyFileSet>) {
        let origin = &self.settings.origin;
        if *origin == PolicyOrigin::BuiltIn {
            return (None, None);
        }
        let active = self.active_policy.load();
        let (result, files) = self.read_at(origin, &self.watcher, Some(&active.policy));
        (
            Some(result.and_then(|compiled| self.check_live(compiled))),
            files,
        )
    }

    /// Returns the policy if it may become the active one.
    fn check_live(&self, compiled: CompiledPolicy) -> CompileResult {
        let active = self.active_policy.load();
        // A policy that is active already stays so.
        if !compiled.inert_rules.is_empty()
            && active.policy.revision() != compiled.policy.revision()
        {
            let problems = compiled.problems.into_iter().chain(compiled.inert_rules);
            return Err(problems.collect());
        }
        let path = match &self.settings.origin {
            PolicyOrigin::BuiltIn => Path::new(""),
            PolicyOrigin::Path(path) => path,
        };
        let location = policy::location(&self.settings.origin);
        let unknown = policy::unknown_parents(&compiled, &location, &self.parents);
        if !unknown.is_empty() {
            return Err(compiled.problems.into_iter().chain(unknown).collect());
        }
        self.ledger_opener
            .ensure_open(&compiled.policy)
            .map_err(|message| vec![file_problem(path, message)])?;
        Ok(compiled)
    }

    fn read_shadow(&self) -> Option<CompileResult> {
        let active = self.active_policy.load();
        if active.has_assigned_shadow() {
            return None;
        }
        self.read_configured_shadow()
    }

    /// Reads the shadow policy that the configuration names.
    fn read_configured_shadow(&self) -> Option<CompileResult> {
        let path = self.settings.shadow.as_ref()?;
        let active = self.active_policy.load();
        let previous = active.shadow.as_ref().map(|shadow| &*shadow.policy);
        let origin = PolicyOrigin::Path(path.clone());
        Some(self.read_at(&origin, &self.shadow_watcher, previous).0)
    }

    fn read_at(
        &self,
        origin: &PolicyOrigin,
        watcher: &Mutex<PolicyWatcher>,
        previous: Option<&Policy>,
    ) -> (CompileResult, Option<PolicyFileSet>) {
        let WatchedPolicy {
            result,
            stamps,
            files,
        } = policy::open_and_test_watched(origin, previous);
        watcher.lock().set_loaded(stamps);
        (
            result.map(|compiled| self.with_crawler_warnings(compiled)),
            files,
        )
    }

    /// Adds warnings about crawlers that the configuration does not have.
    fn with_crawler_warnings(&self, mut compiled: CompiledPolicy) -> CompiledPolicy {
        compiled.problems.extend(policy::unknown_crawlers(
            &compiled.named_crawlers,
            &self.crawlers,
        ));
        compiled
    }

    /// Returns the text of a policy that was read and its differences from the active one, unless they are the same.
    /// Formats every rule.
    fn new_source(&self, compiled: &CompiledPolicy) -> Option<PolicySource> {
        let active = self.active_policy.load();
        if active.policy.revision() == compiled.policy.revision() {
            return None;
        }
        let previous = PreviousPolicy::new(&active.policy, &active.source, &compiled.policy);
        Some(policy_source(&self.settings.origin, compiled).with_previous(previous))
    }

    /// Returns the results if the policies were not read, for this reason.
    fn unread_results(&self, message: &str) -> ReadPolicies {
        let live = match &self.settings.origin {
            PolicyOrigin::BuiltIn => None,
            PolicyOrigin::Path(path) => Some(Err(vec![file_problem(path, message)])),
        };
        let configured_shadow = self.settings.shadow.as_ref();
        let shadow = configured_shadow.map(|path| Err(vec![file_problem(path, message)]));
        let is_assigned = self.active_policy.load().has_assigned_shadow();
        ReadPolicies {
            live,
            source: PolicySource::default(),
            files: None,
            digests: PolicyFileDigests::default(),
            shadow: shadow.filter(|_| !is_assigned),
        }
    }

    /// Activates the policies that are new. An error in one of them does not prevent the other from being loaded.
    fn apply(&self, read: ReadPolicies) -> ReloadOutcomes {
        let _updating = self.updating.lock();
        let active = self.active_policy.load();
        let (live, live_outcome) = self.apply_live(read.live, read.source, &active);
        let (shadow, shadow_outcome) = self.apply_shadow(read.shadow, &active, live.is_some());
        let is_same_shadow = match (&active.shadow, &shadow) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if live.is_some() || !is_same_shadow {
            let live = live.unwrap_or_else(|| SnapshotParts::from_snapshot(&active));
            let snapshot = live.into_snapshot(shadow);
            self.active_policy
                .replace(self.ledger_opener.apply_keep_setting(snapshot));
        }
        ReloadOutcomes {
            live: live_outcome,
            shadow: shadow_outcome,
        }
    }

    /// Returns the new live policy, if there is one.
    fn apply_live(
        &self,
        read: Option<CompileResult>,
        source: PolicySource,
        active: &PolicySnapshot,
    ) -> (Option<SnapshotParts>, ReloadOutcome) {
        let compiled = match read {
            None => return (None, ReloadOutcome::NoSource),
            Some(Err(problems)) => return (None, ReloadOutcome::Refused(problems)),
            Some(Ok(compiled)) => compiled,
        };
        let outcome = reload_outcome(Some(active.policy.revision()), &compiled);
        let parts = matches!(outcome, ReloadOutcome::Loaded { .. })
            .then(|| SnapshotParts::load(compiled.policy, source, &self.metrics, &self.clock));
        (parts, outcome)
    }

    /// Returns the shadow policy from now on. Its counters are reset when it or the live policy changes, since they
    /// compare it with the live policy.
    fn apply_shadow(
        &self,
        read: Option<CompileResult>,
        active: &PolicySnapshot,
        live_changes: bool,
    ) -> (OptionalShadowPolicy, Option<ReloadOutcome>) {
        let old = &active.shadow;
        let compiled = match read {
            None if active.has_assigned_shadow() => {
                let shadow = old.as_ref().map(|old| self.kept_shadow(old, live_changes));
                return (shadow, Some(ReloadOutcome::Unchanged));
            }
            None => return (None, None),
            Some(Err(problems)) => return (old.clone(), Some(ReloadOutcome::Refused(problems))),
            Some(Ok(compiled)) => compiled,
        };
        let old_revision = old.as_ref().map(|old| old.policy.revision());
        let outcome = reload_outcome(old_revision, &compiled);
        let shadow = if matches!(outcome, ReloadOutcome::Unchanged) && !live_changes {
            old.clone()
        } else {
            Some(load_shadow_policy(
                compiled.policy,
                None,
                &self.metrics,
                &self.clock,
            ))
        };
        (shadow, Some(outcome))
    }

    /// Returns the same shadow policy, with new counters if the live policy changes.
    fn kept_shadow(&self, shadow: &Arc<ShadowPolicy>, live_changes: bool) -> Arc<ShadowPolicy> {
        if !live_changes {
            return Arc::clone(shadow);
        }
        let policy = Arc::clone(&shadow.policy);
        let assignment = shadow.assignment.clone();
        load_shadow_policy(policy, assignment, &self.metrics, &self.clock)
    }

    fn count_outcome(&self, outcome: &ReloadOutcome) {
        match outcome {
            // Counted when its rules are registered.
            ReloadOutcome::Loaded { .. } => {}
            ReloadOutcome::Unchanged | ReloadOutcome::NoSource => {
                self.metrics.record_unchanged_policy(self.clock.wall_time());
            }
            ReloadOutcome::Refused(_) => self.metrics.record_failed_reload(),
        }
    }

    fn log_outcome(&self, trigger: ReloadTrigger, outcome: &ReloadOutcome) {
        let snapshot = self.active_policy.load();
        let policy = snapshot.policy.name_and_revision();
        print_problems(outcome.problems());
        match outcome {
            ReloadOutcome::Loaded {
                previous_revision: before,
                ..
            } => {
                tracing::info!(%trigger, before, "policy {policy} is active");
            }
            ReloadOutcome::Unchanged => {
                tracing::info!(%trigger, "policy {policy} stays active: its files have not changed");
            }
            ReloadOutcome::NoSource => {
                tracing::info!(%trigger, "policy {policy} stays active: it has no file");
            }
            ReloadOutcome::Refused(_) => {
                tracing::error!(%trigger, "the policy was not loaded; {policy} stays active");
            }
        }
    }

    fn log_shadow_outcome(&self, trigger: ReloadTrigger, outcome: Option<&ReloadOutcome>) {
        let snapshot = self.active_policy.load();
        let (Some(outcome), Some(shadow)) = (outcome, &snapshot.shadow) else {
            return;
        };
        let policy = shadow.policy.name_and_revision();
        print_problems(outcome.problems());
        match outcome {
            ReloadOutcome::Loaded {
                previous_revision: before,
                ..
            } => {
                tracing::info!(%trigger, before, "shadow policy {policy} is active");
            }
            ReloadOutcome::Unchanged | ReloadOutcome::NoSource => {}
            ReloadOutcome::Refused(_) => {
                tracing::error!(%trigger, "the shadow policy was not loaded; {policy} stays active");
            }
        }
    }

    /// Triggers a reload whenever the files have changed, until the drain begins.
    pub(super) async fn watch(self: Arc<Self>, reloads: ReloadHandle, mut drain: DrainWatch) {
        let has_files =
            self.settings.origin != PolicyOrigin::BuiltIn || self.settings.shadow.is_some();
        if !self.settings.watch || !has_files {
            return;
        }
        let mut interval = tokio::time::interval(POLL_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut hangs = false;
        loop {
            let poll_and_reload = async {
                interval.tick().await;
                let this = Arc::clone(&self);
                let polled = run_on_thread(move || this.have_files_changed()).await;
                let polled = polled.unwrap_or(Ok(false));
                if polled.is_err() != hangs {
                    hangs = polled.is_err();
                    log_poll(&polled);
                }
                if polled.unwrap_or(false) {
                    reloads.reload(ReloadTrigger::Files).await;
                }
            };
            // A disk that hangs, or a large policy, must not delay the drain.
            tokio::select! {
                () = drain.wait_begun() => return,
                () = poll_and_reload => {}
            }
        }
    }

    /// Returns `true` if the files of a policy have changed and are stable. Blocks.
    fn have_files_changed(&self) -> Result<bool, ReadTimeoutError> {
        let mut has_changed = false;
        for watcher in [&self.watcher, &self.shadow_watcher] {
            let loaded = watcher.lock().loaded().clone();
            let current = loaded.current_with_timeout()?;
            has_changed |= watcher.lock().observe(current);
        }
        Ok(has_changed)
    }
}

/// Runs blocking work on a thread of its own. At the end of the process, nothing waits for it, as for the threads of the
/// runtime. `None` if it panicked.
async fn run_on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, result) = oneshot::channel();
    let thread = Builder::new().name("reload".into());
    thread.spawn(move || sender.send(work())).ok()?;
    result.await.ok()
}

/// Logs that the files can no longer be polled, or can be polled again.
fn log_poll(polled: &Result<bool, ReadTimeoutError>) {
    match polled {
        Ok(_) => tracing::info!("the policy's files are watched for changes again"),
        Err(error) => {
            tracing::warn!(%error, "the policy's files cannot be watched for changes");
        }
    }
}

/// Compares the revision of a policy that was read with that of the active one.
fn reload_outcome(active_revision: Option<&str>, compiled: &CompiledPolicy) -> ReloadOutcome {
    let active_revision = active_revision.unwrap_or_default();
    if active_revision == compiled.policy.revision() {
        return ReloadOutcome::Unchanged;
    }
    ReloadOutcome::Loaded {
        previous_revision: active_revision.to_owned(),
        warnings: compiled.problems.clone(),
    }
}

/// Returns the text of a policy that was read from this origin.
pub(crate) fn policy_source(origin: &PolicyOrigin, compiled: &CompiledPolicy) -> PolicySource {
    match origin {
        PolicyOrigin::BuiltIn => PolicySource::default(),
        PolicyOrigin::Path(path) => PolicySource::from_compiled(compiled, path),
    }
}

/// A live policy with its counters and its text: a snapshot without the shadow policy.
struct SnapshotParts {
    policy: Arc<Policy>,
    counters: Arc<PolicyMetrics>,
    source: Arc<PolicySource>,
}

impl SnapshotParts {
    /// Registers the counters of a policy that becomes active now.
    fn load(policy: Policy, source: PolicySource, metrics: &Metrics, clock: &Clock) -> Self {
        let counters = metrics.register_policy(
            policy.name(),
            policy.revision(),
            rule_labels(&policy),
            clock,
        );
        metrics.set_inert_rules(policy.inert_rules());
        Self {
            policy: Arc::new(policy),
            counters,
            source: Arc::new(source.with_loaded_at(clock.wall_time())),
        }
    }

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

/// Registers the counters of a shadow policy, which start at zero.
fn load_shadow_policy(
    policy: impl Into<Arc<Policy>>,
    assignment: Option<Arc<ShadowAssignment>>,
    metrics: &Metrics,
    clock: &Clock,
) -> Arc<ShadowPolicy> {
    let policy = policy.into();
    let counters = metrics.register_shadow_policy(
        policy.name(),
        policy.revision(),
        rule_labels(&policy),
        clock,
    );
    Arc::new(ShadowPolicy::new(policy, counters).with_assignment(assignment))
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

/// Returns the readiness of the shadow policy, if there is one: a warning if a newer one was refused.
pub(super) fn shadow_policy_state(
    snapshot: &PolicySnapshot,
    last: Option<&ReloadOutcome>,
) -> Option<CheckState> {
    let shadow = snapshot.shadow.as_ref()?;
    let shown = shadow.policy.name_and_revision();
    Some(match last {
        Some(ReloadOutcome::Refused(_)) => CheckState::Warn(format!(
            "{shown} stays active: the last reload found errors in the new shadow policy"
        )),
        Some(ReloadOutcome::Loaded { .. } | ReloadOutcome::Unchanged | ReloadOutcome::NoSource)
        | None => CheckState::Ok(shown),
    })
}

/// Returns the readiness of the policy: a warning if a newer one was refused, or if the reload in progress, which has
/// been running for this time, is slow.
pub(super) fn policy_state(
    snapshot: &PolicySnapshot,
    last: Option<&ReloadOutcome>,
    running_for: Option<Duration>,
) -> CheckState {
    let active = snapshot.policy.name_and_revision();
    if let Some(duration) = running_for.filter(|duration| *duration >= SLOW_RELOAD) {
        return CheckState::Warn(format!(
            "{active} stays active: a reload has been running for {} s",
            duration.as_secs()
        ));
    }
    match last {
        Some(ReloadOutcome::Refused(problems)) => {
            let errors = match problems.iter().filter(|problem| problem.is_error()).count() {
                1 => "1 error".to_owned(),
                count => format!("{count} errors"),
            };
            CheckState::Warn(format!(
                "{active} stays active: the last reload found {errors}"
            ))
        }
        Some(ReloadOutcome::Loaded { .. } | ReloadOutcome::Unchanged | ReloadOutcome::NoSource)
        | None => match snapshot.policy.inert_rules() {
            0 => CheckState::Ok(active),
            1 => CheckState::Warn(format!(
                "{active}: 1 rule can never act; see `crawlgate check`"
            )),
            count => CheckState::Warn(format!(
                "{active}: {count} rules can never act; see `crawlgate check`"
            )),
        },
    }
}

fn file_problem(path: &Path, message: impl Into<String>) -> Problem {
    Problem::error(
        &SourceLocation::for_file(&path.to_string_lossy().into()),
        message,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::compile;

    #[test]
    fn readiness_reports_a_reload_that_takes_long() {
        let policy = compile::load_builtin().unwrap().policy;
        let metrics = Metrics::new(&[], &[]).unwrap();
        let clock = Clock::manual().0;
        let parts = SnapshotParts::load(policy, PolicySource::default(), &metrics, &clock);
        let snapshot = parts.into_snapshot(None);
        for (seconds, warns) in [(None, false), (Some(4), false), (Some(61), true)] {
            let state = policy_state(&snapshot, None, seconds.map(Duration::from_secs));
            match state {
                CheckState::Warn(text) => {
                    assert!(
                        warns && text.contains("has been running for 61 s"),
                        "{text}"
                    );
                }
                CheckState::Ok(_) => assert!(!warns, "{seconds:?}"),
                CheckState::Fail(text) => panic!("{text}"),
            }
        }
    }
}
