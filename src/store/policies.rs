//! The policies that were in force, and the shadow policy that was set while the proxy ran: `policies/` in the store's
//! directory.
//!
//! - `policies/REVISION/files/`: the files of a policy. `policies/REVISION/policy.json` lists them; it is written last.
//! - `policies/history.json`: which policy came in force when, who activated it and why; and the shadow policy.
//! - `policies/lock`: locked by the running proxy (see [`super::policy_lock`]).
//! - `policies/replacement.json`: exists while the files of the active policy are replaced, so that a crash in the middle
//!   is noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::io_advice::IoAdvice;
use crate::policy::source::PolicyFileSet;

use super::staged_file::{
    PRIVATE_MODE, StagedFile, create_private_directory, open_no_follow, remove_if_exists,
    write_below,
};
use super::sync_directory;

const DIRECTORY: &str = "policies";
const HISTORY_FILE: &str = "history.json";
const REPLACEMENT_FILE: &str = "replacement.json";
const MANIFEST_FILE: &str = "policy.json";
const FILES_DIRECTORY: &str = "files";
/// The version of the formats.
const VERSION: u32 = 1;
/// The maximum size of a JSON file here.
const MAX_DOCUMENT_BYTES: u64 = 16 << 20;
/// The advice for a history with invalid content.
const REPAIR: &str = "Repair the file, or move it away";
/// The maximum number of recorded activations.
const MAX_ACTIVATIONS: usize = 100;

/// The policies below the directory of the store.
#[derive(Debug)]
pub struct PolicyStore {
    directory: PathBuf,
    records: Mutex<PolicyRecords>,
}

/// The client of the admin API that changed the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeAuthor {
    /// The user name that it gave; nothing proves it.
    pub user: Option<String>,
    /// Its address.
    pub address: Option<String>,
}

/// The way in which a policy came in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActivationCause {
    /// It was the policy at the start of the proxy.
    Start,
    /// Its files were changed and loaded again.
    Reload,
    /// It was the shadow policy before.
    Promote,
    /// It was in force before.
    Rollback,
}

impl ActivationCause {
    /// Returns the word in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Reload => "reload",
            Self::Promote => "promote",
            Self::Rollback => "rollback",
        }
    }
}

/// A policy that came in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyActivation {
    pub name: String,
    pub revision: String,
    at_ms: u64,
    pub cause: ActivationCause,
    pub author: ChangeAuthor,
    /// The reason that the author gave, or what triggered a reload.
    pub reason: Option<String>,
}

impl PolicyActivation {
    /// Creates a record without author and reason.
    pub fn new(name: &str, revision: &str, at: SystemTime, cause: ActivationCause) -> Self {
        Self {
            name: name.to_owned(),
            revision: revision.to_owned(),
            at_ms: unix_millis(at),
            cause,
            author: ChangeAuthor::default(),
            reason: None,
        }
    }

    /// Adds who activated it, and why.
    #[must_use]
    pub fn with_author(self, author: ChangeAuthor, reason: Option<String>) -> Self {
        Self {
            author,
            reason,
            ..self
        }
    }

    /// Returns the time at which it came in force.
    pub fn at(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.at_ms)
    }
}

/// The shadow policy that was set while the proxy ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShadowAssignment {
    pub name: String,
    pub revision: String,
    at_ms: u64,
    pub author: ChangeAuthor,
    pub reason: Option<String>,
}

impl ShadowAssignment {
    /// Creates the record of a policy that was set now.
    pub fn new(
        name: &str,
        revision: &str,
        at: SystemTime,
        author: ChangeAuthor,
        reason: Option<String>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            revision: revision.to_owned(),
            at_ms: unix_millis(at),
            author,
            reason,
        }
    }

    /// Returns the time at which it was set.
    pub fn at(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.at_ms)
    }
}

/// A replacement of the files of the active policy that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyReplacement {
    /// The revision whose files are replaced.
    pub previous: String,
    /// The revision whose files are written.
    pub next: String,
    /// The record of that policy, which is added to the history when it is in force.
    #[serde(default)]
    pub activation: Option<PolicyActivation>,
    /// The revision of the shadow policy that is cleared then.
    #[serde(default)]
    pub cleared_shadow: Option<String>,
}

/// The contents of `history.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyRecords {
    version: u32,
    /// The oldest first.
    activations: Vec<PolicyActivation>,
    shadow: Option<ShadowAssignment>,
}

impl Default for PolicyRecords {
    fn default() -> Self {
        Self {
            version: VERSION,
            activations: Vec::new(),
            shadow: None,
        }
    }
}

/// The contents of `policy.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyManifest {
    version: u32,
    revision: String,
    entry: Option<String>,
    files: Vec<String>,
    /// The [`PolicyFileSet::checksum`], so that no changed file gets into force.
    checksum: String,
}

/// Returns the path of the policy of a directory `policies/REVISION`; `None` if it is not one.
pub fn kept_policy_path(directory: &Path) -> Option<PathBuf> {
    let manifest: Option<PolicyManifest> = read_document(&directory.join(MANIFEST_FILE)).ok()?;
    let files = directory.join(FILES_DIRECTORY);
    Some(match manifest?.entry {
        Some(entry) => files.join(entry),
        None => files,
    })
}

impl PolicyStore {
    /// The number of policies that are kept, the active one included, besides the shadow policy.
    pub const MAX_REVISIONS: usize = 20;

    /// Reads the history below the directory of the store; neither needs to exist.
    ///
    /// # Errors
    /// If the history exists and cannot be read.
    pub fn open(store: &Path) -> Result<Self, String> {
        let directory = Self::directory_in(store);
        let path = directory.join(HISTORY_FILE);
        let unreadable = |advice: String| {
            format!(
                "cannot read the history of policies from {}: {advice}. Without the file, a shadow policy that was set is \
                 forgotten",
                path.display()
            )
        };
        let records: Option<PolicyRecords> =
            read_document(&path).map_err(|error| unreadable(read_advice(&path, &error, REPAIR)))?;
        let records = records.unwrap_or_default();
        if records.version != VERSION {
            return Err(unreadable(format!(
                "it has version {}, and this program reads {VERSION}. {REPAIR}",
                records.version
            )));
        }
        Ok(Self {
            directory,
            records: Mutex::new(records),
        })
    }

    /// Returns the directory of the policies below that of the store.
    pub(super) fn directory_in(store: &Path) -> PathBuf {
        store.join(DIRECTORY)
    }

    /// Returns the directory of a policy below that of the store, where it is if it was kept.
    pub fn revision_directory(store: &Path, revision: &str) -> PathBuf {
        Self::directory_in(store).join(revision)
    }

    /// Returns the directory of the policies.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the same directory without its history, to finish a replacement that was interrupted.
    pub fn without_history(store: &Path) -> Self {
        Self {
            directory: Self::directory_in(store),
            records: Mutex::default(),
        }
    }

    /// Returns the policies that came in force, the oldest first.
    pub fn activations(&self) -> Vec<PolicyActivation> {
        self.records.lock().activations.clone()
    }

    /// Returns the revision that was in force before the active one. Returning to a policy does not count: the policy before
    /// it is still the one that was in force before, so that no sequence of returns leads to a policy that was left.
    pub fn revision_before(&self, active: &str) -> Option<String> {
        let records = self.records.lock();
        let activations = &records.activations;
        let is_active = |entry: &PolicyActivation| entry.revision == active;
        let is_return = |entry: &PolicyActivation| entry.cause == ActivationCause::Rollback;
        let since = activations
            .iter()
            .rposition(|entry| is_active(entry) && !is_return(entry))
            .unwrap_or_else(|| {
                // It was returned to, and the time before it is forgotten; or it is not recorded, and follows all others.
                let is_recorded = activations.iter().any(is_active);
                if is_recorded { 0 } else { activations.len() }
            });
        let mut earlier = activations.iter().take(since).rev();
        let before = earlier.find(|entry| !is_active(entry))?;
        Some(before.revision.clone())
    }

    /// Returns the shadow policy that was set.
    pub fn shadow(&self) -> Option<ShadowAssignment> {
        self.records.lock().shadow.clone()
    }

    /// Records a policy that came in force, and removes policies that are no longer kept. Blocks.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn record_activation(&self, activation: PolicyActivation) -> io::Result<()> {
        self.change_records(|records| records.add(activation))
    }

    /// Records the shadow policy that was set, or that none is. Blocks.
    ///
    /// # Errors
    /// If the directory cannot be written; the record is then unchanged.
    pub fn set_shadow(&self, shadow: Option<ShadowAssignment>) -> io::Result<()> {
        self.change_records(|records| records.shadow = shadow)
    }

    fn change_records(&self, change: impl FnOnce(&mut PolicyRecords)) -> io::Result<()> {
        let mut records = self.records.lock();
        let mut changed = PolicyRecords {
            version: VERSION,
            activations: records.activations.clone(),
            shadow: records.shadow.clone(),
        };
        change(&mut changed);
        self.create_directory()?;
        write_document(&self.directory.join(HISTORY_FILE), &changed)?;
        let kept = changed.kept_revisions();
        *records = changed;
        if let Err(error) = self.remove_unused(kept) {
            tracing::warn!(%error, "policies that are no longer kept cannot be removed (store.path)");
        }
        Ok(())
    }

    fn create_directory(&self) -> io::Result<()> {
        create_policy_directory(&self.directory)
    }

    /// Removes the policies that are neither one of these revisions nor part of a pending replacement, and what a crash has
    /// left.
    fn remove_unused(&self, mut kept: BTreeSet<String>) -> io::Result<()> {
        if let Some(pending) = self.pending_replacement()? {
            kept.extend([pending.previous, pending.next]);
        }
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_directory = entry.file_type()?.is_dir();
            let is_unused = is_revision(&name) && !kept.contains(&*name);
            if is_directory && (is_unused || name.starts_with('.')) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    /// Keeps the files of a policy. Blocks until they are on disk.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn keep(&self, revision: &str, files: &PolicyFileSet) -> io::Result<()> {
        // Also prevents that two calls write the same directory.
        let _records = self.records.lock();
        if !is_revision(revision) {
            return Err(io::Error::other("this is not a revision"));
        }
        if matches!(self.load(revision), Ok(Some(kept)) if kept == *files) {
            return Ok(());
        }
        let target = self.directory.join(revision);
        let new = self.directory.join(format!(".{revision}.new"));
        self.create_directory()?;
        remove_directory_if_exists(&new)?;
        create_private_directory(&new)?;
        for (path, bytes) in files.iter() {
            write_below(&new.join(FILES_DIRECTORY), path, bytes)?;
        }
        let manifest = PolicyManifest {
            version: VERSION,
            revision: revision.to_owned(),
            entry: files.entry().map(str::to_owned),
            files: files.iter().map(|(path, _)| path.to_owned()).collect(),
            checksum: files.checksum(),
        };
        write_document(&new.join(MANIFEST_FILE), &manifest)?;
        remove_directory_if_exists(&target)?;
        fs::rename(&new, &target)?;
        sync_directory(&target)
    }

    /// Returns the files of a policy that is kept. Blocks.
    ///
    /// # Errors
    /// If they exist and cannot be read, or are not what was kept.
    pub fn load(&self, revision: &str) -> io::Result<Option<PolicyFileSet>> {
        if !is_revision(revision) {
            return Ok(None);
        }
        let directory = self.directory.join(revision);
        let manifest: Option<PolicyManifest> = read_document(&directory.join(MANIFEST_FILE))?;
        let Some(manifest) = manifest else {
            return Ok(None);
        };
        if manifest.version != VERSION {
            return Err(io::Error::other("another version of crawlgate has kept it"));
        }
        let empty = manifest.files.iter().map(|path| (path.clone(), Vec::new()));
        // The paths are checked before one of them is opened.
        PolicyFileSet::new(manifest.entry.clone(), empty.collect()).map_err(io::Error::other)?;
        let mut files = BTreeMap::new();
        for path in manifest.files {
            let bytes = read_at_most(
                &directory.join(FILES_DIRECTORY).join(&path),
                PolicyFileSet::MAX_BYTES as u64,
            )?;
            files.insert(path, bytes);
        }
        let files = PolicyFileSet::new(manifest.entry, files).map_err(io::Error::other)?;
        if files.checksum() != manifest.checksum {
            return Err(io::Error::other("the kept files have been changed"));
        }
        Ok(Some(files))
    }

    /// Returns `true` if the files of a policy are kept.
    pub fn is_kept(&self, revision: &str) -> bool {
        is_revision(revision) && self.directory.join(revision).join(MANIFEST_FILE).exists()
    }

    /// Returns `true` if a policy that is kept has this file with this content. Blocks.
    pub fn has_kept_file(&self, path: &str, content: &[u8]) -> bool {
        let revisions = fs::read_dir(&self.directory).into_iter().flatten();
        let revisions = revisions.filter_map(Result::ok);
        let mut kept = revisions.filter(|entry| is_revision(&entry.file_name().to_string_lossy()));
        kept.any(|entry| {
            let file = entry.path().join(FILES_DIRECTORY).join(path);
            read_at_most(&file, PolicyFileSet::MAX_BYTES as u64).is_ok_and(|bytes| bytes == content)
        })
    }

    /// Records that the files of the active policy are about to be replaced. Blocks until that is on disk.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn begin_replacement(&self, replacement: &PolicyReplacement) -> io::Result<()> {
        self.create_directory()?;
        write_document(&self.replacement_path(), replacement)
    }

    /// Returns the replacement that has begun and not ended. Blocks.
    ///
    /// # Errors
    /// If its record exists and cannot be read.
    pub fn pending_replacement(&self) -> io::Result<Option<PolicyReplacement>> {
        read_document(&self.replacement_path())
    }

    /// Returns the explanation of an error of [`Self::pending_replacement`].
    pub fn unreadable_replacement(&self, error: &io::Error) -> String {
        let path = self.replacement_path();
        format!(
            "cannot read {}, the record of a replacement of the policy: {}",
            path.display(),
            read_advice(
                &path,
                error,
                "Put the right files of the policy in place, and remove it"
            )
        )
    }

    fn replacement_path(&self) -> PathBuf {
        self.directory.join(REPLACEMENT_FILE)
    }

    /// Records that the next policy of a replacement is in force, unless that is recorded, and clears its shadow policy. Blocks.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn record_replacement(&self, replacement: &PolicyReplacement) -> io::Result<()> {
        self.change_records(|records| {
            let last = records.activations.last();
            if let Some(activation) = &replacement.activation
                && last.is_none_or(|last| last.revision != activation.revision)
            {
                records.add(activation.clone());
            }
            let is_cleared = |shadow: &mut ShadowAssignment| {
                Some(&shadow.revision) == replacement.cleared_shadow.as_ref()
            };
            records.shadow.take_if(is_cleared);
        })
    }

    /// Records that the files of the active policy are those of one policy again. Blocks.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn end_replacement(&self) -> io::Result<()> {
        let path = self.replacement_path();
        remove_if_exists(&path)?;
        sync_directory(&path)
    }
}

impl PolicyRecords {
    fn add(&mut self, activation: PolicyActivation) {
        self.activations.push(activation);
        let excess = self.activations.len().saturating_sub(MAX_ACTIVATIONS);
        self.activations.drain(..excess);
    }

    /// Returns the revisions whose files are kept: the last ones, of which the newest is active, and the shadow policy.
    fn kept_revisions(&self) -> BTreeSet<String> {
        let mut kept = BTreeSet::new();
        for activation in self.activations.iter().rev() {
            if kept.len() == PolicyStore::MAX_REVISIONS {
                break;
            }
            kept.insert(activation.revision.clone());
        }
        kept.extend(self.shadow.iter().map(|shadow| shadow.revision.clone()));
        kept
    }
}

/// Creates the directory of the policies, which only the proxy's user and group may read. That of the store has files for
/// other users, too.
pub(super) fn create_policy_directory(directory: &Path) -> io::Result<()> {
    if let Some(store) = directory.parent() {
        fs::create_dir_all(store)?;
    }
    create_private_directory(directory)
}

/// Returns `true` for the first 8 hexadecimal digits of a digest, which are safe as a name.
fn is_revision(text: &str) -> bool {
    text.len() == 8
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn unix_millis(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn remove_directory_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn write_document(path: &Path, document: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(document)?;
    bytes.push(b'\n');
    StagedFile::write(path, &bytes, PRIVATE_MODE)?.commit()
}

fn read_document<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match read_at_most(path, MAX_DOCUMENT_BYTES) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the reason why a document cannot be read, and what to do; `repair` applies to invalid content.
fn read_advice(path: &Path, error: &io::Error, repair: &str) -> String {
    let is_malformed_json = matches!(
        error.kind(),
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
    );
    if is_malformed_json {
        format!("{error}. {repair}")
    } else {
        IoAdvice::new(path, error).to_string()
    }
}

fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_no_follow(path)?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the file is too large",
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    struct StoreDirectory(PathBuf);

    impl StoreDirectory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("policies-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for StoreDirectory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn files(text: &str) -> PolicyFileSet {
        let files = [("p.yaml", text), ("lists/a.txt", "a\n")];
        let files = files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()));
        PolicyFileSet::new(Some("p.yaml".to_owned()), files.into()).unwrap()
    }

    fn activation(revision: &str) -> PolicyActivation {
        PolicyActivation::new("p", revision, UNIX_EPOCH, ActivationCause::Reload)
    }

    fn revision(number: u32) -> String {
        format!("{number:08x}")
    }

    #[test]
    fn the_last_policies_and_the_shadow_are_kept_with_their_files() {
        let directory = StoreDirectory::new("kept");
        let store = PolicyStore::open(&directory.0).unwrap();
        store.keep(&revision(100), &files("shadow")).unwrap();
        let author = ChangeAuthor {
            user: Some("ann".into()),
            address: None,
        };
        let shadow = ShadowAssignment::new("p", &revision(100), UNIX_EPOCH, author, None);
        store.set_shadow(Some(shadow.clone())).unwrap();
        for number in 1..=21 {
            store
                .keep(&revision(number), &files(&number.to_string()))
                .unwrap();
            store
                .record_activation(activation(&revision(number)))
                .unwrap();
        }
        let store = PolicyStore::open(&directory.0).unwrap();
        assert_eq!(store.activations().len(), 21);
        assert_eq!(store.shadow(), Some(shadow));
        assert!(!store.is_kept(&revision(1)) && store.load(&revision(1)).unwrap().is_none());
        for number in (2..=21).chain([100]) {
            assert!(store.is_kept(&revision(number)), "{number}");
        }
        assert_eq!(store.load(&revision(21)).unwrap().unwrap(), files("21"));
        store.set_shadow(None).unwrap();
        assert!(!store.is_kept(&revision(100)));
        let kept = directory.0.join("policies").join(revision(21));
        let mode = |path: &str| fs::metadata(kept.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("files/p.yaml"), mode("policy.json")), (0o640, 0o640));
        assert_eq!(mode("files/lists"), 0o750);
    }

    #[test]
    fn the_revision_before_is_relative_to_the_active_one() {
        let directory = StoreDirectory::new("before");
        // Digits are policies that came in force, and `<` before one means a return to it.
        for (history, before) in [
            ("", None),
            ("1", None),
            ("12", Some(1)),
            ("123", Some(2)),
            ("123<2", Some(1)),
            ("123<2<1", None),
            ("12<13", Some(1)),
            ("12<13<1", None),
            ("121", Some(2)),
            ("12<23<2", Some(1)),
            ("12<1<2", Some(1)),
            // The beginning is forgotten.
            ("2<1", None),
            ("<12", Some(1)),
        ] {
            let _ = fs::remove_dir_all(&directory.0);
            let store = PolicyStore::open(&directory.0).unwrap();
            let mut cause = ActivationCause::Reload;
            let mut active = String::new();
            for letter in history.chars() {
                let Some(number) = letter.to_digit(10) else {
                    cause = ActivationCause::Rollback;
                    continue;
                };
                active = revision(number);
                let entry = PolicyActivation::new("p", &active, UNIX_EPOCH, cause);
                store.record_activation(entry).unwrap();
                cause = ActivationCause::Reload;
            }
            let found = store.revision_before(&active);
            assert_eq!(found, before.map(revision), "{history}");
        }
    }

    #[test]
    fn a_policy_of_the_same_revision_is_replaced_as_a_whole() {
        let directory = StoreDirectory::new("again");
        let store = PolicyStore::open(&directory.0).unwrap();
        for text in ["one", "two", "two"] {
            store.keep(&revision(1), &files(text)).unwrap();
            assert_eq!(store.load(&revision(1)).unwrap().unwrap(), files(text));
        }
        for name in ["", "..", "../policies", "0000000g", "00000001/"] {
            assert!(store.load(name).unwrap().is_none(), "{name}");
            assert!(store.keep(name, &files("x")).is_err(), "{name}");
        }
    }

    #[test]
    fn what_is_kept_leads_nowhere_else() {
        let directory = StoreDirectory::new("links");
        let store = PolicyStore::open(&directory.0).unwrap();
        store.keep(&revision(1), &files("one")).unwrap();
        let kept = directory.0.join("policies").join(revision(1));
        let file = kept.join("files/p.yaml");
        fs::remove_file(&file).unwrap();
        symlink("/etc/hostname", &file).unwrap();
        assert!(store.load(&revision(1)).is_err());
        let manifest = fs::read_to_string(kept.join("policy.json")).unwrap();
        fs::write(
            kept.join("policy.json"),
            manifest.replace("lists/a.txt", "../../../x"),
        )
        .unwrap();
        assert!(store.load(&revision(1)).is_err());
    }

    #[test]
    fn a_broken_history_is_an_error() {
        let directory = StoreDirectory::new("broken");
        fs::create_dir_all(directory.0.join("policies")).unwrap();
        let path = directory.0.join("policies/history.json");
        for text in [
            "",
            "{",
            "{\"version\": 2, \"activations\": [], \"shadow\": null}",
        ] {
            fs::write(&path, text).unwrap();
            let error = PolicyStore::open(&directory.0).unwrap_err();
            assert!(error.contains("history.json"), "{error}");
        }
    }

    fn replacement(previous: u32, next: u32) -> PolicyReplacement {
        PolicyReplacement {
            previous: revision(previous),
            next: revision(next),
            activation: Some(PolicyActivation::new(
                "p",
                &revision(next),
                UNIX_EPOCH,
                ActivationCause::Promote,
            )),
            cleared_shadow: Some(revision(next)),
        }
    }

    #[test]
    fn a_replacement_is_pending_until_it_ends() {
        let directory = StoreDirectory::new("pending");
        let store = PolicyStore::open(&directory.0).unwrap();
        assert_eq!(store.pending_replacement().unwrap(), None);
        store.begin_replacement(&replacement(1, 2)).unwrap();
        let pending = store.pending_replacement().unwrap();
        assert_eq!(pending, Some(replacement(1, 2)));
        store.end_replacement().unwrap();
        assert_eq!(store.pending_replacement().unwrap(), None);
    }

    #[test]
    fn the_policies_of_a_pending_replacement_are_kept() {
        let directory = StoreDirectory::new("both");
        let store = PolicyStore::open(&directory.0).unwrap();
        store.begin_replacement(&replacement(100, 101)).unwrap();
        for number in [100, 101, 102] {
            store.keep(&revision(number), &files("x")).unwrap();
        }
        store.record_activation(activation(&revision(1))).unwrap();
        let kept = [100, 101, 102].map(|number| store.is_kept(&revision(number)));
        assert_eq!(kept, [true, true, false]);
        store.end_replacement().unwrap();
        store.record_activation(activation(&revision(2))).unwrap();
        assert!(!store.is_kept(&revision(100)) && !store.is_kept(&revision(101)));
    }

    #[test]
    fn a_replacement_is_recorded_once_and_clears_its_shadow() {
        let directory = StoreDirectory::new("once");
        let store = PolicyStore::open(&directory.0).unwrap();
        let shadow = |number| {
            ShadowAssignment::new(
                "p",
                &revision(number),
                UNIX_EPOCH,
                ChangeAuthor::default(),
                None,
            )
        };
        store.set_shadow(Some(shadow(2))).unwrap();
        for _ in 0..2 {
            store.record_replacement(&replacement(1, 2)).unwrap();
            assert_eq!(store.activations().len(), 1);
            assert_eq!(store.activations().pop(), replacement(1, 2).activation);
            assert_eq!(store.shadow(), None);
        }
        // Another shadow policy that was set in the meantime stays.
        store.set_shadow(Some(shadow(3))).unwrap();
        store.record_replacement(&replacement(1, 2)).unwrap();
        assert_eq!(store.shadow(), Some(shadow(3)));
    }
}
