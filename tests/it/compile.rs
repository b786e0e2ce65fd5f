//! From policy text to a compiled policy: layout, stages, options, lists, and the shape of problems.

use crawlgate::policy::compile::{Compiled, builtin, load};
use crawlgate::policy::source::MemoryFiles;

/// Loads one document.
fn compiled(text: &str) -> Compiled {
    load(&MemoryFiles::new().with("policy.yaml", text), "policy.yaml").unwrap_or_else(|problems| {
        let lines: Vec<String> = problems.iter().map(|p| p.rendered()).collect();
        panic!("{}", lines.join("\n"))
    })
}

const EXAMPLE: &str = r#"
policy: 1                      # language version; required
name: acme                     # required; [a-z0-9][a-z0-9-]*; shown in headers, logs, metrics
on_invalid_rule: refuse
options:                       # global options, assigned first (section 5)
  disposition: allow           # must be written: there is no implicit default.
lists:                         # named sets for big data; files are read relative to the policy
  blocked: { kind: domains, file: lists/blocked.txt }
  partners: { kind: domains, items: [example.com, example.org] }
rules:
  - id: intranet
    when: { domain: intra.example.com }
    then: allow
    set: { politeness: { delay: 2s } }
    rules:
      - { id: no-cgi, forbid: { under: /cgi-bin }, log: true }
      - { id: old, when: { under: /old }, then: disallow-log }
  - { id: keep-one, when: { url: "http://intra.example.com/old/keep.html" }, then: allow, stop: true }
"#;

const BENCH: &str = r#"
policy: 1
name: bench
options:
  disposition: allow
  robots: { obey: true, agent: bench }
  politeness: { delay: 0s, rate: 10000000/s, burst: 1000000, concurrency: 100000, jitter: none }
rules:
  - { id: no-cgi, forbid: { under: /cgi-bin }, log: true }
  - { id: no-sessions, forbid: { in_query: sid= } }
  - { id: no-archives, forbid: { ext: [zip, exe, iso] } }
  - id: partners
    when: { domain: [partner.example.com, partner.example.org] }
    set: { politeness: { delay: 2s } }
    rules:
      - { id: partner-private, forbid: { path: { regex: "^/(private|internal)/" } } }
  - { id: no-video, when: { content_type: "video/*" }, then: exclude }
"#;

#[test]
fn the_examples_of_the_language_load() {
    let files = MemoryFiles::new()
        .with("p/policy.yaml", EXAMPLE)
        .with("p/lists/blocked.txt", "# bad\nevil.example\n\nWorse.example. # comment\n");
    let acme = load(&files, "p/policy.yaml").unwrap();
    assert_eq!(acme.policy.name(), "acme");
    assert_eq!(acme.policy.revision().len(), 8);
    for problem in &acme.problems {
        println!("{}", problem.rendered());
    }
    let bench = compiled(BENCH);
    for problem in &bench.problems {
        println!("{}", problem.rendered());
    }
    assert_eq!(builtin().unwrap().policy.name(), "builtin");
}
