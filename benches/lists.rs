//! Measures loading and lookups of a list of 1,000,000 domains, and of lists of patterns:
//! `cargo bench --bench lists`.
//!
//! Loading starts with the bytes of the policy and its list and ends with the compiled policy. It
//! includes the SHA-256 of the revision and the decompression of a packed list.

#![allow(clippy::expect_used, reason = "a benchmark may panic")]

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use crawlgate::policy::compile;
use crawlgate::policy::fact::Facts;
use crawlgate::policy::list::ListItems;
use crawlgate::policy::list::texts::PackedTexts;
use crawlgate::policy::source::MemoryFileSystem;
use crawlgate::urls::target::UrlTarget;
use divan::Bencher;
use flate2::Compression;
use flate2::write::GzEncoder;

fn main() {
    divan::main();
}

const COUNT: usize = 1_000_000;
const POLICY: &str = "policy: 1\nname: bench\noptions: { disposition: allow }\n\
    lists: { blocked: { kind: domains, file: blocked.txt } }\nrules: [{ id: blocked, forbid: { in: blocked } }]\n";

fn domain(n: usize) -> String {
    format!("host-{}.example{}.org", n * 7_919 % COUNT, n % 100)
}

fn list() -> String {
    (0..COUNT).map(|n| domain(n) + "\n").collect()
}

fn files(list: Vec<u8>) -> MemoryFileSystem {
    MemoryFileSystem::new()
        .with_file("p.yaml", POLICY)
        .with_file("blocked.txt", list)
}

#[divan::bench(sample_count = 10)]
fn load(bencher: Bencher<'_, '_>) {
    let files = files(list().into_bytes());
    bencher.bench(|| compile::load(&files, "p.yaml").expect("a valid policy"));
}

#[divan::bench(sample_count = 10)]
fn load_packed(bencher: Bencher<'_, '_>) {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed
        .write_all(list().as_bytes())
        .expect("compression succeeds");
    let files = files(packed.finish().expect("compression succeeds"));
    bencher.bench(|| compile::load(&files, "p.yaml").expect("a valid policy"));
}

/// A lookup of a host with four labels: one in a listed domain, one in none.
#[divan::bench(args = ["www.host-123456.example3.org", "www.images.example.com"])]
fn look_up(bencher: Bencher<'_, '_>, host: &str) {
    let mut texts = PackedTexts::default();
    assert!((0..COUNT).all(|n| texts.push(&domain(n))), "the texts fit");
    let items = ListItems::from_texts(texts);
    bencher.bench(|| items.has_parent_of(divan::black_box(host)));
}

/// Lookups spread over the whole list, so that the entries of a lookup are not in the CPU cache.
#[divan::bench]
fn look_up_spread(bencher: Bencher<'_, '_>) {
    let mut texts = PackedTexts::default();
    assert!((0..COUNT).all(|n| texts.push(&domain(n))), "the texts fit");
    let items = ListItems::from_texts(texts);
    let next = AtomicUsize::new(0);
    bencher
        .with_inputs(|| {
            let at = next.fetch_add(611_953, Ordering::Relaxed);
            format!("www.{}", domain(at % COUNT))
        })
        .bench_refs(|host| items.has_parent_of(host));
}

/// A complete decision at the request stage.
#[divan::bench]
fn decision(bencher: Bencher<'_, '_>) {
    let policy = compile::load(&files(list().into_bytes()), "p.yaml")
        .expect("a valid policy")
        .policy;
    let target = UrlTarget::parse("http://www.images.example.com/a/b.html").expect("a URL");
    bencher.bench(|| {
        policy
            .decide_request(&Facts::for_url(divan::black_box(&target)))
            .1
    });
}

fn pattern_files(kind: &str, count: usize) -> MemoryFileSystem {
    let policy = POLICY.replace("kind: domains", &format!("kind: {kind}"));
    let list: String = (0..count)
        .map(|n| match kind {
            "substrings" => format!("/tracker{n}/\n"),
            "globs" => format!("http://*/ads{n}/*.gif\n"),
            _ => format!("/ads?{n}/[a-z]+\\.(gif|js)$\n"),
        })
        .collect();
    MemoryFileSystem::new()
        .with_file("p.yaml", policy)
        .with_file("blocked.txt", list)
}

#[divan::bench(args = ["substrings", "globs", "regexes"], sample_count = 10)]
fn load_10_000_patterns(bencher: Bencher<'_, '_>, kind: &str) {
    let files = pattern_files(kind, 10_000);
    bencher.bench(|| compile::load(&files, "p.yaml").expect("a valid policy"));
}

/// A decision on a URL that no pattern matches.
#[divan::bench(args = ["substrings", "globs", "regexes"], consts = [10, 1_000, 10_000])]
fn decision_by_patterns<const ITEMS: usize>(bencher: Bencher<'_, '_>, kind: &str) {
    let policy = compile::load(&pattern_files(kind, ITEMS), "p.yaml")
        .expect("a valid policy")
        .policy;
    let url = "http://www.example.com/folder/products/chair.html?sort=name&order=asc";
    let target = UrlTarget::parse(url).expect("a URL");
    bencher.bench(|| {
        policy
            .decide_request(&Facts::for_url(divan::black_box(&target)))
            .1
    });
}
