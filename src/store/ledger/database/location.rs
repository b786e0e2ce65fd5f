//! The location of the tables, and the errors of opening them.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use crate::io_advice::IoAdvice;
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
    /// Its content is damaged, or is not a ledger.
    #[error(
        "the ledger {} is damaged: {reason}. No program repairs it: move the file away \
         (mv {} {}.damaged) and start again. That discards everything recorded about URLs (their statuses, visits, \
         contents and events that were not delivered yet), so they are crawled as if they were new. Policy, stops, \
         budgets and the decision log are not affected",
        path.display(), path.display(), path.display()
    )]
    Damaged { path: PathBuf, reason: String },
    /// The disk cannot be read or written.
    #[error(
        "the ledger {} cannot be opened: {advice}, or set a different store.path, and start again. The content of the ledger \
         is not affected",
        path.display()
    )]
    Unavailable { path: PathBuf, advice: IoAdvice },
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
    pub(crate) fn open_error(&self, error: impl Into<redb::Error>) -> LedgerOpenError {
        open_error(self.path(), error.into())
    }

    /// Returns the error for a ledger whose content made the database library panic.
    pub(crate) fn panic_error(&self) -> LedgerOpenError {
        LedgerOpenError::Damaged {
            path: self.path().to_owned(),
            reason: "the database library fails on its content".into(),
        }
    }

    /// Returns the number of bytes used on disk.
    pub(crate) fn disk_bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt as _;
        std::fs::metadata(self.path()).map_or(0, |data| data.blocks() * 512)
    }
}

/// The origin of the file of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileOrigin {
    Created,
    Found,
}

/// Creates the file if it does not exist, readable by its owner only: URLs may contain secrets.
pub(super) fn create_private_file(path: &Path) -> std::io::Result<FileOrigin> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let exists = path.exists();
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    if exists {
        return Ok(FileOrigin::Found);
    }
    sync_directory(path)?;
    Ok(FileOrigin::Created)
}

/// Converts an error of the database.
fn open_error(path: &Path, error: redb::Error) -> LedgerOpenError {
    let path = path.to_owned();
    let reason = error.to_string();
    if matches!(
        error,
        redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch
    ) {
        return LedgerOpenError::InUse(path);
    }
    // redb reports a file that ends too early as an error of reading it.
    if let redb::Error::Io(error) = error
        && !is_damage(&error)
    {
        let advice = IoAdvice::new(&path, &error);
        return LedgerOpenError::Unavailable { path, advice };
    }
    LedgerOpenError::Damaged { path, reason }
}

/// Returns `true` if an error of reading is caused by the content of the file: it ends early, or is not a ledger.
fn is_damage(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData
    )
}
