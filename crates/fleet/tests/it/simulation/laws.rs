//! The two laws: never two owners, whatever happens; and after one fault, an owner again within 1.6 × lease.

use crawlgate_fleet::partition::Partition;
use fastrand::Rng;

use super::world::{Fault, FleetRules, FleetWorld, LEASE, TrueMicros};

/// Seeds of each law if the environment does not say otherwise.
const SEEDS: u64 = 200;

/// The longest time without an owner, after one fault.
const WITHOUT_OWNER: TrueMicros = LEASE * 16 / 10;

#[test]
fn there_are_never_two_owners() {
    let mut heads = 0;
    for seed in seeds() {
        let world = run_chaos(seed, FleetRules::default());
        heads += world.heads;
        assert_eq!(world.violation, None, "CRAWLGATE_FLEET_SEED={seed}");
    }
    assert!(heads > 0, "no request was sent");
}

#[test]
fn after_one_fault_every_partition_has_an_owner_soon() {
    let mut longest: [(TrueMicros, u64); KINDS as usize] = [(0, 0); KINDS as usize];
    for seed in seeds() {
        let outcome = run_single_fault(seed);
        let (without, kind, limit) = outcome;
        let longest = &mut longest[usize::from(kind)];
        *longest = (*longest).max((without, seed));
        assert!(
            without <= limit,
            "CRAWLGATE_FLEET_SEED={seed}: fault {kind}: {without} µs without an owner, with a lease of {LEASE} µs"
        );
    }
    println!("the longest times without an owner, by fault: {longest:?}");
}

pub(super) fn seeds() -> Vec<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    match number("CRAWLGATE_FLEET_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("CRAWLGATE_FLEET_SEEDS").unwrap_or(SEEDS)).collect(),
    }
}

/// Runs a fleet for 40 leases, with about three faults for each lease.
pub(super) fn run_chaos(seed: u64, rules: FleetRules) -> FleetWorld {
    let mut rng = Rng::with_seed(seed ^ 0x5eed);
    let nodes = rng.usize(2..=7);
    let partitions = rng.u16(4..=16);
    let mut world = FleetWorld::new(seed, nodes, partitions, rules);
    world.make_adversarial();
    for node in 0..nodes {
        let at = rng.u64(0..2 * LEASE);
        world.schedule(at, Fault::Start(node));
    }
    let end = 40 * LEASE;
    let mut at = LEASE;
    while at < end {
        at += rng.u64(0..=LEASE * 2 / 3);
        schedule_any(&mut world, &mut rng, at, nodes);
    }
    world.run(end);
    world
}

fn schedule_any(world: &mut FleetWorld, rng: &mut Rng, at: TrueMicros, nodes: usize) {
    let node = rng.usize(0..nodes);
    // Times around the limits of the rules find more than any.
    let edges = [
        LEASE / 5,
        LEASE * 4 / 5,
        LEASE,
        LEASE * 6 / 5,
        LEASE * 5 / 2,
    ];
    let mut length = match rng.bool() {
        true => rng.u64(0..3 * LEASE),
        false => edges[rng.usize(0..edges.len())] + rng.u64(0..LEASE / 20),
    };
    match rng.u8(0..20) {
        0..2 => {
            world.schedule(at, Fault::Crash(node));
            world.schedule(at + length, Fault::Start(node));
        }
        2..5 => world.schedule(at, Fault::Pause(node, length)),
        // Cut off at the moment of its waking, so that what it finds then is not corrected soon.
        5..8 => {
            let wakes = at + length.min(LEASE);
            let cut = Fault::Cut {
                node,
                to_store: true,
                to_node: true,
            };
            world.schedule(at, Fault::Pause(node, length.min(LEASE)));
            world.schedule(wakes - rng.u64(0..LEASE / 10), cut);
            world.schedule(wakes + LEASE + rng.u64(0..LEASE), Fault::Heal(node));
        }
        8..12 => {
            let (to_store, to_node) = [(true, true), (true, false), (false, true)][rng.usize(0..3)];
            let cut = Fault::Cut {
                node,
                to_store,
                to_node,
            };
            world.schedule(at, cut);
            world.schedule(at + length, Fault::Heal(node));
        }
        12 => {
            world.schedule(at, Fault::StoreStop);
            world.schedule(at + length, Fault::StoreStart);
        }
        13 => world.schedule(at, Fault::StoreFreeze(length)),
        14 => {
            // A copy may be old, and the store is back at once or later.
            length = length.min(LEASE);
            world.schedule(at, Fault::Copy);
            let lost = at + rng.u64(0..4 * LEASE);
            world.schedule(lost, Fault::StoreStop);
            world.schedule(lost + length / 2, Fault::Restore);
            world.schedule(lost + length, Fault::StoreStart);
        }
        15 | 16 => {
            world.schedule(at, Fault::Drain(node));
            world.schedule(at + length + LEASE, Fault::Start(node));
        }
        17 => world.schedule(at, Fault::Forget(node)),
        18 => world.schedule(at, Fault::Start(node)),
        _ => world.schedule(at, Fault::Twin(node)),
    }
}

/// The number of kinds of single faults.
const KINDS: u8 = 11;

/// Returns the longest time that a partition had no owner, the kind of fault, and the limit.
fn run_single_fault(seed: u64) -> (TrueMicros, u8, TrueMicros) {
    let mut rng = Rng::with_seed(seed ^ 0xfa17);
    let nodes = rng.usize(2..=7);
    let mut world = FleetWorld::new(seed, nodes, rng.u16(4..=32), FleetRules::default());
    // The last one joins later, if joining is the fault.
    let kind = (seed % u64::from(KINDS)) as u8;
    let joins = kind == 8;
    for node in 0..nodes - usize::from(joins) {
        world.schedule(rng.u64(0..LEASE / 2), Fault::Start(node));
    }
    let fault = 12 * LEASE + rng.u64(0..LEASE);
    if kind == 10 {
        world.schedule(fault - rng.u64(0..3 * LEASE), Fault::Copy);
    }
    world.run(fault - 4 * LEASE);
    let partitions: Vec<Partition> = world.partitioner.all().collect();
    for partition in &partitions {
        assert!(world.is_owned(*partition), "{partition:?} before the fault");
    }
    assert_spread(&world, nodes - usize::from(joins), partitions.len());
    world.run(fault);
    let (begin, limit) = inject(&mut world, &mut rng, kind, nodes, fault);
    let mut longest = 0;
    let mut owned_at = vec![begin; partitions.len()];
    for step in 0..300 {
        let now = begin + step * LEASE / 50;
        world.run(now);
        for (partition, owned_at) in partitions.iter().zip(&mut owned_at) {
            if world.is_owned(*partition) {
                *owned_at = now;
            }
            longest = longest.max(now - *owned_at);
        }
    }
    assert_eq!(world.violation, None, "CRAWLGATE_FLEET_SEED={seed}");
    (longest, kind, limit)
}

/// Injects the fault. Returns the time from which partitions may be without an owner, and for how long.
fn inject(
    world: &mut FleetWorld,
    rng: &mut Rng,
    kind: u8,
    nodes: usize,
    fault: TrueMicros,
) -> (TrueMicros, TrueMicros) {
    let node = rng.usize(0..nodes - usize::from(kind == 8));
    let length = rng.u64(0..5 * LEASE);
    let mut begin = fault;
    let mut limit = WITHOUT_OWNER;
    match kind {
        0 => world.schedule(fault, Fault::Crash(node)),
        1 => {
            world.schedule(fault, Fault::Crash(node));
            world.schedule(fault + length, Fault::Start(node));
        }
        2 => world.schedule(fault, Fault::Pause(node, length)),
        3..6 => {
            let cut = Fault::Cut {
                node,
                to_store: kind != 4,
                to_node: kind != 3,
            };
            world.schedule(fault, cut);
            world.schedule(fault + length, Fault::Heal(node));
        }
        6 => {
            world.schedule(fault, Fault::StoreStop);
            world.schedule(fault + length, Fault::StoreStart);
            begin = fault + length;
        }
        7 => {
            world.schedule(fault, Fault::Drain(node));
            world.schedule(fault + 2 * LEASE + length, Fault::Start(node));
        }
        8 => world.schedule(fault, Fault::Start(nodes - 1)),
        9 => {
            world.schedule(fault, Fault::StoreFreeze(length));
            begin = fault + length;
        }
        _ => {
            world.schedule(fault, Fault::StoreStop);
            world.schedule(fault, Fault::Restore);
            world.schedule(fault + length, Fault::StoreStart);
            begin = fault + length;
            // Nobody takes anything for 2.5 × lease.
            limit += LEASE * 5 / 2;
        }
    }
    (begin, limit)
}

/// Every node has a share before the fault.
fn assert_spread(world: &FleetWorld, nodes: usize, partitions: usize) {
    let shares: Vec<usize> = (0..nodes).map(|node| world.owned_by(node)).collect();
    assert_eq!(shares.iter().sum::<usize>(), partitions, "{shares:?}");
    assert_eq!(
        (0..nodes).filter(|node| world.is_running(*node)).count(),
        nodes
    );
    if partitions >= 16 * nodes {
        assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
    }
}
