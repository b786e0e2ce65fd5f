//! `egress` of the configuration file.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::config::settings::{AllowPrivate, Egress, Ports, Resolver};
use crate::vocab::problem::Problem;
use crate::vocab::problems::Problems;
use crate::yaml::Node;
use crate::yaml::read::{self, MapReader};

use super::{checked, later, set, value};

pub(super) fn read(egress: &mut Egress, mut map: MapReader<'_>, problems: &mut Problems) {
    set(
        &mut egress.allow_private,
        map.take("allow_private")
            .map(|node| exceptions(node, problems)),
    );
    let loopback = map
        .take("allow_loopback")
        .and_then(|node| read::boolean(node, problems));
    set(&mut egress.allow_loopback, loopback);
    set(
        &mut egress.ports,
        map.take("ports").map(|node| ports(node, problems)),
    );
    set(
        &mut egress.connect_ports,
        map.take("connect_ports").map(|node| ports(node, problems)),
    );
    set(
        &mut egress.tls_ports,
        map.take("tls_ports").map(|node| ports(node, problems)),
    );
    set(
        &mut egress.resolver,
        map.take("resolver")
            .and_then(|node| resolver(node, problems)),
    );
    set(
        &mut egress.hosts,
        map.take("hosts").map(|node| hosts(node, problems)),
    );
    later::check(&mut map, "egress", problems);
    map.finish(problems);
}

fn exceptions(node: &Node, problems: &mut Problems) -> Vec<AllowPrivate> {
    let items = read::items(node, "`allow_private`", problems);
    items
        .iter()
        .filter_map(|item| exception(item, problems))
        .collect()
}

fn exception(node: &Node, problems: &mut Problems) -> Option<AllowPrivate> {
    let mut map = MapReader::open(node, "an exception", problems)?;
    let host = map
        .require("host", problems)
        .and_then(|n| checked(n, value::host_pattern, problems));
    let cidr = map
        .require("cidr", problems)
        .and_then(|n| checked(n, value::private_network, problems));
    map.finish(problems);
    Some(AllowPrivate {
        host: host?,
        cidr: cidr?,
    })
}

fn ports(node: &Node, problems: &mut Problems) -> Ports {
    let items = read::one_or_many(node);
    items
        .iter()
        .filter_map(|item| checked(item, value::ports, problems))
        .collect()
}

fn resolver(node: &Node, problems: &mut Problems) -> Option<Resolver> {
    if node.spelling().is_some() || node.is_null() {
        let system = |word: &str| (word == "system").then_some(Resolver::System);
        return read::word(
            node,
            &["system", "{servers: [\"ip:port\"]}"],
            system,
            problems,
        );
    }
    let mut map = MapReader::open(node, "`resolver`", problems)?;
    let servers = map.require("servers", problems);
    map.finish(problems);
    let servers = read::items(servers?, "`servers`", problems);
    let addresses: Vec<SocketAddr> = servers
        .iter()
        .filter_map(|n| checked(n, value::name_server, problems))
        .collect();
    if servers.is_empty() {
        problems.push(read::wrong_type(
            node,
            "`servers` needs at least one address",
        ));
    }
    Some(Resolver::Servers(addresses)).filter(|_| !servers.is_empty())
}

fn hosts(node: &Node, problems: &mut Problems) -> BTreeMap<String, Vec<IpAddr>> {
    let mut hosts: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    for entry in read::entries(node, "`hosts`", problems) {
        let name = match value::host(&entry.key.text) {
            Ok(name) => name,
            Err(mistake) => {
                problems.push(Problem::error(&entry.key.place, mistake).found(&*entry.key.text));
                continue;
            }
        };
        let items = read::one_or_many(&entry.value);
        let addresses = items
            .iter()
            .filter_map(|item| checked(item, value::address, problems));
        hosts.entry(name).or_default().extend(addresses);
    }
    hosts
}
