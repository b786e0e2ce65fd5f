//! Policy files on disk. `policy` opens no files itself; it reads them through this type.

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::policy::source::{FileError, FileSystem};

use super::timed_read::{
    READ_TIMEOUT, ReadPurpose, ReadTimeoutError, read_limited, read_regular_file, run_with_timeout,
};

/// Files below the directory of one policy.
///
/// Symbolic links are followed if their targets are below the directory too, as in a mounted Kubernetes ConfigMap. The
/// policy itself may be a link to any file, since the operator named it.
#[derive(Clone, Debug)]
pub struct PolicyFiles {
    policy: PathBuf,
    access: PolicyFileAccess,
}

/// The kind of program that reads the files.
#[derive(Clone, Debug)]
enum PolicyFileAccess {
    /// A command, for which the policy itself may be a pipe: `check <(generate)`.
    Command,
    /// A running proxy, which must not wait for a file.
    Proxy {
        /// The error after which nothing else is read: each operation could take [`READ_TIMEOUT`].
        failed: Cell<Option<ReadTimeoutError>>,
    },
}

impl PolicyFiles {
    /// Creates access to the files that a policy at this path, a file or a directory, may name.
    pub fn for_command(policy: &Path) -> Self {
        Self {
            policy: policy.to_owned(),
            access: PolicyFileAccess::Command,
        }
    }

    /// Creates access for a running proxy: only to regular files, and with a time limit.
    pub fn for_proxy(policy: &Path) -> Self {
        Self {
            policy: policy.to_owned(),
            access: PolicyFileAccess::Proxy {
                failed: Cell::new(None),
            },
        }
    }

    /// Runs an operation on a path of the policy.
    pub(super) fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, FileError> {
        let failed = match &self.access {
            PolicyFileAccess::Command => return Ok(operation()),
            PolicyFileAccess::Proxy { failed } => failed,
        };
        let result = match failed.get() {
            Some(error) => Err(error),
            None => run_with_timeout(READ_TIMEOUT, ReadPurpose::Load, operation),
        };
        result.map_err(|error| {
            failed.set(Some(error));
            FileError::Other(error.to_string())
        })
    }
}

impl FileSystem for PolicyFiles {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        let path = PathBuf::from(path);
        let policy = self.policy.clone();
        let may_be_pipe = matches!(self.access, PolicyFileAccess::Command) && path == policy;
        self.run(move || {
            check_inside(&policy, &path)?;
            let bytes = if may_be_pipe {
                File::open(&path).and_then(read_limited)
            } else {
                read_regular_file(&path)
            };
            bytes.map_err(to_file_error)
        })?
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, FileError> {
        let directory = directory.to_owned();
        self.run(move || {
            let entries = fs::read_dir(directory).map_err(to_file_error)?;
            let files = entries
                .filter_map(Result::ok)
                .filter(|entry| entry.path().is_file());
            Ok(files
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect())
        })?
    }
}

/// Checks that a path leads to a file below the directory of the policy, unless it is the policy.
fn check_inside(policy: &Path, path: &Path) -> Result<(), FileError> {
    let real = path.canonicalize().map_err(to_file_error)?;
    let directory = if policy.is_dir() {
        Some(policy)
    } else {
        policy.parent()
    };
    let root = directory.and_then(|directory| {
        let directory = if directory.as_os_str().is_empty() {
            Path::new(".")
        } else {
            directory
        };
        directory.canonicalize().ok()
    });
    if path == policy || root.is_some_and(|root| real.starts_with(root)) {
        Ok(())
    } else {
        Err(FileError::Other(
            "a symbolic link leads out of the policy's directory".into(),
        ))
    }
}

fn to_file_error(error: io::Error) -> FileError {
    if error.kind() == io::ErrorKind::NotFound {
        FileError::NotFound
    } else if error.kind() == io::ErrorKind::NotADirectory {
        FileError::NotADirectory
    } else {
        FileError::Other(error.to_string())
    }
}
