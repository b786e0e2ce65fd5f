//! Uploads of slow clients: they take a slot of their host late, and lose it if others wait.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use super::{Refused, check_refused, config, get, status};
use crate::support::client::RawClient;
use crate::support::origin::{OK, ScriptedOrigin};
use crate::support::proxy::TestProxy;
use crate::support::wait::wait_until;

/// A host takes one request at a time.
const POLICY: &str = "
policy: 1
name: uploads
options:
  disposition: allow
  robots: { obey: false }
  politeness: { delay: 0s, concurrency: 1, max_hold: 60s }
rules: [ { id: only, forbid: { path: /no } } ]
";

fn gate(more: &str) -> TestProxy {
    let egress = "  allow_loopback: true\n  hosts: { a.test: 127.0.0.1, b.test: 127.0.0.1 }";
    TestProxy::start(&config(egress, more), POLICY)
}

/// Begins a POST of this length.
fn begin_post(gate: &TestProxy, url: &str, fields: &str, length: usize) -> RawClient {
    let mut client = RawClient::connect(gate.proxy);
    let host = url.split('/').nth(2).unwrap();
    client.send(format!(
        "POST {url} HTTP/1.1\r\nHost: {host}\r\n{fields}Content-Length: {length}\r\n\r\n"
    ));
    client
}

#[test]
fn an_upload_takes_a_slot_after_its_beginning_has_arrived() {
    let origin = ScriptedOrigin::ok();
    let gate = gate("");
    let url = origin.url("a.test", "/");
    let mut small = begin_post(&gate, &url, "", 5);
    small.send("hell");
    let mut large = begin_post(&gate, &url, "", 20_000);
    large.send("x".repeat(16_000));
    let mut chunked = RawClient::connect(gate.proxy);
    chunked.send(format!(
        "POST {url} HTTP/1.1\r\nHost: a.test:{}\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhell\r\n",
        origin.port
    ));
    for _ in 0..3 {
        assert_eq!(status(&get(gate.proxy, &url)), 200);
    }
    assert_eq!(origin.requests().len(), 3);
    small.send("o");
    small.read_response().check(200, &[]);
    // The origin has the beginning of the body, and waits for the rest.
    large.send("x".repeat(1_000));
    wait_until("the origin has the request", || {
        origin.requests().len() == 5
    });
    large.send("x".repeat(3_000));
    large.read_response().check(200, &[]);
    let bodies: Vec<usize> = origin.requests().iter().map(|r| r.body.len()).collect();
    assert_eq!(bodies, [0, 0, 0, 5, 20_000]);
}

#[test]
fn permission_to_send_a_body_is_given_before_its_turn_and_not_to_a_refused_request() {
    let origin = ScriptedOrigin::ok();
    let gate = gate("");
    let expect = "Expect: 100-continue\r\n";
    let mut client = begin_post(&gate, &origin.url("a.test", "/"), expect, 5);
    assert_eq!(client.read_head(), "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(origin.requests().len(), 0);
    client.send("hello");
    client.read_response().check(200, &[]);
    let head = origin.heads().remove(0).to_ascii_lowercase();
    assert!(!head.contains("expect:"), "{head}");
    let mut refused = begin_post(&gate, &origin.url("a.test", "/no"), expect, 5);
    refused.read_response().check(451, &["connection: close"]);
}

#[test]
fn a_slow_upload_gives_up_its_slot_if_others_wait() {
    let slow = Refused {
        status: 408,
        reason: "request_timeout",
        error: "http_request_error",
        code: None,
    };
    let origin = ScriptedOrigin::ok();
    let gate = gate("");
    let url = origin.url("a.test", "/");
    let over = AtomicBool::new(false);
    let mut client = begin_post(&gate, &url, "", 1 << 20);
    client.send("x".repeat(20_000));
    wait_until("the origin has the request", || {
        origin.requests().len() == 1
    });
    scope(|scope| {
        let mut sender = &client.socket;
        let over = &over;
        scope.spawn(move || {
            while !over.load(Ordering::SeqCst) && sender.write_all(b"x").is_ok() {
                sleep(Duration::from_millis(50));
            }
        });
        let began = Instant::now();
        let victim = get(gate.proxy, &url);
        assert_eq!(status(&victim), 200, "{victim}");
        assert!(
            began.elapsed() < Duration::from_secs(13),
            "{:?}",
            began.elapsed()
        );
        over.store(true, Ordering::SeqCst);
    });
    let answer = client.read_rest();
    check_refused(&answer, slow, "a slow upload");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
}

#[test]
fn a_slow_upload_goes_on_if_nobody_waits_or_the_origin_is_slow() {
    // Reads nothing for longer than the pace is measured.
    let busy = ScriptedOrigin::start(|connection| {
        sleep(Duration::from_secs(11));
        while connection.read_head().is_some() {
            connection.send(OK);
        }
    });
    let idle = ScriptedOrigin::ok();
    let gate = gate("");
    let busy_url = busy.url("a.test", "/");
    let idle_url = idle.url("b.test", "/");
    scope(|scope| {
        scope.spawn(|| {
            // More than the socket buffers hold.
            let mut client = begin_post(&gate, &busy_url, "", 9 << 20);
            client.send("x".repeat(9 << 20));
            client.read_response().check(200, &[]);
        });
        scope.spawn(|| {
            wait_until("the upload is on its way", || busy.connections() == 1);
            assert_eq!(status(&get(gate.proxy, &busy_url)), 200);
        });
        let mut client = begin_post(&gate, &idle_url, "", 20_110);
        client.send("x".repeat(20_000));
        for _ in 0..110 {
            sleep(Duration::from_millis(100));
            client.send("x");
        }
        client.read_response().check(200, &[]);
    });
}
