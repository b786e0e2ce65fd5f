//! The record of a request: only of a GET that was answered and delivered completely.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crawlgate::ledger::record::IndexState;
use crawlgate::model::crawl_status::CrawlStatus;

use super::{HOUR, LedgerBench, bare, page, path, policy};
use crate::support::client::RawClient;
use crate::support::wait::wait_until;

/// A policy that needs the ledger, and refuses nothing.
const REMEMBERS: &str = "spaces:\n  - { name: all }";

#[test]
fn a_document_is_known_once_it_is_delivered() {
    let bench = LedgerBench::new(&policy("  source: crawl-1", REMEMBERS), |_| {
        page(
            "ETag: \"v1\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n",
            "hello",
        )
    });
    bench.get("/p");
    let record = bench.record("news", "/p").unwrap();
    assert!(record.is_known());
    assert_eq!(record.status.0, CrawlStatus::Accepted);
    assert_eq!(
        (record.origin_status, record.index_state),
        (Some(200), IndexState::Possible)
    );
    assert_eq!((&*record.content_type, record.size), ("text/html", 5));
    assert_eq!(record.validators.etag.as_deref(), Some("\"v1\""));
    assert_eq!(
        record.validators.last_modified.as_deref(),
        Some("Thu, 01 Jan 2026 00:00:00 GMT")
    );
    assert_eq!(
        (record.source.as_deref(), record.space.as_deref()),
        (Some("crawl-1"), Some("all"))
    );
    assert_eq!(record.address, Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    assert_eq!(record.last_fetched, Some(record.first_seen));
    bench.manual_clock.advance(HOUR);
    bench.get_with("/p", "");
    bench.until_record("/p", "is fetched again", |record| {
        record
            .last_fetched
            .unwrap()
            .duration_since(record.first_seen)
            == HOUR
            && record.last_changed == Some(record.first_seen)
    });
}

#[test]
fn other_methods_and_other_policies_leave_no_record() {
    let bench = LedgerBench::new(&policy("", REMEMBERS), |_| None);
    for method in ["HEAD", "POST", "PUT", "DELETE"] {
        assert_eq!(bench.send(method, "/p").status, 200, "{method}");
    }
    bench.get("/marker");
    assert!(bench.record("news", "/p").is_none());
    bench.reload(&policy("", ""));
    assert_eq!(bench.get_with("/p", "").status, 200);
    bench.reload(&policy("", REMEMBERS));
    bench.get("/marker2");
    assert!(bench.record("news", "/p").is_none());
    assert_eq!(bench.ledger.records(None, 10).unwrap().len(), 2);
}

#[test]
fn an_aborted_delivery_is_not_recorded_as_a_document() {
    let bench = LedgerBench::scripted(&policy("", REMEMBERS), |connection, head| {
        if path(head) == "/marker" {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            return true;
        }
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        connection.wait_for_close();
        false
    });
    let mut client = RawClient::connect(bench.door("news"));
    client.send_get(&bench.url("a.test", "/p"), "");
    client.read_until("hello");
    drop(client);
    wait_until("the origin sees it", || {
        bench.origin.ended_connections() == 1
    });
    bench.get("/marker");
    assert!(
        bench.record("news", "/p").is_none(),
        "{:?}",
        bench.record("news", "/p")
    );
}

#[test]
fn a_body_that_breaks_off_is_a_temporary_error_and_one_that_is_cut_is_refused() {
    let bench = LedgerBench::scripted(&policy("  max_body: 10B", REMEMBERS), |connection, head| {
        match path(head) {
            "/short" => connection.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"),
            "/long" => connection.send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n01234567\r\n8\r\n89abcdef\r\n0\r\n\r\n",
            ),
            _ => connection.send("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n0123456789a"),
        }
        false
    });
    for (path, status, errors) in [
        ("/short", CrawlStatus::Error, 1),
        ("/long", CrawlStatus::Import, 0),
        ("/told", CrawlStatus::Import, 0),
    ] {
        let mut client = RawClient::connect(bench.door("news"));
        let url = bench.url("a.test", path);
        client.send(format!(
            "GET {url} HTTP/1.1\r\nHost: a.test:{}\r\nConnection: close\r\n\r\n",
            bench.origin.port
        ));
        client.read_to_end();
        let record = bench.until_known("news", path);
        assert_eq!(record.status.0, status, "{path}");
        assert_eq!(record.temporary_errors, errors, "{path}");
        assert_eq!(record.last_fetched, None, "{path}");
        assert_eq!(record.index_state, IndexState::Never, "{path}");
    }
}

#[test]
fn an_empty_document_is_recorded_and_releases_its_buffer() {
    let bench = LedgerBench::new(&policy("  unmodified: tag", ""), |_| page("", ""));
    for path in ["/1", "/2"] {
        bench.get(path);
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let content = bench.record("news", path).unwrap().content_hash.unwrap();
        assert_eq!(
            content
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>(),
            empty
        );
    }
    assert_eq!(
        bench.origin.connections(),
        1,
        "its connection is used again"
    );
}

#[test]
fn a_304_to_the_client_leaves_the_document_record() {
    let bench = LedgerBench::new(&policy("", REMEMBERS), |head| {
        let asked = head.to_lowercase().contains("if-none-match: \"v1\"");
        if asked {
            bare(304, "ETag: \"v1\"\r\n")
        } else {
            page("ETag: \"v1\"\r\n", "hello")
        }
    });
    bench.get("/p");
    bench.manual_clock.advance(HOUR);
    let answer = bench.get_with("/p", "If-None-Match: \"v1\"\r\n");
    assert_eq!(
        (answer.status, answer.value("crawl-status")),
        (304, "ACCEPTED")
    );
    assert_eq!(answer.value("crawl-error"), "");
    bench.until_record("/p", "was looked at", |record| {
        record.origin_status == Some(304)
    });
    let record = bench.record("news", "/p").unwrap();
    assert_eq!(
        (record.last_fetched, record.size),
        (Some(record.first_seen), 5)
    );
    assert_eq!(record.last_seen.duration_since(record.first_seen), HOUR);
}

#[test]
fn a_refused_answer_is_remembered_with_its_reason() {
    let rules = "rules:\n  - { id: pages, require: { content_type: text/html }, log: true }\nspaces:\n  - { name: all }";
    let bench = LedgerBench::new(&policy("  noindex: pass", rules), |_| {
        Some("HTTP/1.1 200 OK\r\nContent-Type: image/gif\r\nContent-Length: 2\r\n\r\nok".into())
    });
    assert_eq!(bench.get_with("/p", "").status, 451);
    let record = bench.until_known("news", "/p");
    assert!(record.is_known(), "it was admitted and answered");
    assert_eq!(
        (record.status.0, record.origin_status),
        (CrawlStatus::Filter, Some(200))
    );
    assert_eq!(
        (record.last_fetched, record.index_state),
        (None, IndexState::Never)
    );
    // From then on the ledger refuses it.
    assert_eq!(bench.get_with("/p", "").value("crawl-code"), "760");
}

#[test]
fn a_reload_keeps_the_records() {
    let bench = LedgerBench::scripted(&policy("", REMEMBERS), |connection, _| {
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        std::thread::sleep(Duration::from_millis(100));
        connection.send("world");
        true
    });
    let mut client = RawClient::connect(bench.door("news"));
    let url = bench.url("a.test", "/p");
    client.send(format!(
        "GET {url} HTTP/1.1\r\nHost: a.test:{}\r\nConnection: close\r\n\r\n",
        bench.origin.port
    ));
    client.read_until("hello");
    bench.reload(&policy("  source: later", REMEMBERS));
    client.read_until("world");
    let record = bench.until_known("news", "/p");
    assert_eq!((record.size, record.source.as_deref()), (10, None));
}

/// As before the request is sent: `disallow` and a filter without `log` leave no record of a URL that has none.
#[test]
fn a_page_refused_by_its_type_is_recorded_only_if_that_is_logged() {
    let rules = "rules:
  - { id: quiet, when: { under: /quiet, content_type: text/html }, then: disallow }
  - { id: logged, when: { under: /logged, content_type: text/html }, then: disallow-log }
  - { id: filter, forbid: { under: /filter, content_type: text/html } }
  - { id: noted, forbid: { under: /noted, content_type: text/html }, log: true }
  - { id: whole, forbid: { under: /whole, content_type: text/html } }
  - { id: record, when: { under: /whole }, set: { record: full } }
  - { id: private, when: { under: /private }, set: { noindex: reject, record: none } }
";
    let bench = LedgerBench::new(&policy("", &format!("{rules}{REMEMBERS}")), |head| {
        let tag = if path(head) == "/private" {
            "X-Robots-Tag: noindex\r\n"
        } else {
            ""
        };
        page(tag, "hello")
    });
    let recorded = ["/logged", "/noted", "/whole"];
    for path in ["/quiet", "/filter", "/private"]
        .into_iter()
        .chain(recorded)
    {
        assert_eq!(bench.get_with(path, "").status, 451, "{path}");
    }
    bench.get("/marker");
    let found = bench.ledger.records(None, 10).unwrap();
    let mut urls: Vec<String> = found
        .iter()
        .map(|(_, record)| record.url.to_string())
        .collect();
    urls.sort();
    let expected = ["/logged", "/marker", "/noted", "/whole"].map(|path| bench.url("a.test", path));
    assert_eq!(urls, expected);
    // A URL that has a record keeps one.
    bench.reload(&policy("", REMEMBERS));
    bench.get("/quiet");
    bench.reload(&policy("", &format!("{rules}{REMEMBERS}")));
    assert_eq!(bench.get_with("/quiet", "").value("crawl-code"), "760");
    bench.until_record("/quiet", "is refused", |record| {
        record.status.0 == CrawlStatus::Filter
    });
}
