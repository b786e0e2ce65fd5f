//! Origins that violate HTTP/2 or exceed its limits: each ends with a reason that is counted, and other hosts do not
//! notice.

use std::time::{Duration, Instant};

use crate::origin_tls::certs::Authority;
use crate::support::client::{RawClient, get};
use crate::support::http2_origin::{
    END_HEADERS, END_STREAM, FramePeer, Http2Origin, Http2Reply, STATUS_200, frame, kind,
};
use crate::support::wait::wait_until;

use super::{failures, frame_origin, gate, gate_with};

/// Sends bytes over and over until the other side closes.
fn flood(peer: &mut FramePeer, bytes: &[u8]) {
    let many = bytes.repeat(1 + (16 << 10) / bytes.len());
    while peer.send(&many).is_some() {}
}

/// A literal field without indexing, with a name of one byte.
fn field(value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 1, b'x'];
    // The length as an integer with a prefix of 7 bits.
    if value.len() < 127 {
        bytes.push(value.len() as u8);
    } else {
        bytes.push(127);
        let mut rest = value.len() - 127;
        while rest >= 128 {
            bytes.push((rest % 128 + 128) as u8);
            rest /= 128;
        }
        bytes.push(rest as u8);
    }
    bytes.extend_from_slice(value);
    bytes
}

#[test]
fn floods_end_with_a_counted_reason() {
    let ours = Authority::new();
    type Flood = (&'static str, fn() -> Vec<u8>);
    let cases: [Flood; 6] = [
        ("settings_flood", || frame(kind::SETTINGS, 0, 0, &[])),
        ("ping_flood", || frame(kind::PING, 0, 0, &[7; 8])),
        ("rst_stream_flood", || {
            frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8])
        }),
        ("window_update_flood", || {
            frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])
        }),
        ("other_flood", || frame(kind::PRIORITY, 0, 3, &[0; 5])),
        ("other_flood", || frame(77, 0, 0, b"grease")),
    ];
    for (reason, bytes) in cases {
        let gate = gate(&ours);
        let origin = frame_origin(&ours, move |_, mut peer: FramePeer| {
            let stream = peer.read_request().unwrap();
            // A stream whose response is complete, so that only the connection is left.
            if reason == "rst_stream_flood" {
                peer.respond(stream, "ok");
            }
            flood(&mut peer, &bytes());
        });
        let healthy = Http2Origin::start(&ours.server(&["b.test"]), |_| Http2Reply::text("ok"));
        let url = origin.https_url("a.test", "/");
        let began = Instant::now();
        let answer = get(gate.proxy, &url);
        if reason != "rst_stream_flood" {
            answer.check(502, &["upstream_protocol"]);
            assert!(
                answer.value("proxy-status").contains("http_protocol_error"),
                "{reason}: {answer}"
            );
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{reason}");
        wait_until(reason, || failures(&gate, reason) == 1);
        assert_eq!(get(gate.proxy, &healthy.url("b.test", "/")).body, "ok");
    }
}

/// Floods on the stream of a request.
#[test]
fn floods_on_a_stream_end_with_a_counted_reason() {
    let ours = Authority::new();
    // `:status: 103` as a literal with the indexed name of `:status`.
    let interim = frame(kind::HEADERS, END_HEADERS, 1, &[0x08, 3, b'1', b'0', b'3']);
    let empty = frame(kind::DATA, 0, 1, &[]);
    let continuation = frame(kind::CONTINUATION, 0, 1, &[]);
    let head = frame(kind::HEADERS, END_HEADERS, 1, STATUS_200);
    let open_head = frame(kind::HEADERS, 0, 1, STATUS_200);
    // Name, the beginning of the response, the flood, reasons.
    type Case = (&'static str, Vec<u8>, Vec<u8>, &'static [&'static str]);
    let cases: [Case; 4] = [
        (
            "interim responses",
            vec![],
            interim,
            &["interim", "headers_flood"],
        ),
        (
            "empty data",
            head.clone(),
            empty,
            &["empty_data_flood", "enhance_your_calm"],
        ),
        (
            "continuations",
            open_head,
            continuation,
            &["enhance_your_calm", "headers_flood"],
        ),
        (
            "tiny data",
            head,
            frame(kind::DATA, 0, 1, b"x"),
            &["enhance_your_calm"],
        ),
    ];
    for (case, begun, repeated, reasons) in cases {
        let gate = gate_with(
            &ours,
            "{ delay: 0s, concurrency: 100 }",
            "timeouts: { response_head: 3s, request: 4s }\n",
        );
        let origin = frame_origin(&ours, move |_, mut peer: FramePeer| {
            peer.read_request().unwrap();
            peer.send(&begun);
            flood(&mut peer, &repeated);
        });
        let mut client = RawClient::connect(gate.proxy);
        let began = Instant::now();
        client.send_get(&origin.https_url("a.test", "/"), "Connection: close\r\n");
        let (rest, _) = client.read_to_end();
        assert!(began.elapsed() < Duration::from_secs(10), "{case}");
        assert!(!rest.ends_with("0\r\n\r\n"), "{case}: {rest}");
        if case != "tiny data" {
            wait_until(case, || {
                reasons.iter().any(|reason| failures(&gate, reason) > 0)
            });
        }
    }
}

#[test]
fn violations_of_the_protocol_end_with_a_counted_reason() {
    let ours = Authority::new();
    let large = field(&[b'v'; 16_000]);
    let bomb = {
        // One large field with indexing, and then references to it.
        let mut bytes = vec![0x88, 0x40, 1, b'x', 127, 0x81, 0x1e];
        bytes.extend_from_slice(&[b'v'; 4_000 - 32]);
        bytes.extend(std::iter::repeat_n(0xbe, 12_000));
        bytes
    };
    let response = |payload: &[u8]| frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, payload);
    let too_large = {
        let mut bytes = frame(kind::HEADERS, 0, 1, &[STATUS_200, &large].concat());
        for _ in 0..9 {
            bytes.extend(frame(kind::CONTINUATION, 0, 1, &large));
        }
        bytes.extend(frame(kind::CONTINUATION, END_HEADERS, 1, &large));
        bytes
    };
    let many_fields = response(&[STATUS_200, &[0, 1, b'x', 1, b'y'].repeat(400)].concat());
    let upper = response(&[STATUS_200, &[0, 1, b'X', 1, b'y']].concat());
    let connection = response(
        &[
            STATUS_200,
            &[0, 10],
            b"connection".as_slice(),
            &[5],
            b"close",
        ]
        .concat(),
    );
    let line_break = response(&[STATUS_200, &[0, 1, b'x', 3, b'a', b'\r', b'\n']].concat());
    for (case, bytes, error, reasons) in [
        (
            "too large a head",
            too_large,
            "http_response_header_section_size",
            &["head_too_large"][..],
        ),
        (
            "too many fields",
            many_fields,
            "http_response_header_section_size",
            &["head_too_large"],
        ),
        (
            "a bomb",
            response(&bomb),
            "http_",
            &[
                "protocol_error",
                "compression_error",
                "enhance_your_calm",
                "head_too_large",
            ],
        ),
        (
            "upper case",
            upper,
            "http_protocol_error",
            &["protocol_error"],
        ),
        (
            "a field of the connection",
            connection,
            "http_protocol_error",
            &["protocol_error"],
        ),
        (
            "a line break",
            line_break,
            "http_protocol_error",
            &["protocol_error"],
        ),
        (
            "no status",
            response(&[0, 1, b'x', 1, b'y']),
            "http_protocol_error",
            &["protocol_error"],
        ),
        (
            "a bad index",
            response(&[0xff, 0xff, 0xff, 0x0f]),
            "http_protocol_error",
            &["compression_error", "protocol_error"],
        ),
        (
            "a push",
            frame(kind::PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2, 0x82]),
            "http_protocol_error",
            &["protocol_error"],
        ),
        (
            "data before the head",
            frame(kind::DATA, END_STREAM, 1, b"x"),
            "http_protocol_error",
            &["protocol_error"],
        ),
        (
            "data of the connection",
            frame(kind::DATA, 0, 0, b"x"),
            "http_protocol_error",
            &["protocol_error"],
        ),
        (
            "a stream that is not open",
            frame(kind::HEADERS, END_HEADERS, 9, STATUS_200),
            "http_protocol_error",
            &["protocol_error"],
        ),
        (
            "a large frame",
            frame(kind::DATA, 0, 1, &[0; 20_000]),
            "http_protocol_error",
            &["frame_size_error"],
        ),
        (
            "a short PING",
            frame(kind::PING, 0, 0, &[0; 7]),
            "http_protocol_error",
            &["frame_size_error", "protocol_error"],
        ),
        (
            "a window beyond its limit",
            frame(kind::WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
            "http_protocol_error",
            &["flow_control_error"],
        ),
        (
            "HTTP/1",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec(),
            "http_protocol_error",
            &["frame_size_error", "protocol_error"],
        ),
        ("the end", Vec::new(), "connection_terminated", &["closed"]),
    ] {
        let gate = gate(&ours);
        let origin = frame_origin(&ours, move |_, mut peer: FramePeer| {
            peer.read_request().unwrap();
            if bytes.is_empty() {
                return;
            }
            peer.send(&bytes);
            while peer.read().is_some() {}
        });
        let answer = get(gate.proxy, &origin.https_url("a.test", "/"));
        assert_eq!(answer.status, 502, "{case}: {answer}");
        assert!(
            answer.value("proxy-status").contains(error),
            "{case}: {answer}"
        );
        wait_until(case, || {
            reasons.iter().any(|reason| failures(&gate, reason) > 0)
        });
    }
}

/// An origin that answers nothing, one that allows no stream, and one that reads nothing.
#[test]
fn silent_origins_end_in_a_timeout() {
    let ours = Authority::new();
    for (case, settings) in [("silent", &[][..]), ("no streams", &[0, 3, 0, 0, 0, 0])] {
        let gate = gate_with(
            &ours,
            "{ delay: 0s, concurrency: 1, max_hold: 20s }",
            "timeouts: { response_head: 1s }\n",
        );
        let origin = super::frame_origin_with(
            &ours.server(&["a.test"]),
            settings,
            |_, mut peer: FramePeer| while peer.read().is_some() {},
        );
        let url = origin.https_url("a.test", "/");
        // A client that leaves frees its slot at once, in this state too.
        let mut leaving = RawClient::connect(gate.proxy);
        leaving.send_get(&url, "");
        std::thread::sleep(Duration::from_millis(300));
        drop(leaving);
        for _ in 0..2 {
            let answer = get(gate.proxy, &url);
            assert_eq!(answer.status, 504, "{case}: {answer}");
        }
    }
}
