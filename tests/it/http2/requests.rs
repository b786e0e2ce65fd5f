//! Requests on streams, which are like requests on HTTP/1 connections.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use h2::Reason;
use http::Request;

use crate::support::http2::{
    DATA, GOAWAY, Http2Client, PING, RawFrame, RawHttp2, field_section, frame,
};
use crate::support::origin::{ScriptedOrigin, response};
use crate::support::proxy::TestProxy;
use crate::support::wait::wait_until_async;

use super::{POLICY, config, gate};

fn text_origin() -> ScriptedOrigin {
    ScriptedOrigin::respond(|_| response(200, "Content-Type: text/plain\r\n", "ok"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_that_of_http_1() {
    let (gate, origin) = (gate(), text_origin());
    let client = Http2Client::connect(gate.proxy).await;
    let url = origin.url("a.test", "/page?q");
    let fields = [("cookie", "a=1"), ("accept", "*/*"), ("cookie", "b=2")];
    let answer = client.get(&url, &fields).await;
    assert_eq!((answer.status, &*answer.body), (200, "ok"), "{answer:?}");
    assert_eq!(answer.value("crawl-status"), "ACCEPTED");
    for name in ["connection", "transfer-encoding", "keep-alive"] {
        assert!(!answer.fields.contains_key(name), "{answer:?}");
    }
    assert!(answer.fields.contains_key("date"));
    let head = origin.heads().remove(0).to_ascii_lowercase();
    let host = format!("\r\nhost: a.test:{}\r\n", origin.port);
    for part in [
        "get /page?q http/1.1\r\n",
        &host,
        "\r\ncookie: a=1; b=2\r\n",
        "\r\nvia: 2.0 ",
    ] {
        assert!(head.contains(part), "{part} in {head}");
    }
    // A refusal ends its stream and not the connection.
    let refused = client.get(&origin.url("a.test", "/private"), &[]).await;
    assert_eq!(refused.status, 451);
    assert_eq!(refused.value("crawl-rule"), "private");
    assert!(
        refused
            .value("proxy-status")
            .contains("http_request_denied")
    );
    assert!(
        refused
            .body
            .contains("\"instance\":\"urn:crawlgate:decision:")
    );
    assert_eq!(client.get(&url, &[]).await.status, 200);
    let reasons = gate.decisions(3);
    assert_eq!(reasons[1]["rule"], "private");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_go_both_ways() {
    let origin = ScriptedOrigin::start(|connection| {
        while let Some(request) = connection.read_request() {
            let body = vec![b'x'; 300_000];
            let fields = format!("X-Received: {}\r\n", request.body.len());
            connection.send(response(200, &fields, body));
        }
    });
    let gate = gate();
    let client = Http2Client::connect(gate.proxy).await;
    let answer = client.get(&origin.url("a.test", "/"), &[]).await;
    assert_eq!(answer.body.len(), 300_000);
    let request = Request::post(origin.url("a.test", "/")).header("content-length", 200_000);
    let request = request.body(()).unwrap();
    let (answer, mut sender) = client.0.clone().send_request(request, false).unwrap();
    sender.send_data(vec![b'y'; 200_000].into(), true).unwrap();
    let answer = answer.await.unwrap();
    assert_eq!(answer.headers()["x-received"], "200000");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_head_reader_refuses_is_refused() {
    let gate = gate();
    let client = Http2Client::connect(gate.proxy).await;
    let long = format!("http://a.test/{}", "a".repeat(9_000));
    let large = "a".repeat(17_000);
    for (url, fields, status, reason) in [
        (
            "http://a.test/",
            &[("host", "b.test")][..],
            421,
            "host_mismatch",
        ),
        ("http://u:p@a.test/", &[], 400, "bad_request"),
        (&long, &[], 414, "request_too_large"),
        (
            "http://a.test/",
            &[("a", &large), ("b", &large)],
            431,
            "headers_too_large",
        ),
        ("http://a.test/", &[("a", "b ")], 400, "bad_request"),
        ("ftp://a.test/", &[], 403, "scheme_denied"),
        (
            "http://a.test/",
            &[("user-agent", "a"), ("user-agent", "b")],
            400,
            "bad_request",
        ),
    ] {
        let answer = client.get(url, fields).await;
        let found = (answer.status, answer.value("crawl-reason"));
        let start = &url[..20.min(url.len())];
        assert_eq!(
            found,
            (status, reason),
            "{start} with {} fields",
            fields.len()
        );
    }
    // The name of the authority may be spelled differently.
    let answer = client
        .get("http://refused.test/", &[("host", "REFUSED.test:80")])
        .await;
    assert_eq!((answer.status, answer.value("crawl-reason")), (451, "rule"));
}

/// Violations of RFC 9113 that `h2` answers with an error of the stream.
#[test]
fn malformed_requests_are_errors_of_their_streams() {
    let gate = gate();
    let sound = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "refused.test"),
        (":path", "/"),
    ];
    let with = |fields: &[(&'static str, &'static str)]| [&sound[..], fields].concat();
    let mut client = RawHttp2::connect(gate.proxy);
    let cases = [
        with(&[("connection", "close")]),
        with(&[("transfer-encoding", "chunked")]),
        with(&[("te", "gzip")]),
        with(&[(":path", "/again")]),
        with(&[("a", "b"), (":method", "GET")]),
        sound[1..].to_vec(),
        with(&[("content-length", "5")]),
    ];
    for (number, fields) in (0_u32..).zip(&cases) {
        client.send(&frame(1, 0x5, 2 * number + 1, &field_section(fields)));
        let reset = client.read_until(3);
        assert_eq!(reset.stream, 2 * number + 1, "{fields:?}");
        assert_eq!(reset.payload, [0, 0, 0, 1], "{fields:?}");
    }
    // The connection is still in use.
    client.send(&frame(1, 0x5, 101, &field_section(&sound)));
    assert_eq!(client.read_until(1).stream, 101);
    let series = "crawlgate_http2_errors_total{code=\"protocol_error\",scope=\"stream\"}";
    assert_eq!(gate.counter(series), cases.len() as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_stream_leaves_the_queue_at_once() {
    let origin = text_origin();
    let policy = POLICY.replace("delay: 0s, concurrency: 100", "delay: 15s");
    let gate = TestProxy::start(&config("", ""), &policy);
    let client = Http2Client::connect(gate.proxy).await;
    assert_eq!(
        client.get(&origin.url("a.test", "/0"), &[]).await.status,
        200
    );
    let held = |count: u32| format!("crawlgate_held_requests {count}");
    let mut waiting = Vec::new();
    for number in 1..=6 {
        let url = origin.url("a.test", &format!("/{number}"));
        let request = Request::get(url).body(()).unwrap();
        let (answer, stream) = client.0.clone().send_request(request, true).unwrap();
        waiting.push((answer, stream));
    }
    let gate = std::sync::Arc::new(gate);
    let is_held = |count: u32| {
        let gate = std::sync::Arc::clone(&gate);
        move || gate.admin("GET /metrics").body.contains(&held(count))
    };
    wait_until_async("six requests wait", is_held(6)).await;
    for (_, stream) in waiting.iter_mut().take(4) {
        stream.send_reset(Reason::CANCEL);
    }
    wait_until_async("two requests wait", is_held(2)).await;
    drop((waiting, client));
    wait_until_async("none waits after the connection has closed", is_held(0)).await;
    assert_eq!(origin.paths(), ["/0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_held_streams_the_fifty_that_are_reset_are_not_fetched() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let origin = ScriptedOrigin::respond(move |request| {
        if request.path() == "/0" {
            // Fails when the sender is dropped.
            let _ = released.lock().unwrap().recv();
        }
        response(200, "", "ok")
    });
    let policy = POLICY.replace("concurrency: 100", "concurrency: 1");
    let gate = Arc::new(TestProxy::start(&config("", ""), &policy));
    let are_held = |count: f64| {
        let gate = Arc::clone(&gate);
        move || gate.metric("crawlgate_held_requests") == count
    };
    let blocking = Http2Client::connect(gate.proxy).await;
    let url = origin.url("a.test", "/0");
    let first = tokio::spawn(async move { blocking.get(&url, &[]).await.status });
    let blocked = origin.clone();
    wait_until_async("the host is busy", move || blocked.paths() == ["/0"]).await;

    let client = Http2Client::connect(gate.proxy).await;
    let mut streams = Vec::new();
    for number in 1..=100 {
        let url = origin.url("a.test", &format!("/{number}"));
        let request = Request::get(url).body(()).unwrap();
        streams.push(client.0.clone().send_request(request, true).unwrap());
    }
    wait_until_async("100 requests wait", are_held(100.0)).await;
    for (_, stream) in streams.iter_mut().step_by(2) {
        stream.send_reset(Reason::CANCEL);
    }
    wait_until_async("50 requests wait", are_held(50.0)).await;

    drop(release);
    assert_eq!(first.await.unwrap(), 200);
    let others = streams.into_iter().skip(1).step_by(2);
    for (answer, _stream) in others {
        assert_eq!(answer.await.unwrap().status(), 200);
    }
    let mut paths = origin.paths();
    let mut expected: Vec<String> = (0..=100).step_by(2).map(|n| format!("/{n}")).collect();
    paths.sort();
    expected.sort();
    assert_eq!(paths, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_has_as_many_streams_as_connections() {
    let origin = text_origin();
    let policy = POLICY.replace("delay: 0s, concurrency: 100", "delay: 15s");
    let more = "limits: { per_client: 3 }";
    let gate = TestProxy::start(&config("", more), &policy);
    let client = Http2Client::connect(gate.proxy).await;
    assert_eq!(
        client.get(&origin.url("a.test", "/0"), &[]).await.status,
        200
    );
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let request = Request::get(origin.url("a.test", "/1")).body(()).unwrap();
        waiting.push(client.0.clone().send_request(request, true).unwrap());
    }
    let refused = client.get(&origin.url("b.test", "/"), &[]).await;
    assert_eq!(
        (refused.status, refused.value("crawl-reason")),
        (503, "overloaded")
    );
    assert_eq!(refused.value("retry-after"), "5");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_lets_streams_finish() {
    let origin = ScriptedOrigin::respond(|_| {
        std::thread::sleep(Duration::from_millis(300));
        response(200, "", "late")
    });
    let mut gate = gate();
    let client = Http2Client::connect(gate.proxy).await;
    let url = origin.url("a.test", "/");
    let answer = tokio::spawn({
        let (client, url) = (client.clone(), url.clone());
        async move { client.get(&url, &[]).await }
    });
    tokio::task::block_in_place(|| origin.wait_for_text("\r\n\r\n"));
    gate.signal("TERM");
    assert_eq!(answer.await.unwrap().body, "late");
    let request = Request::get(&url).body(()).unwrap();
    let error = client.send(request).await.unwrap_err();
    assert!(error.is_go_away() || error.is_io(), "{error:?}");
    let exit = tokio::task::block_in_place(|| gate.exit_within(Duration::from_secs(10)));
    assert_eq!(exit, Some(0));
}

/// Returns the frames that a client gets if the proxy is told to end while the origin takes this time to answer.
fn frames_at_shutdown(delay: Duration) -> Vec<RawFrame> {
    let origin = ScriptedOrigin::respond(move |_| {
        std::thread::sleep(delay);
        response(200, "", "late")
    });
    let mut gate = gate();
    let mut client = RawHttp2::connect(gate.proxy);
    let url = origin.url("a.test", "/");
    let authority = url.split('/').nth(2).unwrap();
    let head = field_section(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", authority),
        (":path", "/"),
    ]);
    client.send(&frame(1, 0x5, 1, &head));
    origin.wait_for_text("\r\n\r\n");
    gate.signal("TERM");
    let mut frames = Vec::new();
    while let Some(received) = client.read_frame() {
        if received.kind == PING {
            client.send(&frame(PING, 1, 0, &received.payload));
        }
        frames.push(received);
    }
    assert_eq!(gate.exit_within(Duration::from_secs(10)), Some(0));
    frames
}

/// Python's `h2` accepts no frame after a GOAWAY.
#[test]
fn a_shutdown_waits_a_while_for_the_end_of_streams() {
    let frames = frames_at_shutdown(Duration::from_millis(200));
    let position = |kind| frames.iter().position(|frame| frame.kind == kind);
    assert!(position(DATA).is_some(), "{frames:?}");
    assert!(position(DATA) < position(GOAWAY), "{frames:?}");
    assert_eq!(position(PING), None, "{frames:?}");
    assert_eq!(frames.last().map(|frame| frame.kind), Some(GOAWAY));
}

#[test]
fn a_shutdown_announces_itself_to_a_connection_that_stays_busy() {
    let frames = frames_at_shutdown(Duration::from_millis(2_500));
    let position = |kind| frames.iter().position(|frame| frame.kind == kind);
    assert!(position(GOAWAY).is_some(), "{frames:?}");
    assert!(position(GOAWAY) < position(DATA), "{frames:?}");
    let last = frames.iter().rfind(|frame| frame.kind == DATA);
    assert_eq!(
        last.map(|frame| frame.payload.as_slice()),
        Some(&b"late"[..])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn http_1_is_served_beside_prior_knowledge() {
    let (gate, origin) = (gate(), text_origin());
    let answer = crate::support::client::get(gate.proxy, &origin.url("a.test", "/"));
    assert_eq!(answer.status, 200);
    // Without the option the preface is another protocol.
    let strict = TestProxy::start(
        &config("", "").replace("prior_knowledge: true", "streams: 10"),
        POLICY,
    );
    let mut raw = RawHttp2::connect(strict.proxy);
    assert!(raw.read_frame().is_none());
    let series = "crawlgate_foreign_bytes_total{reason=\"http2_preface\"}";
    assert_eq!(strict.counter(series), 1);
}
