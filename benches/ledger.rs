//! What the ledger costs: processor time for each request over 100,000 distinct URLs, with all that its writer does
//! behind them; lookups; and the size of the file.
//!
//! `cargo bench --bench ledger`. Figures for more URLs: `cargo bench --bench ledger -- --urls=10000000`, which takes
//! about 4 GB of the disk under the directory for temporary files (`TMPDIR`) for some minutes. Processor time is that of
//! all threads, by the kernel's count.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a bench may panic, measures the time that passes, and prints what it finds"
)]

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crawlgate::ledger::key::LedgerKey;
use crawlgate::ledger::observation::{
    DeliveredDocument, ObservationOutcome, ObservedResponse, UrlObservation,
};
use crawlgate::ledger::record::{DocumentValidators, UnixMillis};
use crawlgate::model::crawl_status::CrawlStatus;
use crawlgate::store::ledger::{Ledger, LedgerSettings, LedgerUpdate};

const REQUESTS: u64 = 100_000;
/// Looks of each kind.
const LOOKS: u64 = 100_000;

fn main() {
    let urls = std::env::args().find_map(|arg| arg.strip_prefix("--urls=")?.parse().ok());
    let settings = LedgerSettings::default();
    let folder =
        std::env::temp_dir().join(format!("crawlgate-bench-ledger-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let ended = std::panic::catch_unwind(|| match urls {
        None => [0, 10_000, 2_000]
            .into_iter()
            .for_each(|rate| requests(&folder, settings, rate)),
        Some(urls) => fill(&folder, settings, urls),
    });
    fs::remove_dir_all(&folder).expect("the folder is there");
    ended.expect("nothing panics");
}

/// New URLs, so many a second (0: as fast as it goes): a look before each, a note behind it.
fn requests(folder: &Path, settings: LedgerSettings, rate: u64) {
    let _ = fs::remove_dir_all(folder);
    let ledger = Ledger::open(folder, settings).expect("it opens");
    let made = processor(|| (0..REQUESTS).for_each(|n| drop(black_box(note(n)))));
    let (began, burst) = (Instant::now(), rate / 100);
    let spent = processor(|| {
        for n in 0..REQUESTS {
            let update = note(n);
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
    let (each, took) = ((spent - made) / REQUESTS as u32, began.elapsed());
    println!(
        "{REQUESTS} new URLs at {rate}/s (0: at once): {each:?} of processor time each, {took:.2?} in all"
    );
}

fn fill(folder: &Path, settings: LedgerSettings, urls: u64) {
    let ledger = Ledger::open(folder, settings).expect("it opens");
    let began = Instant::now();
    let spent = processor(|| {
        for n in 0..urls {
            wait(ledger.wait_if_full());
            ledger.record(note(n));
            if n % 1_000_000 == 0 {
                println!(
                    "{n} URLs: {} MB on disk, {:.0?}",
                    ledger.disk_bytes() >> 20,
                    began.elapsed()
                );
            }
        }
        wait(ledger.flush());
    });
    let (each, size, took) = (
        spent / urls as u32,
        ledger.disk_bytes() as f64 / 1e9,
        began.elapsed(),
    );
    println!(
        "{urls} URLs: {size:.2} GB on disk, {each:?} of processor time each, {took:.0?} in all"
    );
    println!("resident: {} MB", resident() >> 20);
    let began = Instant::now();
    ledger.close();
    drop(ledger);
    println!("closed in {:.2?}", began.elapsed());
    let began = Instant::now();
    let ledger = Ledger::open(folder, settings).expect("it opens");
    println!(
        "opened in {:.2?}: {:?}",
        began.elapsed(),
        ledger.stats().urls
    );
    looks(&ledger, urls);
}

fn looks(ledger: &Ledger, urls: u64) {
    let keys: Vec<LedgerKey> = (0..LOOKS).map(|_| key(fastrand::u64(..urls))).collect();
    let each = |what, keys: &[LedgerKey]| {
        let began = Instant::now();
        keys.iter()
            .for_each(|key| drop(black_box(ledger.look_up(*key))));
        println!("look-up, {what}: {:?}", began.elapsed() / keys.len() as u32);
    };
    each("not cached", &keys);
    // What was looked at last is still there.
    let cached: Vec<LedgerKey> = keys.iter().rev().take(1_000).copied().collect();
    each("cached", &cached);
    let absent: Vec<LedgerKey> = (urls..urls + LOOKS).map(key).collect();
    each("of what is not there", &absent);
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

fn note(n: u64) -> LedgerUpdate {
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
    let what = ObservationOutcome::Answered(ObservedResponse {
        status: 200,
        crawl_status: CrawlStatus::Accepted,
        intent: None,
        code: None,
        failure: None,
        document: Some(document),
    });
    let seen = UrlObservation {
        at: UnixMillis(1_767_225_600_000 + n),
        crawler: "news-bot".into(),
        space: Some("news".into()),
        depth: Some(3),
        address: Some([192, 0, 2, 7].into()),
        source: None,
        revision: "3f9c2a1b".into(),
        rule: None,
        outcome: what,
        url: url.clone().into(),
    };
    LedgerUpdate {
        key: LedgerKey::for_url("news-bot", &url),
        observation: seen,
        content_key: None,
    }
}

fn wait(future: impl Future) {
    let mut future = std::pin::pin!(future);
    // Most often it is ready at once.
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    if future.as_mut().poll(&mut context).is_pending() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(future);
    }
}

/// What this takes of all threads.
fn processor(work: impl FnOnce()) -> Duration {
    let before = threads();
    work();
    threads().saturating_sub(before)
}

/// Time of all threads, those that have ended included.
fn threads() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("the kernel says");
    let fields: Vec<i64> = stat
        .rsplit(')')
        .next()
        .expect("fields")
        .split(' ')
        .filter_map(|f| f.parse().ok())
        .collect();
    // utime and stime, in hundredths of a second: fields 14 and 15; three before are no numbers.
    Duration::from_millis(10 * (fields[10] + fields[11]).unsigned_abs())
}

fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/statm").expect("the kernel says");
    status
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok())
        .expect("pages")
        * 4096
}
