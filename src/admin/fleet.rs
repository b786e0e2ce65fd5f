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
