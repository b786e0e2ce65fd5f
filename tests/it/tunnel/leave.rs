//! Departing clients, credentials, and the end of the proxy.

use std::time::{Duration, Instant};

use super::wire::{POLICY, config, proxy_to, text_origin};
use crate::support::client::RawClient;
use crate::support::origin::ScriptedOrigin;
use crate::support::proxy::TestProxy;
use crate::support::wait::TIMEOUT;
use crate::support::wait::wait_until;

/// A listening socket with a full queue: connecting to it never succeeds.
fn full() -> (socket2::Socket, Vec<socket2::Socket>, u16) {
    fn socket(blocking: bool) -> socket2::Socket {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_nonblocking(!blocking).unwrap();
        socket
    }
    let listener = socket(true);
    listener
        .bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let waiting = (0..4)
        .map(|_| socket(false))
        .inspect(|s| drop(s.connect(&address)))
        .collect();
    (listener, waiting, address.as_socket().unwrap().port())
}

#[test]
fn a_client_that_leaves_before_the_200_is_let_go_at_once() {
    let (_listener, _waiting, port) = full();
    let ports = format!("connect_ports: [1-65535]\n  tls_ports: [{port}]");
    let gate = TestProxy::start(
        &config(&ports, "timeouts: { connect: 30s, connect_total: 30s }"),
        POLICY,
    );
    for early in ["", "early bytes"] {
        let mut client = RawClient::connect(gate.proxy);
        client.send(format!(
            "CONNECT a.test:{port} HTTP/1.1\r\nHost: x\r\n\r\n{early}"
        ));
        wait_until("it is being dialled", || {
            gate.counter("crawlgate_tunnels") == 1
        });
        let left = Instant::now();
        drop(client);
        wait_until("it is let go", || gate.counter("crawlgate_tunnels") == 0);
        assert!(left.elapsed() < Duration::from_secs(10));
        wait_until("nothing is under way", || {
            gate.counter("crawlgate_inflight_requests") == 0
        });
    }
}

#[test]
fn a_host_that_does_not_answer_is_a_504() {
    let (_listener, _waiting, port) = full();
    let ports = format!("connect_ports: [1-65535]\n  tls_ports: [{port}]");
    let gate = TestProxy::start(&config(&ports, "timeouts: { connect: 200ms }"), POLICY);
    let mut client = RawClient::connect(gate.proxy);
    client.send(format!("CONNECT a.test:{port} HTTP/1.1\r\nHost: x\r\n\r\n"));
    let answer = client.read_rest();
    assert!(
        answer.starts_with("HTTP/1.1 504 Policy-504 reason=upstream_connect id="),
        "{answer}"
    );
    assert!(answer.contains("error=connection_timeout"), "{answer}");
}

/// Silent tunnels do not delay the end of the proxy; active ones are finished.
#[test]
fn a_drain_ends_silent_tunnels_and_lets_the_others_finish() {
    let origin = ScriptedOrigin::echo();
    let mut gate = proxy_to(&origin, "timeouts: { drain: 20s }", POLICY);
    let mut silent = RawClient::tls_tunnel(gate.proxy, origin.port);
    let mut busy = RawClient::tls_tunnel(gate.proxy, origin.port);
    let began = Instant::now();
    gate.signal("TERM");
    let mut carried = 0;
    silent
        .socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    // Until the silent tunnel has ended, and a little longer.
    let mut over = None;
    while over.is_none_or(|at: Instant| at.elapsed() < Duration::from_millis(500)) {
        busy.send("x");
        assert_eq!(busy.read_bytes(1), b"x");
        carried += 1;
        let ended = matches!(std::io::Read::read(&mut silent.socket, &mut [0]), Ok(0));
        over = over.or(ended.then(Instant::now));
        assert!(began.elapsed() < TIMEOUT, "the silent tunnel stays open");
    }
    assert!(carried > 5 && gate.is_running());
    busy.half_close();
    assert_eq!(busy.read_rest(), "");
    wait_until("the process ends", || !gate.is_running());
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "it waited for silent tunnels"
    );
}

#[test]
fn a_crawler_is_known_by_its_connect() {
    let tls = ScriptedOrigin::echo();
    let plain = text_origin();
    let hash = bcrypt::hash("s3cret", 4).unwrap();
    let more = format!(
        "anonymous: deny\ncrawlers:\n- {{ name: news, auth: {{ user: news, password_hash: '{hash}' }} }}\n\
         - {{ name: shop, auth: {{ user: shop, password_hash: '{hash}' }} }}\n"
    );
    let policy = POLICY.to_owned()
        + "  - { id: not-for-shop, forbid: { all: [ { crawler: shop }, { host: a.test } ] } }\n";
    let gate = proxy_to(&tls, &more, &policy);
    // news:s3cret, shop:s3cret, news:wrong
    let news = "bmV3czpzM2NyZXQ=";
    let shop = "c2hvcDpzM2NyZXQ=";
    let wrong = "bmV3czp3cm9uZw==";
    fn connect(gate: &TestProxy, port: u16, credentials: &str) -> RawClient {
        let mut client = RawClient::connect(gate.proxy);
        let field = if credentials.is_empty() {
            String::new()
        } else {
            format!("Proxy-Authorization: Basic {credentials}\r\n")
        };
        client.send(format!(
            "CONNECT a.test:{port} HTTP/1.1\r\nHost: x\r\n{field}\r\n"
        ));
        client
    }
    for (credentials, line) in [
        ("", "HTTP/1.1 407 Policy-407 reason=unauthorized id="),
        (wrong, "HTTP/1.1 407 Policy-407 reason=unauthorized id="),
        (shop, "HTTP/1.1 451 Policy-451 rule=not-for-shop id="),
        (news, "HTTP/1.1 200 Connection established\r\n"),
    ] {
        let head = connect(&gate, tls.port, credentials).read_head();
        assert!(head.starts_with(line), "{credentials}: {head}");
        assert_eq!(
            head.contains("proxy-authenticate: Basic "),
            line.contains("407"),
            "{head}"
        );
    }
    // The requests inside need no credentials, and are counted for the crawler of the CONNECT.
    for (credentials, status) in [(news, 200), (shop, 451)] {
        let mut client = connect(&gate, plain.port, credentials);
        assert!(client.read_head().starts_with("HTTP/1.1 200 "));
        client.send(format!(
            "GET / HTTP/1.1\r\nHost: a.test:{}\r\n\r\n",
            plain.port
        ));
        assert!(
            client
                .read_response()
                .head
                .starts_with(&format!("HTTP/1.1 {status} ")),
            "{credentials}"
        );
    }
    let of_news =
        "crawlgate_requests_total{code=\"200\",crawler=\"news\",method=\"GET\",source=\"origin\"}";
    wait_until("the request is counted", || gate.counter(of_news) == 1);
}
