//! The state of the fleet as one node sees it, for metrics, `/readyz` and the API.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crawlgate_fleet::node::{BootTime, Incarnation, NodeName};
use crawlgate_fleet::ownership::Ownership;
use crawlgate_fleet::ownership::table::MemberState;
use crawlgate_fleet::view::Holder;

use crate::metrics::FleetCounts;

/// The state of the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetStatus {
    /// The name of this node.
    pub node: Option<NodeName>,
    /// `true` if this node is a member.
    pub is_member: bool,
    /// The time left of this node's lease.
    pub lease_left: Duration,
    /// The members, by name.
    pub members: Vec<MemberStatus>,
    /// Partitions that this node owns.
    pub own: usize,
    /// Partitions of other members.
    pub of_others: usize,
    /// Partitions without an owner that this node knows of.
    pub unowned: usize,
    /// Why the store could not be used the last time.
    pub error: Option<String>,
}

/// A member of the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    pub node: NodeName,
    pub address: SocketAddr,
    /// The state: `active`, `draining` or `silent`.
    pub state: &'static str,
    /// Its partitions.
    pub partitions: usize,
}

impl FleetStatus {
    pub(super) fn new(ownership: &Ownership, error: Option<String>, now: BootTime) -> Self {
        let view = ownership.view();
        let mut status = Self {
            node: Some(ownership.this().node.clone()),
            is_member: ownership.is_member(),
            lease_left: view
                .lease_end()
                .map(|end| end.since(now))
                .unwrap_or_default(),
            error,
            ..Self::default()
        };
        let mut partitions: BTreeMap<Incarnation, usize> = BTreeMap::new();
        for (_, holder) in view.holders() {
            match holder {
                Holder::Here(_) => status.own += 1,
                Holder::Member(index, _) => {
                    status.of_others += 1;
                    if let Some(member) = view.members().get(usize::from(index)) {
                        *partitions.entry(member.incarnation).or_default() += 1;
                    }
                }
                Holder::Nobody => status.unowned += 1,
            }
        }
        let this = ownership.this().incarnation;
        partitions.insert(this, status.own);
        for row in ownership.table().iter().flat_map(|table| &table.members) {
            let incarnation = row.member.incarnation;
            let state = match row.state {
                MemberState::Ended => continue,
                _ if !ownership.is_living(incarnation, now) => "silent",
                MemberState::Active => "active",
                MemberState::Draining => "draining",
            };
            status.members.push(MemberStatus {
                node: row.member.node.clone(),
                address: row.member.address,
                state,
                partitions: partitions.get(&incarnation).copied().unwrap_or_default(),
            });
        }
        status.members.sort_by(|a, b| a.node.cmp(&b.node));
        status
    }

    pub(super) fn counts(&self) -> FleetCounts {
        let in_state = |state| self.members.iter().filter(|m| m.state == state).count();
        FleetCounts {
            active: in_state("active"),
            draining: in_state("draining"),
            silent: in_state("silent"),
            own: self.own,
            of_others: self.of_others,
            unowned: self.unowned,
            lease_left: self.lease_left,
        }
    }
}
