//! Tunnels through the owner, and requests inside intercepted TLS.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::origin_tls::certs::Authority;
use crate::support::client::{RawClient, exchange};
use crate::support::origin::ScriptedOrigin;
use crate::support::wait::wait_until;
use crate::tunnel::hello;
use crate::tunnel::inside::{Inside, builder};

use super::bench::{BenchSettings, FleetBench, POLICY, comparable};

pub(super) const BLIND: &str = "policy: 1
name: blind
options:
  disposition: allow
  robots: { obey: false }
  politeness: { delay: 0s, concurrency: 100, adaptive: null }
rules:
  - { id: no-b, forbid: { host: b.test } }
";

#[test]
fn a_blind_tunnel_goes_through_the_owner() {
    let fleet = FleetBench::start(2, BLIND);
    fleet.set_owner("a.test", 0, 1);
    let origin = ScriptedOrigin::echo();
    for at in [0, 1] {
        let mut client =
            RawClient::tunnel_to(fleet.nodes[at].proxy, &format!("a.test:{}", origin.port));
        let hello = hello::hello(Some("a.test"));
        client.send(&hello);
        assert_eq!(client.read_bytes(hello.len()), hello, "{at}");
        let data: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
        let mut writer = client.socket.try_clone().unwrap();
        let sent = data.clone();
        let writing = std::thread::spawn(move || writer.write_all(&sent).unwrap());
        assert!(client.read_bytes(data.len()) == data);
        writing.join().unwrap();
        // The end travels, too.
        client.half_close();
        let mut rest = vec![];
        client.socket.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty());
    }
    let lines = fleet.lines(0, 2);
    assert_eq!(lines.iter().filter(|line| line["entry"] == "b").count(), 1);
    for line in &lines {
        assert_eq!(line["verdict"], "allow");
        assert!(line["bytes"].as_u64().unwrap() > 1_000_000, "{line}");
    }
    assert!(fleet.lines(1, 0).is_empty());
    wait_until("no tunnel is open", || {
        fleet.metric(1, "crawlgate_tunnels") == 0
    });
}

#[test]
fn a_refused_tunnel_has_the_same_answer() {
    let fleet = FleetBench::start(2, BLIND);
    fleet.set_owner("b.test", 0, 1);
    for authority in ["b.test:443", "b.test:8443"] {
        let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        let [own, forwarded] = [0, 1].map(|at| exchange(fleet.nodes[at].proxy, &request));
        assert!(
            own.starts_with("HTTP/1.1 451 Policy-451 rule=no-b id="),
            "{own}"
        );
        assert_eq!(comparable(&forwarded), comparable(&own));
    }
    assert_eq!(fleet.lines(0, 4).len(), 4);
}

#[test]
fn a_tunnel_whose_client_leaves_ends_at_the_origin() {
    let fleet = FleetBench::start(2, BLIND);
    fleet.set_owner("a.test", 0, 1);
    let origin = ScriptedOrigin::echo();
    let mut client = RawClient::tunnel_to(fleet.nodes[1].proxy, &format!("a.test:{}", origin.port));
    let hello = hello::hello(Some("a.test"));
    client.send(&hello);
    client.read_bytes(hello.len());
    client.reset();
    wait_until("the origin's connection has ended", || {
        origin.ended_connections() == 1
    });
}

/// A configuration with interception, and the client's that trusts the authority of a node.
pub(super) fn trusting(fleet: &FleetBench, at: usize) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let pem = std::fs::read(fleet.nodes[at].folder.path().join("ca.pem")).unwrap();
    roots
        .add(CertificateDer::from_pem_slice(&pem).unwrap())
        .unwrap();
    Arc::new(
        builder()
            .with_root_certificates(roots)
            .with_no_client_auth(),
    )
}

#[test]
fn requests_inside_intercepted_tls_are_forwarded_one_by_one() {
    let settings = BenchSettings {
        config: "tls: { intercept: true, verify_upstream: false, ca: { cert: ca.pem, key: ca.key }, bundle: bundle.pem }\n",
        ..BenchSettings::default()
    };
    let fleet = FleetBench::start_with(2, POLICY, &settings);
    fleet.set_owner("a.test", 0, 1);
    let certificates = Authority::new();
    let origin = ScriptedOrigin::tls(certificates.server(&["a.test"]), |head| {
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}",
            path.len()
        )
    });
    let mut answers = vec![];
    for at in [0, 1] {
        let authority = format!("a.test:{}", origin.port);
        let config = trusting(&fleet, at);
        let proxy = fleet.nodes[at].proxy;
        let mut inside = Inside::try_open(proxy, &authority, "a.test", &config).unwrap();
        for path in ["/", "/private", "/x?y=1"] {
            inside.send(format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
            let (head, body) = inside.answer();
            answers.push(comparable(&format!("{head}{body}")));
        }
    }
    assert_eq!(answers[..3], answers[3..]);
    assert!(answers[1].contains("crawl-rule: private"), "{}", answers[1]);
    let lines = fleet.lines(0, 6);
    for line in lines.iter().filter(|line| line["verdict"] == "allow") {
        let url = line["url"].as_str().unwrap_or_default();
        assert!(url.starts_with("https://a.test:"), "{line}");
    }
    assert!(fleet.lines(1, 0).is_empty());
}
