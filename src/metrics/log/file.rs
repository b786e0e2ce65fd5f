//! The log's file: appended to, rotated by size, and opened again when somebody else has moved, removed or cut it.
//!
//! Only the writer thread is here. Files change between lines, so that each line is whole in one file. Lines that cannot
//! be written are the writer's business: a failure is an error of `write` that took nothing.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Rotate;
use crate::clock::Clock;

/// How long a file that cannot be rotated grows before that is tried again.
const AGAIN: Duration = Duration::from_secs(60);

/// The file at a path, whatever becomes of its name.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    rotate: Option<Rotate>,
    file: File,
    identity: Identity,
    place: Place,
    name: Name,
    clock: Clock,
    /// When a rotation failed last, if none has succeeded since.
    stuck: Option<Instant>,
    overdue: Overdue,
}

/// Why the file is larger than it should be, for readiness; shared with the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Overdue(Arc<Mutex<Option<String>>>);

impl Overdue {
    /// What stands in the way of its rotation; none if nothing does.
    pub(super) fn reason(&self) -> Option<String> {
        self.lock().clone()
    }

    fn set(&self, reason: Option<String>) {
        *self.lock() = reason;
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What tells a file from another that has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

/// Where in the file the next byte goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    LineStart,
    InLine,
    /// Behind a line whose end never came: a process ended in the middle of it.
    Torn,
}

/// Whether the open file is the one that the path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Ours,
    /// It was moved away and none can be made in its place; lines go on into the moved one.
    Lost,
}

/// How an attempt to rotate ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rotation {
    Done,
    /// The file goes on to be written.
    Failed,
}

impl LogFile {
    /// Opens the file, and makes it if it is not there, readable by its owner and group.
    pub(super) fn open(path: PathBuf, rotate: Option<Rotate>, clock: Clock) -> io::Result<Self> {
        let file = append_to(&path)?;
        let identity = Identity::of(&file.metadata()?);
        let place = place_at_end(&path);
        let (stuck, overdue) = (None, Overdue::default());
        Ok(Self {
            path,
            rotate,
            file,
            identity,
            place,
            name: Name::Ours,
            clock,
            stuck,
            overdue,
        })
    }

    /// What tells when its rotation fails.
    pub(super) fn overdue(&self) -> Overdue {
        self.overdue.clone()
    }

    /// How many of these bytes go into the file that is open now: whole lines. Before that the file is changed, if
    /// somebody has taken its name or it is full.
    fn share(&mut self, lines: &[u8]) -> io::Result<usize> {
        let size = self.claim_name()?;
        let (Some(size), Some(Rotate { size: limit, .. })) = (size, self.rotate) else {
            return Ok(lines.len());
        };
        if let Some(end) = whole_lines(lines, limit.saturating_sub(size)) {
            return Ok(end);
        }
        if size > 0 {
            if self.try_to_rotate() == Rotation::Failed {
                return Ok(lines.len());
            }
            self.claim_name()?;
        }
        // A line that is longer than a file may be has one of its own.
        Ok(whole_lines(lines, limit).unwrap_or_else(|| line_end(lines)))
    }

    /// Makes sure that the path leads to the open file, and tells the file's size; none if it is not to be rotated.
    ///
    /// Asked at each write, which is at most a hundred times a second: so logrotate needs no signal.
    fn claim_name(&mut self) -> io::Result<Option<u64>> {
        match fs::metadata(&self.path) {
            Ok(found) if Identity::of(&found) == self.identity => {
                return Ok(found.is_file().then_some(found.len()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // A directory that nobody may look into any more keeps its open files.
            Err(_) => return Ok(None),
        }
        match self.reopen() {
            Ok(size) => Ok(size),
            Err(error) => self.go_on_without_name(error),
        }
    }

    fn reopen(&mut self) -> io::Result<Option<u64>> {
        let opened = Self::open(self.path.clone(), self.rotate, self.clock.clone())?;
        let found = opened.file.metadata()?;
        self.overdue.set(None);
        *self = Self {
            overdue: self.overdue(),
            ..opened
        };
        Ok(found.is_file().then_some(found.len()))
    }

    /// A file that still has some name keeps its lines; one that was removed does not.
    fn go_on_without_name(&mut self, error: io::Error) -> io::Result<Option<u64>> {
        if self.file.metadata()?.nlink() == 0 {
            return Err(error);
        }
        if self.name == Name::Ours {
            self.name = Name::Lost;
            tracing::warn!(%error, "decision log: its file was moved and cannot be made anew; the moved one grows");
        }
        Ok(None)
    }

    /// Rotates the file, unless that failed a moment ago: lines that can be written are not lost for its size.
    fn try_to_rotate(&mut self) -> Rotation {
        let now = self.clock.now();
        if self
            .stuck
            .is_some_and(|failed| now.saturating_duration_since(failed) < AGAIN)
        {
            return Rotation::Failed;
        }
        let Err(error) = self.rotate() else {
            if self.stuck.take().is_some() {
                tracing::info!("decision log: it is rotated again");
            }
            self.overdue.set(None);
            return Rotation::Done;
        };
        if self.stuck.replace(now).is_none() {
            tracing::warn!(
                "decision log: {error}; its file grows, and it is tried again each minute"
            );
        }
        self.overdue.set(Some(error.to_string()));
        Rotation::Failed
    }

    /// Gives the file's name free: `PATH` becomes `PATH.1`, `PATH.1` becomes `PATH.2`, and so on up to `keep`.
    ///
    /// Only files up to the first gap move, so a rotation that failed half way can be tried again without losing one.
    fn rotate(&mut self) -> io::Result<()> {
        let Some(Rotate { keep, .. }) = self.rotate else {
            return Ok(());
        };
        if keep == 0 {
            return self.file.set_len(0).map_err(unrotated);
        }
        let path = fs::canonicalize(&self.path).map_err(unrotated)?;
        let gap = (1..keep).find(|number| fs::symlink_metadata(numbered(&path, *number)).is_err());
        for number in (1..gap.unwrap_or(keep)).rev() {
            rename(&numbered(&path, number), &numbered(&path, number + 1))?;
        }
        rename(&path, &numbered(&path, 1))?;
        if fs::metadata(&self.path).is_ok_and(|found| Identity::of(&found) == self.identity) {
            // Such as /dev/stdout: it would lead to the same file for ever.
            self.rotate = None;
            tracing::warn!(
                "decision log: its path leads to an open file and not to a name; it is not rotated"
            );
        }
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        if self.place == Place::Torn {
            self.file.write_all(b"\n")?;
            self.place = Place::LineStart;
        }
        let end = match self.place {
            Place::InLine => line_end(lines),
            Place::LineStart | Place::Torn => self.share(lines)?,
        };
        // Opened anew, it may end in a torn line itself.
        if self.place == Place::Torn {
            return self.write(lines);
        }
        let written = self.file.write(lines.get(..end).unwrap_or(lines))?;
        if let Some(last) = written.checked_sub(1).and_then(|last| lines.get(last)) {
            self.place = if *last == b'\n' {
                Place::LineStart
            } else {
                Place::InLine
            };
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The file that was rotated so many times.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to).map_err(unrotated)
}

/// The error says what was tried, and no more of the path than readiness may show to anybody.
fn unrotated(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("it cannot be rotated: {error}"))
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o640)
        .open(path)
}

/// What may not be read is taken to end in a whole line.
fn place_at_end(path: &Path) -> Place {
    match last_byte(path) {
        Ok(last) if last != b'\n' => Place::Torn,
        Ok(_) | Err(_) => Place::LineStart,
    }
}

fn last_byte(path: &Path) -> io::Result<u8> {
    // A pipe or a terminal has no end to look at, and opening one may wait.
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

/// Where the last line ends that fits whole into so many bytes.
fn whole_lines(lines: &[u8], room: u64) -> Option<usize> {
    let room = usize::try_from(room).unwrap_or(usize::MAX).min(lines.len());
    memchr::memrchr(b'\n', lines.get(..room)?).map(|end| end + 1)
}

/// Where the first line ends.
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
            assert_eq!(whole_lines(lines.as_bytes(), room), end, "{lines:?} {room}");
        }
        assert_eq!(
            (line_end(b"abc\nd\n"), line_end(b"abc"), line_end(b"\n")),
            (4, 3, 1)
        );
    }

    #[test]
    fn numbers_are_behind_the_whole_name() {
        assert_eq!(
            numbered(Path::new("/var/log/d.jsonl"), 12),
            Path::new("/var/log/d.jsonl.12")
        );
    }
}
