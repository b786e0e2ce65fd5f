//! Verification of origins: every certificate that must fail, with its message, and those that must pass.

use std::net::Ipv6Addr;
use std::sync::Arc;

use rcgen::{BasicConstraints, IsCa};
use rustls::ServerConfig;

use super::certs::{Authority, When, self_signed};
use super::{SECRET, check_failed, gate, untrusted};
use crate::origin_tls::origin::text_response;
use crate::support::client::get;
use crate::support::origin::ScriptedOrigin;

#[test]
fn a_good_certificate_passes() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let origin = ScriptedOrigin::tls(ours.server(&["a.test"]), |_| text_response("fine"));
    let page = get(gate.proxy, &origin.https_url("a.test", "/page?x=1"));
    assert_eq!((page.status, &*page.body), (200, "fine"), "{page:?}");
    assert_eq!(page.value("crawl-status"), "ACCEPTED");
    let head = &origin.connection_logs()[0].heads[0].to_ascii_lowercase();
    assert!(head.starts_with("get /page?x=1 http/1.1\r\n"), "{head}");
    assert!(
        head.contains(&format!("\r\nhost: a.test:{}\r\n", origin.port)),
        "{head}"
    );
}

#[test]
fn no_other_certificate_does() {
    let ours = Authority::new();
    let theirs = Authority::named("a stranger");
    let forged = Authority::new();
    let authority = IsCa::Ca(BasicConstraints::Unconstrained);
    for (case, server, words) in [
        (
            "expired",
            ours.leaf(&["a.test"], When::Past).server(),
            "the certificate has expired",
        ),
        (
            "of tomorrow",
            ours.leaf(&["a.test"], When::Future).server(),
            "the certificate is not valid yet",
        ),
        (
            "self-signed",
            self_signed(&["a.test"], IsCa::NoCa).server(),
            "the certificate is self-signed",
        ),
        (
            "self-signed as an authority",
            self_signed(&["a.test"], authority).server(),
            "the certificate is that of an authority, or self-signed as one",
        ),
        (
            "another name",
            ours.server(&["b.test", "*.a.test"]),
            "the certificate is not valid for the name of the host",
        ),
        (
            "an address for a name",
            ours.server(&["127.0.0.1"]),
            "the certificate is not valid for the name of the host",
        ),
        (
            "a stranger's",
            theirs.server(&["a.test"]),
            "the certificate comes from an unknown issuer",
        ),
        (
            "a stranger's in our name",
            forged.server(&["a.test"]),
            "the certificate is not signed by its issuer",
        ),
    ] {
        // A separate proxy: a host that fails three times gets a rest.
        let gate = gate(&ours);
        check(gate.proxy, "a.test", server, words, case);
    }
}

#[test]
fn an_address_needs_itself_in_the_certificate() {
    let ours = Authority::new();
    let gate = gate(&ours);
    let page =
        |address: &str, origin: &ScriptedOrigin| get(gate.proxy, &origin.https_url(address, "/"));
    let four = ScriptedOrigin::tls(ours.server(&["127.0.0.1"]), |_| text_response("by address"));
    assert_eq!(page("127.0.0.1", &four).body, "by address");
    if let Some(six) = six(ours.server(&["::1"])) {
        assert_eq!(page("[::1]", &six).body, "by address");
    }
    let words = "the certificate is not valid for the name of the host";
    check(
        gate.proxy,
        "127.0.0.1",
        ours.server(&["a.test", "127.0.0.2"]),
        words,
        "another address",
    );
}

/// Not every machine that builds this has IPv6.
fn six(server: Arc<ServerConfig>) -> Option<ScriptedOrigin> {
    ScriptedOrigin::bind((Ipv6Addr::LOCALHOST, 0).into(), move |connection| {
        connection.serve_tls(&server, &|_: &str| text_response("by address"))
    })
    .ok()
}

#[track_caller]
fn check(
    proxy: std::net::SocketAddr,
    host: &str,
    server: Arc<ServerConfig>,
    words: &'static str,
    case: &str,
) {
    let origin = ScriptedOrigin::tls(server, |_| text_response(SECRET));
    check_failed(
        &get(proxy, &origin.https_url(host, "/")),
        untrusted(words),
        case,
    );
    // A certificate error does not depend on the ClientHello: there is no retry.
    assert_eq!(origin.connections(), 1, "{case}");
    assert_eq!(origin.requests().len(), 0, "{case}");
}
