//! Which connections requests share, and which they never do.

use rcgen::IsCa;

use super::certs::{Authority, self_signed};
use super::origin::{Origin, answer, path};
use super::{SECRET, check_failed, gate, get, metric, untrusted};

/// The same host and port, in the clear and over TLS.
#[test]
fn https_and_http_of_one_authority_are_kept_apart() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let server = ours.server(&["a.test"]);
    let origin = Origin::start(move |visit| match visit.hello() {
        Some(_) => visit.secure(&server, &|_: &str| answer("over TLS")),
        None => visit.serve(&mut &visit.socket, &|_: &str| answer("in the clear")),
    });
    let secure = origin.url("a.test", "/");
    let clear = secure.replace("https:", "http:");
    for _ in 0..3 {
        assert_eq!(get(gate.proxy, &clear).body, "in the clear");
        assert_eq!(get(gate.proxy, &secure).body, "over TLS");
    }
    let seen = origin.connections();
    assert_eq!(
        seen.iter().map(|c| c.heads.len()).collect::<Vec<_>>(),
        [3, 3],
        "{seen:?}"
    );
}

/// A rule that skips is for the requests that it matches: not for others on its connection, nor on its session.
#[test]
fn skip_is_for_its_own_requests() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let server = self_signed(&["a.test"], IsCa::NoCa).server();
    let origin = Origin::secure(server, |head| match path(head) {
        "/lax" => answer("anybody's"),
        _ => answer(SECRET),
    });
    for _ in 0..2 {
        let lax = get(gate.proxy, &origin.url("a.test", "/lax"));
        assert_eq!((lax.status, &*lax.body), (200, "anybody's"), "{lax:?}");
        let strict = get(gate.proxy, &origin.url("a.test", "/strict"));
        check_failed(
            &strict,
            untrusted("the certificate is self-signed"),
            "strict",
        );
    }
    let seen = origin.connections();
    // One connection for both that may, and one for each that may not.
    assert_eq!(
        seen.iter().map(|c| c.heads.len()).collect::<Vec<_>>(),
        [2, 0, 0],
        "{seen:?}"
    );
    assert_eq!(metric(&gate, "crawlgate_upstream_unverified_total"), 1.0);
}

/// Nor the other way round: who may skip does not take what was verified for another.
#[test]
fn who_proved_itself_serves_those_who_ask_for_proof() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let origin = Origin::secure(ours.server(&["a.test"]), |_| answer("page"));
    for path in ["/strict", "/lax", "/strict", "/lax"] {
        assert_eq!(get(gate.proxy, &origin.url("a.test", path)).body, "page");
    }
    assert_eq!(
        origin
            .connections()
            .iter()
            .map(|c| c.heads.len())
            .collect::<Vec<_>>(),
        [2, 2]
    );
}
