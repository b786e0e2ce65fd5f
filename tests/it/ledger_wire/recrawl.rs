//! Premature, unmodified and duplicate documents: those that the crawler already has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crawlgate::ledger::record::IndexState;
use crawlgate::model::crawl_status::CrawlStatus;

use super::{HOUR, LedgerBench, bare, page, path, policy};
use crate::support::wait::wait_until;

#[test]
fn a_url_is_not_fetched_again_before_its_time() {
    let rules = "rules:\n  - { id: daily, about: once a day, when: { under: /daily }, set: { recrawl: { min_interval: \
                 1d } } }";
    let bench = LedgerBench::new(&policy("  recrawl: { min_interval: 1h }", rules), |_| None);
    bench.get("/p");
    bench.get("/daily/p");
    bench.manual_clock.advance(Duration::from_millis(1_500));
    let soon = bench.get_with("/p", "");
    assert_eq!(
        (soon.status, soon.value("crawl-status")),
        (451, "REJECTED_PREMATURE")
    );
    assert_eq!(
        (soon.value("crawl-reason"), soon.value("crawl-retry")),
        ("premature", "after")
    );
    assert_eq!(
        (soon.value("retry-after"), soon.value("crawl-rule")),
        ("3599", "")
    );
    assert!(soon.body.contains("\"stage\":\"ledger\""), "{}", soon);
    let asked = bench.get_with("/p", "If-None-Match: \"x\"\r\n");
    assert_eq!((asked.status, asked.value("retry-after")), (304, "3599"));
    assert_eq!(bench.send("HEAD", "/p").status, 451, "as a GET");
    assert_eq!(bench.send("POST", "/p").status, 200, "no recrawl");
    assert_eq!(
        bench.ask_as("shop", &bench.url("a.test", "/p"), "").status,
        200,
        "another crawler"
    );
    bench.manual_clock.advance(HOUR);
    assert_eq!(bench.get_with("/p", "").status, 200);
    let daily = bench.get_with("/daily/p", "");
    assert_eq!((daily.status, daily.value("crawl-rule")), (451, "daily"));
    assert!(daily.body.contains("once a day"), "{}", daily);
}

#[test]
fn a_permitted_crawler_forces_a_fetch() {
    let options = "  recrawl: { min_interval: 1h, after_error: 1h }";
    let bench = LedgerBench::new(&policy(options, ""), |head| match path(head) {
        "/fails" => bare(503, ""),
        _ => None,
    });
    let ask = |path, fields: &str| bench.ask_as("shop", &bench.url("a.test", path), fields);
    bench.get("/p");
    assert_eq!(ask("/p", "").status, 200);
    bench.until_known("shop", "/p");
    for (fields, status) in [
        ("", 451),
        ("Cache-Control: max-age=0\r\n", 451),
        ("Cache-Control: no-cache=x\r\n", 451),
        ("Cache-Control: no-cache\r\n", 200),
        (
            "Cache-Control: max-age=0\r\nCache-Control: No-Cache\r\n",
            200,
        ),
        ("Cache-Control: max-age=0, no-cache\r\n", 200),
        ("Pragma: no-cache\r\n", 200),
    ] {
        let before = bench.heads().len();
        assert_eq!(ask("/p", fields).status, status, "{fields}");
        let sent = bench.heads().len() - before;
        assert_eq!(sent, usize::from(status == 200), "{fields}");
    }
    let other = bench.get_with("/p", "Cache-Control: no-cache\r\n");
    assert_eq!(other.value("crawl-reason"), "premature", "it may not");
    // An error is given its time.
    assert_eq!(ask("/fails", "").status, 503);
    bench.until_known("shop", "/fails");
    let again = ask("/fails", "Cache-Control: no-cache\r\n");
    assert_eq!(again.value("crawl-reason"), "premature");
}

#[test]
fn a_head_does_not_begin_the_interval() {
    let bench = LedgerBench::new(&policy("  recrawl: { min_interval: 1h }", ""), |_| None);
    assert_eq!(bench.send("HEAD", "/p").status, 200);
    assert_eq!(bench.get_with("/p", "").status, 200);
}

#[test]
fn an_error_is_not_tried_again_before_its_time() {
    let bench = LedgerBench::new(&policy("  recrawl: { after_error: 1d }", ""), |_| {
        bare(429, "")
    });
    assert_eq!(bench.get_with("/p", "").status, 429);
    bench.until_known("news", "/p");
    bench.manual_clock.advance(HOUR);
    let soon = bench.get_with("/p", "");
    assert_eq!(
        (soon.value("crawl-reason"), soon.value("retry-after")),
        ("premature", "82800")
    );
    bench.manual_clock.advance(23 * HOUR);
    assert_eq!(bench.get_with("/p", "").status, 429);
}

/// A page with a version, by which it evaluates conditions.
fn versioned(version: &Arc<AtomicU32>) -> impl Fn(&str) -> Option<String> + Send + Sync + 'static {
    let version = Arc::clone(version);
    move |head| {
        let now = version.load(Ordering::SeqCst);
        let tag = format!("\"v{now}\"");
        let body = format!("hello {now}");
        let asked = head
            .to_lowercase()
            .contains(&format!("if-none-match: {tag}"));
        let tag = format!("ETag: {tag}\r\n");
        if asked {
            bare(304, &tag)
        } else {
            page(&tag, &body)
        }
    }
}

#[test]
fn the_proxy_revalidates_pages_and_hides_the_304() {
    let version = Arc::new(AtomicU32::new(1));
    let bench = LedgerBench::new(&policy("  unmodified: reject", ""), versioned(&version));
    bench.get("/p");
    let first = bench.heads().pop().unwrap().to_lowercase();
    assert!(!first.contains("if-none-match"), "{first}");
    let again = bench.get_with("/p", "");
    assert_eq!(again.status, 451, "{}", again);
    assert_eq!(
        again.value("crawl-status"),
        "REJECTED_UNMODIFIED",
        "{}",
        again
    );
    assert_eq!(again.value("crawl-reason"), "unmodified");
    assert!(
        again.value("proxy-status").contains("received-status=304"),
        "{}",
        again
    );
    assert!(
        bench
            .heads()
            .pop()
            .unwrap()
            .to_lowercase()
            .contains("if-none-match: \"v1\"")
    );
    bench.until_record("/p", "is unmodified", |record| {
        record.status.0 == CrawlStatus::Unmodified
    });
    // A conditional request of the client gets its own result.
    let own = bench.get_with("/p", "If-None-Match: \"v1\"\r\n");
    assert_eq!(own.status, 304);
    assert_eq!(own.value("crawl-status"), "ACCEPTED");
    assert_eq!(own.value("crawl-reason"), "");
    // The old version is not the latest: the crawler has the page, and it stays.
    let older = bench.get_with("/p", "If-None-Match: \"v0\"\r\n");
    assert_eq!(
        (older.status, older.value("crawl-reason")),
        (304, "unmodified")
    );
    let part = bench.get_with("/p", "Range: bytes=0-1\r\n");
    assert_eq!(
        part.value("crawl-reason"),
        "unmodified",
        "a whole answer all the same: {}",
        part
    );
    assert!(
        !bench
            .heads()
            .pop()
            .unwrap()
            .to_lowercase()
            .contains("if-none-match")
    );
    version.store(2, Ordering::SeqCst);
    assert_eq!(bench.get("/p").body, "hello 2");
    bench.until_record("/p", "is new", |record| {
        record.validators.etag.as_deref() == Some("\"v2\"")
    });
}

#[test]
fn an_origin_that_knows_no_conditions_is_found_out_by_its_validators() {
    let fields = "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n";
    for (option, status, tag, reason) in [
        ("reject", 451, "", "unmodified"),
        ("tag", 200, "unmodified", ""),
        ("pass", 200, "", ""),
    ] {
        let options = format!("  unmodified: {option}\n  recrawl: {{ min_interval: 1s }}");
        let bench = LedgerBench::new(&policy(&options, ""), move |_| page(fields, "hello"));
        assert_eq!(bench.get("/p").value("crawl-tag"), "");
        bench.manual_clock.advance(HOUR);
        let again = bench.get_with("/p", "");
        assert_eq!(again.status, status, "{option}: {}", again);
        assert_eq!(again.value("crawl-tag"), tag, "{option}: {}", again);
        assert_eq!(again.value("crawl-reason"), reason, "{option}");
        assert_eq!(
            again.to_string().contains("hello"),
            status == 200,
            "{option}"
        );
        let conditional = bench.heads()[1]
            .to_lowercase()
            .contains("if-modified-since: thu, 01 jan 2026");
        assert_eq!(conditional, option == "reject", "{option}");
    }
}

#[test]
fn a_removed_url_is_fetched_in_full_when_it_is_allowed_again() {
    let whole = "spaces:\n  - { name: all }";
    let version = Arc::new(AtomicU32::new(1));
    let options = "  unmodified: reject\n  recrawl: { min_interval: 1d }";
    let bench = LedgerBench::new(&policy(options, whole), versioned(&version));
    bench.get("/p");
    assert_eq!(bench.get_with("/p", "").value("crawl-reason"), "premature");
    bench.reload(&policy(
        options,
        "spaces:\n  - { name: all, rules: [ { forbid: { path: /p } } ] }",
    ));
    assert_eq!(bench.get_with("/p", "").value("crawl-code"), "760");
    bench.until_record("/p", "is removed", |record| {
        matches!(record.index_state, IndexState::Removed { .. })
    });
    bench.reload(&policy(options, whole));
    assert_eq!(bench.get("/p").body, "hello 1");
    bench.until_record("/p", "is back", |record| {
        record.index_state == IndexState::Possible
    });
}

#[test]
fn a_page_that_another_url_has_is_a_duplicate() {
    for (option, status, reason) in [("reject", 451, "duplicate"), ("tag", 200, "")] {
        let options = format!("  duplicate: {option}");
        let bench = LedgerBench::new(&policy(&options, ""), |head| match path(head) {
            "/weak1" | "/weak2" => page("ETag: W/\"w\"\r\n", path(head)),
            "/other" => page("ETag: \"o\"\r\n", "other"),
            _ => page("ETag: \"a\"\r\n", "hello"),
        });
        bench.get("/a");
        let b = bench.get_with("/b", "");
        assert_eq!(b.status, status, "{option}: {}", b);
        assert_eq!(b.value("crawl-reason"), reason, "{option}: {}", b);
        let tag = if option == "tag" {
            format!("duplicate; of={}", bench.url("a.test", "/a"))
        } else {
            String::new()
        };
        assert_eq!(b.value("crawl-tag"), tag, "{option}");
        wait_until("it is noted", || bench.record("news", "/b").is_some());
        for path in ["/a", "/other", "/weak1", "/weak2"] {
            let answer = bench.get_with(path, "");
            assert_eq!(answer.status, 200, "{option} {path}");
            assert_eq!(answer.value("crawl-tag"), "", "{option} {path}");
        }
        let elsewhere = bench.ask_as("news", &bench.url("b.test", "/b"), "");
        assert_eq!(elsewhere.status, 200, "of another host");
        assert_eq!(elsewhere.value("crawl-tag"), "", "of another host");
        let other = bench.ask_as("shop", &bench.url("a.test", "/b"), "");
        assert_eq!(other.status, 200, "of another crawler");
        assert_eq!(other.value("crawl-tag"), "", "of another crawler");
    }
}

/// One order, for `tag` and `reject` alike: the content; a strong entity tag where the content cannot be compared.
#[test]
fn content_decides_about_duplicates_and_else_a_strong_tag() {
    for option in ["reject", "tag"] {
        let options = format!("  duplicate: {option}\n  max_buffer: 20B");
        let bench = LedgerBench::new(&policy(&options, ""), |head| {
            let (tag, body) = match path(head) {
                "/a" | "/same" => ("\"a\"", "hello"),
                "/other" => ("\"a\"", "another"),
                "/untagged" => ("", "hello"),
                "/weak" => ("W/\"a\"", "something else"),
                "/large" | "/large2" => ("\"l\"", "larger than the buffer can hold"),
                "/large3" => ("W/\"l\"", "larger than the buffer can hold"),
                other => panic!("{other}"),
            };
            let tag = if tag.is_empty() {
                String::new()
            } else {
                format!("ETag: {tag}\r\n")
            };
            if head.starts_with("HEAD") {
                let length = body.len();
                return Some(format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{tag}Content-Length: {length}\r\n\r\n"
                ));
            }
            page(&tag, body)
        });
        for original in ["/a", "/large"] {
            bench.get(original);
            bench.until_known("news", original);
        }
        for (method, path, of) in [
            ("GET", "/same", "/a"),
            ("GET", "/other", ""),
            ("GET", "/untagged", "/a"),
            ("GET", "/weak", ""),
            ("GET", "/large2", "/large"),
            ("GET", "/large3", ""),
            ("HEAD", "/same", "/a"),
            ("HEAD", "/untagged", ""),
            ("HEAD", "/weak", ""),
            ("HEAD", "/large2", "/large"),
            ("HEAD", "/a", ""),
        ] {
            let answer = bench.send(method, path);
            let found = match (answer.value("crawl-reason"), answer.value("crawl-tag")) {
                ("duplicate", "") if option == "reject" => true,
                ("", tag) if option == "tag" && !tag.is_empty() => {
                    assert_eq!(tag, format!("duplicate; of={}", bench.url("a.test", of)));
                    true
                }
                _ => false,
            };
            assert_eq!(found, !of.is_empty(), "{option} {method} {path}: {answer}");
        }
        let elsewhere = format!("{} ", bench.url("b.test", "/same"));
        let elsewhere = bench.ask_as("news", elsewhere.trim(), "");
        assert_eq!(elsewhere.status, 200, "of another host");
        assert_eq!(elsewhere.value("crawl-tag"), "", "of another host");
    }
}

/// `duplicate: links` and `noindex: links`: only links are given, and the ledger records why.
#[test]
fn a_page_that_only_gives_its_links_is_recorded_as_refused() {
    const LINK: &str = "<p>words <a href=/next>next</a>";
    let options = "  duplicate: links\n  noindex: links\n  recrawl: { min_interval: 1h }";
    let bench = LedgerBench::new(&policy(options, ""), |head| match path(head) {
        "/noindex" => page("X-Robots-Tag: noindex\r\n", "<p>other words <a href=/next>"),
        "/nofollow" => page(
            "",
            "<meta name=robots content=nofollow><p>words <a href=/next>",
        ),
        "/nofollow2" => page(
            "",
            "<meta name=robots content=nofollow><p>words <a href=/next>",
        ),
        _ => page("", LINK),
    });
    for (path, reason, tag) in [
        ("/a", "", String::new()),
        (
            "/b",
            "",
            format!("duplicate; of={}", bench.url("a.test", "/a")),
        ),
        ("/nofollow", "", String::new()),
        ("/nofollow2", "duplicate", String::new()),
        ("/noindex", "", "noindex".to_owned()),
    ] {
        let answer = bench.get_with(path, "");
        assert_eq!(answer.value("crawl-reason"), reason, "{path}: {answer}");
        assert_eq!(answer.value("crawl-tag"), tag, "{path}: {answer}");
        assert_eq!(
            answer.body.contains("words"),
            reason.is_empty() && tag.is_empty(),
            "{path}"
        );
        if reason.is_empty() {
            assert!(answer.body.contains("href"), "{path}: {answer}");
            bench.until_known("news", path);
        }
    }
    for (path, status) in [
        ("/b", CrawlStatus::Duplicate),
        ("/noindex", CrawlStatus::Noindex),
    ] {
        bench.until_record(path, "has only given its links", |record| {
            record.status.0 == status && record.index_state == IndexState::Never
        });
        assert_eq!(
            bench.get_with(path, "").value("crawl-reason"),
            "premature",
            "{path}"
        );
    }
}

#[test]
fn large_duplicates_are_tagged() {
    let options = "  duplicate: reject\n  max_buffer: 10B";
    let bench = LedgerBench::new(&policy(options, ""), |head| {
        let tag = if path(head).starts_with("/untagged") {
            ""
        } else {
            "ETag: \"a\"\r\n"
        };
        page(tag, "larger than that")
    });
    bench.get("/a");
    assert_eq!(bench.get_with("/b", "").value("crawl-reason"), "duplicate");
    bench.get("/untagged1");
    assert_eq!(
        bench.get_with("/untagged2", "").status,
        200,
        "it was sent on while it came"
    );
}

#[test]
fn a_page_that_has_moved_is_no_duplicate_of_where_it_was() {
    let moved = Arc::new(AtomicU32::new(0));
    let state = Arc::clone(&moved);
    let bench = LedgerBench::new(&policy("  duplicate: reject", ""), move |head| {
        if path(head) == "/a" && state.load(Ordering::SeqCst) == 1 {
            bare(404, "")
        } else {
            page("ETag: \"a\"\r\n", "x")
        }
    });
    bench.get("/a");
    assert_eq!(bench.get_with("/b", "").value("crawl-reason"), "duplicate");
    moved.store(1, Ordering::SeqCst);
    assert_eq!(bench.get_with("/a", "").status, 404);
    bench.until_record("/a", "is removed", |record| record.lacks_document());
    assert_eq!(bench.get_with("/b", "").status, 200);
}

#[test]
fn reasons_come_in_the_order_of_the_contract() {
    let rules = "rules:\n  - { id: no, forbid: { under: /no } }\n  - { id: gif, forbid: { content_type: image/gif } }\n  \
                 - { id: deep, when: { under: /deep }, set: { max_depth: 0 } }";
    let options = "  recrawl: { min_interval: 1h }\n  unmodified: reject\n  duplicate: reject\n  noindex: pass";
    let open = policy("  unmodified: pass\n  recrawl: { min_interval: 1s }", "");
    let bench = LedgerBench::new(&open, |head| {
        let kind = if path(head).contains("gif") {
            "image/gif"
        } else {
            "text/html"
        };
        let tag = path(head);
        Some(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nETag: \"{tag}\"\r\nContent-Length: 2\r\n\r\nok"
        ))
    });
    for path in ["/", "/no", "/gif", "/p"] {
        bench.get(path);
    }
    let deep = format!("Referer: {}\r\n", bench.url("a.test", "/"));
    assert_eq!(bench.get_with("/deep", &deep).status, 200);
    bench.until_known("news", "/deep");
    bench.reload(&policy(options, rules));
    for (path, fields, later, reason) in [
        ("/deep", deep.as_str(), Duration::ZERO, "too_deep"),
        ("/no", "", Duration::ZERO, "rule"),
        ("/p", "", Duration::ZERO, "premature"),
        ("/gif", "", 2 * HOUR, "rule"),
        ("/p", "", Duration::ZERO, "unmodified"),
        ("/p2", "", Duration::ZERO, ""),
    ] {
        bench.manual_clock.advance(later);
        let answer = bench.get_with(path, fields);
        assert_eq!(answer.value("crawl-reason"), reason, "{path}: {}", answer);
    }
}
