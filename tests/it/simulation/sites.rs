//! The hosts of the simulation: what the policy allows of each sort, how its origins behave, and what that comes to.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crawlgate::pipeline::snapshot::PolicySnapshot;

use crate::support::pipeline::snapshot_of;
use crate::support::policy::compile_policy;

/// A sort of host. Its hosts are `hNUMBER.NAME.test`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sort {
    pub(super) name: &'static str,
    /// The number of hosts of this sort among 40.
    pub(super) share: usize,
    /// The option `politeness`.
    politeness: &'static str,
    /// The meaning of the policy, written again by hand.
    pub(super) limits: Limits,
    /// From the request's head to the answer's, and from there to its last byte.
    pub(super) latency: Duration,
    pub(super) body: Duration,
    pub(super) temper: Temper,
    pub(super) extra: Extra,
}

/// The properties of a sort apart from its limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Extra {
    None,
    /// The number of embedded resources of each page, which have their own limits.
    Embeds(Few, usize),
    /// The highest class goes first, and who waits rises.
    Strict,
    /// All hosts of 40 of this sort are at one address, that has limits too.
    Address(Few),
    /// From this time of the hour on the delay is another.
    Schedule(Duration, Duration),
    /// An operator stops them all, and lets them go again: `STOPPED` of every `STOPS`.
    Halts,
}

/// Some limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Few {
    pub(super) delay: Duration,
    pub(super) concurrency: usize,
}

/// Every so often an operator stops the hosts that halt, in the middle of that time, for so long.
pub(super) const STOPS: Duration = Duration::from_secs(600);
pub(super) const STOPPED: Duration = Duration::from_secs(120);

/// The limits that the origin checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) delay: Duration,
    /// The delay and the concurrency.
    pub(super) rate: Option<(Duration, u32)>,
    pub(super) concurrency: usize,
    /// The mean time between two requests if it is never idle.
    pub(super) period: Duration,
    /// The number of first requests that need not wait for it.
    pub(super) at_once: u32,
}

/// The behaviour of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Temper {
    /// Always 200.
    Steady,
    /// 500, or nothing at all, now and then, and for a minute of every ten always.
    Flaky,
    /// 429 or 503 now and then, with and without a time.
    Tired,
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Hosts that are asked one after the other.
const fn apart(delay: Duration, concurrency: usize, period: Duration) -> Limits {
    Limits {
        delay,
        rate: None,
        concurrency,
        period,
        at_once: 1,
    }
}

pub(super) const SORTS: [Sort; 13] = [
    Sort {
        name: "slow",
        share: 12,
        politeness: "{ delay: 20s, jitter: none }",
        limits: apart(secs(20), 2, secs(20)),
        latency: Duration::from_millis(300),
        body: Duration::from_millis(50),
        temper: Temper::Steady,
        extra: Extra::None,
    },
    Sort {
        name: "jitter",
        share: 4,
        politeness: "{ delay: 8s, jitter: 1.0..1.5 }",
        limits: apart(secs(8), 2, secs(10)),
        latency: Duration::from_millis(700),
        body: secs(1),
        temper: Temper::Steady,
        extra: Extra::None,
    },
    Sort {
        name: "rate",
        share: 4,
        politeness: "{ delay: 0s, rate: 6/m, burst: 3 }",
        limits: Limits {
            delay: Duration::ZERO,
            rate: Some((secs(10), 3)),
            concurrency: 2,
            period: secs(10),
            at_once: 3,
        },
        latency: Duration::from_millis(200),
        body: Duration::ZERO,
        temper: Temper::Steady,
        extra: Extra::None,
    },
    Sort {
        name: "busy",
        share: 4,
        politeness: "{ delay: 0s, concurrency: 2 }",
        limits: Limits {
            delay: Duration::ZERO,
            rate: None,
            concurrency: 2,
            period: secs(10),
            at_once: 2,
        },
        latency: secs(12),
        body: Duration::from_millis(7_995),
        temper: Temper::Steady,
        extra: Extra::None,
    },
    Sort {
        name: "lone",
        share: 3,
        politeness: "{ delay: 4s, jitter: none, concurrency: 1 }",
        limits: apart(secs(4), 1, Duration::from_millis(9_005)),
        latency: secs(6),
        body: secs(3),
        temper: Temper::Steady,
        extra: Extra::None,
    },
    Sort {
        name: "flaky",
        share: 1,
        politeness: "{ delay: 5s, jitter: none }",
        limits: apart(secs(5), 2, secs(5)),
        latency: secs(2),
        body: secs(1),
        temper: Temper::Flaky,
        extra: Extra::None,
    },
    Sort {
        name: "tired",
        share: 1,
        politeness: "{ delay: 3s, jitter: none, concurrency: 3 }",
        limits: apart(secs(3), 3, secs(3)),
        latency: secs(4),
        body: secs(1),
        temper: Temper::Tired,
        extra: Extra::None,
    },
    Sort {
        name: "embeds",
        share: 2,
        politeness: "{ delay: 20s, jitter: none, embeds: { delay: 5s, concurrency: 1 } }",
        limits: apart(secs(20), 2, secs(20)),
        latency: Duration::from_millis(300),
        body: secs(1),
        temper: Temper::Steady,
        extra: Extra::Embeds(
            Few {
                delay: secs(5),
                concurrency: 1,
            },
            3,
        ),
    },
    Sort {
        name: "strict",
        share: 2,
        politeness: "{ delay: 10s, jitter: none, order: strict }",
        limits: apart(secs(10), 2, secs(10)),
        latency: secs(1),
        body: secs(1),
        temper: Temper::Steady,
        extra: Extra::Strict,
    },
    Sort {
        name: "shared",
        share: 4,
        politeness: "{ delay: 8s, jitter: none, per_address: { delay: 3s, concurrency: 2 } }",
        // The four have 3 s together.
        limits: apart(secs(8), 2, secs(12)),
        latency: secs(3),
        body: secs(2),
        temper: Temper::Steady,
        extra: Extra::Address(Few {
            delay: secs(3),
            concurrency: 2,
        }),
    },
    Sort {
        name: "adaptive",
        share: 1,
        politeness: "{ delay: 0s, jitter: none, adaptive: { factor: 10, min: 2s, max: 30s } }",
        // Ten times its latency, in the rounding of timers.
        limits: apart(Duration::from_millis(9_990), 2, secs(10)),
        latency: secs(1),
        body: secs(1),
        temper: Temper::Steady,
        extra: Extra::None,
    },
    Sort {
        name: "schedule",
        share: 1,
        politeness: "{ delay: 10s, jitter: none, schedule: [{ hours: \"00:30-06:00\", delay: 30s }] }",
        limits: apart(secs(10), 2, secs(15)),
        latency: secs(1),
        body: secs(1),
        temper: Temper::Steady,
        extra: Extra::Schedule(secs(1_800), secs(30)),
    },
    Sort {
        name: "halt",
        share: 1,
        politeness: "{ delay: 10s, jitter: none }",
        // For a fifth of the time no request goes; after that one goes at once.
        limits: Limits {
            at_once: 7,
            ..apart(secs(10), 2, Duration::from_millis(12_500))
        },
        latency: secs(1),
        body: secs(1),
        temper: Temper::Steady,
        extra: Extra::Halts,
    },
];

impl Temper {
    /// Returns `true` if an origin is down at this time after the start.
    pub(super) fn is_down(self, since: Duration) -> bool {
        self == Self::Flaky && since.as_secs() % 600 >= 540
    }
}

/// The number of consecutive hosts among which those that share an address share one.
pub(super) const CYCLE: usize = 40;

/// Where a host is.
pub(super) fn address_of(host: &str) -> IpAddr {
    let number = host
        .strip_prefix('h')
        .and_then(|name| name.split('.').next()?.parse().ok());
    let number: usize = number.expect("one of the simulation");
    let of_many = matches!(sort_of(number).extra, Extra::Address(_));
    let (net, number) = if of_many {
        (100, number / CYCLE)
    } else {
        (101, number)
    };
    let [.., high, low] = number.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(93, net, high, low))
}

/// By the page's number its place in the order of the hosts that have one, and what its path begins with.
pub(super) const CLASSES: [(usize, &str); 3] = [(1, "top"), (3, "usual"), (5, "low")];

/// The sort of the host with this number: the shares, over and over.
pub(super) fn sort_of(host: usize) -> &'static Sort {
    let shares: usize = SORTS.iter().map(|sort| sort.share).sum();
    let mut place = host % shares;
    for sort in &SORTS {
        match place.checked_sub(sort.share) {
            Some(behind) => place = behind,
            None => return sort,
        }
    }
    unreachable!("the place is less than the sum of the shares")
}

/// A policy with a rule for each sort. Another `version` is another revision that says the same.
pub(super) fn policy(version: usize) -> PolicySnapshot {
    let rules: String = SORTS
        .iter()
        .map(|Sort { name, politeness, .. }| {
            format!(
                "  - {{ id: {name}, when: {{ domain: {name}.test }}, set: {{ politeness: {politeness} }} }}\n"
            )
        })
        .collect();
    let rules = rules
        + "  - { id: top, when: { domain: strict.test, under: /top }, set: { priority: highest } }\n"
        + "  - { id: low, when: { domain: strict.test, under: /low }, set: { priority: lowest } }\n";
    let text = format!(
        "policy: 1\nname: v{version}\noptions: {{ disposition: allow, robots: {{ obey: false }} }}\nrules:\n{rules}"
    );
    snapshot_of(compile_policy(text).policy)
}
