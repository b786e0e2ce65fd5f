//! The log file: appended to, rotated by size and age, and reopened when another program has moved, removed or truncated it.
//!
//! Only the writer thread uses it. Files are switched between lines, so that each line is complete in one file. An error
//! of `write` means that nothing was written; the writer decides what happens to the lines.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::LogFileRotation;
use crate::clock::Clock;

/// The time for which a file that cannot be rotated grows before the next attempt.
const ROTATION_RETRY_DELAY: Duration = Duration::from_secs(60);

/// The file at a path.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    rotate: Option<LogFileRotation>,
    file: File,
    identity: LogFileIdentity,
    position: WritePosition,
    path_state: PathState,
    /// The day of the last line, if the file has lines.
    last_day: Option<UtcDay>,
    clock: Clock,
    /// The time of the last failed rotation, if none has succeeded since.
    rotation_failed_at: Option<Instant>,
    rotation_failure: RotationFailure,
}

/// Why the file cannot be rotated, for the readiness endpoint; shared with the log.
#[derive(Clone, Debug, Default)]
pub(super) struct RotationFailure(Arc<Mutex<Option<String>>>);

impl RotationFailure {
    /// Returns why the last rotation failed; `None` if it did not.
    pub(super) fn reason(&self) -> Option<String> {
        self.0.lock().clone()
    }

    fn set(&self, reason: Option<String>) {
        *self.0.lock() = reason;
    }
}

/// A day in UTC, counted from 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct UtcDay(u64);

impl UtcDay {
    fn of(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(since.as_secs() / 86_400)
    }
}

/// Identifies a file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LogFileIdentity {
    device: u64,
    inode: u64,
}

impl LogFileIdentity {
    fn from_metadata(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

/// The position of the next byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WritePosition {
    LineStart,
    InLine,
    /// After an incomplete line: a process ended while writing it.
    Torn,
}

/// The relation between the path and the open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathState {
    Current,
    /// The file was moved away and none can be created in its place; lines are appended to the moved one.
    Moved,
}

/// The result of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RotationOutcome {
    Done,
    /// The file remains in use.
    Failed,
}

impl LogFile {
    /// Opens the file at the start of the proxy; creates its directory if that does not exist. A directory that is removed
    /// or moved later is not created again.
    pub(super) fn open_with_directory(
        path: PathBuf,
        rotate: Option<LogFileRotation>,
        clock: Clock,
    ) -> io::Result<Self> {
        if let Some(directory) = path.parent().filter(|_| !path.exists()) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o750)
                .create(directory)?;
        }
        let file = Self::open(path, rotate, clock)?;
        file.remove_old_files();
        Ok(file)
    }

    /// Opens the file, or creates it, readable by its owner and group.
    fn open(path: PathBuf, rotate: Option<LogFileRotation>, clock: Clock) -> io::Result<Self> {
        let file = open_append(&path)?;
        let found = file.metadata()?;
        let identity = LogFileIdentity::from_metadata(&found);
        let modified = found.modified().ok().filter(|_| found.len() > 0);
        let position = position_at_end(&path);
        Ok(Self {
            path,
            rotate,
            file,
            identity,
            position,
            path_state: PathState::Current,
            last_day: modified.map(UtcDay::of),
            clock,
            rotation_failed_at: None,
            rotation_failure: RotationFailure::default(),
        })
    }

    /// The shared error of the last rotation.
    pub(super) fn rotation_failure(&self) -> RotationFailure {
        self.rotation_failure.clone()
    }

    /// Returns how many of these bytes, whole lines, may be written to the file that is open now. The file is switched
    /// first if it was moved or is full.
    fn writable_len(&mut self, lines: &[u8]) -> io::Result<usize> {
        let size = self.ensure_path()?;
        let (Some(mut size), Some(rotation)) = (size, self.rotate) else {
            return Ok(lines.len());
        };
        let limit = rotation.size;
        if size > 0 && rotation.max_age.is_some() && self.last_day < Some(self.today()) {
            if self.try_to_rotate() == RotationOutcome::Failed {
                return Ok(lines.len());
            }
            size = self.ensure_path()?.unwrap_or(0);
        }
        if let Some(end) = whole_lines_len(lines, limit.saturating_sub(size)) {
            return Ok(end);
        }
        if size > 0 {
            if self.try_to_rotate() == RotationOutcome::Failed {
                return Ok(lines.len());
            }
            self.ensure_path()?;
        }
        // A line that is longer than the maximum size gets its own file.
        Ok(whole_lines_len(lines, limit).unwrap_or_else(|| line_end(lines)))
    }

    /// Makes sure that the path refers to the open file, and returns the file's size; `None` if it is not to be rotated.
    ///
    /// Called before each write, at most a hundred times a second, so that logrotate needs no signal.
    fn ensure_path(&mut self) -> io::Result<Option<u64>> {
        match fs::metadata(&self.path) {
            Ok(found) if LogFileIdentity::from_metadata(&found) == self.identity => {
                return Ok(found.is_file().then_some(found.len()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // If the directory has become inaccessible, the open file is still used.
            Err(_) => return Ok(None),
        }
        match self.reopen() {
            Ok(size) => Ok(size),
            Err(error) => self.continue_unnamed(error),
        }
    }

    fn reopen(&mut self) -> io::Result<Option<u64>> {
        let opened = Self::open(self.path.clone(), self.rotate, self.clock.clone())?;
        let found = opened.file.metadata()?;
        self.rotation_failure.set(None);
        *self = Self {
            rotation_failure: self.rotation_failure(),
            ..opened
        };
        self.remove_old_files();
        Ok(found.is_file().then_some(found.len()))
    }

    /// A file that still has a name is used further; one that was removed is not.
    fn continue_unnamed(&mut self, error: io::Error) -> io::Result<Option<u64>> {
        if self.file.metadata()?.nlink() == 0 {
            return Err(error);
        }
        if self.path_state == PathState::Current {
            self.path_state = PathState::Moved;
            tracing::warn!(%error, "decision log: its file was moved and a new one cannot be created; the moved one grows");
        }
        Ok(None)
    }

    /// Rotates the file, unless that failed recently: the file may grow too large, but no lines are lost.
    fn try_to_rotate(&mut self) -> RotationOutcome {
        let now = self.clock.now();
        if self
            .rotation_failed_at
            .is_some_and(|failed| now.saturating_duration_since(failed) < ROTATION_RETRY_DELAY)
        {
            return RotationOutcome::Failed;
        }
        let Err(error) = self.rotate() else {
            if self.rotation_failed_at.take().is_some() {
                tracing::info!("decision log: rotation works again");
            }
            self.rotation_failure.set(None);
            self.last_day = None;
            return RotationOutcome::Done;
        };
        if self.rotation_failed_at.replace(now).is_none() {
            tracing::warn!(
                "decision log: {error}; its file grows, and rotation is tried again every minute"
            );
        }
        self.rotation_failure.set(Some(error.to_string()));
        RotationOutcome::Failed
    }

    fn today(&self) -> UtcDay {
        UtcDay::of(self.clock.wall_time())
    }

    /// Removes the older files whose last line is older than `max_age`. One that cannot be removed is tried again at the
    /// next rotation.
    fn remove_old_files(&self) {
        let Some(LogFileRotation {
            keep,
            max_age: Some(max_age),
            ..
        }) = self.rotate
        else {
            return;
        };
        let Ok(path) = fs::canonicalize(&self.path) else {
            return;
        };
        let now = self.clock.wall_time();
        for number in 1..=keep {
            for path in [rotated_path(&path, number), packed_path(&path, number)] {
                let modified = fs::symlink_metadata(&path).and_then(|found| found.modified());
                let age = modified.ok().and_then(|time| now.duration_since(time).ok());
                if age.is_some_and(|age| age > max_age)
                    && let Err(error) = fs::remove_file(&path)
                {
                    tracing::warn!(%error, "decision log: an old file cannot be removed");
                }
            }
        }
    }

    /// Frees the file's name: `PATH` becomes `PATH.1`, `PATH.1` becomes `PATH.2`, and so on up to `keep`.
    ///
    /// Only files up to the first gap are renamed, so an interrupted rotation can be repeated without losing one.
    fn rotate(&mut self) -> io::Result<()> {
        let Some(LogFileRotation { keep, .. }) = self.rotate else {
            return Ok(());
        };
        if keep == 0 {
            return self.file.set_len(0).map_err(rotation_error);
        }
        let path = fs::canonicalize(&self.path).map_err(rotation_error)?;
        let gap =
            (1..keep).find(|number| fs::symlink_metadata(rotated_path(&path, *number)).is_err());
        for number in (1..gap.unwrap_or(keep)).rev() {
            rename(
                &rotated_path(&path, number),
                &rotated_path(&path, number + 1),
            )?;
        }
        rename(&path, &rotated_path(&path, 1))?;
        if fs::metadata(&self.path)
            .is_ok_and(|found| LogFileIdentity::from_metadata(&found) == self.identity)
        {
            // A path such as /dev/stdout would always refer to the same file.
            self.rotate = None;
            tracing::warn!(
                "decision log: its path is an open file rather than a name; it is not rotated"
            );
        }
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        if self.position == WritePosition::Torn {
            self.file.write_all(b"\n")?;
            self.position = WritePosition::LineStart;
        }
        let end = match self.position {
            WritePosition::InLine => line_end(lines),
            WritePosition::LineStart | WritePosition::Torn => self.writable_len(lines)?,
        };
        // The reopened file may itself end in an incomplete line.
        if self.position == WritePosition::Torn {
            return self.write(lines);
        }
        let written = self.file.write(lines.get(..end).unwrap_or(lines))?;
        if written > 0
            && self
                .rotate
                .is_some_and(|rotation| rotation.max_age.is_some())
        {
            self.last_day = Some(self.today());
        }
        if let Some(last) = written.checked_sub(1).and_then(|last| lines.get(last)) {
            self.position = if *last == b'\n' {
                WritePosition::LineStart
            } else {
                WritePosition::InLine
            };
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns the name of a rotated file.
fn rotated_path(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// Returns the name of a rotated file that another program has packed.
fn packed_path(path: &Path, number: u32) -> PathBuf {
    let mut name = rotated_path(path, number).into_os_string();
    name.push(".gz");
    name.into()
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to).map_err(rotation_error)
}

/// The error message does not contain the path, since the readiness endpoint is public.
fn rotation_error(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("it cannot be rotated: {error}"))
}

fn open_append(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o640)
        .open(path)
}

/// A file that cannot be read is assumed to end with a complete line.
fn position_at_end(path: &Path) -> WritePosition {
    match last_byte(path) {
        Ok(last) if last != b'\n' => WritePosition::Torn,
        Ok(_) | Err(_) => WritePosition::LineStart,
    }
}

fn last_byte(path: &Path) -> io::Result<u8> {
    // A pipe or a terminal has no end, and opening one may block.
    if !fs::metadata(path)?.is_file() {
        return Err(ErrorKind::Unsupported.into());
    }
    let mut file = File::open(path)?;
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    let [last] = last;
    Ok(last)
}

/// Returns the length of the lines that fit completely into `room` bytes.
fn whole_lines_len(lines: &[u8], room: u64) -> Option<usize> {
    let room = usize::try_from(room).unwrap_or(usize::MAX).min(lines.len());
    memchr::memrchr(b'\n', lines.get(..room)?).map(|end| end + 1)
}

/// Returns the length of the first line.
fn line_end(lines: &[u8]) -> usize {
    memchr::memchr(b'\n', lines).map_or(lines.len(), |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_filled_with_whole_lines() {
        for (lines, room, end) in [
            ("a\nbb\nccc\n", 100, Some(9)),
            ("a\nbb\nccc\n", 9, Some(9)),
            ("a\nbb\nccc\n", 8, Some(5)),
            ("a\nbb\nccc\n", 2, Some(2)),
            ("a\nbb\nccc\n", 1, None),
            ("", 5, None),
        ] {
            assert_eq!(
                whole_lines_len(lines.as_bytes(), room),
                end,
                "{lines:?} {room}"
            );
        }
        assert_eq!(
            (line_end(b"abc\nd\n"), line_end(b"abc"), line_end(b"\n")),
            (4, 3, 1)
        );
    }

    #[test]
    fn numbers_follow_the_whole_name() {
        assert_eq!(
            rotated_path(Path::new("/var/log/d.jsonl"), 12),
            Path::new("/var/log/d.jsonl.12")
        );
    }
}
