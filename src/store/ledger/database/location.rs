//! Where the tables are, and why they cannot be opened.

use std::fmt;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use redb::DatabaseError;

use crate::store::sync_directory;

use super::{FILE_NAME, VERSION};

/// Why a ledger cannot be opened.
#[derive(Debug)]
pub enum LedgerOpenError {
    /// There is none.
    Missing(PathBuf),
    /// Another process has it.
    InUse(PathBuf),
    /// A later version of this program wrote it.
    NewerVersion(PathBuf, u64),
    /// It cannot be read, or is no ledger.
    Unreadable(PathBuf, String),
}

impl fmt::Display for LedgerOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(path) => write!(
                f,
                "there is no ledger {}. A proxy makes it when its policy needs one, or ledger.keep says always",
                path.display()
            ),
            Self::InUse(path) => write!(
                f,
                "the ledger {} is in use by another process. Stop that one, or give this one a store.path of its own",
                path.display()
            ),
            Self::NewerVersion(path, version) => write!(
                f,
                "the ledger {} has version {version}, and this program reads up to {VERSION}. Start the program that \
                 wrote it, or move the file away: everything that is known of URLs goes with it",
                path.display()
            ),
            Self::Unreadable(path, why) => write!(
                f,
                "the ledger {} cannot be opened: {why}. Mend it, or move the file away: everything that is known of \
                 URLs goes with it",
                path.display()
            ),
        }
    }
}

impl std::error::Error for LedgerOpenError {}

/// Where the tables are.
#[derive(Clone, Debug)]
pub(crate) enum LedgerLocation {
    File(PathBuf),
    Memory,
}

impl LedgerLocation {
    /// The file in this directory.
    pub(crate) fn in_directory(directory: &Path) -> Self {
        Self::File(directory.join(FILE_NAME))
    }

    /// Its path; nothing in memory.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::File(path) => path,
            Self::Memory => Path::new(""),
        }
    }

    /// Bytes that it takes of the disk.
    pub(crate) fn disk_bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt as _;
        std::fs::metadata(self.path()).map_or(0, |data| data.blocks() * 512)
    }
}

/// Makes the file, if it is not there, for its owner alone: URLs may hold secrets.
pub(super) fn create_private_file(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let there = path.exists();
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    if there { Ok(()) } else { sync_directory(path) }
}

/// What the database says of its file.
pub(super) fn open_error(path: &Path, error: DatabaseError) -> LedgerOpenError {
    if matches!(error, DatabaseError::DatabaseAlreadyOpen) {
        return LedgerOpenError::InUse(path.to_owned());
    }
    LedgerOpenError::Unreadable(path.to_owned(), error.to_string())
}
