//! A small file that is replaced atomically: there is always a complete old or new version.
//!
//! The new contents are written to a temporary file next to the old one, which is renamed once they are on
//! disk. Owner and group may read it. A file that exists and cannot be read is an error, not an empty file.

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::io_advice::IoAdvice;

/// The path of the file, and what its loss means.
#[derive(Debug)]
pub(super) struct AtomicFile {
    path: PathBuf,
    /// The maximum number of bytes read.
    max_bytes: u64,
    recovery: RecoveryHint,
}

/// The advice shown for a file that cannot be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecoveryHint {
    /// The contents: `the emergency stops`.
    pub(super) contents: &'static str,
    /// The effect of moving the file away.
    pub(super) consequence: &'static str,
}

/// The file exists and cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {contents} from {}: {advice}", path.display())]
pub struct UnreadableFile {
    path: PathBuf,
    contents: &'static str,
    /// The cause, and what to do.
    advice: String,
}

impl AtomicFile {
    /// A file in this directory; neither needs to exist.
    pub(super) fn new(
        directory: &Path,
        name: &str,
        max_bytes: u64,
        recovery: RecoveryHint,
    ) -> Self {
        Self {
            path: directory.join(name),
            max_bytes,
            recovery,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the error for a file with invalid contents.
    pub(super) fn unreadable_error(&self, reason: impl fmt::Display) -> UnreadableFile {
        let consequence = self.recovery.consequence;
        self.error(format!(
            "{reason}. Repair the file, or move it away: {consequence}"
        ))
    }

    /// Returns the error for a file that the system cannot read, or that is no text.
    fn read_error(&self, error: &io::Error) -> UnreadableFile {
        if error.kind() == io::ErrorKind::InvalidData {
            return self.unreadable_error(error);
        }
        let advice = IoAdvice::new(&self.path, error);
        let consequence = self.recovery.consequence;
        self.error(format!("{advice}. Without the file, {consequence}"))
    }

    fn error(&self, advice: String) -> UnreadableFile {
        UnreadableFile {
            path: self.path.clone(),
            contents: self.recovery.contents,
            advice,
        }
    }

    /// Reads the file; returns `None` if it does not exist.
    ///
    /// # Errors
    /// If it exists and cannot be read.
    pub(super) fn read(&self) -> Result<Option<String>, UnreadableFile> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.read_error(&error)),
        };
        let mut text = String::new();
        file.take(self.max_bytes)
            .read_to_string(&mut text)
            .map_err(|error| self.read_error(&error))?;
        Ok(Some(text))
    }

    /// Replaces the contents. Blocks until they are on disk.
    ///
    /// # Errors
    /// If writing fails; the old file is then unchanged.
    pub(super) fn write(
        &self,
        write_text: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(directory)?;
        let temporary = self.path.with_extension("json.new");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o640)
            .open(&temporary)?;
        // The mode of one that a crash has left behind may be another.
        file.set_permissions(Permissions::from_mode(0o640))?;
        let mut file = BufWriter::new(file);
        write_text(&mut file)?;
        file.write_all(b"\n")?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        drop(file);
        fs::rename(&temporary, &self.path)?;
        sync_directory(&self.path)
    }
}

/// Syncs the directory of a new file: the file survives a crash only once its directory entry is on disk.
/// Blocks.
///
/// # Errors
/// If the directory cannot be written.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}
