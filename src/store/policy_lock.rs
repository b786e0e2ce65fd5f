//! The lock on the policies of a store, which belongs to the running proxy: another process must not restore files that this
//! one is replacing.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::policies::{PolicyStore, create_policy_directory};
use super::staged_file::PRIVATE_MODE;

const LOCK_FILE: &str = "lock";

/// The lock, until it is dropped or the process ends.
#[derive(Debug)]
pub struct PolicyStoreLock(#[expect(dead_code, reason = "the lock ends with the file")] File);

impl PolicyStoreLock {
    /// Locks the policies below the directory of the store; `None` if another process has them.
    ///
    /// # Errors
    /// If the directory cannot be written, or its file system has no locks.
    pub fn acquire(store: &Path) -> io::Result<Option<Self>> {
        let directory = PolicyStore::directory_in(store);
        create_policy_directory(&directory)?;
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(PRIVATE_MODE)
            .custom_flags(libc::O_NOFOLLOW)
            .open(directory.join(LOCK_FILE))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}
