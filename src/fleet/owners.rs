//! The owners of hosts, for the path of a request: to find one takes no lock and no allocation.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use crawlgate_fleet::node::Epoch;
use crawlgate_fleet::partition::Partition;
use crawlgate_fleet::view::{Owner, OwnershipView};
use tokio::sync::{Notify, watch};
use tokio::task::coop::unconstrained;

use crate::clock::Clock;

/// The longest time for which requests that wait do not notice that a lease has ended by time alone.
const LEASE_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The current [`OwnershipView`] of this node. Clones share it.
#[derive(Clone, Debug)]
pub struct HostOwners {
    view: Arc<ArcSwap<OwnershipView>>,
    changes: watch::Sender<()>,
    refresh: Arc<Notify>,
    /// For each partition the number of times that its requests were broken off. It is not an epoch, since a database that
    /// loses a take by a fail-over may give the same epoch again.
    broken_off: Arc<[AtomicU64]>,
    break_offs: watch::Sender<()>,
    clock: Clock,
}

impl HostOwners {
    pub fn new(view: OwnershipView, clock: Clock) -> Self {
        let broken_off = view.holders().map(|_| AtomicU64::default()).collect();
        Self {
            view: Arc::new(ArcSwap::from_pointee(view)),
            changes: watch::Sender::new(()),
            refresh: Arc::default(),
            broken_off,
            break_offs: watch::Sender::new(()),
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
                break_offs: self.count_break_offs(partition),
            }),
            owner @ (Owner::Member { .. } | Owner::Unknown) => Err(owner),
        }
    }

    fn count_break_offs(&self, partition: Partition) -> u64 {
        let count = self.broken_off.get(usize::from(partition.0));
        count.map_or(0, |count| count.load(Ordering::Relaxed))
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

    /// Breaks off what is under way at origins for partitions whose ownership has ended with the lease. One that this
    /// node has taken again had no other owner meanwhile.
    pub fn break_off(&self, partitions: &[Partition]) {
        let view = self.view.load();
        let now = self.clock.boot_time();
        for partition in partitions {
            let is_taken_again = matches!(view.owner_of(*partition, now), Owner::Here { .. });
            if let Some(count) = self.broken_off.get(usize::from(partition.0))
                && !is_taken_again
            {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.break_offs.send_replace(());
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
    /// The number of times that requests of the partition had been broken off when this began.
    break_offs: u64,
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

    /// Returns `true` if what was sent under this ownership must be broken off.
    fn is_broken_off(&self) -> bool {
        self.break_offs < self.owners.count_break_offs(self.partition)
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

/// The ownership under which a request or a tunnel is on its way to an origin.
pub struct OwnershipWatch {
    ownership: HostOwnership,
    /// Ready when the ownership is broken off. Created when the request first waits for its origin.
    broken_off: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl OwnershipWatch {
    pub fn new(ownership: HostOwnership) -> Self {
        Self {
            ownership,
            broken_off: None,
        }
    }

    /// Returns `true` if this node may still send requests to the host.
    pub fn is_valid(&self) -> bool {
        self.ownership.is_valid()
    }

    /// Ready when the request must be broken off, since the lease has ended and another node may become the owner. An
    /// ownership that was given away in order is never broken off: the next owner knows what is under way.
    pub fn poll_broken_off(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let ownership = &self.ownership;
        if ownership.is_broken_off() {
            return Poll::Ready(());
        }
        let broken_off = self
            .broken_off
            .get_or_insert_with(|| Box::pin(wait_broken_off(ownership.clone())));
        // A task that always has something to read has no budget left when this is polled (tokio's `coop`).
        std::pin::pin!(unconstrained(broken_off.as_mut())).poll(cx)
    }

    /// Waits until the request must be broken off.
    pub async fn wait_broken_off(&mut self) {
        std::future::poll_fn(|cx| self.poll_broken_off(cx)).await;
    }
}

impl fmt::Debug for OwnershipWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ownership.fmt(f)
    }
}

async fn wait_broken_off(ownership: HostOwnership) {
    let mut break_offs = ownership.owners.break_offs.subscribe();
    while !ownership.is_broken_off() {
        // The sender lives as long as the ownership.
        let _ = break_offs.changed().await;
    }
}
