//! `egress` of the configuration file.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::config::settings::{EgressConfig, PortSet, PrivateNetworkException, ResolverSetting};
use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::yaml::Node;
use crate::yaml::read::{self, MapReader};

use super::{parse_scalar, set_if_some, unsupported, values};

pub(super) fn read(egress: &mut EgressConfig, mut map: MapReader<'_>, problems: &mut Problems) {
    set_if_some(
        &mut egress.allow_private,
        map.take("allow_private")
            .map(|node| read_exceptions(node, problems)),
    );
    let loopback = map
        .take("allow_loopback")
        .and_then(|node| read::boolean(node, problems));
    set_if_some(&mut egress.allow_loopback, loopback);
    set_if_some(
        &mut egress.ports,
        map.take("ports").map(|node| read_ports(node, problems)),
    );
    set_if_some(
        &mut egress.connect_ports,
        map.take("connect_ports")
            .map(|node| read_ports(node, problems)),
    );
    set_if_some(
        &mut egress.tls_ports,
        map.take("tls_ports").map(|node| read_ports(node, problems)),
    );
    set_if_some(
        &mut egress.resolver,
        map.take("resolver")
            .and_then(|node| read_resolver(node, problems)),
    );
    set_if_some(
        &mut egress.hosts,
        map.take("hosts").map(|node| read_hosts(node, problems)),
    );
    unsupported::check(&mut map, "egress", problems);
    map.finish(problems);
}

fn read_exceptions(node: &Node, problems: &mut Problems) -> Vec<PrivateNetworkException> {
    let items = read::items(node, "`allow_private`", problems);
    items
        .iter()
        .filter_map(|item| read_exception(item, problems))
        .collect()
}

fn read_exception(node: &Node, problems: &mut Problems) -> Option<PrivateNetworkException> {
    let mut map = MapReader::open(node, "an exception", problems)?;
    let host = map
        .require("host", problems)
        .and_then(|n| parse_scalar(n, values::parse_host_pattern, problems));
    let cidr = map
        .require("cidr", problems)
        .and_then(|n| parse_scalar(n, values::parse_private_network, problems));
    map.finish(problems);
    Some(PrivateNetworkException {
        host: host?,
        cidr: cidr?,
    })
}

fn read_ports(node: &Node, problems: &mut Problems) -> PortSet {
    let items = read::one_or_many(node);
    items
        .iter()
        .filter_map(|item| parse_scalar(item, values::parse_port_range, problems))
        .collect()
}

fn read_resolver(node: &Node, problems: &mut Problems) -> Option<ResolverSetting> {
    if node.spelling().is_some() || node.is_null() {
        let system = |word: &str| (word == "system").then_some(ResolverSetting::System);
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
        .filter_map(|n| parse_scalar(n, values::parse_name_server, problems))
        .collect();
    if servers.is_empty() {
        problems.push(read::wrong_type(
            node,
            "`servers` needs at least one address",
        ));
    }
    Some(ResolverSetting::Servers(addresses)).filter(|_| !servers.is_empty())
}

fn read_hosts(node: &Node, problems: &mut Problems) -> BTreeMap<String, Vec<IpAddr>> {
    let mut hosts: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    for entry in read::entries(node, "`hosts`", problems) {
        let name = match values::parse_host(&entry.key.text) {
            Ok(name) => name,
            Err(mistake) => {
                problems
                    .push(Problem::error(&entry.key.place, mistake).with_found(&*entry.key.text));
                continue;
            }
        };
        let items = read::one_or_many(&entry.value);
        let addresses = items
            .iter()
            .filter_map(|item| parse_scalar(item, values::parse_address, problems));
        hosts.entry(name).or_default().extend(addresses);
    }
    hosts
}
