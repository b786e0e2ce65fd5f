//! Where policy text comes from: a value that the caller hands in, so that nothing here opens a file.

use std::collections::BTreeMap;
use std::fmt;

/// Reads files. Paths are relative to whatever the caller says, with `/` between their parts.
///
/// The implementation decides what a symbolic link may point to.
pub trait FileSystem {
    /// The bytes of a file.
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError>;

    /// The names of the files in a directory, in any order, without those of directories below it.
    ///
    /// [`FileError::NotADirectory`] tells that the path is a file.
    fn list(&self, directory: &str) -> Result<Vec<String>, FileError>;
}

/// Why a file was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileError {
    /// There is nothing at the path.
    NotFound,
    /// It is a file where a directory is meant.
    NotADirectory,
    /// Anything else, in the words of the system.
    Other(String),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("there is no such file"),
            Self::NotADirectory => f.write_str("it is not a directory"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for FileError {}

/// Files that are not files: for texts that are at hand, and for tests.
#[derive(Clone, Debug, Default)]
pub struct MemoryFileSystem(BTreeMap<String, Vec<u8>>);

impl MemoryFileSystem {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file.
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
