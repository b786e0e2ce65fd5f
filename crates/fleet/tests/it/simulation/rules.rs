//! Each rule left out: the simulation finds it, alone or together with the rules that guard the same.

use super::laws::run_chaos;
use super::world::FleetRules;

/// Seeds that are tried before an omission counts as not found.
const SEEDS: u64 = 1_000;

/// A way to leave one rule out.
type Omission = fn(&mut FleetRules);

/// Rules whose omission together is found. A rule that is alone in a group is needed; the others are second guards of
/// each other. The number is a seed that finds it, which is tried first.
const GROUPS: &[(&str, u64, &[Omission])] = &[
    (
        "a lease is shorter than the watch",
        8,
        &[|r| r.node.short_lease = false],
    ),
    (
        "the watch lasts a lease",
        1,
        &[|r| r.node.full_watch = false],
    ),
    (
        "owners that have ended are watched",
        0,
        &[|r| r.node.watch_ended = false],
    ),
    (
        "dropped before the table is updated",
        2,
        &[|r| r.node.drop_before_release = false],
    ),
    (
        "asked again before a head is written",
        0,
        &[|r| r.ask_again = false],
    ),
    (
        "broken off at the end of the lease",
        101,
        &[|r| r.break_off = false],
    ),
    (
        "a take is for one epoch",
        23,
        &[|r| r.statement.take_checks_epoch = false],
    ),
    (
        "a lease counts from the sending of a renewal; a statement has a short time-out",
        183,
        &[
            |r| r.node.lease_from_sending = false,
            |r| r.short_timeout = false,
        ],
    ),
    (
        "the watch begins with the receipt of a counter; a statement has a short time-out",
        1,
        &[
            |r| r.node.watch_from_receipt = false,
            |r| r.short_timeout = false,
        ],
    ),
    (
        "a lapsed lease is over; a partition of another is dropped",
        0,
        &[|r| r.node.lapse_drops = false, |r| r.node.drop_lost = false],
    ),
    (
        "a lapsed lease is over; a take is for one counter",
        118,
        &[
            |r| r.node.lapse_drops = false,
            |r| r.statement.take_checks_counter = false,
        ],
    ),
    (
        "a take is answered in time, with a valid lease; a partition of another is dropped",
        109,
        &[
            |r| r.node.take_in_time = false,
            |r| r.node.take_with_lease = false,
            |r| r.node.drop_lost = false,
        ],
    ),
    (
        "an operator forgets only what is silent; owners that have ended are watched",
        0,
        &[|r| r.forget_waits = false, |r| r.node.watch_ended = false],
    ),
    (
        "another generation ends the lease, and nothing is taken for a while",
        120,
        &[
            |r| r.node.generation_ends_lease = false,
            |r| r.node.generation_quarantine = false,
        ],
    ),
    (
        "the partitions of a restored store have owners, and nothing is taken for a while",
        120,
        &[
            |r| r.statement.restored_rows_have_owners = false,
            |r| r.node.generation_quarantine = false,
        ],
    ),
    (
        "all that a restored store needs, and a watch over one connection",
        1009,
        &[
            |r| r.node.generation_ends_lease = false,
            |r| r.node.generation_quarantine = false,
            |r| r.node.counter_never_falls = false,
            |r| r.statement.checks_generation = false,
            |r| r.node.watch_one_connection = false,
        ],
    ),
];

#[test]
fn each_rule_is_found_if_it_is_left_out() {
    for (name, seed, group) in GROUPS {
        let found = first_violation(*seed, group);
        println!("{name}: seed {found:?}");
        assert!(found.is_some(), "not found: {name}");
    }
}

/// Returns a seed with a violation.
fn first_violation(first: u64, group: &[Omission]) -> Option<u64> {
    let mut rules = FleetRules::default();
    for omit in group {
        omit(&mut rules);
    }
    std::iter::once(first)
        .chain(0..SEEDS)
        .find(|seed| run_chaos(*seed, rules).violation.is_some())
}
