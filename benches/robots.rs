//! What robots.txt costs: hostile files, which must stay under 50 ms, and the lookup that every request makes.
//!
//! `cargo bench --bench robots`; the fastest column is the one to compare, the machine's load is in the others.

#![allow(clippy::expect_used, reason = "a bench that cannot be set up ends")]

use crawlgate::robots::{MAX_FILE_BYTES, RobotsAccess, RobotsFile};
use divan::{Bencher, black_box};

fn main() {
    for (name, file) in [
        ("ten_megabytes", ten_megabytes()),
        ("many_stars", many_stars()),
        ("many_rules", many_rules()),
    ] {
        let bytes = RobotsFile::parse(file.as_bytes()).memory_size();
        println!(
            "{name}: {} bytes of text, {bytes} bytes of memory (cap of the text: {MAX_FILE_BYTES})",
            file.len()
        );
    }
    divan::main();
}

const HEAD: &str = "User-agent: *\n";

fn ten_megabytes() -> String {
    let lines = (0..).map(|n| format!("Disallow: /folder/{n}/*/x\n"));
    let mut text = HEAD.to_owned();
    for line in lines {
        if text.len() > 10 << 20 {
            return text;
        }
        text.push_str(&line);
    }
    text
}

fn many_stars() -> String {
    format!("{HEAD}Disallow: /{}b\n", "*a".repeat(5_000))
}

fn many_rules() -> String {
    (0..10_000).fold(HEAD.to_owned(), |text, n| {
        text + &format!("Disallow: /*a{n}*b$\n")
    })
}

fn usual() -> String {
    let rules: String = (0..40)
        .map(|n| format!("Disallow: /folder{n}/\nAllow: /folder{n}/*.html$\n"))
        .collect();
    format!(
        "User-agent: other\nDisallow: /\n\nUser-agent: *\n{rules}Crawl-delay: 2\nSitemap: http://h.example/s.xml\n"
    )
}

/// As long as a URL of the proxy may be.
fn long_path() -> String {
    format!("/{}", "a".repeat(8_000))
}

/// Reads the file and judges one long URL.
fn whole(bencher: Bencher<'_, '_>, file: &str) {
    let path = long_path();
    bencher.bench(|| {
        let parsed = RobotsFile::parse(black_box(file).as_bytes());
        assert_eq!(parsed.decide("x", &path).access, RobotsAccess::Allow);
        parsed
    });
}

#[divan::bench]
fn read_and_ask_ten_megabytes(bencher: Bencher<'_, '_>) {
    whole(bencher, &ten_megabytes());
}

#[divan::bench]
fn read_and_ask_five_thousand_stars(bencher: Bencher<'_, '_>) {
    whole(bencher, &many_stars());
}

#[divan::bench]
fn read_and_ask_ten_thousand_rules(bencher: Bencher<'_, '_>) {
    whole(bencher, &many_rules());
}

#[divan::bench(args = ["/folder7/products/chair.html?sort=name", "/other/products/chair.html", "/folder7/x"])]
fn ask_a_usual_file(bencher: Bencher<'_, '_>, path: &str) {
    let parsed = RobotsFile::parse(usual().as_bytes());
    bencher.bench(|| parsed.decide("news-bot", black_box(path)).access);
}

#[divan::bench]
fn ask_ten_thousand_rules(bencher: Bencher<'_, '_>) {
    let parsed = RobotsFile::parse(many_rules().as_bytes());
    bencher.bench(|| {
        parsed
            .decide(
                "news-bot",
                black_box("/folder/products/chair.html?sort=name"),
            )
            .access
    });
}

#[divan::bench]
fn read_a_usual_file(bencher: Bencher<'_, '_>) {
    let text = usual();
    bencher.bench(|| RobotsFile::parse(black_box(&text).as_bytes()));
}
