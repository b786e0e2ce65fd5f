//! The file system that policies are read from, passed in by the caller: this crate opens no file.

use std::collections::BTreeMap;
use std::fmt;

/// Reads files. Paths are relative to a base that the caller chooses, with `/` as separator.
///
/// The implementation decides which symbolic links it follows.
pub trait FileSystem {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError>;

    /// Returns the names of the files in a directory, in any order, without those in
    /// subdirectories.
    ///
    /// Returns [`FileError::NotADirectory`] if the path is a file.
    fn list(&self, directory: &str) -> Result<Vec<String>, FileError>;
}

/// The reason why a file could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileError {
    NotFound,
    /// The path is a file, but a directory is expected.
    NotADirectory,
    /// Any other error, as the system describes it.
    Other(String),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("no such file"),
            Self::NotADirectory => f.write_str("not a directory"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for FileError {}

/// Files in memory: for embedded texts, and for tests.
#[derive(Clone, Debug, Default)]
pub struct MemoryFileSystem(BTreeMap<String, Vec<u8>>);

impl MemoryFileSystem {
    /// Creates an empty file system.
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn with_file(mut self, path: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.0.insert(path.to_owned(), bytes.into());
        self
    }
}

impl FileSystem for MemoryFileSystem {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        self.0.get(path).cloned().ok_or(FileError::NotFound)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, FileError> {
        if self.0.contains_key(directory) {
            return Err(FileError::NotADirectory);
        }
        let below = self
            .0
            .keys()
            .filter_map(|path| path.strip_prefix(directory)?.strip_prefix('/'));
        let names: Vec<String> = below
            .filter(|name| !name.contains('/'))
            .map(String::from)
            .collect();
        if names.is_empty() {
            Err(FileError::NotFound)
        } else {
            Ok(names)
        }
    }
}
