//! Clients that exceed the limits of frames.

use crate::support::http2::{RawHttp2, field_section, frame};
use crate::support::origin::{ScriptedOrigin, response};
use crate::support::proxy::TestProxy;

use super::{POLICY, config, gate};

const ENHANCE_YOUR_CALM: u32 = 11;

fn sound(authority: &'static str) -> Vec<u8> {
    field_section(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", authority),
        (":path", "/"),
    ])
}

/// Sends bytes until the proxy closes the connection with ENHANCE_YOUR_CALM, and checks what is counted.
#[track_caller]
fn check_closed(gate: &TestProxy, limit: &str, bytes: &[u8]) {
    let mut client = RawHttp2::connect(gate.proxy);
    client.send(bytes);
    assert_eq!(client.read_goaway(), Some(ENHANCE_YOUR_CALM), "{limit}");
    let series = format!("crawlgate_http2_limits_total{{limit=\"{limit}\"}}");
    gate.wait_for_metric(&series, 1.0);
}

#[test]
fn frames_without_meaning_are_limited() {
    let gate = gate();
    check_closed(&gate, "pings", &frame(6, 0, 0, &[0; 8]).repeat(5_000));
    check_closed(&gate, "settings", &frame(4, 0, 0, &[]).repeat(5_000));
    check_closed(
        &gate,
        "priorities",
        &frame(2, 0, 3, &[0, 0, 0, 0, 1]).repeat(20_000),
    );
    let update = frame(8, 0, 0, &[0, 0, 0, 1]).repeat(20_000);
    check_closed(&gate, "small_windows", &update);
    // The connection is closed before `h2` would refuse the size of the section.
    let begin = frame(1, 0, 1, &sound("a.test"));
    let rest = frame(9, 0, 1, &[]).repeat(100);
    let mut client = RawHttp2::connect(gate.proxy);
    client.send(&[begin, rest].concat());
    assert!(client.read_goaway().is_some());
}

#[test]
fn resets_are_limited() {
    let origin = ScriptedOrigin::respond(|_| response(200, "", "ok"));
    let policy = POLICY.replace("delay: 0s, concurrency: 100", "delay: 15s");
    let gate = TestProxy::start(&config(", streams: 20, resets: 5", ""), &policy);
    let mut bytes = Vec::new();
    for number in 0..500_u32 {
        let stream = 2 * number + 1;
        bytes.extend(frame(1, 0x5, stream, &sound("a.test")));
        bytes.extend(frame(3, 0, stream, &[0, 0, 0, 8]));
    }
    check_closed(&gate, "resets", &bytes);
    assert_eq!(origin.connections(), 0);
    // Resets that the client causes by its errors (CVE-2025-8671).
    let gate = TestProxy::start(&config(", streams: 20, resets: 5", ""), POLICY);
    let mut bytes = Vec::new();
    for number in 0..500_u32 {
        let section = [sound("a.test"), field_section(&[("connection", "close")])].concat();
        bytes.extend(frame(1, 0x5, 2 * number + 1, &section));
    }
    check_closed(&gate, "resets", &bytes);
}

#[test]
fn a_field_section_must_end_in_time() {
    let gate = TestProxy::start(&config("", "timeouts: { head: 200ms }"), POLICY);
    check_closed(&gate, "head_timeout", &frame(1, 0, 1, &sound("a.test")));
}

#[test]
fn a_response_that_is_not_read_ends() {
    let origin = ScriptedOrigin::respond(|_| response(200, "", "x".repeat(10_000)));
    let gate = TestProxy::start(&config("", "timeouts: { write_stall: 200ms }"), POLICY);
    let mut client = RawHttp2::connect(gate.proxy);
    // SETTINGS_INITIAL_WINDOW_SIZE of one byte.
    client.send(&frame(4, 0, 0, &[0, 4, 0, 0, 0, 1]));
    let authority: &'static str = format!("a.test:{}", origin.port).leak();
    client.send(&frame(1, 0x5, 1, &sound(authority)));
    let data = client.read_until(0);
    assert_eq!(data.payload.len(), 1);
    assert_eq!(client.read_until(3).stream, 1);
    gate.wait_for_metric("crawlgate_http2_limits_total{limit=\"write_stall\"}", 1.0);
}
