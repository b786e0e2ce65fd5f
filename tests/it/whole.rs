//! HTTPS end to end: a client that trusts the proxy's authority, the proxy, and an origin whose authority the proxy trusts.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use crate::origin_tls::certs::{Authority, When};
use crate::origin_tls::origin::{text_response, text_response_with};
use crate::support::origin::{ScriptedConnection, ScriptedOrigin, path_of};
use crate::support::proxy::TestProxy;
use crate::support::wait::wait_until;
use crate::tunnel::inside::{Inside, check, trusting, trusting_by};

const POLICY: &str = "
policy: 1
name: whole
options:
  disposition: allow
  robots: { obey: false }
  politeness: { delay: 0s, concurrency: 100 }
rules:
  - { id: private, forbid: { under: /private } }
  - { id: no-video, when: { content_type: \"video/*\" }, then: exclude }
  - { id: slow, when: { under: /slow }, set: { politeness: { delay: 60s, jitter: none, max_hold: 60s } } }
  - { id: pages, when: { host: b.test }, set: { robots: { obey: true } } }
";

/// A proxy that intercepts TLS, its client and its origin.
struct Whole {
    gate: TestProxy,
    client: Arc<ClientConfig>,
    origin: ScriptedOrigin,
}

impl Whole {
    fn answering(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self::start(move |connection, tls| connection.serve_tls(tls, &answer))
    }

    fn start(
        serve: impl Fn(&ScriptedConnection, &Arc<rustls::ServerConfig>) + Send + Sync + 'static,
    ) -> Self {
        Self::start_by(rustls::DEFAULT_VERSIONS, serve)
    }

    /// With an origin that supports these versions of TLS only.
    fn start_by(
        versions: &[&'static rustls::SupportedProtocolVersion],
        serve: impl Fn(&ScriptedConnection, &Arc<rustls::ServerConfig>) + Send + Sync + 'static,
    ) -> Self {
        let authority = Authority::new();
        let tls = authority
            .leaf(&["a.test", "b.test"], When::Now)
            .server_by(versions);
        let origin = ScriptedOrigin::start(move |connection| serve(connection, &tls));
        let config = "listen: 127.0.0.1:0
admin: { listen: 127.0.0.1:0 }
policy: { path: policy.yaml, watch: false }
logs: { decisions: log.json }
tls: { intercept: true, ca: { cert: ca.pem, key: ca.key }, bundle: bundle.pem, roots: webpki, extra_roots: [origin.pem] }
egress:
  ports: [1-65535]
  connect_ports: [1-65535]
  allow_loopback: true
  hosts: { a.test: 127.0.0.1, b.test: 127.0.0.1 }
";
        let pem = authority.pem();
        let gate = TestProxy::start_with(config, POLICY, move |command| {
            std::fs::write(command.get_current_dir().unwrap().join("origin.pem"), pem).unwrap();
        });
        let client = trusting(&gate);
        Self {
            gate,
            client,
            origin,
        }
    }

    /// A connection into a tunnel to this host.
    fn open(&self, host: &str) -> Inside {
        let authority = format!("{host}:{}", self.origin.port);
        Inside::try_open(self.gate.proxy, &authority, host, &self.client).unwrap()
    }

    fn host(&self, host: &str) -> String {
        format!("{host}:{}", self.origin.port)
    }
}

#[test]
fn pages_arrive_unchanged_and_refused_ones_are_not_fetched() {
    let large = "0123456789abcdef".repeat(1 << 16);
    let page = large.clone();
    let whole = Whole::answering(move |head| match path_of(head) {
        "/large" => text_response(&page),
        "/film" => {
            "HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\nContent-Length: 5\r\n\r\nmovie".into()
        }
        _ => text_response_with("Alt-Svc: h3=\":443\"\r\nCrawl-Status: FORGED\r\n", "a page"),
    });
    let host = whole.host("a.test");
    let mut client = whole.open("a.test");
    let (head, body) = client.ask(&host, "/page?q=1");
    check(&head, 200, &["crawl-status: ACCEPTED\r\n", "via: 1.1 "]);
    assert!(!head.contains("FORGED"), "{head}");
    assert!(!head.to_lowercase().contains("alt-svc"), "{head}");
    assert_eq!(body, "a page");
    check(
        &client.ask(&host, "/private/x").0,
        451,
        &["crawl-rule: private\r\n"],
    );
    let (head, body) = client.ask(&host, "/film");
    check(&head, 451, &["crawl-rule: no-video\r\n"]);
    assert!(!body.contains("movie"), "{body}");
    assert!(client.ask(&host, "/large").1 == large);
    check(&client.ask(&host, "/page").0, 200, &[]);
    let asked: Vec<String> = whole
        .origin
        .connection_logs()
        .iter()
        .flat_map(|c| c.heads.clone())
        .collect();
    let asked: Vec<&str> = asked.iter().map(|head| path_of(head)).collect();
    assert_eq!(asked, ["/page?q=1", "/film", "/large", "/page"]);
    let heads = whole.origin.connection_logs().remove(0).heads;
    assert!(
        heads[0].contains(&format!("\r\nhost: {host}\r\n")),
        "{}",
        heads[0]
    );
    assert_eq!(
        whole
            .gate
            .counter("crawlgate_tunnels_total{verdict=\"intercept\"}"),
        1
    );
    for side in ["client", "origin"] {
        let count = format!("crawlgate_tls_handshake_seconds_count{{side=\"{side}\"}}");
        // The refused film has closed the connection to the origin.
        assert_eq!(
            whole.gate.counter(&count),
            if side == "client" { 1 } else { 2 }
        );
    }
    wait_until("tls_ms is told", || {
        whole
            .gate
            .decision_log()
            .lines()
            .any(|line| !line.contains("\"tls_ms\":null"))
    });
}

/// A segment that waits for its successor is sent after 200 ms; no handshake may wait for that.
#[test]
fn no_handshake_waits_for_a_delayed_segment() {
    use rustls::version::{TLS12, TLS13};
    for (client, origin) in [
        (&TLS13, &TLS13),
        (&TLS13, &TLS12),
        (&TLS12, &TLS13),
        (&TLS12, &TLS12),
    ] {
        let once = |_: &str| {
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok".to_owned()
        };
        let whole = Whole::start_by(&[origin], move |connection, tls| {
            connection.serve_tls(tls, &once)
        });
        let config = trusting_by(&whole.gate, &[client]);
        let authority = whole.host("a.test");
        let host = whole.host("a.test");
        let fastest = (0..5).map(|_| {
            let began = Instant::now();
            let mut inside =
                Inside::try_open(whole.gate.proxy, &authority, "a.test", &config).unwrap();
            check(&inside.ask(&host, "/").0, 200, &[]);
            began.elapsed()
        });
        let fastest = fastest.min().unwrap();
        assert!(
            fastest < Duration::from_millis(150),
            "{client:?} to {origin:?}: {fastest:?}"
        );
    }
}

#[test]
fn bodies_go_up_whole() {
    let whole = Whole::start(|connection, tls| {
        connection.peek_client_hello();
        let Some(mut stream) = connection.accept_tls(tls) else {
            return;
        };
        while let Some(request) = connection.read_request_from(&mut stream) {
            let body = request.body;
            let length = body.len();
            let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
            stream
                .write_all(text_response(&format!("{length} {sum}")).as_bytes())
                .unwrap();
            stream.flush().unwrap();
        }
    });
    let host = whole.host("a.test");
    let mut client = whole.open("a.test");
    for length in [0, 1, 70_000, 1 << 20] {
        let body: String = "ab".repeat(length / 2) + &"c".repeat(length % 2);
        client.send(format!(
            "PUT /up HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        let sum: u64 = body.bytes().map(u64::from).sum();
        assert_eq!(client.answer().1, format!("{length} {sum}"));
    }
}

/// A close_notify would end a body without a length, and make a body with a length look complete.
#[test]
fn an_origin_that_breaks_off_is_seen_inside_tls() {
    let whole = Whole::start(|connection, tls| {
        connection.peek_client_hello();
        let Some(mut stream) = connection.accept_tls(tls) else {
            return;
        };
        let Some(request) = connection.read_request_from(&mut stream) else {
            return;
        };
        let length = if request.path() == "/length" {
            "Content-Length: 100\r\n"
        } else {
            ""
        };
        let text = format!("HTTP/1.1 200 OK\r\n{length}Content-Type: text/plain\r\n\r\nhalf of it");
        stream.write_all(text.as_bytes()).unwrap();
        stream.flush().unwrap();
        // No close_notify: an attacker who cuts the connection cannot send one.
    });
    for path in ["/length", "/to-the-end"] {
        let mut client = whole.open("a.test");
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n",
            whole.host("a.test")
        ));
        let mut got = Vec::new();
        let error = client.0.read_to_end(&mut got).unwrap_err();
        assert!(
            matches!(
                error.kind(),
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
            ),
            "{path}: {error}"
        );
    }
}

#[test]
fn a_client_that_leaves_while_it_is_held_inside_tls_frees_its_place() {
    let whole = Whole::answering(|_| text_response("a page"));
    let host = whole.host("a.test");
    let mut first = whole.open("a.test");
    check(&first.ask(&host, "/slow/1").0, 200, &[]);
    let mut held = whole.open("a.test");
    held.send(format!("GET /slow/2 HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    wait_until("it is held", || {
        whole.gate.counter("crawlgate_held_requests") == 1
    });
    drop(held);
    wait_until("its place is free", || {
        whole.gate.counter("crawlgate_held_requests") == 0
    });
    assert_eq!(whole.origin.requests().len(), 1);
}

#[test]
fn robots_hold_inside_tls() {
    let whole = Whole::answering(|head| match path_of(head) {
        "/robots.txt" => text_response("User-agent: *\nDisallow: /no\n"),
        _ => text_response("a page"),
    });
    let host = whole.host("b.test");
    let mut client = whole.open("b.test");
    check(
        &client.ask(&host, "/no/x").0,
        451,
        &["crawl-reason: robots_txt\r\n"],
    );
    check(
        &client.ask(&host, "/yes").0,
        200,
        &["crawl-status: ACCEPTED\r\n"],
    );
    assert_eq!(
        client.ask(&host, "/robots.txt").1,
        "User-agent: *\nDisallow: /no\n"
    );
    let heads: Vec<String> = whole
        .origin
        .connection_logs()
        .iter()
        .flat_map(|c| c.heads.clone())
        .collect();
    assert_eq!(
        heads.iter().map(|head| path_of(head)).collect::<Vec<_>>(),
        ["/robots.txt", "/yes"]
    );
}
