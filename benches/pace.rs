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
use crawlgate::heap;
use crawlgate::metrics::Metrics;
use crawlgate::model::crawler::Crawler;
use crawlgate::pacing::pace::{HostPace, PaceDecision, RequestKind};
use crawlgate::pacing::queue::{PriorityClass, QueueRank, WaitOrder};
use crawlgate::pipeline::admission::{
    AdmissionLimits, AdmissionQueue, AdmissionRequest, WaitTerms,
};
use crawlgate::policy::options::politeness::Overflow;
use crawlgate::store::sharded_map::{SHARD_COUNT, ShardedMap};
use crawlgate::store::{HostStore, LeaseOutcome, LimiterKey};
use divan::Bencher;

const HOSTS: usize = 100_000;
/// A policy's defaults without the wait between requests of one host: there is one request for each.
const POLITE: HostPace = HostPace {
    delay: Duration::from_secs(1),
    concurrency: 2,
    ..HostPace::UNLIMITED
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
fn crawl(store: &HostStore, hosts: &[String], pace: &HostPace, now: Instant) {
    for name in hosts {
        let PaceDecision::Granted(lease) = store.try_acquire(
            LimiterKey {
                name,
                kind: RequestKind::Navigation,
            },
            pace,
            now,
        ) else {
            panic!("{name} has to wait")
        };
        lease.renew(now);
        lease.release(LeaseOutcome::Answered, now);
    }
}

/// The longest of the times for which a look at a table of these hosts has a shard locked.
fn longest_look(hosts: &[String]) -> Duration {
    let table = ShardedMap::new();
    for name in hosts {
        let name: Arc<str> = name.as_str().into();
        table
            .lock_shard(&name)
            .insert(Arc::clone(&name), Arc::new(name.len()));
    }
    let look = |shard| {
        let began = Instant::now();
        let values = table.shard_values(shard);
        assert!(!values.is_empty());
        began.elapsed()
    };
    (0..SHARD_COUNT).map(look).max().expect("there are shards")
}

fn figures() {
    let (clock, control) = Clock::manual();
    let (store, hosts) = (HostStore::new(), hosts());
    heap::give_back();
    let before = resident();
    let began = Instant::now();
    crawl(&store, &hosts, &POLITE, clock.now());
    let first = began.elapsed();
    let with_all = resident();
    let began = Instant::now();
    let stats = store.sweep(clock.now());
    let counted = began.elapsed();
    assert_eq!(stats.hosts, HOSTS);
    let began = Instant::now();
    let mut listed = 0;
    store.for_each_host(clock.now(), |_, _| listed += 1);
    let seen = began.elapsed();
    assert_eq!(listed, HOSTS);
    control.advance(Duration::from_secs(120));
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
    let (store, now) = (HostStore::new(), Instant::now());
    let key = LimiterKey {
        name: "www.example.com",
        kind: RequestKind::Navigation,
    };
    bencher.bench_local(|| match store.try_acquire(key, &HostPace::UNLIMITED, now) {
        PaceDecision::Granted(lease) => lease.release(LeaseOutcome::Answered, now),
        PaceDecision::Wait(_) => panic!("nobody else is there"),
    });
}

/// The same among 100,000 hosts, one after the other: the host is hardly ever in a cache.
#[divan::bench(sample_size = 1000)]
fn admit_and_release_among_all(bencher: Bencher<'_, '_>) {
    let (store, hosts, now) = (HostStore::new(), hosts(), Instant::now());
    crawl(&store, &hosts, &HostPace::UNLIMITED, now);
    let mut next = (0..HOSTS).map(|n| n * 7_919 % HOSTS).cycle();
    bencher.bench_local(|| {
        let name = next
            .next()
            .and_then(|n| hosts.get(n))
            .map_or("", String::as_str);
        match store.try_acquire(
            LimiterKey {
                name,
                kind: RequestKind::Navigation,
            },
            &HostPace::UNLIMITED,
            now,
        ) {
            PaceDecision::Granted(lease) => lease.release(LeaseOutcome::Answered, now),
            PaceDecision::Wait(_) => panic!("nobody else is there"),
        }
    });
}

/// The whole way of a request through the hold: a slot, its sending, its end.
#[divan::bench(sample_size = 1000)]
fn hold_and_slot(bencher: Bencher<'_, '_>) {
    let metrics = Metrics::new(&[], &[]).expect("names are valid");
    let limits = AdmissionLimits {
        per_host: 100,
        total: 1_000,
        max_wait: Duration::from_secs(60),
    };
    let hold = Arc::new(AdmissionQueue::new(
        HostStore::new(),
        limits,
        Clock::system(),
        metrics,
    ));
    let crawler = Crawler::anonymous();
    let request = AdmissionRequest {
        key: LimiterKey {
            name: "www.example.com",
            kind: RequestKind::Navigation,
        },
        pace: HostPace::UNLIMITED,
        overflow: Overflow::Hold,
        crawler: &crawler,
        resource: "http://www.example.com/",
    };
    let rank = QueueRank {
        class: PriorityClass::IndexFollow,
        order: WaitOrder::Weighted,
    };
    let terms = WaitTerms {
        max_wait: Duration::ZERO,
        rank,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    bencher.bench_local(|| {
        runtime.block_on(async {
            let slot = hold
                .acquire(&request, &mut None, || terms)
                .await
                .expect("nobody else is there");
            slot.record_sent();
        });
    });
}
