//! The state of the fleet as one node sees it, for metrics, `/readyz` and the API.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use crawlgate_fleet::node::{BootTime, Incarnation, NodeName};
use crawlgate_fleet::ownership::Ownership;
use crawlgate_fleet::ownership::table::MemberState;
use crawlgate_fleet::view::Holder;

use crate::fleet::store::MemberFacts;
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
    pub facts: MemberFacts,
    /// The time since this node has seen it renew its lease.
    pub renewed: Option<Duration>,
}

impl FleetStatus {
    pub(super) fn new(
        ownership: &Ownership,
        facts: &BTreeMap<Incarnation, MemberFacts>,
        error: Option<String>,
        now: BootTime,
    ) -> Self {
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
            // A renewal reads both.
            let Some(facts) = facts.get(&incarnation).cloned() else {
                continue;
            };
            status.members.push(MemberStatus {
                node: row.member.node.clone(),
                address: row.member.address,
                state,
                partitions: partitions.get(&incarnation).copied().unwrap_or_default(),
                facts,
                renewed: ownership
                    .unchanged_since(incarnation)
                    .map(|since| now.since(since)),
            });
        }
        status.members.sort_by(|a, b| a.node.cmp(&b.node));
        status
    }

    /// Returns another member with the address of this node: requests for its hosts would come here.
    pub fn address_conflict(&self) -> Option<&MemberStatus> {
        let is_this = |member: &&MemberStatus| Some(&member.node) == self.node.as_ref();
        let own = self.members.iter().find(is_this)?;
        let mut others = self.members.iter().filter(|member| !is_this(member));
        others.find(|other| other.state != "silent" && other.address == own.address)
    }

    /// Returns the number of different policies among the members that renew their lease.
    pub fn policy_revisions(&self) -> usize {
        let living = self
            .members
            .iter()
            .filter(|member| member.state != "silent");
        let revisions: BTreeSet<&str> = living.map(|member| member.facts.policy.as_str()).collect();
        revisions.len()
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
            policy_revisions: self.policy_revisions(),
        }
    }
}
