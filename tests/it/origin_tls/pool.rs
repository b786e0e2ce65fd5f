//! The sharing of connections between requests.

use rcgen::IsCa;

use super::certs::{Authority, self_signed};
use super::{SECRET, check_failed, gate, untrusted};
use crate::origin_tls::origin::text_response;
use crate::support::client::get;
use crate::support::origin::{ScriptedOrigin, path_of};

/// One host and port, in the clear and over TLS.
#[test]
fn https_and_http_connections_of_one_authority_are_separate() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let server = ours.server(&["a.test"]);
    let origin = ScriptedOrigin::start(move |connection| match connection.peek_client_hello() {
        Some(_) => connection.serve_tls(&server, &|_: &str| text_response("over TLS")),
        None => connection.serve_stream(&mut &connection.socket, &|_: &str| {
            text_response("in the clear")
        }),
    });
    let secure = origin.https_url("a.test", "/");
    let clear = secure.replace("https:", "http:");
    for _ in 0..3 {
        assert_eq!(get(gate.proxy, &clear).body, "in the clear");
        assert_eq!(get(gate.proxy, &secure).body, "over TLS");
    }
    let seen = origin.connection_logs();
    assert_eq!(
        seen.iter().map(|c| c.heads.len()).collect::<Vec<_>>(),
        [3, 3],
        "{seen:?}"
    );
}

/// A rule with `verify: skip` applies to the requests that it matches: not to others on the connection or the session.
#[test]
fn skip_is_for_its_own_requests() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let server = self_signed(&["a.test"], IsCa::NoCa).server();
    let origin = ScriptedOrigin::tls(server, |head| match path_of(head) {
        "/lax" => text_response("anybody's"),
        _ => text_response(SECRET),
    });
    for _ in 0..2 {
        let lax = get(gate.proxy, &origin.https_url("a.test", "/lax"));
        assert_eq!((lax.status, &*lax.body), (200, "anybody's"), "{lax:?}");
        let strict = get(gate.proxy, &origin.https_url("a.test", "/strict"));
        check_failed(
            &strict,
            untrusted("the certificate is self-signed"),
            "strict",
        );
    }
    let seen = origin.connection_logs();
    // One shared connection for both lax requests, and one for each strict one.
    assert_eq!(
        seen.iter().map(|c| c.heads.len()).collect::<Vec<_>>(),
        [2, 0, 0],
        "{seen:?}"
    );
    assert_eq!(gate.metric("crawlgate_upstream_unverified_total"), 1.0);
}

/// The reverse: a request that skips verification uses no verified connection.
#[test]
fn a_verified_connection_serves_requests_that_verify() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let origin = ScriptedOrigin::tls(ours.server(&["a.test"]), |_| text_response("page"));
    for path in ["/strict", "/lax", "/strict", "/lax"] {
        assert_eq!(
            get(gate.proxy, &origin.https_url("a.test", path)).body,
            "page"
        );
    }
    assert_eq!(
        origin
            .connection_logs()
            .iter()
            .map(|c| c.heads.len())
            .collect::<Vec<_>>(),
        [2, 2]
    );
}
