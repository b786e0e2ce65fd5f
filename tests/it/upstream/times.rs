//! Every timeout towards origins and clients: that it is set, its error, and the resources that it frees.

use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Refused, check_refused, gate, get, status};
use crate::support::client::{ConnectionEnd, RawClient};
use crate::support::origin::{OK, ScriptedOrigin};
use crate::support::wait::{TIMEOUT, wait_until};

const HOSTS: &str = "{ a.test: 127.0.0.1 }";

#[test]
fn an_origin_that_does_not_answer_is_given_up() {
    let want = Refused {
        status: 504,
        reason: "upstream_timeout",
        error: "http_response_timeout",
        code: Some(613),
    };
    for begun in [
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 103 Early Hints\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n",
    ] {
        let origin = ScriptedOrigin::start(move |connection| {
            connection.read_head();
            connection.send(begun);
            connection.wait_for_close();
        });
        let gate = gate(HOSTS, "timeouts: { response_head: 150ms }");
        let began = Instant::now();
        check_refused(&get(gate.proxy, &origin.url("a.test", "/")), want, begun);
        assert!(began.elapsed() < TIMEOUT, "{begun:?}");
        wait_until("the origin is let go", || origin.ended_connections() == 1);
        assert_eq!(origin.requests().len(), 1, "{begun:?}");
    }
}

/// Heads of responses, each with the first part of its body.
const BEGUN: [(&str, &str); 3] = [
    (
        "a length",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
    ),
    (
        "chunks",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ),
    ("no end but closing", "HTTP/1.1 200 OK\r\n\r\nhello"),
];

#[test]
fn a_body_that_stops_is_broken_off() {
    for (framing, begun) in BEGUN {
        for version in ["1.1", "1.0"] {
            let origin = ScriptedOrigin::start(move |connection| {
                connection.read_head();
                connection.send(begun);
                connection.wait_for_close();
            });
            let gate = gate(HOSTS, "timeouts: { body_idle: 150ms }");
            let mut client = RawClient::connect(gate.proxy);
            client.send(format!(
                "GET {} HTTP/{version}\r\nHost: a.test:{}\r\n\r\n",
                origin.url("a.test", "/"),
                origin.port
            ));
            check_broken(
                client.read_to_end(),
                &format!("{framing} to HTTP/{version}"),
            );
            wait_until("the origin is let go", || origin.ended_connections() == 1);
        }
    }
}

/// A client must get the bytes that there were, and must not take them for a complete response.
#[track_caller]
pub(super) fn check_broken((answer, end): (String, ConnectionEnd), case: &str) {
    assert_eq!(status(&answer), 200, "{case}: {answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(body.contains("hello"), "{case}: {answer}");
    let head = head.to_ascii_lowercase();
    if head.contains("transfer-encoding: chunked") {
        assert!(!body.ends_with("0\r\n\r\n"), "{case}: {answer}");
    } else if !head.contains("content-length: 10") {
        assert_eq!(end, ConnectionEnd::Reset, "{case}: {answer}");
    }
}

#[test]
fn a_body_that_drips_is_broken_off_in_the_end() {
    let origin = ScriptedOrigin::start(|connection| {
        connection.read_head();
        connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
        while connection.socket.write_all(b"1\r\n.\r\n").is_ok() {
            sleep(Duration::from_millis(10));
        }
    });
    let gate = gate(HOSTS, "timeouts: { request: 300ms, body_idle: 60s }");
    let mut client = RawClient::connect(gate.proxy);
    client.send_get(&origin.url("a.test", "/"), "");
    check_broken(client.read_to_end(), "a dripping body");
    wait_until("the origin is let go", || origin.ended_connections() == 1);
}

#[test]
fn a_client_that_does_not_read_is_dropped() {
    let origin = ScriptedOrigin::start(|connection| {
        connection.read_head();
        connection.send("HTTP/1.1 200 OK\r\n\r\n");
        let part = [b'x'; 1 << 16];
        while connection.socket.write_all(&part).is_ok() {}
    });
    let gate = gate(HOSTS, "timeouts: { write_stall: 150ms, body_idle: 60s }");
    let mut client = RawClient::connect(gate.proxy);
    client.send_get(&origin.url("a.test", "/"), "");
    client.read_until("\r\n\r\n");
    wait_until("the origin is let go", || origin.ended_connections() == 1);
}

#[test]
fn a_client_that_does_not_send_its_body_gets_a_408() {
    let want = Refused {
        status: 408,
        reason: "request_timeout",
        error: "http_request_error",
        code: None,
    };
    for (framing, begun) in [
        ("Content-Length: 10", "hello"),
        ("Transfer-Encoding: chunked", "5\r\nhello\r\n"),
    ] {
        let origin = ScriptedOrigin::start(|connection| {
            connection.read_head();
            connection.wait_for_close();
        });
        let gate = gate(HOSTS, "timeouts: { body_idle: 150ms, response_head: 60s }");
        let mut client = RawClient::connect(gate.proxy);
        let url = origin.url("a.test", "/");
        let port = origin.port;
        client.send(format!(
            "POST {url} HTTP/1.1\r\nHost: a.test:{port}\r\n{framing}\r\n\r\n{begun}"
        ));
        check_refused(&client.read_rest(), want, framing);
        // The beginning of the body has not arrived.
        assert_eq!(origin.connections(), 0, "{framing}");
    }
}

#[test]
fn a_client_whose_body_drips_gets_a_408() {
    let want = Refused {
        status: 408,
        reason: "request_timeout",
        error: "http_request_error",
        code: None,
    };
    let beginning = "x".repeat(20_000);
    for (framing, beginning, drop) in [
        ("Content-Length: 1000", "", "."),
        ("Content-Length: 30000", &*beginning, "."),
        ("Transfer-Encoding: chunked", "", "1\r\n.\r\n"),
    ] {
        let origin = ScriptedOrigin::start(|connection| {
            connection.read_head();
            connection.wait_for_close();
        });
        let gate = gate(
            HOSTS,
            "timeouts: { request: 300ms, body_idle: 60s, response_head: 60s }",
        );
        let mut client = RawClient::connect(gate.proxy);
        let url = origin.url("a.test", "/");
        let port = origin.port;
        client.send(format!(
            "POST {url} HTTP/1.1\r\nHost: a.test:{port}\r\n{framing}\r\n\r\n{beginning}"
        ));
        for _ in 0..60 {
            sleep(Duration::from_millis(10));
            client.send(drop);
        }
        check_refused(&client.read_rest(), want, framing);
        if beginning.is_empty() {
            assert_eq!(origin.connections(), 0, "{framing}");
        } else {
            wait_until("the origin is let go", || origin.ended_connections() == 1);
        }
    }
}

#[test]
fn time_that_the_client_takes_is_not_the_origins() {
    // The body takes longer than the timeout of the response head.
    let origin = ScriptedOrigin::start(|connection| {
        connection.read_head();
        connection.send(OK);
    });
    let gate = gate(HOSTS, "timeouts: { response_head: 200ms, body_idle: 60s }");
    let mut client = RawClient::connect(gate.proxy);
    let url = origin.url("a.test", "/");
    let port = origin.port;
    client.send(format!(
        "POST {url} HTTP/1.1\r\nHost: a.test:{port}\r\nContent-Length: 4\r\nConnection: close\r\n\r\n"
    ));
    for part in ["b", "o", "d", "y"] {
        sleep(Duration::from_millis(120));
        client.send(part);
    }
    assert_eq!(status(&client.read_rest()), 200);
}
