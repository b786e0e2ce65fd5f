//! A ledger file of version 0.1.0, `tests/ledger_files/ledger.redb`, whose rows are decoded and encoded again.
//!
//! Its records and events are those of random observations, and one for every form. A row whose key begins with 0xb0
//! or whose number is above 1,000 equals another row, followed by fields that no version knows.

use std::collections::BTreeMap;

use super::*;
use crate::model::crawl_status::CrawlStatus;
use crate::store::ledger::journal::JournalPages;

const FIRST_UNKNOWN_EVENT: u64 = 1_000;
/// The number of kinds times that of reasons, in version 0.1.0.
const EVENT_FORMS: usize = 12;

struct Rows {
    records: BTreeMap<[u8; 16], Vec<u8>>,
    events: BTreeMap<u64, Vec<u8>>,
    journal: Vec<Vec<u8>>,
    meta: BTreeMap<String, Vec<u8>>,
}

fn read_rows() -> Rows {
    let bytes = include_bytes!("../../../../tests/ledger_files/ledger.redb");
    // Each test is a thread, and opens a copy of its own.
    let thread = std::thread::current().id();
    let name = format!("crawlgate-ledger-files-{}-{thread:?}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, bytes).unwrap();
    let database = LedgerDatabase::open(&LedgerLocation::File(path.clone()), 1 << 20).unwrap();
    let read = database.0.begin_read().unwrap();
    let mut rows = Rows {
        records: BTreeMap::new(),
        events: BTreeMap::new(),
        journal: Vec::new(),
        meta: BTreeMap::new(),
    };
    for row in read.open_table(RECORDS).unwrap().iter().unwrap() {
        let (key, value) = row.unwrap();
        rows.records.insert(*key.value(), value.value().to_vec());
    }
    for row in read.open_table(EVENTS).unwrap().iter().unwrap() {
        let (number, value) = row.unwrap();
        rows.events.insert(number.value(), value.value().to_vec());
    }
    for row in read.open_table(JOURNAL).unwrap().iter().unwrap() {
        rows.journal.push(row.unwrap().1.value().to_vec());
    }
    for row in read.open_table(META).unwrap().iter().unwrap() {
        let (name, value) = row.unwrap();
        rows.meta
            .insert(name.value().to_owned(), value.value().to_vec());
    }
    drop((read, database));
    std::fs::remove_file(path).unwrap();
    rows
}

#[test]
fn records_are_encoded_to_the_same_bytes() {
    let rows = read_rows();
    let mut statuses = BTreeMap::new();
    let mut unknown = 0;
    for (key, bytes) in &rows.records {
        let stored = record::decode(bytes).unwrap_or_else(|| panic!("{key:x?} is not a record"));
        let mut encoded = Vec::new();
        record::encode(&stored.record, stored.content_key, &mut encoded);
        let mut expected = bytes;
        if key[0] == 0xb0 {
            unknown += 1;
            let mut known_key = *key;
            known_key[0] = 0xa0;
            expected = &rows.records[&known_key];
            assert!(bytes.len() > expected.len() && bytes.starts_with(expected));
        }
        assert_eq!(&encoded, expected, "{key:x?}");
        assert_eq!(record::decode_content_key(bytes), stored.content_key);
        *statuses.entry(stored.record.status.0).or_insert(0) += 1;
    }
    assert_eq!(statuses.len(), CrawlStatus::ALL.len(), "every status");
    assert_eq!(unknown, 26);
    assert!(rows.records.len() > 60, "{}", rows.records.len());
}

#[test]
fn events_are_encoded_to_the_same_bytes() {
    let rows = read_rows();
    let mut forms = BTreeMap::new();
    for (number, bytes) in &rows.events {
        let event = event::decode_event(bytes);
        if *number == 2_000 {
            assert_eq!(event, None, "its kind is not known");
            continue;
        }
        let event = event.unwrap();
        assert_eq!(event::decode_time(bytes), Some(event.at));
        let mut expected = bytes;
        if *number > FIRST_UNKNOWN_EVENT {
            expected = &rows.events[&(number - FIRST_UNKNOWN_EVENT)];
            assert!(bytes.len() > expected.len() && bytes.starts_with(expected));
        }
        assert_eq!(&event::encode_event(&event), expected, "{number}");
        *forms.entry((event.kind, event.reason)).or_insert(0) += 1;
    }
    assert_eq!(forms.len(), EVENT_FORMS, "{forms:?}");
}

#[test]
fn the_journal_and_the_state_are_encoded_to_the_same_bytes() {
    let rows = read_rows();
    assert!(!rows.journal.is_empty());
    for page in &rows.journal {
        let mut pages = JournalPages::default();
        journal::read_page(page, |change| pages.append(&change)).unwrap();
        assert_eq!(pages.finish(), std::slice::from_ref(page));
    }
    let state = &rows.meta[META_STATE];
    let decoded = LedgerWriterState::decode(&**state).unwrap();
    assert!(decoded.turn > 0 && decoded.event > 0 && !decoded.urls.is_empty());
    assert_eq!(decoded.encode_to_vec(), *state);
    assert_eq!(rows.meta[META_VERSION], 1_u64.to_le_bytes());
    assert_eq!(rows.meta["kept:feed:file"], 7_u64.to_be_bytes());
}
