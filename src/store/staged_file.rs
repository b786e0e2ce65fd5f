//! Files that are written under a temporary name first, so that a rename puts complete content in place.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::sync_directory;

/// The mode of files that only the proxy's user and group may read.
pub const PRIVATE_MODE: u32 = 0o640;

/// A complete file under a temporary name next to its final one. Removed on drop, unless it was renamed.
#[derive(Debug)]
pub struct StagedFile {
    temporary: PathBuf,
    target: PathBuf,
    is_renamed: bool,
}

impl StagedFile {
    /// Writes the content next to `target`, whose directory must exist. Blocks until it is on disk.
    ///
    /// # Errors
    /// If the directory or the disk cannot be written.
    pub fn write(target: &Path, bytes: &[u8], mode: u32) -> io::Result<Self> {
        let temporary = temporary_path(target)?;
        remove_if_exists(&temporary)?;
        let staged = Self {
            temporary,
            target: target.to_owned(),
            is_renamed: false,
        };
        // A new file, so that no link at this path is followed.
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&staged.temporary)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        Ok(staged)
    }

    /// Puts the file in its place, and syncs the directory.
    ///
    /// # Errors
    /// If the directory cannot be written; the old file is then unchanged.
    pub fn commit(mut self) -> io::Result<()> {
        fs::rename(&self.temporary, &self.target)?;
        self.is_renamed = true;
        sync_directory(&self.target)
    }

    /// Returns the present path.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Returns the final path.
    pub fn target(&self) -> &Path {
        &self.target
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.is_renamed {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Returns a hidden name in the same directory: hidden files are no part of a policy.
fn temporary_path(target: &Path) -> io::Result<PathBuf> {
    let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(".crawlgate-new");
    Ok(target.with_file_name(hidden))
}

/// Removes the temporary file that a crash has left next to a file.
///
/// # Errors
/// If it exists and cannot be removed.
pub fn remove_temporary(target: &Path) -> io::Result<()> {
    remove_if_exists(&temporary_path(target)?)
}

/// Removes a file, if it exists.
///
/// # Errors
/// If it cannot be removed.
pub fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Creates a directory with those above it, which only the proxy's user and group may read, and syncs its parent.
///
/// # Errors
/// If one of them cannot be created.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(path)?;
    sync_directory(path)
}

/// Writes a file below a directory that is being made, with the directories on its path.
///
/// # Errors
/// If it cannot be written.
pub(super) fn write_below(directory: &Path, relative: &str, bytes: &[u8]) -> io::Result<()> {
    let path = directory.join(relative);
    if let Some(parent) = path.parent() {
        create_private_directory(parent)?;
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(PRIVATE_MODE)
        .open(&path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    sync_directory(&path)
}

/// Opens a file for reading, unless it is a symbolic link.
pub(super) fn open_no_follow(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}
