//! Partitions of hosts, and the order in which nodes are preferred as owners of a partition.

use std::num::NonZeroU16;

use siphasher::sip::SipHasher24;

use crate::node::NodeName;

/// The number of partitions of every fleet.
pub const PARTITIONS: NonZeroU16 = NonZeroU16::MIN.saturating_add(1_023);

/// The number of a partition, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(pub u16);

/// The secret key with which a fleet distributes hosts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FleetKey([u8; 16]);

impl std::fmt::Debug for FleetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FleetKey(..)")
    }
}

impl FleetKey {
    /// A key of 16 random bytes.
    pub fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The key, as the store keeps it.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        SipHasher24::new_with_key(&self.0).hash(bytes)
    }
}

/// Assigns hosts to partitions, and partitions to nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partitioner {
    key: FleetKey,
    count: NonZeroU16,
}

impl Partitioner {
    /// A partitioner for a fleet's key and number of partitions.
    pub fn new(key: FleetKey, count: NonZeroU16) -> Self {
        Self { key, count }
    }

    /// The key of the fleet.
    pub fn key(&self) -> &FleetKey {
        &self.key
    }

    /// The number of partitions.
    pub fn count(&self) -> u16 {
        self.count.get()
    }

    /// All partitions in order.
    pub fn all(&self) -> impl Iterator<Item = Partition> + use<> {
        (0..self.count.get()).map(Partition)
    }

    /// Returns the partition of a host: a name in ASCII, or an address as text. Case, a final dot and the brackets of
    /// an IPv6 address make no difference.
    pub fn partition(&self, host: &str) -> Partition {
        let host = host.strip_prefix('[').unwrap_or(host);
        let host = host.strip_suffix(']').unwrap_or(host);
        let host = host.strip_suffix('.').unwrap_or(host);
        let hash = if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            self.key.hash(host.to_ascii_lowercase().as_bytes())
        } else {
            self.key.hash(host.as_bytes())
        };
        // The remainder is less than the count, which is a u16.
        Partition((hash % u64::from(self.count.get())) as u16)
    }

    /// Returns the node that should own a partition (rendezvous hashing): the one with the greatest hash. A node that
    /// joins or leaves changes only its own share.
    pub fn preferred<'a>(
        &self,
        partition: Partition,
        nodes: impl IntoIterator<Item = &'a NodeName>,
    ) -> Option<&'a NodeName> {
        nodes
            .into_iter()
            .max_by_key(|node| (self.weight(partition, node), *node))
    }

    fn weight(&self, partition: Partition, node: &NodeName) -> u64 {
        let mut bytes = [0; 2 + NodeName::MAX_LENGTH];
        let name = node.as_str().as_bytes();
        let used = 2 + name.len();
        // A name has at most MAX_LENGTH bytes.
        if let Some((number, rest)) = bytes.split_first_chunk_mut::<2>()
            && let Some(place) = rest.get_mut(..name.len())
        {
            *number = partition.0.to_be_bytes();
            place.copy_from_slice(name);
        }
        self.key.hash(bytes.get(..used).unwrap_or(&bytes))
    }
}
