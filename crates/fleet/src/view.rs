//! The owners of all partitions as one node knows them: an immutable snapshot for requests.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::node::{BootTime, Epoch, Incarnation, Member, NodeName};
use crate::partition::{Partition, Partitioner};

/// The owner of a host, as one node knows it at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This node, whose lease is valid.
    Here {
        /// The epoch of the ownership.
        epoch: Epoch,
    },
    /// Another node, by the newest table that was read.
    Member {
        /// Its name.
        node: NodeName,
        /// The address of its links.
        address: SocketAddr,
        /// The epoch of its ownership.
        epoch: Epoch,
    },
    /// Nobody that this node knows of: requests wait.
    Unknown,
}

/// The entry of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holder {
    /// This node.
    Here(Epoch),
    /// A member, by its position in the list of members.
    Member(u16, Epoch),
    /// No member.
    #[default]
    Nobody,
}

/// The owners of all partitions at one moment, and the end of this node's own lease. Replaced as a whole; readers share
/// it without a lock.
#[derive(Clone, Debug)]
pub struct OwnershipView {
    partitioner: Partitioner,
    holders: Box<[Holder]>,
    members: Arc<[Member]>,
    silent: Arc<[NodeName]>,
    lease_end: Option<BootTime>,
}

impl OwnershipView {
    /// A view of a node that owns nothing and knows no other.
    pub fn empty(partitioner: Partitioner) -> Self {
        let holders = vec![Holder::Nobody; usize::from(partitioner.count())];
        Self::new(partitioner, holders.into(), Arc::from([]), None)
    }

    /// A view with an entry for each partition. `lease_end` is the end of this node's lease, if it has one.
    pub fn new(
        partitioner: Partitioner,
        holders: Box<[Holder]>,
        members: Arc<[Member]>,
        lease_end: Option<BootTime>,
    ) -> Self {
        Self {
            partitioner,
            holders,
            members,
            silent: Arc::from([]),
            lease_end,
        }
    }

    /// Sets the members that have not renewed their lease for as long as one lasts.
    #[must_use]
    pub fn with_silent(self, silent: Arc<[NodeName]>) -> Self {
        Self { silent, ..self }
    }

    /// Returns `true` if a node has not renewed its lease for as long as one lasts, and has not left: it does not answer
    /// any more. Not known on a node that cannot read the table itself.
    pub fn is_silent(&self, node: &NodeName) -> bool {
        self.silent.contains(node)
    }

    /// The partitioner of the fleet.
    pub fn partitioner(&self) -> &Partitioner {
        &self.partitioner
    }

    /// Returns the partition of a host.
    pub fn partition(&self, host: &str) -> Partition {
        self.partitioner.partition(host)
    }

    /// Returns the owner of a host.
    pub fn owner(&self, host: &str, now: BootTime) -> Owner {
        self.owner_of(self.partition(host), now)
    }

    /// Returns the owner of a partition.
    pub fn owner_of(&self, partition: Partition, now: BootTime) -> Owner {
        match self.holder(partition) {
            Holder::Here(epoch) if self.has_lease(now) => Owner::Here { epoch },
            Holder::Here(_) | Holder::Nobody => Owner::Unknown,
            Holder::Member(index, epoch) => {
                self.members
                    .get(usize::from(index))
                    .map_or(Owner::Unknown, |member| Owner::Member {
                        node: member.node.clone(),
                        address: member.address,
                        epoch,
                    })
            }
        }
    }

    /// Returns `true` if this node still owns the partition with this epoch. Asked immediately before a request's head
    /// is written to an origin.
    pub fn is_owner(&self, partition: Partition, epoch: Epoch, now: BootTime) -> bool {
        self.holder(partition) == Holder::Here(epoch) && self.has_lease(now)
    }

    /// Returns `true` if this node has a lease that is not over.
    pub fn has_lease(&self, now: BootTime) -> bool {
        self.lease_end.is_some_and(|end| now < end)
    }

    /// The end of this node's lease, if it has one.
    pub fn lease_end(&self) -> Option<BootTime> {
        self.lease_end
    }

    /// The members that a request may be forwarded to, this node among them.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the member of an incarnation.
    pub fn member(&self, incarnation: Incarnation) -> Option<&Member> {
        self.members
            .iter()
            .find(|member| member.incarnation == incarnation)
    }

    /// The partitions with their entries, in order.
    pub fn holders(&self) -> impl Iterator<Item = (Partition, Holder)> {
        (0..).map(Partition).zip(self.holders.iter().copied())
    }

    fn holder(&self, partition: Partition) -> Holder {
        self.holders
            .get(usize::from(partition.0))
            .copied()
            .unwrap_or_default()
    }
}
