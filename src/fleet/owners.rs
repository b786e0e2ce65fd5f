//! The owners of hosts, for the path of a request: no lock, no allocation for a host of this node.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use crawlgate_fleet::node::Epoch;
use crawlgate_fleet::partition::Partition;
use crawlgate_fleet::view::{Owner, OwnershipView};
use tokio::sync::{Notify, watch};

use crate::clock::Clock;

/// The longest time for which requests that wait do not notice that a lease has ended by time alone.
const LEASE_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The current [`OwnershipView`] of this node. Clones share it.
#[derive(Clone, Debug)]
pub struct HostOwners {
    view: Arc<ArcSwap<OwnershipView>>,
    changes: watch::Sender<()>,
    refresh: Arc<Notify>,
    clock: Clock,
}

impl HostOwners {
    pub fn new(view: OwnershipView, clock: Clock) -> Self {
        Self {
            view: Arc::new(ArcSwap::from_pointee(view)),
            changes: watch::Sender::new(()),
            refresh: Arc::default(),
            clock,
        }
    }

    /// Returns the owner of a host, given by its canonical name or its address as text.
    pub fn owner(&self, host: &str) -> Owner {
        self.view.load().owner(host, self.clock.boot_time())
    }

    /// Returns this node's ownership of a host, or the owner if that is another.
    pub fn own(&self, host: &str) -> Result<HostOwnership, Owner> {
        let view = self.view.load();
        let partition = view.partition(host);
        match view.owner_of(partition, self.clock.boot_time()) {
            Owner::Here { epoch } => Ok(HostOwnership {
                owners: self.clone(),
                partition,
                epoch,
            }),
            owner @ (Owner::Member { .. } | Owner::Unknown) => Err(owner),
        }
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

    /// Returns the owners of all partitions, in order.
    pub fn all(&self) -> Vec<Owner> {
        let (view, now) = (self.view.load(), self.clock.boot_time());
        let partitions = view.partitioner().all();
        partitions
            .map(|partition| view.owner_of(partition, now))
            .collect()
    }

    /// Returns the current view as a whole.
    pub fn view(&self) -> Arc<OwnershipView> {
        self.view.load_full()
    }

    /// Replaces the view.
    pub fn publish(&self, view: OwnershipView) {
        self.view.store(Arc::new(view));
        self.changes.send_replace(());
    }

    /// Returns a receiver that is notified of each new view.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Asks for a newer view, because another node has contradicted this one. Returns at once.
    pub fn request_refresh(&self) {
        self.refresh.notify_one();
    }

    /// Waits until a newer view is asked for.
    pub async fn refresh_requested(&self) {
        self.refresh.notified().await;
    }
}

/// The ownership of a host when a request for it began. It ends with the lease, or when the partition of the host gets
/// another owner; a later ownership of this node is another one.
#[derive(Clone, Debug)]
pub struct HostOwnership {
    owners: HostOwners,
    partition: Partition,
    epoch: Epoch,
}

impl HostOwnership {
    /// Returns `true` if this node may still send requests to the host.
    pub fn is_valid(&self) -> bool {
        self.owners.is_owner(self.partition, self.epoch)
    }

    /// Returns the ownership of another host, which the request is sent to instead. It is not valid if another node
    /// owns that host.
    #[must_use]
    pub fn for_host(self, host: &str) -> Self {
        let partition = self.owners.partition(host);
        if partition == self.partition {
            return self;
        }
        self.owners.own(host).unwrap_or(Self {
            // No ownership has this epoch.
            epoch: Epoch(u64::MAX),
            partition,
            ..self
        })
    }

    /// Waits until the ownership has ended.
    pub async fn wait_ended(&self) {
        let mut changes = self.owners.subscribe();
        while self.is_valid() {
            // A lease ends without a new view.
            let _ = tokio::time::timeout(LEASE_CHECK_INTERVAL, changes.changed()).await;
        }
    }
}
