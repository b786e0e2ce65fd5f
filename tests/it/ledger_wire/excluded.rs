//! The codes 760 and 761 over sockets, by profile; URLs without a record get neither.

use std::sync::{Mutex, mpsc};

use crawlgate::ledger::event::{LedgerEventKind, LedgerEventReason};
use crawlgate::model::crawl_status::CrawlStatus;
use crawlgate::model::intent::Intent;
use crawlgate::model::profile::{Conditional, Profile, WireResponse};

use super::{LedgerBench, policy};
use crate::support::client::RawClient;
use crate::support::wait::wait_until;

/// The global space, before and after a reduction.
const WHOLE: &str = "spaces:\n  - { name: all, rules: [] }";
/// By a domain rule of `a.test`, the global space decides.
const WITHOUT_HOST: &str =
    "spaces:\n  - name: all\n    rules:\n      - { id: host, forbid: { host: a.test } }";
const WITHOUT_PATH: &str =
    "spaces:\n  - name: all\n    rules:\n      - { id: path, forbid: { path: / } }";
const GLOBAL: &str = "global_space: { rules: [ { when: { host: a.test }, then: allow } ] }";
const BY_ADDRESS: &str = "spaces:\n  - name: all\n    rules:\n      - { id: host, forbid: { host: a.test } }\n      \
                          - { id: net, require: { address: [10.0.0.0/8] } }";

#[test]
fn a_url_of_the_ledger_is_answered_by_its_code_and_profile() {
    for (space, intent, code) in [
        (WITHOUT_HOST.to_owned(), Intent::Gone, "760"),
        (WITHOUT_PATH.to_owned(), Intent::Gone, "760"),
        (format!("{WITHOUT_HOST}\n{GLOBAL}"), Intent::Keep, "761"),
        (format!("{WITHOUT_PATH}\n{GLOBAL}"), Intent::Gone, "760"),
        // Domain rules alone refuse it, but the address that it was last fetched from is refused as well.
        (format!("{BY_ADDRESS}\n{GLOBAL}"), Intent::Gone, "760"),
    ] {
        let bench = LedgerBench::new(&policy("", WHOLE), |_| None);
        for profile in Profile::ALL {
            let known = bench.ask_as(profile.as_str(), &bench.url("a.test", "/p"), "");
            assert_eq!(known.status, 200, "{}", known);
            bench.until_known(profile.as_str(), "/p");
        }
        bench.reload(&policy("", &space));
        for profile in Profile::ALL {
            for (fields, conditional) in [
                ("", Conditional::No),
                ("If-None-Match: \"x\"\r\n", Conditional::Yes),
            ] {
                let WireResponse::Status(status) = profile.wire_response(intent, conditional)
                else {
                    panic!("{profile:?}")
                };
                let known = bench.ask_as(profile.as_str(), &bench.url("a.test", "/p"), fields);
                let what = format!("{space} {profile:?} {fields:?}: {}", known);
                assert_eq!(known.status, status, "{what}");
                assert_eq!(known.value("crawl-code"), code, "{what}");
                let WireResponse::Status(denied) = profile.wire_response(Intent::Deny, conditional)
                else {
                    panic!("{profile:?}")
                };
                let other = bench.ask_as(profile.as_str(), &bench.url("a.test", "/other"), fields);
                assert_eq!(other.status, denied, "{what}");
                assert_eq!(other.value("crawl-code"), "", "{what}");
            }
        }
        assert!(
            bench.record("generic", "/other").is_none(),
            "nothing is kept of it"
        );
    }
}

#[test]
fn urls_that_leave_the_space_are_removed_once_and_moved_ones_are_not() {
    let bench = LedgerBench::new(&policy("", WHOLE), |_| None);
    bench.get("/p");
    bench.reload(&policy("", &format!("{WITHOUT_HOST}\n{GLOBAL}")));
    bench.get_with("/p", "");
    bench.get_with("/p", "");
    wait_until("it has moved", || !bench.events().is_empty());
    bench.reload(&policy("", WITHOUT_HOST));
    bench.get_with("/p", "");
    bench.get_with("/p", "");
    wait_until("it is removed", || bench.events().len() > 1);
    let p = "/p".to_owned();
    assert_eq!(
        bench.events(),
        [
            (
                LedgerEventKind::Moved,
                LedgerEventReason::OtherSpace,
                p.clone()
            ),
            (LedgerEventKind::Removal, LedgerEventReason::Excluded, p)
        ]
    );
}

#[test]
fn urls_fetched_during_a_sweep_are_swept() {
    let (tell, reported) = mpsc::channel();
    let reported = Mutex::new(reported);
    let bench = LedgerBench::scripted(&policy("", WHOLE), move |connection, head| {
        if head.contains("x-slow") {
            reported.lock().unwrap().recv().unwrap();
        }
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        true
    });
    bench.get("/known");
    let paths = ["/known", "/new"];
    let mut clients = paths.map(|path| {
        let mut client = RawClient::connect(bench.door("news"));
        let url = bench.url("a.test", path);
        let port = bench.origin.port;
        client.send(format!(
            "GET {url} HTTP/1.1\r\nHost: a.test:{port}\r\nX-Slow: 1\r\nConnection: close\r\n\r\n"
        ));
        client
    });
    fn asked(bench: &LedgerBench) -> usize {
        bench
            .heads()
            .iter()
            .filter(|head| head.contains("x-slow"))
            .count()
    }
    wait_until("both are under way", || asked(&bench) == 2);
    bench.reload(&policy("", &format!("{WITHOUT_HOST}\n{GLOBAL}")));
    bench.until_record("/known", "is swept", |record| record.code == Some(761));
    bench.reload(&policy("", WITHOUT_PATH));
    bench.until_record("/known", "is swept", |record| record.code == Some(760));
    clients.iter().for_each(|_| tell.send(()).unwrap());
    for client in &mut clients {
        assert!(client.read_rest().contains("200 OK"));
    }
    for path in paths {
        bench.until_known("news", path);
        fn removals(bench: &LedgerBench, path: &str) -> usize {
            bench
                .events()
                .iter()
                .filter(|(kind, _, of)| *kind == LedgerEventKind::Removal && of == path)
                .count()
        }
        let times = if path == "/known" { 2 } else { 1 };
        wait_until(&format!("{path} is removed"), || {
            removals(&bench, path) == times
        });
        let record = bench.record("news", path).unwrap();
        assert_eq!(record.status.0, CrawlStatus::Filter, "{path}");
        assert_eq!(record.code, Some(760), "{path}");
    }
}

#[test]
fn each_crawler_has_records_of_its_own_fetches() {
    let bench = LedgerBench::new(&policy("", WHOLE), |_| None);
    bench.get("/p");
    bench.reload(&policy("", WITHOUT_HOST));
    assert_eq!(bench.get_with("/p", "").value("crawl-code"), "760");
    let other = bench.ask_as("shop", &bench.url("a.test", "/p"), "");
    assert_eq!((other.status, other.value("crawl-code")), (451, ""));
}

#[test]
fn a_refused_url_is_recorded_only_by_log_or_record() {
    let rules = "rules:\n  - { id: silent, forbid: { under: /silent } }\n  - { id: told, forbid: { under: /told }, log: \
                 true }\n  - { id: full, when: { under: /full }, then: disallow, set: { record: full } }\n  - { id: \
                 none, when: { under: /none }, then: disallow-log, set: { record: none } }\nspaces:\n  - { name: all }";
    let bench = LedgerBench::new(&policy("", rules), |_| None);
    for (path, kept) in [
        ("/silent", false),
        ("/told", true),
        ("/full", true),
        ("/none", false),
    ] {
        assert_eq!(bench.get_with(path, "").status, 451, "{path}");
        if kept {
            let record = bench.until_known("news", path);
            assert!(!record.is_known(), "only noted");
        }
        assert_eq!(bench.record("news", path).is_some(), kept, "{path}");
        assert_eq!(
            bench.get_with(path, "").value("crawl-code"),
            "",
            "{path}: never fetched"
        );
    }
}

#[test]
fn stripped_parameters_do_not_distinguish_urls() {
    let bench = LedgerBench::new(&policy("  strip_params: [sid]", WHOLE), |_| None);
    let mut client = RawClient::connect(bench.door("news"));
    client.send_get(&bench.url("a.test", "/p?sid=1"), "");
    client.read_until("ok");
    bench.until_known("news", "/p");
    bench.reload(&policy("  strip_params: [sid]", WITHOUT_PATH));
    assert_eq!(bench.get_with("/p?sid=2", "").value("crawl-code"), "760");
    assert_eq!(bench.get_with("/q?sid=2", "").value("crawl-code"), "");
}
