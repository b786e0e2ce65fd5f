//! Detects changes to the files of a policy since they were read.
//!
//! The files are polled instead of using notifications of the system. Polling notices changes to a directory or a
//! symbolic link above them (editors rename a new file over the old one, Kubernetes swaps the link `..data`), works on
//! network and overlay file systems, and costs a few system calls per second.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::policy::source::{FileError, FileSystem};

use super::policy_files::PolicyFiles;
use super::timed_read::{READ_TIMEOUT, ReadPurpose, ReadTimeoutError, run_with_timeout};

/// The state of a path, which differs after a change, without reading the file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PathStamp {
    /// The path does not exist, or is not accessible.
    Missing,
    /// A file. The time of its last metadata change is included, since the modification time can be set back.
    File {
        device: u64,
        inode: u64,
        size: u64,
        modified: (i64, i64),
        changed: (i64, i64),
    },
    /// A directory with its entries.
    Directory {
        device: u64,
        inode: u64,
        names: Vec<PathBuf>,
    },
}

impl PathStamp {
    /// Returns the current state of a path, with all links followed.
    fn from_path(path: &Path) -> Self {
        match fs::metadata(path) {
            Ok(state) if state.is_dir() => Self::from_directory(path, &state),
            Ok(state) => Self::File {
                device: state.dev(),
                inode: state.ino(),
                size: state.size(),
                modified: (state.mtime(), state.mtime_nsec()),
                changed: (state.ctime(), state.ctime_nsec()),
            },
            Err(_) => Self::Missing,
        }
    }

    fn from_directory(path: &Path, state: &Metadata) -> Self {
        let entries = fs::read_dir(path)
            .into_iter()
            .flatten()
            .filter_map(Result::ok);
        let mut names: Vec<PathBuf> = entries.map(|entry| entry.file_name().into()).collect();
        names.sort();
        Self::Directory {
            device: state.dev(),
            inode: state.ino(),
            names,
        }
    }
}

/// The paths of a policy, each with its state just before it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathStamps(BTreeMap<PathBuf, PathStamp>);

impl PathStamps {
    /// Returns the current state of the same paths, unless the disk hangs. Blocks.
    ///
    /// # Errors
    /// If the disk does not answer.
    pub fn current_with_timeout(&self) -> Result<Self, ReadTimeoutError> {
        let stamps = self.clone();
        run_with_timeout(READ_TIMEOUT, ReadPurpose::Poll, move || stamps.current())
    }

    /// Returns the current state of the same paths.
    fn current(&self) -> Self {
        Self(
            self.0
                .keys()
                .map(|path| (path.clone(), PathStamp::from_path(path)))
                .collect(),
        )
    }
}

/// Policy files that record which paths were read.
#[derive(Debug)]
pub struct RecordingFiles {
    files: PolicyFiles,
    stamps: RefCell<PathStamps>,
}

impl RecordingFiles {
    /// Creates access to the files of a policy.
    pub fn new(files: PolicyFiles) -> Self {
        Self {
            files,
            stamps: RefCell::default(),
        }
    }

    /// Returns the paths that were read.
    pub fn into_stamps(self) -> PathStamps {
        self.stamps.into_inner()
    }

    fn record(&self, path: &str) -> Result<(), FileError> {
        let path = PathBuf::from(path);
        // If a file is read twice, the earlier state counts.
        if self.stamps.borrow().0.contains_key(&path) {
            return Ok(());
        }
        let stamped = path.clone();
        let stamp = self.files.run(move || PathStamp::from_path(&stamped));
        // A path without an answer is still watched.
        let state = stamp.as_ref().map_or(PathStamp::Missing, PathStamp::clone);
        self.stamps.borrow_mut().0.insert(path, state);
        stamp.map(|_| ())
    }
}

impl FileSystem for RecordingFiles {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        self.record(path)?;
        self.files.read(path)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, FileError> {
        self.record(directory)?;
        self.files.list(directory)
    }
}

/// Decides when a changed policy should be read again: once per change, and only after its files have stopped changing.
#[derive(Debug)]
pub struct PolicyWatcher {
    loaded: PathStamps,
    last_seen: PathStamps,
}

impl PolicyWatcher {
    /// Creates a watcher for a policy that was read from these files.
    pub fn new(loaded: PathStamps) -> Self {
        Self {
            last_seen: loaded.clone(),
            loaded,
        }
    }

    /// Records that the policy was read again, successfully or not.
    pub fn set_loaded(&mut self, loaded: PathStamps) {
        *self = Self::new(loaded);
    }

    /// Returns the files as they were when the policy was read.
    pub fn loaded(&self) -> &PathStamps {
        &self.loaded
    }

    /// Returns `true` if the policy should be read: its files differ from when it was read, and have not changed since
    /// the previous poll, so that a half-written file is not read. Blocks.
    pub fn poll_changed(&mut self) -> bool {
        let now = self.loaded.current();
        self.observe(now)
    }

    /// Returns the same as [`Self::poll_changed`] for the present state of the files, which the caller has read.
    pub fn observe(&mut self, now: PathStamps) -> bool {
        let is_stable = now == self.last_seen;
        let has_changed = is_stable && now != self.loaded;
        if has_changed {
            // Each change is reported once, even if the policy is not read.
            self.loaded = now.clone();
        }
        self.last_seen = now;
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Creates a directory with `policy.yaml` in it.
    fn directory() -> PathBuf {
        let directory = std::env::temp_dir().join(format!(
            "watch-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("policy.yaml"), "a: 1").unwrap();
        directory
    }

    fn read(paths: &[PathBuf]) -> PathStamps {
        let files = RecordingFiles::new(PolicyFiles::for_proxy(paths.first().unwrap()));
        for path in paths {
            let path = path.to_str().unwrap();
            if files.list(path).is_err() {
                let _ = files.read(path);
            }
        }
        files.into_stamps()
    }

    #[test]
    fn changes_are_reported_once_and_after_they_end() {
        type DirectoryChange = fn(&Path);
        let changes: [(&str, DirectoryChange); 6] = [
            ("written in place", |d| {
                fs::write(d.join("policy.yaml"), "a: 2").unwrap()
            }),
            ("renamed over", |d| {
                fs::write(d.join("new"), "a: 1").unwrap();
                fs::rename(d.join("new"), d.join("policy.yaml")).unwrap();
            }),
            ("removed", |d| {
                fs::remove_file(d.join("policy.yaml")).unwrap()
            }),
            ("another file in the directory", |d| {
                fs::write(d.join("more.yaml"), "").unwrap()
            }),
            ("a list that was missing", |d| {
                fs::write(d.join("list.txt"), "x").unwrap()
            }),
            ("the directory swapped", |d| {
                let other = d.with_extension("other");
                let _ = fs::remove_dir_all(&other);
                fs::rename(d, &other).unwrap();
                fs::create_dir(d).unwrap();
                fs::write(d.join("policy.yaml"), "a: 1").unwrap();
                fs::remove_dir_all(&other).unwrap();
            }),
        ];
        for (name, change) in changes {
            let directory = directory();
            let paths = [
                directory.clone(),
                directory.join("policy.yaml"),
                directory.join("list.txt"),
            ];
            let mut watch = PolicyWatcher::new(read(&paths));
            assert!(
                !watch.poll_changed() && !watch.poll_changed(),
                "{name}: nothing has changed yet"
            );
            change(&directory);
            assert!(!watch.poll_changed(), "{name}: it may still be changing");
            assert!(watch.poll_changed(), "{name}: reported");
            watch.set_loaded(read(&paths));
            assert!(
                !watch.poll_changed() && !watch.poll_changed(),
                "{name}: reported once"
            );
            fs::remove_dir_all(&directory).unwrap();
        }
    }

    /// Kubernetes updates a mounted ConfigMap this way: `policy.yaml -> ..data/policy.yaml`, `..data -> ..first`.
    #[test]
    fn a_swapped_link_to_the_directory_is_reported() {
        let directory = directory();
        fs::remove_file(directory.join("policy.yaml")).unwrap();
        for (version, text) in [("..first", "a: 1"), ("..second", "a: 2")] {
            fs::create_dir(directory.join(version)).unwrap();
            fs::write(directory.join(version).join("policy.yaml"), text).unwrap();
        }
        symlink("..first", directory.join("..data")).unwrap();
        symlink("..data/policy.yaml", directory.join("policy.yaml")).unwrap();
        let mut watch = PolicyWatcher::new(read(&[directory.join("policy.yaml")]));
        assert!(!watch.poll_changed());
        symlink("..second", directory.join("..tmp")).unwrap();
        fs::rename(directory.join("..tmp"), directory.join("..data")).unwrap();
        fs::remove_dir_all(directory.join("..first")).unwrap();
        assert!(!watch.poll_changed());
        assert!(watch.poll_changed());
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_change_that_is_not_read_is_reported_once() {
        let directory = directory();
        let policy = directory.join("policy.yaml");
        let mut watch = PolicyWatcher::new(read(std::slice::from_ref(&policy)));
        fs::remove_file(&policy).unwrap();
        assert_eq!(
            [
                watch.poll_changed(),
                watch.poll_changed(),
                watch.poll_changed(),
                watch.poll_changed()
            ],
            [false, true, false, false]
        );
        fs::write(&policy, "a: 1").unwrap();
        assert_eq!(
            [
                watch.poll_changed(),
                watch.poll_changed(),
                watch.poll_changed()
            ],
            [false, true, false]
        );
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn files_that_keep_changing_are_not_reported() {
        let directory = directory();
        let policy = directory.join("policy.yaml");
        let mut watch = PolicyWatcher::new(read(std::slice::from_ref(&policy)));
        for text in ["a: 12", "a: 123", "a: 1234"] {
            fs::write(&policy, text).unwrap();
            assert!(!watch.poll_changed(), "{text}");
        }
        assert!(watch.poll_changed());
        fs::remove_dir_all(&directory).unwrap();
    }
}
