//! Nodes in the test's process, and a table of owners that the test changes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use crawlgate::clock::Clock;
use crawlgate::config::policy;
use crawlgate::fleet::owners::HostOwners;
use crawlgate::server::Server;
use crawlgate::tls::CertificateAuthority;
use crawlgate_fleet::node::{BootTime, Epoch, Incarnation, Member, NodeName};
use crawlgate_fleet::partition::{FleetKey, PARTITIONS, Partitioner};
use crawlgate_fleet::view::{Holder, OwnershipView};
use serde_json::Value as Json;
use tokio::runtime::{Builder, Runtime};

use crate::ledger_wire::settings;
use crate::support::client::{RawClient, Response, exchange};
use crate::support::temp_dir::TempDir;
use crate::support::wait::wait_until;

/// A policy that neither refuses nor delays, with a few rules.
pub(super) const POLICY: &str = "policy: 1
name: fleet
options:
  disposition: allow
  robots: { obey: false }
  politeness: { delay: 0s, concurrency: 100, adaptive: null }
rules:
  - { id: private, about: not for crawlers, forbid: { under: /private } }
";

/// The hosts of the tests; all are on loopback.
const HOSTS: &str = "a.test: 127.0.0.1, b.test: 127.0.0.1, c.test: 127.0.0.1";

/// A node: a proxy in the test's process.
pub(crate) struct TestNode {
    pub(super) name: NodeName,
    pub(super) folder: TempDir,
    server: Option<Server>,
    pub(crate) proxy: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(super) links: SocketAddr,
    owners: HostOwners,
    table: Mutex<HashMap<String, (usize, u64)>>,
}

/// A fleet whose owners are those that the test sets.
pub(crate) struct FleetBench {
    pub(crate) nodes: Vec<TestNode>,
    /// The files of the fleet's authority.
    pub(super) authority: TempDir,
    pub(super) runtime: Runtime,
}

/// The settings of a bench beyond the policy.
#[derive(Default)]
pub(super) struct BenchSettings<'a> {
    /// More lines of each configuration.
    pub(super) config: &'a str,
    /// Lines of the configuration of the node with this index only.
    pub(super) only: Option<(usize, &'a str)>,
    /// Lines of the configurations of the nodes with these indexes.
    pub(super) each: &'a [(usize, &'a str)],
    pub(super) without_tls: bool,
}

impl FleetBench {
    /// Starts this number of nodes: `a`, `b` and so on.
    pub(super) fn start(count: usize, policy: &str) -> Self {
        Self::start_with(count, policy, &BenchSettings::default())
    }

    pub(super) fn start_with(count: usize, policy: &str, more: &BenchSettings<'_>) -> Self {
        Self::start_nodes(count, policy, !more.without_tls, |index, name| {
            let mut own = more.only.iter().chain(more.each);
            let own = own.find(|(only, _)| *only == index);
            let own = own.map_or("", |(_, lines)| *lines);
            node_config(name, &format!("{}{own}", more.config), !more.without_tls)
        })
    }

    /// Starts nodes whose configuration has the given lines, which include listeners and the policy.
    pub(crate) fn start_configured(count: usize, policy: &str, config: &str) -> Self {
        Self::start_nodes(count, policy, true, |_, name| {
            format!(
                "{config}tls: {{ intercept: false }}\nstore: {{ path: store }}\n{}",
                fleet_section(name, true)
            )
        })
    }

    fn start_nodes(
        count: usize,
        policy: &str,
        tls: bool,
        config: impl Fn(usize, &str) -> String,
    ) -> Self {
        let authority = TempDir::new();
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let mut bench = Self {
            nodes: vec![],
            authority,
            runtime,
        };
        new_authority(&bench.authority);
        for (index, name) in ["a", "b", "c"].into_iter().take(count).enumerate() {
            let node = bench.start_node(name, policy, config(index, name), tls);
            bench.nodes.push(node);
        }
        (0..count).for_each(|at| bench.publish(at));
        bench
    }

    fn start_node(&self, name: &str, policy_text: &str, config: String, tls: bool) -> TestNode {
        let folder = TempDir::new();
        folder.write("policy.yaml", policy_text);
        if tls {
            issue(&self.authority, name, &folder);
        }
        let file = folder.write("crawlgate.yaml", config);
        let settings = settings(file);
        let compiled = policy::open_and_test(&settings.policy.origin);
        let compiled = compiled.unwrap_or_else(|problems| panic!("{problems:?}"));
        let view = OwnershipView::empty(partitioner());
        let owners = HostOwners::new(view, Clock::system());
        let started = async { Server::start_in_fleet(&settings, compiled.policy, owners.clone()) };
        let server = self.runtime.block_on(started).unwrap();
        TestNode {
            name: NodeName::new(name).unwrap(),
            folder,
            proxy: server.proxy[0],
            admin: server.admin,
            links: server.links.unwrap(),
            server: Some(server),
            owners,
            table: Mutex::default(),
        }
    }

    /// Makes a node the owner of a host, in the tables of all nodes.
    pub(super) fn set_owner(&self, host: &str, owner: usize, epoch: u64) {
        for at in 0..self.nodes.len() {
            self.set_owner_at(at, host, Some((owner, epoch)));
        }
    }

    /// Makes a node the owner of all hosts.
    pub(crate) fn set_owner_of_all(&self, owner: usize) {
        for (at, node) in self.nodes.iter().enumerate() {
            let holder = match at == owner {
                true => Holder::Here(Epoch(1)),
                false => Holder::Member(u16::try_from(owner).unwrap(), Epoch(1)),
            };
            let holders = vec![holder; usize::from(PARTITIONS.get())];
            node.owners
                .publish(self.view(holders, |_, node| node.links));
        }
    }

    /// Sets the owner of a host in the table of one node.
    pub(super) fn set_owner_at(&self, at: usize, host: &str, owner: Option<(usize, u64)>) {
        let mut table = self.nodes[at].table.lock().unwrap();
        match owner {
            Some(owner) => table.insert(host.to_owned(), owner),
            None => table.remove(host),
        };
        drop(table);
        self.publish(at);
    }

    fn publish(&self, at: usize) {
        self.publish_members(at, |_, node| node.links);
    }

    /// Returns the address at which other nodes reach a node.
    pub(super) fn links(&self, at: usize) -> SocketAddr {
        self.nodes[at].links
    }

    /// Publishes the table of a node, with another address of one member.
    pub(super) fn publish_with_address(&self, at: usize, member: usize, address: SocketAddr) {
        self.publish_members(
            at,
            |index, node| {
                if index == member { address } else { node.links }
            },
        );
    }

    fn publish_members(&self, at: usize, address: impl Fn(usize, &TestNode) -> SocketAddr) {
        let partitioner = partitioner();
        let mut holders = vec![Holder::Nobody; usize::from(partitioner.count())];
        for (host, (owner, epoch)) in &*self.nodes[at].table.lock().unwrap() {
            let partition = usize::from(partitioner.partition(host).0);
            holders[partition] = if *owner == at {
                Holder::Here(Epoch(*epoch))
            } else {
                Holder::Member(u16::try_from(*owner).unwrap(), Epoch(*epoch))
            };
        }
        let view = self.view(holders, address);
        self.nodes[at].owners.publish(view);
    }

    /// A view of a node with a lease.
    fn view(
        &self,
        holders: Vec<Holder>,
        address: impl Fn(usize, &TestNode) -> SocketAddr,
    ) -> OwnershipView {
        let members: Arc<[Member]> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(index, node)| Member {
                node: node.name.clone(),
                incarnation: Incarnation(index as u64 + 1),
                address: address(index, node),
            })
            .collect();
        let lease_end = BootTime(Duration::from_secs(1 << 40));
        OwnershipView::new(partitioner(), holders.into(), members, Some(lease_end))
    }

    /// Makes a member silent in the table of a node: it does not renew its lease.
    pub(super) fn publish_silent(&self, at: usize, member: usize) {
        let owners = &self.nodes[at].owners;
        let silent = [self.nodes[member].name.clone()];
        let view = OwnershipView::clone(&owners.view());
        owners.publish(view.with_silent(silent.into()));
    }

    /// Breaks off what a node has under way for its ownership of a host, as after the end of its lease.
    pub(super) fn break_off(&self, at: usize, host: &str) {
        let partition = partitioner().partition(host);
        let owners = &self.nodes[at].owners;
        owners.break_off(&[partition]);
    }

    /// Ends the lease of a node.
    pub(super) fn end_lease(&self, at: usize) {
        self.nodes[at]
            .owners
            .publish(OwnershipView::empty(partitioner()));
    }

    /// Ends a node: its listeners and its connections are closed.
    pub(super) fn kill(&mut self, at: usize) {
        let server = self.nodes[at].server.take().unwrap();
        self.runtime.block_on(server.drain(std::future::ready(())));
    }

    /// Sends bytes to a node on a connection of their own, and reads to its end.
    #[track_caller]
    pub(super) fn exchange(&self, at: usize, bytes: impl AsRef<[u8]>) -> String {
        exchange(self.nodes[at].proxy, bytes)
    }

    pub(super) fn client(&self, at: usize) -> RawClient {
        RawClient::connect(self.nodes[at].proxy)
    }

    #[track_caller]
    pub(super) fn get(&self, at: usize, url: &str) -> Response {
        self.client(at).get(url)
    }

    /// The text of a node's `/readyz`.
    pub(super) fn ready(&self, at: usize) -> String {
        let admin = self.nodes[at].admin;
        let request = format!("GET /readyz HTTP/1.1\r\nHost: {admin}\r\n\r\n");
        RawClient::connect(admin).request(request).body
    }

    /// The value of a series of a node's metrics.
    #[track_caller]
    pub(crate) fn metric(&self, at: usize, series: &str) -> u64 {
        let admin = self.nodes[at].admin;
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {admin}\r\n\r\n");
        let metrics = RawClient::connect(admin).request(request).body;
        let mut lines = metrics.lines();
        let value = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let value = value.unwrap_or_else(|| panic!("no {series} in {metrics}"));
        value.parse::<f64>().unwrap() as u64
    }

    /// The lines of a node's log, once there are this many.
    #[track_caller]
    pub(super) fn lines(&self, at: usize, count: usize) -> Vec<Json> {
        let path = self.nodes[at].folder.path().join("log.json");
        let read = || std::fs::read_to_string(&path).unwrap_or_default();
        wait_until("the log is written", || {
            read().matches('\n').count() >= count
        });
        let lines = read();
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<Json> = lines.collect();
        assert_eq!(lines.len(), count, "{lines:?}");
        lines
    }
}

impl Drop for FleetBench {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            if let Some(server) = node.server.take() {
                self.runtime.block_on(server.drain(std::future::ready(())));
            }
        }
    }
}

fn node_config(name: &str, more: &str, tls: bool) -> String {
    let fleet = fleet_section(name, tls);
    let interception = if more.contains("\ntls:") || more.starts_with("tls:") {
        ""
    } else {
        "tls: { intercept: false }\n"
    };
    format!(
        "listen: 127.0.0.1:0
admin: {{ listen: 127.0.0.1:0 }}
policy: {{ path: policy.yaml, watch: false }}
logs: {{ decisions: log.json }}
store: {{ path: store }}
egress: {{ ports: [1-65535], connect_ports: [1-65535], tls_ports: [1-65535], allow_loopback: true, hosts: {{ {HOSTS} }} }}
{fleet}{interception}{more}"
    )
}

fn fleet_section(name: &str, tls: bool) -> String {
    let files = if tls {
        "tls: { cert: node.pem, key: node.key, ca: fleet.pem }"
    } else {
        "lease: 5s"
    };
    format!("fleet: {{ node: {name}, listen: 127.0.0.1:0, {files} }}\n")
}

fn partitioner() -> Partitioner {
    Partitioner::new(FleetKey::new([7; 16]), PARTITIONS)
}

pub(super) fn new_authority(folder: &TempDir) {
    let (cert, key) = (
        folder.path().join("fleet.pem"),
        folder.path().join("fleet.key"),
    );
    CertificateAuthority::create(&cert, &key, SystemTime::now()).unwrap();
}

/// Issues a certificate for a node, and copies that of the authority.
pub(super) fn issue(authority: &TempDir, node: &str, folder: &TempDir) {
    let (cert, key) = (
        authority.path().join("fleet.pem"),
        authority.path().join("fleet.key"),
    );
    let loaded = CertificateAuthority::load(&cert, &key, SystemTime::now()).unwrap();
    let issued = loaded.issue_node_certificate(
        node,
        &folder.path().join("node.pem"),
        &folder.path().join("node.key"),
        SystemTime::now(),
    );
    issued.unwrap();
    std::fs::copy(cert, folder.path().join("fleet.pem")).unwrap();
}

/// Replaces what differs between any two requests, ids and times, and sorts the header fields: hyper adds `Date` after
/// those that it gets.
pub(super) fn comparable(answer: &str) -> String {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    let mut fields: Vec<&str> = lines
        .map(|line| {
            if line.starts_with("date: ") {
                "date: DATE"
            } else {
                line
            }
        })
        .collect();
    fields.sort_unstable();
    let text = format!("{status}\r\n{}\r\n\r\n{body}", fields.join("\r\n"));
    // Decisions are numbered: 9f3c01ab-1f.
    let pattern = regex::Regex::new("[0-9a-f]{8}-[0-9a-f]{1,4}").unwrap();
    pattern.replace_all(&text, "ID").into_owned()
}
