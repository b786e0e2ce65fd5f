//! From file to file: the log over rotations, moves and cuts, once to its end (`--all`) or for ever (`--follow`).
//!
//! Files are known by their inodes, since their names change while they are read.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use super::files::{Named, named, with_rotated};
use super::lines::Lines;
use super::reading::{Ending, Reading, Sink};

/// How often the end of the file is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// How often, and how many times, the oldest file is looked for while names change.
const AGAIN: Duration = Duration::from_millis(10);
const TRIES: usize = 200;
/// Lines that are shown of what is there already, and the bytes in which they are looked for.
const SHOWN: usize = 10;
const TAIL: u64 = 64 << 10;

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// With the oldest of the rotated files.
    Oldest,
    /// With the whole file.
    Beginning,
    /// With its last lines.
    Tail,
}

/// When to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Where the file that is written now ends.
    End,
    /// Never, unless reading or showing fails.
    Forever,
}

/// Reads the log from file to file.
pub(super) fn read<S: Sink>(
    path: &Path,
    start: Start,
    until: Until,
    reading: &mut Reading<'_, S>,
) -> io::Result<()> {
    let failed = |error: io::Error| named(path, &error);
    let mut first = match start {
        Start::Oldest => open_oldest(path)?,
        Start::Beginning | Start::Tail => Named::open(path)?,
    };
    if until == Until::Forever {
        reading.has_no_end();
    }
    // What is packed has no last lines before all of it is unpacked.
    let tail = start == Start::Tail && !first.is_packed();
    if tail {
        seek_tail(first.file()).map_err(failed)?;
    }
    let mut lines = begin(first, reading);
    if tail {
        reading.begin_within(path.display().to_string());
    }
    loop {
        reading.rest(&mut lines, Ending::Growing)?;
        match whats_next(path, lines.input().file()).map_err(failed)? {
            Then::Wait if until == Until::End => return Ok(()),
            Then::Wait => thread::sleep(LOOK),
            Then::Cut => {
                lines.input().file().rewind().map_err(failed)?;
                lines.restart();
                reading.begin(path.display().to_string());
            }
            Then::Other => {
                let ours = lines.input().file().metadata().map_err(failed)?;
                let Some(next) = open_behind(path, Some(&ours))? else {
                    thread::sleep(AGAIN);
                    continue;
                };
                // Its last lines may have come between the look at its end and the look at its name.
                reading.rest(&mut lines, Ending::Final)?;
                lines = begin(next, reading);
            }
        }
    }
}

fn begin<S: Sink>(file: Named, reading: &mut Reading<'_, S>) -> Lines<Named> {
    reading.begin(file.path().display().to_string());
    Lines::new(file)
}

/// What is read once a file's end is reached.
#[derive(Debug, PartialEq, Eq)]
enum Then {
    /// What is written next, if anything.
    Wait,
    /// The file again, from its beginning.
    Cut,
    /// The file that was begun after it.
    Other,
}

fn whats_next(path: &Path, file: &mut File) -> io::Result<Then> {
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(found) if identity(&found) == identity(&ours) => {
            let cut = found.is_file() && found.len() < file.stream_position()?;
            Ok(if cut { Then::Cut } else { Then::Wait })
        }
        Ok(_) => Ok(Then::Other),
        // In the middle of a rotation there is none.
        Err(_) => Ok(Then::Wait),
    }
}

/// What tells a file from another that has its name.
type Identity = (u64, u64);

/// A file of the log, as it was found under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    path: PathBuf,
    identity: Identity,
    modified: Option<SystemTime>,
}

fn open_oldest(path: &Path) -> io::Result<Named> {
    for _ in 0..TRIES {
        if let Some(oldest) = open_behind(path, None)? {
            return Ok(oldest);
        }
        thread::sleep(AGAIN);
    }
    Named::open(path)
}

/// Opens the file that was begun after this one, which may have been rotated several times since; for none the oldest.
///
/// None in the middle of a rotation, when names change or one is missing: to be asked again.
fn open_behind(path: &Path, ours: Option<&Metadata>) -> io::Result<Option<Named>> {
    let files = settled(path);
    let Some(behind) = ours.map_or_else(|| files.first(), |ours| behind_ours(&files, ours)) else {
        return Ok(None);
    };
    let mut opened = match Named::open(&behind.path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = identity(&opened.file().metadata()?);
    Ok((found == behind.identity).then_some(opened))
}

/// The log's files, the oldest first; empty if names changed between two looks.
fn settled(path: &Path) -> Vec<Found> {
    let names = |files: &[Found]| -> Vec<(PathBuf, Identity)> {
        files
            .iter()
            .map(|found| (found.path.clone(), found.identity))
            .collect()
    };
    let (before, after) = (found(path), found(path));
    if names(&before) == names(&after) {
        after
    } else {
        Vec::new()
    }
}

/// Empty if a name is missing.
fn found(path: &Path) -> Vec<Found> {
    let names = match with_rotated(path) {
        Ok(names) => names,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        // A directory that cannot be listed.
        Err(_) => vec![path.to_owned()],
    };
    let found = |path: PathBuf| {
        let metadata = fs::metadata(&path).ok()?;
        Some(Found {
            path,
            identity: identity(&metadata),
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
fn behind_ours<'f>(files: &'f [Found], ours: &Metadata) -> Option<&'f Found> {
    if let Some(place) = files
        .iter()
        .position(|file| file.identity == identity(ours))
    {
        return files.get(place + 1);
    }
    let written = ours.modified().ok();
    files
        .iter()
        .find(|file| file.modified > written)
        .or(files.last())
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// Goes to where the last lines begin.
fn seek_tail(file: &mut File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let begin = length.saturating_sub(TAIL);
    file.seek(SeekFrom::Start(begin))?;
    let mut tail = Vec::new();
    Read::by_ref(file).take(TAIL).read_to_end(&mut tail)?;
    let mut ends = memchr::memrchr_iter(b'\n', &tail).skip(SHOWN);
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
            open_behind(&path, ours)
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
        let long = "x".repeat(TAIL as usize);
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
