//! Bodies of requests and of responses.

use std::time::Duration;

use crate::origin_tls::certs::Authority;
use crate::support::client::{RawClient, exchange, get};
use crate::support::http2_origin::{Http2Origin, Http2Reply, frame, kind};

use crate::support::wait::wait_until;

use super::{failures, frame_origin_with, gate, gate_with};

fn post(url: &str, host: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

#[test]
fn a_body_arrives_whole_whatever_the_windows() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let origin = Http2Origin::start(&ours.server(&["a.test"]), |_| Http2Reply::text("got it"));
    let body: Vec<u8> = (0..2_000_000_u32).map(|n| (n % 251) as u8).collect();
    let host = format!("a.test:{}", origin.port);
    let url = origin.url("a.test", "/");
    let mut client = RawClient::connect(gate.proxy);
    let answer = client.request(post(&url, &host, &body));
    assert_eq!((answer.status, &*answer.body), (200, "got it"), "{answer}");
    let chunked = format!(
        "POST {url} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    );
    assert_eq!(client.request(chunked).status, 200);
    let requests = origin.log().requests;
    assert!(requests[0].body == body);
    assert_eq!(requests[0].headers["content-length"], "2000000");
    assert_eq!(requests[1].body, b"abc");
    assert!(!requests[1].headers.contains_key("transfer-encoding"));
    assert_eq!(origin.log().connections, 1);
}

#[test]
fn an_origin_may_answer_before_it_has_the_whole_body() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let origin = Http2Origin::start(&ours.server(&["a.test"]), |_| Http2Reply {
        reads: false,
        status: 413,
        ..Http2Reply::text("too large")
    });
    let host = format!("a.test:{}", origin.port);
    let mut client = RawClient::connect(gate.proxy);
    let answer = client.request(post(
        &origin.url("a.test", "/"),
        &host,
        &vec![b'x'; 1_000_000],
    ));
    assert_eq!(
        (answer.status, &*answer.body),
        (413, "too large"),
        "{answer}"
    );
}

/// A window of one byte: `SETTINGS_INITIAL_WINDOW_SIZE` 1, and nothing more.
#[test]
fn a_window_that_stays_closed_ends_in_a_timeout() {
    let ours = Authority::new();
    let gate = gate_with(
        &ours,
        "{ delay: 0s, concurrency: 100 }",
        "timeouts: { response_head: 1s }\n",
    );
    let origin = frame_origin_with(
        &ours.server(&["a.test"]),
        &[0, 4, 0, 0, 0, 1],
        |_, mut peer| while peer.read_request().is_some() {},
    );
    let host = format!("a.test:{}", origin.port);
    let mut client = RawClient::connect(gate.proxy);
    // The origin's SETTINGS may arrive after the first bytes.
    let body = vec![b'x'; 200_000];
    let answer = client.request(post(&origin.https_url("a.test", "/"), &host, &body));
    assert_eq!(answer.status, 504, "{answer}");
}

#[test]
fn large_and_small_bodies_arrive_side_by_side() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let origin = Http2Origin::start(&ours.server(&["a.test"]), |request| {
        match request.uri.path() {
            "/large" => Http2Reply {
                body: vec![vec![b'x'; 65_536]; 64],
                ..Http2Reply::text("")
            },
            "/tiny" => Http2Reply {
                body: vec![b"x".to_vec(); 300],
                ..Http2Reply::text("")
            },
            "/none" => Http2Reply {
                body: vec![],
                ..Http2Reply::text("")
            },
            "/length" => Http2Reply::text("12345"),
            _ => Http2Reply::text("ok"),
        }
    });
    // A client that reads nothing holds up its own stream only.
    let mut stalled = RawClient::connect(gate.proxy);
    stalled.send_get(&origin.url("a.test", "/large"), "");
    for (path, length) in [("/large", 4 << 20), ("/tiny", 300), ("/none", 0), ("/", 2)] {
        let body = get(gate.proxy, &origin.url("a.test", path)).body;
        assert_eq!(body.len(), length, "{path}");
    }
    let answer = get(gate.proxy, &origin.url("a.test", "/length"));
    assert_eq!(answer.value("content-length"), "5");
    assert_eq!(stalled.read_response().body.len(), 4 << 20);
    let head = exchange(
        gate.proxy,
        format!(
            "HEAD {} HTTP/1.1\r\nHost: a.test:{}\r\nConnection: close\r\n\r\n",
            origin.url("a.test", "/length"),
            origin.port
        ),
    );
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    assert!(head.contains("content-length: 5\r\n"), "{head}");
}

/// Data that stops in the middle, and data that comes one byte at a time.
#[test]
fn the_timeouts_of_bodies_apply_to_streams() {
    let ours = Authority::new();
    let gate = gate_with(
        &ours,
        "{ delay: 0s, concurrency: 100 }",
        "timeouts: { body_idle: 1s, request: 2s }\n",
    );
    let origin = Http2Origin::start(&ours.server(&["a.test"]), |request| Http2Reply {
        body: vec![b"x".to_vec(); 1_000],
        chunked: true,
        pause: match request.uri.path() {
            "/stops" => Duration::from_secs(60),
            _ => Duration::from_millis(100),
        },
        ..Http2Reply::text("")
    });
    for path in ["/stops", "/drips"] {
        let mut client = RawClient::connect(gate.proxy);
        client.send_get(&origin.url("a.test", path), "");
        let began = std::time::Instant::now();
        let (rest, _) = client.read_to_end();
        assert!(!rest.ends_with("0\r\n\r\n"), "{path}");
        assert!(began.elapsed() < Duration::from_secs(10), "{path}");
    }
    assert_eq!(origin.log().connections, 1);
}

/// Frames that end a response in the wrong way.
#[test]
fn a_length_that_is_not_kept_breaks_the_body() {
    let ours = Authority::new();
    let gate = gate(&ours);
    // `content-length: 5`, a literal without indexing with an indexed name.
    let head = [0x88, 0x0f, 0x0d, 1, b'5'];
    let origin = frame_origin_with(&ours.server(&["a.test"]), &[], move |_, mut peer| {
        while let Some(stream) = peer.read_request() {
            peer.send(&frame(kind::HEADERS, 4, stream, &head));
            peer.send(&frame(kind::DATA, 1, stream, b"12"));
        }
    });
    let mut client = RawClient::connect(gate.proxy);
    client.send_get(&origin.https_url("a.test", "/"), "Connection: close\r\n");
    let (rest, _) = client.read_to_end();
    // The head may have been passed on before the end.
    let is_refused = rest.contains("error=http_response_incomplete");
    assert!(
        is_refused || rest.ends_with("\r\n\r\n") || rest.ends_with("12"),
        "{rest}"
    );
    wait_until("the failure is counted", || {
        failures(&gate, "protocol_error") == 1
    });
}
