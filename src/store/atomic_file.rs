//! A small file that is kept whole: there is always the old one or the new one, and never a part.
//!
//! It is written beside the old one and takes its place once it is on the disk. One that is there and cannot be read is an
//! error, not an empty one. What it holds is its owner's business.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Where such a file is, and what is lost with it.
#[derive(Debug)]
pub(super) struct AtomicFile {
    path: PathBuf,
    /// The longest text that is read, in bytes.
    max_bytes: u64,
    recovery: RecoveryHint,
}

/// What the operator is told of a file that cannot be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecoveryHint {
    /// What is in it: `what is stopped`.
    pub(super) contents: &'static str,
    /// What comes of moving it away.
    pub(super) consequence: &'static str,
}

/// The file is there and cannot be read.
#[derive(Debug)]
pub struct UnreadableFile {
    path: PathBuf,
    recovery: RecoveryHint,
    why: String,
}

impl fmt::Display for UnreadableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (
            RecoveryHint {
                contents: what,
                consequence: then,
            },
            path,
        ) = (self.recovery, self.path.display());
        write!(
            f,
            "{what} cannot be read from {path}: {}. Mend the file; or move it away, and {then}",
            self.why
        )
    }
}

impl std::error::Error for UnreadableFile {}

impl AtomicFile {
    /// A file in this directory; neither need be there.
    pub(super) fn new(directory: &Path, name: &str, longest: u64, lost: RecoveryHint) -> Self {
        Self {
            path: directory.join(name),
            max_bytes: longest,
            recovery: lost,
        }
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The error of a file whose text is not what it should be.
    pub(super) fn unreadable_error(&self, why: impl fmt::Display) -> UnreadableFile {
        UnreadableFile {
            path: self.path.clone(),
            recovery: self.recovery,
            why: why.to_string(),
        }
    }

    /// Its text; `None` if it is not there.
    ///
    /// # Errors
    /// If it is there and cannot be read.
    pub(super) fn read(&self) -> Result<Option<String>, UnreadableFile> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.unreadable_error(error)),
        };
        let mut text = String::new();
        file.take(self.max_bytes)
            .read_to_string(&mut text)
            .map_err(|error| self.unreadable_error(error))?;
        Ok(Some(text))
    }

    /// Puts what is written here in its place. Blocks until it is on the disk.
    ///
    /// # Errors
    /// If that fails; the old file stands as it did.
    pub(super) fn write(
        &self,
        text: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(directory)?;
        let beside = self.path.with_extension("json.new");
        let mut file = BufWriter::new(File::create(&beside)?);
        text(&mut file)?;
        file.write_all(b"\n")?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        drop(file);
        fs::rename(&beside, &self.path)?;
        sync_directory(&self.path)
    }
}

/// Has the name of a new file on the disk: it is there once its directory is. Blocks.
///
/// # Errors
/// If the directory cannot be written.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}
