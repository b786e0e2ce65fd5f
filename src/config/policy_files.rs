//! Policy files on disk. `policy` opens no files itself; it reads them through this type.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::policy::source::{FileError, FileSystem};

/// Files below the directory of one policy.
///
/// Symbolic links are followed if their targets are below the directory too, as in a mounted Kubernetes ConfigMap. The
/// policy itself may be a link to any file, since the operator named it.
#[derive(Clone, Debug)]
pub struct PolicyFiles {
    policy: PathBuf,
    /// The canonical directory; `None` if it does not exist.
    root: Option<PathBuf>,
}

impl PolicyFiles {
    /// Creates access to the files that a policy at this path, a file or a directory, may name.
    pub fn for_policy(policy: &Path) -> Self {
        let directory = if policy.is_dir() {
            Some(policy)
        } else {
            policy.parent()
        };
        let root = match directory {
            Some(directory) if directory.as_os_str().is_empty() => Path::new(".").canonicalize(),
            Some(directory) => directory.canonicalize(),
            None => {
                return Self {
                    policy: policy.to_owned(),
                    root: None,
                };
            }
        };
        Self {
            policy: policy.to_owned(),
            root: root.ok(),
        }
    }

    fn check_inside(&self, path: &Path) -> Result<(), FileError> {
        let real = path.canonicalize().map_err(to_file_error)?;
        let inside = path == self.policy
            || self
                .root
                .as_ref()
                .is_some_and(|root| real.starts_with(root));
        if inside {
            Ok(())
        } else {
            Err(FileError::Other(
                "a symbolic link leads out of the policy's directory".into(),
            ))
        }
    }
}

impl FileSystem for PolicyFiles {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        let path = Path::new(path);
        self.check_inside(path)?;
        // The operator may name a pipe. A policy must not: the proxy would wait for it.
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
    if error.kind() == io::ErrorKind::NotFound {
        FileError::NotFound
    } else if error.kind() == io::ErrorKind::NotADirectory {
        FileError::NotADirectory
    } else {
        FileError::Other(error.to_string())
    }
}
