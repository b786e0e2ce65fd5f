//! The first bytes in a tunnel decide whether it stays open.

use std::io::Write;
use std::thread;
use std::time::Duration;

use crate::support::proxy::TestProxy;

use super::hello::{body, ech, hello, message, records, server_name};
use super::wire::{POLICY, config, echo_and_proxy, text_origin};
use crate::support::client::RawClient;
use crate::support::wait::wait_until;

/// Sends bytes in parts, with pauses between them; returns the bytes until the end of the tunnel, or as many as were sent.
fn answered(gate: &TestProxy, authority: &str, parts: &[Vec<u8>]) -> Vec<u8> {
    let mut client = RawClient::tunnel_to(gate.proxy, authority);
    for part in parts {
        // The tunnel may be closed already.
        let _ = client.socket.write_all(part);
        thread::sleep(Duration::from_millis(10));
    }
    client.half_close();
    client.read_rest().into_bytes()
}

#[test]
fn a_tls_port_carries_tls_for_its_host_alone() {
    let (origin, gate) = echo_and_proxy("timeouts: { tls: 500ms }", POLICY);
    let a = format!("a.test:{}", origin.port);
    let literal = format!("127.0.0.1:{}", origin.port);
    fn of(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
        records(&message(&body(extensions)), 16_384)
    }
    let good = hello(Some("a.test"));
    fn in_parts(bytes: &[u8], size: usize) -> Vec<Vec<u8>> {
        bytes.chunks(size).map(<[u8]>::to_vec).collect()
    }
    let fragments = records(&message(&body(&[server_name("a.test")])), 20);
    for (to, parts, category, opens) in [
        (&a, vec![good.clone()], "match", true),
        (&a, in_parts(&good, 9), "match", true),
        (&a, in_parts(&fragments, 37), "match", true),
        (&a, vec![hello(Some("A.Test."))], "match", true),
        (&a, vec![hello(Some("b.test"))], "mismatch", false),
        (&a, vec![hello(None)], "none", false),
        (&literal, vec![hello(None)], "none", true),
        (&literal, vec![hello(Some("a.test"))], "mismatch", false),
        (&a, vec![of(&[ech(), server_name("a.test")])], "ech", true),
        (
            &a,
            vec![of(&[ech(), server_name("b.test")])],
            "mismatch",
            false,
        ),
        (
            &a,
            vec![b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n".to_vec()],
            "not_tls",
            false,
        ),
        (&a, vec![b"SSH-2.0-x\r\n".to_vec()], "not_tls", false),
        (
            &a,
            vec![b"\x16\x03\x01\0\x04\x02\0\0\0".to_vec()],
            "malformed",
            false,
        ),
        (
            &a,
            vec![records(
                &[&[1, 0, 0x3f, 0xf0][..], &[0; 16_000]].concat(),
                1,
            )],
            "malformed",
            false,
        ),
    ] {
        let series = format!("crawlgate_sni_checks_total{{category=\"{category}\"}}");
        let before = gate.counter(&series);
        let ended = origin.ended_connections();
        let seen = origin.received().len();
        let back = String::from_utf8_lossy(&answered(&gate, to, &parts)).len();
        assert_eq!(back > 0, opens, "{category}: {parts:?}");
        assert_eq!(gate.counter(&series), before + 1, "{category}");
        wait_until("the origin's connection ends", || {
            origin.ended_connections() > ended
        });
        let sent = if opens { parts.concat().len() } else { 0 };
        assert_eq!(origin.received().len() - seen, sent, "{category}");
    }
    // No bytes, and an incomplete ClientHello.
    for part in [&good[..0], &good[..20]] {
        let before = gate.counter("crawlgate_sni_checks_total{category=\"timeout\"}");
        let mut client = RawClient::tunnel_to(gate.proxy, &a);
        client.send(part);
        assert_eq!(client.read_rest(), "");
        assert_eq!(
            gate.counter("crawlgate_sni_checks_total{category=\"timeout\"}"),
            before + 1
        );
    }
    wait_until("all tunnels are over", || {
        gate.counter("crawlgate_tunnels") == 0
    });
    let reasons = |reason, count| {
        let series = format!(
            "crawlgate_decisions_total{{crawler=\"anonymous\",reason=\"{reason}\",stage=\"connect\",verdict=\"reject\"}}"
        );
        assert_eq!(gate.counter(&series), count, "{reason}");
    };
    reasons("host_mismatch", 4);
    reasons("bad_request", 4);
    reasons("request_timeout", 2);
}

/// A client that leaves without a byte is in none of the categories.
#[test]
fn a_silent_departed_client_is_not_counted() {
    let (origin, gate) = echo_and_proxy("", POLICY);
    drop(RawClient::tunnel(gate.proxy, origin.port));
    wait_until("the origin's connection ends", || {
        origin.ended_connections() == 1
    });
    for category in [
        "match",
        "mismatch",
        "none",
        "ech",
        "not_tls",
        "malformed",
        "timeout",
    ] {
        assert_eq!(
            gate.counter(&format!(
                "crawlgate_sni_checks_total{{category=\"{category}\"}}"
            )),
            0
        );
    }
}

#[test]
fn a_plain_port_carries_http_alone() {
    let origin = text_origin();
    let ports = "connect_ports: [1-65535]\n  tls_ports: [443]";
    let gate = TestProxy::start(&config(ports, "timeouts: { tls: 300ms }"), POLICY);
    for (bytes, kind) in [
        (hello(Some("a.test")), "client_hello"),
        (b"SSH-2.0-x\r\n\r\n".to_vec(), ""),
        (b"\0\x01\x02".to_vec(), "unknown"),
        (b"\xffx".to_vec(), "unknown"),
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            "http2_preface",
        ),
    ] {
        let series = format!("crawlgate_foreign_bytes_total{{reason=\"{kind}\"}}");
        let before = if kind.is_empty() {
            0
        } else {
            gate.counter(&series)
        };
        let mut client = RawClient::tunnel(gate.proxy, origin.port);
        client.send(&bytes);
        let back = client.read_rest();
        if kind.is_empty() {
            // Bytes that begin like a request are answered like a bad request.
            assert!(back.starts_with("HTTP/1.1 400 "), "{back}");
        } else {
            assert_eq!(back.as_str(), "", "{kind}");
            assert_eq!(gate.counter(&series), before + 1, "{kind}");
        }
    }
    let mut silent = RawClient::tunnel(gate.proxy, origin.port);
    assert_eq!(silent.read_rest(), "");
    wait_until("all tunnels are over", || {
        gate.counter("crawlgate_tunnels") == 0
    });
    assert_eq!(origin.connections(), 0);
}
