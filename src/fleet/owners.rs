//! The owners of hosts, for the path of a request: no lock, no allocation for a host of this node.

use std::sync::Arc;

use arc_swap::ArcSwap;
use crawlgate_fleet::node::Epoch;
use crawlgate_fleet::partition::Partition;
use crawlgate_fleet::view::{Owner, OwnershipView};

use crate::clock::Clock;

/// The current [`OwnershipView`] of this node. Clones share it.
#[derive(Clone, Debug)]
pub struct HostOwners {
    view: Arc<ArcSwap<OwnershipView>>,
    clock: Clock,
}

impl HostOwners {
    pub fn new(view: OwnershipView, clock: Clock) -> Self {
        Self {
            view: Arc::new(ArcSwap::from_pointee(view)),
            clock,
        }
    }

    /// Returns the owner of a host, given by its canonical name or its address as text.
    pub fn owner(&self, host: &str) -> Owner {
        self.view.load().owner(host, self.clock.boot_time())
    }

    /// Returns the partition of a host.
    pub fn partition(&self, host: &str) -> Partition {
        self.view.load().partition(host)
    }

    /// Returns `true` if this node still owns the partition with this epoch. Must be asked immediately before the head
    /// of a request is written to an origin: the lease may have ended while the request waited.
    pub fn is_owner(&self, partition: Partition, epoch: Epoch) -> bool {
        self.view
            .load()
            .is_owner(partition, epoch, self.clock.boot_time())
    }

    /// Returns the current view as a whole.
    pub fn view(&self) -> Arc<OwnershipView> {
        self.view.load_full()
    }

    /// Replaces the view.
    pub fn publish(&self, view: OwnershipView) {
        self.view.store(Arc::new(view));
    }
}
