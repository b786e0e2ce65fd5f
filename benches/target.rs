//! Measures the canonical target of a request: the scan, the full parser, the decoded and
//! normalized forms, and the address table.
//!
//! `cargo bench --bench target`. Compare the fastest column; the others include other load of the
//! machine.

#![allow(
    clippy::expect_used,
    reason = "a benchmark that cannot be set up panics"
)]

use std::net::IpAddr;

use crawlgate::urls::address::{AddressClass, classify};
use crawlgate::urls::target::{HostTarget, UrlTarget};
use divan::counter::BytesCount;
use divan::{Bencher, black_box};

fn main() {
    divan::main();
}

/// A canonical URL of 75 bytes: the common case.
const PLAIN: &str = "http://www.example.com/folder/products/index.html?sort=name&order=asc&p=123";
/// A canonical URL with a port.
const PORT: &str = "http://www.example.com:8080/folder/products/index.html?sort=name&order=asc";
/// A URL with nearly all deviations: case, a default port, dot segments, an unnecessary escape, a
/// byte that must be escaped.
const ODD: &str = "http://WWW.example.com:80/folder/../products/ch%61ir.html?sort=\"name\"";
/// A URL with a capital letter in the host, which the scan leaves to the full parser.
const CAPITAL: &str = "http://www.Example.com/folder/products/index.html?sort=name&order=asc&p=123";
/// A URL whose host is not ASCII.
const IDNA: &str = "http://www.bücher.example/folder/products/index.html?sort=name&order=asc&p";

#[divan::bench(args = [PLAIN, PORT])]
fn parse_by_scan(bencher: Bencher<'_, '_>, url: &str) {
    assert_eq!(UrlTarget::parse(url).expect("a valid URL").as_str(), url);
    bencher
        .counter(BytesCount::of_str(url))
        .bench(|| UrlTarget::parse(black_box(url)));
}

#[divan::bench(args = [CAPITAL, IDNA, ODD])]
fn parse_with_a_change(bencher: Bencher<'_, '_>, url: &str) {
    assert_ne!(UrlTarget::parse(url).expect("a valid URL").as_str(), url);
    bencher
        .counter(BytesCount::of_str(url))
        .bench(|| UrlTarget::parse(black_box(url)));
}

#[divan::bench]
fn parse_by_url(bencher: Bencher<'_, '_>) {
    bencher
        .counter(BytesCount::of_str(PLAIN))
        .bench(|| UrlTarget::parse_with_url(black_box(PLAIN)));
}

#[divan::bench]
fn parse_authority() -> Option<HostTarget> {
    HostTarget::parse_authority(black_box("www.example.com:443")).ok()
}

/// The allocation alone: a lower bound of the time of a parse.
#[divan::bench]
fn floor_copy() -> std::sync::Arc<str> {
    black_box(PLAIN).into()
}

#[divan::bench(args = ["http://h.example/folder/index.html?a", "http://h.example/a%20b/c", "http://h.example/%63gi-bin/x"])]
fn readings(bencher: Bencher<'_, '_>, url: &str) {
    let target = UrlTarget::parse(url).expect("a valid URL");
    bencher.bench(|| black_box(&target).readings().len());
}

#[divan::bench(args = ["http://h.example/folder/index.html?a", "http://h.example/%7euser/%c3%a9"])]
fn normalized(bencher: Bencher<'_, '_>, url: &str) {
    let target = UrlTarget::parse(url).expect("a valid URL");
    bencher.bench(|| black_box(&target).normalized().len());
}

/// The parts of a URL that a decision uses.
#[divan::bench]
fn views(bencher: Bencher<'_, '_>) {
    let target = UrlTarget::parse(PLAIN).expect("a valid URL");
    bencher.bench(|| {
        let target = black_box(&target);
        let parts = [
            target.host(),
            target.authority(),
            target.path(),
            target.query(),
            target.path_and_query(),
        ];
        (parts, target.ip(), target.port())
    });
}

#[divan::bench(args = ["93.184.216.34", "127.0.0.1", "2606:4700::1111", "64:ff9b::10.0.0.1"])]
fn classify_address(bencher: Bencher<'_, '_>, text: &str) {
    let address: IpAddr = text.parse().expect("an address");
    bencher.bench(|| -> AddressClass { classify(black_box(address)) });
}
