//! Origins that speak no TLS, or none to its end.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

use super::certs::Authority;
use super::origin::{Origin, Visit, answer, with};
use super::{Failure, check_failed, gate, get, metric, try_get};

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
    let (protocol, alert) = ("tls_protocol_error", "tls_alert_received");
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
        ("closes", Origin::start(|visit| visit.close()), CLOSED, 2),
        ("resets", Origin::start(|visit| visit.reset()), CLOSED, 2),
        (
            "hangs",
            Origin::start(|visit| visit.wait_for_the_end()),
            late,
            2,
        ),
    ] {
        // Of its own: a host that fails three times is left to rest.
        let gate = gate(&ours);
        check_failed(&get(gate.proxy, &origin.url("a.test", "/")), want, case);
        assert_eq!(origin.connections().len(), connections, "{case}");
    }
}

/// Origins that want what this proxy does not have. Of a certificate TLS 1.3 tells only behind the handshake.
#[test]
fn handshakes_that_ask_for_more() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let alert = |words| Failure {
        status: 502,
        error: "tls_alert_received",
        words,
    };
    let mut h2 = Arc::unwrap_or_clone(ours.server(&["a.test"]));
    h2.alpn_protocols = vec![b"h2".to_vec()];
    for (case, server, words) in [
        (
            "HTTP/2 alone",
            Arc::new(h2),
            "the origin does not support HTTP/1.1 inside TLS",
        ),
        (
            "a client's certificate",
            ours.mutual(&["a.test"]),
            "the origin requires a client certificate",
        ),
    ] {
        let origin = Origin::start(move |visit| {
            let _ = visit.handshake(&server);
            let _ = visit.socket.shutdown(Shutdown::Write);
            visit.wait_for_the_end();
        });
        check_failed(
            &get(gate.proxy, &origin.url("a.test", "/")),
            alert(words),
            case,
        );
        assert_eq!(origin.connections().len(), 1, "{case}");
    }
}

/// TLS that ends without saying so is an end that anybody on the way could have made.
#[test]
fn a_body_without_a_length_ends_with_tls_or_is_cut() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let until_close = "HTTP/1.1 200 OK\r\n\r\nhalf".to_owned();
    for (case, text, ending, whole) in [
        ("ended in order", until_close.clone(), Ending::InOrder, true),
        ("cut", until_close, Ending::Cut, false),
        (
            "a length, and cut behind it",
            answer("half"),
            Ending::Cut,
            true,
        ),
        (
            "a length, and cut before it",
            with("", "half").replace("Length: 4", "Length: 9"),
            Ending::Cut,
            false,
        ),
    ] {
        let server = ours.server(&["a.test"]);
        let origin = Origin::start(move |visit| {
            let Some(mut stream) = visit.handshake(&server) else {
                return;
            };
            let _ = visit.request(&mut stream);
            stream.write_all(text.as_bytes()).unwrap();
            if ending == Ending::InOrder {
                stream.conn.send_close_notify();
            }
            stream.flush().unwrap();
            let _ = stream.sock.shutdown(Shutdown::Write);
            visit.wait_for_the_end();
        });
        let page = try_get(gate.proxy, &origin.url("a.test", "/"));
        let came =
            page.as_ref()
                .is_some_and(|page| match page.field("content-length").parse::<usize>() {
                    Ok(length) => page.body.len() == length,
                    Err(_) => page.body.ends_with("0\r\n\r\n"),
                });
        assert_eq!(came, whole, "{case}: {page:?}");
    }
    let incomplete = "crawlgate_upstream_errors_total{error=\"http_response_incomplete\"}";
    assert_eq!(metric(&gate, incomplete), 2.0);
}

/// A client that knew another way would go it around the proxy.
#[test]
fn no_answer_tells_another_way() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let fields = "Alt-Svc: h3=\":443\"; ma=86400\r\nX-Kept: yes\r\n";
    let origin = Origin::secure(ours.server(&["a.test"]), move |_| with(fields, "page"));
    let page = get(gate.proxy, &origin.url("a.test", "/"));
    assert_eq!(
        (page.field("alt-svc"), page.field("x-kept"), &*page.body),
        ("", "yes", "page")
    );
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    InOrder,
    Cut,
}

/// An origin that says this whatever it hears, and hears out what comes so that its words are not lost.
fn says(text: &'static [u8]) -> Origin {
    Origin::start(move |visit| {
        let mut socket = &visit.socket;
        let _ = visit.hello();
        let _ = socket.write_all(text);
        let _ = socket.shutdown(Shutdown::Write);
        visit.wait_for_the_end();
    })
}

impl Visit {
    fn wait_for_the_end(&self) {
        let _ = std::io::copy(&mut &self.socket, &mut std::io::sink());
    }

    /// Reads the hello first, so that no reset follows.
    fn close(&self) {
        let hello = self.hello().unwrap_or_default();
        let _ = (&self.socket).read_exact(&mut vec![0; hello + 5]);
    }

    fn reset(&self) {
        let _ = self.hello();
        let _ = socket2::SockRef::from(&self.socket).set_linger(Some(std::time::Duration::ZERO));
    }
}
