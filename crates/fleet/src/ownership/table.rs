//! The rows that a renewal reads, and what a node asks of the store.

use crate::node::{Epoch, Incarnation, Member};
use crate::partition::Partition;

/// The random number of a founding. A database that was restored or founded again has another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// The life of an incarnation as the store records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It owns partitions, or may take some.
    Active,
    /// It gives its partitions away and takes none.
    Draining,
    /// It left, was replaced by a restart, or was forgotten. The row stays until no partition names it.
    Ended,
}

/// A row of the table of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRow {
    /// The name, process and address.
    pub member: Member,
    /// The number of its renewals.
    pub counter: u64,
    /// Its state.
    pub state: MemberState,
}

/// A row of the table of partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionRow {
    /// The owner; `None` if the last one gave the partition away.
    pub owner: Option<Incarnation>,
    /// The epoch of the newest change.
    pub epoch: Epoch,
}

/// The rows that a renewal reads, after the node's own counter was raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The generation of the store.
    pub generation: Generation,
    /// The node's own counter, after it was raised.
    pub counter: u64,
    /// All members.
    pub members: Vec<MemberRow>,
    /// All partitions in order.
    pub partitions: Vec<PartitionRow>,
}

/// A partition that a node wants to take, and the conditions under which the store lets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The partition.
    pub partition: Partition,
    /// The epoch that the row must still have.
    pub epoch: Epoch,
    /// The owner that the row must still name, if any, and the counter that this owner must still have.
    pub from: Option<(Incarnation, u64)>,
    /// The reason, for metrics.
    pub reason: ClaimReason,
}

/// A reason to take a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimReason {
    /// No node owns it.
    Free,
    /// The table names this node, whose lease had lapsed.
    Lapsed,
    /// The owner has not renewed its lease for the length of a lease.
    Silent,
}

/// A statement for the store. Each may be repeated without harm, and each is refused by a store of another generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreCommand {
    /// Adds this incarnation, and ends an earlier one of the same node.
    Join,
    /// Raises the own counter, then reads the tables.
    Renew {
        /// The node gives its partitions away.
        draining: bool,
    },
    /// Takes partitions.
    Take(Vec<Claim>),
    /// Gives partitions away, whose rows must have this node as the owner, and this epoch.
    Release(Vec<(Partition, Epoch)>),
    /// Ends this incarnation, which owns nothing.
    Leave,
}

/// The answer to a [`StoreCommand`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAnswer {
    /// This incarnation is a member.
    Joined,
    /// The counter was raised, and then the tables were read.
    Renewed(Table),
    /// The partitions that were taken, with their new epochs.
    Taken(Vec<(Partition, Epoch)>),
    /// The partitions have no owner.
    Released,
    /// This incarnation has ended.
    Left,
    /// The store refuses, since another process of the same name has joined.
    Replaced,
    /// The store refuses, since this incarnation is not a member.
    NotMember,
    /// The store has another generation.
    OtherGeneration,
}
