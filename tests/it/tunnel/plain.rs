//! HTTP in the clear inside a tunnel, as undici, linkinator and ureq send it: evaluated by URL, then connected.

use crate::support::proxy::TestProxy;

use super::wire::{POLICY, config, text_origin};
use crate::support::client::{RawClient, Response};
use crate::support::origin::{ScriptedOrigin, response};
use crate::support::wait::wait_until;

fn gate() -> TestProxy {
    TestProxy::start(
        &config("connect_ports: [1-65535]\n  tls_ports: [443]", ""),
        POLICY,
    )
}

#[test]
fn each_request_inside_a_tunnel_is_evaluated() {
    let origin = text_origin();
    let gate = gate();
    let mut client = RawClient::tunnel(gate.proxy, origin.port);
    assert_eq!(
        origin.connections(),
        0,
        "nothing is dialled before a request is judged"
    );
    fn ask(origin: &ScriptedOrigin, path: &str) -> String {
        format!(
            "GET {path} HTTP/1.1\r\nHost: a.test:{}\r\n\r\n",
            origin.port
        )
    }
    client.send(ask(&origin, "/secret/x"));
    let Response { head, body, .. } = client.read_response();
    assert!(head.starts_with("HTTP/1.1 451 "), "{head}");
    assert!(head.contains("crawl-rule: secret"), "{head}");
    assert!(body.contains("\"rule\":\"secret\""), "{body}");
    assert_eq!(origin.connections(), 0);
    // The connection stays open, and the next request is evaluated separately.
    client.send(ask(&origin, "/page?q=1"));
    let Response { head, body, .. } = client.read_response();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("crawl-status: ACCEPTED"), "{head}");
    assert_eq!(body, "ok");
    let seen = origin.wait_for_text("\r\n\r\n");
    assert!(seen.starts_with("GET /page?q=1 HTTP/1.1\r\n"), "{seen}");
    assert!(
        seen.contains(&format!("host: a.test:{}\r\n", origin.port)),
        "{seen}"
    );
    assert!(seen.contains("via: 1.1 "), "{seen}");
    assert!(!seen.contains("secret"), "{seen}");
    assert_eq!(gate.counter("crawlgate_tunnels"), 1);
    drop(client);
    wait_until("the tunnel is over", || {
        gate.counter("crawlgate_tunnels") == 0
    });
}

/// linkinator opens a tunnel for each of up to 100 pages.
#[test]
fn tunnels_with_http_are_not_limited_by_host() {
    let origin = text_origin();
    let more = "limits: { tunnels_per_host: 2 }";
    let gate = TestProxy::start(
        &config("connect_ports: [1-65535]\n  tls_ports: [443]", more),
        POLICY,
    );
    let request = format!("GET / HTTP/1.1\r\nHost: a.test:{}\r\n\r\n", origin.port);
    let mut clients: Vec<RawClient> = (0..5)
        .map(|_| RawClient::tunnel(gate.proxy, origin.port))
        .collect();
    assert_eq!(gate.counter("crawlgate_tunnels"), 5);
    for client in &mut clients {
        assert_eq!(client.request(&request).body, "ok");
    }
    drop(clients);
    wait_until("the tunnels are over", || {
        gate.counter("crawlgate_tunnels") == 0
    });
}

/// Inside a tunnel the proxy stands for the origin, so `*` is its server: judged as the root path, passed on as it is.
#[test]
fn options_of_the_whole_server_passes_inside_a_tunnel() {
    let origin = text_origin();
    let gate = gate();
    for target in ["*", &format!("http://a.test:{}", origin.port)] {
        let mut client = RawClient::tunnel(gate.proxy, origin.port);
        client.send(format!(
            "OPTIONS {target} HTTP/1.1\r\nHost: a.test:{}\r\n\r\n",
            origin.port
        ));
        client.read_response().check(200, &[]);
    }
    let lines: Vec<String> = origin
        .heads()
        .iter()
        .map(|head| head.lines().next().unwrap().to_owned())
        .collect();
    assert_eq!(lines, ["OPTIONS * HTTP/1.1", "OPTIONS * HTTP/1.1"]);
    // Only OPTIONS has this form, and another host stays another host.
    for (method, host) in [("GET", "a.test"), ("OPTIONS", "b.test")] {
        let mut client = RawClient::tunnel(gate.proxy, origin.port);
        client.send(format!(
            "{method} * HTTP/1.1\r\nHost: {host}:{}\r\n\r\n",
            origin.port
        ));
        let status = client.read_response().status;
        assert_eq!(status, if method == "GET" { 400 } else { 421 });
    }
}

/// A host whose tunnels are undecided is no obstacle if each URL is visible.
#[test]
fn a_partly_refused_host_is_evaluated_by_url() {
    let origin = text_origin();
    let gate = gate();
    for (path, status) in [("/private/x", "451"), ("/public", "200")] {
        let mut client = RawClient::tunnel_to(gate.proxy, &format!("half.test:{}", origin.port));
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: half.test:{}\r\n\r\n",
            origin.port
        ));
        assert!(
            client
                .read_response()
                .head
                .starts_with(&format!("HTTP/1.1 {status} ")),
            "{path}"
        );
    }
}

#[test]
fn the_host_inside_is_the_tunnels() {
    let origin = text_origin();
    let gate = gate();
    let port = origin.port;
    for (head, status, word) in [
        (
            format!("GET / HTTP/1.1\r\nHost: b.test:{port}\r\n\r\n"),
            421,
            "host_mismatch",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(),
            421,
            "host_mismatch",
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: a.test:1{port}\r\n\r\n"),
            421,
            "host_mismatch",
        ),
        (
            "GET / HTTP/1.1\r\nHost: \r\n\r\n".to_owned(),
            421,
            "host_mismatch",
        ),
        (
            format!("GET http://b.test:{port}/ HTTP/1.1\r\nHost: b.test:{port}\r\n\r\n"),
            421,
            "host_mismatch",
        ),
        (
            format!("GET https://a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"),
            403,
            "scheme_denied",
        ),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400, "bad_request"),
        (
            format!("GET a.test:{port} HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"),
            400,
            "bad_request",
        ),
        (
            format!("CONNECT a.test:{port} HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"),
            405,
            "method_denied",
        ),
        (
            format!("TRACE / HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"),
            405,
            "method_denied",
        ),
    ] {
        let mut client = RawClient::tunnel(gate.proxy, port);
        client.send(&head);
        let answer = client.read_response().head;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{head:?}: {answer}"
        );
        assert!(
            answer.contains(&format!("crawl-reason: {word}\r\n")),
            "{head:?}: {answer}"
        );
    }
    assert_eq!(origin.connections(), 0);
    for head in [
        format!("GET / HTTP/1.1\r\nHost: A.TEST.:{port}\r\n\r\n"),
        "GET / HTTP/1.0\r\n\r\n".to_owned(),
        format!("GET http://a.test:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"),
    ] {
        let mut client = RawClient::tunnel(gate.proxy, port);
        client.send(&head);
        assert!(
            client.read_response().head.contains(" 200 OK\r\n"),
            "{head:?}"
        );
    }
}

#[test]
fn a_request_that_comes_with_the_connect_is_answered() {
    let origin = text_origin();
    let gate = gate();
    let authority = format!("a.test:{}", origin.port);
    let mut client = RawClient::connect(gate.proxy);
    client.send(format!(
        "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\nGET / HTTP/1.1\r\nHost: {authority}\r\n\r\n"
    ));
    assert!(
        client
            .read_head()
            .starts_with("HTTP/1.1 200 Connection established\r\n")
    );
    assert_eq!(client.read_response().body, "ok");
}

/// Robots rules apply inside, since each URL is visible; the proxy fetches the file itself.
#[test]
fn robots_hold_inside() {
    let origin = ScriptedOrigin::respond(|request| {
        let body = match request.path() {
            "/robots.txt" => "User-agent: *\nDisallow: /closed\n",
            _ => "ok",
        };
        response(200, "Content-Type: text/plain\r\n", body)
    });
    let policy = POLICY.replace("robots: { obey: false }", "robots: { obey: true }");
    let gate = TestProxy::start(
        &config("connect_ports: [1-65535]\n  tls_ports: [443]", ""),
        &policy,
    );
    let mut client = RawClient::tunnel(gate.proxy, origin.port);
    for (path, status) in [("/closed/x", "451"), ("/open", "200")] {
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: a.test:{}\r\n\r\n",
            origin.port
        ));
        let head = client.read_response().head;
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{path}: {head}"
        );
        assert_eq!(
            head.contains("crawl-reason: robots_txt"),
            status == "451",
            "{head}"
        );
    }
    let seen = origin.wait_for_text("GET /open");
    assert!(!seen.contains("/closed"), "{seen}");
}
