//! The fleet: several proxies that act as one. Every host has one owner, and requests travel to it.
//!
//! [`owners`] says who owns a host, [`membership`] finds that out from the [`store`], [`link`] carries requests to other nodes, and [`forward_header`] is what the
//! owner is told about them. [`sharing`] shares stops through the store. [`handover`] gives the state of hosts to their next owners.
//! [`protocol`] decides which releases can be nodes of one fleet.

pub mod forward_header;
pub mod handover;
pub mod link;
pub mod membership;
pub mod node_directory;
pub mod owners;
pub mod protocol;
pub mod sharing;
pub mod store;

use std::time::Duration;

use crawlgate_fleet::node::NodeName;

use link::LinkClient;
use owners::HostOwners;

/// This node's part in its fleet.
#[derive(Debug)]
pub struct FleetNode {
    /// Its own name, `fleet.node`.
    pub name: NodeName,
    /// The owners of hosts.
    pub owners: HostOwners,
    /// The links to other nodes.
    pub links: LinkClient,
    /// `fleet.lease`: within this time a host without an owner usually has one again.
    pub lease: Duration,
}

impl FleetNode {
    /// Closes links that are no longer needed, and forgets the failures of nodes that are gone.
    pub fn sweep(&self) {
        self.links.sweep();
        let view = self.owners.view();
        let is_member = |node: &NodeName| view.members().iter().any(|m| m.node == *node);
        self.links.retain_failures(is_member);
    }

    /// Returns the time after which a request that has waited this long without an owner is worth another attempt: what is
    /// left of a lease, within which the host usually gets one, but not before the table is read again.
    pub fn retry_after(&self, waited: Duration) -> Duration {
        self.lease.saturating_sub(waited).max(self.lease / 5)
    }
}
