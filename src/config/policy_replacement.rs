//! Replaces the files of the policy that `policy.path` names by those of another policy: all of them or none.
//!
//! The replacement is recorded in the store, then all files are written under temporary names, and renamed: lists before the
//! files that use them. If a rename fails, the old files are restored; [`recover`] does that after a crash. The caller's lock is held
//! while files are renamed, so that nobody reads a mixture, and not while the store is written, so that nobody waits for its
//! disk.
//! Only files of the active policy are replaced, and only if they are as it was loaded. Those that have the new content already,
//! since another tool has deployed them, stay.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::io_advice::{self, StoreDirectoryError};
use crate::policy::source::{PolicyFileDigests, PolicyFileSet};
use crate::store::policies::{PolicyReplacement, PolicyStore};
use crate::store::policy_lock::PolicyStoreLock;
use crate::store::staged_file::{PRIVATE_MODE, StagedFile, remove_if_exists, remove_temporary};
use crate::store::sync_directory;

use super::policy::read_present_files;
use super::timed_read::{READ_TIMEOUT, ReadPurpose, run_with_timeout};

/// The advice if the files cannot be written.
const CURE: &str = "make it writable for the proxy's user, or replace the files with your own tools and run \
                    `crawlgate reload`";

/// The two policies of a replacement.
#[derive(Clone, Debug)]
pub struct ReplacedPolicies {
    /// The files of the active policy, as they are kept.
    pub previous: PolicyFileSet,
    /// The files to write.
    pub next: PolicyFileSet,
    /// The revisions of both, and the records of the change.
    pub record: PolicyReplacement,
}

/// The files that a replacement has written.
#[derive(Clone, Debug, Default)]
pub struct ReplacedFiles {
    /// Their paths, relative to the policy's directory.
    pub written: Vec<String>,
    /// The changes besides their content, in words for the operator.
    pub warnings: Vec<String>,
}

/// A file of the next policy under its temporary name.
#[derive(Debug)]
struct StagedPolicyFile {
    /// The path relative to the policy's directory.
    path: String,
    file: StagedFile,
    /// The loss of its owner, if there is one.
    warning: Option<String>,
}

/// The files of the policy on disk.
#[derive(Clone, Debug)]
pub struct PolicyOnDisk {
    /// `policy.path`.
    path: PathBuf,
    /// The policy's directory, without symbolic links.
    directory: PathBuf,
    is_directory: bool,
}

impl PolicyOnDisk {
    /// Finds the policy that `policy.path` names.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn find(path: &Path) -> Result<Self, String> {
        let is_directory = path.is_dir();
        let directory = match path.parent() {
            _ if is_directory => path,
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            Some(_) | None => Path::new("."),
        };
        let directory = directory
            .canonicalize()
            .map_err(|error| format!("policy.path {}: {error}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            directory,
            is_directory,
        })
    }

    /// Returns the files as they would be called here: a policy file gets the name of the one at `policy.path`.
    ///
    /// # Errors
    /// If one policy is a file and the other one a directory.
    pub fn adapt(&self, files: PolicyFileSet) -> Result<PolicyFileSet, String> {
        match (self.is_directory, files.entry()) {
            (true, None) => Ok(files),
            (true, Some(_)) => Err(format!(
                "policy.path names a directory, {}, and the other policy is a file: make it a directory of `*.yaml` files, too",
                self.path.display()
            )),
            (false, None) => Err(format!(
                "policy.path names a file, {}, and the other policy is a directory: make it one file, too",
                self.path.display()
            )),
            (false, Some(_)) => files
                .with_entry_name(&self.file_name()?)
                .map_err(|error| error.to_string()),
        }
    }

    fn file_name(&self) -> Result<String, String> {
        let name = self.path.file_name().and_then(|name| name.to_str());
        name.map(str::to_owned)
            .ok_or_else(|| format!("policy.path {} is not UTF-8", self.path.display()))
    }

    /// Writes the files of a policy in place of those of the active one. The replacement stays pending, until it is ended or
    /// [`Self::restore`]d. `renaming` is locked while files are renamed. Blocks.
    ///
    /// # Errors
    /// If the files have changed since the active policy was loaded, or cannot be written. They are unchanged then.
    pub fn replace(
        &self,
        store: &PolicyStore,
        loaded: &PolicyFileDigests,
        policies: &ReplacedPolicies,
        renaming: &Mutex<()>,
    ) -> Result<ReplacedFiles, String> {
        self.check_unchanged(loaded, &policies.next)?;
        let staged = match self.prepare(store, loaded, policies) {
            Ok(staged) => staged,
            Err(error) => {
                self.remove_leftovers(Some(&policies.previous), Some(&policies.next));
                // If this fails, the caller tries again later: the files are as before.
                let _ = store.end_replacement();
                return Err(error);
            }
        };
        let mut replaced = ReplacedFiles::default();
        let mut files = Vec::with_capacity(staged.len());
        for StagedPolicyFile {
            path,
            file,
            warning,
        } in staged
        {
            replaced.written.push(path);
            replaced.warnings.extend(warning);
            files.push(file);
        }
        let renaming = renaming.lock();
        let Err(error) = self.commit(files.into_iter(), policies) else {
            return Ok(replaced);
        };
        let edited = self.put_back(policies);
        drop(renaming);
        Err(match end_restored(store, edited) {
            Ok(()) => format!("{error}; the old files are restored"),
            Err(restore) => format!("{error}; and the old files cannot be restored: {restore}"),
        })
    }

    /// Records the replacement, and writes the files that differ under temporary names: lists first, the policy's own files
    /// last.
    fn prepare(
        &self,
        store: &PolicyStore,
        loaded: &PolicyFileDigests,
        policies: &ReplacedPolicies,
    ) -> Result<Vec<StagedPolicyFile>, String> {
        // First, so that what a crash leaves is found.
        store
            .begin_replacement(&policies.record)
            .and_then(|()| store.keep(&policies.record.next, &policies.next))
            .map_err(|error| {
                format!("store.path cannot be written: {error}; nothing was changed")
            })?;
        let mut staged = Vec::new();
        for (path, bytes) in policies.next.iter() {
            if policies.previous.get(path) != Some(bytes)
                && let Some(file) = self.stage(path, bytes, loaded, store)?
            {
                staged.push(file);
            }
        }
        staged.sort_by_key(|file| self.is_document(&file.path, &policies.next));
        // Writing takes time, in which somebody may have saved a file.
        self.check_unchanged(loaded, &policies.next)?;
        Ok(staged)
    }

    /// Puts the old files back, and ends the replacement. Blocks.
    ///
    /// # Errors
    /// If they cannot be written. The replacement then stays pending, and the next start tries again. Or if somebody has
    /// written a file in the meantime: then all files are left as they are, and the replacement has ended.
    pub fn restore(
        &self,
        store: &PolicyStore,
        policies: &ReplacedPolicies,
        renaming: &Mutex<()>,
    ) -> Result<(), String> {
        let renaming = renaming.lock();
        let edited = self.put_back(policies);
        drop(renaming);
        end_restored(store, edited)
    }

    /// Puts the old files back, unless somebody has written a file in the meantime, which is returned.
    fn put_back<'a>(&self, policies: &'a ReplacedPolicies) -> io::Result<Option<&'a str>> {
        let (previous, next) = (&policies.previous, &policies.next);
        if let Some(path) = self.find_edited(previous, next) {
            return Ok(Some(path));
        }
        self.write_back(previous, next)?;
        self.remove_leftovers(Some(previous), Some(next));
        Ok(None)
    }

    /// Returns the files of the policy as they are on disk; `None` if they are no valid policy. Blocks.
    pub fn present_files(&self) -> Option<PolicyFileSet> {
        read_present_files(&self.path)
    }

    /// Checks that each file is as it was loaded, or has its new content already.
    fn check_unchanged(
        &self,
        loaded: &PolicyFileDigests,
        next: &PolicyFileSet,
    ) -> Result<(), String> {
        let present = self.present_files().map(|files| files.digests());
        let next = next.digests();
        let changed = match &present {
            Some(present) => present.first_difference(loaded, &next),
            None => Some("a file of the policy"),
        };
        match changed {
            None => Ok(()),
            Some(file) => Err(format!(
                "{file} in {} has changed since the active policy was loaded, and would be lost: run `crawlgate reload`, or \
                 restore the file, and try again",
                self.directory.display()
            )),
        }
    }

    /// Writes a file under a temporary name; `None` if it has this content already.
    fn stage(
        &self,
        path: &str,
        bytes: &[u8],
        loaded: &PolicyFileDigests,
        store: &PolicyStore,
    ) -> Result<Option<StagedPolicyFile>, String> {
        let target = self.plain_path(path)?;
        let failed = |error: &dyn std::fmt::Display| {
            format!(
                "{} cannot be written: {error}; {CURE}. Nothing was changed",
                target.display()
            )
        };
        let existing = match fs::symlink_metadata(&target) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(&error)),
        };
        if let Some(metadata) = &existing {
            if !metadata.is_file() {
                return Err(failed(&"it is not a regular file"));
            }
            let present = fs::read(&target).map_err(|error| failed(&error))?;
            if present == bytes {
                return Ok(None);
            }
            if !loaded.contains(path) {
                // A list that an earlier policy used may be left over.
                if !store.has_kept_file(path, &present) {
                    return Err(failed(
                        &"it is not part of a policy that was in force, and is not overwritten",
                    ));
                }
            }
            if metadata.permissions().readonly() {
                return Err(failed(&"it is read-only"));
            }
            // The rename would also replace a file that its owner has closed to the proxy.
            fs::OpenOptions::new()
                .write(true)
                .open(&target)
                .map_err(|error| failed(&error))?;
        } else if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(|error| failed(&error))?;
        }
        let mode = existing.as_ref().map_or(PRIVATE_MODE, |metadata| {
            metadata.permissions().mode() & 0o777
        });
        let file = StagedFile::write(&target, bytes, mode).map_err(|error| failed(&error))?;
        let warning = existing.and_then(|existing| keep_owner(&file, &existing));
        Ok(Some(StagedPolicyFile {
            path: path.to_owned(),
            file,
            warning,
        }))
    }

    /// Returns the path of a file of the policy, if no symbolic link is on it.
    fn plain_path(&self, path: &str) -> Result<PathBuf, String> {
        let mut plain = self.directory.clone();
        for name in path.split('/') {
            plain.push(name);
            if fs::symlink_metadata(&plain).is_ok_and(|metadata| metadata.is_symlink()) {
                return Err(format!(
                    "{} is a symbolic link, and only files inside the policy's directory are replaced: replace its target with \
                     your own tools, and run `crawlgate reload`",
                    plain.display()
                ));
            }
        }
        Ok(plain)
    }

    fn commit(
        &self,
        staged: impl Iterator<Item = StagedFile>,
        policies: &ReplacedPolicies,
    ) -> Result<(), String> {
        for file in staged {
            let target = file.target().display().to_string();
            file.commit()
                .map_err(|error| format!("{target} cannot be replaced: {error}"))?;
        }
        self.remove_documents(&policies.previous, &policies.next)
            .map_err(|error| {
                format!("a file that is no longer part of the policy cannot be removed: {error}")
            })
    }

    /// Returns `true` for a file that is part of the policy without being named: the policy file, or a `*.yaml` file of
    /// its directory.
    fn is_document(&self, path: &str, files: &PolicyFileSet) -> bool {
        match files.entry() {
            Some(entry) => path == entry,
            None => self.is_directory && !path.contains('/') && path.ends_with(".yaml"),
        }
    }

    /// Removes the `*.yaml` files that only the old policy has; otherwise they would be part of the new one.
    fn remove_documents(&self, old: &PolicyFileSet, new: &PolicyFileSet) -> io::Result<()> {
        for (path, bytes) in old.iter() {
            let target = self.directory.join(path);
            let is_removed = new.get(path).is_none() && self.is_document(path, old);
            if is_removed && fs::read(&target).is_ok_and(|present| present == bytes) {
                remove_if_exists(&target)?;
                sync_directory(&target)?;
            }
        }
        Ok(())
    }

    /// Writes the files of a policy that differ on disk, and removes those that only the other one has.
    fn write_back(&self, policy: &PolicyFileSet, other: &PolicyFileSet) -> io::Result<()> {
        for (path, bytes) in policy.iter() {
            let target = self.plain_path(path).map_err(io::Error::other)?;
            if fs::read(&target).is_ok_and(|present| present == bytes) {
                continue;
            }
            let existing = fs::metadata(&target).ok();
            let mode = existing.as_ref().map_or(PRIVATE_MODE, |metadata| {
                metadata.permissions().mode() & 0o777
            });
            let file = StagedFile::write(&target, bytes, mode)?;
            if let Some(existing) = existing {
                keep_owner(&file, &existing);
            }
            file.commit()?;
        }
        self.remove_documents(other, policy)
    }

    /// Makes the files those of one policy. If they are already, the copy of the other one is not needed.
    fn recover(
        &self,
        previous: &Result<PolicyFileSet, String>,
        next: &Result<PolicyFileSet, String>,
    ) -> Result<InterruptedFiles, String> {
        let present = self.present_files().map(|files| files.digests());
        let is_present = |kept: &Result<PolicyFileSet, String>| {
            kept.as_ref().ok().map(PolicyFileSet::digests) == present && present.is_some()
        };
        if is_present(next) {
            return Ok(InterruptedFiles::Next);
        }
        if is_present(previous) {
            return Ok(InterruptedFiles::Previous);
        }
        let (previous, next) = (
            previous.as_ref().map_err(String::clone)?,
            next.as_ref().map_err(String::clone)?,
        );
        if self.find_edited(previous, next).is_some() {
            return Ok(InterruptedFiles::Edited);
        }
        self.write_back(previous, next)
            .map_err(|error| error.to_string())?;
        Ok(InterruptedFiles::Restored)
    }

    /// Removes the temporary files of a replacement, and the directories that it has made for lists of the other policy. A
    /// failure leaves nothing but those.
    fn remove_leftovers(&self, present: Option<&PolicyFileSet>, other: Option<&PolicyFileSet>) {
        let files = [present, other].into_iter().flatten();
        for (path, _) in files.flat_map(PolicyFileSet::iter) {
            if let Ok(target) = self.plain_path(path) {
                let _ = remove_temporary(&target);
            }
        }
        for (path, _) in other.into_iter().flat_map(PolicyFileSet::iter) {
            let parents = Path::new(path).ancestors().skip(1);
            for parent in parents.filter(|parent| !parent.as_os_str().is_empty()) {
                // Fails for a directory that is not empty, and for a symbolic link.
                let _ = fs::remove_dir(self.directory.join(parent));
            }
        }
    }

    /// Returns the first file that neither policy has so.
    fn find_edited<'a>(
        &self,
        previous: &'a PolicyFileSet,
        next: &'a PolicyFileSet,
    ) -> Option<&'a str> {
        let mut paths = previous.iter().chain(next.iter()).map(|(path, _)| path);
        paths.find(|path| {
            let present = fs::read(self.directory.join(path)).ok();
            ![previous.get(path), next.get(path)].contains(&present.as_deref())
        })
    }
}

/// Ends a replacement after [`PolicyOnDisk::put_back`].
fn end_restored(store: &PolicyStore, edited: io::Result<Option<&str>>) -> Result<(), String> {
    let edited = edited.map_err(|error| error.to_string())?;
    store.end_replacement().map_err(|error| error.to_string())?;
    match edited {
        None => Ok(()),
        Some(path) => Err(format!(
            "{path} was changed at the same time, so all files are left as they are"
        )),
    }
}

/// The user and the group of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileOwner {
    user: u32,
    group: u32,
}

impl From<&fs::Metadata> for FileOwner {
    fn from(metadata: &fs::Metadata) -> Self {
        Self {
            user: metadata.uid(),
            group: metadata.gid(),
        }
    }
}

impl FileOwner {
    /// Changes the owner of a file from this one, as far as the process may: only a privileged one may set the user, and others a
    /// group of their own. Returns the new owner.
    fn change_to(
        self,
        wanted: Self,
        mut change: impl FnMut(Option<u32>, Option<u32>) -> io::Result<()>,
    ) -> Self {
        let mut owner = self;
        if owner.group != wanted.group && change(None, Some(wanted.group)).is_ok() {
            owner.group = wanted.group;
        }
        if owner.user != wanted.user && change(Some(wanted.user), None).is_ok() {
            owner.user = wanted.user;
        }
        owner
    }
}

/// Gives a file the owner of the one that it will replace. Returns a warning if others may lose access: if its group is lost.
fn keep_owner(file: &StagedFile, existing: &fs::Metadata) -> Option<String> {
    let path = file.temporary();
    let wanted = FileOwner::from(existing);
    let owner = FileOwner::from(&fs::metadata(path).ok()?)
        .change_to(wanted, |user, group| chown(path, user, group));
    (owner.group != wanted.group).then(|| {
        format!(
            "it belonged to user {} and group {}, and belongs to user {} and group {} now, since the proxy may not set these: those \
             who have edited it may have lost access. Make the proxy's user a member of the group to keep it",
            wanted.user, wanted.group, owner.user, owner.group
        )
    })
}

/// The files of the policy after a replacement that was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterruptedFiles {
    /// They are those before the replacement.
    Previous,
    /// They are those after it.
    Next,
    /// Some were old and others new: the old ones are restored.
    Restored,
    /// Somebody has written a file since: they are left as they are.
    Edited,
}

/// A replacement that was interrupted, and the files after its recovery.
#[derive(Clone, Debug)]
pub struct RecoveredReplacement {
    pub record: PolicyReplacement,
    pub files: InterruptedFiles,
}

impl RecoveredReplacement {
    /// Returns what was done, in words for the operator; `None` if nothing was.
    pub fn message(&self) -> Option<String> {
        let PolicyReplacement { previous, next, .. } = &self.record;
        let outcome = match self.files {
            InterruptedFiles::Previous | InterruptedFiles::Next => return None,
            InterruptedFiles::Restored => format!(": the files of {previous} are restored"),
            InterruptedFiles::Edited => {
                ", and the files have been changed since: they are used as they are".to_owned()
            }
        };
        Some(format!(
            "the replacement of policy revision {previous} by {next} was interrupted{outcome}"
        ))
    }
}

/// The policies of a store, taken over at the start of a proxy.
#[derive(Debug)]
pub struct StoreTakeover {
    /// Held while the proxy runs; `None` if another process has it, or the file system has no locks.
    pub lock: Option<PolicyStoreLock>,
    /// Set if another process has the policies.
    pub is_shared: bool,
    pub recovered: Option<RecoveredReplacement>,
}

/// The reason why the policies of a store cannot be taken over.
#[derive(Debug)]
pub enum StoreTakeoverError {
    /// Another process is replacing the files of the policy.
    InUse,
    /// The record of a replacement cannot be read, for this reason.
    Unreadable(String),
    /// The files cannot be recovered, for this reason.
    Unrecoverable(String),
}

/// Checks at the start of the proxy that the directory of the store can be read. A disk that does not answer is reported by
/// what reads the store next. Blocks.
///
/// # Errors
/// If the path cannot be a directory, or may not be entered.
pub(crate) fn check_store(store: &Path) -> Result<(), StoreDirectoryError> {
    let store = store.to_owned();
    let checked = run_with_timeout(READ_TIMEOUT, ReadPurpose::Load, move || {
        io_advice::check_directory(&store)
    });
    checked.unwrap_or(Ok(()))
}

/// Locks the policies of a store at the start of the proxy, and [`recover`]s the files before the policy is read. Blocks.
///
/// # Errors
/// If another process is replacing the files, or they cannot be recovered.
pub fn take_over(store: &Path, policy: &Path) -> Result<StoreTakeover, StoreTakeoverError> {
    let (store, policy) = (store.to_owned(), policy.to_owned());
    let taken_over = run_with_timeout(READ_TIMEOUT, ReadPurpose::Load, move || {
        take_over_now(&store, &policy)
    });
    taken_over.unwrap_or_else(|error| Err(StoreTakeoverError::Unreadable(error.to_string())))
}

fn take_over_now(directory: &Path, policy: &Path) -> Result<StoreTakeover, StoreTakeoverError> {
    let store = PolicyStore::without_history(directory);
    let lock = PolicyStoreLock::acquire(directory);
    let is_shared = matches!(lock, Ok(None));
    if is_shared {
        return match store.pending_replacement() {
            Ok(None) => Ok(StoreTakeover {
                lock: None,
                is_shared,
                recovered: None,
            }),
            Ok(Some(_)) | Err(_) => Err(StoreTakeoverError::InUse),
        };
    }
    let pending = store
        .pending_replacement()
        .map_err(|error| StoreTakeoverError::Unreadable(store.unreadable_replacement(&error)))?;
    let recovered = pending
        .map(|record| recover_pending(&store, record, policy))
        .transpose()
        .map_err(StoreTakeoverError::Unrecoverable)?;
    Ok(StoreTakeover {
        recovered,
        // Where nothing can be locked, nothing is known of other processes.
        lock: lock.ok().flatten(),
        is_shared,
    })
}

/// Makes the files those of one policy after a replacement that was interrupted, before they are read: if only some are
/// replaced, the old ones are restored. The replacement stays pending, until the policy is in force that the files have.
/// Returns `None` if no replacement is pending. Blocks.
///
/// # Errors
/// If that is impossible.
pub fn recover(
    store: &Arc<PolicyStore>,
    policy: &Path,
) -> Result<Option<RecoveredReplacement>, String> {
    let (store, policy) = (Arc::clone(store), policy.to_owned());
    run_with_timeout(READ_TIMEOUT, ReadPurpose::Load, move || {
        let pending = store.pending_replacement();
        let pending = pending.map_err(|error| store.unreadable_replacement(&error))?;
        pending
            .map(|record| recover_pending(&store, record, &policy))
            .transpose()
    })
    .map_err(|error| error.to_string())?
}

fn recover_pending(
    store: &PolicyStore,
    record: PolicyReplacement,
    policy: &Path,
) -> Result<RecoveredReplacement, String> {
    let disk = PolicyOnDisk::find(policy)?;
    let previous = load_kept(store, &record.previous);
    let next = load_kept(store, &record.next);
    let files = disk.recover(&previous, &next)?;
    let (previous, next) = (previous.ok(), next.ok());
    match files {
        InterruptedFiles::Next | InterruptedFiles::Edited => {
            disk.remove_leftovers(previous.as_ref(), None);
            disk.remove_leftovers(next.as_ref(), None);
        }
        InterruptedFiles::Previous | InterruptedFiles::Restored => {
            disk.remove_leftovers(previous.as_ref(), next.as_ref());
        }
    }
    Ok(RecoveredReplacement { record, files })
}

fn load_kept(store: &PolicyStore, revision: &str) -> Result<PolicyFileSet, String> {
    match store.load(revision) {
        Ok(Some(files)) => Ok(files),
        Ok(None) => Err(format!("the files of revision {revision} are missing")),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "policy: 1\nname: p\noptions: { disposition: allow }\nlists: { l: { kind: hosts, file: l.txt } }\n\
                        rules: [{ id: r, forbid: { host: { in: l } } }]\n";

    fn policy(list: &str, more: &str) -> PolicyFileSet {
        let files = [
            ("p.yaml", format!("{ROOT}{more}")),
            ("l.txt", list.to_owned()),
        ];
        let files = files.map(|(path, text)| (path.to_owned(), text.into_bytes()));
        PolicyFileSet::new(Some("p.yaml".to_owned()), files.into()).unwrap()
    }

    struct ReplacementBench {
        root: PathBuf,
        store: PolicyStore,
        policies: ReplacedPolicies,
    }

    impl ReplacementBench {
        fn new(name: &str) -> Self {
            let root =
                std::env::temp_dir().join(format!("replacement-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            fs::create_dir_all(root.join("policy")).unwrap();
            let policies = ReplacedPolicies {
                previous: policy("a.example\n", ""),
                next: policy("b.example\n", "# next\n"),
                record: PolicyReplacement {
                    previous: "00000001".to_owned(),
                    next: "00000002".to_owned(),
                    activation: None,
                    cleared_shadow: None,
                },
            };
            for (path, bytes) in policies.previous.iter() {
                fs::write(root.join("policy").join(path), bytes).unwrap();
            }
            let store = PolicyStore::open(&root.join("store")).unwrap();
            Self {
                root,
                store,
                policies,
            }
        }

        fn disk(&self) -> PolicyOnDisk {
            PolicyOnDisk::find(&self.root.join("policy/p.yaml")).unwrap()
        }

        fn present(&self) -> Option<PolicyFileSet> {
            read_present_files(&self.root.join("policy/p.yaml"))
        }
    }

    impl Drop for ReplacementBench {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.root);
        }
    }

    #[test]
    fn lists_are_replaced_before_the_policy_and_the_change_is_pending_until_it_ends() {
        let bench = ReplacementBench::new("order");
        let loaded = bench.policies.previous.digests();
        let written =
            bench
                .disk()
                .replace(&bench.store, &loaded, &bench.policies, &Mutex::default());
        assert_eq!(written.unwrap().written, ["l.txt", "p.yaml"]);
        assert_eq!(bench.present(), Some(bench.policies.next.clone()));
        assert!(bench.store.pending_replacement().unwrap().is_some());
        bench
            .disk()
            .restore(&bench.store, &bench.policies, &Mutex::default())
            .unwrap();
        assert_eq!(bench.present(), Some(bench.policies.previous.clone()));
        assert_eq!(bench.store.pending_replacement().unwrap(), None);
    }

    #[test]
    fn a_failure_in_the_middle_leaves_the_old_files() {
        let bench = ReplacementBench::new("middle");
        let disk = bench.disk();
        let loaded = bench.policies.previous.digests();
        let staged = ["l.txt", "p.yaml"].map(|path| {
            let bytes = bench.policies.next.get(path).unwrap();
            let staged = disk.stage(path, bytes, &loaded, &bench.store);
            staged.unwrap().unwrap().file
        });
        bench
            .store
            .begin_replacement(&bench.policies.record)
            .unwrap();
        // Somebody removes the second file before it is renamed.
        fs::remove_file(staged[1].temporary()).unwrap();
        let error = disk
            .commit(staged.into_iter(), &bench.policies)
            .unwrap_err();
        assert!(error.contains("p.yaml cannot be replaced"), "{error}");
        assert_ne!(bench.present(), Some(bench.policies.previous.clone()));
        disk.restore(&bench.store, &bench.policies, &Mutex::default())
            .unwrap();
        assert_eq!(bench.present(), Some(bench.policies.previous.clone()));
    }

    #[test]
    fn user_and_group_are_kept_separately() {
        let (own, wanted) = (
            FileOwner { user: 7, group: 7 },
            FileOwner { user: 1, group: 2 },
        );
        for (may_set_user, may_set_group) in
            [(true, true), (false, true), (true, false), (false, false)]
        {
            let owner = own.change_to(wanted, |user, group| {
                let is_allowed =
                    user.is_none_or(|_| may_set_user) && group.is_none_or(|_| may_set_group);
                is_allowed
                    .then_some(())
                    .ok_or(io::ErrorKind::PermissionDenied.into())
            });
            let expected = FileOwner {
                user: if may_set_user { 1 } else { 7 },
                group: if may_set_group { 2 } else { 7 },
            };
            assert_eq!(owner, expected);
        }
        let same = own.change_to(own, |_, _| panic!("nothing to change"));
        assert_eq!(same, own);
    }

    #[test]
    fn a_file_that_somebody_saved_is_not_overwritten() {
        let bench = ReplacementBench::new("saved");
        let disk = bench.disk();
        let loaded = bench.policies.previous.digests();
        disk.replace(&bench.store, &loaded, &bench.policies, &Mutex::default())
            .unwrap();
        let edited = bench.root.join("policy/p.yaml");
        fs::write(&edited, "an edit").unwrap();
        let error = disk
            .restore(&bench.store, &bench.policies, &Mutex::default())
            .unwrap_err();
        assert!(error.starts_with("p.yaml was changed"), "{error}");
        assert_eq!(fs::read_to_string(&edited).unwrap(), "an edit");
        let list = fs::read_to_string(bench.root.join("policy/l.txt")).unwrap();
        assert_eq!(list, "b.example\n");
        assert_eq!(bench.store.pending_replacement().unwrap(), None);
    }

    #[test]
    fn a_policy_gets_the_name_of_the_file_and_keeps_its_form() {
        let bench = ReplacementBench::new("names");
        let renamed = policy("", "").with_entry_name("q.yaml").unwrap();
        assert_eq!(bench.disk().adapt(renamed).unwrap(), policy("", ""));
        let files = [("a.yaml".to_owned(), Vec::new())];
        let directory = PolicyFileSet::new(None, files.into()).unwrap();
        assert!(bench.disk().adapt(directory.clone()).is_err());
        let disk = PolicyOnDisk::find(&bench.root.join("policy")).unwrap();
        assert!(disk.adapt(policy("", "")).is_err());
        assert_eq!(disk.adapt(directory.clone()).unwrap(), directory);
    }
}
