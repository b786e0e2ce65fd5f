//! `fleet` of the configuration file.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crawlgate_fleet::node::NodeName;
use serde_json::Value as Json;

use crate::config::settings::{FleetConfig, Settings};
use crate::model::rule_id::Slug;
use crate::tls::fleet::NodeTlsFiles;
use crate::yaml::Node;
use crate::yaml::read::MapReader;

use super::ReadContext;
use super::json_schema::{address_schema, text_schema};
use super::key::{
    ConfigKey, KeyGroup, ParsedValue, PathValue, TimeValue, object_schema, read_keys,
};
use super::values;

/// Shorter leases lapse when the store answers slowly; with longer ones hosts wait long for a new owner.
const LEASE_RANGE: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(120);

/// The section as far as it has been read.
struct FleetDraft {
    name: Box<str>,
    node: Option<NodeName>,
    listen: Option<SocketAddr>,
    advertise: Option<SocketAddr>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    ca: Option<PathBuf>,
    lease: Duration,
}

impl FleetDraft {
    fn new() -> Self {
        Self {
            name: "main".into(),
            node: None,
            listen: None,
            advertise: None,
            cert: None,
            key: None,
            ca: None,
            lease: FleetConfig::LEASE,
        }
    }

    fn tls(&mut self) -> Option<NodeTlsFiles> {
        Some(NodeTlsFiles {
            cert: self.cert.take()?,
            key: self.key.take()?,
            ca: self.ca.take()?,
        })
    }
}

const KEYS: &[ConfigKey<FleetDraft>] = &[
    ConfigKey::new(
        "name",
        "The name of the fleet, the same on each node.",
        &ParsedValue {
            parse: parse_fleet_name,
            store: |draft: &mut FleetDraft, name| draft.name = name,
            schema: |_| text_schema(),
        },
    ),
    ConfigKey::required(
        "node",
        "The name of this node, for which its certificate is: 1 to 63 letters, digits, `-`, `.` or `_`.",
        &ParsedValue {
            parse: parse_node,
            store: |draft: &mut FleetDraft, node| draft.node = Some(node),
            schema: |_| text_schema(),
        },
    ),
    ConfigKey::required(
        "listen",
        "The address at which the other nodes connect.",
        &ParsedValue {
            parse: values::parse_socket_address,
            store: |draft: &mut FleetDraft, address| draft.listen = Some(address),
            schema: |_| address_schema(),
        },
    ),
    ConfigKey::new(
        "advertise",
        "The address that the other nodes are told, if it is not that of `listen`; or none.",
        &ParsedValue {
            parse: parse_advertise,
            store: |draft: &mut FleetDraft, address| draft.advertise = address,
            schema: |_| text_schema(),
        },
    ),
    ConfigKey::new(
        "tls",
        "The certificates of links between nodes; required if `listen` is not on loopback.",
        &KeyGroup {
            path: "fleet.tls",
            keys: TLS_KEYS,
            may_be_empty: false,
        },
    ),
    ConfigKey::new(
        "lease",
        "The time for which a node may act as an owner after it has last reached the store: longer than a fail-over of the \
         store takes.",
        &TimeValue(LEASE_RANGE, |draft: &mut FleetDraft| vec![&mut draft.lease]),
    ),
];

const TLS_KEYS: &[ConfigKey<FleetDraft>] = &[
    ConfigKey::required(
        "cert",
        "The certificate of this node, for the name in `fleet.node`.",
        &PathValue(|draft: &mut FleetDraft, path| draft.cert = Some(path)),
    ),
    ConfigKey::required(
        "key",
        "Its key, which only its owner may read.",
        &PathValue(|draft: &mut FleetDraft, path| draft.key = Some(path)),
    ),
    ConfigKey::required(
        "ca",
        "The certificate of the fleet's authority, which signs those of the nodes and nothing else.",
        &PathValue(|draft: &mut FleetDraft, path| draft.ca = Some(path)),
    ),
];

pub(super) fn read_fleet(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    if node.is_null() {
        return;
    }
    let Some(map) = MapReader::open(node, "`fleet`", context.problems) else {
        return;
    };
    let mut draft = FleetDraft::new();
    read_keys(KEYS, map, &mut draft, context);
    let tls = draft.tls();
    if let (Some(node), Some(listen)) = (draft.node, draft.listen) {
        settings.fleet = Some(FleetConfig {
            name: draft.name,
            node,
            listen,
            advertise: draft.advertise,
            tls,
            lease: draft.lease,
        });
    }
}

pub(super) fn fleet_schema(_: &mut Settings) -> Json {
    let mut schema = object_schema("", KEYS, &mut FleetDraft::new());
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("type".to_owned(), serde_json::json!(["object", "null"]));
    }
    schema
}

fn parse_node(text: &str) -> Result<NodeName, String> {
    NodeName::new(text).map_err(|error| error.to_string())
}

fn parse_fleet_name(text: &str) -> Result<Box<str>, String> {
    match Slug::new(text) {
        Some(_) => Ok(text.into()),
        None => Err("write a name of lower-case letters, digits and `-`".to_owned()),
    }
}

fn parse_advertise(text: &str) -> Result<Option<SocketAddr>, String> {
    match text {
        "none" => Ok(None),
        _ => values::parse_socket_address(text).map(Some),
    }
}
