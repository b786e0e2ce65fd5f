//! The directories at which the relative paths of a configuration start.

use std::path::{Path, PathBuf};

/// The policy that is used if none is named and it exists, relative to the working directory.
const DEFAULT_POLICY_PATH: &str = "config/policy.yaml";

/// The directories at which relative paths start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BasePaths {
    /// The directory of the configuration file, for paths that it names.
    pub config_directory: PathBuf,
    /// The policy that is used if none is named and it exists.
    pub default_policy: PathBuf,
    /// The directory of `certs/` and `var/`, for paths that the file does not name.
    pub data_root: PathBuf,
}

impl BasePaths {
    /// Returns the directories for a configuration file; without one everything starts at the working directory.
    pub(super) fn new(file: Option<&Path>, working_directory: &Path) -> Self {
        match file.and_then(Path::parent) {
            Some(directory) => Self {
                config_directory: directory.to_owned(),
                default_policy: directory.join("policy.yaml"),
                data_root: parent_directory(directory),
            },
            None => Self {
                config_directory: working_directory.to_owned(),
                default_policy: working_directory.join(DEFAULT_POLICY_PATH),
                data_root: working_directory.to_owned(),
            },
        }
    }

    /// Resolves a path of the configuration file.
    pub(super) fn resolve(&self, path: &str) -> PathBuf {
        self.config_directory.join(path)
    }
}

/// Returns the path from the root, with symbolic links resolved in the directories, and in the file if it exists.
pub fn canonical_path(path: &Path) -> PathBuf {
    std::fs::canonicalize(path)
        .ok()
        .or_else(|| canonical_in_directory(path))
        .or_else(|| std::path::absolute(path).ok())
        .unwrap_or_else(|| path.to_owned())
}

fn canonical_in_directory(path: &Path) -> Option<PathBuf> {
    let directory = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    Some(
        std::fs::canonicalize(directory)
            .ok()?
            .join(path.file_name()?),
    )
}

/// Returns the directory above that of the configuration, since `certs/` and `var/` are siblings of `config/`.
fn parent_directory(directory: &Path) -> PathBuf {
    match directory.file_name() {
        Some(_) => directory.parent().map(Path::to_owned).unwrap_or_default(),
        None => directory.join(".."),
    }
}
