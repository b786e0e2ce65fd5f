//! Links: certificates of both sides, and the node that they are for.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::tls::fleet::{NodeTls, NodeTlsError, NodeTlsFiles};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::support::origin::ScriptedOrigin;
use crate::support::temp_dir::TempDir;

use super::bench::{BenchSettings, FleetBench, POLICY, issue, new_authority};

fn files(folder: &TempDir) -> NodeTlsFiles {
    NodeTlsFiles {
        cert: folder.path().join("node.pem"),
        key: folder.path().join("node.key"),
        ca: folder.path().join("fleet.pem"),
    }
}

fn load(folder: &TempDir, node: &str) -> Result<NodeTls, NodeTlsError> {
    NodeTls::load(&files(folder), node, Clock::system().wall_time())
}

/// The TLS configuration of a node with a certificate of this authority.
fn node_tls(authority: &TempDir, node: &str) -> Arc<ClientConfig> {
    let folder = TempDir::new();
    issue(authority, node, &folder);
    load(&folder, node).unwrap().client
}

/// Sends a forwarded request in the name of a node; returns the answer, or an error of TLS.
fn send_as(
    fleet: &FleetBench,
    config: &Arc<ClientConfig>,
    entry: &str,
    url: &str,
) -> std::io::Result<String> {
    let name = ServerName::try_from("a").unwrap();
    let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    let socket = TcpStream::connect(fleet.nodes[0].links).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    let request = format!(
        "GET {url} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nCrawl-Fleet: node={entry}; crawler=anonymous; \
         client=127.0.0.1; id=1; version=1.1; hop=1\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_node_must_have_a_certificate_of_the_fleet_for_its_own_name() {
    let fleet = FleetBench::start(2, POLICY);
    fleet.set_owner("a.test", 0, 1);
    let origin = ScriptedOrigin::ok();
    let url = origin.url("a.test", "/");
    let b = node_tls(&fleet.authority, "b");
    let answer = send_as(&fleet, &b, "b", &url).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    // A certificate of the fleet, for another node than the one that it claims to be.
    let answer = send_as(&fleet, &b, "c", &url).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.contains("not that of c"),
        "{answer}"
    );
    // A certificate of another authority: the node's own trust is not the mistake here.
    let strangers = TempDir::new();
    new_authority(&strangers);
    let stranger = TempDir::new();
    issue(&strangers, "b", &stranger);
    let both = [&stranger, &fleet.authority]
        .map(|folder| std::fs::read_to_string(folder.path().join("fleet.pem")).unwrap());
    stranger.write("fleet.pem", both.concat());
    let stranger = load(&stranger, "b").unwrap().client;
    assert!(send_as(&fleet, &stranger, "b", &url).is_err());
    assert_eq!(origin.heads().len(), 1);
}

#[test]
fn an_entry_does_not_send_to_a_node_of_another_name() {
    let fleet = FleetBench::start(3, POLICY);
    // At the address of `c`, as the table of `b` has it, `a` answers.
    fleet.set_owner("a.test", 0, 1);
    let origin = ScriptedOrigin::ok();
    fleet.set_owner_at(1, "a.test", Some((2, 1)));
    fleet.publish_with_address(1, 2, fleet.nodes[0].links);
    let agent = "User-Agent: python-httpx/0.28\r\n";
    let answer = fleet.client(1).get_with(&origin.url("a.test", "/"), agent);
    answer.check(503, &["crawl-reason: owner_unavailable", "retry-after: 12"]);
    assert!(origin.heads().is_empty());
    assert_eq!(
        fleet.metric(1, "crawlgate_fleet_links{state=\"failing\"}"),
        1
    );
    assert_eq!(
        fleet.metric(1, "crawlgate_fleet_forwarded_total{result=\"refused\"}"),
        1
    );
}

#[test]
fn a_certificate_for_another_node_is_an_error_at_the_start() {
    let authority = TempDir::new();
    new_authority(&authority);
    let folder = TempDir::new();
    issue(&authority, "other", &folder);
    let error = load(&folder, "a").unwrap_err();
    assert!(matches!(error, NodeTlsError::OtherNode { .. }), "{error}");
    assert!(error.to_string().contains("other"), "{error}");
    let missing = NodeTlsFiles {
        cert: folder.path().join("nothing.pem"),
        ..files(&folder)
    };
    let now = Clock::system().wall_time();
    assert!(NodeTls::load(&missing, "other", now).is_err());
}

#[test]
fn a_certificate_that_other_nodes_refuse_is_an_error_at_the_start() {
    let (authority, other) = (TempDir::new(), TempDir::new());
    new_authority(&authority);
    new_authority(&other);
    let folder = TempDir::new();
    issue(&authority, "a", &folder);
    load(&folder, "a").unwrap();
    let in_three_years = Clock::system().wall_time() + 3 * Duration::from_secs(365 * 86_400);
    let expired = NodeTls::load(&files(&folder), "a", in_three_years).unwrap_err();
    assert!(expired.to_string().contains("expired"), "{expired}");
    std::fs::copy(
        other.path().join("fleet.pem"),
        folder.path().join("fleet.pem"),
    )
    .unwrap();
    let error = load(&folder, "a").unwrap_err();
    assert!(matches!(error, NodeTlsError::NotOfFleet { .. }), "{error}");
    assert!(
        error.to_string().contains("crawlgate fleet cert a"),
        "{error}"
    );
}

#[test]
fn links_without_tls_work_on_loopback() {
    let settings = BenchSettings {
        without_tls: true,
        ..BenchSettings::default()
    };
    let fleet = FleetBench::start_with(2, POLICY, &settings);
    fleet.set_owner("a.test", 0, 1);
    let origin = ScriptedOrigin::ok();
    fleet.get(1, &origin.url("a.test", "/")).check(200, &["ok"]);
}
