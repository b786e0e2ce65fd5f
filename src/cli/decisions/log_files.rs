//! The input: the current file of the log, the rotated files, standard input, or the running proxy.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, Read};
use std::net::TcpStream;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

/// The input of the command.
#[derive(Debug)]
pub(super) enum LogInput {
    Stdin,
    File(PathBuf),
    /// The response of the running proxy, which has its latest decisions.
    Proxy(BufReader<TcpStream>),
}

impl LogInput {
    /// Returns the path of the file, if the log is one.
    pub(super) fn file(&self) -> Option<PathBuf> {
        match self {
            Self::File(path) => Some(path.clone()),
            Self::Stdin | Self::Proxy(_) => None,
        }
    }
}

/// An open file, whose errors contain its path.
pub(super) struct NamedFile {
    path: PathBuf,
    file: File,
    bytes: Box<dyn Read>,
    compressed: bool,
}

impl NamedFile {
    /// Opens a file, and decompresses it if its name ends in `.gz`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        // Opening a pipe waits for its writer, and reading a device may never end.
        let found = fs::metadata(path).map_err(|error| with_path(path, &error))?;
        check_regular(&found).map_err(|error| with_path(path, &error))?;
        let file = File::open(path).map_err(|error| with_path(path, &error))?;
        let reader = file.try_clone().map_err(|error| with_path(path, &error))?;
        let compressed = path.extension() == Some(OsStr::new("gz"));
        let bytes: Box<dyn Read> = if compressed {
            Box::new(MultiGzDecoder::new(reader))
        } else {
            Box::new(reader)
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes,
            compressed,
        })
    }

    /// Returns the path at which the file was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns `true` if the file is compressed, so that positions in the file are not positions in its text.
    pub(super) fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// Returns the underlying file, which is positioned after the bytes that have been read.
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

/// Returns an error for anything but a regular file.
fn check_regular(found: &Metadata) -> io::Result<()> {
    let kind = found.file_type();
    let kind = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(io::Error::other(format!(
        "it is {kind}, not a file with lines of the log; for standard input write `--log -`"
    )))
}

/// Adds a path to an error.
pub(super) fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Lists the rotated files (`PATH.1` or `PATH.1.gz` is the most recent) and the current file, the oldest first.
pub(super) fn files_oldest_first(path: &Path) -> io::Result<Vec<PathBuf>> {
    // The rotated files of a symbolic link are next to its target.
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

/// Returns the number of a rotated file, such as 3 for `NAME.3` and `NAME.3.gz`.
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
    fn rotated_files_are_identified_by_their_numbers() {
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
