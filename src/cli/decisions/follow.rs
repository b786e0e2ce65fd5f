//! Reads the log across rotations, moves and truncations, once to its end (`--all`) or continuously (`--follow`).
//!
//! Files are identified by their inodes, since their names may change while they are read.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use super::line_reader::LogLineReader;
use super::log_files::{NamedFile, files_oldest_first, with_path};
use super::reader::{DecisionConsumer, DecisionLogReader, LogInputEnd};

/// The interval at which the end of the file is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The interval between attempts to list the files during a rotation.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// The maximum number of attempts to find the oldest file.
const MAX_TRIES: usize = 200;
/// The number of attempts to find a file that may not exist at all: 0.2 s, many times what a rotation takes.
const TRIES_TO_FIND: usize = 20;
/// The number of existing lines with which [`FollowStart::Tail`] starts.
const TAIL_LINES: usize = 10;
/// The number of bytes at the end of the file in which these lines are searched.
const TAIL_BYTES: u64 = 64 << 10;

/// The start of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowStart {
    /// The oldest of the rotated files.
    Oldest,
    /// The beginning of the current file.
    Beginning,
    /// The last lines of the current file.
    Tail,
}

/// The end of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowUntil {
    /// The end of the current file.
    End,
    /// Never, unless reading or writing fails.
    Forever,
}

/// Reads the files of the log in order.
pub(super) fn read<S: DecisionConsumer>(
    path: &Path,
    start: FollowStart,
    end: FollowUntil,
    reader: &mut DecisionLogReader<'_, S>,
) -> io::Result<()> {
    let mut first = match start {
        FollowStart::Oldest => open_oldest(path)?,
        FollowStart::Beginning | FollowStart::Tail => NamedFile::open(path)?,
    };
    if end == FollowUntil::Forever {
        reader.set_endless();
    }
    // The last lines of a compressed file are known only after all of it is decompressed.
    let tail = start == FollowStart::Tail && !first.is_compressed();
    if tail {
        seek_tail(first.file()).map_err(|error| with_path(path, &error))?;
    }
    let mut lines = begin_file(first, reader);
    if tail {
        reader.begin_mid_file(path.display().to_string());
    }
    loop {
        reader.read_rest(&mut lines, LogInputEnd::Growing)?;
        let step =
            next_step(path, lines.input().file()).map_err(|error| with_path(path, &error))?;
        match step {
            FollowStep::Wait if end == FollowUntil::End => return Ok(()),
            FollowStep::Wait => thread::sleep(POLL_INTERVAL),
            FollowStep::Truncated => {
                let file = lines.input().file();
                file.rewind().map_err(|error| with_path(path, &error))?;
                lines.restart();
                reader.begin_file(path.display().to_string());
            }
            FollowStep::Rotated => {
                let current = lines.input().file().metadata();
                let current = current.map_err(|error| with_path(path, &error))?;
                let Some(next) = open_next(path, Some(&current))? else {
                    thread::sleep(RETRY_INTERVAL);
                    continue;
                };
                // Lines may have been appended to the old file after its end was read and before it was renamed.
                reader.read_rest(&mut lines, LogInputEnd::Final)?;
                lines = begin_file(next, reader);
            }
        }
    }
}

fn begin_file<S: DecisionConsumer>(
    file: NamedFile,
    reader: &mut DecisionLogReader<'_, S>,
) -> LogLineReader<NamedFile> {
    reader.begin_file(file.path().display().to_string());
    LogLineReader::new(file)
}

/// The next step at the end of a file.
#[derive(Debug, PartialEq, Eq)]
enum FollowStep {
    /// Wait until more is written.
    Wait,
    /// Read the file again, since it was truncated.
    Truncated,
    /// Read the next file, since this one was rotated.
    Rotated,
}

fn next_step(path: &Path, file: &mut File) -> io::Result<FollowStep> {
    let current = file.metadata()?;
    match fs::metadata(path) {
        Ok(found) if file_id(&found) == file_id(&current) => {
            let truncated = found.is_file() && found.len() < file.stream_position()?;
            Ok(if truncated {
                FollowStep::Truncated
            } else {
                FollowStep::Wait
            })
        }
        Ok(_) => Ok(FollowStep::Rotated),
        // The file does not exist for a moment during a rotation.
        Err(_) => Ok(FollowStep::Wait),
    }
}

/// The device and inode of a file, which stay the same when it is renamed.
type LogFileId = (u64, u64);

/// A file of the log with the name at which it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LogFileEntry {
    path: PathBuf,
    id: LogFileId,
    modified: Option<SystemTime>,
}

/// Checks that a log exists, as it does but for a moment during a rotation.
pub(super) fn check_exists(path: &Path) -> io::Result<()> {
    for _ in 1..TRIES_TO_FIND {
        if fs::metadata(path).is_ok() {
            return Ok(());
        }
        thread::sleep(RETRY_INTERVAL);
    }
    fs::metadata(path).map(|_| ())
}

fn open_oldest(path: &Path) -> io::Result<NamedFile> {
    for _ in 0..MAX_TRIES {
        if let Some(oldest) = open_next(path, None)? {
            return Ok(oldest);
        }
        thread::sleep(RETRY_INTERVAL);
    }
    NamedFile::open(path)
}

/// Opens the file that was started after the current one, which may have been rotated several times since, or the oldest
/// file if there is no current one.
///
/// Returns `None` during a rotation, when names change or a file is missing. The caller then tries again.
fn open_next(path: &Path, current: Option<&Metadata>) -> io::Result<Option<NamedFile>> {
    let files = stable_files(path);
    let next = match current {
        Some(current) => next_after(&files, current),
        None => files.first(),
    };
    let Some(next) = next else {
        return Ok(None);
    };
    let mut opened = match NamedFile::open(&next.path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let id = file_id(&opened.file().metadata()?);
    Ok((id == next.id).then_some(opened))
}

/// Lists the files of the log twice, the oldest first; empty if the names differ between the two lists.
fn stable_files(path: &Path) -> Vec<LogFileEntry> {
    let before = list_files(path);
    let after = list_files(path);
    let same_names = before.len() == after.len()
        && before
            .iter()
            .zip(&after)
            .all(|(a, b)| a.path == b.path && a.id == b.id);
    if same_names { after } else { Vec::new() }
}

/// Lists the files of the log, the oldest first; empty if a file disappears meanwhile.
fn list_files(path: &Path) -> Vec<LogFileEntry> {
    let names = match files_oldest_first(path) {
        Ok(names) => names,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        // The directory cannot be listed.
        Err(_) => vec![path.to_owned()],
    };
    let mut files = Vec::with_capacity(names.len());
    for path in names {
        let Ok(metadata) = fs::metadata(&path) else {
            return Vec::new();
        };
        files.push(LogFileEntry {
            path,
            id: file_id(&metadata),
            modified: metadata.modified().ok(),
        });
    }
    files
}

/// Returns the file after the current one. If the current one is no longer listed (deleted as the oldest, compressed, or
/// moved away), returns the first file that was modified later, or else the last.
fn next_after<'f>(files: &'f [LogFileEntry], current: &Metadata) -> Option<&'f LogFileEntry> {
    if let Some(index) = files.iter().position(|file| file.id == file_id(current)) {
        return files.get(index + 1);
    }
    let modified = current.modified().ok();
    files
        .iter()
        .find(|file| file.modified > modified)
        .or(files.last())
}

fn file_id(metadata: &Metadata) -> LogFileId {
    (metadata.dev(), metadata.ino())
}

/// Seeks to the start of the last lines.
fn seek_tail(file: &mut File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let start = length.saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    Read::by_ref(file).take(TAIL_BYTES).read_to_end(&mut tail)?;
    let mut ends = memchr::memrchr_iter(b'\n', &tail).skip(TAIL_LINES);
    let first = match ends.next() {
        Some(end) => end + 1,
        None if start == 0 => 0,
        // There are fewer complete lines, and the first line is cut.
        None => memchr::memchr(b'\n', &tail).map_or(tail.len(), |end| end + 1),
    };
    file.seek(SeekFrom::Start(start + first as u64))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_file_is_found_by_its_inode_or_else_by_its_time() {
        let folder = std::env::temp_dir().join(format!("crawlgate-next-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let create = |name: &str, minutes: u64| {
            let file = File::create(folder.join(name)).unwrap();
            file.set_modified(
                std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(60 * minutes),
            )
            .unwrap();
            file.metadata().unwrap()
        };
        let path = folder.join("d");
        let next_path = |current: Option<&Metadata>| {
            open_next(&path, current)
                .unwrap()
                .map(|opened| opened.path().to_owned())
        };
        let expected = |name: &str| Some(fs::canonicalize(&folder).unwrap().join(name));
        for (current, minutes, next) in [
            ("d.2", 20, "d.1"),
            ("d.1", 30, "d"),
            ("removed", 10, "d.2"),
            ("packed", 20, "d.1"),
            ("moved", 35, "d"),
            ("late", 50, "d"),
        ] {
            for (name, minutes) in [("d", 40), ("d.1", 30), ("d.2", 20)] {
                create(name, minutes);
            }
            let current = create(current, minutes);
            assert_eq!(
                next_path(Some(&current)),
                expected(next),
                "{next} {minutes}"
            );
        }
        assert_eq!(next_path(None), expected("d.2"));
        let [current, older] = ["d", "d.1"].map(|name| fs::metadata(folder.join(name)).unwrap());
        assert_eq!(next_path(Some(&current)), None);
        // During a rotation, there is no next file; the caller tries again.
        fs::rename(&path, folder.join("d.0")).unwrap();
        assert_eq!(next_path(Some(&older)), None);
        assert_eq!(next_path(None), None);
        fs::rename(folder.join("d.0"), &path).unwrap();
        assert_eq!(next_path(Some(&older)), expected("d"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_last_lines_are_found() {
        let path = std::env::temp_dir().join(format!("crawlgate-tail-{}", std::process::id()));
        let long = "x".repeat(TAIL_BYTES as usize);
        for (text, expected) in [
            ("", ""),
            ("a\nb\n", "a\nb\n"),
            (
                "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n",
                "2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n",
            ),
            (
                "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\nhalf",
                "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\nhalf",
            ),
            (&format!("a\n{long}\nb\nc\n"), "b\nc\n"),
        ] {
            fs::write(&path, text).unwrap();
            let mut file = File::open(&path).unwrap();
            seek_tail(&mut file).unwrap();
            let mut found = String::new();
            file.read_to_string(&mut found).unwrap();
            assert_eq!(found, expected);
        }
        fs::remove_file(path).unwrap();
    }
}
