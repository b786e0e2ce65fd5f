//! Parent proxies, through a running proxy: the forms of requests, credentials, failures, fail-over, and what still
//! applies to names and addresses.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::origin_tls::certs::Authority;
use crate::support::client::{RawClient, Response, exchange, get_with};
use crate::support::command::crawlgate;
use crate::support::http2_origin::{Http2Origin, Http2Reply};
use crate::support::origin::{ScriptedOrigin, closed_port, response};
use crate::support::parent::{ParentKind, TestParent};
use crate::support::proxy::TestProxy;
use crate::support::wait::wait_until;

const SECRET: &str = "s3cret";

/// A proxy whose policy sends everything through the parent `up`, except what is below `/direct`.
struct ChainedProxy {
    gate: TestProxy,
    authority: Authority,
}

impl ChainedProxy {
    /// `proxies` are those of the parent, and `more` more of its settings.
    fn new(proxies: &str, more: &str) -> Self {
        Self::with(proxies, more, "", "")
    }

    fn with(proxies: &str, more: &str, config: &str, options: &str) -> Self {
        Self::with_authority(Authority::new(), proxies, more, config, options)
    }

    fn with_authority(
        authority: Authority,
        proxies: &str,
        more: &str,
        config: &str,
        options: &str,
    ) -> Self {
        let config = format!(
            "listen: 127.0.0.1:0
admin: {{ listen: 127.0.0.1:0 }}
policy: {{ path: policy.yaml, watch: false }}
logs: {{ decisions: log.json }}
tls: {{ intercept: false, roots: webpki, extra_roots: [ca.pem] }}
{config}
egress:
  ports: [1-65535]
  connect_ports: [1-65535]
  tls_ports: [1-65535]
  allow_loopback: true
  hosts: {{ direct.test: 127.0.0.1 }}
  parents: {{ up: {{ proxies: {proxies}{more} }} }}
"
        );
        let policy = format!(
            "policy: 1
name: parents
options: {{ disposition: allow, robots: {{ obey: false }}, politeness: {{ delay: 0s, concurrency: 100 }}, upstream: up, tunnel_undecided: allow{options} }}
rules:
  - {{ id: direct, when: {{ under: /direct }}, set: {{ upstream: none }} }}
"
        );
        let pem = authority.pem();
        let gate = TestProxy::start_with(&config, &policy, move |command| {
            let directory = command.get_current_dir().unwrap();
            std::fs::write(directory.join("ca.pem"), pem).unwrap();
            std::fs::write(directory.join("password"), format!("{SECRET}\n")).unwrap();
        });
        Self { gate, authority }
    }

    fn get(&self, url: &str) -> Response {
        self.get_with(url, "")
    }

    fn get_with(&self, url: &str, fields: &str) -> Response {
        get_with(self.gate.proxy, url, fields)
    }
}

fn http(parent: &TestParent) -> String {
    format!("'http://{}'", parent.address)
}

const CREDENTIALS: &str = ", user: crawl, password_file: password";

#[test]
fn an_http_proxy_gets_urls_in_absolute_form_and_connect() {
    let parent = TestParent::with(ParentKind::Http, Some(("crawl", SECRET)), None);
    let world = ChainedProxy::new(&http(&parent), CREDENTIALS);
    let origin = ScriptedOrigin::ok();
    let secure = Http2Origin::start(&world.authority.server(&["a.test"]), |_| {
        Http2Reply::text("two")
    });
    let url = origin.url("a.test", "/x?y=1");
    assert_eq!(world.get(&url).body, "ok");
    assert_eq!(world.get(&origin.url("a.test", "/")).body, "ok");
    assert_eq!(world.get(&secure.url("a.test", "/s")).body, "two");
    assert_eq!(
        parent.requests(),
        [
            format!("GET {url}"),
            format!("GET {}", origin.url("a.test", "/")),
            format!("CONNECT a.test:{}", secure.port),
        ]
    );
    assert_eq!(origin.paths(), ["/x?y=1", "/"]);
    for head in origin.heads() {
        assert!(
            head.contains(&format!("\r\nhost: a.test:{}\r\n", origin.port)),
            "{head}"
        );
    }
    let lines = world.gate.decisions(3);
    for (line, http) in lines.iter().zip([None, None, Some("2")]) {
        assert_eq!(line["parent"], "up", "{line}");
        assert_eq!(line["address"], "127.0.0.1", "{line}");
        assert_eq!(line["dns_ms"], serde_json::Value::Null, "{line}");
        assert_eq!(line["origin_http"].as_str(), http, "{line}");
    }
    assert_eq!(
        world
            .gate
            .metric("crawlgate_parent_requests_total{parent=\"up\"}"),
        3.0
    );
    let up = format!(
        "crawlgate_parent_up{{parent=\"up\",proxy=\"http://{}\"}}",
        parent.address
    );
    assert_eq!(world.gate.metric(&up), 1.0);
    let shown = format!(
        "{}{}",
        world.gate.stderr(),
        world.gate.admin("GET /api/v1/status").body
    );
    assert!(!shown.contains(SECRET));
}

#[test]
fn https_proxies_and_socks_proxies() {
    let authority = Authority::new();
    let tls = authority.server(&["127.0.0.1"]);
    let https = TestParent::with(ParentKind::Https(tls), Some(("crawl", SECRET)), None);
    let socks = TestParent::with(ParentKind::Socks, Some(("crawl", SECRET)), None);
    let origin = ScriptedOrigin::ok();
    let secure = Http2Origin::start(&authority.server(&["a.test"]), |_| Http2Reply::text("two"));
    let url = format!("'https://{}'", https.address);
    let world = ChainedProxy::with_authority(authority, &url, CREDENTIALS, "", "");
    assert_eq!(world.get(&origin.url("a.test", "/1")).body, "ok");
    assert_eq!(world.get(&secure.url("a.test", "/2")).body, "two");
    let connect = format!("CONNECT a.test:{}", secure.port);
    assert_eq!(
        https.requests(),
        [format!("GET {}", origin.url("a.test", "/1")), connect]
    );
    // The proxy's certificate is verified.
    let stranger = ChainedProxy::new(&url, CREDENTIALS);
    let refused = stranger.get(&origin.url("a.test", "/"));
    refused.check(
        502,
        &[
            "error=tls_protocol_error",
            "parent=up; the TLS handshake with the parent failed",
        ],
    );
    let world = ChainedProxy::new(&format!("'socks5h://{}'", socks.address), CREDENTIALS);
    assert_eq!(world.get(&origin.url("a.test", "/3")).body, "ok");
    assert_eq!(world.get(&origin.url("a.test", "/4")).body, "ok");
    assert_eq!(
        socks.requests(),
        [format!("SOCKS a.test:{}", origin.port)],
        "the connection is kept"
    );
    assert_eq!(origin.paths(), ["/1", "/3", "/4"]);
}

#[test]
fn tunnels_go_through_parents() {
    let authority = Authority::new();
    let tls = authority.server(&["127.0.0.1"]);
    let mut authority = Some(authority);
    for (scheme, kind) in [
        ("https", ParentKind::Https(tls)),
        ("http", ParentKind::Http),
        ("socks5", ParentKind::Socks),
    ] {
        let parent = TestParent::start(kind);
        let url = format!("'{scheme}://{}'", parent.address);
        let authority = authority.take().unwrap_or_else(Authority::new);
        check_tunnel(
            &ChainedProxy::with_authority(authority, &url, "", "", ""),
            scheme,
        );
    }
}

/// Opens a tunnel to an origin that sends back what it receives, and sends it a ClientHello.
fn check_tunnel(world: &ChainedProxy, scheme: &str) {
    let origin = ScriptedOrigin::echo();
    let mut client = RawClient::connect(world.gate.proxy);
    client.send(format!("CONNECT a.test:{} HTTP/1.1\r\n\r\n", origin.port));
    let head = client.read_head();
    assert!(head.starts_with("HTTP/1.1 200"), "{scheme}: {head}");
    let hello = client_hello("a.test");
    client.send(&hello);
    assert_eq!(client.read_bytes(hello.len()), hello, "{scheme}");
    client.send("more");
    assert_eq!(client.read_bytes(4), b"more", "{scheme}");
    client.half_close();
    assert_eq!(client.read_rest(), "", "{scheme}");
    let line = &world.gate.decisions(1)[0];
    assert_eq!(line["parent"], "up", "{scheme}: {line}");
}

/// The ClientHello of a client for this name.
fn client_hello(name: &'static str) -> Vec<u8> {
    let config = rustls::ClientConfig::builder_with_provider(
        rustls::crypto::aws_lc_rs::default_provider().into(),
    )
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_root_certificates(rustls::RootCertStore::empty())
    .with_no_client_auth();
    let mut connection =
        rustls::ClientConnection::new(config.into(), name.try_into().unwrap()).unwrap();
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    hello
}

#[test]
fn literals_and_special_names_never_reach_a_parent() {
    let parent = TestParent::start(ParentKind::Http);
    let world = ChainedProxy::new(&http(&parent), "");
    for (url, reason) in [
        ("http://10.0.0.1/", "ip_prohibited"),
        ("http://169.254.169.254/", "ip_prohibited"),
        ("http://[fd00::1]/", "ip_prohibited"),
        ("http://192.0.2.1/", "ip_prohibited"),
        ("http://intranet/", "upstream_dns"),
        ("http://db.internal/", "upstream_dns"),
        ("http://printer.local/", "upstream_dns"),
    ] {
        let answer = world.get(url);
        assert_eq!(answer.value("crawl-reason"), reason, "{url}: {answer}");
    }
    // The listeners of this proxy, by address.
    let own = world.get(&format!("http://{}/", world.gate.admin));
    assert_eq!(own.value("crawl-reason"), "ip_prohibited");
    let tunnel = exchange(world.gate.proxy, "CONNECT 10.0.0.1:443 HTTP/1.1\r\n\r\n");
    assert!(tunnel.contains("ip_prohibited"), "{tunnel}");
    assert_eq!(parent.requests(), [""; 0]);
}

#[test]
fn failures_of_a_parent_are_not_those_of_the_origin() {
    let refused = closed_port();
    let rows: [(Option<&'static str>, bool, u16, &str, &str); 7] = [
        (
            Some(
                "HTTP/1.1 407 x\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n",
            ),
            false,
            502,
            "proxy_configuration_error",
            "the parent rejects the credentials of this proxy",
        ),
        (
            Some(
                "HTTP/1.1 407 x\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n",
            ),
            true,
            502,
            "proxy_configuration_error",
            "the parent rejects the credentials of this proxy",
        ),
        (
            Some("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"),
            true,
            502,
            "connection_refused",
            "the parent refuses the destination",
        ),
        (
            Some("HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n"),
            true,
            502,
            "destination_unavailable",
            "the parent cannot connect to the host",
        ),
        (
            Some("HTTP/1.1 504 x\r\nContent-Length: 0\r\n\r\n"),
            true,
            504,
            "connection_timeout",
            "the parent got no connection to the host in time",
        ),
        (
            Some("nonsense\r\n\r\n"),
            true,
            502,
            "connection_terminated",
            "the parent closed the connection or did not answer as a proxy",
        ),
        (
            None,
            true,
            502,
            "connection_refused",
            "the parent refused the connection",
        ),
    ];
    for (answer, is_https, status, error, words) in rows {
        let parent = TestParent::with(ParentKind::Http, None, answer);
        let port = match answer {
            Some(_) => parent.address.port(),
            None => refused,
        };
        let world = ChainedProxy::new(&format!("'http://127.0.0.1:{port}'"), "");
        let scheme = if is_https { "https" } else { "http" };
        let response = world.get(&format!("{scheme}://a.test/"));
        let details = format!(
            "\"crawlgate\"; error={error}; details=\"upstream_connect; parent=up; {words}\""
        );
        assert_eq!(response.status, status, "{response}");
        assert_eq!(
            response.value("crawl-reason"),
            "upstream_connect",
            "{response}"
        );
        assert_eq!(response.value("proxy-status"), details, "{response}");
        assert!(
            response.values("proxy-authenticate").is_empty(),
            "{response}"
        );
        let line = &world.gate.decisions(1)[0];
        assert_eq!(
            (line["error"].as_str(), line["parent"].as_str()),
            (Some(error), Some("up")),
            "{line}"
        );
        let failures =
            format!("crawlgate_parent_failures_total{{error=\"{error}\",parent=\"up\"}}");
        assert_eq!(world.gate.metric(&failures), 1.0);
    }
    // A SOCKS proxy that reports that the origin has refused the connection.
    let parent = TestParent::start(ParentKind::Socks);
    let world = ChainedProxy::new(&format!("'socks5://{}'", parent.address), "");
    let response = world.get(&format!("http://a.test:{}/", closed_port()));
    response.check(
        502,
        &[
            "error=connection_refused",
            "parent=up; the host refused the connection of the parent",
        ],
    );
}

#[test]
fn another_proxy_takes_over_and_a_host_keeps_its_own() {
    let mut parents = [0, 1].map(|_| TestParent::start(ParentKind::Http));
    let proxies = format!("[{}, {}]", http(&parents[0]), http(&parents[1]));
    let world = ChainedProxy::new(&proxies, "");
    let origin = ScriptedOrigin::ok();
    let hosts: Vec<String> = (0..24).map(|number| format!("h{number}.test")).collect();
    let crawl = |round: &str| {
        for host in &hosts {
            let answer = world.get(&origin.url(host, round));
            assert_eq!(answer.body, "ok", "{round} {host}: {answer}");
        }
    };
    crawl("/1");
    crawl("/2");
    let of = |parent: &TestParent, round: &str| -> Vec<String> {
        let requests = parent.requests().into_iter();
        let hosts = requests.filter_map(|request| {
            request
                .strip_suffix(round)
                .map(|url| url.split(['/', ':']).nth(3).unwrap().to_owned())
        });
        hosts.collect()
    };
    let first = of(&parents[0], "/1");
    assert!(
        (1..24).contains(&first.len()),
        "both have hosts: {}",
        first.len()
    );
    assert_eq!(first, of(&parents[0], "/2"), "each host keeps its proxy");
    // One is killed: every page still arrives, through the other one.
    let address = parents[0].address;
    parents[0].kill();
    crawl("/3");
    assert_eq!(of(&parents[1], "/3").len(), hosts.len());
    let up = format!("crawlgate_parent_up{{parent=\"up\",proxy=\"http://{address}\"}}");
    assert_eq!(world.gate.metric(&up), 0.0);
    assert!(
        !world
            .gate
            .admin("GET /readyz")
            .body
            .contains("warn parents"),
        "one is enough"
    );
    // It is back: so are its hosts.
    parents[0] = TestParent::at(address, ParentKind::Http);
    world.gate.wait_for_metric(&up, 1.0);
    crawl("/4");
    assert_eq!(first, of(&parents[0], "/4"));
    // Both are gone.
    parents[0].kill();
    parents[1].kill();
    wait_until("both are known to be down", || {
        let answer = world.get(&origin.url(&hosts[0], "/5"));
        answer
            .value("proxy-status")
            .ends_with("every proxy of the parent is down\"")
    });
    let answer = world.get(&origin.url(&hosts[0], "/6"));
    assert_eq!(answer.value("retry-after"), "1", "{answer}");
    let ready = world.gate.admin("GET /readyz");
    ready.check(200, &["warn parents: every proxy is down of: up"]);
    // What goes another way is not affected.
    assert_eq!(world.get(&origin.url("direct.test", "/direct")).body, "ok");
}

#[test]
fn a_request_that_a_dead_proxy_has_taken_is_repeated() {
    // The first proxy closes each connection once it has read a request; the other one works.
    let broken = ScriptedOrigin::start(|connection| {
        connection.read_head();
    });
    let parent = TestParent::start(ParentKind::Http);
    let proxies = format!("['http://127.0.0.1:{}', {}]", broken.port, http(&parent));
    let world = ChainedProxy::new(&proxies, "");
    let names: Vec<String> = (0..8).map(|number| format!("h{number}.test")).collect();
    let certified: Vec<&str> = names.iter().map(String::as_str).collect();
    let secure = ScriptedOrigin::tls(world.authority.server(&certified), |_| {
        String::from_utf8(response(200, "", "secure")).unwrap()
    });
    // CONNECT: the other proxy is asked within the same request.
    for name in &names {
        let answer = world.get(&secure.https_url(name, "/"));
        assert_eq!(answer.body, "secure", "{answer}");
    }
    let before = broken.connections();
    assert!(before > 0);
    // A plain request: it is repeated through the other one, although the first still accepts connections.
    let plain = ScriptedOrigin::respond(|_| response(200, "", "plain"));
    for name in &names {
        let answer = world.get(&plain.url(name, "/"));
        assert_eq!(answer.body, "plain", "{answer}");
    }
    assert!(broken.connections() > before);
}

#[test]
fn robots_txt_is_fetched_the_same_way() {
    let parent = TestParent::start(ParentKind::Http);
    let world = ChainedProxy::with(&http(&parent), "", "", "");
    let origin = ScriptedOrigin::respond(|request| match request.path() {
        "/robots.txt" => response(200, "", "User-agent: *\nDisallow: /no\n"),
        _ => response(200, "", "page"),
    });
    let policy = std::fs::read_to_string(world.gate.file("policy.yaml")).unwrap();
    world
        .gate
        .write("policy.yaml", &policy.replace("obey: false", "obey: true"));
    assert_eq!(world.gate.admin("POST /api/v1/reload").status, 200);
    assert_eq!(world.get(&origin.url("a.test", "/yes")).body, "page");
    assert_eq!(
        world
            .get(&origin.url("a.test", "/no"))
            .value("crawl-reason"),
        "robots_txt"
    );
    let expected =
        ["/robots.txt", "/yes"].map(|path| format!("GET {}", origin.url("a.test", path)));
    assert_eq!(parent.requests(), expected);
}

#[test]
fn connections_are_used_for_one_way_only() {
    let parent = TestParent::start(ParentKind::Socks);
    let world = ChainedProxy::new(&format!("'socks5://{}'", parent.address), "");
    let origin = ScriptedOrigin::ok();
    for _ in 0..3 {
        assert_eq!(world.get(&origin.url("direct.test", "/direct")).body, "ok");
        assert_eq!(world.get(&origin.url("direct.test", "/through")).body, "ok");
    }
    let logs = origin.connection_logs();
    assert_eq!(logs.len(), 2);
    for log in logs {
        let paths: Vec<&str> = log
            .heads
            .iter()
            .map(|head| head.split(' ').nth(1).unwrap())
            .collect();
        assert!(
            paths == ["/direct"; 3] || paths == ["/through"; 3],
            "{paths:?}"
        );
    }
    assert_eq!(parent.requests().len(), 1);
}

#[test]
fn warcprox_meta_is_for_crawlers_that_may_use_it() {
    let meta = "Warcprox-Meta: {\"warc-prefix\":\"x\"}\r\n";
    let blocked = "HTTP/1.1 420 Reached limit\r\nWarcprox-Meta: {\"reached-limit\":{}}\r\nContent-Length: 5\r\n\r\nlimit";
    let crawlers = "crawlers: [{ name: brozzler, sources: [127.0.0.1], may: [warcprox] }]";
    let stranger = "crawlers: [{ name: other, sources: [127.0.0.1] }]";
    for (more, crawlers, is_passed) in [
        (", warcprox: true", crawlers, true),
        (", warcprox: true", stranger, false),
        ("", crawlers, false),
    ] {
        // An origin of the test is the proxy, which shows the head.
        let proxy = ScriptedOrigin::respond(move |_| blocked);
        let world = ChainedProxy::with(
            &format!("'http://127.0.0.1:{}'", proxy.port),
            more,
            crawlers,
            "",
        );
        let answer = world.get_with("http://a.test/", meta);
        assert_eq!((answer.status, &*answer.body), (420, "limit"));
        let head = &proxy.heads()[0];
        assert_eq!(
            head.contains("warcprox-meta: {\"warc-prefix\":\"x\"}"),
            is_passed,
            "{head}"
        );
        let expected: &[&str] = if is_passed {
            &["{\"reached-limit\":{}}"]
        } else {
            &[]
        };
        assert_eq!(answer.values("warcprox-meta"), expected, "{answer}");
        // Not to origins.
        let origin = ScriptedOrigin::respond(move |_| blocked);
        let answer = world.get_with(&origin.url("direct.test", "/direct"), meta);
        assert!(answer.values("warcprox-meta").is_empty(), "{answer}");
        assert!(!origin.heads()[0].contains("warcprox-meta"));
    }
}

#[test]
fn connections_come_from_the_bound_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, peers) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            sender
                .send(socket.peer_addr().unwrap().ip().to_string())
                .unwrap();
            let _ = socket.read(&mut [0; 4096]);
            let _ = socket
                .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let config = "listen: 127.0.0.1:0
admin: { listen: 127.0.0.1:0 }
policy: { path: policy.yaml }
crawlers: [{ name: one, sources: [127.0.0.1] }]
egress:
  ports: [1-65535]
  allow_loopback: true
  hosts: { a.test: 127.0.0.1, b.test: 127.0.0.1, c.test: 127.0.0.1, six.test: '::1' }
  bind:
    - { host: a.test, address: 127.0.0.8 }
    - { host: c.test, crawler: one, address: ['127.0.0.9', '::1'] }
    - { host: six.test, address: 127.0.0.8 }
";
    let policy = "{ policy: 1, name: bind, options: { disposition: allow, robots: { obey: false }, politeness: { delay: 0s } } }";
    let gate = TestProxy::start(config, policy);
    for (host, expected) in [
        ("a.test", "127.0.0.8"),
        ("b.test", "127.0.0.1"),
        ("c.test", "127.0.0.9"),
    ] {
        let answer = get_with(gate.proxy, &format!("http://{host}:{port}/"), "");
        assert_eq!(answer.body, "ok", "{answer}");
        assert_eq!(peers.recv().unwrap(), expected, "{host}");
    }
    let refused = get_with(gate.proxy, &format!("http://six.test:{port}/"), "");
    refused.check(
        502,
        &[
            "crawl-reason: upstream_connect",
            "egress.bind has no local address of the family",
        ],
    );
}

#[test]
fn a_parent_that_is_not_defined_is_an_error() {
    let directory = crate::support::temp_dir::TempDir::new();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let policy = "policy: 1
name: wrong
options: { disposition: allow }
rules:
  - { id: far, when: { domain: example.com }, set: { upstream: squit } }
";
    write("policy.yaml", policy);
    let config = write(
        "crawlgate.yaml",
        "{ policy: { path: policy.yaml }, egress: { parents: { squid: { proxies: 'http://127.0.0.1:3128' } } } }",
    );
    let expected = [
        "policy.yaml:5:5: error: rule far: the configuration defines no parent proxy of this name (egress.parents); found `squit`",
        "did you mean `squid`?",
    ];
    for command in ["check", "run"] {
        let arguments: &[&str] = if command == "check" {
            &["check", &config]
        } else {
            &["run", "--config", &config]
        };
        let output = crawlgate(directory.path(), arguments, "");
        let text = format!("{}{}", output.stdout, output.stderr);
        assert_eq!(output.code, 2, "{command}: {text}");
        assert!(
            expected.iter().all(|part| text.contains(part)),
            "{command}: {text}"
        );
    }
    // A running proxy keeps its policy.
    let world = ChainedProxy::new("'http://127.0.0.1:1'", "");
    world.gate.write("policy.yaml", policy);
    let reload = world.gate.admin("POST /api/v1/reload");
    assert_ne!(reload.status, 200, "{reload}");
    reload.check(reload.status, &["defines no parent proxy of this name"]);
}

#[test]
fn an_explanation_names_the_parent() {
    let world = ChainedProxy::new("'http://127.0.0.1:1'", "");
    let request = r#"{"url":"http://a.test/"}"#;
    let head = format!(
        "POST /api/v1/explain HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{request}",
        world.gate.admin,
        request.len()
    );
    let answer = RawClient::connect(world.gate.admin).request(head);
    assert_eq!(answer.status, 200, "{answer}");
    let wire = &answer.json()["wire"];
    assert_eq!(wire["parent"], "up", "{answer}");
    let not_asked = wire["not_asked"].as_array().unwrap();
    assert!(
        not_asked
            .iter()
            .any(|one| one["why"] == "the parent proxy resolves the name"),
        "{answer}"
    );
}
