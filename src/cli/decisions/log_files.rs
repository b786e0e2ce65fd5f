//! Where the log is: a file, those that were rotated before it, or standard input.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

/// Where the log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LogInput {
    Stdin,
    File(PathBuf),
}

/// A file that is read, and whose errors tell its name.
pub(super) struct NamedFile {
    path: PathBuf,
    file: File,
    bytes: Box<dyn Read>,
    compressed: bool,
}

impl NamedFile {
    /// Opens a file; one that ends in `.gz` is unpacked.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path).map_err(|error| with_path(path, &error))?;
        let read = file.try_clone().map_err(|error| with_path(path, &error))?;
        let packed = path.extension() == Some(OsStr::new("gz"));
        let bytes: Box<dyn Read> = if packed {
            Box::new(MultiGzDecoder::new(read))
        } else {
            Box::new(read)
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes,
            compressed: packed,
        })
    }

    /// Its path as it was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is unpacked as it is read: then a place in the file is none in its lines.
    pub(super) fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// The file, at the place up to which it was read.
    pub(super) fn file(&mut self) -> &mut File {
        &mut self.file
    }
}

impl Read for NamedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.bytes
            .read(buffer)
            .map_err(|error| with_path(&self.path, &error))
    }
}

/// An error with the file that it is about.
pub(super) fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The file and those that were rotated before it (`PATH.1`, or `PATH.1.gz`, is the latest of them), the oldest first.
pub(super) fn files_oldest_first(path: &Path) -> io::Result<Vec<PathBuf>> {
    // A link is rotated where it leads to.
    let path = fs::canonicalize(path).map_err(|error| with_path(path, &error))?;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(vec![path]);
    };
    let mut older = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| with_path(folder, &error))? {
        let entry = entry.map_err(|error| with_path(folder, &error))?;
        if let Some(number) = rotation_number(name, &entry.file_name()) {
            older.push((number, entry.path()));
        }
    }
    older.sort_by(|a, b| b.cmp(a));
    Ok(older
        .into_iter()
        .map(|(_, path)| path)
        .chain([path])
        .collect())
}

/// `3` for `NAME.3` and `NAME.3.gz`.
fn rotation_number(name: &OsStr, other: &OsStr) -> Option<u32> {
    let rest = other
        .to_str()?
        .strip_prefix(name.to_str()?)?
        .strip_prefix('.')?;
    let digits = rest.strip_suffix(".gz").unwrap_or(rest);
    digits
        .bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotated_files_are_known_by_their_numbers() {
        for (other, expected) in [
            ("d.jsonl.1", Some(1)),
            ("d.jsonl.10.gz", Some(10)),
            ("d.jsonl", None),
            ("d.jsonl.", None),
            ("d.jsonl.gz", None),
            ("d.jsonl.1.bak", None),
            ("d.jsonl.+1", None),
            ("e.jsonl.1", None),
        ] {
            assert_eq!(
                rotation_number(OsStr::new("d.jsonl"), OsStr::new(other)),
                expected,
                "{other}"
            );
        }
    }
}
