//! Hostile sources: each ends soon, in little memory, with an error that names the cause or with a report that names what
//! is not converted. None of them opens a file outside of its directory.
//!
//! Each source is imported in a process of its own, which measures the processor time and the memory that it took.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests"
)]

mod files;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use crawlgate_import::{FileSystem, ImportError, ImportInput, ReportList, import};
use crawlgate_policy::FileError;

use files::{HOSTILE, HostileSource};

/// The name of the source that a process imports.
const CHILD: &str = "CRAWLGATE_HOSTILE";

/// The memory that each import may take.
const MEMORY: usize = 64 << 20;
/// The processor time that each import may take, and that of each 4 MiB of a large file.
const TIME: Duration = Duration::from_secs(1);
/// A build without optimization takes longer.
const SLOWDOWN: u32 = if cfg!(debug_assertions) { 10 } else { 1 };

/// Files that record which of them are opened. All others are outside of the directory.
struct TracedFiles {
    files: BTreeMap<&'static str, Vec<u8>>,
    opened: RefCell<Vec<String>>,
}

impl FileSystem for TracedFiles {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        self.opened.borrow_mut().push(path.to_owned());
        self.files.get(path).cloned().ok_or(FileError::NotFound)
    }

    fn list(&self, path: &str) -> Result<Vec<String>, FileError> {
        self.opened.borrow_mut().push(path.to_owned());
        Err(FileError::NotFound)
    }
}

/// Imports a source, and returns its errors, or what is not converted, as text.
fn outcome(source: &HostileSource, files: &TracedFiles) -> String {
    let first = files.files.keys().find(|name| name.starts_with("source"));
    let mut input = ImportInput::new(files, first.copied());
    input
        .variables
        .push(("host".to_owned(), "a.example".to_owned()));
    match import(source.system, &input) {
        Err(error @ ImportError::Defect(_)) => panic!("{error}"),
        Err(error) => format!("error: {error}"),
        Ok(imported) => {
            assert_eq!(imported.divergences, []);
            let parts = imported.report.list(ReportList::NotConverted).take(20);
            let parts = parts.map(|part| format!("{} {:?}", part.text, part.outcome()));
            format!("not converted: {}", parts.collect::<Vec<_>>().join(" "))
        }
    }
}

/// Returns a number of `/proc/self/status`, in bytes.
fn status(key: &str) -> usize {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .unwrap();
    let kibibytes = line.trim_matches([':', ' ', '\t', 'k', 'B']);
    kibibytes.parse::<usize>().unwrap() << 10
}

fn processor_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = text.split_whitespace().next().unwrap();
    Duration::from_nanos(nanoseconds.parse().unwrap())
}

/// The process that imports one source.
#[test]
fn one_source() {
    let Ok(name) = std::env::var(CHILD) else {
        return;
    };
    let source = HOSTILE.iter().find(|source| source.name == name).unwrap();
    let before = status("VmRSS");
    let files = TracedFiles {
        files: (source.files)().into_iter().collect(),
        opened: RefCell::default(),
    };
    let size: usize = files.files.values().map(Vec::len).sum();
    let begin = processor_time();
    let outcome = outcome(source, &files);
    let time = processor_time() - begin;
    let memory = status("VmHWM").saturating_sub(before);
    let shown: String = outcome.chars().take(300).collect();
    println!(
        "HOSTILE {name}: {time:?}, {} MiB of {} KiB: {shown}",
        memory >> 20,
        size >> 10
    );
    assert!(outcome.contains(source.message), "{name}: {shown}");
    let outside =
        |path: &String| path.starts_with('/') || path.contains("..") || path.contains(':');
    let opened = files.opened.into_inner();
    assert!(!opened.iter().any(outside), "{name}: {opened:?}");
    let megabytes = u32::try_from(size >> 22).unwrap();
    assert!(
        time < (TIME + TIME * megabytes) * SLOWDOWN,
        "{name}: {time:?}"
    );
    assert!(
        memory <= MEMORY + 4 * size,
        "{name}: {memory} bytes for {size}"
    );
}

#[test]
fn hostile_sources_end_soon_in_little_memory_with_a_named_error() {
    if std::env::var_os(CHILD).is_some() || !cfg!(target_os = "linux") {
        return;
    }
    let mut failed = Vec::new();
    for source in HOSTILE {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["one_source", "--exact", "--nocapture"]);
        let output = child.env(CHILD, source.name).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let shown: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("HOSTILE"))
            .collect();
        println!("{}", shown.join("\n"));
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            failed.push(format!("{}: {} {errors}", source.name, output.status));
        }
    }
    assert!(HOSTILE.len() >= 24);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
