//! `Connection: close` wherever the proxy closes the connection after a response, and only there
//! (RFC 9112 section 9.6).

use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

use super::{config, gate, with_rule};
use crate::support::client::{RawClient, Response};
use crate::support::origin::{OK, ScriptedOrigin};
use crate::support::proxy::TestProxy;

const HOSTS: &str = "{ a.test: 127.0.0.1 }";

/// A POST with this body, or a part of it, of this length.
fn post(url: &str, fields: &str, length: usize, body: &str) -> String {
    let host = url.split('/').nth(2).unwrap();
    format!("POST {url} HTTP/1.1\r\nHost: {host}\r\n{fields}Content-Length: {length}\r\n\r\n{body}")
}

/// Asserts that a response announces the end of its connection, and that it ends.
#[track_caller]
fn check_closed(client: &mut RawClient, response: &Response, case: &str) {
    assert_eq!(
        response.values("connection"),
        ["close"],
        "{case}: {response}"
    );
    // The rest is discarded, or the connection is reset.
    assert!(client.try_read_response().is_none(), "{case}");
}

/// Asserts that a response announces nothing, and that the connection can be used again.
#[track_caller]
fn check_kept(client: &mut RawClient, response: &Response, url: &str, case: &str) {
    assert!(
        response.values("connection").is_empty(),
        "{case}: {response}"
    );
    assert_eq!(client.get(url).status, 200, "{case}");
}

#[test]
fn a_refusal_of_an_unread_body_says_that_the_connection_closes() {
    let origin = ScriptedOrigin::ok();
    let gate = TestProxy::start(
        &config(
            &format!("  allow_loopback: true\n  hosts: {HOSTS}"),
            "limits: { request_body: 1MiB }\ntimeouts: { body_idle: 200ms }",
        ),
        &with_rule("path: /no"),
    );
    let no = origin.url("a.test", "/no");
    let yes = origin.url("a.test", "/yes");
    let send = |request: String| {
        let mut client = RawClient::connect(gate.proxy);
        let _ = client.socket.write_all(request.as_bytes());
        let response = client.read_response();
        (client, response)
    };
    // A small body is read, so that the connection stays.
    let (mut client, response) = send(post(&no, "", 5, "hello"));
    response.check(451, &["crawl-rule: only"]);
    check_kept(&mut client, &response, &yes, "a small body");
    for (case, request, status) in [
        (
            "a large body",
            post(&no, "", 80_000, &"x".repeat(80_000)),
            451,
        ),
        (
            "an expected body",
            post(&no, "Expect: 100-continue\r\n", 5, ""),
            451,
        ),
        ("a body over the limit", post(&yes, "", 2 << 20, ""), 413),
        ("a silent body", post(&yes, "", 10, "hello"), 408),
        (
            "a silent large body",
            post(&yes, "", 80_000, &"x".repeat(20_000)),
            408,
        ),
    ] {
        let (mut client, response) = send(request);
        response.check(status, &[]);
        check_closed(&mut client, &response, case);
    }
}

#[test]
fn an_early_response_says_that_the_connection_closes() {
    // Answers before it reads the body.
    let origin = ScriptedOrigin::start(|connection| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if std::io::Read::read_exact(&mut connection.socket, &mut byte).is_err() {
                return;
            }
            head.push(byte[0]);
        }
        connection.send(OK);
        sleep(Duration::from_millis(300));
    });
    let gate = gate(HOSTS, "");
    let url = origin.url("a.test", "/");
    let mut client = RawClient::connect(gate.proxy);
    client.send(post(&url, "", 200_000, &"x".repeat(30_000)));
    let response = client.read_response();
    response.check(200, &["ok"]);
    check_closed(&mut client, &response, "an early response");
}

#[test]
fn http_1_0_connections_stay_only_if_the_length_is_known() {
    let origin = ScriptedOrigin::respond(|request| match request.path() {
        "/chunks" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        _ => OK,
    });
    let gate = gate(HOSTS, "");
    let ask = |path: &str, fields: &str| {
        let mut client = RawClient::connect(gate.proxy);
        let response = client.request(format!(
            "GET {} HTTP/1.0\r\nHost: a.test:{}\r\n{fields}\r\n",
            origin.url("a.test", path),
            origin.port
        ));
        (client, response)
    };
    let keep = "Connection: keep-alive\r\n";
    let (mut client, response) = ask("/", keep);
    assert_eq!(response.values("connection"), ["keep-alive"], "{response}");
    assert_eq!(client.get(&origin.url("a.test", "/")).status, 200);
    for (path, fields) in [
        ("/chunks", keep),
        ("/chunks", ""),
        ("/", "Connection: keep-alive, upgrade\r\nUpgrade: x\r\n"),
    ] {
        let (mut client, response) = ask(path, fields);
        assert_eq!(response.status, 200, "{path} {fields}: {response}");
        let close = response.values("connection");
        assert_eq!(close, ["close"], "{path} {fields}: {response}");
        let mut rest = client.read_rest();
        rest.insert_str(0, &response.body);
        assert_eq!(rest, "ok", "{path} {fields}");
    }
}
