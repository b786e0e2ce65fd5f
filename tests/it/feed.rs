//! The delivery of events: each arrives, in order, over moved files, failing webhooks and restarts.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crawlgate::feed::{Feed, FeedSettings};
use crawlgate::http_client::Endpoint;
use crawlgate::metrics::Metrics;
use crawlgate::store::ledger::{Ledger, LedgerSettings};
use crawlgate::urls::target::UrlTarget;
use serde_json::Value as Json;

use crate::support::ledger::{failed, observation};
use crate::support::origin::{Reply, ScriptedOrigin};
use crate::support::temp_dir::TempDir;
use crate::support::wait::wait_until_async;

/// Records this range of permanent errors, which cause an event each.
fn happen(ledger: &Ledger, from: u64, to: u64) {
    for n in from..to {
        let url = format!("http://a.test/{n}");
        ledger.record(observation(
            "news",
            &url,
            1_767_225_600_000 + n,
            failed(404),
        ));
    }
}

fn ids(text: &str) -> Vec<u64> {
    text.lines()
        .map(|line: &str| {
            serde_json::from_str::<Json>(line).unwrap()["id"]
                .as_u64()
                .unwrap()
        })
        .collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn open(folder: &TempDir) -> Ledger {
    Ledger::open(&folder.path().join("store"), LedgerSettings::default()).unwrap()
}

/// A webhook that answers each POST with the next of these status lines, and then always with the last of them.
struct TestWebhook(ScriptedOrigin);

impl TestWebhook {
    fn start(statuses: &'static [&'static str]) -> Self {
        Self(ScriptedOrigin::respond(|request| {
            let status = statuses[request.number.min(statuses.len() - 1)];
            let response =
                format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            Reply::Last(response.into())
        }))
    }

    fn endpoint(&self) -> Endpoint {
        let url = UrlTarget::parse(&self.0.url("127.0.0.1", "/hook?key=1")).unwrap();
        Endpoint::new(&url, url.path_and_query(), [], Duration::from_secs(5), None).unwrap()
    }

    /// Waits until the webhook has received this number of POSTs.
    async fn wait_for_posts(&self, count: usize) {
        let origin = self.0.clone();
        wait_until_async("the posts arrive", move || origin.requests().len() == count).await;
    }

    fn count(&self) -> usize {
        self.0.requests().len()
    }

    fn ids(&self) -> Vec<u64> {
        let mut ids = Vec::new();
        for post in self.0.requests() {
            let events: Json = serde_json::from_slice(&post.body).unwrap();
            let events = events.as_array().unwrap();
            ids.extend(events.iter().map(|event| event["id"].as_u64().unwrap()));
        }
        ids
    }
}

fn metrics() -> Metrics {
    Metrics::new(&[], &[]).unwrap()
}

#[tokio::test]
async fn the_file_has_every_event_once_over_moves_and_restarts() {
    let folder = TempDir::new();
    let path = folder.path().join("feed/events.ndjson");
    fn start(path: &std::path::Path, ledger: &Ledger, metrics: &Metrics) -> Feed {
        Feed::start(
            FeedSettings {
                file: Some(path.to_owned()),
                webhook: None,
            },
            ledger,
            metrics,
        )
    }
    let ledger = open(&folder);
    let metrics = metrics();
    let feed = start(&path, &ledger, &metrics);
    happen(&ledger, 0, 3);
    let file = path.clone();
    wait_until_async("three lines", move || ids(&read(&file)) == [1, 2, 3]).await;
    let first: Json = serde_json::from_str(read(&path).lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["kind"], &first["status"]),
        (&"permanent_error".into(), &404.into())
    );

    fs::rename(&path, path.with_extension("1")).unwrap();
    happen(&ledger, 3, 5);
    let file = path.clone();
    wait_until_async("a new file", move || ids(&read(&file)) == [4, 5]).await;

    // What happens while the proxy goes down is delivered at its end, or after its next start.
    happen(&ledger, 5, 9);
    feed.close(Duration::from_secs(10)).await;
    ledger.close();
    drop(ledger);
    // A crash has cut a line.
    fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap()
        .write_all(b"{\"id\":")
        .unwrap();
    let ledger = open(&folder);
    let feed = start(&path, &ledger, &metrics);
    happen(&ledger, 9, 10);
    let file = path.clone();
    wait_until_async("the rest", move || {
        read(&file).ends_with('\n') && ids(&read(&file)).last() == Some(&10)
    })
    .await;
    assert_eq!(ids(&read(&path)), (4..=10).collect::<Vec<_>>());
    feed.close(Duration::from_secs(10)).await;
    assert!(
        metrics.render().contains(
            "crawlgate_ledger_feed_events_total{feed=\"file\",result=\"delivered\"} 10\n"
        )
    );
}

#[tokio::test]
async fn events_are_posted_again_until_the_webhook_accepts_them() {
    let folder = TempDir::new();
    let metrics = metrics();
    let hook = TestWebhook::start(&["503 Busy", "200 OK"]);
    let dead = folder.path().join("dead.ndjson");
    let ledger = open(&folder);
    happen(&ledger, 0, 250);
    ledger.flush().await;
    let settings = FeedSettings {
        file: None,
        webhook: Some((hook.endpoint(), dead.clone())),
    };
    let feed = Feed::start(settings, &ledger, &metrics);
    hook.wait_for_posts(4).await;
    let expected: Vec<u64> = (1..=100).chain(1..=250).collect();
    assert_eq!(
        hook.ids(),
        expected,
        "the first batch twice, the others once"
    );
    let head = hook.0.heads().remove(1);
    for line in [
        "POST /hook?key=1 HTTP/1.1",
        "content-type: application/json",
        "idempotency-key: \"1-100\"",
    ] {
        assert!(head.lines().any(|one| one == line), "{line}: {head}");
    }
    feed.close(Duration::from_secs(10)).await;
    ledger.close();
    drop(ledger);
    assert!(!dead.exists());
    let text = metrics.render();
    assert!(
        text.contains("crawlgate_ledger_feed_failures_total{feed=\"webhook\"} 1\n"),
        "{text}"
    );

    // The cursor was kept: nothing is sent again, and what comes goes on.
    let ledger = open(&folder);
    let settings = FeedSettings {
        file: None,
        webhook: Some((hook.endpoint(), dead)),
    };
    let feed = Feed::start(settings, &ledger, &metrics);
    happen(&ledger, 250, 251);
    hook.wait_for_posts(5).await;
    assert_eq!(hook.ids().last(), Some(&251));
    feed.close(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn refused_events_go_to_the_dead_letter_file_and_the_feed_continues() {
    let folder = TempDir::new();
    let metrics = metrics();
    let hook = TestWebhook::start(&["422 No", "204 Fine"]);
    let dead = folder.path().join("store/dead.ndjson");
    let ledger = open(&folder);
    happen(&ledger, 0, 101);
    ledger.flush().await;
    let settings = FeedSettings {
        file: None,
        webhook: Some((hook.endpoint(), dead.clone())),
    };
    let feed = Feed::start(settings, &ledger, &metrics);
    hook.wait_for_posts(2).await;
    assert_eq!(ids(&read(&dead)), (1..=100).collect::<Vec<_>>());
    let letter: Json = serde_json::from_str(read(&dead).lines().next().unwrap()).unwrap();
    assert_eq!(
        letter["undelivered"]["because"],
        "it answers 422 Unprocessable Entity"
    );
    feed.close(Duration::from_secs(10)).await;
    let text = metrics.render();
    for (result, count) in [("dead_letter", 100), ("delivered", 1)] {
        let line = format!(
            "crawlgate_ledger_feed_events_total{{feed=\"webhook\",result=\"{result}\"}} {count}\n"
        );
        assert!(text.contains(&line), "{line}: {text}");
    }
    assert_eq!(hook.count(), 2);
}
