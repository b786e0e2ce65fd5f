//! An hour of many crawlers over many hosts, in a few seconds: the real gate, policy, hold queue and store, in a runtime
//! whose time is stopped and jumps to the next thing that happens. Only origins and crawlers are made up.
//!
//! The origin's side judges: no host receives more than its pace allows, nobody goes to a host that rests, and one alone
//! behind it, nor to one that is stopped; the limits of an address, of what belongs to pages, of a window of the day and of
//! strict order hold, too. At the end no slot and no place in a queue is left, nobody has starved, and what the hosts that never fail
//! have received comes to what they allow. The same seed gives the same hour.

mod crawl;
mod laws;
mod sites;

use std::time::{Duration, Instant};

use crawl::{Crawl, Scale};
use laws::Verdict;

const HOUR: Duration = Duration::from_secs(3_600);
/// A larger or another hour: `CRAWLGATE_SIMULATION=SEED` runs that one.
const SEED: u64 = 20_261_121;

/// 50 crawlers over 1,000 hosts.
const WHOLE: Scale = Scale {
    crawlers: 50,
    sites: 1_000,
    time: HOUR,
};
/// The same world, small.
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

fn simulate(scale: Scale, seed: u64) -> Verdict {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime
        .expect("a runtime")
        .block_on(Crawl::run(scale, seed))
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
