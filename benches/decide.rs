//! Measures decisions by policies of 10 to 100,000 rules: `cargo bench --bench decide`.
//!
//! Most requests match no rule. The time then hardly grows with the number of rules, since the index
//! rules them out. The worst URL is made of texts that many rules look for.

#![allow(clippy::expect_used, reason = "a benchmark may panic")]

use crawlgate::policy::Policy;
use crawlgate::policy::compile;
use crawlgate::policy::fact::Facts;
use crawlgate::policy::source::MemoryFileSystem;
use crawlgate::urls::target::UrlTarget;

fn main() {
    divan::main();
}

const URL: &str = "http://www.example.com/folder/products/chair.html?sort=name&order=asc";

fn policy(rules: &str, lists: &str) -> Policy {
    let text = format!(
        "policy: 1\nname: bench\noptions: {{ disposition: allow }}\nlists:\n{lists}\nrules:\n{rules}"
    );
    compile::load(&MemoryFileSystem::new().with_file("p.yaml", text), "p.yaml")
        .expect("a valid policy")
        .policy
}

/// A rule as in public lists: of 20 rules 12 are on domains, 5 on prefixes of URLs, 2 on texts in
/// URLs, and one has an expression.
fn rule(n: usize) -> String {
    let condition = match n % 20 {
        0..12 => format!("domain: site{n}.example.org"),
        12..17 => format!("url_prefix: \"http://www{n}.example.net/shop{n}/\""),
        17..19 => format!("url: {{ contains: \"/tracker{n}/\" }}"),
        _ => format!("url: {{ regex: '/ads?{n}/[a-z]+\\.(gif|js)$' }}"),
    };
    format!("  - {{ id: r{n}, forbid: {{ {condition} }} }}\n")
}

fn mixed_policy(count: usize) -> Policy {
    policy(
        &(0..count).map(rule).collect::<String>(),
        "  none: { kind: hosts, items: [a.b] }",
    )
}

fn bench_url(bencher: divan::Bencher<'_, '_>, policy: &Policy, url: &str) {
    let target = UrlTarget::parse(url).expect("a URL");
    bencher.bench(|| {
        policy
            .decide_request(&Facts::for_url(divan::black_box(&target)))
            .1
    });
}

/// No rule matches.
#[divan::bench(args = [10, 1_000, 10_000, 100_000], max_time = 3)]
fn rules(bencher: divan::Bencher<'_, '_>, count: usize) {
    bench_url(bencher, &mixed_policy(count), URL);
}

/// Every rule is evaluated, as for `crawlgate explain`.
#[divan::bench(args = [10, 1_000, 10_000, 100_000], max_time = 3)]
fn rules_without_the_index(bencher: divan::Bencher<'_, '_>, count: usize) {
    let policy = mixed_policy(count);
    let target = UrlTarget::parse(URL).expect("a URL");
    bencher.bench(|| {
        policy
            .decide_every_rule(&Facts::for_url(divan::black_box(&target)))
            .1
    });
}

/// One rule matches.
#[divan::bench(args = [10_000, 100_000], max_time = 3)]
fn rules_of_which_one_matches(bencher: divan::Bencher<'_, '_>, count: usize) {
    let url = "http://www.example.com/tracker1017/chair.html";
    bench_url(bencher, &mixed_policy(count), url);
}

/// A URL of nearly 8 KiB that is made of the texts that rules look for.
#[divan::bench(args = [10_000, 100_000], max_time = 3)]
fn rules_and_the_worst_url(bencher: divan::Bencher<'_, '_>, count: usize) {
    let texts = (0..count).filter(|n| n % 20 == 17);
    let path: String = texts.take(600).map(|n| format!("tracker{n}/")).collect();
    bench_url(
        bencher,
        &mixed_policy(count),
        &format!("http://www.example.com/{path}"),
    );
}

/// Hosts in one list instead of one rule each: one lookup per label of the requested host.
#[divan::bench(args = [10, 1_000, 100_000], max_time = 3)]
fn domains_in_a_list(bencher: divan::Bencher<'_, '_>, count: usize) {
    let items: String = (0..count)
        .map(|n| format!("site{n}.example.org,"))
        .collect();
    let lists = format!("  blocked: {{ kind: domains, items: [{items}] }}");
    let policy = policy("  - { id: blocked, forbid: { in: blocked } }\n", &lists);
    let target = UrlTarget::parse(URL).expect("a URL");
    bencher.bench(|| {
        policy
            .decide_request(&Facts::for_url(divan::black_box(&target)))
            .1
    });
}

/// Values in one rule instead of one rule each.
#[divan::bench(
    args = ["domain", "prefix", "under", "contains", "suffix", "regex"],
    consts = [10, 1_000, 10_000],
    max_time = 3,
)]
fn values_in_a_rule<const COUNT: usize>(bencher: divan::Bencher<'_, '_>, kind: &str) {
    let values: String = (0..COUNT)
        .map(|n| match kind {
            "domain" => format!("site{n}.example.org,"),
            "prefix" => format!("'http://www{n}.example.net/',"),
            "under" => format!("/private{n},"),
            "regex" => format!("'^https?://[a-z]+/item{n}/(a|b)\\.html',"),
            _ => format!("'key{n}=',"),
        })
        .collect();
    let condition = match kind {
        "domain" | "under" => format!("{kind}: [{values}]"),
        _ => format!("url: {{ {kind}: [{values}] }}"),
    };
    let policy = policy(
        &format!("  - {{ id: r, forbid: {{ {condition} }} }}\n"),
        "  none: { kind: hosts, items: [a.b] }",
    );
    let target = UrlTarget::parse(URL).expect("a URL");
    bencher.bench(|| {
        policy
            .decide_request(&Facts::for_url(divan::black_box(&target)))
            .1
    });
}
