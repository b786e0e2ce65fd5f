//! What pace costs: memory for each of 100,000 hosts, a grant that nobody waits for, and forgetting all of them.
//!
//! `cargo bench --bench pace`. Memory is that of the process, by the kernel's count: with the table, with what the
//! allocator rounds up, and with what it keeps.

#![allow(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a bench may panic, and measures the time that passes"
)]

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crawlgate::clock::Clock;
use crawlgate::gate::hold::{Asking, Hold, HoldLimits, Terms};
use crawlgate::heap;
use crawlgate::metrics::Metrics;
use crawlgate::policy::options::politeness::Overflow;
use crawlgate::politeness::order::{Class, Order, Rank};
use crawlgate::politeness::pace::{Kind, Pace, Turn};
use crawlgate::store::shards::{SHARDS, Shards};
use crawlgate::store::{Key, Outcome, Store};
use crawlgate::vocab::crawler::Crawler;
use divan::Bencher;

const HOSTS: usize = 100_000;
/// A policy's defaults without the wait between requests of one host: there is one request for each.
const POLITE: Pace = Pace {
    delay: Duration::from_secs(1),
    concurrency: 2,
    ..Pace::FREE
};

fn main() {
    figures();
    divan::main();
}

fn hosts() -> Vec<String> {
    (0..HOSTS)
        .map(|n| format!("www{n}.example{}.com", n % 977))
        .collect()
}

/// One request to each host: granted, sent, answered.
fn crawl(store: &Store, hosts: &[String], pace: &Pace, now: Instant) {
    for name in hosts {
        let Turn::Go(lease) = store.admit(
            Key {
                name,
                kind: Kind::Navigation,
            },
            pace,
            now,
        ) else {
            panic!("{name} has to wait")
        };
        store.renew(&lease, now);
        store.release(lease, Outcome::Answered, now);
    }
}

/// The longest of the times for which a look at a table of these hosts has a shard locked.
fn longest_look(hosts: &[String]) -> Duration {
    let table = Shards::new();
    for name in hosts {
        let name: Arc<str> = name.as_str().into();
        table
            .of(&name)
            .insert(Arc::clone(&name), Arc::new(name.len()));
    }
    let look = |shard| {
        let began = Instant::now();
        let values = table.values_of(shard);
        assert!(!values.is_empty());
        began.elapsed()
    };
    (0..SHARDS).map(look).max().expect("there are shards")
}

fn figures() {
    let (clock, hand) = Clock::manual();
    let (store, hosts) = (Store::embedded(), hosts());
    heap::give_back();
    let before = resident();
    let began = Instant::now();
    crawl(&store, &hosts, &POLITE, clock.now());
    let first = began.elapsed();
    let with_all = resident();
    let began = Instant::now();
    let census = store.sweep(clock.now());
    let counted = began.elapsed();
    assert_eq!(census.hosts, HOSTS);
    let began = Instant::now();
    let mut listed = 0;
    store.each_seen(clock.now(), |_, _| listed += 1);
    let seen = began.elapsed();
    assert_eq!(listed, HOSTS);
    hand.advance(Duration::from_secs(120));
    let began = Instant::now();
    assert_eq!(store.sweep(clock.now()).hosts, 0);
    let swept = began.elapsed();
    heap::give_back();
    let after = resident();
    println!("{HOSTS} hosts, one request each");
    println!(
        "  memory of an idle host     {:>8} bytes",
        (with_all - before) / HOSTS
    );
    println!(
        "  first request to a host    {:>8} ns",
        first.as_nanos() / HOSTS as u128
    );
    println!("  sweep that keeps all       {counted:>8.1?}");
    println!("  look at all                {seen:>8.1?}");
    println!(
        "  longest lock of a look     {:>8.1?}",
        longest_look(&hosts)
    );
    println!("  sweep that forgets all     {swept:>8.1?}");
    println!(
        "  memory given back          {:>8} of {} KiB",
        (with_all.saturating_sub(after)) >> 10,
        (with_all - before) >> 10
    );
}

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = text
        .split(' ')
        .nth(1)
        .and_then(|n| n.parse().ok())
        .expect("a number");
    pages * 4096
}

/// The store alone, on one host.
#[divan::bench(sample_size = 1000)]
fn admit_and_release(bencher: Bencher<'_, '_>) {
    let (store, now) = (Store::embedded(), Instant::now());
    let key = Key {
        name: "www.example.com",
        kind: Kind::Navigation,
    };
    bencher.bench_local(|| match store.admit(key, &Pace::FREE, now) {
        Turn::Go(lease) => store.release(lease, Outcome::Answered, now),
        Turn::Wait(_) => panic!("nobody else is there"),
    });
}

/// The same among 100,000 hosts, one after the other: the host is hardly ever in a cache.
#[divan::bench(sample_size = 1000)]
fn admit_and_release_among_all(bencher: Bencher<'_, '_>) {
    let (store, hosts, now) = (Store::embedded(), hosts(), Instant::now());
    crawl(&store, &hosts, &Pace::FREE, now);
    let mut next = (0..HOSTS).map(|n| n * 7_919 % HOSTS).cycle();
    bencher.bench_local(|| {
        let name = next
            .next()
            .and_then(|n| hosts.get(n))
            .map_or("", String::as_str);
        match store.admit(
            Key {
                name,
                kind: Kind::Navigation,
            },
            &Pace::FREE,
            now,
        ) {
            Turn::Go(lease) => store.release(lease, Outcome::Answered, now),
            Turn::Wait(_) => panic!("nobody else is there"),
        }
    });
}

/// The whole way of a request through the hold: a slot, its sending, its end.
#[divan::bench(sample_size = 1000)]
fn hold_and_slot(bencher: Bencher<'_, '_>) {
    let metrics = Metrics::new(&[], &[]).expect("names are valid");
    let limits = HoldLimits {
        of_one: 100,
        of_all: 1_000,
        longest: Duration::from_secs(60),
    };
    let hold = Arc::new(Hold::new(
        Store::embedded(),
        limits,
        Clock::system(),
        metrics,
    ));
    let crawler = Crawler::anonymous();
    let asking = Asking {
        key: Key {
            name: "www.example.com",
            kind: Kind::Navigation,
        },
        pace: Pace::FREE,
        overflow: Overflow::Hold,
        crawler: &crawler,
        what: "http://www.example.com/",
    };
    let rank = Rank {
        class: Class::IndexFollow,
        order: Order::Weighted,
    };
    let terms = Terms {
        patience: Duration::ZERO,
        rank,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    bencher.bench_local(|| {
        runtime.block_on(async {
            let slot = hold
                .admit(&asking, &mut None, || terms)
                .await
                .expect("nobody else is there");
            slot.sent();
        });
    });
}
