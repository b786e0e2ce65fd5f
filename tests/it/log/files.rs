//! The file of the log over time: rotated by size, moved and truncated by others, incomplete, and on a full disk.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::*;
use crate::support::temp_dir::TempDir;

fn bench(path: &Path, size: u64, keep: u32) -> LogBench {
    let rotate = Some(LogFileRotation {
        size,
        keep,
        max_age: None,
    });
    LogBench::to(
        LogDestination::Path(path.to_owned()),
        LogSettings {
            rotate,
            ..LogSettings::default()
        },
    )
}

impl LogBench {
    /// Logs some requests and waits until they are written or dropped.
    fn log_some(&self, from: usize, to: usize) {
        (from..to).for_each(|n| self.reject(&format!("http://h.example/{n}")));
        assert_eq!(self.log().flush(LONG), LogCloseResult::Done);
    }
}

fn numbered(path: &Path, number: usize) -> PathBuf {
    PathBuf::from(format!("{}.{number}", path.display()))
}

/// The numbers of the requests in a file; a line that is no JSON fails.
fn numbers(path: &Path) -> Vec<usize> {
    let text = fs::read_to_string(path).unwrap();
    assert!(
        text.is_empty() || text.ends_with('\n'),
        "{}",
        path.display()
    );
    text.lines()
        .map(|line: &str| {
            let line: Value = serde_json::from_str(line).expect(line);
            line["url"]
                .as_str()
                .unwrap()
                .rsplit('/')
                .next()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect()
}

/// The file and the rotated files, the oldest first.
fn all(path: &Path) -> Vec<PathBuf> {
    let older = (1..)
        .map(|number| numbered(path, number))
        .take_while(|path| path.exists());
    let mut files: Vec<PathBuf> = older.collect();
    files.reverse();
    files.push(path.to_owned());
    files
}

#[test]
fn under_load_every_line_is_whole_in_exactly_one_file() {
    let folder = TempDir::new();
    let path = folder.path().join("d.jsonl");
    let bench = bench(&path, 50_000, 1_000);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let bench = &bench;
            scope.spawn(move || {
                for n in 0..2_000 {
                    bench.reject(&format!("http://h.example/{}", thread * 2_000 + n));
                    if n % 100 == 0 {
                        bench.log().flush(LONG);
                    }
                }
            });
        }
    });
    assert_eq!(bench.log().close(LONG), LogCloseResult::Done);
    let files = all(&path);
    assert!(files.len() > 50, "{} files", files.len());
    let mut seen = BTreeSet::new();
    let mut count = 0;
    for file in &files {
        let bytes = fs::metadata(file).unwrap().len();
        assert!(bytes <= 50_000, "{} {bytes}", file.display());
        assert!(
            bytes > 49_000 || *file == path,
            "{} {bytes}",
            file.display()
        );
        assert_eq!(
            fs::metadata(file).unwrap().permissions().mode() & 0o137,
            0,
            "{}",
            file.display()
        );
        let numbers = numbers(file);
        count += numbers.len();
        seen.extend(numbers);
    }
    assert_eq!((count, seen.len(), bench.dropped()), (16_000, 16_000, 0));
}

#[test]
fn the_oldest_goes_and_the_order_stays() {
    let folder = TempDir::new();
    let path = folder.path().join("d.jsonl");
    let bench = bench(&path, 2_000, 3);
    bench.log_some(0, 100);
    let files = all(&path);
    assert_eq!(files.len(), 4);
    let kept: Vec<usize> = files.iter().flat_map(|file| numbers(file)).collect();
    assert!(kept.len() < 40 && kept.last() == Some(&99), "{kept:?}");
    assert!(
        kept.windows(2).all(|pair| pair[0] + 1 == pair[1]),
        "{kept:?}"
    );
}

#[test]
fn a_gap_is_filled_before_anything_is_removed() {
    let folder = TempDir::new();
    let path = folder.path().join("d.jsonl");
    for (name, text) in [
        ("d.jsonl.1", "one"),
        ("d.jsonl.2", "two"),
        ("d.jsonl.4", "four"),
    ] {
        folder.write(name, text);
    }
    let bench = bench(&path, 1, 5);
    bench.log_some(0, 2);
    assert_eq!(
        (numbers(&numbered(&path, 1)), numbers(&path)),
        (vec![0], vec![1])
    );
    assert_eq!(
        [2, 3, 4].map(|number| fs::read_to_string(numbered(&path, number)).unwrap()),
        ["one", "two", "four"]
    );
}

#[test]
fn without_kept_files_the_log_is_truncated() {
    let folder = TempDir::new();
    let path = folder.path().join("d.jsonl");
    let bench = bench(&path, 2_000, 0);
    bench.log_some(0, 50);
    assert!(fs::metadata(&path).unwrap().len() <= 2_000 && !numbered(&path, 1).exists());
    assert_eq!(numbers(&path).last(), Some(&49));
}

#[test]
fn without_a_size_it_only_grows() {
    let folder = TempDir::new();
    let path = folder.path().join("d.jsonl");
    let settings = LogSettings {
        rotate: None,
        ..LogSettings::default()
    };
    let bench = LogBench::to(LogDestination::Path(path.clone()), settings);
    bench.log_some(0, 1_000);
    assert_eq!(
        (numbers(&path).len(), numbered(&path, 1).exists()),
        (1_000, false)
    );
}

/// Rotation by logrotate, with `create`, without it, and with `copytruncate`; and a manual deletion.
#[test]
fn changes_of_the_file_by_others_are_noticed() {
    let folder = TempDir::new();
    let path = folder.path().join("d.jsonl");
    let bench = bench(&path, 1 << 20, 2);
    bench.log_some(0, 2);
    fs::rename(&path, folder.path().join("moved")).unwrap();
    bench.log_some(2, 4);
    assert_eq!(
        (numbers(&folder.path().join("moved")), numbers(&path)),
        (vec![0, 1], vec![2, 3])
    );
    fs::rename(&path, folder.path().join("moved")).unwrap();
    fs::write(&path, "").unwrap();
    bench.log_some(4, 6);
    assert_eq!(numbers(&path), [4, 5]);
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(0)
        .unwrap();
    bench.log_some(6, 7);
    assert_eq!(numbers(&path), [6]);
    fs::remove_file(&path).unwrap();
    bench.log_some(7, 8);
    assert_eq!((numbers(&path), bench.dropped()), (vec![7], 0));
}

/// A killed process leaves an incomplete line: the next process begins a new one.
#[test]
fn an_incomplete_last_line_stays_separate() {
    let folder = TempDir::new();
    let path = folder.write("d.jsonl", "{\"whole\":1}\n{\"ts\":\"2026-0");
    bench(&path, 1 << 20, 2).log_some(0, 1);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[1]), (3, "{\"ts\":\"2026-0"));
    assert!(serde_json::from_str::<Value>(lines[2]).is_ok());
    // The same if another program puts such a file in its place.
    let other = folder.write("other", "half");
    let bench = bench(&path, 1 << 20, 2);
    fs::rename(other, &path).unwrap();
    bench.log_some(1, 2);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("half\n{\"ts\""), "{text}");
    assert!(text.lines().count() == 2, "{text}");
}

/// A directory at the path simulates a file without write permission, which would not stop root.
#[test]
fn a_file_that_cannot_be_rotated_grows_until_it_can_be() {
    for on_full in [LogFullAction::Drop, LogFullAction::Wait] {
        let folder = TempDir::new();
        let path = folder.path().join("d.jsonl");
        let rotate = Some(LogFileRotation {
            size: 1_000,
            keep: 1,
            max_age: None,
        });
        let settings = LogSettings {
            rotate,
            on_full,
            ..LogSettings::default()
        };
        let bench = LogBench::to(LogDestination::Path(path.clone()), settings);
        fs::create_dir(numbered(&path, 1)).unwrap();
        bench.log_some(0, 20);
        assert_eq!(numbers(&path), (0..20).collect::<Vec<_>>());
        let warning = bench.log().warning().unwrap();
        assert!(
            warning.starts_with("grows: it cannot be rotated: "),
            "{warning}"
        );
        // The path is not tried again at each write.
        fs::remove_dir(numbered(&path, 1)).unwrap();
        bench.manual_clock.advance(Duration::from_secs(59));
        bench.log_some(20, 21);
        assert!(bench.log().warning().is_some() && !numbered(&path, 1).exists());
        bench.manual_clock.advance(Duration::from_secs(1));
        bench.log_some(21, 22);
        assert_eq!(bench.log().warning(), None);
        assert_eq!(numbers(&numbered(&path, 1)), (0..21).collect::<Vec<_>>());
        assert_eq!((numbers(&path), bench.dropped()), (vec![21], 0));
    }
}

#[test]
fn a_directory_that_is_gone_loses_lines_until_it_is_back() {
    let folder = TempDir::new();
    let path = folder.path().join("sub/d.jsonl");
    fs::create_dir(folder.path().join("sub")).unwrap();
    let bench = bench(&path, 1 << 20, 2);
    bench.log_some(0, 3);
    fs::remove_dir_all(folder.path().join("sub")).unwrap();
    bench.log_some(3, 7);
    assert!(bench.dropped() == 4 && bench.log().warning().unwrap().contains("cannot be written"));
    fs::create_dir(folder.path().join("sub")).unwrap();
    bench.log_some(7, 9);
    assert_eq!((numbers(&path), bench.dropped()), (vec![7, 8], 4));
    // After a move with its directory the file still has a name: the log continues there, and no line is lost.
    fs::rename(folder.path().join("sub"), folder.path().join("away")).unwrap();
    bench.log_some(9, 10);
    assert_eq!(numbers(&folder.path().join("away/d.jsonl")), vec![7, 8, 9]);
    assert_eq!(bench.dropped(), 4);
}

#[test]
fn a_link_stays_and_its_file_is_rotated() {
    let folder = TempDir::new();
    let link = folder.path().join("link");
    let real = folder.path().join("real");
    fs::write(&real, "").unwrap();
    symlink(&real, &link).unwrap();
    bench(&link, 1_000, 9).log_some(0, 6);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(numbered(&real, 1).exists() && !numbered(&link, 1).exists());
    assert_eq!(all(&real).iter().flat_map(|file| numbers(file)).count(), 6);
}

/// A file such as /dev/stdout can be renamed, but not created again.
#[test]
fn a_path_that_leads_to_an_open_file_is_not_rotated_for_ever() {
    let folder = TempDir::new();
    let real = folder.write("real", "");
    let open = fs::File::options().append(true).open(&real).unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
    bench(Path::new(&path), 1_000, 9).log_some(0, 30);
    assert_eq!(numbers(&numbered(&real, 1)).len(), 30);
    assert!(!numbered(&real, 2).exists());
}

#[test]
fn other_file_types_are_not_rotated() {
    let folder = TempDir::new();
    let path = folder.path().join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    let reader = std::thread::spawn({
        let path = path.clone();
        move || fs::read_to_string(path).unwrap().lines().count()
    });
    let bench = bench(&path, 500, 3);
    bench.log_some(0, 20);
    assert_eq!(bench.log().close(LONG), LogCloseResult::Done);
    drop(bench);
    assert_eq!(reader.join().unwrap(), 20);
    assert!(fs::metadata(&path).unwrap().file_type().is_fifo() && !numbered(&path, 1).exists());
}

/// The first day of the manual clock, 2026-01-01, counted from 1970.
const FIRST_DAY: u64 = 20_454;

fn set_modified(path: &Path, days: u64) {
    set_modified_on(path, FIRST_DAY + days);
}

fn set_modified_on(path: &Path, day: u64) {
    let time = UNIX_EPOCH + Duration::from_secs(day * 86_400 + 3_600);
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

const DAY: Duration = Duration::from_secs(86_400);

fn daily(path: &Path, keep: u32) -> LogBench {
    let rotate = Some(LogFileRotation {
        size: LogFileRotation::NO_SIZE,
        keep,
        max_age: Some(3 * DAY),
    });
    LogBench::to(
        LogDestination::Path(path.to_owned()),
        LogSettings {
            rotate,
            ..LogSettings::default()
        },
    )
}

#[test]
fn with_a_maximum_age_a_file_has_the_lines_of_one_day() {
    let folder = TempDir::new();
    let path = folder.path().join("d.jsonl");
    let bench = daily(&path, 10);
    bench.log_some(0, 2);
    bench.manual_clock.advance(DAY - Duration::from_secs(1));
    bench.log_some(2, 3);
    assert_eq!(numbers(&path), [0, 1, 2]);
    bench.manual_clock.advance(Duration::from_secs(1));
    bench.log_some(3, 5);
    assert_eq!(numbers(&path), [3, 4]);
    assert_eq!(numbers(&numbered(&path, 1)), [0, 1, 2]);
    // Days without a line have no file.
    bench.manual_clock.advance(DAY * 2);
    bench.log_some(5, 6);
    assert_eq!(numbers(&path), [5]);
    assert_eq!(numbers(&numbered(&path, 1)), [3, 4]);
    assert!(!numbered(&path, 3).exists());
}

#[test]
fn files_are_removed_after_the_maximum_age() {
    let folder = TempDir::new();
    let path = folder.path().join("d.jsonl");
    let bench = daily(&path, 10);
    for day in 0..6 {
        bench.log_some(day, day + 1);
        set_modified(&path, day as u64);
        bench.manual_clock.advance(DAY);
    }
    // One that was packed by another program.
    let packed = folder.path().join("d.jsonl.7.gz");
    fs::write(&packed, "").unwrap();
    set_modified(&packed, 0);
    bench.log_some(6, 7);
    let kept: Vec<usize> = all(&path).iter().flat_map(|path| numbers(path)).collect();
    assert_eq!(kept, [3, 4, 5, 6]);
    assert!(!packed.exists());
}

/// The time of the last line is that of the file, so that a restart makes no difference.
#[test]
fn a_restart_keeps_days_apart_and_removes_old_files() {
    let folder = TempDir::new();
    let path = folder.path().join("d.jsonl");
    let bench = daily(&path, 10);
    bench.log_some(0, 1);
    drop(bench);
    set_modified(&path, 0);
    let bench = daily(&path, 10);
    bench.log_some(1, 2);
    assert_eq!(numbers(&path), [0, 1]);
    drop(bench);
    fs::rename(&path, numbered(&path, 1)).unwrap();
    fs::write(&path, "").unwrap();
    set_modified_on(&numbered(&path, 1), 20_000);
    drop(daily(&path, 10));
    assert!(!numbered(&path, 1).exists());
    // A file of an earlier day is rotated by the first line.
    fs::write(&path, "{\"url\":\"http://h.example/7\"}\n").unwrap();
    set_modified_on(&path, FIRST_DAY - 1);
    let bench = daily(&path, 10);
    bench.log_some(8, 9);
    assert_eq!(
        (numbers(&path), numbers(&numbered(&path, 1))),
        (vec![8], vec![7])
    );
}
