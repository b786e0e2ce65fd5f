//! Intercepted tunnels: responses inside TLS to a client that trusts the authority, and the end of the other tunnels.
//!
//! Fetches from origins over TLS have their own tests; here no origin is contacted, except over HTTP in the
//! clear.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::client::{Resumption, danger};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, RootCertStore,
    SignatureScheme,
};

use crate::support::proxy::TestProxy;

use super::wire::{config, text_origin};
use crate::support::client::RawClient;
use crate::support::wait::wait_until;

const POLICY: &str = "
policy: 1
name: inside
options:
  disposition: allow
  robots: { obey: false }
  politeness: { delay: 0s, concurrency: 100 }
rules:
  - { id: refused-host, forbid: { host: refused.test } }
  - { id: private, forbid: { under: /private } }
  - { id: half, when: { host: half.test }, set: { tls: tunnel } }
  - { id: blind, when: { host: b.test }, set: { tls: tunnel } }
  - { id: blind-no, forbid: { host: b.test } }
  - { id: no-tls, about: nothing here is for crawlers, when: { host: localtest.test }, set: { tls: reject } }
  - { id: never, forbid: { host: a.test, under: /never } }
";

fn gate_with(tls: &str, more: &str) -> TestProxy {
    let files = "ca: { cert: ca.pem, key: ca.key }, bundle: bundle.pem";
    let more = format!("tls: {{ intercept: true, {files}{tls} }}\n{more}");
    TestProxy::start(&config("connect_ports: [1-65535]", &more), POLICY)
}

fn gate() -> TestProxy {
    gate_with("", "")
}

/// A client's configuration that trusts the authority of the proxy.
pub(crate) fn trusting(gate: &TestProxy) -> Arc<ClientConfig> {
    trusting_by(gate, rustls::DEFAULT_VERSIONS)
}

/// That with these versions of TLS only.
pub(crate) fn trusting_by(
    gate: &TestProxy,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let pem = std::fs::read(gate.file("ca.pem")).unwrap();
    roots
        .add(CertificateDer::from_pem_slice(&pem).unwrap())
        .unwrap();
    Arc::new(
        speaking(versions)
            .with_root_certificates(roots)
            .with_no_client_auth(),
    )
}

pub(crate) fn builder() -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    speaking(rustls::DEFAULT_VERSIONS)
}

fn speaking(
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
}

/// TLS inside a tunnel.
pub(crate) struct Inside(pub(crate) rustls::StreamOwned<ClientConnection, TcpStream>);

impl Inside {
    /// Opens a tunnel and runs the TLS handshake in it, with this server name.
    pub(crate) fn try_open(
        proxy: SocketAddr,
        authority: &str,
        name: &str,
        config: &Arc<ClientConfig>,
    ) -> Result<Self, std::io::Error> {
        let RawClient { socket } = RawClient::tunnel_to(proxy, authority);
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self(stream))
    }

    pub(crate) fn open(proxy: SocketAddr, host: &str, config: &Arc<ClientConfig>) -> Self {
        Self::try_open(proxy, &format!("{host}:443"), host, config).unwrap()
    }

    pub(crate) fn send(&mut self, text: impl AsRef<[u8]>) {
        self.0.write_all(text.as_ref()).unwrap();
        self.0.flush().unwrap();
    }

    /// One response: its head, and its body by `Content-Length`.
    pub(crate) fn answer(&mut self) -> (String, String) {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            self.0.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        self.0.read_exact(&mut body).unwrap();
        (head, String::from_utf8(body).unwrap())
    }

    pub(crate) fn ask(&mut self, host: &str, path: &str) -> (String, String) {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        self.answer()
    }

    /// Asserts that the connection ends in order, by close_notify.
    pub(crate) fn ended(&mut self) {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).unwrap();
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }
}

#[track_caller]
pub(crate) fn check(answer: &str, status: u16, fields: &[&str]) {
    assert!(
        answer.starts_with(&format!("HTTP/1.1 {status} ")),
        "{status}: {answer}"
    );
    for field in fields {
        assert!(
            answer.contains(&format!("\r\n{field}")),
            "{field}: {answer}"
        );
    }
}

#[test]
fn each_request_inside_tls_is_evaluated_separately() {
    let gate = gate();
    let config = trusting(&gate);
    let mut client = Inside::open(gate.proxy, "a.test", &config);
    assert_eq!(client.0.conn.alpn_protocol(), None);
    for path in ["/private/x", "/private/", "/never?x"] {
        let (head, body) = client.ask("a.test", path);
        let rule = if path.starts_with("/private") {
            "private"
        } else {
            "never"
        };
        check(
            &head,
            451,
            &[
                &format!("crawl-rule: {rule}\r\n"),
                "crawl-policy: inside@",
                "crawl-reason: rule\r\n",
            ],
        );
        assert!(body.contains(&format!("\"rule\":\"{rule}\"")), "{body}");
    }
    // Two pipelined requests.
    let two = "GET /private/1 HTTP/1.1\r\nHost: a.test:443\r\n\r\nHEAD /private/2 HTTP/1.1\r\nHost: A.TEST\r\n\r\n";
    client.send(two);
    check(&client.answer().0, 451, &["crawl-rule: private\r\n"]);
    // The rest stays unread: the response to HEAD has the length of the body, and no body.
    let mut head = [0; 12];
    client.0.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 451");
    drop(client);
    assert_eq!(
        gate.counter("crawlgate_tunnels_total{verdict=\"intercept\"}"),
        1
    );
    assert_eq!(
        gate.counter("crawlgate_sni_checks_total{category=\"match\"}"),
        1
    );
    assert_eq!(gate.counter("crawlgate_leaf_certificates_total"), 1);
    // The CONNECT is not a request: five requests were evaluated.
    let evaluation = "crawlgate_decisions_total{crawler=\"anonymous\",reason=\"rule\",stage=\"request\",verdict=\"reject\"}";
    wait_until("five decisions", || gate.counter(evaluation) == 5);
    wait_until("five lines", || {
        gate.decision_log().matches("\"host\":\"a.test\"").count() == 5
    });
    assert!(
        !gate.decision_log().contains("CONNECT"),
        "{}",
        gate.decision_log()
    );
}

#[test]
fn the_names_of_connect_hello_and_host_must_agree() {
    let gate = gate();
    let config = trusting(&gate);
    // Host, against CONNECT and ClientHello.
    let mut client = Inside::open(gate.proxy, "a.test", &config);
    for (text, status, word) in [
        (
            "GET / HTTP/1.1\r\nHost: b.test\r\n\r\n",
            421,
            "host_mismatch",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a.test:80\r\n\r\n",
            421,
            "host_mismatch",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a.test.b.test\r\n\r\n",
            421,
            "host_mismatch",
        ),
        (
            "GET https://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
            421,
            "host_mismatch",
        ),
        (
            "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
            403,
            "scheme_denied",
        ),
        ("GET / HTTP/1.1\r\n\r\n", 400, "bad_request"),
        (
            "TRACE / HTTP/1.1\r\nHost: a.test\r\n\r\n",
            405,
            "method_denied",
        ),
        (
            "GET https://a.test/private/ HTTP/1.1\r\nHost: b.test\r\n\r\n",
            451,
            "rule",
        ),
        (
            "GET /private/ HTTP/1.1\r\nHost: a.test:443\r\n\r\n",
            451,
            "rule",
        ),
        (
            "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n",
            405,
            "method_denied",
        ),
    ] {
        client.send(text);
        check(
            &client.answer().0,
            status,
            &[&format!("crawl-reason: {word}\r\n")],
        );
    }
    client.ended();
    // The ClientHello against the CONNECT: the certificate is for the host of the CONNECT, whatever the server name.
    let open = Inside::try_open(gate.proxy, "a.test:443", "b.test", &config)
        .err()
        .unwrap();
    assert!(open.to_string().contains("not valid for name"), "{open}");
    let mut client = Inside::try_open(gate.proxy, "a.test:443", "b.test", &credulous()).unwrap();
    let (head, _) = client.ask("b.test", "/");
    check(
        &head,
        421,
        &["crawl-reason: host_mismatch\r\n", "connection: close\r\n"],
    );
    client.ended();
    let mut client = Inside::try_open(gate.proxy, "a.test:443", "b.test", &credulous()).unwrap();
    let (head, _) = client.ask("a.test", "/");
    check(
        &head,
        421,
        &["crawl-reason: host_mismatch\r\n", "connection: close\r\n"],
    );
    wait_until("they are counted", || {
        gate.counter("crawlgate_sni_checks_total{category=\"mismatch\"}") == 3
    });
}

#[test]
fn an_address_has_a_certificate_of_its_own_and_no_tickets() {
    let gate = gate();
    let config = trusting(&gate);
    for authority in ["127.0.0.1:443", "[::1]:443"] {
        let name = authority
            .strip_suffix(":443")
            .unwrap()
            .trim_matches(['[', ']']);
        for _ in 0..2 {
            let mut client = Inside::try_open(gate.proxy, authority, name, &config).unwrap();
            assert_eq!(
                client.0.conn.handshake_kind(),
                Some(HandshakeKind::Full),
                "{authority}"
            );
            check(
                &client.ask(authority, "/private/").0,
                451,
                &["crawl-rule: private\r\n"],
            );
        }
    }
    assert_eq!(
        gate.counter("crawlgate_sni_checks_total{category=\"none\"}"),
        4
    );
}

#[test]
fn sessions_are_resumed_for_the_same_host_alone() {
    let gate = gate();
    let mut config = ClientConfig::clone(&trusting(&gate));
    config.resumption = Resumption::in_memory_sessions(256);
    let config = Arc::new(config);
    fn kind(gate: &TestProxy, config: &std::sync::Arc<ClientConfig>, host: &str) -> HandshakeKind {
        let mut client = Inside::open(gate.proxy, host, config);
        check(
            &client.ask(host, "/private/").0,
            451,
            &["crawl-rule: private\r\n"],
        );
        client.0.conn.handshake_kind().unwrap()
    }
    assert_eq!(kind(&gate, &config, "a.test"), HandshakeKind::Full);
    assert_eq!(kind(&gate, &config, "a.test"), HandshakeKind::Resumed);
    assert_eq!(
        kind(&gate, &config, "refused.test.a.test"),
        HandshakeKind::Full
    );
    assert_eq!(kind(&gate, &config, "a.test"), HandshakeKind::Resumed);
}

#[test]
fn a_refused_tunnel_is_answered_inside_tls() {
    let gate = gate();
    let config = trusting(&gate);
    for (host, status, fields) in [
        ("refused.test", 451, &["crawl-rule: refused-host\r\n"][..]),
        (
            "b.test",
            451,
            &["crawl-rule: blind-no\r\n", "connection: close\r\n"],
        ),
        (
            "localtest.test",
            451,
            &["crawl-rule: no-tls\r\n", "connection: close\r\n"],
        ),
        // half.test is tunnelled and partly refused: the proxy could not see which part.
        (
            "half.test",
            451,
            &["crawl-reason: undecided\r\n", "connection: close\r\n"],
        ),
    ] {
        let mut client = Inside::open(gate.proxy, host, &config);
        let (head, body) = client.ask(host, "/some/page");
        check(&head, status, fields);
        check(
            &head,
            status,
            &[
                "crawl-policy: inside@",
                "crawl-status: REJECTED_FILTER",
                "proxy-status: ",
            ],
        );
        assert!(body.contains("urn:crawlgate:decision:"), "{body}");
    }
    let refused =
        "crawlgate_rule_decided_total{mode=\"enforce\",rule=\"blind-no\",verdict=\"reject\"}";
    wait_until("the rule is counted", || gate.counter(refused) == 1);
    // Without interception, by the status line of the response to CONNECT.
    let gate = gate_with(", intercept_to_reject: false", "");
    let mut client = RawClient::connect(gate.proxy);
    client.send("CONNECT b.test:443 HTTP/1.1\r\n\r\n");
    assert!(
        client
            .read_rest()
            .starts_with("HTTP/1.1 451 Policy-451 rule=blind-no id=")
    );
}

/// The answer to `/robots.txt` depends on the intent, as in a request without a tunnel; what is refused in part, or for
/// another cause than the policy, keeps the answer of the tunnel.
#[test]
fn robots_txt_inside_a_refused_tunnel_is_that_of_a_refused_host() {
    for (intent, status, fields, text) in [
        (
            "deny",
            200,
            &["cache-control: no-store\r\n"][..],
            "Disallow: /\n",
        ),
        (
            "gone",
            200,
            &["cache-control: no-store\r\n"],
            "Disallow: /\n",
        ),
        ("keep", 200, &["cache-control: no-store\r\n"], "Disallow:\n"),
        ("later", 503, &["retry-after: "], "urn:crawlgate:decision:"),
    ] {
        let rule = format!("b.test }}, reject: {intent}, reject_status: 404 }}\n  - {{ id: no-tls");
        // A host of which different rules refuse different URLs is kept.
        let policy = POLICY
            .replace("b.test } }\n  - { id: no-tls", &rule)
            .replace("  - { id: private, forbid: { under: /private } }\n", "");
        let files = "ca: { cert: ca.pem, key: ca.key }, bundle: bundle.pem";
        let more = format!("tls: {{ intercept: true, {files} }}\n");
        let gate = TestProxy::start(&config("connect_ports: [1-65535]", &more), &policy);
        let config = trusting(&gate);
        let mut client = Inside::open(gate.proxy, "b.test", &config);
        let (head, body) = client.ask("b.test", "/robots.txt");
        check(
            &head,
            status,
            &["crawl-rule: blind-no\r\n", "connection: close\r\n"],
        );
        check(&head, status, fields);
        assert!(
            body.ends_with(text) || body.contains("urn:") && intent == "later",
            "{intent}: {body}"
        );
        let mut client = Inside::open(gate.proxy, "b.test", &config);
        check(
            &client.ask("b.test", "/page").0,
            404,
            &["crawl-rule: blind-no\r\n"],
        );
    }
    let gate = gate();
    let mut client = Inside::open(gate.proxy, "half.test", &trusting(&gate));
    let (head, _) = client.ask("half.test", "/robots.txt");
    check(&head, 451, &["crawl-reason: undecided\r\n"]);
}

/// The tunnel is refused as a whole, for now. Its URLs are lost, but the policy may keep nothing of some of them.
#[test]
fn a_url_in_a_refused_tunnel_is_kept_as_its_own_rules_require() {
    let policy = POLICY.replace(
        "b.test } }\n  - { id: no-tls",
        "b.test }, reject: later }\n  - { id: no-tls",
    ) + "  - { id: secret, when: { under: /secret }, set: { record: none } }\n";
    let files = "ca: { cert: ca.pem, key: ca.key }, bundle: bundle.pem";
    let more = format!("tls: {{ intercept: true, {files} }}\n");
    let gate = TestProxy::start(&config("connect_ports: [1-65535]", &more), &policy);
    for path in ["/secret/page", "/page"] {
        let mut client = Inside::open(gate.proxy, "b.test", &trusting(&gate));
        check(
            &client.ask("b.test", path).0,
            503,
            &["crawl-rule: blind-no\r\n"],
        );
    }
    let log = gate.decisions(2);
    assert!(
        log[0]["url"].is_null() && log[0]["host"].is_null(),
        "{log:?}"
    );
    assert_eq!(log[1]["url"], "https://b.test/page", "{log:?}");
    let id = log[0]["decision"].as_str().unwrap();
    let kept = gate.admin(&format!("GET /api/v1/decisions/{id}")).body;
    assert!(
        kept.contains("\"loss\":\"later\"") && !kept.contains("secret"),
        "{kept}"
    );
}

/// A client that pins certificates ends a tunnel that is intercepted for the refusal.
#[test]
fn a_refused_tunnel_without_requests_is_recorded_as_refused() {
    let gate = gate();
    let strict = Arc::new(
        builder()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth(),
    );
    let refused =
        "crawlgate_rule_decided_total{mode=\"enforce\",rule=\"no-tls\",verdict=\"reject\"}";
    assert!(Inside::try_open(gate.proxy, "localtest.test:443", "localtest.test", &strict).is_err());
    wait_until("it is counted", || gate.counter(refused) == 1);
    drop(Inside::open(gate.proxy, "localtest.test", &trusting(&gate)));
    wait_until("it is counted too", || gate.counter(refused) == 2);
    let mut client = Inside::open(gate.proxy, "localtest.test", &trusting(&gate));
    check(
        &client.ask("localtest.test", "/").0,
        451,
        &["crawl-rule: no-tls\r\n"],
    );
    client.ended();
    wait_until("and counted once", || {
        gate.decision_log().matches("\"rule\":\"no-tls\"").count() == 3
    });
    assert_eq!(gate.counter(refused), 3);
    assert_eq!(
        gate.decision_log()
            .matches("\"verdict\":\"reject\"")
            .count(),
        3,
        "{}",
        gate.decision_log()
    );
}

#[test]
fn a_host_that_no_certificate_can_name_is_refused_at_its_connect() {
    let gate = gate();
    for host in ["-a.test", "foo-.test"] {
        let mut client = RawClient::connect(gate.proxy);
        client.send(format!("CONNECT {host}:443 HTTP/1.1\r\n\r\n"));
        let answer = client.read_rest();
        check(&answer, 400, &["crawl-reason: bad_request\r\n"]);
        assert!(answer.contains("not a DNS name"), "{answer}");
    }
}

/// undici, linkinator and ureq send `CONNECT host:80` and speak HTTP in it.
#[test]
fn plain_http_is_evaluated_by_url_on_any_port() {
    let origin = text_origin();
    let gate = gate();
    let mut client = RawClient::tunnel(gate.proxy, origin.port);
    fn ask(origin: &crate::support::origin::ScriptedOrigin, path: &str) -> String {
        format!(
            "GET {path} HTTP/1.1\r\nHost: a.test:{}\r\n\r\n",
            origin.port
        )
    }
    client.send(ask(&origin, "/private/x"));
    check(
        &client.read_response().head,
        451,
        &["crawl-rule: private\r\n"],
    );
    client.send(ask(&origin, "/page"));
    let page = client.read_response();
    check(&page.head, 200, &["crawl-status: ACCEPTED\r\n"]);
    assert_eq!(page.body, "ok");
    assert_eq!(gate.counter("crawlgate_leaf_certificates_total"), 0);
    let mut client = RawClient::tunnel(gate.proxy, 443);
    client.send("GET /private/x HTTP/1.1\r\nHost: a.test:443\r\n\r\n");
    check(
        &client.read_response().head,
        451,
        &["crawl-rule: private\r\n"],
    );
}

#[test]
fn other_protocols_are_closed() {
    let gate = gate_with("", "timeouts: { tls: 300ms }");
    for (bytes, word) in [
        (&b"\x00\x01\x02"[..], "not_http"),
        (
            b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00",
            "client_hello_malformed",
        ),
        (b"\x16\x03\x01\x02", "client_hello_timeout"),
        (b"", "tunnel_silent"),
    ] {
        let mut client = RawClient::tunnel(gate.proxy, 443);
        client.send(bytes);
        assert_eq!(client.read_rest(), "", "{word}");
        wait_until(word, || gate.decision_log().contains(word));
    }
    assert_eq!(
        gate.counter("crawlgate_foreign_bytes_total{reason=\"unknown\"}"),
        1
    );
}

/// The series of failed handshakes of anonymous clients with this cause.
fn handshake_failures(gate: &TestProxy, cause: &str) -> u64 {
    gate.counter(&format!(
        "crawlgate_client_tls_failures_total{{cause=\"{cause}\",crawler=\"anonymous\"}}"
    ))
}

/// A client in a tunnel that has sent its ClientHello and received the beginning of the proxy's answer.
fn begin_handshake(gate: &TestProxy) -> RawClient {
    let config = trusting(gate);
    let name = ServerName::try_from("a.test").unwrap();
    let mut connection = ClientConnection::new(config, name).unwrap();
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    let mut client = RawClient::tunnel(gate.proxy, 443);
    client.send(hello);
    client.read_bytes(5);
    client
}

/// A client that closes without an alert when it has the certificate, as Node and Java do if they do not trust it.
fn leave_in_handshake(gate: &TestProxy) {
    drop(begin_handshake(gate));
}

#[test]
fn a_client_that_does_not_trust_the_authority_is_counted_and_named() {
    let gate = gate();
    let strict = Arc::new(
        builder()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth(),
    );
    for _ in 0..2 {
        let error = Inside::try_open(gate.proxy, "a.test:443", "a.test", &strict)
            .err()
            .unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    }
    leave_in_handshake(&gate);
    wait_until("three failures", || {
        handshake_failures(&gate, "distrust") == 3
    });
    wait_until("named in the log", || {
        gate.decision_log().matches("client_tls_").count() == 3
    });
    assert!(
        gate.decision_log()
            .contains("\"error\":\"client_tls_unknown_ca\""),
        "{}",
        gate.decision_log()
    );
    // The warning is logged once.
    wait_until("told", || gate.stderr().contains("does it trust the CA?"));
    assert_eq!(
        gate.stderr().matches("does it trust the CA?").count(),
        1,
        "{}",
        gate.stderr()
    );
}

/// got-scraping opens a connection for each host to learn its ALPN protocol, and ends it before the proxy has its
/// Finished.
#[test]
fn a_client_that_trusts_the_authority_may_leave_in_a_handshake() {
    let gate = gate();
    let config = trusting(&gate);
    let mut client = Inside::open(gate.proxy, "a.test", &config);
    check(&client.ask("a.test", "/private/").0, 451, &[]);
    drop(client);
    for _ in 0..3 {
        leave_in_handshake(&gate);
    }
    wait_until("three probes", || handshake_failures(&gate, "left") == 3);
    assert_eq!(handshake_failures(&gate, "distrust"), 0);
    // The next request is logged after them.
    let mut client = Inside::open(gate.proxy, "a.test", &config);
    client.ask("a.test", "/private/last");
    wait_until("the last request is logged", || {
        gate.decision_log().matches("\"rule\":\"private\"").count() == 2
    });
    assert!(
        !gate.decision_log().contains("client_left"),
        "{}",
        gate.decision_log()
    );
    assert!(!gate.stderr().contains("does it trust the CA?"));
    // An alert counts even so.
    let strict = Arc::new(
        builder()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth(),
    );
    assert!(Inside::try_open(gate.proxy, "a.test:443", "a.test", &strict).is_err());
    wait_until("the alert is counted", || {
        handshake_failures(&gate, "distrust") == 1
    });
    wait_until("told", || gate.stderr().contains("does it trust the CA?"));
}

#[test]
fn handshakes_that_fail_for_other_causes_are_not_distrust() {
    let gate = gate_with("", "timeouts: { tls: 300ms }");
    // Nothing follows the ClientHello.
    begin_handshake(&gate).read_rest();
    wait_until("a timeout", || handshake_failures(&gate, "timeout") == 1);
    // An alert (handshake_failure) that is not about the certificate.
    let mut client = begin_handshake(&gate);
    client.send(b"\x15\x03\x03\x00\x02\x02\x28");
    client.read_rest();
    wait_until("an alert", || handshake_failures(&gate, "alert") == 1);
    // Bytes that are not TLS.
    let mut client = begin_handshake(&gate);
    client.send("GET / HTTP/1.1\r\n\r\n");
    client.read_rest();
    wait_until("no TLS", || handshake_failures(&gate, "protocol") == 1);
    assert_eq!(handshake_failures(&gate, "distrust"), 0);
    assert!(!gate.stderr().contains("does it trust the CA?"));
}

#[test]
fn silence_inside_tls_ends_in_order() {
    let gate = gate_with("", "timeouts: { idle: 200ms, head: 300ms }");
    let config = trusting(&gate);
    let mut client = Inside::open(gate.proxy, "a.test", &config);
    check(&client.ask("a.test", "/private/").0, 451, &[]);
    client.ended();
    // An unfinished head has its response.
    let mut client = Inside::open(gate.proxy, "a.test", &config);
    client.send("GET /private/ HTT");
    check(
        &client.answer().0,
        408,
        &["crawl-reason: request_timeout\r\n", "connection: close\r\n"],
    );
    client.ended();
}

#[test]
fn refused_heads_inside_tls_are_answered_in_full() {
    let gate = gate();
    let config = trusting(&gate);
    for (head, status, word) in [
        ("GET / HTTP/1.1\nHost: a.test\n\n".to_owned(), 400, "bad_request"),
        (
            "GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
                .into(),
            400,
            "bad_request",
        ),
        (format!("GET /{} HTTP/1.1\r\nHost: a.test\r\n\r\n", "x".repeat(9000)), 414, "request_too_large"),
        (
            format!("GET / HTTP/1.1\r\nHost: a.test\r\nX: {}\r\n\r\n", "x".repeat(40_000)),
            431,
            "headers_too_large",
        ),
    ] {
        let mut client = Inside::open(gate.proxy, "a.test", &config);
        client.send(&head);
        check(&client.answer().0, status, &[&format!("crawl-reason: {word}\r\n"), "connection: close\r\n"]);
        client.ended();
    }
}

#[test]
fn a_body_inside_tls_is_read_and_dropped_with_its_refusal() {
    let gate = gate();
    let mut client = Inside::open(gate.proxy, "a.test", &trusting(&gate));
    for _ in 0..3 {
        let body = "x".repeat(30_000);
        client.send(format!(
            "POST /private/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 30000\r\n\r\n{body}"
        ));
        check(&client.answer().0, 451, &["crawl-rule: private\r\n"]);
    }
    client.send(
        "POST /private/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    );
    check(&client.answer().0, 451, &["connection: close\r\n"]);
    client.ended();
}

#[test]
fn a_large_body_inside_tls_ends_the_connection_and_the_refusal_says_so() {
    let gate = gate();
    let mut inside = Inside::open(gate.proxy, "a.test", &trusting(&gate));
    inside.send("POST /private/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 80000\r\n\r\nhello");
    let (head, _) = inside.answer();
    check(&head, 451, &["crawl-rule: private", "connection: close"]);
    inside.ended();
}

#[test]
fn without_an_authority_tunnels_to_intercept_are_refused() {
    let policy = "policy: 1\nname: p\noptions: { disposition: allow, robots: { obey: false } }\nrules:\n  \
                  - { id: see, when: { host: a.test }, set: { tls: intercept } }\n";
    let gate = TestProxy::start(&config("", ""), policy);
    let mut client = RawClient::connect(gate.proxy);
    client.send("CONNECT a.test:443 HTTP/1.1\r\n\r\n");
    let answer = client.read_rest();
    check(&answer, 451, &["crawl-reason: undecided\r\n"]);
    assert!(answer.contains("no certificate authority"), "{answer}");
}

#[test]
fn a_drain_ends_handshakes_and_idle_sessions() {
    let mut gate = gate_with("", "timeouts: { drain: 5s }");
    let config = trusting(&gate);
    let mut idle = Inside::open(gate.proxy, "a.test", &config);
    check(&idle.ask("a.test", "/private/").0, 451, &[]);
    let mut silent = RawClient::tunnel(gate.proxy, 443);
    gate.signal("TERM");
    idle.ended();
    assert_eq!(gate.wait_for_exit(), Some(0));
    assert_eq!(silent.read_rest(), "");
}

/// A configuration that accepts every certificate.
fn credulous() -> Arc<ClientConfig> {
    Arc::new(
        builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Credulous))
            .with_no_client_auth(),
    )
}

#[derive(Debug)]
struct Credulous;

impl danger::ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<danger::ServerCertVerified, rustls::Error> {
        Ok(danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<danger::HandshakeSignatureValid, rustls::Error> {
        Ok(danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<danger::HandshakeSignatureValid, rustls::Error> {
        Ok(danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
