//! The fleet as this node sees it: `/api/v1/fleet`, and `/api/v1/fleet/partitions` for load balancers.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use crawlgate_fleet::node::NodeName;
use crawlgate_fleet::view::Owner;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value as Json, json};

use crate::fleet::FleetNode;
use crate::fleet::link::LinkError;
use crate::fleet::membership::{FleetStatus, MemberStatus, MembershipHandle};

use super::AdminServer;
use super::response::{self, problem};

/// The part of the API that shows the fleet.
#[derive(Clone, Debug)]
pub struct FleetApi {
    /// The membership; `None` if the owners are set by the caller of the server.
    pub membership: Option<MembershipHandle>,
    pub node: Arc<FleetNode>,
}

/// The node that owns a host, for people who ask another one.
pub(super) struct HostOwner {
    pub(super) node: NodeName,
    pub(super) is_here: bool,
    /// The URL of its admin listener, if it is known.
    pub(super) admin: Option<String>,
}

impl HostOwner {
    pub(super) fn to_json(&self) -> Json {
        json!({ "node": self.node.as_str(), "here": self.is_here, "admin": self.admin })
    }
}

impl FleetApi {
    /// Returns the owner of a host, if this node knows one.
    pub(super) fn owner(&self, host: &str) -> Option<HostOwner> {
        let (node, is_here) = match self.node.owners.owner(host) {
            Owner::Here { .. } => (self.node.name.clone(), true),
            Owner::Member { node, .. } => (node, false),
            Owner::Unknown => return None,
        };
        Some(HostOwner {
            admin: self.admin_urls().remove(&node),
            node,
            is_here,
        })
    }

    /// Returns the part of all hosts that this node owns, and the nodes that own the others.
    pub(super) fn coverage_to_json(&self) -> Json {
        let mut own = 0;
        let mut unowned = 0;
        let mut others: BTreeMap<NodeName, usize> = BTreeMap::new();
        for owner in self.node.owners.all() {
            match owner {
                Owner::Here { .. } => own += 1,
                Owner::Member { node, .. } => *others.entry(node).or_default() += 1,
                Owner::Unknown => unowned += 1,
            }
        }
        let of_others: usize = others.values().sum();
        let mut admin = self.admin_urls();
        let others: Json = others
            .iter()
            .map(|(node, partitions)| {
                json!({ "node": node.as_str(), "partitions": partitions, "admin": admin.remove(node) })
            })
            .collect();
        json!({
            "node": self.node.name.as_str(),
            "partitions": { "own": own, "of_others": of_others, "unowned": unowned },
            "others": others,
        })
    }

    fn admin_urls(&self) -> BTreeMap<NodeName, String> {
        let status = self.membership.as_ref().map(MembershipHandle::status);
        let members = status.iter().flat_map(|status| &status.members);
        members
            .filter_map(|member| Some((member.node.clone(), member.facts.admin.clone()?)))
            .collect()
    }
}

impl AdminServer {
    /// Returns the members, their partitions, and the links to them; 404 if this proxy is in no fleet.
    pub(super) fn show_fleet(&self) -> Response<Full<Bytes>> {
        let Some(fleet) = &self.apis.fleet else {
            return in_no_fleet();
        };
        let status = match &fleet.membership {
            Some(membership) => membership.status(),
            None => Arc::default(),
        };
        let failures: BTreeMap<NodeName, LinkError> =
            fleet.node.links.failures().into_iter().collect();
        response::json(
            StatusCode::OK,
            &status_to_json(&fleet.node, &status, &failures),
        )
    }

    /// Returns the owner of each partition, and the key with which hosts are distributed to them.
    pub(super) fn show_fleet_partitions(&self) -> Response<Full<Bytes>> {
        let Some(FleetApi { node, .. }) = &self.apis.fleet else {
            return in_no_fleet();
        };
        let owners = node.owners.all();
        let owners = owners.iter().map(|owner| match owner {
            Owner::Here { .. } => Some(node.name.as_str()),
            Owner::Member { node, .. } => Some(node.as_str()),
            Owner::Unknown => None,
        });
        let owners: Json = owners.collect();
        let view = node.owners.view();
        let key = view.partitioner().key().as_bytes();
        let document = json!({ "hash_key": to_hex(key), "owners": owners });
        response::json(StatusCode::OK, &document)
    }
}

fn in_no_fleet() -> Response<Full<Bytes>> {
    problem(StatusCode::NOT_FOUND, "this proxy is in no fleet")
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn status_to_json(
    node: &FleetNode,
    status: &FleetStatus,
    failures: &BTreeMap<NodeName, LinkError>,
) -> Json {
    let members = status.members.iter();
    let members: Json = members
        .map(|member| member_to_json(member, failures.get(&member.node)))
        .collect();
    json!({
        "node": node.name.as_str(),
        "member": status.is_member,
        "lease": node.lease.as_secs_f64(),
        "lease_left": status.lease_left.as_secs_f64(),
        "partitions": {
            "own": status.own,
            "of_others": status.of_others,
            "unowned": status.unowned,
        },
        "policy_revisions": status.policy_revisions(),
        "members": members,
        "error": status.error,
    })
}

fn member_to_json(member: &MemberStatus, failure: Option<&LinkError>) -> Json {
    json!({
        "node": member.node.as_str(),
        "address": member.address.to_string(),
        "state": member.state,
        "partitions": member.partitions,
        "version": member.facts.version,
        "protocol": member.facts.protocol.0,
        "policy": member.facts.policy,
        "admin": member.facts.admin,
        "renewed": member.renewed.map(|time| time.as_secs_f64()),
        "link_error": failure.map(ToString::to_string),
    })
}
