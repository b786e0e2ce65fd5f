//! Measures pacing: memory per host for 100,000 hosts, a grant without a wait, and the removal of
//! all hosts.
//!
//! `cargo bench --bench pace`. Memory is that of the process, as counted by the kernel. It includes
//! the table, the rounding of the allocator, and memory that the allocator retains.

#![allow(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a benchmark may panic and measures real time"
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
/// A pace with a delay, which never applies because each host gets one request.
const POLITE: HostPace = HostPace {
    delay: Duration::from_secs(1),
    concurrency: 2,
    ..HostPace::UNLIMITED
};

fn main() {
    measure_table();
    divan::main();
}

fn hosts() -> Vec<String> {
    (0..HOSTS)
        .map(|n| format!("www{n}.example{}.com", n % 977))
        .collect()
}

/// Makes one request to each host: granted, sent, answered.
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
            panic!("the request to {name} has to wait")
        };
        lease.renew(now);
        lease.release(LeaseOutcome::Answered, now);
    }
}

/// Returns the longest time for which a read of all values locks one shard of a table of hosts.
fn longest_shard_lock(hosts: &[String]) -> Duration {
    let table = ShardedMap::new();
    for name in hosts {
        let name: Arc<str> = name.as_str().into();
        table
            .lock_shard(&name)
            .insert(Arc::clone(&name), Arc::new(name.len()));
    }
    (0..SHARD_COUNT)
        .map(|shard| {
            let start = Instant::now();
            let values = table.shard_values(shard);
            assert!(!values.is_empty());
            start.elapsed()
        })
        .max()
        .expect("a table has shards")
}

fn measure_table() {
    let (clock, control) = Clock::manual();
    let store = HostStore::new();
    let hosts = hosts();
    heap::give_back();
    let before = resident_bytes();
    let start = Instant::now();
    crawl(&store, &hosts, &POLITE, clock.now());
    let first_requests = start.elapsed();
    let with_all = resident_bytes();
    let start = Instant::now();
    let stats = store.sweep(clock.now());
    let keeping_sweep = start.elapsed();
    assert_eq!(stats.hosts, HOSTS);
    let start = Instant::now();
    let mut listed = 0;
    store.for_each_host(clock.now(), |_, _| listed += 1);
    let listing = start.elapsed();
    assert_eq!(listed, HOSTS);
    control.advance(Duration::from_secs(120));
    let start = Instant::now();
    assert_eq!(store.sweep(clock.now()).hosts, 0);
    let removing_sweep = start.elapsed();
    heap::give_back();
    let after = resident_bytes();
    println!("{HOSTS} hosts, one request each");
    println!(
        "  memory of an idle host     {:>8} bytes",
        (with_all - before) / HOSTS
    );
    println!(
        "  first request to a host    {:>8} ns",
        first_requests.as_nanos() / HOSTS as u128
    );
    println!("  sweep that keeps all       {keeping_sweep:>8.1?}");
    println!("  listing of all hosts       {listing:>8.1?}");
    println!(
        "  longest lock of a shard    {:>8.1?}",
        longest_shard_lock(&hosts)
    );
    println!("  sweep that removes all     {removing_sweep:>8.1?}");
    println!(
        "  memory returned            {:>8} of {} KiB",
        (with_all.saturating_sub(after)) >> 10,
        (with_all - before) >> 10
    );
}

/// Returns the resident memory of this process in bytes.
fn resident_bytes() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").expect("/proc is readable");
    let pages: usize = statm
        .split(' ')
        .nth(1)
        .and_then(|n| n.parse().ok())
        .expect("a number");
    pages * 4096
}

/// A grant for one host, without the admission queue.
#[divan::bench(sample_size = 1000)]
fn admit_and_release(bencher: Bencher<'_, '_>) {
    let store = HostStore::new();
    let now = Instant::now();
    let key = LimiterKey {
        name: "www.example.com",
        kind: RequestKind::Navigation,
    };
    bencher.bench_local(|| match store.try_acquire(key, &HostPace::UNLIMITED, now) {
        PaceDecision::Granted(lease) => lease.release(LeaseOutcome::Answered, now),
        PaceDecision::Wait(_) => panic!("no other request uses the host"),
    });
}

/// Grants for 100,000 hosts in turn, so that a host is rarely in the CPU cache.
#[divan::bench(sample_size = 1000)]
fn admit_and_release_among_all(bencher: Bencher<'_, '_>) {
    let store = HostStore::new();
    let hosts = hosts();
    let now = Instant::now();
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
            PaceDecision::Wait(_) => panic!("no other request uses the host"),
        }
    });
}

/// A request through the admission queue: it gets a slot, is sent, and releases the slot.
#[divan::bench(sample_size = 1000)]
fn hold_and_slot(bencher: Bencher<'_, '_>) {
    let metrics = Metrics::new(&[], &[]).expect("names are valid");
    let limits = AdmissionLimits {
        per_host: 100,
        total: 1_000,
        max_wait: Duration::from_secs(60),
    };
    let queue = Arc::new(AdmissionQueue::new(
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
            let slot = queue
                .acquire(&request, &mut None, || terms)
                .await
                .expect("no other request uses the host");
            slot.record_sent();
        });
    });
}
