//! Policy files on the disk. `policy` itself opens no file; this is what it is handed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::policy::source::{FileError, FileSystem};

/// Files below the directory of one policy.
///
/// Symbolic links are followed as long as they stay inside it, as in a mounted Kubernetes ConfigMap. The policy itself
/// may be a link to anywhere: the operator named it.
#[derive(Clone, Debug)]
pub struct PolicyFiles {
    policy: PathBuf,
    /// The real directory; none if it does not exist, in which case nothing else does.
    root: Option<PathBuf>,
}

impl PolicyFiles {
    /// The files that a policy at this path, a file or a directory, may name.
    pub fn for_policy(policy: &Path) -> Self {
        let directory = if policy.is_dir() {
            Some(policy)
        } else {
            policy.parent()
        };
        let directory = directory.map(|d| {
            if d.as_os_str().is_empty() {
                Path::new(".")
            } else {
                d
            }
        });
        Self {
            policy: policy.to_owned(),
            root: directory.and_then(|d| d.canonicalize().ok()),
        }
    }

    fn check_inside(&self, path: &Path) -> Result<(), FileError> {
        let real = path.canonicalize().map_err(to_file_error)?;
        let inside = path == self.policy
            || self
                .root
                .as_ref()
                .is_some_and(|root| real.starts_with(root));
        let leaves =
            || FileError::Other("a symbolic link leads out of the policy's directory".into());
        if inside { Ok(()) } else { Err(leaves()) }
    }
}

impl FileSystem for PolicyFiles {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        let path = Path::new(path);
        self.check_inside(path)?;
        // The operator may name a pipe; a policy that does would have the proxy wait for it.
        if path != self.policy && !fs::metadata(path).map_err(to_file_error)?.is_file() {
            return Err(FileError::Other("not a regular file".into()));
        }
        fs::read(path).map_err(to_file_error)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, FileError> {
        let entries = fs::read_dir(directory).map_err(to_file_error)?;
        let files = entries
            .filter_map(Result::ok)
            .filter(|entry| entry.path().is_file());
        Ok(files
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect())
    }
}

fn to_file_error(error: io::Error) -> FileError {
    let kinds = [
        (io::ErrorKind::NotFound, FileError::NotFound),
        (io::ErrorKind::NotADirectory, FileError::NotADirectory),
    ];
    let known = kinds.into_iter().find(|(kind, _)| *kind == error.kind());
    known.map_or_else(|| FileError::Other(error.to_string()), |(_, known)| known)
}
