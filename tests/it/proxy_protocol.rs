//! Listeners behind a load balancer: the PROXY protocol, as raw bytes from trusted and other addresses.

use std::net::{IpAddr, SocketAddr, TcpStream};

use crate::support::client::{RawClient, get_request};
use crate::support::origin::ScriptedOrigin;
use crate::support::proxy::{CONFIG, TestProxy};
use crate::support::wait::TIMEOUT;

const POLICY: &str = "
policy: 1
name: balanced
options: { disposition: allow, robots: { obey: false }, politeness: { delay: 0s, concurrency: 100 } }
";

/// 127.0.0.1 is a load balancer; 127.0.0.2 is a crawler that connects directly.
const BALANCER: &str = "127.0.0.1";
const DIRECT: &str = "127.0.0.2";

fn config(more: &str) -> String {
    CONFIG.replace(
        "listen: 127.0.0.1:0\n",
        &format!(
            "listen: {{ addr: 127.0.0.1:0, proxy_protocol: {{ trusted: 127.0.0.1 }} }}\n\
             crawlers:\n\
             - {{ name: four, sources: [203.0.113.0/24] }}\n\
             - {{ name: six, sources: ['2001:db8::/32'] }}\n\
             - {{ name: direct, sources: [127.0.0.2] }}\n\
             - {{ name: balancer, sources: [127.0.0.1] }}\n\
             {more}"
        ),
    )
}

fn connect(from: &str, proxy: SocketAddr) -> RawClient {
    let domain = socket2::Domain::IPV4;
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None).unwrap();
    let from = SocketAddr::new(from.parse::<IpAddr>().unwrap(), 0);
    socket.bind(&from.into()).unwrap();
    socket.connect(&proxy.into()).unwrap();
    let socket: TcpStream = socket.into();
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    RawClient { socket }
}

/// A header of version 2.
fn binary(command: u8, family: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    bytes.extend([command, family]);
    bytes.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
    bytes.extend(content);
    bytes
}

fn binary_ipv4(source: [u8; 4], more: &[u8]) -> Vec<u8> {
    let content = [&source[..], &[192, 0, 2, 2, 0x30, 0x39, 1, 0xbb], more].concat();
    binary(0x21, 0x11, &content)
}

#[test]
fn the_client_is_the_one_that_the_header_names() {
    let origin = ScriptedOrigin::ok();
    let gate = TestProxy::start(&config(""), POLICY);
    let mut ipv6 = [0_u8; 36];
    ipv6[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    let tlv = [0x04, 0, 3, 1, 2, 3];
    let rows: [(&str, Vec<u8>, &str); 10] = [
        (
            BALANCER,
            b"PROXY TCP4 203.0.113.7 192.0.2.2 12345 443\r\n".into(),
            "four",
        ),
        (
            BALANCER,
            b"PROXY TCP6 2001:db8::7 2001:db8::1 1 2\r\n".into(),
            "six",
        ),
        (
            BALANCER,
            b"PROXY TCP6 ::ffff:203.0.113.7 ::1 1 2\r\n".into(),
            "four",
        ),
        (BALANCER, binary_ipv4([203, 0, 113, 9], &[]), "four"),
        (BALANCER, binary_ipv4([203, 0, 113, 9], &tlv), "four"),
        (BALANCER, binary(0x21, 0x21, &ipv6), "six"),
        // A health check of the balancer, and clients without an IP address.
        (BALANCER, binary(0x20, 0x00, &[]), "balancer"),
        (BALANCER, binary(0x21, 0x00, &[]), "balancer"),
        (BALANCER, b"PROXY UNKNOWN\r\n".into(), "balancer"),
        (DIRECT, Vec::new(), "direct"),
    ];
    let url = origin.url("a.test", "/");
    for (from, header, _) in &rows {
        let request = get_request(&url, "");
        let whole = [&header[..], request.as_bytes()].concat();
        let mut client = connect(from, gate.proxy);
        let response = client.request(&whole);
        assert_eq!(
            response.status,
            200,
            "{}: {response}",
            header.escape_ascii()
        );
        // The header precedes the first request only.
        assert_eq!(client.get(&url).status, 200, "{}", header.escape_ascii());
    }
    let decisions = gate.decisions(2 * rows.len());
    for (pair, (_, header, crawler)) in decisions.chunks(2).zip(&rows) {
        for line in pair {
            assert_eq!(line["crawler"], *crawler, "{}", header.escape_ascii());
        }
    }
    // In the smallest parts.
    let mut client = connect(BALANCER, gate.proxy);
    for byte in binary_ipv4([203, 0, 113, 9], &tlv) {
        client.send([byte]);
    }
    assert_eq!(client.get(&url).status, 200);
    assert_eq!(
        gate.metric("crawlgate_proxy_protocol_failures_total{reason=\"missing\"}"),
        0.0
    );
}

#[test]
fn a_connection_without_a_valid_header_is_closed_and_counted() {
    let gate = TestProxy::start(&config("timeouts: { head: 300ms }\n"), POLICY);
    let request = "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let text = |line: &str| format!("{line}\r\n{request}").into_bytes();
    let long = format!("PROXY UNKNOWN {}", "x".repeat(200));
    let rows: [(&str, Vec<u8>); 15] = [
        ("missing", request.into()),
        ("missing", b"CONNECT a.test:443 HTTP/1.1\r\n\r\n".into()),
        ("missing", b"\x16\x03\x01\x02\x00\x01".into()),
        ("missing", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into()),
        ("malformed", text("PROXY TCP4 203.0.113.7 192.0.2.2 12345")),
        ("malformed", text("PROXY TCP4 2001:db8::7 2001:db8::1 1 2")),
        (
            "malformed",
            text("PROXY TCP4 203.0.113.7 192.0.2.2 1 65536"),
        ),
        ("malformed", text("PROXY TCP4 203.0.113.7\n192.0.2.2 1 2")),
        ("malformed", binary(0x21, 0x11, &[203, 0, 113])),
        ("malformed", binary(0x2f, 0x11, &[0; 12])),
        ("malformed", binary(0x21, 0xf1, &[0; 12])),
        ("too_long", long.into()),
        ("too_long", binary(0x21, 0x11, &[0; 65_535])),
        ("timeout", b"PROXY TCP4 203.0.113.7".into()),
        ("timeout", binary(0x21, 0x11, &[0; 500])[..300].into()),
    ];
    let series =
        |reason: &str| format!("crawlgate_proxy_protocol_failures_total{{reason=\"{reason}\"}}");
    for (reason, bytes) in rows {
        let before = gate.metric(&series(reason));
        let mut client = connect(BALANCER, gate.proxy);
        // The proxy may close the connection before it has read everything.
        let _ = std::io::Write::write_all(&mut client.socket, &bytes);
        assert_eq!(client.read_rest(), "", "{}", bytes.escape_ascii());
        gate.wait_for_metric(&series(reason), before + 1.0);
    }
    let before = gate.metric(&series("incomplete"));
    let mut client = connect(BALANCER, gate.proxy);
    client.send("PROXY TCP4 ");
    client.half_close();
    assert_eq!(client.read_rest(), "");
    gate.wait_for_metric(&series("incomplete"), before + 1.0);
    // A health check that only connects is not a failure; silence is one.
    drop(connect(BALANCER, gate.proxy));
    let silent = gate.metric(&series("timeout"));
    assert_eq!(connect(BALANCER, gate.proxy).read_rest(), "");
    gate.wait_for_metric(&series("timeout"), silent + 1.0);
    assert_eq!(gate.metric(&series("incomplete")), before + 1.0);
    gate.wait_for_metric("crawlgate_connections", 0.0);
    assert_eq!(gate.decision_log(), "", "none of them became a request");
}

#[test]
fn the_header_of_another_address_is_a_bad_request() {
    let gate = TestProxy::start(&config(""), POLICY);
    let request = "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n";
    for header in [
        b"PROXY TCP4 203.0.113.7 192.0.2.2 12345 443\r\n".to_vec(),
        binary_ipv4([203, 0, 113, 7], &[]),
    ] {
        let mut client = connect(DIRECT, gate.proxy);
        client.send([&header[..], request.as_bytes()].concat());
        let response = client.read_response();
        assert_eq!(response.status, 400, "{response}");
        assert_eq!(response.value("crawl-reason"), "bad_request");
    }
    for reason in ["missing", "malformed", "timeout"] {
        let series = format!("crawlgate_proxy_protocol_failures_total{{reason=\"{reason}\"}}");
        assert_eq!(gate.metric(&series), 0.0);
    }
}

#[test]
fn limits_count_by_the_named_client() {
    let gate = TestProxy::start(
        &config("limits: { per_client: 2, connections: 5 }\n"),
        POLICY,
    );
    let open = |last: u8| {
        let mut client = connect(BALANCER, gate.proxy);
        client.send(binary_ipv4([203, 0, 113, last], &[]));
        client
    };
    let _kept = [open(1), open(1)];
    gate.wait_for_metric("crawlgate_connections", 2.0);
    let mut third = open(1);
    let response = third.read_response();
    assert_eq!(response.status, 503, "{response}");
    assert_eq!(response.value("crawl-reason"), "overloaded");
    let _other = open(2);
    gate.wait_for_metric("crawlgate_connections", 3.0);
    // Connections that have not sent their header count in total.
    let silent = [(); 2].map(|()| connect(BALANCER, gate.proxy));
    let mut sixth = open(3);
    assert_eq!(sixth.read_response().value("crawl-reason"), "overloaded");
    drop(silent);
    let again = || {
        let mut client = open(3);
        client.send("TRACE / HTTP/1.1\r\n\r\n");
        client.try_read_response().is_some_and(|r| r.status != 503)
    };
    crate::support::wait::wait_until("their places are free again", again);
}
