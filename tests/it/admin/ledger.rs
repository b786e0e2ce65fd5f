//! The ledger as operators and indexers see it: pages of URLs, one URL, the feed after a cursor, the sweep.

use std::sync::OnceLock;

use crawlgate::admin::ledger::LedgerApi;
use crawlgate::ledger::observation::{
    BadOutcome, DeliveredDocument, ObservationOutcome, ObservedRefusal, RefusalRecording,
};
use crawlgate::ledger::transition::ErrorTolerance;
use crawlgate::model::crawl_status::CrawlStatus;
use crawlgate::model::crawler::Crawler;
use crawlgate::model::failure_kind::FailureKind;
use crawlgate::model::removal::{RemovalAction, RemovalOutcome};
use crawlgate::model::rule_id::Slug;
use crawlgate::pipeline::sweep::{LedgerSweeper, SweepMode};
use crawlgate::store::ledger::Ledger;
use serde_json::{Value as Json, json};

use super::*;
use crate::support::admin::removal_scheduler;
use crate::support::ledger::{self as observations, observation};
use crate::support::policy::compile_policy;

struct Desk {
    bench: AdminBench,
    ledger: Ledger,
    sweeper: LedgerSweeper,
}

impl Desk {
    async fn new() -> Self {
        let ledger = Ledger::in_memory(ErrorTolerance {
            temporary_errors: 5,
        });
        Self::with(OnceLock::from(ledger.clone()), ledger).await
    }

    async fn with(open: OnceLock<Ledger>, ledger: Ledger) -> Self {
        let apis = default_apis();
        let crawlers = [Crawler::new(&Slug::new("news").unwrap())].into();
        let sweeper = LedgerSweeper::new(1_000_000, Clock::system());
        let api = LedgerApi::new(
            Arc::new(open),
            sweeper.clone(),
            removal_scheduler(Clock::system()),
            crawlers,
            Arc::clone(&apis.policy.active_policy),
            Clock::manual().0,
        );
        let apis = AdminApis {
            ledger: api,
            ..apis
        };
        Self {
            bench: AdminBench::with_apis(AdminGuard::new([], None), apis).await,
            ledger,
            sweeper,
        }
    }

    fn note(&self, crawler: &str, url: &str, at: u64, what: ObservationOutcome) {
        let mut note = observation(crawler, url, at, what);
        note.observation.rule = Some("r1".into());
        self.ledger.record(note);
    }

    async fn get(&self, path: &str) -> (u16, Json) {
        let answer = self.bench.ask(&format!("GET /api/v1/{path}"), "").await;
        (
            status(&answer),
            serde_json::from_str(body(&answer)).expect(&answer),
        )
    }

    async fn post(&self, path: &str, document: &str) -> (u16, Json) {
        let length = document.len();
        let addr = self.bench.address();
        let head = format!(
            "POST /api/v1/{path} HTTP/1.1\r\nHost: {addr}\r\nContent-Length: {length}\r\n\r\n"
        );
        let answer = self.bench.raw(&[&head, document].concat()).await;
        (
            status(&answer),
            serde_json::from_str(body(&answer)).expect(&answer),
        )
    }

    async fn urls(&self, query: &str) -> Vec<String> {
        let (status, list) = self.get(&format!("urls?{query}")).await;
        assert_eq!(status, 200, "{query}: {list}");
        let mut urls: Vec<String> = list["urls"]
            .as_array()
            .unwrap()
            .iter()
            .map(|record| {
                format!(
                    "{} {}",
                    record["crawler"].as_str().unwrap(),
                    record["url"].as_str().unwrap()
                )
            })
            .collect();
        urls.sort();
        urls
    }
}

fn delivered() -> ObservationOutcome {
    observations::delivered(DeliveredDocument {
        content_type: "text/html".into(),
        size: 7,
        ..DeliveredDocument::default()
    })
}

fn refused(code: u16) -> ObservationOutcome {
    ObservationOutcome::Refused(ObservedRefusal {
        crawl_status: CrawlStatus::Filter,
        code: Some(code),
        removal: Some(BadOutcome {
            outcome: RemovalOutcome::Rule,
            action: if code == 761 {
                RemovalAction::Keep
            } else {
                RemovalAction::Remove
            },
        }),
        recording: RefusalRecording::Keep,
    })
}

fn failed() -> ObservationOutcome {
    ObservationOutcome::Failed {
        failure: FailureKind::Permanent,
        code: Some(700),
        removal: RemovalAction::ByCount,
    }
}

#[tokio::test]
async fn without_a_ledger_the_answer_names_the_remedy() {
    let ledger = Ledger::in_memory(ErrorTolerance {
        temporary_errors: 5,
    });
    let desk = Desk::with(OnceLock::new(), ledger).await;
    for path in [
        "urls",
        "urls/000000000000000000000000000000ff",
        "events",
        "ledger",
    ] {
        let (status, output) = desk.get(path).await;
        assert_eq!(status, 404, "{path}");
        assert!(
            output["detail"]
                .as_str()
                .unwrap()
                .contains("ledger.keep: always"),
            "{path}: {output}"
        );
    }
    assert_eq!(
        desk.post("ledger/sweep", "{\"dry_run\": true}").await.0,
        404
    );
}

#[tokio::test]
async fn urls_are_found_by_their_records() {
    let desk = Desk::new().await;
    desk.note("news", "http://www.a.test/x", 1, delivered());
    desk.note("news", "http://b.test/", 2, delivered());
    desk.note("anonymous", "http://www.a.test/x", 3, refused(760));
    let x = "news http://www.a.test/x";
    let y = "anonymous http://www.a.test/x";
    let b = "news http://b.test/";
    for (query, found) in [
        ("", vec![y, b, x]),
        ("crawler=news", vec![b, x]),
        ("host=*.a.test", vec![y, x]),
        ("host=www.a.test&crawler=anonymous", vec![y]),
        ("status=ACCEPTED", vec![b, x]),
        ("code=760", vec![y]),
        ("prefix=http%3A%2F%2Fb", vec![b]),
        ("known=false", vec![y]),
        ("url=HTTP%3A%2F%2Fwww.A.test%2Fx", vec![y, x]),
        ("url=http%3A%2F%2Fwww.a.test%2Fx&crawler=news", vec![x]),
        ("url=http%3A%2F%2Fwww.a.test%2F", vec![]),
        ("host=c.test", vec![]),
    ] {
        assert_eq!(desk.urls(query).await, found, "{query}");
    }
    let (_, list) = desk.get("urls?code=760").await;
    let one = &list["urls"][0];
    let (status, record) = desk
        .get(&format!("urls/{}", one["key"].as_str().unwrap()))
        .await;
    assert_eq!((status, &record), (200, one));
    assert_eq!(record["status"], "REJECTED_FILTER");
    assert_eq!(
        desk.get("urls/000000000000000000000000000000ff").await.0,
        404
    );
    for wrong in [
        "urls/1",
        "urls?hosts=a",
        "urls?limit=0",
        "urls?after=1",
        "urls?url=x",
        "urls?known=1",
    ] {
        assert_eq!(desk.get(wrong).await.0, 400, "{wrong}");
    }
}

#[tokio::test]
async fn pages_of_urls_follow_on_each_other_without_a_gap() {
    let desk = Desk::new().await;
    for n in 0..25 {
        desk.note("news", &format!("http://a.test/{n}"), n, delivered());
    }
    let mut seen = vec![];
    let mut after = String::new();
    loop {
        let (_, list) = desk.get(&format!("urls?limit=10&after={after}")).await;
        seen.extend(
            list["urls"]
                .as_array()
                .unwrap()
                .iter()
                .map(|url| url["url"].to_string()),
        );
        match list["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 25);
}

/// A closed ledger behaves like one whose disk fails.
#[tokio::test]
async fn an_unreadable_ledger_is_an_error_and_not_a_short_list() {
    let desk = Desk::new().await;
    desk.note("news", "http://a.test/", 1, delivered());
    desk.ledger.close();
    for path in ["urls", "urls?code=760", "events", "events?kind=moved"] {
        let (status, output) = desk.get(path).await;
        assert_eq!(status, 503, "{path}: {output}");
        assert_eq!(output["status"], 503, "{path}: {output}");
        assert!(
            output["detail"]
                .as_str()
                .unwrap()
                .contains("is unavailable"),
            "{path}: {output}"
        );
    }
    assert_eq!(desk.get("ledger").await.0, 200, "its numbers are in memory");
    let absent = desk.get("urls?url=http%3A%2F%2Fb.test%2F").await;
    assert_eq!(
        absent,
        (200, json!({ "urls": [], "next": null })),
        "the filter answers for absent URLs without the tables"
    );
}

#[tokio::test]
async fn the_feed_continues_after_the_cursor() {
    let desk = Desk::new().await;
    assert_eq!(
        desk.get("events").await,
        (200, json!({ "events": [], "next": 0, "more": false }))
    );
    for (n, what) in [refused(760), refused(761), failed(), refused(760)]
        .into_iter()
        .enumerate()
    {
        let url = format!("http://a.test/{n}");
        desk.note("news", &url, 1_767_225_600_000, delivered());
        desk.note("news", &url, 1_767_225_601_000, what);
    }
    desk.ledger.flush().await;
    let (_, feed) = desk.get("events?limit=1").await;
    let first = json!({
        "id": 1, "at": "2026-01-01T00:00:01.000Z", "kind": "removal", "why": "excluded", "crawler": "news",
        "url": "http://a.test/0", "code": 760, "status": null, "rule": "r1", "revision": "3f9c2a1b",
    });
    assert_eq!(feed, json!({ "events": [first], "next": 1, "more": true }));
    for (query, ids, next, more) in [
        ("after=1", vec![2, 3, 4], 4, false),
        ("after=4", vec![], 4, false),
        ("after=9", vec![], 9, false),
        ("kind=removal", vec![1, 3, 4], 4, false),
        ("kind=removal&limit=2", vec![1, 3], 3, true),
        ("kind=moved", vec![2], 4, false),
        ("kind=&after=2&limit=2", vec![3, 4], 4, false),
    ] {
        let (_, feed) = desk.get(&format!("events?{query}")).await;
        let seen: Vec<_> = feed["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| e["id"].as_u64().unwrap())
            .collect();
        assert_eq!(seen, ids, "{query}");
        assert_eq!(feed["next"].as_u64(), Some(next), "{query}");
        assert_eq!(feed["more"].as_bool(), Some(more), "{query}");
    }
    for wrong in [
        "after=-1",
        "after=",
        "kind=gone",
        "limit=1001",
        "since=1",
        "after=1&after=2",
    ] {
        assert_eq!(desk.get(&format!("events?{wrong}")).await.0, 400, "{wrong}");
    }
}

#[tokio::test]
async fn a_sweep_is_started_once_and_followed() {
    let desk = Desk::new().await;
    desk.note("news", "http://a.test/", 1, delivered());
    let (status, stats) = desk.get("ledger").await;
    assert_eq!(
        (status, &stats["urls"], &stats["sweep"]),
        (200, &json!(1), &Json::Null)
    );
    assert_eq!(stats["by_status"]["ACCEPTED"], 1);
    for wrong in [
        "",
        "{}",
        "{\"dry_run\": 1}",
        "{\"dry_run\": true, \"x\": 1}",
    ] {
        assert_eq!(desk.post("ledger/sweep", wrong).await.0, 400, "{wrong}");
    }
    let (status, output) = desk.post("ledger/sweep", "{\"dry_run\": true}").await;
    assert_eq!((status, &output["sweep"]["dry_run"]), (202, &json!(true)));
    assert_eq!(
        desk.post("ledger/sweep", "{\"dry_run\": false}").await.0,
        409
    );
    let (_, stats) = desk.get("ledger").await;
    let sweep = json!({
        "state": "running", "dry_run": true, "revision": compile::load_builtin().unwrap().policy.revision(),
        "looked_at": 0, "total": 1, "removed": 0, "moved": 0, "unchanged": 0, "refused": 0, "allowed": 0, "gaps": [],
    });
    assert_eq!(stats["sweep"], sweep);
}

#[tokio::test]
async fn a_finished_sweep_lists_the_gaps_between_spaces() {
    let desk = Desk::new().await;
    for host in ["a.test", "b.test", "c.test"] {
        desk.note("news", &format!("http://{host}/"), 1, delivered());
    }
    let policy = Arc::new(compile_policy(SPACES).policy);
    desk.sweeper
        .sweep(&desk.ledger, &policy, SweepMode::DryRun)
        .await;
    let (_, stats) = desk.get("ledger").await;
    let mut sweep = stats["sweep"].clone();
    sweep["gaps"]
        .as_array_mut()
        .unwrap()
        .sort_by_key(|gap| gap["url"].to_string());
    let gaps = json!([
        { "crawler": "news", "url": "http://b.test/", "rule": "not-a", "code": 761 },
        { "crawler": "news", "url": "http://c.test/", "rule": "not-a", "code": 760 },
    ]);
    assert_eq!(
        sweep,
        json!({
            "state": "done", "dry_run": true, "revision": policy.revision(), "looked_at": 3, "total": 3,
            "removed": 1, "moved": 1, "unchanged": 0, "refused": 0, "allowed": 1, "gaps": gaps,
        })
    );
}

const SPACES: &str = "policy: 1
name: p
options: { disposition: allow }
spaces:
  - name: a
    crawlers: [news]
    rules: [{ match: first, rules: [{ when: { domain: a.test } }, { id: not-a, forbid: { always: true } }] }]
  - name: b
    crawlers: [other]
    rules: [{ match: first, rules: [{ when: { domain: b.test } }, { id: not-b, forbid: { always: true } }] }]
global_space: union
";

#[tokio::test]
async fn records_are_forgotten_exactly() {
    let desk = Desk::new().await;
    for (crawler, url) in [
        ("news", "http://a.test/1"),
        ("news", "http://a.test/2"),
        ("lab", "http://a.test/1"),
        ("news", "http://www.a.test/"),
        ("news", "http://b.test/"),
    ] {
        desk.note(crawler, url, 1_767_225_600_000, delivered());
    }
    desk.note("news", "http://b.test/", 1_767_225_600_000, refused(760));
    let all = desk.urls("").await;
    for (body, count) in [
        (json!({ "url": "http://a.test/1", "dry_run": true }), 1),
        (
            json!({ "url": "http://a.test/1", "crawler": "lab", "dry_run": true }),
            1,
        ),
        (json!({ "host": "*.a.test", "dry_run": true }), 4),
        (
            json!({ "host": "A.test", "crawler": "news", "dry_run": true }),
            2,
        ),
        (json!({ "prefix": "http://", "dry_run": true }), 5),
    ] {
        let answer = desk.post("ledger/forget", &body.to_string()).await;
        let expected = json!({ "dry_run": true, "urls": count, "next": null });
        assert_eq!(answer, (200, expected), "{body}");
    }
    assert_eq!(desk.urls("").await, all, "a dry run deletes nothing");
    for (body, count) in [
        (
            json!({ "url": "http://a.test/1", "crawler": "lab", "dry_run": false }),
            1,
        ),
        (json!({ "host": "a.test", "dry_run": false }), 2),
        (json!({ "host": "a.test", "dry_run": false }), 0),
        (json!({ "prefix": "http://b.test/", "dry_run": false }), 1),
    ] {
        let answer = desk.post("ledger/forget", &body.to_string()).await;
        assert_eq!(
            (answer.0, &answer.1["urls"]),
            (200, &json!(count)),
            "{body}"
        );
    }
    assert_eq!(desk.urls("").await, ["news http://www.a.test/"]);
    let (_, stats) = desk.get("ledger").await;
    assert_eq!(
        (&stats["by_status"], &stats["by_code"]),
        (&json!({ "ACCEPTED": 1 }), &json!({})),
        "{stats}"
    );
    assert_eq!(stats["last_event"], 1, "no event for what was forgotten");
    for wrong in [
        json!({ "dry_run": true }),
        json!({ "host": "a.test" }),
        json!({ "host": "a b", "dry_run": true }),
        json!({ "url": "a.test", "dry_run": true }),
        json!({ "prefix": "", "dry_run": true }),
        json!({ "host": "a.test", "prefix": "http://", "dry_run": true }),
        json!({ "host": "a.test", "dry_run": true, "after": "7" }),
        json!({ "hosts": "a.test", "dry_run": true }),
    ] {
        let (status, output) = desk.post("ledger/forget", &wrong.to_string()).await;
        assert_eq!(status, 400, "{wrong}: {output}");
    }
    desk.ledger.close();
    let body = json!({ "host": "www.a.test", "dry_run": false }).to_string();
    assert_eq!(desk.post("ledger/forget", &body).await.0, 503);
}

#[tokio::test]
async fn orphans_and_errors_are_filtered() {
    let desk = Desk::new().await;
    let temporary = ObservationOutcome::Failed {
        failure: FailureKind::Temporary,
        code: Some(613),
        removal: RemovalAction::ByCount,
    };
    desk.note("news", "http://a.test/old", 1_767_225_600_000, delivered());
    desk.note("news", "http://a.test/new", 1_767_312_000_000, delivered());
    desk.note("news", "http://a.test/gone", 1_767_312_000_000, failed());
    for _ in 0..2 {
        desk.note(
            "news",
            "http://a.test/slow",
            1_767_312_000_000,
            temporary.clone(),
        );
    }
    assert_eq!(
        desk.urls("not_seen_since=2026-01-02").await,
        ["news http://a.test/old"]
    );
    assert_eq!(
        desk.urls("not_seen_since=2026-01-02T00:00:00.001Z")
            .await
            .len(),
        4
    );
    assert_eq!(
        desk.urls("error=permanent").await,
        ["news http://a.test/gone"]
    );
    assert_eq!(
        desk.urls("error=temporary").await,
        ["news http://a.test/slow"]
    );
    let (_, list) = desk.get("urls?error=temporary").await;
    let row = &list["urls"][0];
    assert_eq!(
        (&row["error"], &row["temporary_errors"], &row["code"]),
        (&json!("temporary"), &json!(2), &json!(613))
    );
    let (_, stats) = desk.get("ledger").await;
    assert_eq!(stats["by_code"], json!({ "613": 1, "700": 1 }));
    // An answer without an error ends it.
    desk.note("news", "http://a.test/slow", 1_767_312_000_000, delivered());
    assert!(desk.urls("error=temporary").await.is_empty());
}
