//! The rules of the state machine, each of which a test can leave out.

use std::time::Duration;

/// The rules that a node follows. Only tests create other values than the default: the simulation shows that each rule
/// is needed, or a second guard of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A lease counts from the moment at which the renewal was sent, not from its answer.
    pub lease_from_sending: bool,
    /// A lease lasts 0.8 × lease, less than others wait.
    pub short_lease: bool,
    /// A partition that the table gives to another node is dropped.
    pub drop_lost: bool,
    /// A node whose lease has ended drops everything before it reads an answer.
    pub lapse_drops: bool,
    /// A node takes from an owner only after the counter did not change for 1.0 × lease.
    pub full_watch: bool,
    /// The time of a counter begins when it was received, not when the renewal was sent.
    pub watch_from_receipt: bool,
    /// A new connection starts all watches anew.
    pub watch_one_connection: bool,
    /// An owner that restarted, left or was forgotten is watched as well.
    pub watch_ended: bool,
    /// The answer to a take counts only within 0.8 × lease of sending.
    pub take_in_time: bool,
    /// A node takes only while its own lease is valid.
    pub take_with_lease: bool,
    /// A store of another generation ends the lease.
    pub generation_ends_lease: bool,
    /// Nothing is taken from a store of another generation for 2.5 × lease.
    pub generation_quarantine: bool,
    /// A store that has lost a renewal of this node is another store.
    pub counter_never_falls: bool,
    /// A node drops a partition before the table is updated.
    pub drop_before_release: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            lease_from_sending: true,
            short_lease: true,
            drop_lost: true,
            lapse_drops: true,
            full_watch: true,
            watch_from_receipt: true,
            watch_one_connection: true,
            watch_ended: true,
            take_in_time: true,
            take_with_lease: true,
            generation_ends_lease: true,
            generation_quarantine: true,
            counter_never_falls: true,
            drop_before_release: true,
        }
    }
}

/// The times that follow from `fleet.lease`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// The time between two renewals.
    pub renewal: Duration,
    /// The time for which a renewal gives the right to act, from its sending.
    pub valid: Duration,
    /// The time for which an owner must be silent before another node takes its partitions.
    pub silence: Duration,
    /// The time after the end of a lease at which what is under way at origins is broken off. Another node takes the
    /// partitions a twentieth of a lease later at the earliest.
    pub break_off: Duration,
    /// The time without a take after the store has become another one.
    pub quarantine: Duration,
}

impl LeaseTimes {
    /// The times of a lease.
    pub fn new(lease: Duration) -> Self {
        Self {
            renewal: lease / 5,
            valid: lease * 4 / 5,
            silence: lease,
            break_off: lease * 3 / 20,
            quarantine: lease * 5 / 2,
        }
    }

    pub(super) fn with_rules(lease: Duration, rules: &Rules) -> Self {
        let mut times = Self::new(lease);
        if !rules.short_lease {
            times.valid = lease * 6 / 5;
        }
        if !rules.full_watch {
            times.silence = lease / 2;
        }
        times
    }
}
