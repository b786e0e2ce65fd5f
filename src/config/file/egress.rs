//! `egress` of the configuration file.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use serde_json::{Value as Json, json};

use crate::config::settings::Settings;
use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::proxy::destination::PrivateHost;
use crate::proxy::resolve::NameServers;
use crate::yaml::Node;
use crate::yaml::read::{self, MapReader};

use super::ReadContext;
use super::json_schema::{one_or_many_schema, text_schema};
use super::key::{
    ConfigKey, ConfigValue, CustomValue, ParsedValue, SwitchValue, object_schema, parse_scalar,
    parse_scalars, read_keys, set_if_some,
};
use super::parents;
use super::values::{self, PortRange};

pub(super) const KEYS: &[ConfigKey<Settings>] = &[
    ConfigKey::new(
        "allow_private",
        "Private networks to which some hosts may resolve.",
        &CustomValue(read_private_hosts, |_| {
            let item = object_schema(
                "An exception; host and network must match.",
                PRIVATE_HOST_KEYS,
                &mut PrivateHostDraft::default(),
            );
            json!({ "type": "array", "items": item })
        }),
    ),
    ConfigKey::new(
        "allow_loopback",
        "Allow loopback addresses: only for tests on one machine.",
        &SwitchValue::new(|s: &mut Settings| &mut s.egress.allow_loopback),
    ),
    ConfigKey::new(
        "ports",
        "The ports of URLs and tunnels.",
        &PortsValue(|s: &mut Settings| &mut s.egress.ports),
    ),
    ConfigKey::new(
        "connect_ports",
        "The ports of tunnels (CONNECT).",
        &PortsValue(|s: &mut Settings| &mut s.tunnels.connect_ports),
    ),
    ConfigKey::new(
        "tls_ports",
        "The ports where a tunnel may carry TLS without interception.",
        &PortsValue(|s: &mut Settings| &mut s.tunnels.tls_ports),
    ),
    ConfigKey::new(
        "resolver",
        "How names are resolved.",
        &CustomValue(
            |node, settings: &mut Settings, context| {
                let servers = read_name_servers(node, context);
                set_if_some(&mut settings.dns.servers, servers);
            },
            name_servers_schema,
        ),
    ),
    ConfigKey::new(
        "hosts",
        "Names with fixed addresses.",
        &CustomValue(
            |node, settings: &mut Settings, context| {
                settings.dns.hosts = read_hosts(node, context.problems)
            },
            |_| json!({ "type": "object", "additionalProperties": one_or_many_schema(&text_schema()) }),
        ),
    ),
    ConfigKey::new(
        "parents",
        "Other proxies through which requests can go, by name; the policy option upstream selects one.",
        &CustomValue(parents::read_parents, parents::parents_schema),
    ),
    ConfigKey::new(
        "bind",
        "The local addresses of outgoing connections, by crawler or host.",
        &CustomValue(parents::read_bind, parents::bind_schema),
    ),
];

#[derive(Default)]
struct PrivateHostDraft {
    host: Option<String>,
    cidr: Option<IpNet>,
}

const PRIVATE_HOST_KEYS: &[ConfigKey<PrivateHostDraft>] = &[
    ConfigKey::required(
        "host",
        "A host, or *. and a domain.",
        &ParsedValue {
            parse: values::parse_host_pattern,
            store: |draft: &mut PrivateHostDraft, host| draft.host = Some(host),
            schema: |_| text_schema(),
        },
    ),
    ConfigKey::required(
        "cidr",
        "A network.",
        &ParsedValue {
            parse: values::parse_private_network,
            store: |draft: &mut PrivateHostDraft, cidr| draft.cidr = Some(cidr),
            schema: |_| text_schema(),
        },
    ),
];

fn read_private_hosts(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    let items = read::items(node, "`allow_private`", context.problems);
    let hosts = items
        .iter()
        .filter_map(|item| read_private_host(item, context));
    settings.egress.allow_private = hosts.collect();
}

fn read_private_host(node: &Node, context: &mut ReadContext<'_>) -> Option<PrivateHost> {
    if node.spelling().is_some() {
        let problem = read::wrong_type(node, "an exception names hosts and a network");
        let help = "written like { host: \"*.corp.example\", cidr: 10.2.0.0/16 }";
        context.problems.push(problem.with_help(help));
        return None;
    }
    let map = MapReader::open(node, "an exception", context.problems)?;
    let mut draft = PrivateHostDraft::default();
    read_keys(PRIVATE_HOST_KEYS, map, &mut draft, context);
    Some(PrivateHost {
        host: draft.host?,
        cidr: draft.cidr?,
    })
}

/// A port, a range of ports, or a list of these.
struct PortsValue(fn(&mut Settings) -> &mut Vec<PortRange>);

impl ConfigValue<Settings> for PortsValue {
    fn read(&self, node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
        let ranges = parse_scalars(node, values::parse_port_range, context.problems);
        *(self.0)(settings) = values::merge_port_ranges(ranges);
    }

    fn schema(&self, _: &mut Settings) -> Json {
        one_or_many_schema(&json!({ "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": 65_535 },
            { "type": "string", "pattern": "^([0-9]+(-[0-9]+)?|.*\\$\\{.*)$" },
        ] }))
    }
}

fn read_name_servers(node: &Node, context: &mut ReadContext<'_>) -> Option<NameServers> {
    if node.spelling().is_some() || node.is_null() {
        return read::word(
            node,
            &["system", "{servers: [\"ip:port\"]}"],
            |word| (word == "system").then_some(NameServers::System),
            context.problems,
        );
    }
    let map = MapReader::open(node, "`resolver`", context.problems)?;
    let mut servers = None;
    read_keys(NAME_SERVER_KEYS, map, &mut servers, context);
    let servers: Vec<Option<SocketAddr>> = servers?;
    if servers.is_empty() {
        context.problems.push(read::wrong_type(
            node,
            "`servers` needs at least one address",
        ));
        return None;
    }
    Some(NameServers::Servers(
        servers.into_iter().flatten().collect(),
    ))
}

fn name_servers_schema(_: &mut Settings) -> Json {
    let servers = object_schema("Name servers.", NAME_SERVER_KEYS, &mut None);
    json!({ "anyOf": [{ "const": "system" }, servers], "default": "system" })
}

/// The servers, each `None` if it has a mistake.
const NAME_SERVER_KEYS: &[ConfigKey<Option<Vec<Option<SocketAddr>>>>] = &[ConfigKey::required(
    "servers",
    "Their addresses and ports.",
    &CustomValue(
        |node, servers, context| {
            let items = read::items(node, "`servers`", context.problems);
            let parsed = items
                .iter()
                .map(|item| parse_scalar(item, values::parse_name_server, context.problems));
            *servers = Some(parsed.collect());
        },
        |_| json!({ "type": "array", "minItems": 1, "items": text_schema() }),
    ),
)];

fn read_hosts(node: &Node, problems: &mut Problems) -> BTreeMap<String, Vec<IpAddr>> {
    let mut hosts: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    for entry in read::entries(node, "`hosts`", problems) {
        match values::parse_host(&entry.key.text) {
            Ok(name) => {
                let addresses = parse_scalars(&entry.value, values::parse_address, problems);
                hosts.entry(name).or_default().extend(addresses);
            }
            Err(message) => problems
                .push(Problem::error(&entry.key.place, message).with_found(&*entry.key.text)),
        }
    }
    hosts
}
