//! Measures the ledger: processor time per request over 100,000 distinct URLs, including the work
//! of its writer; lookups; and the size of the file.
//!
//! `cargo bench --bench ledger`. For more URLs: `cargo bench --bench ledger -- --urls=10000000`,
//! which needs about 4 GB in the directory for temporary files (`TMPDIR`) for some minutes.
//! Processor time is that of all threads, as counted by the kernel.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark may panic, measures real time, and prints its results"
)]

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crawlgate::ledger::key::LedgerKey;
use crawlgate::ledger::observation::{
    DeliveredDocument, ObservationOutcome, ObservedResponse, RefusalRecording, UrlObservation,
};
use crawlgate::ledger::record::{DocumentValidators, UnixMillis};
use crawlgate::model::crawl_status::CrawlStatus;
use crawlgate::store::ledger::{Ledger, LedgerSettings, LedgerUpdate};

const REQUESTS: u64 = 100_000;
/// The number of lookups of each kind.
const LOOKUPS: u64 = 100_000;

fn main() {
    let urls = std::env::args().find_map(|arg| arg.strip_prefix("--urls=")?.parse().ok());
    let settings = LedgerSettings::default();
    let directory =
        std::env::temp_dir().join(format!("crawlgate-bench-ledger-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    let result = std::panic::catch_unwind(|| match urls {
        None => [0, 10_000, 2_000]
            .into_iter()
            .for_each(|rate| measure_requests(&directory, settings, rate)),
        Some(urls) => measure_filling(&directory, settings, urls),
    });
    fs::remove_dir_all(&directory).expect("the directory exists");
    result.expect("the measurement does not panic");
}

/// Looks up and then records new URLs at `rate` per second; 0 is as fast as possible.
fn measure_requests(directory: &Path, settings: LedgerSettings, rate: u64) {
    let _ = fs::remove_dir_all(directory);
    let ledger = Ledger::open(directory, settings).expect("it opens");
    let preparation = processor_time_of(|| {
        (0..REQUESTS).for_each(|n| drop(black_box(ledger_update(n))));
    });
    let start = Instant::now();
    let burst = rate / 100;
    let total = processor_time_of(|| {
        for n in 0..REQUESTS {
            let update = ledger_update(n);
            black_box(ledger.look_up(update.key));
            if rate == 0 {
                wait(ledger.wait_if_full());
            }
            ledger.record(update);
            if burst > 0 && n % burst == 0 {
                sleep(Duration::from_millis(10));
            }
        }
        wait(ledger.flush());
        ledger.close();
    });
    let per_url = (total - preparation) / REQUESTS as u32;
    let elapsed = start.elapsed();
    println!(
        "{REQUESTS} new URLs at {rate}/s (0: unlimited): {per_url:?} of processor time per URL, {elapsed:.2?} in total"
    );
}

fn measure_filling(directory: &Path, settings: LedgerSettings, urls: u64) {
    let ledger = Ledger::open(directory, settings).expect("it opens");
    let start = Instant::now();
    let total = processor_time_of(|| {
        for n in 0..urls {
            wait(ledger.wait_if_full());
            ledger.record(ledger_update(n));
            if n % 1_000_000 == 0 {
                println!(
                    "{n} URLs: {} MB on disk, {:.0?}",
                    ledger.disk_bytes() >> 20,
                    start.elapsed()
                );
            }
        }
        wait(ledger.flush());
    });
    let per_url = total / urls as u32;
    let gigabytes = ledger.disk_bytes() as f64 / 1e9;
    let elapsed = start.elapsed();
    println!(
        "{urls} URLs: {gigabytes:.2} GB on disk, {per_url:?} of processor time per URL, {elapsed:.0?} in total"
    );
    println!("resident memory: {} MB", resident_bytes() >> 20);
    let start = Instant::now();
    ledger.close();
    drop(ledger);
    println!("closed in {:.2?}", start.elapsed());
    let start = Instant::now();
    let ledger = Ledger::open(directory, settings).expect("it opens");
    println!(
        "opened in {:.2?}: {:?}",
        start.elapsed(),
        ledger.stats().urls
    );
    measure_lookups(&ledger, urls);
}

fn measure_lookups(ledger: &Ledger, urls: u64) {
    let keys: Vec<LedgerKey> = (0..LOOKUPS).map(|_| key(fastrand::u64(..urls))).collect();
    time_lookups(ledger, "not cached", &keys);
    // The most recent lookups are still cached.
    let cached: Vec<LedgerKey> = keys.iter().rev().take(1_000).copied().collect();
    time_lookups(ledger, "cached", &cached);
    let absent: Vec<LedgerKey> = (urls..urls + LOOKUPS).map(key).collect();
    time_lookups(ledger, "absent", &absent);
}

fn time_lookups(ledger: &Ledger, kind: &str, keys: &[LedgerKey]) {
    let start = Instant::now();
    keys.iter()
        .for_each(|key| drop(black_box(ledger.look_up(*key))));
    println!("lookup, {kind}: {:?}", start.elapsed() / keys.len() as u32);
}

fn url(n: u64) -> String {
    // 80 bytes.
    format!(
        "http://www{:05}.example.com/articles/2026/11/22/{:0>34}",
        n % 99_991,
        n
    )
}

fn key(n: u64) -> LedgerKey {
    LedgerKey::for_url("news-bot", &url(n))
}

fn ledger_update(n: u64) -> LedgerUpdate {
    let url = url(n);
    let document = DeliveredDocument {
        validators: DocumentValidators {
            etag: Some(format!("\"{n:016x}\"").into()),
            last_modified: None,
        },
        content_hash: None,
        content_type: "text/html".into(),
        size: 10_000 + n % 50_000,
    };
    let outcome = ObservationOutcome::Answered(ObservedResponse {
        status: 200,
        crawl_status: CrawlStatus::Accepted,
        removal: None,
        code: None,
        failure: None,
        document: Some(document),
        recording: RefusalRecording::Keep,
    });
    let observation = UrlObservation {
        at: UnixMillis(1_767_225_600_000 + n),
        crawler: "news-bot".into(),
        space: Some("news".into()),
        depth: Some(3),
        address: Some([192, 0, 2, 7].into()),
        source: None,
        revision: "3f9c2a1b".into(),
        rule: None,
        intent: None,
        user_agent: None,
        outcome,
        url: url.clone().into(),
    };
    LedgerUpdate {
        key: LedgerKey::for_url("news-bot", &url),
        observation,
        content_key: None,
    }
}

fn wait(future: impl Future) {
    let mut future = std::pin::pin!(future);
    // The future is usually ready at the first poll, which needs no runtime.
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    if future.as_mut().poll(&mut context).is_pending() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(future);
    }
}

/// Measures the processor time that all threads use while `work` runs.
fn processor_time_of(work: impl FnOnce()) -> Duration {
    let before = processor_time();
    work();
    processor_time().saturating_sub(before)
}

/// Returns the processor time of all threads, including those that have ended.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("/proc is readable");
    let fields: Vec<i64> = stat
        .rsplit(')')
        .next()
        .expect("fields")
        .split(' ')
        .filter_map(|f| f.parse().ok())
        .collect();
    // Fields 14 and 15, utime and stime, in hundredths of a second. The list starts with field 4.
    Duration::from_millis(10 * (fields[10] + fields[11]).unsigned_abs())
}

fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("/proc is readable");
    statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok())
        .expect("pages")
        * 4096
}
