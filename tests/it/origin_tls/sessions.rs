//! Remembered handshakes: resumed sessions, and the ClientHello that an old origin can read.

use std::sync::Arc;

use rustls::{NamedGroup, ServerConfig};

use super::certs::Authority;
use super::{check_failed, gate, untrusted};
use crate::origin_tls::origin::text_response_with;
use crate::support::client::get;
use crate::support::origin::{ScriptedConnection, ScriptedOrigin};
use crate::support::wait::TIMEOUT;

/// Larger than a ClientHello without a post-quantum key share.
const LARGE: usize = 900;

fn last(body: &str) -> String {
    text_response_with("Connection: close\r\n", body)
}

#[test]
fn the_second_connection_goes_on_with_the_session_of_the_first() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let origin = ScriptedOrigin::tls(ours.server(&["a.test", "b.test"]), |_| last("page"));
    for host in ["a.test", "a.test", "b.test"] {
        assert_eq!(
            get(gate.proxy, &origin.https_url(host, "/")).body,
            "page",
            "{host}"
        );
    }
    let seen = origin.connection_logs();
    let resumed: Vec<_> = seen.iter().map(|connection| connection.resumed).collect();
    assert_eq!(
        resumed,
        [Some(false), Some(true), Some(false)],
        "another host begins anew"
    );
    assert!(
        seen.iter()
            .all(|connection| connection.client_hello.is_some_and(|hello| hello > LARGE)),
        "{seen:?}"
    );
    assert_eq!(seen[0].group, Some(NamedGroup::X25519MLKEM768));
}

/// HTTP/1.1 is negotiated inside TLS with an origin that does not select HTTP/2.
#[test]
fn http_1_is_agreed_on() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let mut server = Arc::unwrap_or_clone(ours.server(&["a.test"]));
    server.alpn_protocols = vec![b"h3".to_vec(), b"http/1.1".to_vec()];
    let origin = ScriptedOrigin::tls(Arc::new(server), |_| last("page"));
    assert_eq!(
        get(gate.proxy, &origin.https_url("a.test", "/")).body,
        "page"
    );
    assert_eq!(
        origin.connection_logs()[0].protocol.as_deref(),
        Some(&b"http/1.1"[..])
    );
}

#[test]
fn an_old_origin_costs_one_retry_and_is_remembered() {
    let ours = Authority::new();
    let gate = gate(&ours);
    for (case, fail) in [
        ("closes", (|_| {}) as fn(&ScriptedConnection)),
        ("resets", |connection| {
            let _ = socket2::SockRef::from(&connection.socket)
                .set_linger(Some(std::time::Duration::ZERO));
        }),
        ("hangs", |connection| {
            let _ = connection.socket.set_read_timeout(Some(TIMEOUT));
            let _ = std::io::copy(&mut &connection.socket, &mut std::io::sink());
        }),
    ] {
        let origin = old(ours.server(&["a.test"]), fail);
        for _ in 0..3 {
            let page = get(gate.proxy, &origin.https_url("a.test", "/"));
            assert_eq!(page.status, 200, "{case}: {page:?}");
            assert_eq!(&*page.body, "page", "{case}: {page:?}");
        }
        let hellos = origin
            .connection_logs()
            .iter()
            .map(|c| c.client_hello.unwrap() > LARGE)
            .collect::<Vec<_>>();
        assert_eq!(hellos, [true, false, false, false], "{case}");
    }
    // The ClientHello size of one host does not apply to another.
    let origin = ScriptedOrigin::tls(ours.server(&["b.test"]), |_| last("page"));
    get(gate.proxy, &origin.https_url("b.test", "/"));
    assert_eq!(origin.connections(), 1);
}

/// The retry verifies the certificate as well.
#[test]
fn an_old_origin_is_verified_too() {
    let ours = Authority::new();
    let theirs = Authority::named("a stranger");
    let gate = gate(&ours);
    let origin = old(theirs.server(&["a.test"]), |_| {});
    let want = untrusted("the certificate comes from an unknown issuer");
    check_failed(
        &get(gate.proxy, &origin.https_url("a.test", "/")),
        want,
        "old and unknown",
    );
    assert_eq!((origin.connections(), origin.requests().len()), (2, 0));
    assert_eq!(
        gate.metric("crawlgate_upstream_errors_total{error=\"tls_certificate_error\"}"),
        1.0
    );
}

/// An origin that fails in this way on a ClientHello that does not fit into one packet.
fn old(server: Arc<ServerConfig>, fail: fn(&ScriptedConnection)) -> ScriptedOrigin {
    ScriptedOrigin::start(move |connection| match connection.peek_client_hello() {
        Some(hello) if hello > LARGE => fail(connection),
        Some(_) | None => connection.serve_tls(&server, &|_: &str| last("page")),
    })
}
