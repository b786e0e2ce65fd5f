//! Random observations, crashes and restarts, compared with a plain map of records.

use std::path::PathBuf;

use super::*;
use crate::ledger::observation::{
    BadOutcome, DeliveredDocument, ObservationOutcome, ObservedRefusal, ObservedResponse,
    RefusalRecording,
};
use crate::ledger::removal::RemovalSchedule;
use crate::ledger::transition;
use crate::model::failure_kind::FailureKind;
use crate::model::removal::{RemovalAction, RemovalOutcome};

const TOLERANCE: ErrorTolerance = ErrorTolerance {
    temporary_errors: 2,
};
const URLS: u64 = 60;
const CONTENTS: u64 = 12;

/// The expected state of the ledger.
#[derive(Clone, Debug, Default, PartialEq)]
struct LedgerModel {
    records: BTreeMap<LedgerKey, (LedgerRecord, Option<ContentKey>)>,
    events: Vec<LedgerEvent>,
}

impl LedgerModel {
    fn record(&mut self, update: &LedgerUpdate) {
        let before = self.records.get(&update.key).cloned();
        let transition = transition::apply_observation(
            before.as_ref().map(|(record, _)| record),
            update.observation.clone(),
            TOLERANCE,
            RemovalSchedule::Immediate,
        );
        if let Some(record) = transition.record {
            let delivered = matches!(&update.observation.outcome, ObservationOutcome::Answered(a) if a.document.is_some());
            let content = if delivered {
                update.content_key
            } else {
                before.and_then(|(_, content)| content)
            };
            self.records.insert(update.key, (record, content));
        }
        self.events.extend(transition.event);
    }

    fn forget(&mut self, key: LedgerKey) {
        self.records.remove(&key);
    }

    fn codes(&self) -> BTreeMap<OmnifindCode, u64> {
        let mut codes = BTreeMap::new();
        self.records
            .values()
            .filter_map(|(record, _)| record.code)
            .for_each(|code| *codes.entry(OmnifindCode::from_number(code)).or_default() += 1);
        codes
    }

    fn events_by_kind(&self) -> BTreeMap<LedgerEventKind, u64> {
        LedgerEventKind::ALL
            .map(|kind| {
                let of_kind = self.events.iter().filter(|event| event.kind == kind);
                (kind, of_kind.count() as u64)
            })
            .into()
    }

    fn urls(&self) -> BTreeMap<CrawlStatus, u64> {
        let mut urls = BTreeMap::new();
        self.records
            .values()
            .for_each(|(record, _)| *urls.entry(record.status.0).or_default() += 1);
        urls
    }
}

struct LedgerDirectory(PathBuf);

impl LedgerDirectory {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("crawlgate-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }

    /// Opens it with so little memory that compactions never end.
    fn open(&self) -> Ledger {
        let settings = LedgerSettings {
            tolerance: TOLERANCE,
            cache: 16 << 10,
            ..LedgerSettings::default()
        };
        Ledger::open(&self.0, settings).unwrap()
    }
}

impl Drop for LedgerDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn block_on(future: impl Future) {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(future);
}

fn key(url: u64) -> LedgerKey {
    LedgerKey::for_url("news", &format!("http://h.test/{url}"))
}

fn content(number: u64) -> LedgerKey {
    LedgerKey::for_content("news", "h.test", &number.to_string())
}

/// The key of a document that is found by one or two of the contents.
fn content_key(number: u64) -> Option<ContentKey> {
    let second = number.is_multiple_of(3).then(|| content(number + 1));
    ContentKey::from_parts([Some(content(number)), second])
}

fn answered(
    status: u16,
    crawl_status: CrawlStatus,
    failure: Option<FailureKind>,
    document: Option<DeliveredDocument>,
) -> ObservationOutcome {
    ObservationOutcome::Answered(ObservedResponse {
        status,
        crawl_status,
        code: None,
        failure,
        removal: failure.map(|_| BadOutcome {
            outcome: RemovalOutcome::from_origin_status(status),
            action: RemovalAction::Remove,
        }),
        document,
        recording: RefusalRecording::Keep,
    })
}

fn refused(
    action: RemovalAction,
    code: Option<u16>,
    recording: RefusalRecording,
) -> ObservationOutcome {
    ObservationOutcome::Refused(ObservedRefusal {
        crawl_status: CrawlStatus::Filter,
        code,
        removal: Some(BadOutcome {
            outcome: RemovalOutcome::Rule,
            action,
        }),
        recording,
    })
}

fn random(random: &mut fastrand::Rng, at: u64) -> LedgerUpdate {
    let url = random.u64(..URLS);
    let mut found = None;
    let outcome = match random.u8(..10) {
        0..4 => {
            found = random.bool().then(|| random.u64(..CONTENTS));
            let document = DeliveredDocument {
                size: random.u64(..100),
                ..DeliveredDocument::default()
            };
            answered(200, CrawlStatus::Accepted, None, Some(document))
        }
        4 => answered(
            404,
            CrawlStatus::NotFound,
            Some(FailureKind::Permanent),
            None,
        ),
        5 => ObservationOutcome::Failed {
            failure: FailureKind::Temporary,
            code: None,
            removal: RemovalAction::ByCount,
        },
        6 => refused(RemovalAction::Remove, Some(760), RefusalRecording::Skip),
        7 => refused(RemovalAction::Keep, Some(761), RefusalRecording::Keep),
        8 => refused(RemovalAction::OnceMore, None, RefusalRecording::Keep),
        _ => ObservationOutcome::Allowed,
    };
    let observation = UrlObservation {
        at: UnixMillis(at),
        url: format!("http://h.test/{url}").into(),
        crawler: "news".into(),
        space: None,
        depth: None,
        address: None,
        source: None,
        revision: "0".into(),
        rule: None,
        intent: None,
        user_agent: None,
        outcome,
    };
    LedgerUpdate {
        key: key(url),
        observation,
        content_key: found.and_then(content_key),
    }
}

/// Finds the model that equals the ledger, among those since the last flush.
fn same_as_one_of(ledger: &Ledger, snapshots: &[LedgerModel]) -> LedgerModel {
    let records: BTreeMap<_, _> = ledger.records(None, 1_000).unwrap().into_iter().collect();
    let events = ledger.events(FeedCursor(0), 100_000).unwrap();
    let equals_ledger = |model: &&LedgerModel| {
        model.records.len() == records.len()
            && model
                .records
                .iter()
                .all(|(key, (record, _))| records.get(key).map(|r| &**r) == Some(record))
            && model.events.len() == events.len()
            && model
                .events
                .iter()
                .zip(&events)
                .all(|(model, (_, event))| *model == **event)
    };
    let found = snapshots
        .iter()
        .rev()
        .find(equals_ledger)
        .unwrap_or_else(|| {
            panic!(
                "{} records, {} events, in none of {} states",
                records.len(),
                events.len(),
                snapshots.len()
            )
        });
    assert!(
        events
            .iter()
            .zip(1..)
            .all(|((cursor, _), number)| cursor.0 == number)
    );
    found.clone()
}

fn check(ledger: &Ledger, model: &LedgerModel, random: &mut fastrand::Rng) {
    let key = key(random.u64(..URLS));
    let expected = model.records.get(&key).map(|(record, _)| record);
    assert_eq!(ledger.look_up(key).as_deref(), expected);
    let content = content(random.u64(..CONTENTS));
    if let Some(url) = ledger.url_with_content(content) {
        let mut records = model.records.values();
        assert!(
            records.any(|(record, key)| {
                *record.url == *url && key.is_some_and(|key| key.contains(content))
            }),
            "{url} does not have that content"
        );
    }
    let after = random.bool().then_some(key);
    let most = random.usize(1..URLS as usize);
    let listed = ledger
        .records(after, most)
        .unwrap()
        .into_iter()
        .map(|(key, record)| (key, LedgerRecord::clone(&record)));
    let expected = model
        .records
        .iter()
        .filter(|(key, _)| Some(**key) > after)
        .take(most);
    assert!(listed.eq(expected.map(|(key, (record, _))| (*key, record.clone()))));
    let stats = ledger.stats();
    assert_eq!((stats.urls, stats.codes), (model.urls(), model.codes()));
}

#[test]
fn the_ledger_is_a_map_whatever_happens_to_it() {
    for seed in 0..6 {
        let folder = LedgerDirectory::new(&format!("model-{seed}"));
        let mut random_of = fastrand::Rng::with_seed(seed);
        let mut ledger = folder.open();
        let mut snapshots = vec![LedgerModel::default()];
        for at in 0..1_500 {
            let mut now = snapshots.last().unwrap().clone();
            let note = random(&mut random_of, at);
            if random_of.u8(..20) == 0 {
                let existed = now.records.contains_key(&note.key);
                now.forget(note.key);
                let forgotten = ledger.forget(note.key, &LedgerFilter::default());
                assert_eq!(forgotten, Ok(existed));
            } else {
                now.record(&note);
                ledger.record(note);
            }
            snapshots.push(now);
            match random_of.u16(..400) {
                0..100 => check(&ledger, snapshots.last().unwrap(), &mut random_of),
                100..140 => {
                    block_on(ledger.flush());
                    snapshots = snapshots.split_off(snapshots.len() - 1);
                    let events = snapshots[0].events_by_kind();
                    assert_eq!(ledger.stats().total_events, events);
                }
                140..145 => {
                    ledger.abandon();
                    ledger = folder.open();
                    snapshots = vec![same_as_one_of(&ledger, &snapshots)];
                    check(&ledger, &snapshots[0], &mut random_of);
                }
                145..147 => {
                    drop(ledger);
                    ledger = folder.open();
                    snapshots = snapshots.split_off(snapshots.len() - 1);
                    same_as_one_of(&ledger, &snapshots);
                }
                _ => {}
            }
        }
    }
}

/// The file has neither counts of codes nor of events.
#[test]
fn a_ledger_of_an_earlier_version_is_counted_when_it_is_opened() {
    let folder = LedgerDirectory::new("counted");
    std::fs::create_dir_all(&folder.0).unwrap();
    let old = include_bytes!("../../../tests/ledger_files/ledger.redb");
    std::fs::write(folder.0.join(database::FILE_NAME), old).unwrap();
    let counts = |ledger: &Ledger| {
        let mut codes = BTreeMap::new();
        for (_, record) in ledger.records(None, 10_000).unwrap() {
            if let Some(code) = record.code {
                *codes.entry(OmnifindCode::from_number(code)).or_insert(0) += 1;
            }
        }
        let mut events = LedgerEventKind::ALL
            .map(|kind| (kind, 0))
            .into_iter()
            .collect::<BTreeMap<_, _>>();
        for (_, event) in ledger.events(FeedCursor(0), 10_000).unwrap() {
            *events.entry(event.kind).or_default() += 1;
        }
        (codes, events)
    };
    let stats = |ledger: &Ledger| {
        let stats = ledger.stats();
        (stats.codes, stats.total_events)
    };
    for start in 0..3 {
        let ledger = folder.open();
        assert_eq!(stats(&ledger), counts(&ledger), "start {start}");
        assert!(stats(&ledger).0.len() > 1, "{:?}", stats(&ledger).0);
        let first = ledger.events(FeedCursor(0), 1).unwrap()[0].0;
        assert_eq!(ledger.stats().events_counted_from, first);
        let mut failed = new_document(90_000 + start);
        failed.observation.outcome = ObservationOutcome::Failed {
            failure: FailureKind::Permanent,
            code: Some(770),
            removal: RemovalAction::ByCount,
        };
        ledger.record(failed);
        block_on(ledger.flush());
        assert_eq!(stats(&ledger), counts(&ledger));
        assert_eq!(
            ledger.stats().events[&LedgerEventKind::PermanentError],
            1,
            "of this process"
        );
        ledger.close();
    }
}

#[test]
fn a_forgotten_record_does_not_return_after_a_crash() {
    let folder = LedgerDirectory::new("forgotten");
    let ledger = folder.open();
    for url in 0..3 {
        let mut update = new_document(url);
        update.content_key = content_key(url + 1);
        ledger.record(update);
    }
    block_on(ledger.flush());
    let mut other = LedgerFilter::default();
    other.set_url("http://h.test/elsewhere");
    assert_eq!(
        ledger.forget(key(0), &other),
        Ok(false),
        "it has changed since it was found"
    );
    assert_eq!(ledger.forget(key(1), &LedgerFilter::default()), Ok(true));
    assert_eq!(ledger.url_with_content(content(2)), None);
    block_on(ledger.flush());
    ledger.abandon();
    let ledger = folder.open();
    let remaining = (0..3).map(|url| ledger.look_up(key(url)).is_some());
    assert!(remaining.eq([true, false, true]));
    assert_eq!(ledger.stats().urls.values().sum::<u64>(), 2);
    ledger.close();
    assert_eq!(
        ledger.forget(key(0), &LedgerFilter::default()),
        Err(LedgerUnavailable)
    );
}

#[test]
fn a_content_leads_to_the_first_url_that_still_has_it() {
    let ledger = Ledger::in_memory(TOLERANCE);
    let delivered = |url: u64, at: u64, found: u64| {
        let mut update = new_document(url);
        update.observation.url = format!("u{url}").into();
        update.observation.at = UnixMillis(at);
        update.content_key = content_key(found);
        ledger.record(update);
    };
    let found = |number| {
        ledger
            .url_with_content(content(number))
            .map(|url| url.to_string())
    };
    assert_eq!(found(7), None);
    delivered(1, 1, 7);
    delivered(2, 2, 7);
    delivered(1, 3, 7);
    assert_eq!(found(7).as_deref(), Some("u1"));
    delivered(1, 4, 8);
    assert_eq!((found(7), found(8).as_deref()), (None, Some("u1")));
    delivered(2, 5, 7);
    assert_eq!(found(7).as_deref(), Some("u2"));
}

fn key_in_memory(ledger: &Ledger, number: u64) -> Option<LedgerKey> {
    let memtable = &ledger.inner().memtable;
    memtable
        .lock_shard(content(number))
        .key_by_content(content(number))
}

#[test]
fn a_dropped_content_does_not_survive_a_crash() {
    let folder = LedgerDirectory::new("left");
    let ledger = folder.open();
    for (at, found) in (1..).zip([7, 8]) {
        let mut update = new_document(1);
        update.observation.at = UnixMillis(at);
        update.content_key = content_key(found);
        ledger.record(update);
    }
    assert_eq!(
        (key_in_memory(&ledger, 7), key_in_memory(&ledger, 8)),
        (None, Some(key(1)))
    );
    block_on(ledger.flush());
    ledger.abandon();
    let ledger = folder.open();
    assert_eq!(
        (key_in_memory(&ledger, 7), key_in_memory(&ledger, 8)),
        (None, Some(key(1)))
    );
}

#[test]
fn named_values_and_feed_expiry_survive_a_restart() {
    let folder = LedgerDirectory::new("kept");
    let ledger = folder.open();
    let mut at = 0;
    while ledger.stats().last_event < FeedCursor(5) {
        ledger.record(random(&mut fastrand::Rng::with_seed(at), at));
        at += 1;
        block_on(ledger.flush());
    }
    ledger.store_value("cursor", b"5".to_vec());
    assert_eq!(ledger.load_value("cursor").as_deref(), Some(&b"5"[..]));
    let (last, _) = ledger.events(FeedCursor(0), 100).unwrap().pop().unwrap();
    ledger.expire_events(UnixMillis(u64::MAX), Duration::ZERO, last);
    drop(ledger);
    let ledger = folder.open();
    assert_eq!(ledger.load_value("cursor").as_deref(), Some(&b"5"[..]));
    assert_eq!(ledger.load_value("other"), None);
    let remaining: Vec<FeedCursor> = ledger
        .events(FeedCursor(0), 100)
        .unwrap()
        .into_iter()
        .map(|(cursor, _)| cursor)
        .collect();
    assert_eq!((remaining, ledger.stats().last_event), (vec![last], last));
}

/// Returns the numbers of the events that are left of events with these times.
fn remaining_events(times: &[u64], now: u64, keep: u64, upto: u64) -> Vec<u64> {
    let ledger = Ledger::in_memory(TOLERANCE);
    for (url, at) in (0..).zip(times) {
        let failure = Some(FailureKind::Permanent);
        let observation = UrlObservation {
            outcome: answered(404, CrawlStatus::NotFound, failure, None),
            ..random(&mut fastrand::Rng::new(), *at).observation
        };
        ledger.record(LedgerUpdate {
            key: key(url),
            observation,
            content_key: None,
        });
    }
    block_on(ledger.flush());
    ledger.expire_events(
        UnixMillis(now),
        Duration::from_millis(keep),
        FeedCursor(upto),
    );
    // Written after it.
    ledger.record(new_document(times.len() as u64));
    block_on(ledger.flush());
    let events = ledger.events(FeedCursor(0), 1_000).unwrap();
    events
        .into_iter()
        .map(|(FeedCursor(number), _)| number)
        .collect()
}

/// A delivered document of a URL without a record.
fn new_document(url: u64) -> LedgerUpdate {
    let document = Some(DeliveredDocument::default());
    LedgerUpdate {
        key: key(url),
        observation: UrlObservation {
            outcome: answered(200, CrawlStatus::Accepted, None, document),
            ..random(&mut fastrand::Rng::new(), 1).observation
        },
        content_key: None,
    }
}

#[test]
fn old_events_expire_unless_they_are_undelivered() {
    for (times, upto, expected) in [
        (&[10, 20, 80, 90][..], 4, &[3, 4][..]),
        (&[10, 20], 2, &[2]),
        // A time from a clock that was ahead is ignored; one from a slow clock does not delete a recent event.
        (&[900, 900, 10, 20, 80, 90], 6, &[5, 6]),
        (&[900, 10, 900, 80, 90], 5, &[3, 4, 5]),
        (&[900, 901, 902], 3, &[1, 2, 3]),
        (&[900, 80, 10, 90], 4, &[1, 2, 3, 4]),
        (&[80, 10, 10, 90], 4, &[1, 2, 3, 4]),
        // Undelivered events are kept.
        (&[10, 20, 30, 90], 2, &[3, 4]),
        (&[900, 10, 30, 90], 1, &[1, 2, 3, 4]),
        (&[10, 20, 30, 90], 0, &[1, 2, 3, 4]),
        (&[10, 20, 30, 90], u64::MAX, &[4]),
        (&[], 9, &[]),
    ] {
        assert_eq!(
            remaining_events(times, 100, 50, upto),
            expected,
            "{times:?} up to {upto}"
        );
    }
    // A limited number at a time.
    let many: Vec<u64> = std::iter::repeat_n(900, 7)
        .chain(std::iter::repeat_n(10, 10_010))
        .collect();
    assert_eq!(
        remaining_events(&many, 100, 50, u64::MAX).first(),
        Some(&10_002)
    );
}

#[test]
fn one_process_at_a_time_and_no_older_program() {
    let folder = LedgerDirectory::new("one");
    let settings = LedgerSettings::default();
    assert!(matches!(
        Ledger::open_existing(&folder.0, settings),
        Err(LedgerOpenError::Missing(_))
    ));
    let ledger = folder.open();
    let error = Ledger::open(&folder.0, settings).unwrap_err();
    assert!(
        matches!(error, LedgerOpenError::InUse(_)) && error.to_string().contains("store.path"),
        "{error}"
    );
    ledger.close();
    // Remaining clones do not keep the file open.
    Ledger::open_existing(&folder.0, settings).unwrap();
    database::pretend_version(&folder.0.join(database::FILE_NAME), 2);
    let error = Ledger::open(&folder.0, settings).unwrap_err();
    assert!(
        matches!(error, LedgerOpenError::NewerVersion(_, 2)),
        "{error}"
    );
}

/// The message names the cure, and what it costs.
#[test]
fn a_damaged_file_and_a_full_disk_are_told_apart() {
    let folder = LedgerDirectory::new("damaged");
    let settings = LedgerSettings::default();
    folder.open().close();
    let path = folder.0.join(database::FILE_NAME);
    let whole = std::fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    flipped.iter_mut().skip(4_096).for_each(|byte| *byte ^= 1);
    for (cause, bytes) in [
        ("not a ledger", &b"no ledger at all"[..]),
        ("cut", whole.get(..whole.len() - 4_096).unwrap()),
        ("flipped", &flipped),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let error = Ledger::open(&folder.0, settings).unwrap_err();
        assert!(
            matches!(error, LedgerOpenError::Damaged { .. }),
            "{cause}: {error}"
        );
        let message = error.to_string();
        let cure = format!("mv {0} {0}.damaged", path.display());
        assert!(message.contains(&cure), "{message}");
        assert!(
            message.contains("discards everything recorded"),
            "{message}"
        );
        // Nothing is repaired or overwritten silently.
        assert_eq!(std::fs::read(&path).unwrap().len(), bytes.len(), "{cause}");
    }
    std::fs::remove_file(&path).unwrap();
    Ledger::open(&folder.0, settings).unwrap();

    let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
    let message = LedgerLocation::in_directory(&folder.0)
        .open_error(full)
        .to_string();
    assert!(message.contains("Make room on it"), "{message}");
    assert!(!message.contains("mv "), "{message}");
}

#[test]
fn requests_do_not_wait_for_a_broken_writer() {
    let settings = LedgerSettings {
        queue: 1,
        ..LedgerSettings::default()
    };
    let ledger = Ledger::open_at(LedgerLocation::Memory, settings).unwrap();
    let mut looks = fastrand::Rng::with_seed(1);
    let mut at = 0;
    let mut next = || {
        at += 1;
        random(&mut looks, at)
    };
    let all = async {
        while ledger.stats().urls.is_empty() {
            ledger.record(next());
        }
        ledger.flush().await;
        assert_eq!((ledger.stats().dropped, ledger.stats().broken), (0, false));
        ledger.break_down();
        // The first of these that changes something fills the queue.
        while !ledger.stats().broken {
            ledger.wait_if_full().await;
            ledger.record(next());
        }
        let dropped = ledger.stats().dropped;
        assert!(dropped > 0, "changes in flight are lost and counted");
        for _ in 0..9 {
            ledger.wait_if_full().await;
            ledger.record(next());
        }
        ledger.record_with_retry(next()).await;
        ledger.flush().await;
        assert_eq!(ledger.stats().dropped, dropped + 10);
    };
    let in_time = async {
        tokio::time::timeout(Duration::from_secs(20), all)
            .await
            .expect("nothing waits for the writer")
    };
    block_on(in_time);
    let stats = ledger.stats();
    assert!(
        stats.failing && stats.broken && stats.failures == 1,
        "{stats:?}"
    );
    assert!(
        !ledger.records(None, 100).unwrap().is_empty(),
        "written records can be read until the end"
    );
    ledger.close();
    assert_eq!(ledger.records(None, 100), Err(LedgerUnavailable));
}

#[test]
fn an_update_waits_or_is_dropped_if_the_queue_is_full() {
    let full = |on_full, done: &dyn Fn(&Ledger) -> bool| {
        let settings = LedgerSettings {
            queue: 1,
            on_full,
            ..LedgerSettings::default()
        };
        let ledger = Ledger::open_at(LedgerLocation::Memory, settings).unwrap();
        let mut looks = fastrand::Rng::with_seed(1);
        for at in 0..1_000_000 {
            if done(&ledger) {
                return ledger.stats();
            }
            ledger.record(random(&mut looks, at));
        }
        panic!("{:?}", ledger.stats())
    };
    let dropped = full(LedgerFullAction::Drop, &|ledger| ledger.stats().dropped > 0);
    assert_eq!(dropped.waits, 0);
    let waited = full(LedgerFullAction::Wait, &|ledger| {
        block_on(ledger.wait_if_full());
        assert_eq!(ledger.stats().queued, 0);
        ledger.stats().waits > 0
    });
    assert_eq!(waited.dropped, 0);
}
