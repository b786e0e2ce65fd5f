//! Measures robots.txt: hostile files, which must take less than 50 ms, and the lookup of every
//! request.
//!
//! `cargo bench --bench robots`. Compare the fastest column; the others include other load of the
//! machine.

#![allow(
    clippy::expect_used,
    reason = "a benchmark that cannot be set up panics"
)]

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
            "{name}: {} bytes of text, {bytes} bytes of memory (limit of the text: {MAX_FILE_BYTES})",
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

fn usual_file() -> String {
    let rules: String = (0..40)
        .map(|n| format!("Disallow: /folder{n}/\nAllow: /folder{n}/*.html$\n"))
        .collect();
    format!(
        "User-agent: other\nDisallow: /\n\nUser-agent: *\n{rules}Crawl-delay: 2\nSitemap: http://h.example/s.xml\n"
    )
}

/// Returns a path of nearly the maximum length.
fn long_path() -> String {
    format!("/{}", "a".repeat(8_000))
}

/// Parses a file and decides one long URL.
fn parse_and_decide(bencher: Bencher<'_, '_>, file: &str) {
    let path = long_path();
    bencher.bench(|| {
        let parsed = RobotsFile::parse(black_box(file).as_bytes());
        assert_eq!(parsed.decide("x", &path).access, RobotsAccess::Allow);
        parsed
    });
}

#[divan::bench]
fn read_and_ask_ten_megabytes(bencher: Bencher<'_, '_>) {
    parse_and_decide(bencher, &ten_megabytes());
}

#[divan::bench]
fn read_and_ask_five_thousand_stars(bencher: Bencher<'_, '_>) {
    parse_and_decide(bencher, &many_stars());
}

#[divan::bench]
fn read_and_ask_ten_thousand_rules(bencher: Bencher<'_, '_>) {
    parse_and_decide(bencher, &many_rules());
}

#[divan::bench(args = ["/folder7/products/chair.html?sort=name", "/other/products/chair.html", "/folder7/x"])]
fn ask_a_usual_file(bencher: Bencher<'_, '_>, path: &str) {
    let parsed = RobotsFile::parse(usual_file().as_bytes());
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
    let text = usual_file();
    bencher.bench(|| RobotsFile::parse(black_box(&text).as_bytes()));
}
