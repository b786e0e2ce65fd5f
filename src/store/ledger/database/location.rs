//! The location of the tables, and the errors of opening them.

use std::fmt;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use redb::DatabaseError;

use crate::store::sync_directory;

use super::{FILE_NAME, VERSION};

#[derive(Debug, thiserror::Error)]
pub enum LedgerOpenError {
    /// The file does not exist.
    #[error("there is no ledger at {}. A proxy creates it if its policy needs one, or with ledger.keep: always", .0.display())]
    Missing(PathBuf),
    /// Another process uses it.
    #[error("the ledger {} is in use by another process. Stop that process, or set a different store.path", .0.display())]
    InUse(PathBuf),
    /// A later version of this program wrote it.
    #[error(
        "the ledger {} has version {}, and this program reads versions up to {VERSION}. Start the program that \
         wrote it, or move the file away, which discards everything recorded about URLs",
        .0.display(), .1
    )]
    NewerVersion(PathBuf, u64),
    /// It cannot be read, or is not a ledger.
    #[error(
        "the ledger {} cannot be opened: {}. Repair it, or move the file away, which discards everything \
         recorded about URLs",
        .0.display(), .1
    )]
    Unreadable(PathBuf, String),
}

/// The location of the tables.
#[derive(Clone, Debug)]
pub(crate) enum LedgerLocation {
    File(PathBuf),
    Memory,
}

impl LedgerLocation {
    pub(crate) fn in_directory(directory: &Path) -> Self {
        Self::File(directory.join(FILE_NAME))
    }

    /// Returns the path of the file; an empty path for a ledger in memory.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::File(path) => path,
            Self::Memory => Path::new(""),
        }
    }

    /// Returns the error for a ledger that cannot be opened.
    pub(crate) fn unreadable_error(&self, error: impl fmt::Display) -> LedgerOpenError {
        LedgerOpenError::Unreadable(self.path().to_owned(), error.to_string())
    }

    /// Returns the number of bytes used on disk.
    pub(crate) fn disk_bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt as _;
        std::fs::metadata(self.path()).map_or(0, |data| data.blocks() * 512)
    }
}

/// Creates the file if it does not exist, readable by its owner only: URLs may contain secrets.
pub(super) fn create_private_file(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let exists = path.exists();
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    if exists { Ok(()) } else { sync_directory(path) }
}

/// Converts an error of the database.
pub(super) fn open_error(path: &Path, error: DatabaseError) -> LedgerOpenError {
    if matches!(error, DatabaseError::DatabaseAlreadyOpen) {
        return LedgerOpenError::InUse(path.to_owned());
    }
    LedgerOpenError::Unreadable(path.to_owned(), error.to_string())
}
