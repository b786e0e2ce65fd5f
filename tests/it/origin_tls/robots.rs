//! robots.txt of origins that speak TLS.

use std::sync::Arc;

use rcgen::IsCa;
use rustls::ServerConfig;

use super::certs::{Authority, When, self_signed};
use super::origin::{Origin, answer, path};
use super::{SECRET, check_failed, gate_with, get, metric, obedient, untrusted};
use crate::support::command::crawlgate;
use crate::support::folder::Folder;

const FORBIDS: &str = "User-agent: *\nDisallow: /closed\n";

#[test]
fn it_is_fetched_over_tls_and_holds_for_its_scheme_alone() {
    let ours = Authority::new();
    let gate = gate_with(&ours, "", &obedient());
    let server = ours.server(&["a.test"]);
    let origin = Origin::start(move |visit| match visit.hello() {
        Some(_) => visit.secure(&server, &|head: &str| {
            answer(if is_robots(head) { FORBIDS } else { "tls" })
        }),
        None => visit.serve(&mut &visit.socket, &|head: &str| {
            answer(if is_robots(head) { "" } else { "clear" })
        }),
    });
    let secure = |path: &str| get(gate.proxy, &origin.url("a.test", path));
    let clear = |path: &str| {
        get(
            gate.proxy,
            &origin.url("a.test", path).replace("https:", "http:"),
        )
    };
    let refused = secure("/closed");
    assert_eq!(
        (refused.status, refused.field("crawl-reason")),
        (451, "robots_txt"),
        "{refused:?}"
    );
    assert_eq!(secure("/open").body, "tls");
    assert_eq!(clear("/closed").body, "clear");
    assert_eq!(
        metric(&gate, "crawlgate_robots_fetches_total{result=\"file\"}"),
        2.0
    );
}

#[test]
fn redirects_lead_from_one_scheme_to_the_other() {
    let ours = Authority::new();
    let gate = gate_with(&ours, "", &obedient());
    let last = Origin::secure(ours.server(&["b.test"]), |_| answer(FORBIDS));
    let place = last.url("b.test", "/rules");
    let middle =
        Origin::start(move |visit| visit.serve(&mut &visit.socket, &|_: &str| moved(&place)));
    let place = middle.url("b.test", "/moved").replace("https:", "http:");
    let first = Origin::secure(ours.server(&["a.test"]), move |head| {
        match is_robots(head) {
            true => moved(&place),
            false => answer("page"),
        }
    });
    assert_eq!(
        get(gate.proxy, &first.url("a.test", "/closed")).field("crawl-reason"),
        "robots_txt"
    );
    assert_eq!(get(gate.proxy, &first.url("a.test", "/open")).body, "page");
    assert_eq!((middle.requests(), last.requests()), (1, 1));
}

/// Nothing is known of a host that has not proved who it is, and so nothing of it may be fetched.
#[test]
fn a_bad_certificate_is_told_of_the_page_too() {
    let ours = Authority::new();
    let gate = gate_with(&ours, "", &obedient());
    let server = self_signed(&["a.test"], IsCa::NoCa).server();
    let origin = Origin::secure(server, |_| answer(SECRET));
    let want = untrusted("the certificate is self-signed");
    for path in ["/page", "/robots.txt"] {
        check_failed(&get(gate.proxy, &origin.url("a.test", path)), want, path);
    }
    assert_eq!((origin.connections().len(), origin.requests()), (1, 0));
    assert_eq!(
        metric(&gate, "crawlgate_robots_fetches_total{result=\"tls\"}"),
        1.0
    );
}

/// What a host that proved nothing says of itself holds for those alone who need no proof.
#[test]
fn skip_does_not_spread_by_robots_txt() {
    let ours = Authority::new();
    let gate = gate_with(&ours, "", &obedient());
    let server = self_signed(&["a.test"], IsCa::NoCa).server();
    let origin = Origin::secure(server, |head| match path(head) {
        "/robots.txt" => answer("User-agent: *\nDisallow: /lax/closed\n"),
        "/lax" => answer("anybody's"),
        _ => answer(SECRET),
    });
    let page = |path: &str| get(gate.proxy, &origin.url("a.test", path));
    assert_eq!(page("/lax").body, "anybody's");
    assert_eq!(page("/lax/closed").field("crawl-reason"), "robots_txt");
    check_failed(
        &page("/strict"),
        untrusted("the certificate is self-signed"),
        "strict",
    );
    assert_eq!(page("/lax").body, "anybody's");
}

/// Behind a redirect everybody has to prove who he is.
#[test]
fn skip_does_not_spread_by_redirects() {
    let ours = Authority::new();
    let gate = gate_with(&ours, "", &obedient());
    let anybody = |host: &'static str| self_signed(&[host], IsCa::NoCa).server();
    let last = Origin::secure(anybody("b.test"), |_| answer(""));
    let place = last.url("b.test", "/rules");
    let first = Origin::secure(anybody("a.test"), move |_| moved(&place));
    let refused = get(gate.proxy, &first.url("a.test", "/lax"));
    assert_eq!(
        (refused.status, refused.field("crawl-reason")),
        (503, "robots_unreachable"),
        "{refused:?}"
    );
    assert_eq!((first.requests(), last.requests()), (1, 0));
}

#[test]
fn the_command_fetches_it_as_the_proxy_would() {
    let ours = Authority::new();
    let folder = Folder::new();
    folder.write("ca.pem", ours.pem());
    folder.write(
        "c.yaml",
        "tls: { roots: webpki, extra_roots: [ca.pem] }
egress: { ports: [1-65535], allow_loopback: true, hosts: { a.test: 127.0.0.1 } }
",
    );
    let told = |server: Arc<ServerConfig>| {
        let origin = Origin::secure(server, |_| answer(FORBIDS));
        let url = origin.url("a.test", "/closed");
        crawlgate(
            folder.path(),
            &[
                "robots", "fetch", "--config", "c.yaml", "--agent", "bot", &url,
            ],
            "",
        )
    };
    let said = told(ours.server(&["a.test"]));
    assert!(
        said.code == 0 && said.out.contains("outcome  file, status 200"),
        "{said:?}"
    );
    let said = told(ours.leaf(&["a.test"], When::Past).server());
    assert!(
        said.code == 1 && said.out.contains("outcome  tls\n"),
        "{said:?}"
    );
    assert!(
        said.out.contains("failure  the certificate has expired\n"),
        "{said:?}"
    );
}

fn is_robots(head: &str) -> bool {
    path(head) == "/robots.txt"
}

fn moved(place: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n")
}
