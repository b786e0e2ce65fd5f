//! Metrics of a node in a fleet: requests that it forwards, and its links.

use std::time::Duration;

use super::labels::{
    ForwardResult, LinkStateLabel, MemberStateLabel, PartitionStateLabel, StoreOperation,
    StoreResult, TakeoverReason,
};
use super::series::gauge_value;
use super::{GaugeGuard, Metrics};

impl Metrics {
    /// Counts an attempt to forward a request.
    pub fn record_forward(&self, result: ForwardResult) {
        self.update(|families| families.fleet_forwarded.increment(result));
    }

    /// Records the time until the head of an owner's answer.
    pub fn record_forward_time(&self, time: Duration) {
        self.update(|families| families.fleet_forward.observe(time.as_secs_f64()));
    }

    /// Counts a link to another node as open until the value is dropped.
    pub fn track_link(&self) -> GaugeGuard {
        GaugeGuard::new(
            self.enabled_families()
                .and_then(|families| families.fleet_links.get(LinkStateLabel::Open)),
        )
    }

    /// Sets the number of nodes that could not be reached at the last attempt.
    pub fn set_failing_links(&self, nodes: usize) {
        self.update(|families| {
            if let Some(gauge) = families.fleet_links.get(LinkStateLabel::Failing) {
                gauge.set(gauge_value(nodes));
            }
        });
    }

    /// Records if a node could not be reached at the last attempt. Only those that could not have a series.
    pub fn set_link_failing(&self, node: &str, is_failing: bool) {
        self.update(|families| {
            let failing = &families.fleet_link_failing;
            if is_failing {
                failing.with_label_values(&[node]).set(1);
            } else {
                // An error means that there is no such series.
                let _ = failing.remove_label_values(&[node]);
            }
        });
    }
}

/// The fleet in numbers, as one node sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetCounts {
    /// Members that own partitions or may take some.
    pub active: usize,
    /// Members that give theirs away.
    pub draining: usize,
    /// Members that do not renew their lease.
    pub silent: usize,
    /// Partitions of this node.
    pub own: usize,
    /// Partitions of other members.
    pub of_others: usize,
    /// Partitions without a known owner.
    pub unowned: usize,
    /// The time left of this node's lease.
    pub lease_left: Duration,
    /// Different policies among the members that renew their lease.
    pub policy_revisions: usize,
}

impl Metrics {
    /// Sets the gauges of the fleet.
    pub fn set_fleet(&self, counts: &FleetCounts) {
        self.update(|families| {
            for (state, count) in [
                (MemberStateLabel::Active, counts.active),
                (MemberStateLabel::Draining, counts.draining),
                (MemberStateLabel::Silent, counts.silent),
            ] {
                if let Some(gauge) = families.fleet_members.get(state) {
                    gauge.set(gauge_value(count));
                }
            }
            for (state, count) in [
                (PartitionStateLabel::Own, counts.own),
                (PartitionStateLabel::OfOthers, counts.of_others),
                (PartitionStateLabel::Unowned, counts.unowned),
            ] {
                if let Some(gauge) = families.fleet_partitions.get(state) {
                    gauge.set(gauge_value(count));
                }
            }
            families
                .fleet_policy_revisions
                .set(gauge_value(counts.policy_revisions));
            families
                .fleet_lease_left
                .set(counts.lease_left.as_secs_f64());
        });
    }

    /// Counts partitions that this node has taken.
    pub fn add_takeovers(&self, why: TakeoverReason, count: u64) {
        self.update(|families| families.fleet_takeovers.add(why, count));
    }

    /// Counts a request to the store of the fleet.
    pub fn record_store_request(&self, op: StoreOperation, result: StoreResult, time: Duration) {
        self.update(|families| {
            families.store_requests.increment((op, result));
            if let Some(histogram) = families.store_duration.get(op) {
                histogram.observe(time.as_secs_f64());
            }
        });
    }
}
