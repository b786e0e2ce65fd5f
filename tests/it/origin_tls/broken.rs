//! Origins without TLS, or with an incomplete handshake.

use std::io::{Read, Write};
use std::net::Shutdown;

use super::certs::Authority;
use super::{Failure, check_failed, gate, try_get};
use crate::origin_tls::origin::{text_response, text_response_with};
use crate::support::client::get;
use crate::support::http2_origin::with_protocols;
use crate::support::origin::{ScriptedConnection, ScriptedOrigin};

const CLOSED: Failure = Failure {
    status: 502,
    error: "tls_protocol_error",
    words: "the origin closed the connection in the TLS handshake",
};

/// A fatal alert of TLS 1.2: handshake_failure, unrecognized_name.
const HANDSHAKE_FAILURE: &[u8] = &[0x15, 3, 3, 0, 2, 2, 40];
const UNRECOGNIZED_NAME: &[u8] = &[0x15, 3, 3, 0, 2, 2, 112];

#[test]
fn handshakes_that_fail() {
    let ours = Authority::new();
    let protocol = "tls_protocol_error";
    let alert = "tls_alert_received";
    let not_tls = Failure {
        status: 502,
        error: protocol,
        words: "the origin did not answer with TLS",
    };
    let refuses = Failure {
        status: 502,
        error: alert,
        words: "the origin refuses TLS: handshake_failure",
    };
    let unknown = Failure {
        status: 502,
        error: alert,
        words: "the origin does not know the host: unrecognized_name",
    };
    let late = Failure {
        status: 504,
        error: "connection_timeout",
        words: "no TLS handshake in time",
    };
    for (case, origin, want, connections) in [
        (
            "speaks HTTP",
            says(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            not_tls,
            1,
        ),
        ("speaks SSH", says(b"SSH-2.0-x\r\n"), not_tls, 1),
        ("refuses", says(HANDSHAKE_FAILURE), refuses, 2),
        (
            "does not know the name",
            says(UNRECOGNIZED_NAME),
            unknown,
            1,
        ),
        (
            "closes",
            ScriptedOrigin::start(|connection| connection.close()),
            CLOSED,
            2,
        ),
        (
            "resets",
            ScriptedOrigin::start(|connection| connection.reset()),
            CLOSED,
            2,
        ),
        (
            "hangs",
            ScriptedOrigin::start(|connection| connection.wait_for_close()),
            late,
            2,
        ),
    ] {
        // A separate proxy: a host that fails three times gets a rest.
        let gate = gate(&ours);
        check_failed(
            &get(gate.proxy, &origin.https_url("a.test", "/")),
            want,
            case,
        );
        assert_eq!(origin.connections(), connections, "{case}");
    }
}

/// Origins that require what the proxy does not have. TLS 1.3 reports a missing certificate only after the handshake.
#[test]
fn handshakes_with_unsupported_requirements_fail() {
    let ours = Authority::new();
    let gate = gate(&ours);
    fn alert(words: &'static str) -> Failure {
        Failure {
            status: 502,
            error: "tls_alert_received",
            words,
        }
    }
    let h3 = with_protocols(&ours.server(&["a.test"]), &["h3"]);
    for (case, server, words) in [
        (
            "HTTP/3 alone",
            h3,
            "the origin supports no offered version of HTTP inside TLS",
        ),
        (
            "a client's certificate",
            ours.mutual(&["a.test"]),
            "the origin requires a client certificate",
        ),
    ] {
        let origin = ScriptedOrigin::start(move |connection| {
            let _ = connection.accept_tls(&server);
            let _ = connection.socket.shutdown(Shutdown::Write);
            connection.wait_for_close();
        });
        check_failed(
            &get(gate.proxy, &origin.https_url("a.test", "/")),
            alert(words),
            case,
        );
        assert_eq!(origin.connections(), 1, "{case}");
    }
}

/// An end of TLS without close_notify could be made by an attacker.
#[test]
fn a_body_without_a_length_ends_with_tls_or_is_cut() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let until_close = "HTTP/1.1 200 OK\r\n\r\nhalf".to_owned();
    for (case, text, ending, whole) in [
        (
            "ended in order",
            until_close.clone(),
            BrokenEnding::InOrder,
            true,
        ),
        ("cut", until_close, BrokenEnding::Cut, false),
        (
            "a length, and cut behind it",
            text_response("half"),
            BrokenEnding::Cut,
            true,
        ),
        (
            "a length, and cut before it",
            text_response_with("", "half").replace("Length: 4", "Length: 9"),
            BrokenEnding::Cut,
            false,
        ),
    ] {
        let server = ours.server(&["a.test"]);
        let origin = ScriptedOrigin::start(move |connection| {
            let Some(mut stream) = connection.accept_tls(&server) else {
                return;
            };
            let _ = connection.read_request_from(&mut stream);
            stream.write_all(text.as_bytes()).unwrap();
            if ending == BrokenEnding::InOrder {
                stream.conn.send_close_notify();
            }
            stream.flush().unwrap();
            let _ = stream.sock.shutdown(Shutdown::Write);
            connection.wait_for_close();
        });
        let page = try_get(gate.proxy, &origin.https_url("a.test", "/"));
        let came =
            page.as_ref()
                .is_some_and(|page| match page.value("content-length").parse::<usize>() {
                    Ok(length) => page.body.len() == length,
                    Err(_) => page.body.ends_with("0\r\n\r\n"),
                });
        assert_eq!(came, whole, "{case}: {page:?}");
    }
    let incomplete = "crawlgate_upstream_errors_total{error=\"http_response_incomplete\"}";
    assert_eq!(gate.metric(incomplete), 2.0);
}

/// A client that knew an alternative service would bypass the proxy.
#[test]
fn responses_advertise_no_alternative_service() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let fields = "Alt-Svc: h3=\":443\"; ma=86400\r\nX-Kept: yes\r\n";
    let origin = ScriptedOrigin::tls(ours.server(&["a.test"]), move |_| {
        text_response_with(fields, "page")
    });
    let page = get(gate.proxy, &origin.https_url("a.test", "/"));
    assert_eq!(
        (page.value("alt-svc"), page.value("x-kept"), &*page.body),
        ("", "yes", "page")
    );
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BrokenEnding {
    InOrder,
    Cut,
}

/// An origin that sends this text regardless of what it receives, and reads to the end so that no RST follows.
fn says(text: &'static [u8]) -> ScriptedOrigin {
    ScriptedOrigin::start(move |connection| {
        let mut socket = &connection.socket;
        let _ = connection.peek_client_hello();
        let _ = socket.write_all(text);
        let _ = socket.shutdown(Shutdown::Write);
        connection.wait_for_close();
    })
}

impl ScriptedConnection {
    /// Reads the ClientHello first, so that no RST follows.
    fn close(&self) {
        let hello = self.peek_client_hello().unwrap_or_default();
        let _ = (&self.socket).read_exact(&mut vec![0; hello + 5]);
    }

    fn reset(&self) {
        let _ = self.peek_client_hello();
        let _ = socket2::SockRef::from(&self.socket).set_linger(Some(std::time::Duration::ZERO));
    }
}
