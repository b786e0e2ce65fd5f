//! The record of policies that came in force, and the shadow policy that was set in an earlier run.

use std::io;
use std::sync::Arc;

use crate::clock::Clock;
use crate::config::policy;
use crate::config::settings::Settings;
use crate::io_advice::IoAdvice;
use crate::pipeline::reload::{ReloadOutcome, ReloadTrigger};
use crate::policy::Policy;
use crate::policy::source::PolicyFileSet;
use crate::store::policies::{
    ActivationCause, ChangeAuthor, PolicyActivation, PolicyStore, ShadowAssignment,
};

use super::{LoadedPolicy, PolicyFileReloader};

/// The policies that are kept, or the reason why none are, in words for the operator.
pub(in crate::server) type PolicyStoreAccess = Result<Arc<PolicyStore>, Arc<str>>;

/// Opens the policies below `store.path`.
pub(super) fn open_store(settings: &Settings) -> PolicyStoreAccess {
    let Some(path) = &settings.store.path else {
        return Err(
            "this proxy keeps no policies: set store.path in the configuration, and restart it"
                .into(),
        );
    };
    PolicyStore::open(path).map(Arc::new).map_err(|error| {
        tracing::error!("{error}");
        error.into()
    })
}

/// Records the policy at the start of the proxy, unless it was in force before.
pub(super) fn record_start(store: &PolicyStoreAccess, loaded: &LoadedPolicy, clock: &Clock) {
    let Ok(open) = store else { return };
    let (name, revision) = (loaded.policy.name(), loaded.policy.revision());
    conclude_replacement(open, revision).unwrap_or_else(|error| warn_not_recorded(open, &error));
    let last = open.activations().pop();
    if last.is_some_and(|last| last.revision == revision) {
        let kept = loaded
            .files
            .as_ref()
            .map_or(Ok(()), |files| open.keep(revision, files));
        return kept.unwrap_or_else(|error| warn_not_recorded(open, &error));
    }
    let activation =
        PolicyActivation::new(name, revision, clock.wall_time(), ActivationCause::Start);
    record(store, activation, loaded.files.as_ref());
}

/// Ends a replacement that was interrupted: if its next policy is in force, records who activated it, and clears its shadow
/// policy. Blocks.
pub(super) fn conclude_replacement(store: &PolicyStore, active: &str) -> io::Result<()> {
    let Some(pending) = store.pending_replacement()? else {
        return Ok(());
    };
    if pending.next == active {
        store.record_replacement(&pending)?;
    }
    store.end_replacement()
}

/// Records a policy that came in force, and keeps its files. A failure does not affect the policy. Blocks.
pub(super) fn record(
    store: &PolicyStoreAccess,
    activation: PolicyActivation,
    files: Option<&PolicyFileSet>,
) {
    let Ok(store) = store else { return };
    let kept = files.map_or(Ok(()), |files| store.keep(&activation.revision, files));
    if let Err(error) = kept.and_then(|()| store.record_activation(activation)) {
        warn_not_recorded(store, &error);
    }
}

fn warn_not_recorded(store: &PolicyStore, error: &io::Error) {
    // Other errors are those of a file in it.
    let concerns_directory = matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
    );
    let cause = if concerns_directory {
        IoAdvice::new(store.directory(), error).to_string()
    } else {
        error.to_string()
    };
    tracing::warn!(
        "the policy is active, but cannot be recorded in {} (store.path) for `crawlgate policy history`: {cause}",
        store.directory().display(),
    );
}

/// Returns the shadow policy that was set in an earlier run.
pub(super) fn restore_shadow(store: &PolicyStoreAccess) -> Option<(Policy, ShadowAssignment)> {
    let store = store.as_ref().ok()?;
    let assignment = store.shadow()?;
    match load_kept(store, &assignment.revision) {
        Ok(policy) => Some((policy, assignment)),
        Err(error) => {
            tracing::error!(
                "the shadow policy {}@{} that was set cannot be used: {error}; set it again, or run `crawlgate shadow clear`",
                assignment.name,
                assignment.revision
            );
            None
        }
    }
}

fn load_kept(store: &PolicyStore, revision: &str) -> Result<Policy, String> {
    let files = store.load(revision).map_err(|error| error.to_string())?;
    let files = files.ok_or("its files are missing in store.path")?;
    let compiled = policy::open_set_and_test(&files, None).map_err(|problems| {
        problems
            .first()
            .map_or(String::new(), |problem| problem.render())
    })?;
    if compiled.policy.revision() == revision {
        Ok(compiled.policy)
    } else {
        Err("its files in store.path have been changed".to_owned())
    }
}

impl PolicyFileReloader {
    /// Returns the record of a policy that came in force, if one did: with its author, if one activated it.
    pub(super) fn new_activation(
        &self,
        trigger: ReloadTrigger,
        outcome: &ReloadOutcome,
    ) -> Option<PolicyActivation> {
        match outcome {
            ReloadOutcome::Loaded { .. } => {}
            ReloadOutcome::Unchanged | ReloadOutcome::NoSource | ReloadOutcome::Refused(_) => {
                return None;
            }
        }
        let active = self.active_policy.load();
        let (name, revision) = (active.policy.name(), active.policy.revision());
        let expected = self.expected.lock().take();
        if let Some(expected) = expected.filter(|expected| expected.revision == revision) {
            return Some(expected);
        }
        let at = self.clock.wall_time();
        let reason = match trigger {
            ReloadTrigger::Signal => "SIGHUP",
            ReloadTrigger::Files => "the files have changed",
            ReloadTrigger::Api => "requested",
        };
        let activation = PolicyActivation::new(name, revision, at, ActivationCause::Reload);
        Some(activation.with_author(ChangeAuthor::default(), Some(reason.to_owned())))
    }
}
