//! robots.txt of origins that speak TLS.

use std::sync::Arc;

use rcgen::IsCa;
use rustls::ServerConfig;

use super::certs::{Authority, When, self_signed};
use super::{SECRET, check_failed, gate_with, obedient, untrusted};
use crate::origin_tls::origin::text_response;
use crate::support::client::get;
use crate::support::command::crawlgate;
use crate::support::origin::{ScriptedOrigin, path_of};
use crate::support::temp_dir::TempDir;

const FORBIDS: &str = "User-agent: *\nDisallow: /closed\n";

#[test]
fn it_is_fetched_over_tls_and_holds_for_its_scheme_alone() {
    let ours = Authority::new();
    let gate = gate_with(&ours, "", &obedient());
    let server = ours.server(&["a.test"]);
    let origin = ScriptedOrigin::start(move |connection| match connection.peek_client_hello() {
        Some(_) => connection.serve_tls(&server, &|head: &str| {
            text_response(if is_robots(head) { FORBIDS } else { "tls" })
        }),
        None => connection.serve_stream(&mut &connection.socket, &|head: &str| {
            text_response(if is_robots(head) { "" } else { "clear" })
        }),
    });
    fn secure(
        gate: &crate::support::proxy::TestProxy,
        origin: &ScriptedOrigin,
        path: &str,
    ) -> crate::support::client::Response {
        get(gate.proxy, &origin.https_url("a.test", path))
    }
    fn clear(
        gate: &crate::support::proxy::TestProxy,
        origin: &ScriptedOrigin,
        path: &str,
    ) -> crate::support::client::Response {
        get(
            gate.proxy,
            &origin.https_url("a.test", path).replace("https:", "http:"),
        )
    }
    let refused = secure(&gate, &origin, "/closed");
    assert_eq!(refused.status, 451, "{refused:?}");
    assert_eq!(refused.value("crawl-reason"), "robots_txt", "{refused:?}");
    assert_eq!(secure(&gate, &origin, "/open").body, "tls");
    assert_eq!(clear(&gate, &origin, "/closed").body, "clear");
    assert_eq!(
        gate.metric("crawlgate_robots_fetches_total{result=\"file\"}"),
        2.0
    );
}

#[test]
fn redirects_lead_from_one_scheme_to_the_other() {
    let ours = Authority::new();
    let gate = gate_with(&ours, "", &obedient());
    let last = ScriptedOrigin::tls(ours.server(&["b.test"]), |_| text_response(FORBIDS));
    let place = last.https_url("b.test", "/rules");
    let middle = ScriptedOrigin::start(move |connection| {
        connection.serve_stream(&mut &connection.socket, &|_: &str| moved(&place))
    });
    let place = middle
        .https_url("b.test", "/moved")
        .replace("https:", "http:");
    let first = ScriptedOrigin::tls(ours.server(&["a.test"]), move |head| {
        match is_robots(head) {
            true => moved(&place),
            false => text_response("page"),
        }
    });
    assert_eq!(
        get(gate.proxy, &first.https_url("a.test", "/closed")).value("crawl-reason"),
        "robots_txt"
    );
    assert_eq!(
        get(gate.proxy, &first.https_url("a.test", "/open")).body,
        "page"
    );
    assert_eq!((middle.requests().len(), last.requests().len()), (1, 1));
}

/// The robots.txt of an unverified host is not read, and so nothing may be fetched from it.
#[test]
fn a_bad_certificate_is_reported_for_the_page() {
    let ours = Authority::new();
    let gate = gate_with(&ours, "", &obedient());
    let server = self_signed(&["a.test"], IsCa::NoCa).server();
    let origin = ScriptedOrigin::tls(server, |_| text_response(SECRET));
    let want = untrusted("the certificate is self-signed");
    for path in ["/page", "/robots.txt"] {
        check_failed(
            &get(gate.proxy, &origin.https_url("a.test", path)),
            want,
            path,
        );
    }
    assert_eq!((origin.connections(), origin.requests().len()), (1, 0));
    assert_eq!(
        gate.metric("crawlgate_robots_fetches_total{result=\"tls\"}"),
        1.0
    );
}

/// The robots.txt of an unverified host applies only to requests that skip verification.
#[test]
fn skip_does_not_spread_by_robots_txt() {
    let ours = Authority::new();
    let gate = gate_with(&ours, "", &obedient());
    let server = self_signed(&["a.test"], IsCa::NoCa).server();
    let origin = ScriptedOrigin::tls(server, |head| match path_of(head) {
        "/robots.txt" => text_response("User-agent: *\nDisallow: /lax/closed\n"),
        "/lax" => text_response("anybody's"),
        _ => text_response(SECRET),
    });
    fn page(
        gate: &crate::support::proxy::TestProxy,
        origin: &ScriptedOrigin,
        path: &str,
    ) -> crate::support::client::Response {
        get(gate.proxy, &origin.https_url("a.test", path))
    }
    assert_eq!(page(&gate, &origin, "/lax").body, "anybody's");
    assert_eq!(
        page(&gate, &origin, "/lax/closed").value("crawl-reason"),
        "robots_txt"
    );
    check_failed(
        &page(&gate, &origin, "/strict"),
        untrusted("the certificate is self-signed"),
        "strict",
    );
    assert_eq!(page(&gate, &origin, "/lax").body, "anybody's");
}

/// After a redirect every host is verified.
#[test]
fn skip_does_not_spread_by_redirects() {
    let ours = Authority::new();
    let gate = gate_with(&ours, "", &obedient());
    fn anybody(host: &'static str) -> std::sync::Arc<ServerConfig> {
        self_signed(&[host], IsCa::NoCa).server()
    }
    let last = ScriptedOrigin::tls(anybody("b.test"), |_| text_response(""));
    let place = last.https_url("b.test", "/rules");
    let first = ScriptedOrigin::tls(anybody("a.test"), move |_| moved(&place));
    let refused = get(gate.proxy, &first.https_url("a.test", "/lax"));
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(
        refused.value("crawl-reason"),
        "robots_unreachable",
        "{refused:?}"
    );
    assert_eq!((first.requests().len(), last.requests().len()), (1, 0));
}

#[test]
fn the_command_fetches_it_as_the_proxy_would() {
    let ours = Authority::new();
    let folder = TempDir::new();
    folder.write("ca.pem", ours.pem());
    folder.write(
        "c.yaml",
        "tls: { roots: webpki, extra_roots: [ca.pem] }
egress: { ports: [1-65535], allow_loopback: true, hosts: { a.test: 127.0.0.1 } }
",
    );
    fn report(
        folder: &TempDir,
        server: Arc<ServerConfig>,
    ) -> crate::support::command::CommandOutput {
        let origin = ScriptedOrigin::tls(server, |_| text_response(FORBIDS));
        let url = origin.https_url("a.test", "/closed");
        crawlgate(
            folder.path(),
            &[
                "robots", "fetch", "--config", "c.yaml", "--agent", "bot", &url,
            ],
            "",
        )
    }
    let output = report(&folder, ours.server(&["a.test"]));
    assert!(output.code == 0, "{output:?}");
    assert!(
        output.stdout.contains("outcome  file, status 200"),
        "{output:?}"
    );
    let output = report(&folder, ours.leaf(&["a.test"], When::Past).server());
    assert!(output.code == 1, "{output:?}");
    assert!(output.stdout.contains("outcome  tls\n"), "{output:?}");
    assert!(
        output
            .stdout
            .contains("failure  the certificate has expired\n"),
        "{output:?}"
    );
}

fn is_robots(head: &str) -> bool {
    path_of(head) == "/robots.txt"
}

fn moved(place: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n")
}
