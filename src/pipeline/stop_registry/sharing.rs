//! Stops that the nodes of a fleet share through its store.
//!
//! A stop is in force at once at the node at which it was given, and at the others as soon as the store has it. While
//! the store is away, each node keeps what it knows, and remembers what the store does not have yet. So only a stop
//! that the store once had, and has no more, was lifted by another node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;

use crate::pacing::stops::{EmergencyStop, StopEntry, StopId, StopReason, StopSet, StopTarget};

use super::StopRegistry;

/// A stop as the store of a fleet has it. The time that remains does not depend on the clocks of the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedStop {
    pub id: StopId,
    pub target: StopTarget,
    pub reason: StopReason,
    /// The start: wall time since the Unix epoch, by the clock of the node at which it was given.
    pub since: Duration,
    /// The time until its end, if it has one.
    pub remaining: Option<Duration>,
}

/// The changes of one node that the store does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnsharedStops {
    pub added: Vec<SharedStop>,
    pub lifted: Vec<StopId>,
}

/// The state of the stops in the store, as far as this node knows.
#[derive(Debug, Default)]
pub(super) struct StopSharing {
    is_on: bool,
    /// The stops that a store has, by the generation of that store: a store that was restored may lack them.
    saved: BTreeMap<StopId, u64>,
    /// The stops that were lifted here, and that the store may still have.
    lifted: BTreeSet<StopId>,
}

impl StopSharing {
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(super) fn restore(&mut self, saved: BTreeMap<StopId, u64>, lifted: BTreeSet<StopId>) {
        self.saved = saved;
        self.lifted = lifted;
    }

    /// Returns the generations of the stores that have these stops.
    pub(super) fn saved_in(&self, stops: &[EmergencyStop]) -> BTreeMap<StopId, u64> {
        let generation = |stop: &EmergencyStop| Some((stop.id, *self.saved.get(&stop.id)?));
        stops.iter().filter_map(generation).collect()
    }

    pub(super) fn lifted(&self) -> &BTreeSet<StopId> {
        &self.lifted
    }

    pub(super) fn lift(&mut self, id: StopId) {
        self.saved.remove(&id);
        if self.is_on {
            self.lifted.insert(id);
        }
    }

    fn is_saved(&self, id: StopId, generation: u64) -> bool {
        self.saved.get(&id) == Some(&generation)
    }
}

/// Returns the number of a stop that is given at this time: microseconds, so that nodes which cannot ask each other
/// choose different ones.
pub(super) fn fleet_id(since: Duration) -> StopId {
    StopId(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

impl StopRegistry {
    /// Shares the stops with other nodes from now on.
    pub fn enable_sharing(&self) {
        self.book.lock().sharing.is_on = true;
    }

    /// Waits until a stop is added or lifted at this node.
    pub async fn unshared_change(&self) {
        self.unshared_change.notified().await;
    }

    /// Returns the changes that a store of this generation does not have.
    pub fn unshared(&self, generation: u64) -> UnsharedStops {
        let book = self.book.lock();
        let now = self.clock.now();
        let set = self.set.load();
        let added = set
            .entries()
            .iter()
            .filter(|entry| entry.is_active(now))
            .filter(|entry| !book.sharing.is_saved(entry.stop.id, generation))
            .map(|entry| SharedStop {
                id: entry.stop.id,
                target: entry.stop.target.clone(),
                reason: entry.stop.reason.clone(),
                since: entry.stop.since,
                remaining: entry.remaining(now),
            });
        UnsharedStops {
            added: added.collect(),
            lifted: book.sharing.lifted.iter().copied().collect(),
        }
    }

    /// Records that a store has a stop of this node.
    pub fn mark_shared(&self, id: StopId, generation: u64) {
        let mut book = self.book.lock();
        // It may have been lifted meanwhile.
        if self.set.load().entry(id).is_some() {
            book.sharing.saved.insert(id, generation);
        }
        self.note_sharing();
    }

    /// Records that the store does not have a stop any more that was lifted at this node.
    pub fn mark_lifted(&self, id: StopId) {
        self.book.lock().sharing.lifted.remove(&id);
        self.note_sharing();
    }

    /// Records that the store may have lost stops: it gets all those that this node knows.
    pub fn forget_shared(&self) {
        self.book.lock().sharing.saved.clear();
        self.note_sharing();
    }

    /// Takes over the stops of a store: adds those that are new, and removes those that other nodes have lifted.
    pub fn apply_shared(&self, generation: u64, stops: Vec<SharedStop>) {
        let mut book = self.book.lock();
        let now = self.clock.now();
        let known = self.set.load();
        let in_store: BTreeSet<StopId> = stops.iter().map(|stop| stop.id).collect();
        let (kept, removed): (Vec<&StopEntry>, Vec<_>) =
            known.entries().iter().partition(|entry| {
                let id = entry.stop.id;
                in_store.contains(&id) || !book.sharing.is_saved(id, generation)
            });
        for entry in removed.iter().filter(|entry| entry.is_active(now)) {
            let id = entry.stop.id.0;
            tracing::warn!(
                id,
                "the stop of {} was lifted at another node",
                entry.stop.target
            );
        }
        let mut entries: Vec<StopEntry> = kept.into_iter().cloned().collect();
        let new = stops.into_iter().filter(|stop| {
            known.entry(stop.id).is_none() && !book.sharing.lifted.contains(&stop.id)
        });
        let mut has_changed = !removed.is_empty();
        for stop in new {
            let (id, target) = (stop.id.0, &stop.target);
            tracing::warn!(
                id,
                "{target} is stopped at another node: {}",
                stop.reason.as_str()
            );
            entries.push(self.entry_of(stop));
            has_changed = true;
        }
        let set = StopSet::new(entries);
        book.sharing.saved.retain(|id, _| set.entry(*id).is_some());
        for id in in_store.into_iter().filter(|id| set.entry(*id).is_some()) {
            let before = book.sharing.saved.insert(id, generation);
            has_changed |= before != Some(generation);
        }
        if has_changed {
            self.replace(set);
            self.dirty.store(true, Ordering::SeqCst);
        }
    }

    /// Waits until the store has what was last changed about a stop. Returns `false` if it does not within the limit;
    /// `true` at once if stops are not shared.
    pub async fn wait_until_shared(&self, id: StopId, limit: Duration) -> bool {
        let mut changes = self.subscribe();
        let wait = async {
            while !self.has_shared(id) {
                // The registry outlives the subscription.
                let _ = changes.changed().await;
            }
        };
        timeout(limit, wait).await.is_ok()
    }

    fn has_shared(&self, id: StopId) -> bool {
        let book = self.book.lock();
        let is_active = self.set.load().entry(id).is_some();
        !book.sharing.is_on
            || !book.sharing.lifted.contains(&id)
                && (!is_active || book.sharing.saved.contains_key(&id))
    }

    /// Notifies those that wait for the store, and has the change written to the disk.
    fn note_sharing(&self) {
        self.dirty.store(true, Ordering::SeqCst);
        self.changed.send_replace(());
    }

    fn entry_of(&self, shared: SharedStop) -> StopEntry {
        let wall = self.wall();
        let now = self.clock.now();
        let remaining = shared.remaining;
        StopEntry {
            stop: Arc::new(EmergencyStop {
                id: shared.id,
                target: shared.target,
                reason: shared.reason,
                since: shared.since,
                until: remaining.map(|remaining| wall.saturating_add(remaining)),
            }),
            ends_at: remaining.and_then(|remaining| now.checked_add(remaining)),
        }
    }
}
