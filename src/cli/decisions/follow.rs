//! From file to file: the log over rotations, moves and cuts, once to its end (`--all`) or for ever (`--follow`).
//!
//! Files are known by their inodes, since their names change while they are read.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use super::line_reader::LogLineReader;
use super::log_files::{NamedFile, files_oldest_first, with_path};
use super::reader::{DecisionConsumer, DecisionLogReader, LogInputEnd};

/// How often the end of the file is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How often, and how many times, the oldest file is looked for while names change.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
const MAX_TRIES: usize = 200;
/// Lines that are shown of what is there already, and the bytes in which they are looked for.
const TAIL_LINES: usize = 10;
const TAIL_BYTES: u64 = 64 << 10;

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowStart {
    /// With the oldest of the rotated files.
    Oldest,
    /// With the whole file.
    Beginning,
    /// With its last lines.
    Tail,
}

/// When to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowUntil {
    /// Where the file that is written now ends.
    End,
    /// Never, unless reading or showing fails.
    Forever,
}

/// Reads the log from file to file.
pub(super) fn read<S: DecisionConsumer>(
    path: &Path,
    start: FollowStart,
    until: FollowUntil,
    reader: &mut DecisionLogReader<'_, S>,
) -> io::Result<()> {
    let failed = |error: io::Error| with_path(path, &error);
    let mut first = match start {
        FollowStart::Oldest => open_oldest(path)?,
        FollowStart::Beginning | FollowStart::Tail => NamedFile::open(path)?,
    };
    if until == FollowUntil::Forever {
        reader.set_endless();
    }
    // What is packed has no last lines before all of it is unpacked.
    let tail = start == FollowStart::Tail && !first.is_compressed();
    if tail {
        seek_tail(first.file()).map_err(failed)?;
    }
    let mut lines = begin_file(first, reader);
    if tail {
        reader.begin_mid_file(path.display().to_string());
    }
    loop {
        reader.read_rest(&mut lines, LogInputEnd::Growing)?;
        match next_step(path, lines.input().file()).map_err(failed)? {
            FollowStep::Wait if until == FollowUntil::End => return Ok(()),
            FollowStep::Wait => thread::sleep(POLL_INTERVAL),
            FollowStep::Truncated => {
                lines.input().file().rewind().map_err(failed)?;
                lines.restart();
                reader.begin_file(path.display().to_string());
            }
            FollowStep::Rotated => {
                let ours = lines.input().file().metadata().map_err(failed)?;
                let Some(next) = open_next(path, Some(&ours))? else {
                    thread::sleep(RETRY_INTERVAL);
                    continue;
                };
                // Its last lines may have come between the look at its end and the look at its name.
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

/// What is read once a file's end is reached.
#[derive(Debug, PartialEq, Eq)]
enum FollowStep {
    /// What is written next, if anything.
    Wait,
    /// The file again, from its beginning.
    Truncated,
    /// The file that was begun after it.
    Rotated,
}

fn next_step(path: &Path, file: &mut File) -> io::Result<FollowStep> {
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(found) if file_id(&found) == file_id(&ours) => {
            let cut = found.is_file() && found.len() < file.stream_position()?;
            Ok(if cut {
                FollowStep::Truncated
            } else {
                FollowStep::Wait
            })
        }
        Ok(_) => Ok(FollowStep::Rotated),
        // In the middle of a rotation there is none.
        Err(_) => Ok(FollowStep::Wait),
    }
}

/// What tells a file from another that has its name.
type LogFileId = (u64, u64);

/// A file of the log, as it was found under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LogFileEntry {
    path: PathBuf,
    id: LogFileId,
    modified: Option<SystemTime>,
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

/// Opens the file that was begun after this one, which may have been rotated several times since; for none the oldest.
///
/// None in the middle of a rotation, when names change or one is missing: to be asked again.
fn open_next(path: &Path, current: Option<&Metadata>) -> io::Result<Option<NamedFile>> {
    let files = stable_files(path);
    let Some(behind) = current.map_or_else(|| files.first(), |ours| next_after(&files, ours))
    else {
        return Ok(None);
    };
    let mut opened = match NamedFile::open(&behind.path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = file_id(&opened.file().metadata()?);
    Ok((found == behind.id).then_some(opened))
}

/// The log's files, the oldest first; empty if names changed between two looks.
fn stable_files(path: &Path) -> Vec<LogFileEntry> {
    let names = |files: &[LogFileEntry]| -> Vec<(PathBuf, LogFileId)> {
        files
            .iter()
            .map(|found| (found.path.clone(), found.id))
            .collect()
    };
    let (before, after) = (list_files(path), list_files(path));
    if names(&before) == names(&after) {
        after
    } else {
        Vec::new()
    }
}

/// Empty if a name is missing.
fn list_files(path: &Path) -> Vec<LogFileEntry> {
    let names = match files_oldest_first(path) {
        Ok(names) => names,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        // A directory that cannot be listed.
        Err(_) => vec![path.to_owned()],
    };
    let found = |path: PathBuf| {
        let metadata = fs::metadata(&path).ok()?;
        Some(LogFileEntry {
            path,
            id: file_id(&metadata),
            modified: metadata.modified().ok(),
        })
    };
    names
        .into_iter()
        .map(found)
        .collect::<Option<_>>()
        .unwrap_or_default()
}

/// The one behind ours; if ours is not among them any more (removed as the oldest, packed, or moved away) the first
/// that was written later, or else the last.
fn next_after<'f>(files: &'f [LogFileEntry], current: &Metadata) -> Option<&'f LogFileEntry> {
    if let Some(place) = files.iter().position(|file| file.id == file_id(current)) {
        return files.get(place + 1);
    }
    let written = current.modified().ok();
    files
        .iter()
        .find(|file| file.modified > written)
        .or(files.last())
}

fn file_id(metadata: &Metadata) -> LogFileId {
    (metadata.dev(), metadata.ino())
}

/// Goes to where the last lines begin.
fn seek_tail(file: &mut File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let begin = length.saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(begin))?;
    let mut tail = Vec::new();
    Read::by_ref(file).take(TAIL_BYTES).read_to_end(&mut tail)?;
    let mut ends = memchr::memrchr_iter(b'\n', &tail).skip(TAIL_LINES);
    let first = match ends.next() {
        Some(end) => end + 1,
        None if begin == 0 => 0,
        // Fewer lines than that: the first of them is cut.
        None => memchr::memchr(b'\n', &tail).map_or(tail.len(), |end| end + 1),
    };
    file.seek(SeekFrom::Start(begin + first as u64))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_behind_ours_is_known_by_its_inode_or_else_by_its_time() {
        let folder = std::env::temp_dir().join(format!("crawlgate-behind-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let make = |name: &str, minutes: u64| {
            let file = File::create(folder.join(name)).unwrap();
            file.set_modified(
                std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(60 * minutes),
            )
            .unwrap();
            file.metadata().unwrap()
        };
        let path = folder.join("d");
        let behind = |ours: Option<&Metadata>| {
            open_next(&path, ours)
                .unwrap()
                .map(|opened| opened.path().to_owned())
        };
        let named = |name: &str| Some(fs::canonicalize(&folder).unwrap().join(name));
        for (ours, minutes, next) in [
            ("d.2", 20, "d.1"),
            ("d.1", 30, "d"),
            ("removed", 10, "d.2"),
            ("packed", 20, "d.1"),
            ("moved", 35, "d"),
            ("late", 50, "d"),
        ] {
            for (name, minutes) in [("d", 40), ("d.1", 30), ("d.2", 20)] {
                make(name, minutes);
            }
            let ours = make(ours, minutes);
            assert_eq!(behind(Some(&ours)), named(next), "{next} {minutes}");
        }
        assert_eq!(behind(None), named("d.2"));
        let [current, older] = ["d", "d.1"].map(|name| fs::metadata(folder.join(name)).unwrap());
        assert_eq!(behind(Some(&current)), None);
        // In the middle of a rotation, for however long, there is none; the caller asks again.
        fs::rename(&path, folder.join("d.0")).unwrap();
        assert_eq!((behind(Some(&older)), behind(None)), (None, None));
        fs::rename(folder.join("d.0"), &path).unwrap();
        assert_eq!(behind(Some(&older)), named("d"));
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
