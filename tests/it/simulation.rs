//! An hour of many crawlers over many hosts, simulated in a few seconds: the real pipeline, policy, admission queue and store, in
//! a runtime whose time is paused. Only origins and crawlers are simulated.
//!
//! The origins check that no host receives more than its pace allows, that a resting host receives nothing and one request
//! after its rest, and that a stopped host receives nothing. The limits of addresses, of embedded resources, of schedules and of
//! strict order are checked as well. At the end no slot and no queue place is in use, no request has starved, and the requests
//! to hosts without failures add up to what their pace allows. The same seed gives the same run.

mod crawl;
mod laws;
mod sites;

use crate::support::wait::paused_runtime;
use std::time::{Duration, Instant};

use crawl::{Crawl, Scale};
use laws::LawVerdict;

const HOUR: Duration = Duration::from_secs(3_600);
/// A larger run, or another one: `CRAWLGATE_SIMULATION=SEED` selects it.
const SEED: u64 = 20_261_121;

/// 50 crawlers over 1,000 hosts.
const WHOLE: Scale = Scale {
    crawlers: 50,
    sites: 1_000,
    time: HOUR,
};
/// That simulation on a small scale.
const SMALL: Scale = Scale {
    crawlers: 10,
    sites: 40,
    time: Duration::from_secs(600),
};

fn seed() -> u64 {
    std::env::var("CRAWLGATE_SIMULATION")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(SEED)
}

fn simulate(scale: Scale, seed: u64) -> LawVerdict {
    paused_runtime().block_on(Crawl::run(scale, seed))
}

#[test]
fn an_hour_of_fifty_crawlers_over_a_thousand_hosts() {
    let began = Instant::now();
    let verdict = simulate(WHOLE, seed());
    println!(
        "{verdict}\nsimulated in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    verdict.assert();
}

#[test]
fn the_same_seed_gives_the_same_hour_and_another_one_another() {
    let digest = |seed| simulate(SMALL, seed).digest;
    let first = digest(1);
    assert_eq!(first, digest(1));
    assert_ne!(first, digest(2));
}

#[test]
fn small_worlds_of_many_seeds() {
    for seed in 0..20 {
        let verdict = simulate(SMALL, seed);
        assert!(verdict.violations.is_empty(), "seed {seed}: {verdict}");
    }
}
