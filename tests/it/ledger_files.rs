//! Files of version 0.1.0, in `tests/ledger_files`: they are opened, read, and written again to the same bytes.
//!
//! The rows of the ledger and the lines of the decision log are encoded again by unit tests next to their code.

use std::fs;
use std::path::{Path, PathBuf};

use crawlgate::feed::delivered_cursor;
use crawlgate::ledger::key::LedgerKey;
use crawlgate::metrics::labels::FeedTarget;
use crawlgate::metrics::log::filter::{LogFilter, LogFilterSet};
use crawlgate::report::{event, record};
use crawlgate::store::budgets::BudgetsFile;
use crawlgate::store::ledger::{FeedCursor, Ledger, LedgerSettings};
use crawlgate::store::stops::StopsFile;

use serde_json::Value as Json;

use crate::support::temp_dir::TempDir;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/ledger_files")
        .join(name)
}

fn open_ledger(folder: &TempDir) -> Ledger {
    fs::copy(file("ledger.redb"), folder.path().join("ledger.redb")).unwrap();
    Ledger::open_existing(folder.path(), LedgerSettings::default()).unwrap()
}

fn records(ledger: &Ledger) -> Vec<String> {
    let records = ledger.records(None, 1_000).unwrap();
    let documents = records
        .iter()
        .map(|(key, stored)| record::to_json(*key, stored));
    documents.map(without_new_keys).collect()
}

/// Removes the keys that version 0.1.0 did not have. Its records have no values for them.
fn without_new_keys(mut document: Json) -> String {
    for (key, value) in [
        ("lost", Json::Null),
        ("refused_unasked", Json::Bool(false)),
        ("pending_removal", Json::Null),
        ("pending_since", Json::Null),
    ] {
        let removed = document.as_object_mut().unwrap().shift_remove(key);
        assert_eq!(removed, Some(value), "{key}");
    }
    document.to_string()
}

fn events(ledger: &Ledger) -> Vec<String> {
    let events = ledger.events(FeedCursor(0), 1_000).unwrap();
    events
        .iter()
        .map(|(cursor, stored)| event::to_json(cursor.0, stored).to_string())
        .collect()
}

fn lines(name: &str) -> Vec<String> {
    let text = fs::read_to_string(file(name)).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_ledger_is_read_with_all_records_events_and_cursors() {
    let folder = TempDir::new();
    let ledger = open_ledger(&folder);
    assert_eq!(records(&ledger), lines("records.jsonl"));
    assert_eq!(events(&ledger), lines("events.jsonl"));
    fn cursor(ledger: &crawlgate::pipeline::request::Ledger, targets: &[FeedTarget]) -> FeedCursor {
        delivered_cursor(ledger, targets.iter().copied())
    }
    assert_eq!(cursor(&ledger, &[FeedTarget::File]), FeedCursor(7));
    assert_eq!(
        cursor(&ledger, &[FeedTarget::File, FeedTarget::Webhook]),
        FeedCursor(5)
    );
    ledger.store_value("feed:webhook", 9_u64.to_be_bytes().to_vec());
    ledger.close();
    drop(ledger);
    let ledger = Ledger::open_existing(folder.path(), LedgerSettings::default()).unwrap();
    assert_eq!(records(&ledger), lines("records.jsonl"));
    assert_eq!(events(&ledger), lines("events.jsonl"));
    let key = LedgerKey::for_url("news", "http://h.test/1");
    assert!(ledger.look_up(key).is_some());
}

#[test]
fn stops_and_budgets_are_written_to_the_same_bytes() {
    let folder = TempDir::new();
    fs::copy(file("stops.json"), folder.path().join("stops.json")).unwrap();
    fs::copy(file("budgets.json"), folder.path().join("budgets.json")).unwrap();
    let stops_file = StopsFile::in_directory(folder.path());
    let stops = stops_file.read().unwrap();
    assert_eq!((stops.stops.len(), stops.next_id), (3, 8));
    let budgets_file = BudgetsFile::in_directory(folder.path());
    let budgets = budgets_file.read().unwrap();
    assert_eq!(budgets.0.len(), 3);
    let copy = TempDir::new();
    StopsFile::in_directory(copy.path()).write(&stops).unwrap();
    BudgetsFile::in_directory(copy.path())
        .write(&budgets)
        .unwrap();
    for name in ["stops.json", "budgets.json"] {
        let written = fs::read_to_string(copy.path().join(name)).unwrap();
        assert_eq!(written, fs::read_to_string(file(name)).unwrap(), "{name}");
    }
}

#[tokio::test]
async fn a_decision_log_is_read() {
    let log = fs::read(file("decisions.jsonl")).unwrap();
    let all = LogFilter::parse("verdict!=none").unwrap();
    let filtered = LogFilterSet::new(vec![vec![all]])
        .filter_lines(log.clone().into())
        .await;
    assert_eq!(filtered, log);
    for (filter, count) in [
        ("rule=next/no-pdf", 2),
        ("url=*redacted", 1),
        ("shadow=no-cgi", 4),
        ("status=451", 1),
        ("trace=", 3),
        ("held>1249", 2),
    ] {
        let filter = LogFilter::parse(filter).unwrap();
        let words = format!("{filter:?}");
        let filtered = LogFilterSet::new(vec![vec![filter]])
            .filter_lines(log.clone().into())
            .await;
        let lines = filtered.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(lines, count, "{words}");
    }
}
