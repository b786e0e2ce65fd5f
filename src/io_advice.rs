//! Explanations of I/O errors for the operator: the path that is in the way, the cause, and what to do.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::geteuid;

/// The cause of an I/O error, and what to do about it.
#[derive(Debug)]
pub struct IoAdvice {
    cause: String,
    /// An instruction without its final period, to which alternatives can be added.
    cure: &'static str,
}

impl fmt::Display for IoAdvice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}. {}", self.cause, self.cure)
    }
}

impl IoAdvice {
    /// Explains the error of an operation on a file or directory.
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "the library may add kinds of errors"
    )]
    pub fn new(path: &Path, error: &io::Error) -> Self {
        let existing = nearest_existing(path);
        let shown = existing.unwrap_or(path).display();
        let is = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
        let (cause, cure) = match error.kind() {
            // The second kind is that of `create_dir_all`.
            ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
                (format!("{shown} is not a directory"), "Move it away")
            }
            ErrorKind::IsADirectory => (format!("{shown} is a directory"), "Move it away"),
            ErrorKind::PermissionDenied => (
                format!("user {} has no permission for {shown}", user_name()),
                "Change its owner or its mode",
            ),
            ErrorKind::ReadOnlyFilesystem => (
                format!("the file system of {shown} is read-only"),
                "Mount it for writing",
            ),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => (
                format!("the disk of {shown} is full ({error})"),
                "Make room on it",
            ),
            ErrorKind::NotFound => (format!("no such path in {shown}"), "Correct the path"),
            _ if is(Errno::LOOP) => (
                format!("{shown} is a symbolic link"),
                "Replace it by what it leads to",
            ),
            _ if is(Errno::IO) => (error.to_string(), "Check the disk"),
            _ => (error.to_string(), "Remove the cause"),
        };
        Self { cause, cure }
    }
}

/// The directory of the store cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the directory {} (store.path) cannot be used: {advice}, or set a different store.path", path.display())]
pub(crate) struct StoreDirectoryError {
    path: PathBuf,
    advice: IoAdvice,
}

/// Checks that what the directory of the store contains can be read; the directory need not exist, or be writable.
///
/// # Errors
/// If the path cannot be a directory, or may not be entered.
pub(crate) fn check_directory(path: &Path) -> Result<(), StoreDirectoryError> {
    match fs::metadata(path.join(".")) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(StoreDirectoryError {
            path: path.to_owned(),
            advice: IoAdvice::new(path, &error),
        }),
    }
}

/// Returns the path itself if it exists, or the nearest one above it that does.
fn nearest_existing(path: &Path) -> Option<&Path> {
    let mut paths = path.ancestors().map(|path| {
        if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        }
    });
    paths.find(|path| fs::symlink_metadata(path).is_ok())
}

/// Returns the name of the user of this process, or the number of one without a name.
pub(crate) fn user_name() -> String {
    let number = geteuid().to_string();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    });
    name.unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_in_the_way_is_named_with_its_cause() {
        let directory =
            std::env::temp_dir().join(format!("crawlgate-advice-{}", std::process::id()));
        fs::create_dir_all(directory.join("folder")).unwrap();
        fs::write(directory.join("file"), "").unwrap();
        let shown = directory.display();
        for (path, kind, part) in [
            (
                "file/a/b",
                ErrorKind::NotADirectory,
                "/file is not a directory. Move it away",
            ),
            (
                "file",
                ErrorKind::AlreadyExists,
                "/file is not a directory. Move it away",
            ),
            (
                "folder",
                ErrorKind::IsADirectory,
                "/folder is a directory. Move it away",
            ),
            (
                "folder/new/a",
                ErrorKind::PermissionDenied,
                "/folder. Change its owner",
            ),
            (
                "folder/new",
                ErrorKind::ReadOnlyFilesystem,
                "/folder is read-only. Mount it",
            ),
            ("folder/new", ErrorKind::StorageFull, "Make room on it"),
            (
                "folder/new",
                ErrorKind::NotFound,
                "no such path in SHOWN/folder. Correct",
            ),
            (
                "folder/new",
                ErrorKind::TimedOut,
                "timed out. Remove the cause",
            ),
        ] {
            let text = IoAdvice::new(&directory.join(path), &kind.into()).to_string();
            let part = part.replace("SHOWN", &shown.to_string());
            assert!(text.contains(&part), "{path}, {kind}: {text}");
        }
        let of_system = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        for (errno, part) in [
            (Errno::IO, "Check the disk"),
            (Errno::LOOP, "/folder is a symbolic link. Replace it"),
        ] {
            let text = IoAdvice::new(&directory.join("folder"), &of_system(errno)).to_string();
            assert!(text.contains(part), "{text}");
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
