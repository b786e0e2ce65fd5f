//! docs/statuses.md, row by row: the refusal or the response, and the record afterwards, for a URL with a record
//! and for one without.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crawlgate::ledger::key::LedgerKey;
use crawlgate::model::crawl_status::CrawlStatus;
use serde_json::Value as Json;

use super::{HOUR, LedgerBench, bare, page, path, policy};
use crate::support::client::{RawClient, Response, get_with};
use crate::support::wait::wait_until;

const OPEN: &str = "spaces:\n  - { name: all }";
const CLOSED: &str = "rules:
  - { id: excluded, forbid: { under: /excluded } }
  - { id: ambiguous, forbid: { under: /ambiguous } }
  - { id: deep, when: { under: /deep }, set: { max_depth: 1 } }
  - { id: obeyed, when: { under: /robots }, set: { robots: { obey: true } } }
  - { id: elsewhere, when: { host: b.test }, set: { robots: { obey: true } } }
  - { id: seldom, when: { under: /premature }, set: { recrawl: { min_interval: 99d } } }
  - { id: checked, when: { under: /checked }, set: { noncanonical: reject, noindex: reject, unmodified: reject, duplicate: reject } }
  - { id: small, when: { under: /import }, set: { max_body: 3B } }
  - { id: used, when: { under: /usage }, set: { robots: { obey: true, usage: [train-ai] } } }
  - { id: endless, when: { under: /trap }, set: { traps: repeated_segment } }
  - { id: spent, when: { under: /budget }, set: { budget: { urls: 0 } } }
  - { id: slow, when: { under: /polite }, set: { politeness: { delay: 9d, overflow: refuse } } }
  - { id: held, when: { under: /held }, set: { politeness: { delay: 9d, max_hold: 1h } } }
  - { id: inside, when: { host: c.test }, set: { record: full } }
  - { id: soft, when: { under: /soft }, rules: [ { id: error, forbid: { title: not found }, as: 404 } ] }
spaces:
  - { name: all }";

const ROBOTS: &str = "User-agent: *\nDisallow: /robots\nContent-Usage: /usage/file train-ai=n\n";

/// The record afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The status of the response.
    Noted,
    /// The record from before, if there was one.
    Untouched,
    /// The record from before, apart from the time of the loss.
    Lost,
    /// The status of the response; the URL was removed from the index, and is no longer known.
    Removed,
}

use Then::{Lost, Noted, Removed, Untouched};

/// Status and reason, host and path, and the record of the URL that had one and of the one that had none.
type StatusRow = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    Then,
    Then,
);

const ROWS: &[StatusRow] = &[
    ("ACCEPTED", "", "a.test", "/accepted", Noted, Noted),
    ("ACCEPTED", "", "a.test", "/304", Noted, Noted),
    (
        "REJECTED_TOO_DEEP",
        "too_deep",
        "a.test",
        "/deep",
        Noted,
        Noted,
    ),
    (
        "REJECTED_FILTER",
        "rule",
        "a.test",
        "/excluded",
        Noted,
        Untouched,
    ),
    (
        "REJECTED_ROBOTS_TXT",
        "robots_txt",
        "a.test",
        "/robots",
        Noted,
        Untouched,
    ),
    (
        "REJECTED_ROBOTS_TXT",
        "robots_unreachable",
        "b.test",
        "/unreachable",
        Noted,
        Noted,
    ),
    (
        "REJECTED_PREMATURE",
        "premature",
        "a.test",
        "/premature",
        Noted,
        Untouched,
    ),
    ("REJECTED_NOTFOUND", "", "a.test", "/404", Removed, Noted),
    ("REJECTED_NOTFOUND", "", "a.test", "/410", Removed, Noted),
    (
        "REJECTED_NOTFOUND",
        "soft_error",
        "a.test",
        "/soft",
        Removed,
        Noted,
    ),
    ("REJECTED_BAD_STATUS", "", "a.test", "/403", Noted, Noted),
    ("REJECTED_BAD_STATUS", "", "a.test", "/500", Noted, Noted),
    ("REJECTED_BAD_STATUS", "", "a.test", "/503", Noted, Noted),
    (
        "REJECTED_BAD_STATUS",
        "",
        "a.test",
        "/503/later",
        Noted,
        Noted,
    ),
    ("REJECTED_BAD_STATUS", "", "a.test", "/429", Noted, Noted),
    ("REJECTED_BAD_STATUS", "", "a.test", "/416", Noted, Noted),
    (
        "REJECTED_NONCANONICAL",
        "noncanonical",
        "a.test",
        "/checked/canonical",
        Noted,
        Noted,
    ),
    (
        "REJECTED_UNMODIFIED",
        "unmodified",
        "a.test",
        "/checked/same",
        Noted,
        Untouched,
    ),
    (
        "REJECTED_DUPLICATE",
        "duplicate",
        "a.test",
        "/checked/twin",
        Noted,
        Noted,
    ),
    (
        "REJECTED_ROBOTS_META_NOINDEX",
        "noindex",
        "a.test",
        "/checked/noindex",
        Noted,
        Noted,
    ),
    (
        "REJECTED_ERROR",
        "upstream_protocol",
        "a.test",
        "/garbage",
        Removed,
        Noted,
    ),
    (
        "REJECTED_ERROR",
        "upstream_protocol",
        "a.test",
        "/silence",
        Noted,
        Noted,
    ),
    (
        "REJECTED_IMPORT",
        "body_too_large",
        "a.test",
        "/import",
        Noted,
        Noted,
    ),
    (
        "REJECTED_USAGE",
        "usage",
        "a.test",
        "/usage/file",
        Noted,
        Untouched,
    ),
    (
        "REJECTED_USAGE",
        "usage",
        "a.test",
        "/usage/answer",
        Noted,
        Noted,
    ),
    (
        "REJECTED_TRAP",
        "trap",
        "a.test",
        "/trap/a/b/a/c/a",
        Noted,
        Untouched,
    ),
    (
        "REJECTED_BUDGET",
        "budget",
        "a.test",
        "/budget",
        Noted,
        Untouched,
    ),
    // Nobody ever knew it: its rule has it recorded.
    (
        "REJECTED_ADDRESS",
        "ip_prohibited",
        "c.test",
        "/",
        Noted,
        Noted,
    ),
    (
        "REJECTED_POLITENESS",
        "rate_limited",
        "a.test",
        "/polite",
        Lost,
        Noted,
    ),
    (
        "REJECTED_REQUEST",
        "ambiguous_url",
        "a.test",
        "/%61mbiguous",
        Untouched,
        Untouched,
    ),
    (
        "REJECTED_UNAUTHORIZED",
        "unauthorized",
        "a.test",
        "/stranger",
        Untouched,
        Untouched,
    ),
];

/// The site once it has changed.
fn answer(path: &str) -> Option<String> {
    match path.split('?').next().unwrap_or_default() {
        "/304" => bare(304, ""),
        "/404" => bare(404, ""),
        "/410" => bare(410, ""),
        "/403" => bare(403, ""),
        "/500" => bare(500, ""),
        "/503" => bare(503, ""),
        "/503/later" => bare(503, "Retry-After: 1\r\n"),
        "/429" => bare(429, ""),
        "/416" => bare(416, ""),
        "/soft" => page("", "<title>not found</title>"),
        "/checked/canonical" => page("Link: </other>; rel=canonical\r\n", "ok"),
        "/checked/same" => page("ETag: \"same\"\r\n", "ok"),
        "/checked/twin" | "/checked/first" => page("ETag: \"twin\"\r\n", "twin"),
        "/checked/noindex" => page("X-Robots-Tag: noindex\r\n", "noindex"),
        "/import" => page("", "too large"),
        "/usage/answer" => page("Content-Usage: train-ai=n\r\n", "ok"),
        "/garbage" => Some("not HTTP at all\r\n\r\n".into()),
        _ => None,
    }
}

fn site() -> (LedgerBench, Arc<AtomicBool>) {
    let changed = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&changed);
    let bench = LedgerBench::scripted(&policy("", OPEN), move |connection, head| {
        let path = path(head);
        let answered = match path {
            "/robots.txt" if head.contains("b.test") => bare(500, ""),
            "/robots.txt" => page("", ROBOTS),
            path if path.starts_with("/silence") && now.load(Ordering::SeqCst) => return false,
            path if now.load(Ordering::SeqCst) => answer(path),
            path if path.starts_with("/checked/same") => page("ETag: \"same\"\r\n", "ok"),
            path => page("", path),
        };
        connection.send(answered.unwrap_or_else(|| page("", "ok").unwrap()));
        true
    });
    (bench, changed)
}

/// The fields that a row's request needs to be refused so.
fn fields(bench: &LedgerBench, path: &str) -> String {
    match path {
        path if path.starts_with("/deep") => {
            format!("Referer: {}\r\n", bench.url("a.test", "/one"))
        }
        // Otherwise it is held until robots.txt can be fetched again.
        path if path.starts_with("/unreachable") => "Crawl-Max-Wait: 0\r\n".to_owned(),
        _ => String::new(),
    }
}

/// Where a row's request is made.
fn door(bench: &LedgerBench, path: &str) -> SocketAddr {
    let stranger = path.starts_with("/stranger");
    if stranger {
        *bench.server.proxy.last().unwrap()
    } else {
        bench.door("news")
    }
}

/// The response of the admin API.
fn api(bench: &LedgerBench, path: &str) -> Json {
    let admin = bench.server.admin;
    let request = format!("GET /api/v1/{path} HTTP/1.1\r\nHost: {admin}\r\n\r\n");
    let answer = RawClient::connect(admin).request(request);
    assert_eq!(answer.status, 200, "{answer}");
    answer.json()
}

/// The record of `news`; null if there is none.
fn record(bench: &LedgerBench, url: &str) -> Json {
    let asked = url.replace('%', "%25").replace('&', "%26");
    let mut found = api(bench, &format!("urls?crawler=news&url={asked}"));
    let urls = found["urls"].as_array_mut().unwrap();
    assert!(urls.len() < 2, "{urls:?}");
    urls.pop().unwrap_or_default()
}

#[test]
fn records_follow_the_table_of_statuses() {
    let (bench, changed) = site();
    let root = format!("Referer: {}\r\n", bench.url("a.test", "/"));
    bench.get("/");
    bench.get_with("/one", &root);
    bench.until_known("news", "/one");
    for (_, _, host, path, ..) in ROWS.iter().filter(|row: &&StatusRow| row.2 != "c.test") {
        let url = bench.url(host, path);
        assert_eq!(
            bench.ask_as("news", &url, &fields(&bench, path)).status,
            200,
            "{path}"
        );
        wait_until(path, || record(&bench, &url)["status"] == "ACCEPTED");
    }
    bench.get("/held");
    changed.store(true, Ordering::SeqCst);
    bench.reload(&policy("", CLOSED));
    bench.until_record("/excluded", "is swept", |record| record.code == Some(760));
    assert_eq!(bench.get_with("/checked/first", "").status, 200);
    bench.until_known("news", "/checked/first");
    for (status, reason, host, path, if_known, if_new) in ROWS {
        for (url, then) in [
            (bench.url(host, path), if_known),
            (bench.url(host, &format!("{path}?new")), if_new),
        ] {
            // A host that fails is given a rest.
            bench.manual_clock.advance(HOUR);
            let before = record(&bench, &url);
            let answer = get_with(door(&bench, path), &url, &fields(&bench, path));
            let passes = *if_new == Untouched && answer.value("crawl-status") == "ACCEPTED";
            if url.ends_with("?new") && passes {
                // What it is refused for takes a first time.
                assert!(["premature", "unmodified"].contains(reason), "{url}");
                continue;
            }
            let output = (answer.value("crawl-status"), answer.value("crawl-reason"));
            assert_eq!(output, (*status, *reason), "{url}: {}", answer);
            if *then == Untouched {
                // It is the last to be noted, if it is at all.
                bench.manual_clock.advance(HOUR);
                let marker = format!("/marker?{}", bench.heads().len());
                assert_eq!(bench.get_with(&marker, "").status, 200, "{url}");
                bench.until_known("news", &marker);
                assert_eq!(record(&bench, &url), before, "{url}");
                continue;
            }
            fn holds(then: &Then, status: &&str, before: &serde_json::Value, after: &Json) -> bool {
                match then {
                    Noted => {
                        after["status"] == *status && after["last_seen"] != before["last_seen"]
                    }
                    Removed => {
                        after["status"] == *status
                            && after["indexed"] == "removed"
                            && after["known"] == false
                    }
                    Lost => {
                        let mut expected = before.clone();
                        expected["lost"] = after["lost"].clone();
                        after["lost"].is_string() && *after == expected
                    }
                    Untouched => after.is_null(),
                }
            }
            wait_until(
                &format!("{url} is {then:?}: {:?}", record(&bench, &url)),
                || holds(then, status, &before, &record(&bench, &url)),
            );
            let after = record(&bench, &url);
            if *then == Noted && *status != "ACCEPTED" {
                let indexed = before["indexed"].as_str().unwrap_or("never");
                let indexed = if *reason == "rule" {
                    "removed"
                } else {
                    indexed
                };
                assert_eq!(after["indexed"], indexed, "{url}");
                assert_eq!(after["last_fetched"], before["last_fetched"], "{url}");
            }
            let code = if *reason == "rule" {
                Json::from(760)
            } else {
                Json::Null
            };
            assert!(
                *status != "REJECTED_FILTER" || after["code"] == code,
                "{after}"
            );
        }
    }
    unavailable(bench);
}

/// A request that is held while the proxy shuts down.
fn unavailable(bench: LedgerBench) {
    let url = bench.url("a.test", "/held");
    let mut client = RawClient::connect(bench.door("news"));
    client.send(format!(
        "GET {url} HTTP/1.1\r\nHost: a.test:{}\r\nConnection: close\r\n\r\n",
        bench.origin.port
    ));
    wait_until("it waits", || api(&bench, "status")["held"] == 1);
    let LedgerBench {
        runtime,
        server,
        ledger,
        ..
    } = bench;
    runtime.block_on(server.drain(std::future::pending::<()>()));
    let answer = Response::parse(&client.read_rest());
    assert_eq!(
        answer.value("crawl-status"),
        "REJECTED_UNAVAILABLE",
        "{}",
        answer
    );
    assert_eq!(
        ledger
            .look_up(LedgerKey::for_url("news", &url))
            .unwrap()
            .status
            .0,
        CrawlStatus::Accepted
    );
}

#[test]
fn the_table_of_statuses_is_tried_whole() {
    let text = std::fs::read_to_string("docs/statuses.md").unwrap();
    let documented = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let status = CrawlStatus::from_word(cells[0])?;
        Some((status.as_str(), cells.last().unwrap().starts_with("no")))
    });
    fn never(rows: &[StatusRow]) -> bool {
        rows.iter().all(|row| row.4 == Untouched)
    }
    let tried = CrawlStatus::ALL.into_iter().map(|status| {
        let rows: Vec<StatusRow> = ROWS
            .iter()
            .filter(|row| row.0 == status.as_str())
            .copied()
            .collect();
        assert!(
            !rows.is_empty() || status == CrawlStatus::Unavailable,
            "{status:?} is not tried"
        );
        (status.as_str(), never(&rows))
    });
    assert_eq!(
        documented.collect::<BTreeSet<_>>(),
        tried.collect::<BTreeSet<_>>()
    );
}
