//! The option `removal`, and the way back: events, and the fetch that follows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use crawlgate::ledger::event::LedgerEventKind::{self, PermanentError, Removal, Restored};
use crawlgate::ledger::event::LedgerEventReason as Why;
use crawlgate::ledger::record::IndexState;
use crawlgate::ledger::removal::RemovalSchedule;
use crawlgate::model::crawl_status::CrawlStatus;
use crawlgate::store::ledger::{Ledger, LedgerSettings};

use super::{HOUR, LedgerBench, bare, page, path, policy};
use crate::support::client::{get, get_with};
use crate::support::origin::{ScriptedOrigin, response};
use crate::support::proxy::{CONFIG, TestProxy};
use crate::support::temp_dir::TempDir;
use crate::support::wait::wait_until;

const REMEMBERS: &str = "spaces:\n  - { name: all }";
/// Refuses what the site answers once it has changed.
const CHECKED: &str =
    "  noindex: reject\n  noncanonical: reject\n  duplicate: reject\n  max_body: 100B";
const PATHS: [&str; 10] = [
    "/robots", "/rule", "/noindex", "/canon", "/twin", "/big", "/404", "/410", "/500", "/type",
];

/// A path, and its events.
type PathEvents = (&'static str, Vec<(LedgerEventKind, Why)>);

/// A site whose pages all change at once, and a switch for that.
fn site(policy_text: &str) -> (LedgerBench, Arc<AtomicU16>) {
    let changed = Arc::new(AtomicU16::new(0));
    let now = Arc::clone(&changed);
    let bench = LedgerBench::new(policy_text, move |head| {
        let robots = "User-agent: *\nDisallow: /robots\n";
        match (path(head), now.load(Ordering::SeqCst)) {
            ("/robots.txt", 0) => page("", "User-agent: *\nAllow: /\n"),
            ("/robots.txt", _) => page("", robots),
            (path, 0) => page("", path),
            ("/noindex", _) => page("X-Robots-Tag: noindex\r\n", "noindex"),
            ("/canon", _) => page("Link: </other>; rel=canonical\r\n", "canon"),
            ("/twin", _) => page("", "/first"),
            ("/big", _) => page("", &"x".repeat(200)),
            ("/404", _) => bare(404, ""),
            ("/410", _) => bare(410, ""),
            ("/500", _) => bare(500, ""),
            ("/type", _) => Some(
                "HTTP/1.1 200 OK\r\nContent-Type: image/gif\r\nContent-Length: 2\r\n\r\nok".into(),
            ),
            (path, _) => page("", path),
        }
    });
    (bench, changed)
}

/// The events of each path.
fn by_path(bench: &LedgerBench) -> BTreeMap<String, Vec<(LedgerEventKind, Why)>> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (kind, why, path) in bench.events() {
        found.entry(path).or_default().push((kind, why));
    }
    found
}

/// Crawls the site, changes it and the policy, and crawls it again every hour.
fn crawl_changing_site(option: &str) -> BTreeMap<String, Vec<(LedgerEventKind, Why)>> {
    let open = format!("{CHECKED}\n{option}");
    let (bench, changed) = site(&policy(&open, ""));
    bench.get("/first");
    for path in PATHS {
        bench.get(path);
    }
    changed.store(1, Ordering::SeqCst);
    let rules = "rules:\n  - { id: site, when: { under: /robots }, set: { robots: { obey: true } } }\n  \
                 - { id: no, forbid: { under: /rule } }\n  - { id: html, require: { content_type: text/html } }";
    bench.reload(&policy(&open, rules));
    for turn in 0..3 {
        bench.manual_clock.advance(HOUR);
        for path in PATHS {
            assert_ne!(bench.get_with(path, "").status, 200, "{option}: {path}");
        }
        // Outcomes are recorded in order.
        let marker = format!("/marker{turn}");
        bench.get(&marker);
    }
    by_path(&bench)
}

#[test]
fn a_page_that_turns_bad_leaves_the_index_as_the_policy_chooses() {
    let removed = |why| vec![(Removal, why)];
    let errors = [
        ("/404", removed(Why::PermanentError)),
        ("/410", removed(Why::PermanentError)),
        ("/500", removed(Why::PermanentError)),
    ];
    let by_norconex = [
        ("/robots", removed(Why::RobotsTxt)),
        ("/rule", removed(Why::Excluded)),
        ("/type", removed(Why::Excluded)),
        ("/noindex", removed(Why::Noindex)),
        ("/canon", removed(Why::Noncanonical)),
        ("/twin", removed(Why::Duplicate)),
        ("/big", removed(Why::TooLarge)),
    ];
    let excluded = [
        ("/rule", removed(Why::Excluded)),
        ("/type", removed(Why::Excluded)),
    ];
    let gone = [
        ("/noindex", removed(Why::Noindex)),
        ("/canon", removed(Why::Noncanonical)),
        ("/twin", removed(Why::Duplicate)),
    ];
    let all = |parts: &[&[PathEvents]]| {
        let rows = parts.iter().flat_map(|part| part.iter());
        rows.map(|(path, events)| ((*path).to_owned(), events.clone()))
            .collect::<BTreeMap<_, _>>()
    };
    for (option, expected) in [
        // The second 500 removes by default.
        ("  max_depth: 9", all(&[&errors])),
        ("  removal: norconex", all(&[&errors, &by_norconex])),
        ("  removal: cloudview", all(&[&errors])),
        ("  removal: omnifind", all(&[&errors[..2]])),
        (
            "  removal: { preset: norconex, noindex: keep, bad_status: keep, gone: keep }",
            all(&[&errors[..1], &by_norconex[..3], &by_norconex[4..]]),
        ),
        (
            "  removal: { duplicate: once_more, not_found: keep }",
            all(&[&errors[1..], &gone[2..]]),
        ),
        // The intent removes, unless the option says otherwise.
        (
            "  max_depth: 9\n  reject: gone",
            all(&[&errors, &excluded, &gone]),
        ),
        (
            "  reject: gone\n  removal: { rule: keep, noindex: keep }",
            all(&[&errors, &gone[1..]]),
        ),
        // What is refused only for now, or to keep the page, never removes it.
        (
            "  reject: later\n  removal: norconex",
            all(&[&errors, &by_norconex[..1]]),
        ),
        (
            "  reject: keep\n  removal: norconex",
            all(&[&errors, &by_norconex[..1]]),
        ),
    ] {
        assert_eq!(crawl_changing_site(option), expected, "{option}");
    }
}

#[test]
fn a_rule_chooses_for_its_urls() {
    let status = Arc::new(AtomicU16::new(200));
    let now = Arc::clone(&status);
    let rules =
        "rules:\n  - { id: a, when: { under: /kept }, set: { removal: { not_found: keep } } }";
    let bench = LedgerBench::new(&policy("", rules), move |_| {
        match now.load(Ordering::SeqCst) {
            200 => None,
            status => bare(status, ""),
        }
    });
    bench.get("/kept");
    bench.get("/other");
    status.store(404, Ordering::SeqCst);
    assert_eq!(bench.get_with("/kept", "").status, 404);
    assert_eq!(bench.get_with("/other", "").status, 404);
    wait_until("one is removed", || !bench.events().is_empty());
    assert_eq!(
        bench.events(),
        [(Removal, Why::PermanentError, "/other".to_owned())]
    );
    bench.until_record("/kept", "stays known", |record| {
        record.status.0 == CrawlStatus::NotFound && record.is_known() && record.may_leave_index()
    });
}

#[test]
fn a_failing_origin_is_hidden_by_a_refusal_for_now() {
    let status = Arc::new(AtomicU16::new(200));
    let now = Arc::clone(&status);
    let rules = "rules:\n  - { id: hide, forbid: { status: 5xx }, reject: later }\n";
    let options = "  removal: { bad_status: remove }";
    let bench = LedgerBench::new(&policy(options, rules), move |_| {
        match now.load(Ordering::SeqCst) {
            200 => None,
            status => bare(status, ""),
        }
    });
    bench.get("/p");
    status.store(500, Ordering::SeqCst);
    assert_eq!(bench.get_with("/p", "").status, 503);
    bench.until_record("/p", "has failed", |record| record.last_error.is_some());
    assert_eq!(bench.events(), []);
}

#[test]
fn repeated_errors_are_one_event_for_each_url() {
    let status = Arc::new(AtomicU16::new(200));
    let now = Arc::clone(&status);
    let bench = LedgerBench::new(&policy("", REMEMBERS), move |head| {
        match (path(head), now.load(Ordering::SeqCst)) {
            (path, status) if path.starts_with("/missing") || status != 200 => bare(404, ""),
            _ => None,
        }
    });
    let known = ["/a", "/b", "/c"];
    let missing = ["/missing/1", "/missing/2", "/missing/3"];
    for path in known {
        bench.get(path);
    }
    status.store(404, Ordering::SeqCst);
    for _ in 0..24 {
        bench.manual_clock.advance(HOUR);
        for path in known.into_iter().chain(missing) {
            let before = bench.record("news", path).map(|record| record.last_seen);
            assert_eq!(bench.get_with(path, "").status, 404);
            wait_until("the request is recorded", || {
                bench.record("news", path).map(|record| record.last_seen) != before
            });
        }
    }
    let found = by_path(&bench);
    for path in known {
        assert_eq!(found[path], [(Removal, Why::PermanentError)], "{path}");
    }
    for path in missing {
        assert_eq!(
            found[path],
            [(PermanentError, Why::PermanentError)],
            "{path}"
        );
    }
    assert_eq!(found.len(), 6);
    assert_eq!(bench.ledger.stats().urls.values().sum::<u64>(), 6);
}

#[test]
fn a_head_that_finds_nothing_removes_as_a_get_does() {
    let status = Arc::new(AtomicU16::new(200));
    let now = Arc::clone(&status);
    let bench = LedgerBench::new(&policy("", REMEMBERS), move |_| {
        match now.load(Ordering::SeqCst) {
            200 => page("ETag: \"a\"\r\n", "ok"),
            status => bare(status, "ETag: \"b\"\r\n"),
        }
    });
    bench.get("/p");
    bench.get("/q");
    let before = bench.record("news", "/p").unwrap();
    bench.manual_clock.advance(HOUR);
    // A page, a method that the origin does not have, and a failure for now change nothing.
    for answer in [200, 405, 500] {
        status.store(answer, Ordering::SeqCst);
        assert_eq!(bench.send("HEAD", "/p").status, answer);
    }
    assert_eq!(bench.send("HEAD", "/new").status, 500);
    status.store(404, Ordering::SeqCst);
    assert_eq!(bench.send("HEAD", "/q").status, 404);
    wait_until("it is removed", || bench.events().len() == 1);
    assert_eq!(bench.record("news", "/p").unwrap(), before);
    assert!(bench.record("news", "/new").is_none());
    status.store(410, Ordering::SeqCst);
    assert_eq!(bench.send("HEAD", "/p").status, 410);
    assert_eq!(bench.send("HEAD", "/p").status, 410);
    assert_eq!(bench.send("HEAD", "/new").status, 410);
    wait_until("all are told", || bench.events().len() == 3);
    let event = |kind, path: &str| (kind, Why::PermanentError, path.to_owned());
    assert_eq!(
        bench.events(),
        [
            event(Removal, "/q"),
            event(Removal, "/p"),
            event(PermanentError, "/new")
        ]
    );
    // A HEAD does not bring it back.
    status.store(200, Ordering::SeqCst);
    assert_eq!(bench.send("HEAD", "/p").status, 200);
    let record = bench.record("news", "/p").unwrap();
    assert!(record.lacks_document());
    assert_eq!(record.last_fetched, before.last_fetched);
}

/// A page with a version and a date, by which it evaluates conditions.
fn versioned(status: &Arc<AtomicU16>) -> impl Fn(&str) -> Option<String> + Send + Sync + 'static {
    let status = Arc::clone(status);
    move |head| {
        let head = head.to_lowercase();
        let is_conditional = ["if-none-match", "if-modified-since", "if-match", "if-range"]
            .into_iter()
            .any(|name| head.contains(name));
        match status.load(Ordering::SeqCst) {
            200 if is_conditional => bare(304, "ETag: \"v1\"\r\n"),
            200 if head.contains("\nrange:") => bare(206, "Content-Range: bytes 0-0/5\r\n"),
            200 => page("ETag: \"v1\"\r\n", "hello"),
            status => bare(status, ""),
        }
    }
}

const CONDITIONS: [&str; 4] = [
    "If-None-Match: \"v1\"\r\nIf-Modified-Since: Thu, 01 Jan 2026 00:00:00 GMT\r\n",
    "If-Modified-Since: Thu, 01 Jan 2026 00:00:00 GMT\r\n",
    "Range: bytes=0-0\r\nIf-Range: \"v1\"\r\n",
    "If-Match: \"v1\"\r\n",
];

#[test]
fn a_url_that_is_allowed_again_is_restored_and_fetched_in_full() {
    let status = Arc::new(AtomicU16::new(200));
    let without = "spaces:\n  - { name: all, rules: [ { forbid: { under: /p } } ] }";
    for options in ["", "  unmodified: reject\n  recrawl: { min_interval: 30d }"] {
        for (turn, fields) in CONDITIONS.into_iter().enumerate() {
            let bench = LedgerBench::new(&policy(options, REMEMBERS), versioned(&status));
            bench.get("/p");
            bench.reload(&policy(options, without));
            bench.until_record("/p", "is removed", |record| record.lacks_document());
            bench.reload(&policy(options, REMEMBERS));
            bench.until_record("/p", "is restored", |record| {
                record.index_state == IndexState::Restored
            });
            let what = format!("{options} {turn}");
            // Requests without a document leave it so.
            assert_eq!(bench.send("HEAD", "/p").status, 200, "{what}");
            let answer = bench.get_with("/p", fields);
            assert_eq!(
                (answer.status, &*answer.body),
                (200, "hello"),
                "{what}: {answer}"
            );
            bench.until_record("/p", "is back", |record| {
                record.index_state == IndexState::Possible
            });
            let events: Vec<_> = bench
                .events()
                .into_iter()
                .map(|event| (event.0, event.1))
                .collect();
            assert_eq!(
                events,
                [(Removal, Why::Excluded), (Restored, Why::Allowed)],
                "{what}"
            );
            // From then on the origin decides again, or the options do.
            bench.manual_clock.advance(HOUR);
            let again = bench.get_with("/p", "If-None-Match: \"v1\"\r\n");
            assert_eq!(again.status, 304, "{what}: {again}");
        }
    }
}

/// It chooses the group of robots.txt when the removal is confirmed.
#[test]
fn a_pending_removal_by_robots_txt_has_the_user_agent_of_the_request() {
    let ledger = Ledger::in_memory_with(LedgerSettings {
        removals: RemovalSchedule::Deferred,
        ..LedgerSettings::default()
    });
    let obeying = policy(
        "  removal: { robots_txt: remove }",
        "rules:\n  - { id: site, when: { under: /p }, set: { robots: { obey: true } } }",
    );
    let files = Arc::new(AtomicU16::new(0));
    let served = Arc::clone(&files);
    let bench = LedgerBench::with_ledger(&obeying, ledger, move |connection, head| {
        let is_file = head.contains("/robots.txt ");
        let text = match (is_file, served.load(Ordering::SeqCst)) {
            (false, _) => "hello",
            (true, 0) => "",
            (true, _) => "User-agent: newsbot\nDisallow: /p\n",
        };
        connection.send(page("", text).unwrap());
        true
    });
    bench.get("/p");
    files.store(1, Ordering::SeqCst);
    bench.manual_clock.advance(48 * HOUR);
    let refused = bench.get_with("/p", "User-Agent: NewsBot/2.0 (+http://n.test)\r\n");
    assert_eq!(refused.status, 451, "{refused}");
    bench.until_record("/p", "is pending", |record| {
        let pending = record.pending_removal.as_ref();
        pending.is_some_and(|pending| {
            pending.user_agent.as_deref() == Some("NewsBot/2.0 (+http://n.test)")
        })
    });
}

/// The policy that restores a URL need not use the ledger itself: only the URLs that the index lacks are looked up.
#[test]
fn a_url_is_fetched_in_full_under_a_policy_that_needs_no_ledger() {
    let status = Arc::new(AtomicU16::new(200));
    let without = "spaces:\n  - { name: all, rules: [ { forbid: { under: /p } } ] }";
    for (turn, fields) in CONDITIONS.into_iter().enumerate() {
        let bench = LedgerBench::new(&policy("", REMEMBERS), versioned(&status));
        bench.get("/p");
        let kept = bench.get("/q");
        assert_eq!(kept.body, "hello");
        bench.reload(&policy("", without));
        bench.until_record("/p", "is removed", |record| record.lacks_document());
        let before = bench.record("news", "/q");
        bench.manual_clock.advance(HOUR);
        bench.reload(&policy("", ""));
        bench.until_record("/p", "is restored", |record| {
            record.index_state == IndexState::Restored
        });
        assert_eq!(bench.get_with("/q", CONDITIONS[0]).status, 304);
        assert_eq!(bench.get_with("/new", "").status, 200);
        let answer = bench.get_with("/p", fields);
        assert_eq!(
            (answer.status, &*answer.body),
            (200, "hello"),
            "{turn}: {answer}"
        );
        bench.until_record("/p", "is back", |record| {
            record.index_state == IndexState::Possible
        });
        let again = bench.get_with("/p", "If-None-Match: \"v1\"\r\n");
        assert_eq!(again.status, 304, "{turn}: {again}");
        assert_eq!(
            bench.record("news", "/q"),
            before,
            "nothing else is recorded"
        );
        assert!(bench.record("news", "/new").is_none());
    }
}

/// After a restart the ledger of an earlier policy is opened again, although the policy needs none.
#[test]
fn a_ledger_that_exists_is_kept_over_a_restart() {
    let origin = ScriptedOrigin::respond(|request| {
        let is_conditional = request.head.to_lowercase().contains("if-none-match");
        match is_conditional {
            true => response(304, "ETag: \"v1\"\r\n", ""),
            false => response(200, "ETag: \"v1\"\r\n", "hello"),
        }
    });
    let store = TempDir::new();
    let config = |keep: &str| {
        format!(
            "{CONFIG}store: {{ path: {} }}\nledger: {{ keep: {keep}, removal_guard: {{ hold: off, grace: off }} }}\n",
            store.path().display()
        )
    };
    let without = policy(
        "",
        "spaces:\n  - { name: all, rules: [ { forbid: { under: /p } } ] }",
    );
    let removed = "crawlgate_ledger_events_total{kind=\"removal\"}";
    let url = origin.url("a.test", "/p");
    let proxy = TestProxy::start(&config("auto"), &policy("", REMEMBERS));
    get(proxy.proxy, &url).check(200, &["hello"]);
    proxy.wait_for_metric("crawlgate_ledger_urls{status=\"ACCEPTED\"}", 1.0);
    proxy.write("policy.yaml", &without);
    proxy.admin("POST /api/v1/reload").check(200, &[]);
    proxy.wait_for_metric(removed, 1.0);
    drop(proxy);
    let conditions = "If-None-Match: \"v1\"\r\n";
    // Without its ledger the proxy knows of no removal.
    let proxy = TestProxy::start(&config("never"), &policy("", ""));
    get_with(proxy.proxy, &url, conditions).check(304, &[]);
    drop(proxy);
    let proxy = TestProxy::start(&config("auto"), &policy("", ""));
    get_with(proxy.proxy, &url, conditions).check(200, &["hello"]);
    wait_until("the page is back in the index", || {
        proxy
            .admin("GET /api/v1/urls")
            .body
            .contains("\"indexed\":\"perhaps\"")
    });
    get_with(proxy.proxy, &url, conditions).check(304, &[]);
}

#[test]
fn a_url_that_failed_and_is_good_again_is_restored_by_its_fetch() {
    for (turn, fields) in CONDITIONS.into_iter().enumerate() {
        let status = Arc::new(AtomicU16::new(200));
        let options = "  unmodified: reject";
        let bench = LedgerBench::new(&policy(options, ""), versioned(&status));
        bench.get("/p");
        status.store(404, Ordering::SeqCst);
        bench.get_with("/p", fields);
        bench.until_record("/p", "is removed", |record| record.lacks_document());
        status.store(200, Ordering::SeqCst);
        let answer = bench.get_with("/p", fields);
        assert_eq!(
            (answer.status, &*answer.body),
            (200, "hello"),
            "{turn}: {answer}"
        );
        wait_until("it is restored", || bench.events().len() == 2);
        let events: Vec<_> = bench
            .events()
            .into_iter()
            .map(|event| (event.0, event.1))
            .collect();
        assert_eq!(
            events,
            [(Removal, Why::PermanentError), (Restored, Why::Fetched)]
        );
    }
}

#[test]
fn an_error_that_passes_removes_nothing() {
    let status = Arc::new(AtomicU16::new(200));
    let bench = LedgerBench::new(&policy("", REMEMBERS), versioned(&status));
    bench.get("/p");
    status.store(500, Ordering::SeqCst);
    // A crawler repeats its request at once.
    for _ in 0..3 {
        assert_eq!(bench.get_with("/p", "").status, 500);
    }
    bench.until_record("/p", "has failed", |record| record.last_error.is_some());
    bench.manual_clock.advance(HOUR);
    status.store(200, Ordering::SeqCst);
    let answer = bench.get_with("/p", CONDITIONS[0]);
    assert_eq!(answer.status, 304, "{answer}");
    bench.until_record("/p", "is good again", |record| record.kept_since.is_none());
    assert_eq!(bench.events(), []);
}
