//! The admin listener over real sockets: pages, guards, and misbehaving clients.

mod flood;
mod hosts;
mod ledger;
mod live;
mod whole;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crawlgate::admin::guard::{AdminGuard, AdminToken};
use crawlgate::admin::health::{CheckState, HealthCheck, Readiness};
use crawlgate::admin::{AdminApis, AdminServer};
use crawlgate::clock::Clock;
use crawlgate::metrics::Metrics;
use crawlgate::pipeline::reload::ReloadHandle;
use crawlgate::policy::compile;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::admin::{TestAdmin, default_apis};

pub(crate) const TOKEN: &str = "correct-horse-battery";

pub(crate) struct AdminBench {
    admin: TestAdmin,
    draining: Arc<AtomicBool>,
}

impl AdminBench {
    pub(crate) async fn new(token: Option<&str>) -> Self {
        let draining = Arc::new(AtomicBool::new(false));
        let observed = Arc::clone(&draining);
        let readiness = Readiness::new(move || {
            let drain = match observed.load(Ordering::Acquire) {
                true => CheckState::Fail("shutting down".into()),
                false => CheckState::Ok(String::new()),
            };
            vec![
                HealthCheck::new("policy", CheckState::Ok("acme@3f9c2a1b".into())),
                HealthCheck::new("drain", drain),
                HealthCheck::new("log", CheckState::Warn("lost lines\n2 in all".into())),
            ]
        });
        let guard = AdminGuard::new(
            ["gate.example".to_owned()],
            token.map(|token| AdminToken::new(token).unwrap()),
        );
        let apis = AdminApis {
            readiness,
            ..default_apis()
        };
        Self {
            draining,
            ..Self::with_apis(guard, apis).await
        }
    }

    pub(crate) async fn with_apis(guard: AdminGuard, apis: AdminApis) -> Self {
        Self {
            admin: TestAdmin::start(guard, apis).await,
            draining: Arc::default(),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.admin.address
    }

    /// Sends bytes and reads until the server closes.
    pub(crate) async fn raw(&self, request: &str) -> String {
        self.admin.exchange(request).await
    }

    /// Sends a request with a valid Host and these header fields, each line with its CRLF.
    pub(crate) async fn ask(&self, line: &str, fields: &str) -> String {
        self.admin.request(line, fields, b"").await
    }

    pub(crate) async fn status(&self, line: &str, fields: &str) -> u16 {
        status(&self.ask(line, fields).await)
    }
}

pub(crate) fn status(answer: &str) -> u16 {
    answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0)
}

pub(crate) fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

#[tokio::test]
async fn pages_are_served() {
    let bench = AdminBench::new(None).await;
    let metrics = bench.ask("GET /metrics", "").await;
    assert_eq!(status(&metrics), 200);
    assert!(metrics.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert!(body(&metrics).starts_with("# HELP crawlgate_"));
    assert!(body(&metrics).contains("\ncrawlgate_panics_total 0\n"));
    assert_eq!(body(&bench.ask("GET /healthz", "").await), "ok\n");

    let head = bench.ask("HEAD /metrics", "").await;
    assert_eq!((status(&head), body(&head)), (200, ""));
    assert!(head.contains("content-length: ") && !head.contains("content-length: 0"));
}

#[tokio::test]
async fn the_ca_certificates_are_served_without_a_token() {
    let none = AdminBench::new(None).await.ask("GET /ca.pem", "").await;
    assert_eq!(status(&none), 404);
    assert!(
        body(&none).contains("there is no certificate authority to trust"),
        "{none}"
    );

    let guard = AdminGuard::new([], Some(AdminToken::new(TOKEN).unwrap()));
    let apis = AdminApis {
        authorities: Some("one\ntwo\n".into()),
        ..default_apis()
    };
    let bench = AdminBench::with_apis(guard, apis).await;
    let some = bench.ask("GET /ca.pem", "").await;
    assert_eq!(status(&some), 200, "no token is asked for");
    assert_eq!(body(&some), "one\ntwo\n", "no token is asked for");
    assert!(
        some.contains("content-type: application/x-pem-file\r\n"),
        "{some}"
    );
    assert_eq!(bench.status("POST /ca.pem", "").await, 405);
    assert_eq!(
        bench
            .status("GET /ca.pem", "Origin: http://evil.example\r\n")
            .await,
        403
    );
}

#[tokio::test]
async fn readiness_follows_its_checks() {
    let bench = AdminBench::new(None).await;
    let answer = bench.ask("GET /readyz", "").await;
    assert_eq!(status(&answer), 200);
    assert_eq!(
        body(&answer),
        "ok policy: acme@3f9c2a1b\nok drain\nwarn log: lost lines 2 in all\n"
    );
    bench.draining.store(true, Ordering::Release);
    let answer = bench.ask("GET /readyz", "").await;
    assert_eq!(status(&answer), 503);
    assert!(body(&answer).contains("fail drain: shutting down\n"));
    assert_eq!(bench.status("GET /healthz", "").await, 200);
}

#[tokio::test]
async fn an_unknown_path_gets_a_problem_document() {
    let bench = AdminBench::new(None).await;
    let answer = bench.ask("GET /nothing?<script>", "").await;
    let answer = if status(&answer) == 400 {
        bench.ask("GET /nothing?script", "").await
    } else {
        answer
    };
    assert_eq!(status(&answer), 404);
    assert!(answer.contains("content-type: application/problem+json\r\n"));
    let problem: serde_json::Value = serde_json::from_str(body(&answer)).unwrap();
    assert_eq!(
        (problem["status"].as_u64(), problem["title"].as_str()),
        (Some(404), Some("Not Found"))
    );
    assert!(!answer.contains("script"));

    let answer = bench.ask("POST /metrics", "Content-Length: 0\r\n").await;
    assert_eq!(status(&answer), 405);
    assert!(answer.contains("allow: GET, HEAD\r\n"));
    for line in ["DELETE /healthz", "OPTIONS /readyz", "TRACE /metrics"] {
        assert_eq!(bench.status(line, "").await, 405, "{line}");
    }
}

#[tokio::test]
async fn the_policy_is_shown_and_a_refused_reload_reports_its_problems() {
    let bench = AdminBench::new(None).await;
    let shown: serde_json::Value =
        serde_json::from_str(body(&bench.ask("GET /api/v1/policy", "").await)).unwrap();
    assert_eq!(
        (&shown["name"], &shown["last_reload"]),
        (&"builtin".into(), &serde_json::Value::Null)
    );
    let answer = bench
        .ask("POST /api/v1/reload", "Content-Length: 0\r\n")
        .await;
    assert_eq!(status(&answer), 422);
    let problem: serde_json::Value = serde_json::from_str(body(&answer)).unwrap();
    assert_eq!(problem["problems"][0]["message"], "no good");
    assert_eq!(
        (&problem["status"], &problem["revision"]),
        (&422.into(), &shown["revision"])
    );
    let shown: serde_json::Value =
        serde_json::from_str(body(&bench.ask("GET /api/v1/policy", "").await)).unwrap();
    assert_eq!(shown["last_reload"]["result"], "refused");
    assert_eq!(shown["last_reload"]["trigger"], "api");

    assert!(
        bench
            .ask("GET /api/v1/reload", "")
            .await
            .contains("allow: POST\r\n")
    );
    assert_eq!(
        bench
            .status("POST /api/v1/policy", "Content-Length: 0\r\n")
            .await,
        405
    );
    for foreign in [
        "Origin: http://evil.example\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
    ] {
        let fields = format!("{foreign}Content-Length: 0\r\n");
        assert_eq!(
            bench.status("POST /api/v1/reload", &fields).await,
            403,
            "{foreign}"
        );
    }
}

#[tokio::test]
async fn requests_need_a_known_host_and_the_same_origin() {
    let bench = AdminBench::new(None).await;
    let port = bench.address().port();
    fn host(value: &str) -> String {
        format!("GET /metrics HTTP/1.1\r\nHost: {value}\r\n\r\n")
    }
    for (request, expected) in [
        (host(&format!("localhost:{port}")), 200),
        (host(&format!("[::1]:{port}")), 200),
        (host("gate.example"), 200),
        (host("gate.example:9999"), 200),
        (host(&format!("evil.example:{port}")), 403),
        (host("127.0.0.1"), 403),
        (host("127.0.0.1:1"), 403),
        (host(""), 403),
        ("GET /metrics HTTP/1.1\r\n\r\n".into(), 400),
        ("GET /metrics HTTP/1.0\r\n\r\n".into(), 400),
        (
            format!("GET /metrics HTTP/1.1\r\nHost: localhost:{port}\r\nHost: evil\r\n\r\n"),
            400,
        ),
    ] {
        assert_eq!(status(&bench.raw(&request).await), expected, "{request:?}");
    }
    for (fields, expected) in [
        (format!("Origin: http://{}\r\n", bench.address()), 200),
        ("Origin: http://evil.example\r\n".into(), 403),
        (format!("Origin: https://{}\r\n", bench.address()), 403),
        ("Origin: null\r\n".into(), 403),
        (
            format!(
                "Origin: http://{0}\r\nOrigin: http://evil.example\r\n",
                bench.address()
            ),
            403,
        ),
        ("Sec-Fetch-Site: same-origin\r\n".into(), 200),
        ("Sec-Fetch-Site: none\r\n".into(), 200),
        ("Sec-Fetch-Site: cross-site\r\n".into(), 403),
        ("Sec-Fetch-Site: same-site\r\n".into(), 403),
    ] {
        assert_eq!(
            bench.status("GET /healthz", &fields).await,
            expected,
            "{fields:?}"
        );
    }
}

#[tokio::test]
async fn it_is_no_proxy() {
    let bench = AdminBench::new(None).await;
    for line in [
        "GET http://www.example.com/metrics".to_owned(),
        format!("GET http://{}/metrics", bench.address()),
        "CONNECT www.example.com:443".to_owned(),
        format!("CONNECT {}", bench.address()),
    ] {
        let answer = bench.ask(&line, "").await;
        assert_eq!(status(&answer), 400, "{line}");
        assert!(
            answer.contains("the proxy listens on another port"),
            "{line}"
        );
    }
}

#[tokio::test]
async fn every_path_but_the_probes_requires_the_token() {
    let bench = AdminBench::new(Some(TOKEN)).await;
    for (line, fields, expected) in [
        ("GET /metrics", "", 200),
        ("GET /healthz", "", 200),
        ("GET /readyz", "", 200),
        ("GET /ca.pem", "", 404),
        ("GET /api/v1/policy", "", 401),
        ("POST /api/v1/reload", "", 401),
        (
            "GET /nothing",
            "Authorization: Bearer wrong-horse-battery\r\n",
            401,
        ),
        (
            "GET /nothing",
            "Authorization: Basic correct-horse-battery\r\n",
            401,
        ),
        (
            "GET /nothing",
            "Authorization: Basic bWU6d3JvbmctaG9yc2UtYmF0dGVyeQ==\r\n",
            401,
        ),
        (
            "GET /nothing",
            "Authorization: Basic bWU6Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5\r\n",
            404,
        ),
        (
            "GET /nothing",
            "Authorization: Bearer correct-horse-battery\r\n",
            404,
        ),
        (
            "GET /nothing",
            "Authorization: bearer  correct-horse-battery\r\n",
            404,
        ),
        (
            "GET /nothing",
            "Authorization: Bearer correct-horse-battery\r\nAuthorization: Bearer correct-horse-battery\r\n",
            401,
        ),
    ] {
        assert_eq!(
            bench.status(line, fields).await,
            expected,
            "{line} {fields:?}"
        );
    }
    let answer = bench.ask("GET /nothing", "").await;
    assert!(answer.contains(
        "www-authenticate: Bearer realm=\"crawlgate admin\"\r\n\
         www-authenticate: Basic realm=\"crawlgate admin\", charset=\"UTF-8\"\r\n"
    ));
    assert!(!answer.contains("horse"));
}

#[tokio::test]
async fn bad_heads_end_their_connection_only() {
    let bench = AdminBench::new(None).await;
    assert_eq!(status(&bench.raw("NONSENSE\r\n\r\n").await), 400);
    let big = format!("X-Big: {}\r\n", "x".repeat(64 << 10));
    let mut stream = TcpStream::connect(bench.address()).await.unwrap();
    // The server may close before it has read everything.
    let _ = stream
        .write_all(format!("GET /metrics HTTP/1.1\r\n{big}\r\n").as_bytes())
        .await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(!String::from_utf8_lossy(&answer).contains(" 200 "));
    assert_eq!(bench.status("GET /healthz", "").await, 200);
}

#[tokio::test]
async fn idle_connections_do_not_lock_others_out_before_the_cap() {
    let bench = AdminBench::new(None).await;
    let mut idle = Vec::new();
    for _ in 0..60 {
        idle.push(TcpStream::connect(bench.address()).await.unwrap());
    }
    assert_eq!(bench.status("GET /healthz", "").await, 200);
    drop(idle);
    assert_eq!(bench.status("GET /healthz", "").await, 200);
}

#[tokio::test]
async fn the_server_stops_on_shutdown() {
    // Nothing else listens on this address, so no other test gets the port.
    let listener = TcpListener::bind("127.0.0.41:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let admin = AdminServer::new(
        AdminGuard::new([], None),
        default_apis(),
        AdminServer::MAX_CONNECTIONS,
    );
    let serving = tokio::spawn(admin.serve(listener, async {
        let _ = stopped.await;
    }));
    assert!(TcpStream::connect(addr).await.is_ok());
    stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(20), serving)
        .await
        .expect("it stops")
        .unwrap();
    assert!(TcpStream::connect(addr).await.is_err());
}

/// A disk that hangs: a reload has no result for a long time.
#[tokio::test(start_paused = true)]
async fn a_long_reload_is_answered_in_time() {
    // Nothing serves it.
    let (reloads, _reloader) = ReloadHandle::new(Clock::from_runtime());
    let mut apis = default_apis();
    apis.policy.reloads = reloads;
    let admin = AdminServer::new(
        AdminGuard::new([], None),
        apis,
        AdminServer::MAX_CONNECTIONS,
    );
    let local: SocketAddr = "127.0.0.1:3129".parse().unwrap();
    let request = Request::builder()
        .method(Method::POST)
        .uri("/api/v1/reload")
        .header("host", local.to_string())
        .body(
            Full::default()
                .map_err(|never| match never {})
                .boxed_unsync(),
        )
        .unwrap();
    // A connection lasts for 30 s.
    let limit = Duration::from_secs(29);
    let admitted = admin.connections().admit(local.ip(), local).await;
    let (connection, _eviction) = admitted.expect("a place");
    let answer = tokio::time::timeout(limit, admin.handle(request, &connection)).await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), 202);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let document: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(document["result"], "pending");
    assert_eq!(document["policy"], "builtin");
}
