//! kill -9 under write load: the store opens, and contains everything that was reported as committed.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crawlgate::ledger::key::LedgerKey;
use crawlgate::store::ledger::{FeedCursor, Ledger, LedgerSettings};

use super::answered;
use crate::support::temp_dir::TempDir;

const ROUNDS: usize = 50;
/// Writes of each round, at least.
const WRITES: u64 = 1_000;
/// Writes between two waits.
const BATCH: u64 = 50;
/// Passes the directory and the first number to the process that is killed.
const FOLDER: &str = "CRAWLGATE_TEST_LEDGER";
const FIRST: &str = "CRAWLGATE_TEST_FIRST";

fn open(folder: &Path) -> Ledger {
    // Small enough for the tables to be written continuously.
    Ledger::open(
        folder,
        LedgerSettings {
            cache: 64 << 10,
            ..LedgerSettings::default()
        },
    )
    .unwrap()
}

fn url(n: u64) -> String {
    format!("http://h.test/{n}")
}

/// Every tenth URL does not exist, and has one event.
fn fails(n: u64) -> bool {
    n.is_multiple_of(10)
}

/// The killed process writes, and reports each commit.
#[test]
#[ignore = "runs only as the process that is killed"]
fn writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let ledger = open(Path::new(&folder));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    for batch in 0.. {
        for n in first + batch * BATCH..first + (batch + 1) * BATCH {
            ledger.record(answered("news", &url(n), if fails(n) { 404 } else { 200 }));
        }
        runtime.block_on(ledger.flush());
        let mut out = std::io::stdout().lock();
        writeln!(out, "\nkept {}", first + (batch + 1) * BATCH).unwrap();
        out.flush().unwrap();
    }
}

/// Writes for a while from this number on, and is killed; returns the number up to which everything is on disk.
fn killed(folder: &Path, first: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "ledger::killed::writes_until_it_is_killed",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .env(FOLDER, folder)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output =
        |line: std::io::Result<String>| line.unwrap().strip_prefix("kept ")?.parse::<u64>().ok();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let enough = lines
        .by_ref()
        .filter_map(output)
        .find(|kept| *kept >= first + WRITES);
    assert!(enough.is_some(), "it ended by itself");
    // At any point of a commit.
    sleep(Duration::from_micros(fastrand::u64(..20_000)));
    child.kill().unwrap();
    let kept = lines.filter_map(output).chain(enough).max().unwrap();
    child.wait().unwrap();
    kept
}

#[test]
fn committed_records_survive_kill_9() {
    let folder = TempDir::new();
    let mut first = 0;
    let mut kept = BTreeSet::new();
    for round in 0..ROUNDS {
        let upto = killed(folder.path(), first);
        let ledger = open(folder.path());
        for n in first..upto {
            let record = ledger.look_up(LedgerKey::for_url("news", &url(n)));
            let record =
                record.unwrap_or_else(|| panic!("round {round}: {n} of {upto} is missing"));
            assert_eq!(
                (&*record.url, record.origin_status),
                (&*url(n), Some(if fails(n) { 404 } else { 200 }))
            );
        }
        kept.extend(first..upto);
        // Uncommitted numbers may exist or not; the next round uses others.
        first = upto + 1_000_000;
    }
    let ledger = open(folder.path());
    assert!(kept.iter().all(|n| {
        ledger
            .look_up(LedgerKey::for_url("news", &url(*n)))
            .is_some()
    }));
    let records = ledger.records(None, usize::MAX).unwrap();
    let counted: u64 = ledger.stats().urls.values().sum();
    assert_eq!(
        (records.len() as u64, records.len() >= kept.len()),
        (counted, true)
    );
    let events = ledger.events(FeedCursor(0), usize::MAX).unwrap();
    let reported: BTreeSet<&str> = events.iter().map(|(_, event)| &*event.url).collect();
    assert_eq!(reported.len(), events.len(), "an event occurred twice");
    for (_, record) in &records {
        assert_eq!(
            reported.contains(&*record.url),
            record.origin_status == Some(404),
            "{}",
            record.url
        );
    }
    assert!(
        events
            .iter()
            .zip(1..)
            .all(|((cursor, _), number)| *cursor == FeedCursor(number))
    );
}
