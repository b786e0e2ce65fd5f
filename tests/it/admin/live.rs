//! Decisions as they come, over real sockets: the ring, filters, followers, and how a stream ends.

use std::sync::atomic::{AtomicUsize, Ordering};

use crawlgate::admin::decisions::DecisionsApi;
use crawlgate::metrics::CrawlerIndex;
use crawlgate::metrics::labels::ResponseSource;
use crawlgate::metrics::log::{
    DecisionLog, LogCloseResult, LogDestination, LogLineFormat, LogSettings, QueryVisibility,
    SampleRate,
};
use crawlgate::metrics::record::{Recorder, UrlRetention};
use crawlgate::model::crawler::Crawler;
use crawlgate::model::reason::Reason;
use crawlgate::model::rule_id::Slug;
use crawlgate::model::stage::Stage;
use crawlgate::urls::target::UrlTarget;
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpSocket;

use super::*;
use crate::support::admin::default_apis_with;
use crate::support::wait::TIMEOUT;

pub(super) struct Live {
    bench: AdminBench,
    recorder: Recorder,
    bot: CrawlerIndex,
}

impl Live {
    async fn new(settings: LogSettings) -> Self {
        Self::guarded(settings, None).await
    }

    /// A log without a destination.
    async fn unwritten() -> Self {
        Self::new(LogSettings {
            destination: LogDestination::None,
            ..LogSettings::default()
        })
        .await
    }

    /// A log that writes every decision.
    async fn written() -> Self {
        Self::new(LogSettings {
            destination: LogDestination::Path("/dev/null".into()),
            ..LogSettings::default()
        })
        .await
    }

    async fn guarded(settings: LogSettings, token: Option<&str>) -> Self {
        Self::with_log(
            |metrics: &Metrics, clock: &Clock| DecisionLog::open(settings, metrics, clock),
            token,
        )
        .await
    }

    async fn with_log(
        open: impl FnOnce(&Metrics, &Clock) -> std::io::Result<DecisionLog>,
        token: Option<&str>,
    ) -> Self {
        let clock = Clock::system();
        let crawler = Crawler::new(&Slug::new("news-bot").unwrap());
        let metrics = Metrics::new(std::slice::from_ref(&crawler), &[]).unwrap();
        let bot = metrics.crawler_index(crawler.as_str());
        let log = open(&metrics, &clock).unwrap();
        let live = DecisionsApi::new(log.tap());
        let recorder = Recorder::new(metrics.clone(), log, clock);
        let guard = AdminGuard::new([], token.map(|token| AdminToken::new(token).unwrap()));
        let apis = AdminApis {
            decisions: live,
            ..default_apis_with(metrics)
        };
        Self {
            bench: AdminBench::with_apis(guard, apis).await,
            recorder,
            bot,
        }
    }

    fn log(&self) -> &DecisionLog {
        self.recorder.log()
    }

    fn reject(&self, url: &str) -> String {
        self.reject_keeping(url, UrlRetention::Full)
    }

    fn reject_keeping(&self, url: &str, keep: UrlRetention) -> String {
        let now = self.recorder.clock().now();
        let mut record = self.recorder.begin(now, &Method::GET);
        let id = record.id().to_string();
        record.set_target(&UrlTarget::parse(url).unwrap());
        record.enter_stage(Stage::Request);
        record.set_rejected(Reason::Rule, None, keep);
        record.set_sent_status(451, ResponseSource::Proxy);
        record.finish(now);
        id
    }

    fn allow(&self, url: &str) -> String {
        let now = self.recorder.clock().now();
        let mut record = self.recorder.begin(now, &Method::HEAD);
        let id = record.id().to_string();
        record.set_crawler(self.bot);
        record.set_target(&UrlTarget::parse(url).unwrap());
        record.enter_stage(Stage::Response);
        record.set_held(Duration::from_millis(1_500));
        record.set_allowed(None);
        record.set_sent_status(200, ResponseSource::Origin);
        record.finish(now);
        id
    }

    /// Waits until all decisions so far are in the ring.
    fn settle(&self) {
        assert_eq!(self.log().flush(TIMEOUT), LogCloseResult::Done);
    }

    /// The whole answer to a request that ends.
    async fn ask(&self, line: &str, fields: &str) -> String {
        self.settle();
        self.bench
            .raw(&format!(
                "{line} HTTP/1.0\r\nHost: {}\r\n{fields}\r\n",
                self.bench.address()
            ))
            .await
    }

    /// The lines that are in the ring.
    async fn recent(&self, query: &str) -> Vec<Value> {
        let answer = self
            .ask(&format!("GET /api/v1/decisions?follow=false&{query}"), "")
            .await;
        assert_eq!(status(&answer), 200, "{query}: {answer}");
        body(&answer)
            .lines()
            .map(|line| serde_json::from_str(line).expect(line))
            .collect()
    }

    async fn urls(&self, query: &str) -> Vec<String> {
        let lines = self.recent(query).await;
        lines
            .iter()
            .map(|line| line["url"].as_str().unwrap_or("-").to_owned())
            .collect()
    }

    /// A stream after its head.
    async fn follow(&self, query: &str) -> Stream {
        self.follow_on(
            TcpStream::connect(self.bench.address()).await.unwrap(),
            query,
        )
        .await
    }

    async fn follow_on(&self, mut stream: TcpStream, query: &str) -> Stream {
        let request = format!(
            "GET /api/v1/decisions?{query} HTTP/1.0\r\nHost: {}\r\n\r\n",
            self.bench.address()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut stream = Stream(BufReader::new(stream));
        let first = stream.line().await.unwrap();
        assert!(first.starts_with("HTTP/1.0 200"), "{first}");
        while stream.line().await.unwrap() != "\r\n" {}
        stream
    }

    async fn is_full(&self) -> bool {
        let answer = self
            .ask("GET /api/v1/decisions?recent=0&follow=false", "")
            .await;
        match status(&answer) {
            200 => false,
            503 => true,
            other => panic!("{other}: {answer}"),
        }
    }
}

struct Stream(BufReader<TcpStream>);

impl Stream {
    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = tokio::time::timeout(TIMEOUT, self.0.read_line(&mut line))
            .await
            .expect("a line in time");
        (read.unwrap() > 0).then_some(line)
    }

    /// The next line that is no heartbeat.
    async fn json(&mut self) -> Option<Value> {
        loop {
            let line = self.line().await?;
            if line != "\n" {
                return Some(serde_json::from_str(&line).expect(&line));
            }
        }
    }
}

#[tokio::test]
async fn the_latest_decisions_are_shown_the_oldest_first() {
    let live = Live::written().await;
    assert_eq!(live.recent("").await, Vec::<Value>::new());
    for n in 0..150 {
        live.allow(&format!("http://a.test/{n}"));
        live.settle();
    }
    let urls = live.urls("").await;
    assert_eq!(
        (urls.len(), urls[0].as_str(), urls[99].as_str()),
        (100, "http://a.test/50", "http://a.test/149")
    );
    assert_eq!(
        live.urls("recent=2").await,
        ["http://a.test/148", "http://a.test/149"]
    );
    assert_eq!(live.urls("recent=0").await, Vec::<String>::new());
    assert_eq!(live.urls("recent=10000").await.len(), 150);
    assert_eq!(
        live.urls("recent=1&url=test/1&url=test/3").await,
        ["http://a.test/149"]
    );

    let answer = live.ask("GET /api/v1/decisions?follow=false", "").await;
    for field in [
        "content-type: application/x-ndjson",
        "cache-control: no-store",
        "x-content-type-options: nosniff",
    ] {
        assert!(answer.contains(&format!("{field}\r\n")), "{answer}");
    }
    let head = live.ask("HEAD /api/v1/decisions", "").await;
    assert_eq!((status(&head), body(&head)), (200, ""));
}

#[tokio::test]
async fn filters_choose() {
    let live = Live::written().await;
    live.reject("http://www.a.test/x?q=1");
    live.settle();
    live.allow("http://b.test/y");
    let refused = "http://www.a.test/x?q=1";
    let allowed = "http://b.test/y";
    for (query, shown) in [
        ("", &[refused, allowed][..]),
        ("verdict=reject", &[refused]),
        ("verdict=reject&verdict=allow", &[refused, allowed]),
        ("verdict=reject&host=b.test", &[]),
        ("crawler=news-bot", &[allowed]),
        ("crawler=anonymous", &[refused]),
        ("crawler=news-bot&crawler=anonymous", &[refused, allowed]),
        ("host=*.a.test", &[refused]),
        ("host=a.test", &[]),
        ("host=b.test", &[allowed]),
        ("stage=request", &[refused]),
        ("reason=default", &[allowed]),
        ("reason=rule", &[refused]),
        ("rule=x", &[]),
        ("method=HEAD", &[allowed]),
        ("method=head", &[]),
        ("url=%3Fq%3D1", &[refused]),
        ("url=test/", &[refused, allowed]),
        ("url=TEST", &[]),
        ("status=451", &[refused]),
        ("status=2*", &[allowed]),
        ("held=1500", &[allowed]),
        ("held=1500.1", &[]),
        ("held=&host=&url=", &[refused, allowed]),
    ] {
        assert_eq!(live.urls(query).await, shown, "{query}");
    }
}

#[tokio::test]
async fn parameters_that_cannot_be_read_are_problems() {
    let live = Live::unwritten().await;
    for query in [
        "recent=10001",
        "recent=-1",
        "recent=x",
        "follow=1",
        "held=x",
        "verdikt=reject",
        "url=%",
        "url=%zz",
        "url=%ff",
        "url=%00",
        "host=%0d%0a",
        "%ff=1",
        "recent",
        "recent=1&recent=2",
        "follow=false&follow=false",
        "a&b",
        "follow=false&zzz=1",
    ] {
        let answer = live
            .ask(&format!("GET /api/v1/decisions?{query}"), "")
            .await;
        assert_eq!(status(&answer), 400, "{query}: {answer}");
        assert!(
            answer.contains("content-type: application/problem+json\r\n"),
            "{query}"
        );
        let problem: Value = serde_json::from_str(body(&answer)).unwrap();
        assert!(!problem["detail"].as_str().unwrap().is_empty());
    }
    let many = "host=a&".repeat(65);
    assert_eq!(
        status(&live.ask(&format!("GET /api/v1/decisions?{many}"), "").await),
        400
    );
    for method in ["POST", "DELETE", "PUT", "OPTIONS"] {
        let answer = live
            .ask(
                &format!("{method} /api/v1/decisions"),
                "Content-Length: 0\r\n",
            )
            .await;
        assert_eq!(status(&answer), 405, "{method}");
        assert!(answer.contains("allow: GET, HEAD\r\n"), "{answer}");
    }
}

#[tokio::test]
async fn decisions_require_the_token() {
    let settings = LogSettings {
        destination: LogDestination::None,
        ..LogSettings::default()
    };
    let live = Live::guarded(settings, Some(TOKEN)).await;
    for (fields, expected) in [
        (String::new(), 401),
        ("Authorization: Bearer wrong-horse-battery\r\n".into(), 401),
        (format!("Authorization: Bearer {TOKEN}\r\n"), 200),
        (
            format!("Authorization: Bearer {TOKEN}\r\nOrigin: http://evil.example\r\n"),
            403,
        ),
    ] {
        let answer = live
            .ask("GET /api/v1/decisions?follow=false", &fields)
            .await;
        assert_eq!(status(&answer), expected, "{fields}");
    }
}

/// Decisions that the log does not write are still shown: refusals always, others while a client follows.
#[tokio::test]
async fn the_ring_keeps_refusals_and_followers_see_every_decision() {
    fn written() -> crawlgate::metrics::log::LogDestination {
        LogDestination::Path("/dev/null".into())
    }
    let usual = LogSettings::default;
    for (what, settings) in [
        (
            "none",
            LogSettings {
                destination: LogDestination::None,
                ..usual()
            },
        ),
        (
            "squid",
            LogSettings {
                destination: written(),
                format: LogLineFormat::Squid,
                ..usual()
            },
        ),
        (
            "no allows",
            LogSettings {
                destination: written(),
                allow_sample: SampleRate::new(0.0).unwrap(),
                ..usual()
            },
        ),
        (
            "squid, no allows",
            LogSettings {
                destination: written(),
                format: LogLineFormat::Squid,
                allow_sample: SampleRate::new(0.0).unwrap(),
                ..usual()
            },
        ),
    ] {
        let live = Live::new(settings).await;
        live.reject("http://a.test/1");
        live.allow("http://a.test/2");
        assert_eq!(live.urls("").await, ["http://a.test/1"], "{what}");
        let mut stream = live.follow("recent=5").await;
        live.reject("http://a.test/3");
        live.settle();
        live.allow("http://a.test/4");
        for url in ["http://a.test/1", "http://a.test/3", "http://a.test/4"] {
            assert_eq!(stream.json().await.unwrap()["url"], url, "{what}");
        }
        assert_eq!(live.urls("").await.len(), 3, "{what}");
    }
}

#[tokio::test]
async fn the_ring_hides_queries_and_what_is_not_recorded() {
    for destination in [
        LogDestination::None,
        LogDestination::Path("/dev/null".into()),
    ] {
        let live = Live::new(LogSettings {
            destination,
            query: QueryVisibility::Redacted,
            ..LogSettings::default()
        })
        .await;
        live.reject("http://a.test/s?secret=1");
        live.reject_keeping("http://b.test/hidden", UrlRetention::Host);
        live.reject_keeping("http://c.test/secret", UrlRetention::None);
        let shown = live.ask("GET /api/v1/decisions?follow=false", "").await;
        assert!(!shown.contains("secret"), "{shown}");
        assert!(!shown.contains("c.test"), "{shown}");
        let mut urls = live.urls("").await;
        urls.sort();
        assert_eq!(
            urls,
            ["-", "http://a.test/s?redacted", "http://b.test/hidden"]
        );
        assert_eq!(live.urls("url=secret").await, Vec::<String>::new());
        // Half a URL is no fact.
        let id = live.reject("http://a.test/s?secret=2");
        let whole = live.reject("http://a.test/s");
        for (id, url) in [(id, Value::Null), (whole, "http://a.test/s".into())] {
            let answer = live.ask(&format!("GET /api/v1/decisions/{id}"), "").await;
            let found: Value = serde_json::from_str(body(&answer)).unwrap();
            assert_eq!(found["facts"]["url"], url, "{found}");
            assert_eq!(found["facts"].is_null(), url.is_null(), "{found}");
        }
    }
}

#[tokio::test]
async fn a_slow_reader_learns_how_many_lines_it_lost() {
    let live = Live::written().await;
    // What the kernel takes in its place is little.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut stream = live
        .follow_on(
            socket.connect(live.bench.address()).await.unwrap(),
            "recent=0",
        )
        .await;
    const ALL: u64 = 30_000;
    for n in 0..ALL {
        live.allow("http://a.test/a/path/that/is/as/long/as/most/are?and=a&query=too");
        if n % 1_000 == 0 {
            live.settle();
        }
    }
    live.log().close(TIMEOUT);
    let mut lines = 0;
    let mut lost = 0;
    while let Some(line) = stream.json().await {
        match line["lost"].as_u64() {
            Some(more) => lost += more,
            None => lines += 1,
        }
    }
    assert_eq!(lines + lost, ALL, "{lines} lines, {lost} lost");
    assert!(lost > 0 && lines > 9_000, "{lines} lines, {lost} lost");
}

#[tokio::test]
async fn followers_are_limited_and_a_disconnect_frees_a_place() {
    let live = Live::unwritten().await;
    let mut streams = vec![];
    for _ in 0..16 {
        streams.push(live.follow("recent=0").await);
    }
    let refused = live.ask("GET /api/v1/decisions", "").await;
    assert_eq!(status(&refused), 503);
    assert!(refused.contains("retry-after: 10\r\n"), "{refused}");
    assert_eq!(status(&live.ask("HEAD /api/v1/decisions", "").await), 200);
    assert_eq!(
        status(&live.ask("GET /healthz", "").await),
        200,
        "other pages go on"
    );

    streams.pop();
    let waited = AtomicUsize::new(0);
    while live.is_full().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(
            waited.fetch_add(1, Ordering::Relaxed) < 4_000,
            "its place is never free"
        );
    }
    // The others continue to receive.
    live.reject("http://a.test/1");
    for stream in &mut streams {
        assert_eq!(stream.json().await.unwrap()["url"], "http://a.test/1");
    }
    drop(streams);
    live.settle();
    // Nobody follows: what is allowed is not even kept.
    for _ in 0..4_000 {
        let before = live.urls("recent=10000").await.len();
        live.allow("http://a.test/2");
        if live.urls("recent=10000").await.len() == before {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("somebody still follows");
}

/// A place is taken as long as its answer is read, though the source was done with it long before.
#[tokio::test]
async fn an_unread_response_keeps_its_place() {
    let live = Live::unwritten().await;
    let long = format!("http://a.test/{}", "x".repeat(1_900));
    for _ in 0..4_000 {
        live.reject(&long);
    }
    live.settle();
    let mut readers = vec![];
    for _ in 0..16 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        let stream = socket.connect(live.bench.address()).await.unwrap();
        readers.push(live.follow_on(stream, "recent=10000&follow=false").await);
    }
    assert!(live.is_full().await);
    // One of them reads on, and has all of it.
    let mut lines = 0;
    while readers[0].json().await.is_some() {
        lines += 1;
    }
    assert!(lines > 3_000, "{lines}");
    let waited = AtomicUsize::new(0);
    while live.is_full().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(
            waited.fetch_add(1, Ordering::Relaxed) < 4_000,
            "its place is never free"
        );
    }
}

/// An unread standard error is such a destination.
#[tokio::test]
async fn a_blocked_log_destination_does_not_stop_the_stream() {
    let (gate, blocked) = std::sync::mpsc::channel::<()>();
    let settings = LogSettings {
        queue_bytes: 8 << 10,
        ..LogSettings::default()
    };
    let live = Live::with_log(
        |metrics: &Metrics, clock: &Clock| {
            DecisionLog::open_with_writer(&settings, Box::new(Blocks(blocked)), metrics, clock)
        },
        None,
    )
    .await;
    let mut stream = live.follow("recent=0").await;
    // More than the log has room for, one at a time: each is seen before the next is made.
    for n in 0..100 {
        let url = format!("http://a.test/{n}");
        live.reject(&url);
        assert_eq!(stream.json().await.unwrap()["url"], url);
    }
    drop(gate);
    assert_eq!(live.log().close(TIMEOUT), LogCloseResult::Done);
    assert_eq!(stream.json().await, None);
}

/// Takes nothing until the other end is gone.
struct Blocks(std::sync::mpsc::Receiver<()>);

impl std::io::Write for Blocks {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_stream_ends_with_the_log_and_its_last_lines() {
    let live = Live::unwritten().await;
    let mut stream = live.follow("recent=0&verdict=allow").await;
    live.reject("http://a.test/1");
    live.allow("http://a.test/2");
    assert_eq!(live.log().close(TIMEOUT), LogCloseResult::Done);
    assert_eq!(stream.json().await.unwrap()["url"], "http://a.test/2");
    assert_eq!(stream.line().await, None);
    assert_eq!(live.urls("").await.len(), 2, "the ring stays");
}

#[tokio::test]
async fn a_decision_in_the_ring_is_found_by_its_id() {
    let live = Live::written().await;
    let none = live.ask("GET /api/v1/decisions/00000000-0", "").await;
    assert_eq!(status(&none), 404);
    assert!(body(&none).contains("there are none yet"), "{none}");
    let refused = live.reject("http://a.test/x?q=1");
    let hidden = live.reject_keeping("http://a.test/secret", UrlRetention::Host);
    let allowed = live.allow("http://b.test/");
    for (id, verdict, facts) in [
        (
            &refused,
            "reject",
            json!({ "url": "http://a.test/x?q=1", "method": "GET", "crawler": "anonymous" }),
        ),
        (
            &hidden,
            "reject",
            json!({ "url": "http://a.test/secret", "method": "GET", "crawler": "anonymous" }),
        ),
        (
            &allowed,
            "allow",
            json!({ "url": "http://b.test/", "method": "HEAD", "crawler": "news-bot" }),
        ),
    ] {
        let answer = live.ask(&format!("GET /api/v1/decisions/{id}"), "").await;
        assert_eq!(status(&answer), 200, "{answer}");
        let found: Value = serde_json::from_str(body(&answer)).unwrap();
        assert_eq!(
            (found["decision"].as_str(), found["verdict"].as_str()),
            (Some(id.as_str()), Some(verdict))
        );
        assert_eq!(found["facts"], facts);
    }
    for (id, expected) in [
        ("zzz", 400),
        ("", 400),
        ("%20", 400),
        (&refused[..8], 400),
        ("4bf92f3577b34da6a3ce929d0e0e4736", 404),
        ("ffffffff-ffff", 404),
    ] {
        assert_eq!(
            status(&live.ask(&format!("GET /api/v1/decisions/{id}"), "").await),
            expected,
            "{id}"
        );
    }
    // More than are kept.
    for _ in 0..11_000 {
        live.allow("http://b.test/");
    }
    let gone = live
        .ask(&format!("GET /api/v1/decisions/{refused}"), "")
        .await;
    assert_eq!(status(&gone), 404);
    assert!(body(&gone).contains("reach back to 20"), "{gone}");
    assert!(body(&gone).contains("\"since\":\"20"), "{gone}");
    assert_eq!(
        status(
            &live
                .ask(
                    &format!("POST /api/v1/decisions/{refused}"),
                    "Content-Length: 0\r\n"
                )
                .await
        ),
        405
    );
}
