//! The fuzz targets of `fuzz/`, on stable Rust: the committed corpora, and generated input for some time.
//!
//! `CRAWLGATE_FUZZ_SECONDS` sets the time of each target, `CRAWLGATE_FUZZ_SEED` another seed. A failing input is printed and
//! written to a file that `cargo fuzz` accepts.

mod client_hello;
mod corpus;
mod decide;
mod head;
mod index;
mod ledger_file;
mod nbt;
mod patterns;
mod policy_source;
mod proxy_header;
mod robots;
mod url;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use corpus::Corpus;

/// The default seed; it makes the result depend on the code alone.
const SEED: u64 = 20_261_121;
/// The time of each target.
const SECONDS: u64 = 2;
/// The longest time for one input, in an unoptimised build on a busy machine.
const HANGS: Duration = Duration::from_secs(30);

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs a target with the committed inputs, then with inputs derived from them.
fn fuzz(target: &str, run: fn(&[u8])) {
    let mut corpus = Corpus::of(target);
    let committed = corpus.inputs().to_vec();
    committed.iter().for_each(|input| one(target, run, input));
    let seed = variable("CRAWLGATE_FUZZ_SEED").unwrap_or(SEED);
    let time = Duration::from_secs(variable("CRAWLGATE_FUZZ_SECONDS").unwrap_or(SECONDS));
    println!(
        "{target}: {} inputs of the corpus, then CRAWLGATE_FUZZ_SEED={seed}",
        committed.len()
    );
    corpus.seed(seed);
    let begin = Instant::now();
    let mut made = 0_u64;
    while begin.elapsed() < time {
        one(target, run, &corpus.next());
        made += 1;
    }
    println!("{target}: {made} generated inputs");
    assert!(committed.len() > 20, "{target} was not run");
    assert!(made > 0 || time.is_zero(), "{target} was not run");
}

fn one(target: &str, run: fn(&[u8]), input: &[u8]) {
    let begin = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| run(input)));
    let hangs = begin.elapsed() > HANGS;
    if outcome.is_err() || hangs {
        let file = std::env::temp_dir().join(format!("crawlgate-fuzz-{target}"));
        let _ = std::fs::write(&file, input);
        eprintln!(
            "{target} failed on {}: {}",
            file.display(),
            input.escape_ascii()
        );
    }
    outcome.unwrap_or_else(|panic| resume_unwind(panic));
    assert!(!hangs, "{target} took {:?}", begin.elapsed());
}

#[test]
fn robots_files() {
    fuzz("robots", robots::run);
}

#[test]
fn urls() {
    fuzz("url", url::run);
}

#[test]
fn request_heads() {
    fuzz("head", head::run);
}

#[test]
fn client_hellos() {
    fuzz("client_hello", client_hello::run);
}

#[test]
fn ledger_files() {
    fuzz("ledger_file", ledger_file::run);
}

#[test]
fn policy_sources() {
    fuzz("policy_source", policy_source::run);
}

#[test]
fn field_patterns() {
    fuzz("patterns", patterns::run);
}

#[test]
fn decisions() {
    fuzz("decide", decide::run);
}

#[test]
fn indexed_decisions() {
    fuzz("index", index::run);
}

#[test]
fn projects_of_webcopy() {
    fuzz("nbt", nbt::run);
}

#[test]
fn proxy_headers() {
    fuzz("proxy_header", proxy_header::run);
}
