//! Changes of the policy while the proxy runs: sets and clears a shadow policy, promotes it, and returns to an earlier
//! policy.
//!
//! Promotion and rollback write the files that `policy.path` names, and reload them like any other change: nothing is in
//! force that the files do not contain.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::config::policy_replacement::{PolicyOnDisk, ReplacedPolicies};
use crate::config::settings::PolicyOrigin;
use crate::config::{policy, policy_replacement};
use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::heap;
use crate::pipeline::reload::{ReloadHandle, ReloadOutcome, ReloadTrigger};
use crate::pipeline::rollout::{
    PolicyChangeError, PolicyChangeReport, PolicyChangeRequest, PolicyChangeResult, RolloutAction,
};
use crate::policy::Policy;
use crate::policy::compile::CompiledPolicy;
use crate::policy::source::{PolicyFileDigests, PolicyFileSet};
use crate::store::policies::{
    ActivationCause, ChangeAuthor, PolicyActivation, PolicyReplacement, PolicyStore,
    ShadowAssignment,
};

use super::{
    OptionalShadowPolicy, PolicyFileReloader, SnapshotParts, file_problem, history,
    load_shadow_policy, run_on_thread,
};

const NO_POLICY_FILE: &str = "the built-in policy is active, which has no file: name one in policy.path, and restart the proxy";

/// Makes the changes that operators request.
#[derive(Debug)]
pub(in crate::server) struct PolicyRollout {
    reloader: Arc<PolicyFileReloader>,
    reloads: ReloadHandle,
}

/// The author of a change and the reason.
#[derive(Clone, Debug)]
struct ChangeCause {
    author: ChangeAuthor,
    reason: Option<String>,
}

/// An activation whose files are written, and not loaded yet.
struct PendingActivation {
    disk: PolicyOnDisk,
    store: Arc<PolicyStore>,
    policies: ReplacedPolicies,
    report: PolicyChangeReport,
}

impl PolicyRollout {
    pub(in crate::server) fn new(reloader: Arc<PolicyFileReloader>, reloads: ReloadHandle) -> Self {
        Self { reloader, reloads }
    }

    /// Makes a change. It is read, compiled and written on a thread that does not serve requests.
    pub(in crate::server) async fn change(
        self: Arc<Self>,
        request: PolicyChangeRequest,
    ) -> PolicyChangeResult {
        let PolicyChangeRequest {
            action,
            author,
            reason,
        } = request;
        let cause = ChangeCause { author, reason };
        let logged = cause.clone();
        let (done, result) = match action {
            RolloutAction::SetShadow(files) => (
                "is the shadow policy",
                self.run(move |reloader| reloader.set_shadow(files, cause))
                    .await,
            ),
            RolloutAction::ClearShadow => (
                "is no longer the shadow policy",
                self.run(PolicyFileReloader::clear_shadow).await,
            ),
            RolloutAction::Promote { revision } => (
                "is promoted from shadow",
                self.activate(move |reloader| reloader.begin_promotion(revision.as_deref(), cause))
                    .await,
            ),
            RolloutAction::RollBack { revision } => (
                "is active again",
                self.activate(move |reloader| reloader.begin_rollback(revision.as_deref(), cause))
                    .await,
            ),
        };
        log_change(done, &logged, &result);
        result
    }

    /// Runs a part of a change while no other part, and normally no reload, is running.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&PolicyFileReloader) -> Result<T, PolicyChangeError> + Send + 'static,
    ) -> Result<T, PolicyChangeError> {
        let _turn = self.reloader.turn.lock().await;
        let reloader = Arc::clone(&self.reloader);
        let result = run_on_thread(move || {
            let result = work(&reloader);
            heap::give_back();
            result
        });
        result.await.unwrap_or_else(|| {
            Err(refused(
                "this change failed because of a bug in crawlgate; please report it",
            ))
        })
    }

    /// Writes files and loads them.
    async fn activate(
        &self,
        begin: impl FnOnce(&PolicyFileReloader) -> Result<PendingActivation, PolicyChangeError>
        + Send
        + 'static,
    ) -> PolicyChangeResult {
        let pending = self.run(begin).await?;
        let attempt = self.reloads.reload(ReloadTrigger::Api).await;
        let outcome = attempt.map(|attempt| attempt.outcome.clone());
        self.run(move |reloader| reloader.end_activation(pending, outcome))
            .await
    }
}

impl PolicyFileReloader {
    fn open_store(&self) -> Result<Arc<PolicyStore>, PolicyChangeError> {
        self.store.clone().map_err(|error| refused(&*error))
    }

    fn set_shadow(&self, files: PolicyFileSet, cause: ChangeCause) -> PolicyChangeResult {
        let store = self.open_store()?;
        let (files, obstacle) = self.adapt_shadow(files);
        let active = self.active_policy.load();
        let before = active.shadow.as_ref().map(|shadow| &shadow.policy);
        let compiled = self.compile_set(&files, before.map(|policy| &**policy))?;
        let (name, revision) = (compiled.policy.name(), compiled.policy.revision());
        let assignment = ShadowAssignment::new(
            name,
            revision,
            self.clock.wall_time(),
            cause.author,
            cause.reason,
        );
        let mut report = new_report(
            &compiled.policy,
            before.map(|policy| policy.revision()),
            compiled.problems,
        );
        report.warnings.extend(obstacle.map(|obstacle| {
            let message = format!("this policy cannot be promoted: {obstacle}");
            change_warning("policy.path", &message)
        }));
        store
            .keep(&report.revision, &files)
            .and_then(|()| store.set_shadow(Some(assignment.clone())))
            .map_err(|error| {
                refused(format!(
                    "store.path cannot be written: {error}; the shadow policy was not set"
                ))
            })?;
        self.replace_shadow(Some(load_shadow_policy(
            compiled.policy,
            Some(Arc::new(assignment)),
            &self.metrics,
            &self.clock,
        )));
        Ok(report)
    }

    /// Gives a policy file the name that it will have when it is promoted, since its revision depends on it. Also returns the
    /// reason why it cannot be promoted, if there is one.
    fn adapt_shadow(&self, files: PolicyFileSet) -> (PolicyFileSet, Option<String>) {
        let path = match &self.settings.origin {
            PolicyOrigin::BuiltIn => return (files, Some(NO_POLICY_FILE.to_owned())),
            PolicyOrigin::Path(path) => path,
        };
        match PolicyOnDisk::find(path).and_then(|disk| disk.adapt(files.clone())) {
            Ok(adapted) => (adapted, None),
            Err(error) => (files, Some(error)),
        }
    }

    fn clear_shadow(&self) -> PolicyChangeResult {
        let store = self.open_store()?;
        let Some(assignment) = store.shadow() else {
            return Err(refused(
                "no shadow policy was set while the proxy runs; one that the configuration names is removed there \
                 (policy.shadow)",
            ));
        };
        store
            .set_shadow(None)
            .map_err(|error| refused(format!("store.path cannot be written: {error}")))?;
        let warnings = self.use_configured_shadow();
        Ok(PolicyChangeReport {
            name: assignment.name,
            revision: assignment.revision,
            previous_revision: None,
            warnings,
            written_files: Vec::new(),
        })
    }

    /// Returns to the shadow policy that the configuration names. Returns its problems: it is not used if it has errors.
    fn use_configured_shadow(&self) -> Vec<Problem> {
        let (shadow, problems) = match self.read_configured_shadow() {
            None => (None, Vec::new()),
            Some(Err(problems)) => (None, problems),
            Some(Ok(compiled)) => {
                let shadow = load_shadow_policy(compiled.policy, None, &self.metrics, &self.clock);
                (Some(shadow), compiled.problems)
            }
        };
        self.replace_shadow(shadow);
        problems
    }

    fn replace_shadow(&self, shadow: OptionalShadowPolicy) {
        let _updating = self.updating.lock();
        let active = self.active_policy.load();
        let snapshot = SnapshotParts::from_snapshot(&active).into_snapshot(shadow);
        self.active_policy
            .replace(self.ledger_opener.apply_keep_setting(snapshot));
    }

    /// Compiles files that were sent or kept. Rules that can never act are errors, as in a reload.
    fn compile_set(
        &self,
        files: &PolicyFileSet,
        previous: Option<&Policy>,
    ) -> Result<CompiledPolicy, PolicyChangeError> {
        let compiled =
            policy::open_set_and_test(files, previous).map_err(PolicyChangeError::Invalid)?;
        if compiled.inert_rules.is_empty() {
            return Ok(self.with_crawler_warnings(compiled));
        }
        let problems = compiled.problems.into_iter().chain(compiled.inert_rules);
        Err(PolicyChangeError::Invalid(problems.collect()))
    }

    fn begin_promotion(
        &self,
        revision: Option<&str>,
        cause: ChangeCause,
    ) -> Result<PendingActivation, PolicyChangeError> {
        let store = self.open_store()?;
        let active = self.active_policy.load();
        let Some(shadow) = &active.shadow else {
            return Err(refused(
                "there is no shadow policy: set one with `crawlgate shadow set PATH`",
            ));
        };
        let shown = shadow.policy.revision();
        if let Some(revision) = revision.filter(|revision| *revision != shown) {
            return Err(refused(format!(
                "the shadow policy has the revision {shown}, not {revision}"
            )));
        }
        let files = match &shadow.assignment {
            Some(assignment) => load_files(&store, &assignment.revision)?,
            None => self.read_shadow_files(shown)?,
        };
        let cleared_shadow = shadow.assignment.as_ref();
        let cleared_shadow = cleared_shadow.map(|assignment| assignment.revision.clone());
        self.begin_activation(
            store,
            files,
            ActivationCause::Promote,
            cause,
            cleared_shadow,
        )
    }

    /// Reads the files of the shadow policy that the configuration names, if they still have this revision.
    fn read_shadow_files(&self, revision: &str) -> Result<PolicyFileSet, PolicyChangeError> {
        let path = self.settings.shadow.clone().unwrap_or_default();
        let opened = policy::open_and_test_watched(&PolicyOrigin::Path(path), None);
        let compiled = opened.result.map_err(PolicyChangeError::Invalid)?;
        match opened.files {
            Some(files) if compiled.policy.revision() == revision => Ok(files),
            Some(_) => Err(refused(
                "the files of policy.shadow have changed since they were loaded: run `crawlgate reload`, look at `crawlgate \
                 shadow`, and promote again",
            )),
            None => Err(refused(too_large())),
        }
    }

    fn begin_rollback(
        &self,
        revision: Option<&str>,
        cause: ChangeCause,
    ) -> Result<PendingActivation, PolicyChangeError> {
        let store = self.open_store()?;
        let active = self.active_policy.load();
        let active = active.policy.revision();
        let revision = match revision {
            Some(revision) => revision.to_owned(),
            None => store.revision_before(active).ok_or_else(|| {
                refused(format!(
                    "no policy was in force before revision {active}: name the revision to return to; `crawlgate policy history` \
                     lists them"
                ))
            })?,
        };
        let files = load_files(&store, &revision)?;
        self.begin_activation(store, files, ActivationCause::Rollback, cause, None)
    }

    /// Checks a policy like a reload, and writes its files in place of those of the active one. When it is active, the shadow
    /// policy of the revision `cleared_shadow` is cleared.
    fn begin_activation(
        &self,
        store: Arc<PolicyStore>,
        files: PolicyFileSet,
        how: ActivationCause,
        cause: ChangeCause,
        cleared_shadow: Option<String>,
    ) -> Result<PendingActivation, PolicyChangeError> {
        self.settle_pending_replacement()?;
        let disk = PolicyOnDisk::find(&self.policy_path()?).map_err(refused)?;
        let files = disk.adapt(files).map_err(refused)?;
        let active = self.active_policy.load();
        let before = active.policy.revision();
        let compiled = self.compile_set(&files, Some(&active.policy))?;
        let compiled = self
            .check_live(compiled)
            .map_err(PolicyChangeError::Invalid)?;
        let mut report = new_report(&compiled.policy, Some(before), compiled.problems);
        drop(compiled.policy);
        if report.revision == before {
            return Err(refused(format!(
                "policy {}@{before} is active already",
                report.name
            )));
        }
        let loaded = self.live_files.lock().clone();
        let activation =
            PolicyActivation::new(&report.name, &report.revision, self.clock.wall_time(), how)
                .with_author(cause.author, cause.reason);
        let policies = ReplacedPolicies {
            previous: active_files(&store, &disk, before, &loaded)?,
            next: files,
            record: PolicyReplacement {
                previous: before.to_owned(),
                next: report.revision.clone(),
                activation: Some(activation.clone()),
                cleared_shadow,
            },
        };
        let replaced = disk.replace(&store, &loaded, &policies, &self.renaming);
        let replaced = replaced.map_err(|error| {
            self.note_pending_replacement(&store);
            refused(error)
        })?;
        for warning in &replaced.warnings {
            report.warnings.push(change_warning("policy.path", warning));
        }
        *self.expected.lock() = Some(activation);
        Ok(PendingActivation {
            disk,
            store,
            policies,
            report: PolicyChangeReport {
                written_files: replaced.written,
                ..report
            },
        })
    }

    fn policy_path(&self) -> Result<PathBuf, PolicyChangeError> {
        match &self.settings.origin {
            PolicyOrigin::Path(path) => Ok(path.clone()),
            PolicyOrigin::BuiltIn => Err(refused(NO_POLICY_FILE)),
        }
    }

    /// Completes an activation if its policy is active now; otherwise restores the old files.
    fn end_activation(
        &self,
        pending: PendingActivation,
        outcome: Option<ReloadOutcome>,
    ) -> PolicyChangeResult {
        let store = Arc::clone(&pending.store);
        let result = self.complete_or_restore(pending, outcome);
        self.note_pending_replacement(&store);
        result
    }

    fn complete_or_restore(
        &self,
        pending: PendingActivation,
        outcome: Option<ReloadOutcome>,
    ) -> PolicyChangeResult {
        let PendingActivation {
            disk,
            store,
            policies,
            mut report,
        } = pending;
        let active = self.active_policy.load();
        let active = active.policy.revision();
        if active == report.revision {
            // The policy is in force, so what fails from here on is a warning.
            report.warnings.extend(self.conclude_replacement(&store));
            return Ok(report);
        }
        self.expected.lock().take();
        let Some(outcome) = outcome else {
            return Err(refused(
                "the proxy is shutting down: the files are written, and are used after its next start",
            ));
        };
        if active != policies.record.previous {
            let _ = store.end_replacement();
            return Err(refused(format!(
                "somebody else has changed the files at the same time: revision {active} is active"
            )));
        }
        let restored = disk.restore(&store, &policies, &self.renaming);
        restored.map_err(|error| {
            refused(format!(
                "the files were not loaded, and the old ones cannot be restored: {error}"
            ))
        })?;
        match outcome {
            ReloadOutcome::Refused(problems) => Err(PolicyChangeError::Invalid(problems)),
            ReloadOutcome::Loaded { .. } | ReloadOutcome::Unchanged | ReloadOutcome::NoSource => {
                Err(refused(
                    "the files were changed at the same time, and are restored; try again",
                ))
            }
        }
    }

    /// Ends the pending replacement, whose outcome is the active policy. Returns warnings: what fails is tried again by the next
    /// reload.
    fn conclude_replacement(&self, store: &PolicyStore) -> Vec<Problem> {
        let active = self.active_policy.load();
        if let Err(error) = history::conclude_replacement(store, active.policy.revision()) {
            let message = format!(
                "the change is not recorded, and if it is a promotion, the shadow policy is not cleared: {error}; the next \
                 reload tries again"
            );
            return vec![change_warning("store.path", &message)];
        }
        if active.has_assigned_shadow() && store.shadow().is_none() {
            return self.use_configured_shadow();
        }
        Vec::new()
    }

    /// Remembers if a replacement could not be ended, for the next reload.
    fn note_pending_replacement(&self, store: &PolicyStore) {
        let is_pending = !matches!(store.pending_replacement(), Ok(None));
        self.is_replacement_pending
            .store(is_pending, Ordering::Relaxed);
    }

    /// Makes the files those of one policy, before a reload reads them, if a replacement could not be ended. Blocks.
    pub(super) fn recover_files(&self) -> Result<(), Vec<Problem>> {
        let (Ok(store), PolicyOrigin::Path(path)) = (&self.store, &self.settings.origin) else {
            return Ok(());
        };
        if !self.is_replacement_pending.load(Ordering::Relaxed) {
            return Ok(());
        }
        let recovered = policy_replacement::recover(store, path).map_err(|error| {
            let message = format!(
                "its replacement was interrupted, and the old files cannot be restored: {error}. Put the right files there, and \
                 remove policies/replacement.json below store.path"
            );
            vec![file_problem(path, message)]
        })?;
        if let Some(message) = recovered.and_then(|recovered| recovered.message()) {
            tracing::warn!("{message}");
        }
        Ok(())
    }

    /// Recovers the files and ends a replacement that could not be ended before, whose record the next one would overwrite.
    fn settle_pending_replacement(&self) -> Result<(), PolicyChangeError> {
        let renaming = self.renaming.lock();
        self.recover_files().map_err(PolicyChangeError::Invalid)?;
        drop(renaming);
        self.retry_conclusion();
        Ok(())
    }

    /// Ends a replacement that could not be ended before, of which the files are known to be those of one policy. Blocks.
    pub(super) fn retry_conclusion(&self) {
        // Only the policy that was replaced can show how the replacement ended.
        if let (Ok(store), PolicyOrigin::Path(_)) = (&self.store, &self.settings.origin)
            && self.is_replacement_pending.load(Ordering::Relaxed)
        {
            self.conclude_replacement(store);
            self.note_pending_replacement(store);
        }
    }
}

/// Returns the files of the active policy, which are restored if writing fails: the copy in the store, or the files on
/// disk, of which a copy is then made.
fn active_files(
    store: &PolicyStore,
    disk: &PolicyOnDisk,
    revision: &str,
    loaded: &PolicyFileDigests,
) -> Result<PolicyFileSet, PolicyChangeError> {
    let is_active = |files: &PolicyFileSet| files.digests() == *loaded;
    if let Ok(Some(kept)) = store.load(revision)
        && is_active(&kept)
    {
        return Ok(kept);
    }
    let Some(present) = disk.present_files().filter(is_active) else {
        return Err(refused(
            "store.path has no copy of the active policy, and its files have changed or are too large to be kept: run \
             `crawlgate reload`, and try again",
        ));
    };
    store.keep(revision, &present).map_err(|error| {
        refused(format!(
            "store.path cannot be written: {error}; nothing was changed"
        ))
    })?;
    Ok(present)
}

/// Returns the files of a policy that is kept.
fn load_files(store: &PolicyStore, revision: &str) -> Result<PolicyFileSet, PolicyChangeError> {
    match store.load(revision) {
        Ok(Some(files)) => Ok(files),
        Ok(None) => Err(refused(format!(
            "the files of revision {revision} are not kept: they were larger than {} MiB, could not be written to \
             store.path, or are too old; `crawlgate policy history` lists those that are",
            PolicyFileSet::MAX_BYTES >> 20
        ))),
        Err(error) => Err(refused(format!(
            "the files of revision {revision} in store.path cannot be read: {error}"
        ))),
    }
}

fn too_large() -> String {
    format!(
        "the files of the policy are larger than {} MiB: replace them with your own tools, and run `crawlgate reload`",
        PolicyFileSet::MAX_BYTES >> 20
    )
}

fn new_report(policy: &Policy, before: Option<&str>, warnings: Vec<Problem>) -> PolicyChangeReport {
    PolicyChangeReport {
        name: policy.name().to_owned(),
        revision: policy.revision().to_owned(),
        previous_revision: before.map(str::to_owned),
        warnings,
        written_files: Vec::new(),
    }
}

/// Logs and returns a warning about a change that was made, and the setting that it concerns.
fn change_warning(setting: &str, message: &str) -> Problem {
    tracing::warn!("{setting}: {message}");
    Problem::warning(&SourceLocation::for_file(&setting.into()), message)
}

fn refused(message: impl Into<String>) -> PolicyChangeError {
    PolicyChangeError::Refused(message.into())
}

fn log_change(done: &str, cause: &ChangeCause, result: &PolicyChangeResult) {
    let user = cause.author.user.as_deref().unwrap_or("-");
    let address = cause.author.address.as_deref().unwrap_or("-");
    let reason = cause.reason.as_deref().unwrap_or("-");
    match result {
        Ok(report) => {
            let PolicyChangeReport { name, revision, .. } = report;
            tracing::warn!(user, address, reason, "policy {name}@{revision} {done}");
        }
        Err(PolicyChangeError::Refused(error)) => {
            tracing::warn!(
                user,
                address,
                reason,
                "a change of the policy was refused: {error}"
            );
        }
        Err(PolicyChangeError::Invalid(_)) => {
            tracing::warn!(
                user,
                address,
                reason,
                "a change of the policy was refused: it has errors"
            );
        }
    }
}
