//! Streams that an origin has not processed are sent once more, after another turn of their host.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::origin_tls::certs::Authority;
use crate::origin_tls::origin::text_response;
use crate::support::client::{RawClient, get};
use crate::support::http2_origin::{FramePeer, frame, kind, with_protocols};
use crate::support::origin::ScriptedOrigin;

use super::{failures, frame_origin, gate, gate_with};

const REFUSED_STREAM: u32 = 7;
const HTTP_1_1_REQUIRED: u32 = 13;

/// A GOAWAY without an error after this stream.
fn go_away(last: u32) -> Vec<u8> {
    let payload = [last.to_be_bytes(), 0_u32.to_be_bytes()].concat();
    frame(kind::GOAWAY, 0, 0, &payload)
}

fn reset(stream: u32, reason: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &reason.to_be_bytes())
}

#[test]
fn streams_after_the_last_one_of_goaway_are_sent_on_another_connection() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let origin = frame_origin(&ours, |number, mut peer: FramePeer| {
        if number > 0 {
            return peer.serve("again");
        }
        let first = peer.read_request().unwrap();
        peer.respond(first, "first");
        let kept = peer.read_request().unwrap();
        let refused = peer.read_request().unwrap();
        assert!(kept < refused);
        peer.send(&go_away(kept));
        // The stream up to which the origin has processed goes on.
        std::thread::sleep(Duration::from_millis(200));
        peer.respond(kept, "kept");
        assert!(peer.read_kind(kind::HEADERS).is_none(), "no more requests");
    });
    let url = origin.https_url("a.test", "/");
    assert_eq!(get(gate.proxy, &url).body, "first");
    let mut kept = RawClient::connect(gate.proxy);
    kept.send_get(&url, "");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(get(gate.proxy, &url).body, "again");
    assert_eq!(kept.read_response().body, "kept");
    assert_eq!(get(gate.proxy, &url).body, "again");
    assert_eq!((origin.connections(), failures(&gate, "go_away")), (2, 1));
}

#[test]
fn a_refused_stream_is_sent_once_more() {
    let ours = Authority::new();
    let gate = gate_with(&ours, "{ delay: 300ms, jitter: none, concurrency: 10 }", "");
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    let refusals = Arc::new(AtomicUsize::new(0));
    let left = Arc::clone(&refusals);
    let origin = frame_origin(&ours, move |_, mut peer: FramePeer| {
        while let Some(stream) = peer.read_request() {
            seen.lock().unwrap().push(Instant::now());
            let refuses = left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .is_ok();
            if refuses {
                peer.send(&reset(stream, REFUSED_STREAM));
            } else {
                peer.respond(stream, "ok");
            }
        }
    });
    let url = origin.https_url("a.test", "/");
    refusals.store(1, Ordering::SeqCst);
    assert_eq!(get(gate.proxy, &url).body, "ok");
    assert_eq!(requests.lock().unwrap().len(), 2);
    refusals.store(2, Ordering::SeqCst);
    let answer = get(gate.proxy, &url);
    assert_eq!(answer.status, 502, "{answer}");
    assert!(
        answer
            .value("proxy-status")
            .contains("error=connection_terminated"),
        "{answer}"
    );
    let requests = requests.lock().unwrap();
    assert_eq!(requests.len(), 4, "never more than twice");
    for pair in requests.windows(2) {
        let gap = pair[1] - pair[0];
        assert!(gap >= Duration::from_millis(270), "{gap:?}");
    }
    assert_eq!(origin.connections(), 1);
    assert_eq!(failures(&gate, "refused_stream"), 3);
}

#[test]
fn an_upload_that_has_begun_is_not_sent_again() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let origin = frame_origin(&ours, |_, mut peer: FramePeer| {
        while let Some(stream) = peer.read_request() {
            peer.send(&reset(stream, REFUSED_STREAM));
        }
    });
    let mut client = RawClient::connect(gate.proxy);
    let url = origin.https_url("a.test", "/");
    let head = format!("POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
    let answer = client.request(head.replace("Host: x", &format!("Host: a.test:{}", origin.port)));
    assert_eq!(answer.status, 502, "{answer}");
    assert_eq!(failures(&gate, "refused_stream"), 1);
}

#[test]
fn an_origin_that_requires_http1_gets_it() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let server = ours.server(&["a.test"]);
    let both = with_protocols(&server, &["h2", "http/1.1"]);
    let origin = ScriptedOrigin::start(move |connection| {
        let Some(mut stream) = connection.accept_tls(&both) else {
            return;
        };
        if stream.conn.alpn_protocol() != Some(b"h2") {
            return connection.serve_stream(&mut stream, &|_: &str| text_response("one"));
        }
        let mut peer = FramePeer::accept(stream, &[]).unwrap();
        while let Some(stream) = peer.read_request() {
            peer.send(&reset(stream, HTTP_1_1_REQUIRED));
        }
    });
    let url = origin.https_url("a.test", "/");
    for _ in 0..3 {
        assert_eq!(get(gate.proxy, &url).body, "one");
    }
    assert_eq!(failures(&gate, "http_1_1_required"), 1);
    assert_eq!(origin.connections(), 2);
}

/// An idle connection that the origin closes, without GOAWAY, as the request is written.
#[test]
fn an_idempotent_request_survives_the_end_of_an_idle_connection() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let origin = frame_origin(&ours, |number, mut peer: FramePeer| {
        let stream = peer.read_request().unwrap();
        peer.respond(stream, "first");
        if number > 0 {
            return peer.serve("again");
        }
        peer.read_request();
    });
    let url = origin.https_url("a.test", "/");
    assert_eq!(get(gate.proxy, &url).body, "first");
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(get(gate.proxy, &url).body, "first");
    assert_eq!(get(gate.proxy, &url).body, "again");
    assert_eq!((origin.connections(), failures(&gate, "closed")), (2, 1));
}
