//! Failures on one side are visible on the other.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use crate::support::proxy::{CONFIG, TestProxy};

use super::times::check_broken;
use super::{POLICY, Refused, check_refused, gate, get};
use crate::support::client::RawClient;
use crate::support::origin::ScriptedOrigin;
use crate::support::wait::wait_until;

const HOSTS: &str = "{ a.test: 127.0.0.1 }";

fn ask(gate: &TestProxy, origin: &ScriptedOrigin, version: &str) -> RawClient {
    let mut client = RawClient::connect(gate.proxy);
    client.send(format!(
        "GET {} HTTP/{version}\r\nHost: a.test:{}\r\n\r\n",
        origin.url("a.test", "/"),
        origin.port
    ));
    client
}

#[test]
fn a_client_that_leaves_is_seen_by_the_origin() {
    // Before the response, in the middle of its head, in the middle of its body.
    for begun in [
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\n\r\nhello",
    ] {
        for resets in [false, true] {
            let origin = ScriptedOrigin::start(move |connection| {
                connection.read_head();
                connection.send(begun);
                connection.wait_for_close();
            });
            let gate = gate(HOSTS, "");
            let mut client = ask(&gate, &origin, "1.1");
            if begun.ends_with("hello") {
                client.read_until("hello");
            }
            wait_until("the origin has the request", || {
                origin.requests().len() == 1
            });
            if resets {
                socket2::SockRef::from(&client.socket)
                    .set_linger(Some(Duration::ZERO))
                    .unwrap();
            }
            drop(client);
            wait_until(&format!("the origin sees it: {begun:?} {resets}"), || {
                origin.ended_connections() == 1
            });
        }
    }
}

#[test]
fn an_origin_that_breaks_off_is_seen_by_the_client() {
    let length = "Content-Length: 10\r\n\r\nhello";
    let chunks = "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    for (case, begun, last, resets) in [
        ("a length, closed", length, "", false),
        ("a length, reset", length, "", true),
        ("chunks, closed", chunks, "", false),
        ("chunks, reset", chunks, "", true),
        ("a bad chunk", chunks, "xyz\r\n", false),
        ("no end but closing, reset", "\r\nhello", "", true),
    ] {
        for version in ["1.1", "1.0"] {
            let (go, wait) = mpsc::channel();
            let wait = Mutex::new(wait);
            let origin = ScriptedOrigin::start(move |connection| {
                connection.read_head();
                connection.send(format!("HTTP/1.1 200 OK\r\n{begun}"));
                let _ = wait.lock().unwrap().recv();
                connection.send(last);
                if resets {
                    connection.reset_on_close();
                }
            });
            let gate = gate(HOSTS, "");
            let mut client = ask(&gate, &origin, version);
            let mut answer = client.read_until("hello");
            go.send(()).unwrap();
            let (rest, end) = client.read_to_end();
            answer.push_str(&rest);
            check_broken((answer, end), &format!("{case}, to HTTP/{version}"));
        }
    }
}

#[test]
fn an_origin_that_breaks_off_at_once_is_seen_too() {
    for begun in [
        "Content-Length: 10\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ] {
        let origin = ScriptedOrigin::start(move |connection| {
            connection.read_head();
            connection.send(format!("HTTP/1.1 200 OK\r\n{begun}"));
        });
        let gate = gate(HOSTS, "");
        let (answer, end) = ask(&gate, &origin, "1.1").read_to_end();
        // The bytes before the end may not have been forwarded yet.
        if !answer.is_empty() {
            check_broken((answer, end), begun);
        }
    }
}

#[test]
fn an_origin_that_closes_before_its_response_is_reported_with_the_cause() {
    let closed = Refused {
        status: 502,
        reason: "upstream_protocol",
        error: "connection_terminated",
        code: Some(700),
    };
    for (begun, resets) in [
        ("", false),
        ("", true),
        ("HTTP/1.1 200 OK\r\nContent-Le", false),
    ] {
        let origin = ScriptedOrigin::start(move |connection| {
            connection.read_head();
            connection.send(begun);
            if resets {
                connection.reset_on_close();
            }
        });
        let gate = gate(HOSTS, "");
        check_refused(
            &get(gate.proxy, &origin.url("a.test", "/")),
            closed,
            &format!("{begun:?} {resets}"),
        );
        // The connection was new: the origin may have acted on the request.
        assert_eq!(origin.requests().len(), 1, "{begun:?} {resets}");
    }
}

/// A proxy that logs its decisions.
fn logging_gate() -> TestProxy {
    TestProxy::start(CONFIG, POLICY)
}

#[test]
fn a_body_that_is_broken_in_the_first_packet_is_refused() {
    let broken = Refused {
        status: 502,
        reason: "upstream_protocol",
        error: "http_response_incomplete",
        code: None,
    };
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let extension = format!("5;{}\r\nhello\r\n", "x".repeat(20_000));
    for (case, body) in [
        ("no size", "zz\r\nhello\r\n"),
        ("a negative size", "-5\r\nhello\r\n"),
        ("a size that overflows", "10000000000000000\r\nhello\r\n"),
        ("a long extension", &extension),
    ] {
        let response = format!("{chunked}{body}");
        let origin = ScriptedOrigin::start(move |connection| {
            connection.read_head();
            connection.send(&response);
            connection.wait_for_close();
        });
        let gate = logging_gate();
        check_refused(&get(gate.proxy, &origin.url("a.test", "/")), broken, case);
        let line = &gate.decisions(1)[0];
        assert_eq!(line["sent_status"], 502, "{case}: {line}");
        assert_eq!(line["reason"], "upstream_protocol", "{case}: {line}");
        assert_eq!(line["origin_status"], 200, "{case}: {line}");
        assert_eq!(line["error"], "http_response_incomplete", "{case}: {line}");
    }
}

#[test]
fn what_arrived_before_a_broken_part_is_sent() {
    let origin = ScriptedOrigin::start(|connection| {
        connection.read_head();
        connection
            .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n");
        connection.wait_for_close();
    });
    let gate = logging_gate();
    let (answer, end) = ask(&gate, &origin, "1.1").read_to_end();
    check_broken((answer, end), "a bad second chunk");
    let line = &gate.decisions(1)[0];
    assert_eq!(line["sent_status"], 200, "{line}");
    assert_eq!(line["bytes"], 5, "{line}");
    assert_eq!(line["error"], "http_response_incomplete", "{line}");
}

#[test]
fn a_response_is_sent_before_its_body_begins() {
    let (go, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    let origin = ScriptedOrigin::start(move |connection| {
        connection.read_head();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
        let _ = wait.lock().unwrap().recv();
        connection.send("hello");
    });
    let gate = gate(HOSTS, "");
    let mut client = ask(&gate, &origin, "1.1");
    assert!(client.read_head().starts_with("HTTP/1.1 200"));
    go.send(()).unwrap();
    assert_eq!(client.read_bytes(5), b"hello");
}
