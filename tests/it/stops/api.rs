//! `/api/v1/stops` over sockets: what it takes, what it refuses, and clients that mean no good.

use std::sync::Arc;

use crawlgate::admin::guard::{AdminGuard, AdminToken};
use crawlgate::admin::policy_api::PolicyApi;
use crawlgate::admin::stops::StopsApi;
use crawlgate::clock::Clock;
use crawlgate::metrics::Metrics;
use crawlgate::model::crawler::Crawler;
use crawlgate::model::profile::Profile;
use crawlgate::model::rule_id::Slug;
use crawlgate::pipeline::reload::ReloadHandle;
use crawlgate::pipeline::snapshot::{ActivePolicy, PolicySnapshot};
use crawlgate::pipeline::stop_registry::{MAX_STOPS, StopRegistry};
use crawlgate::store::stops::StopsFile;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::press;
use crate::support::admin::{TestAdmin, apis};
use crate::support::pipeline::dry_runner;
use crate::support::policy::compile_policy;
use crate::support::temp_dir::TempDir;

const POLICY: &str =
    "policy: 1\nname: p\noptions: { disposition: allow }\nrules:\n  - { id: slow, when: { under: /s } }
  - { id: off, enabled: false, when: { under: /s } }\n  - { id: tried, mode: shadow, forbid: { under: /s } }
  - { id: films, forbid: { content_type: video/mp4 } }\n";
const JSON: &str = "Content-Type: application/json\r\n";

struct StopsBench {
    admin: TestAdmin,
    stops: Arc<StopRegistry>,
    folder: TempDir,
}

impl StopsBench {
    async fn new(token: Option<&str>) -> Self {
        let bench = Self::without_disk(token).await;
        bench
            .stops
            .restore(StopsFile::in_directory(bench.folder.path()))
            .unwrap();
        bench
    }

    async fn without_disk(token: Option<&str>) -> Self {
        let (clock, _) = Clock::manual();
        let metrics = Metrics::new(&[], &[]).unwrap();
        let stops = Arc::new(StopRegistry::new(10, clock.clone(), metrics.clone()));
        let policy = compile_policy(POLICY).policy;
        let counters = metrics.register_policy(policy.name(), policy.revision(), [], &clock);
        let active_policy = Arc::new(ActivePolicy::new(PolicySnapshot::new(policy, counters)));
        let crawlers = [Crawler::new(&Slug::new("news").unwrap())].into();
        let api = StopsApi {
            stops: Arc::clone(&stops),
            active_policy: Arc::clone(&active_policy),
            crawlers,
        };
        let policy = PolicyApi {
            dry_runner: dry_runner(&active_policy),
            active_policy,
            reloads: ReloadHandle::new(clock).0,
            crawlers: Arc::default(),
            default_profile: Profile::Generic,
        };
        let guard = AdminGuard::new([], token.map(|token| AdminToken::new(token).unwrap()));
        Self {
            admin: TestAdmin::start(guard, apis(metrics, policy, api)).await,
            stops,
            folder: TempDir::new(),
        }
    }

    async fn ask(&self, line: &str, fields: &str, body: &[u8]) -> String {
        self.admin.request(line, fields, body).await
    }

    async fn raw(&self, bytes: &[u8]) -> String {
        self.admin.exchange(bytes).await
    }

    /// The status and the document of a response.
    async fn json(&self, line: &str, body: &[u8]) -> (u16, Json) {
        let answer = self.ask(line, JSON, body).await;
        let document = answer.split_once("\r\n\r\n").unwrap().1;
        (
            status(&answer),
            serde_json::from_str(document).unwrap_or_else(|error| panic!("{error}: {answer}")),
        )
    }

    async fn press(&self, body: &Json) -> (u16, Json) {
        self.json("POST /api/v1/stops", body.to_string().as_bytes())
            .await
    }
}

fn status(answer: &str) -> u16 {
    answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0)
}

#[tokio::test]
async fn stops_are_given_shown_and_lifted() {
    let bench = StopsBench::new(None).await;
    assert_eq!(
        bench.json("GET /api/v1/stops", b"").await,
        (200, json!({ "stops": [] }))
    );
    let body = json!({ "what": "WWW.Example.com", "reason": " they have called ", "for": "1h" })
        .to_string();
    let answer = bench.ask("POST /api/v1/stops", "", body.as_bytes()).await;
    assert!(
        answer.contains("\r\nlocation: /api/v1/stops/1\r\n"),
        "{answer}"
    );
    let stop = json!({
        "id": "1", "what": "host:www.example.com", "reason": "they have called",
        "since": "2026-01-01T00:00:00.000Z", "until": "2026-01-01T01:00:00.000Z",
    });
    let mut given: Json = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let more = (given["persisted"].take(), given["warnings"].take());
    assert_eq!((status(&answer), more), (201, (json!(true), json!([]))));
    assert_eq!(
        bench.json("GET /api/v1/stops/1", b"").await,
        (200, stop.clone())
    );

    let (code, second) = bench
        .press(&json!({ "what": "crawler:news", "reason": "loops", "for": null }))
        .await;
    assert_eq!(
        (code, &second["id"], &second["until"]),
        (201, &json!("2"), &Json::Null)
    );
    let (_, list) = bench.json("GET /api/v1/stops", b"").await;
    assert_eq!(
        (&list["stops"][0], &list["stops"][1]["what"]),
        (&stop, &json!("crawler:news"))
    );

    let (code, lifted) = bench.json("DELETE /api/v1/stops/1", b"").await;
    assert_eq!(
        (code, &lifted["what"], &lifted["persisted"]),
        (200, &stop["what"], &json!(true))
    );
    for line in [
        "DELETE /api/v1/stops/1",
        "GET /api/v1/stops/1",
        "GET /api/v1/stops/99",
    ] {
        assert_eq!(bench.json(line, b"").await.0, 404, "{line}");
    }
    assert_eq!(
        bench.json("GET /api/v1/stops", b"").await.1["stops"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn a_stop_of_an_unknown_target_gets_a_warning() {
    let bench = StopsBench::new(None).await;
    for (what, warned) in [
        ("crawler:news", ""),
        ("crawler:anonymous", ""),
        ("crawler:nobody", "the configuration has no crawler nobody"),
        ("rule:slow", ""),
        ("rule:none", "the active policy has no rule none"),
        ("rule:off", "is disabled"),
        ("rule:tried", "is in shadow mode"),
        ("rule:films", "matches responses"),
    ] {
        let (code, given) = bench.press(&json!({ "what": what, "reason": "x" })).await;
        let warnings = given["warnings"].as_array().unwrap();
        let reported = warnings
            .first()
            .map_or("", |warning| warning.as_str().unwrap());
        assert_eq!(code, 201, "{what}");
        assert_eq!(warnings.len(), usize::from(!warned.is_empty()), "{what}");
        assert!(reported.contains(warned), "{what}: {reported}");
    }
}

#[tokio::test]
async fn an_invalid_body_is_refused_with_its_problem() {
    let bench = StopsBench::new(None).await;
    let fine = r#""what": "a.test", "reason": "x""#;
    let deep = "[".repeat(15_000);
    for (body, reported) in [
        (String::new(), "not a JSON object"),
        ("what=a.test&reason=x".into(), "not a JSON object"),
        ("[]".into(), "not a JSON object"),
        ("null".into(), "not a JSON object"),
        (deep, "not a JSON object"),
        ("{}".into(), "missing field `what`"),
        (r#"{"what": "a.test"}"#.into(), "missing field `reason`"),
        (
            format!("{{{fine}, \"what\": \"b.test\"}}"),
            "duplicate field `what`",
        ),
        (
            format!("{{{fine}, \"for\": \"1h\", \"for\": null}}"),
            "duplicate field `for`",
        ),
        (format!("{{{fine}, \"until\": \"never\"}}"), "unknown field"),
        (
            format!("{{{fine}, \"{}\": 1}}", "x".repeat(9_000)),
            "unknown field",
        ),
        (format!("{{{fine}, \"for\": 60}}"), "invalid type"),
        (format!("{{{fine}}} trailing"), "trailing"),
        (fine.replace("a.test", ""), "not a JSON object"),
        (
            r#"{"what": "", "reason": "x"}"#.into(),
            "`what`: the target is empty; write HOST, *.HOST, crawler:NAME or rule:ID",
        ),
        (
            r#"{"what": "http://a.test/", "reason": "x"}"#.into(),
            "`what`: a stop covers a host, and not single URLs",
        ),
        (
            r#"{"what": "a.test\r\nX: y", "reason": "x"}"#.into(),
            "`what`: invalid host",
        ),
        (
            r#"{"what": "crawler:A B", "reason": "x"}"#.into(),
            "`what`: invalid name of a crawler",
        ),
        (
            r#"{"what": "rule:a\u0000", "reason": "x"}"#.into(),
            "`what`: invalid id of a rule",
        ),
        (
            r#"{"what": "a.test", "reason": " "}"#.into(),
            "`reason`: a reason is one line of 1 to 200",
        ),
        (
            r#"{"what": "a.test", "reason": "a\r\nCrawl-Rule: x"}"#.into(),
            "`reason`: a reason is one line",
        ),
        (
            r#"{"what": "a.test", "reason": "\u001b[2J"}"#.into(),
            "`reason`: a reason is one line",
        ),
        (
            format!(
                "{{\"what\": \"a.test\", \"reason\": \"{}\"}}",
                "x".repeat(201)
            ),
            "`reason`: a reason is one line",
        ),
        (
            format!("{{{fine}, \"for\": \"0s\"}}"),
            "`for`: write a duration such as 90s",
        ),
        (format!("{{{fine}, \"for\": \"soon\"}}"), "at most 366d"),
        (format!("{{{fine}, \"for\": \"999999d\"}}"), "at most 366d"),
    ] {
        let (code, problem) = bench.json("POST /api/v1/stops", body.as_bytes()).await;
        let detail = problem["detail"].as_str().unwrap();
        assert_eq!(code, 400, "{body}: {detail}");
        assert!(detail.contains(reported), "{body}: {detail}");
        assert!(detail.len() < 400, "{body}: {detail}");
    }
    assert_eq!(bench.json("POST /api/v1/stops", &[0xff; 20]).await.0, 400);
    assert!(bench.stops.is_clear());
}

#[tokio::test]
async fn bodies_that_are_too_long_or_never_end_are_given_up() {
    let bench = StopsBench::new(None).await;
    let long = format!(
        "{{\"what\": \"a.test\", \"reason\": \"{}\"}}",
        "x".repeat(1 << 20)
    );
    let answer = bench.ask("POST /api/v1/stops", "", long.as_bytes()).await;
    // A client that sends on may see a reset in place of the answer.
    assert!(answer.is_empty() || status(&answer) == 413, "{answer}");
    let chunks = "7d0\r\n".to_owned() + &"x".repeat(2_000) + "\r\n";
    let head = format!(
        "POST /api/v1/stops HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n",
        bench.admin.address
    );
    let answer = bench
        .raw((head.clone() + &chunks.repeat(9)).as_bytes())
        .await;
    assert!(answer.is_empty() || status(&answer) == 413, "{answer}");
    // One that ends in the middle is no stop.
    let mut stream = TcpStream::connect(bench.admin.address).await.unwrap();
    stream.write_all((head + &chunks).as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert!(answer.is_empty() || status(&answer) == 400, "{answer}");
    assert!(bench.stops.is_clear());
}

#[tokio::test]
async fn the_guards_are_those_of_every_page() {
    let bench = StopsBench::new(Some("correct-horse-battery")).await;
    let id = press(&bench.stops, "a.test", None).stop.id;
    let token = "Authorization: Bearer correct-horse-battery\r\n";
    let foreign = "Origin: http://evil.example\r\n";
    let site = "Sec-Fetch-Site: cross-site\r\n";
    let one = format!("/api/v1/stops/{id}");
    let body = br#"{"what": "b.test", "reason": "x"}"#;
    for (method, path) in [
        ("GET", "/api/v1/stops"),
        ("POST", "/api/v1/stops"),
        ("GET", &one),
        ("DELETE", &one),
    ] {
        for (fields, expected) in [
            (String::new(), 401),
            (
                "Authorization: Bearer wrong-horse-battery\r\n".to_owned(),
                401,
            ),
            (format!("{token}{foreign}"), 403),
            (format!("{token}{site}"), 403),
        ] {
            let body = if method == "POST" { &body[..] } else { b"" };
            let answer = bench.ask(&format!("{method} {path}"), &fields, body).await;
            assert_eq!(status(&answer), expected, "{method} {path} {fields}");
        }
    }
    let rebound = format!(
        "POST /api/v1/stops HTTP/1.1\r\nHost: evil.example\r\n{token}Content-Length: 0\r\n\r\n"
    );
    assert_eq!(status(&bench.raw(rebound.as_bytes()).await), 403);
    assert_eq!(bench.stops.list().len(), 1, "nothing was given or lifted");
    for (line, allowed) in [
        ("PUT /api/v1/stops", "GET, HEAD, POST"),
        ("DELETE /api/v1/stops", "GET, HEAD, POST"),
        ("POST /api/v1/stops/1", "GET, HEAD, DELETE"),
    ] {
        let answer = bench.ask(line, token, b"").await;
        assert!(status(&answer) == 405, "{line}: {answer}");
        assert!(
            answer.contains(&format!("allow: {allowed}\r\n")),
            "{line}: {answer}"
        );
    }
    for path in [
        "/api/v1/stops/",
        "/api/v1/stops/x",
        "/api/v1/stops/-1",
        "/api/v1/stops/1/2",
        "/api/v1/stops/%31",
    ] {
        assert_eq!(
            status(&bench.ask(&format!("DELETE {path}"), token, b"").await),
            404,
            "{path}"
        );
    }
    assert_eq!(
        status(&bench.ask("DELETE /api/v1/stops/1", token, b"").await),
        200
    );
}

#[tokio::test]
async fn stops_are_limited_to_a_thousand_and_need_no_disk() {
    let bench = StopsBench::without_disk(None).await;
    for number in 0..MAX_STOPS {
        press(&bench.stops, &format!("h{number}.test"), None);
    }
    let (code, problem) = bench
        .press(&json!({ "what": "x.test", "reason": "x" }))
        .await;
    assert_eq!((code, problem["title"].as_str()), (409, Some("Conflict")));
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .starts_with("1000 stops are active"),
        "{problem}"
    );
    assert_eq!(bench.json("DELETE /api/v1/stops/7", b"").await.0, 200);
    let (code, given) = bench
        .press(&json!({ "what": "x.test", "reason": "x" }))
        .await;
    assert_eq!((code, &given["persisted"]), (201, &json!(false)));
    assert!(
        given["warnings"][0]
            .as_str()
            .unwrap()
            .starts_with("this will be lost at a restart"),
        "{given}"
    );
}
