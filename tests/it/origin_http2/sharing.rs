//! The version that is used, and the sharing of connections between requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::Duration;

use crate::origin_tls::certs::Authority;
use crate::origin_tls::origin::text_response;
use crate::support::client::{RawClient, get, get_with};
use crate::support::http2_origin::{FramePeer, Http2Origin, Http2Reply, with_protocols};
use crate::support::origin::ScriptedOrigin;
use crate::support::wait::wait_until;

use super::{frame_origin, gate};

#[test]
fn an_origin_gets_a_request_of_http2_and_the_client_a_response_of_http1() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let origin = Http2Origin::start(&ours.server(&["a.test"]), |_| Http2Reply {
        interim: 2,
        trailers: true,
        chunked: true,
        fields: vec![
            ("content-type", "text/plain".to_owned()),
            ("alt-svc", "h3=\":443\"".to_owned()),
            ("crawl-rule", "forged".to_owned()),
        ],
        ..Http2Reply::text("a page")
    });
    let url = origin.url("a.test", "/a?b=%2f");
    let fields = "User-Agent: x\r\nX-Field: 1\r\nConnection: X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\n";
    let answer = get_with(gate.proxy, &url, fields);
    assert_eq!(answer.status, 200, "{answer}");
    assert_eq!(answer.body, "6\r\na page\r\n0\r\n\r\n", "{answer}");
    assert!(
        answer.value("via").starts_with("2.0 crawlgate-"),
        "{answer}"
    );
    assert_eq!(answer.value("transfer-encoding"), "chunked");
    for removed in ["alt-svc", "crawl-rule", "x-trailer", "trailer"] {
        assert_eq!(answer.field(removed), None, "{answer}");
    }
    let request = origin.log().requests.remove(0);
    assert_eq!(request.uri.to_string(), url);
    assert_eq!(request.headers["x-field"], "1");
    for removed in ["host", "connection", "x-hop", "te", "proxy-connection"] {
        assert!(!request.headers.contains_key(removed), "{request:?}");
    }
    let line = gate.decisions(1).remove(0);
    assert_eq!(line["origin_http"], "2", "{line}");
    assert_eq!(
        gate.counter("crawlgate_upstream_http2_connections_total"),
        1
    );
}

#[test]
fn the_option_decides_for_each_request() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let server = ours.server(&["a.test"]);
    let (both, page) = (with_protocols(&server, &["h2", "http/1.1"]), |_: &str| {
        text_response("one")
    });
    let origin = ScriptedOrigin::start(move |connection| {
        let Some(mut stream) = connection.accept_tls(&both) else {
            return;
        };
        if stream.conn.alpn_protocol() == Some(b"h2") {
            FramePeer::accept(stream, &[]).unwrap().serve("two");
        } else {
            connection.serve_stream(&mut stream, &page);
        }
    });
    for _ in 0..2 {
        for (path, body) in [
            ("/", "two"),
            ("/one", "one"),
            ("/two", "two"),
            ("/client", "one"),
        ] {
            let answer = get(gate.proxy, &origin.https_url("a.test", path));
            assert_eq!((answer.status, &*answer.body), (200, body), "{path}");
        }
    }
    let protocols: Vec<_> = origin
        .connection_logs()
        .into_iter()
        .map(|connection| connection.protocol.unwrap())
        .collect();
    assert_eq!(protocols, [b"h2".to_vec(), b"http/1.1".to_vec()]);
    let versions: Vec<_> = gate
        .decisions(8)
        .iter()
        .take(4)
        .map(|line| line["origin_http"].as_str().map(str::to_owned))
        .collect();
    let two = Some("2".to_owned());
    assert_eq!(versions, [two.clone(), None, two, None]);
}

/// An origin without HTTP/2 works as before.
#[test]
fn an_origin_that_selects_http1_gets_it() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let server = ours.server(&["a.test"]);
    for protocols in [&["http/1.1"][..], &[]] {
        let origin =
            ScriptedOrigin::tls(with_protocols(&server, protocols), |_| text_response("one"));
        assert_eq!(
            get(gate.proxy, &origin.https_url("a.test", "/")).body,
            "one"
        );
    }
    assert_eq!(
        gate.counter("crawlgate_upstream_http2_connections_total"),
        0
    );
}

#[test]
fn requests_at_once_share_a_connection() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let origin = Http2Origin::start(&ours.server(&["a.test", "b.test"]), |request| Http2Reply {
        delay: Duration::from_millis(if request.uri.path() == "/first" {
            0
        } else {
            100
        }),
        ..Http2Reply::text(request.uri.path())
    });
    let burst = |hosts: &[&str]| {
        scope(|scope| {
            for number in 0..20 {
                let path = format!("/{number}");
                let url = origin.url(hosts[number % hosts.len()], &path);
                let proxy = gate.proxy;
                scope.spawn(move || assert_eq!(get(proxy, &url).body, path));
            }
        });
    };
    assert_eq!(
        get(gate.proxy, &origin.url("a.test", "/first")).body,
        "/first"
    );
    burst(&["a.test"]);
    let log = origin.log();
    assert_eq!(log.connections, 1);
    assert!(log.most_open > 5, "{}", log.most_open);
    // Another host with the same address and certificate has connections of its own.
    assert_eq!(
        get(gate.proxy, &origin.url("b.test", "/first")).body,
        "/first"
    );
    burst(&["a.test", "b.test"]);
    let log = origin.log();
    assert_eq!(log.connections, 2);
    for request in &log.requests {
        assert_eq!(
            request.connection,
            usize::from(request.uri.host() == Some("b.test"))
        );
    }
}

/// After the end of its connection, it is still known that an origin speaks HTTP/2: one dial is enough for all.
#[test]
fn requests_wait_for_one_dial_to_an_origin_that_is_known() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let origin = frame_origin(&ours, |number, mut peer| {
        if number > 0 {
            return peer.serve("again");
        }
        let stream = peer.read_request().unwrap();
        peer.respond(stream, "first");
        peer.close();
    });
    let url = origin.https_url("a.test", "/");
    assert_eq!(get(gate.proxy, &url).body, "first");
    wait_until("the connection has ended", || {
        origin.ended_connections() == 1
    });
    scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| assert_eq!(get(gate.proxy, &url).body, "again"));
        }
    });
    assert_eq!(origin.connections(), 2);
}

#[test]
fn an_origin_may_change_its_version() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let server = ours.server(&["a.test"]);
    let two = with_protocols(&server, &["h2"]);
    let one = with_protocols(&server, &["http/1.1"]);
    let speaks_two = Arc::new(AtomicBool::new(true));
    let selects_two = Arc::clone(&speaks_two);
    let origin = ScriptedOrigin::start(move |connection| {
        if selects_two.load(Ordering::SeqCst) {
            let stream = connection.accept_tls(&two).unwrap();
            let mut peer = FramePeer::accept(stream, &[]).unwrap();
            let stream = peer.read_request().unwrap();
            peer.respond(stream, "two");
            peer.close();
        } else {
            connection.serve_tls(&one, &|_: &str| text_response("one"));
        }
    });
    let url = origin.https_url("a.test", "/");
    for round in 0..3 {
        let is_two = round % 2 == 0;
        speaks_two.store(is_two, Ordering::SeqCst);
        let expected = if is_two { "two" } else { "one" };
        scope(|scope| {
            for _ in 0..if is_two { 1 } else { 6 } {
                scope.spawn(|| assert_eq!(get(gate.proxy, &url).body, expected));
            }
        });
        if is_two {
            wait_until("the connection has ended", || {
                origin.ended_connections() == origin.connections()
            });
        } else {
            // The pool has HTTP/1 connections, which serve requests that may use HTTP/2.
            gate.signal("HUP");
            assert_eq!(get(gate.proxy, &url).body, "one");
            return;
        }
    }
}

/// The client of one stream leaves; the other streams of the connection go on.
#[test]
fn a_client_that_leaves_resets_its_stream_only() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let origin = Http2Origin::start(&ours.server(&["a.test"]), |request| {
        let slow = Http2Reply {
            body: vec![b"x".to_vec(); 20],
            chunked: true,
            pause: Duration::from_millis(50),
            ..Http2Reply::text("")
        };
        match request.uri.path() {
            "/slow" => slow,
            "/silent" => Http2Reply {
                delay: Duration::from_secs(60),
                ..slow
            },
            "/endless" => Http2Reply {
                pause: Duration::from_secs(60),
                ..slow
            },
            _ => Http2Reply::text("ok"),
        }
    });
    assert_eq!(get(gate.proxy, &origin.url("a.test", "/")).body, "ok");
    let mut slow = RawClient::connect(gate.proxy);
    slow.send_get(&origin.url("a.test", "/slow"), "Connection: close\r\n");
    for (path, expected) in [("/silent", 1), ("/endless", 2)] {
        let mut leaving = RawClient::connect(gate.proxy);
        leaving.send_get(&origin.url("a.test", path), "");
        wait_until("the origin has the request", || {
            let log = origin.log();
            log.requests
                .iter()
                .any(|request| request.uri.path() == path)
        });
        if path == "/endless" {
            leaving.read_head();
        }
        drop(leaving);
        wait_until("the stream is reset", || origin.log().resets == expected);
    }
    let rest = slow.read_rest();
    assert!(
        rest.contains("200 OK") && rest.ends_with("0\r\n\r\n"),
        "{rest}"
    );
    assert_eq!(get(gate.proxy, &origin.url("a.test", "/")).body, "ok");
    assert_eq!(origin.log().connections, 1);
}
