//! The counters of all members as this node has seen them change, over one connection to the store.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::node::{BootTime, Incarnation};

use super::table::MemberRow;

/// The counters of the members.
#[derive(Clone, Debug, Default)]
pub(super) struct CounterWatch {
    counters: BTreeMap<Incarnation, SeenCounter>,
}

#[derive(Clone, Copy, Debug)]
struct SeenCounter {
    counter: u64,
    /// The time at which this value was first received.
    since: BootTime,
    /// The time at which the incarnation was first seen.
    first_seen: BootTime,
    /// The number of changes that were seen.
    changes: u64,
}

impl CounterWatch {
    /// Forgets all counters.
    pub(super) fn clear(&mut self) {
        self.counters.clear();
    }

    /// Records the counters that were received at a time.
    pub(super) fn record(&mut self, rows: &[MemberRow], at: BootTime) {
        let previous = std::mem::take(&mut self.counters);
        for row in rows {
            let incarnation = row.member.incarnation;
            let seen = match previous.get(&incarnation) {
                Some(seen) if seen.counter == row.counter => *seen,
                Some(seen) => SeenCounter {
                    counter: row.counter,
                    since: at,
                    changes: seen.changes.saturating_add(1),
                    ..*seen
                },
                None => SeenCounter {
                    counter: row.counter,
                    since: at,
                    first_seen: at,
                    changes: 0,
                },
            };
            self.counters.insert(incarnation, seen);
        }
    }

    /// Returns the counter of an incarnation.
    pub(super) fn counter(&self, incarnation: Incarnation) -> Option<u64> {
        self.counters.get(&incarnation).map(|seen| seen.counter)
    }

    /// Returns the time since which the counter of an incarnation has not changed.
    pub(super) fn unchanged_since(&self, incarnation: Incarnation) -> Option<BootTime> {
        self.counters.get(&incarnation).map(|seen| seen.since)
    }

    /// Returns `true` if the incarnation was already a member at the given time before now.
    pub(super) fn is_known_for(
        &self,
        incarnation: Incarnation,
        duration: Duration,
        now: BootTime,
    ) -> bool {
        self.counters
            .get(&incarnation)
            .is_some_and(|seen| now.since(seen.first_seen) >= duration)
    }

    /// Returns `true` if the incarnation was seen to renew its lease at least twice.
    pub(super) fn renews(&self, incarnation: Incarnation) -> bool {
        self.counters
            .get(&incarnation)
            .is_some_and(|seen| seen.changes >= 2)
    }
}
