//! Measures decisions with 10, 1,000 and 100,000 rules, none of which matches:
//! `cargo bench --bench decide`.
//!
//! Rules are evaluated one after the other, so the time grows with their number. The time of a
//! lookup in a list does not.

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

fn rule(n: usize) -> String {
    match n % 4 {
        0 => format!("  - {{ id: r{n}, forbid: {{ domain: site{n}.example.org }} }}\n"),
        1 => format!("  - {{ id: r{n}, forbid: {{ under: /private{n} }} }}\n"),
        2 => {
            format!(
                "  - {{ id: r{n}, forbid: {{ url_prefix: \"http://www{n}.example.net/\" }} }}\n"
            )
        }
        _ => format!("  - {{ id: r{n}, when: {{ in_query: \"key{n}=\" }}, then: exclude }}\n"),
    }
}

fn mixed_policy(count: usize) -> Policy {
    policy(
        &(0..count).map(rule).collect::<String>(),
        "  none: { kind: hosts, items: [a.b] }",
    )
}

#[divan::bench(args = [10, 1_000, 100_000], max_time = 3)]
fn rules(bencher: divan::Bencher<'_, '_>, count: usize) {
    let policy = mixed_policy(count);
    let target = UrlTarget::parse(URL).expect("a URL");
    bencher.bench(|| {
        policy
            .decide_request(&Facts::for_url(divan::black_box(&target)))
            .1
    });
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
