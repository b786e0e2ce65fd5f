//! The canonical target: `cargo bench --bench target`.

use crawlgate::vocab::address::classify;
use crawlgate::vocab::target::UrlTarget;

fn main() {
    divan::main();
}

const PLAIN: &str = "http://www.example.com/folder/products/chair.html?sort=name&order=asc";
const ODD: &str = "http://WWW.example.com:80/folder/../products/ch%61ir.html?sort=\"name\"";

#[divan::bench(args = [PLAIN, ODD])]
fn parse(text: &str) -> UrlTarget {
    UrlTarget::parse(divan::black_box(text)).expect("a URL")
}

#[divan::bench(args = [PLAIN])]
fn parse_by_url(text: &str) -> UrlTarget {
    UrlTarget::parse_by_url(divan::black_box(text)).expect("a URL")
}

#[divan::bench(args = [PLAIN, ODD])]
fn decoded(bencher: divan::Bencher<'_, '_>, text: &str) {
    let target = UrlTarget::parse(text).expect("a URL");
    bencher.bench(|| divan::black_box(&target).decoded());
}

#[divan::bench(args = ["8.8.8.8", "::ffff:10.0.0.1", "2a00:1450::1"])]
fn classify_address(bencher: divan::Bencher<'_, '_>, text: &str) {
    let address = text.parse().expect("an address");
    bencher.bench(|| classify(divan::black_box(address)));
}
