//! Errors as CloudView classifies them: `Crawl-Error`, the record, and the removals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use crawlgate::ledger::event::{LedgerEventKind, LedgerEventReason};
use crawlgate::model::crawl_status::CrawlStatus;

use super::{LedgerBench, bare, policy};
use crate::support::wait::wait_until;

const REMEMBERS: &str = "spaces:\n  - { name: all }";

#[test]
fn each_error_is_one_of_the_two_kinds() {
    let bench = LedgerBench::scripted(&policy("", REMEMBERS), |connection, head| {
        let (what, _) = super::path(head)[1..].split_once('-').unwrap();
        match what {
            "closed" => return false,
            "garbage" => connection.send("not HTTP at all\r\n\r\n"),
            "astray" => connection.send(bare(302, "Location: http://a.test:99999/\r\n").unwrap()),
            "fine" => connection.send(bare(302, "Location: /there\r\n").unwrap()),
            "later" => connection.send(bare(503, "Retry-After: 1\r\n").unwrap()),
            status => connection.send(bare(status.parse().unwrap(), "").unwrap()),
        }
        false
    });
    for (path, status, error, outcome) in [
        ("/404-x", 404, "permanent", CrawlStatus::NotFound),
        ("/403-x", 403, "permanent", CrawlStatus::BadStatus),
        ("/500-x", 500, "permanent", CrawlStatus::BadStatus),
        ("/503-x", 503, "permanent", CrawlStatus::BadStatus),
        ("/later-x", 503, "temporary", CrawlStatus::BadStatus),
        ("/429-x", 429, "temporary", CrawlStatus::BadStatus),
        ("/304-x", 304, "permanent", CrawlStatus::Accepted),
        ("/astray-x", 302, "permanent", CrawlStatus::Accepted),
        ("/closed-x", 502, "temporary", CrawlStatus::Error),
        ("/garbage-x", 502, "permanent", CrawlStatus::Error),
        ("/fine-x", 302, "", CrawlStatus::Accepted),
        // They answer the request's own headers.
        ("/406-x", 406, "", CrawlStatus::BadStatus),
        ("/412-x", 412, "", CrawlStatus::BadStatus),
        ("/416-x", 416, "", CrawlStatus::BadStatus),
        ("/417-x", 417, "", CrawlStatus::BadStatus),
    ] {
        // Each request in its own hour: a failing origin gets a rest.
        bench.manual_clock.advance(super::HOUR);
        let answer = bench.get_with(path, "");
        assert_eq!(answer.status, status, "{path}: {}", answer);
        assert_eq!(answer.value("crawl-error"), error, "{path}: {}", answer);
        let record = bench.until_known("news", path);
        assert_eq!(record.status.0, outcome, "{path}");
        assert_eq!(record.last_error.is_some(), !error.is_empty(), "{path}");
        assert_eq!(
            record.temporary_errors,
            u32::from(error == "temporary"),
            "{path}"
        );
    }
}

#[test]
fn a_name_that_does_not_exist_is_gone_for_good() {
    let bench = LedgerBench::new(&policy("", REMEMBERS), |_| None);
    let answer = bench.ask_as("news", "http://nowhere.invalid/", "");
    assert_eq!(answer.value("crawl-reason"), "upstream_dns", "{}", answer);
    assert!(
        ["permanent", "temporary"].contains(&answer.value("crawl-error")),
        "{}",
        answer
    );
}

#[test]
fn a_refused_connection_is_a_temporary_error_of_the_requested_url_only() {
    let bench = LedgerBench::new(&policy("", REMEMBERS), |_| None);
    let closed = crate::support::origin::closed_port();
    fn url(closed: u16, path: &str) -> String {
        format!("http://a.test:{closed}{path}")
    }
    fn key(closed: u16, path: &str) -> crawlgate::ledger::key::LedgerKey {
        crawlgate::ledger::key::LedgerKey::for_url("news", &url(closed, path))
    }
    let first = bench.ask_as("news", &url(closed, "/p"), "");
    assert_eq!(first.status, 502, "{}", first);
    assert_eq!(first.value("crawl-error"), "temporary", "{}", first);
    wait_until("it is noted", || {
        bench.ledger.look_up(key(closed, "/p")).is_some()
    });
    // The host is known to refuse: no connection was tried.
    assert_eq!(bench.ask_as("news", &url(closed, "/q"), "").status, 502);
    wait_until("it is lost", || {
        bench.ledger.look_up(key(closed, "/q")).is_some()
    });
    let second = bench.ledger.look_up(key(closed, "/q")).unwrap();
    assert!(second.lost.is_some() && second.temporary_errors == 0 && second.last_error.is_none());
    assert_eq!(
        bench
            .ledger
            .look_up(key(closed, "/p"))
            .unwrap()
            .temporary_errors,
        1
    );
}

/// A site whose pages all have this status.
fn site(status: &Arc<AtomicU16>) -> LedgerBench {
    let status = Arc::clone(status);
    LedgerBench::new(&policy("", REMEMBERS), move |_| {
        match status.load(Ordering::SeqCst) {
            200 => None,
            503 => bare(503, "Retry-After: 1\r\n"),
            status => bare(status, ""),
        }
    })
}

#[test]
fn an_error_on_an_accepted_url_orders_its_removal_and_forgets_it() {
    let status = Arc::new(AtomicU16::new(200));
    let bench = site(&status);
    bench.get("/gone");
    bench.get("/shaky");
    status.store(404, Ordering::SeqCst);
    bench.get_with("/gone", "");
    bench.until_record("/gone", "is removed", |record| {
        record.lacks_document() && !record.is_known()
    });
    status.store(503, Ordering::SeqCst);
    for turn in 1..=3 {
        bench.manual_clock.advance(super::HOUR);
        bench.get_with("/shaky", "");
        bench.until_record("/shaky", "is counted", |record| {
            record.temporary_errors == turn
        });
    }
    wait_until("both are told", || bench.events().len() == 2);
    fn removal(
        reason: LedgerEventReason,
        path: &str,
    ) -> (LedgerEventKind, LedgerEventReason, String) {
        (LedgerEventKind::Removal, reason, path.to_owned())
    }
    assert_eq!(
        bench.events(),
        [
            removal(LedgerEventReason::PermanentError, "/gone"),
            removal(LedgerEventReason::TemporaryErrors, "/shaky")
        ]
    );
    // A new link restores it.
    status.store(200, Ordering::SeqCst);
    bench.manual_clock.advance(super::HOUR);
    bench.get("/gone");
    bench.until_record("/gone", "is known", |record| record.is_known());
    let restored = LedgerEventKind::Restored;
    let last = bench.events().pop().unwrap();
    assert_eq!(
        last,
        (restored, LedgerEventReason::Fetched, "/gone".to_owned())
    );
}
