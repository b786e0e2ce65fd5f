//! `GET /api/v1/fleet`: the members of the fleet and the partitions of each, as this node sees them.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value as Json, json};

use crate::fleet::membership::FleetStatus;

use super::AdminServer;
use super::response::{self, problem};

impl AdminServer {
    /// Returns the state of the fleet; 404 if this proxy is in none.
    pub(super) fn show_fleet(&self) -> Response<Full<Bytes>> {
        match &self.apis.membership {
            Some(membership) => response::json(StatusCode::OK, &to_json(&membership.status())),
            None => problem(StatusCode::NOT_FOUND, "this proxy is in no fleet"),
        }
    }
}

fn to_json(status: &FleetStatus) -> Json {
    let members: Vec<Json> = status
        .members
        .iter()
        .map(|member| {
            json!({
                "node": member.node.as_str(),
                "address": member.address.to_string(),
                "state": member.state,
                "partitions": member.partitions,
            })
        })
        .collect();
    json!({
        "node": status.node.as_ref().map(|node| node.as_str()),
        "member": status.is_member,
        "lease_left": status.lease_left.as_secs_f64(),
        "partitions": {
            "own": status.own,
            "of_others": status.of_others,
            "unowned": status.unowned,
        },
        "members": members,
        "error": status.error,
    })
}
