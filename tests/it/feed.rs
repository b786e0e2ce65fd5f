//! Events on their way out: every one arrives, in its order, over moved files, deaf webhooks and restarts.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crawlgate::feed::{Feed, FeedSettings};
use crawlgate::http_client::Endpoint;
use crawlgate::metrics::Metrics;
use crawlgate::store::ledger::{Ledger, LedgerSettings};
use crawlgate::urls::target::UrlTarget;
use serde_json::Value as Json;

use crate::support::folder::Folder;
use crate::support::look::{failed, look};
use crate::upstream::scripted::until;

/// So many more permanent errors: an event each.
fn happen(ledger: &Ledger, from: u64, to: u64) {
    for n in from..to {
        let url = format!("http://a.test/{n}");
        ledger.record(look("news", &url, 1_767_225_600_000 + n, failed(404)));
    }
}

fn ids(text: &str) -> Vec<u64> {
    let id = |line: &str| {
        serde_json::from_str::<Json>(line).unwrap()["id"]
            .as_u64()
            .unwrap()
    };
    text.lines().map(id).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn open(folder: &Folder) -> Ledger {
    Ledger::open(&folder.path().join("store"), LedgerSettings::default()).unwrap()
}

/// A webhook that answers each post with the next of these status lines, then with the last of them; what it was sent.
struct Hook {
    port: u16,
    posts: Arc<Mutex<Vec<(String, Json)>>>,
}

impl Hook {
    fn start(answers: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let hook = Self {
            port: listener.local_addr().unwrap().port(),
            posts: Arc::default(),
        };
        let posts = Arc::clone(&hook.posts);
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let at = posts.lock().unwrap().len().min(answers.len() - 1);
                let post = taken(socket, answers[at]);
                posts.lock().unwrap().push(post);
            }
        });
        hook
    }

    fn endpoint(&self) -> Endpoint {
        let url = UrlTarget::parse(&format!("http://127.0.0.1:{}/hook?key=1", self.port)).unwrap();
        Endpoint::new(&url, url.path_and_query(), [], Duration::from_secs(5), None).unwrap()
    }

    fn count(&self) -> usize {
        self.posts.lock().unwrap().len()
    }

    fn ids(&self) -> Vec<u64> {
        let posts = self.posts.lock().unwrap();
        let events = posts.iter().flat_map(|(_, body)| body.as_array().unwrap());
        events.map(|event| event["id"].as_u64().unwrap()).collect()
    }
}

fn taken(mut socket: TcpStream, answer: &str) -> (String, Json) {
    let (mut bytes, mut buffer) = (vec![], [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .unwrap();
            if body.len() >= length.parse().unwrap() {
                let length = "content-length: 0\r\nconnection: close";
                let _ =
                    socket.write_all(format!("HTTP/1.1 {answer}\r\n{length}\r\n\r\n").as_bytes());
                return (head.to_owned(), serde_json::from_str(body).unwrap());
            }
        }
        let read = socket.read(&mut buffer).unwrap();
        assert!(read > 0, "the post is cut: {text}");
        bytes.extend_from_slice(&buffer[..read]);
    }
}

fn metrics() -> Metrics {
    Metrics::new(&[], &[]).unwrap()
}

async fn seen(what: &str, condition: impl FnMut() -> bool + Send + 'static) {
    let what = what.to_owned();
    tokio::task::spawn_blocking(move || until(&what, condition))
        .await
        .unwrap();
}

#[tokio::test]
async fn the_file_has_every_event_once_over_moves_and_restarts() {
    let folder = Folder::new();
    let path = folder.path().join("feed/events.ndjson");
    let start = |ledger: &Ledger, metrics: &Metrics| {
        Feed::start(
            FeedSettings {
                file: Some(path.clone()),
                webhook: None,
            },
            ledger,
            metrics,
        )
    };
    let (ledger, metrics) = (open(&folder), metrics());
    let feed = start(&ledger, &metrics);
    happen(&ledger, 0, 3);
    let file = path.clone();
    seen("three lines", move || ids(&read(&file)) == [1, 2, 3]).await;
    let first: Json = serde_json::from_str(read(&path).lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["kind"], &first["status"]),
        (&"permanent_error".into(), &404.into())
    );

    fs::rename(&path, path.with_extension("1")).unwrap();
    happen(&ledger, 3, 5);
    let file = path.clone();
    seen("a new file", move || ids(&read(&file)) == [4, 5]).await;

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
    let feed = start(&ledger, &metrics);
    happen(&ledger, 9, 10);
    let file = path.clone();
    seen("the rest", move || {
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
async fn the_webhook_is_asked_again_until_it_takes_them() {
    let (folder, metrics) = (Folder::new(), metrics());
    let hook = Hook::start(&["503 Busy", "200 OK"]);
    let dead = folder.path().join("dead.ndjson");
    let ledger = open(&folder);
    happen(&ledger, 0, 250);
    ledger.flush().await;
    let settings = FeedSettings {
        file: None,
        webhook: Some((hook.endpoint(), dead.clone())),
    };
    let feed = Feed::start(settings, &ledger, &metrics);
    let posts = Arc::clone(&hook.posts);
    seen("four posts", move || posts.lock().unwrap().len() == 4).await;
    let expected: Vec<u64> = (1..=100).chain(1..=250).collect();
    assert_eq!(
        hook.ids(),
        expected,
        "the first batch twice, the others once"
    );
    let (head, _) = hook.posts.lock().unwrap()[1].clone();
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
    let posts = Arc::clone(&hook.posts);
    seen("one more", move || posts.lock().unwrap().len() == 5).await;
    assert_eq!(hook.ids().last(), Some(&251));
    feed.close(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn what_the_webhook_refuses_for_good_is_put_aside_and_the_rest_goes_on() {
    let (folder, metrics) = (Folder::new(), metrics());
    let hook = Hook::start(&["422 No", "204 Fine"]);
    let dead = folder.path().join("store/dead.ndjson");
    let ledger = open(&folder);
    happen(&ledger, 0, 101);
    ledger.flush().await;
    let settings = FeedSettings {
        file: None,
        webhook: Some((hook.endpoint(), dead.clone())),
    };
    let feed = Feed::start(settings, &ledger, &metrics);
    let posts = Arc::clone(&hook.posts);
    seen("two posts", move || posts.lock().unwrap().len() == 2).await;
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
