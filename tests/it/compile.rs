//! Compilation of policies: order of rules, stages, options, files, and messages.

use crawlgate::clock::Clock;
use crawlgate::diagnostics::problem::{Problem, Severity};
use crawlgate::policy::Policy;
use crawlgate::policy::cases::{CaseFacts, CaseRefusal};
use crawlgate::policy::compile::{CompiledPolicy, load, load_builtin};
use crawlgate::policy::decide::{Cause, Verdict};
use crawlgate::policy::fact::Facts;
use crawlgate::policy::rule::{ChildOrder, EnforcementMode, PolicyStage, Rule};
use crawlgate::policy::source::MemoryFileSystem;
use crawlgate::policy::trail::Trail;
use crawlgate::urls::target::{HostTarget, UrlTarget};
use serde_json::{Value as Json, json};

const HEAD: &str = "policy: 1\nname: t\noptions: { disposition: allow }\n";

fn one_file(text: &str) -> MemoryFileSystem {
    MemoryFileSystem::new().with_file("policy.yaml", text)
}

fn unwrapped(result: Result<CompiledPolicy, Vec<Problem>>) -> CompiledPolicy {
    result.unwrap_or_else(|problems| {
        panic!(
            "{}",
            problems
                .iter()
                .map(Problem::render)
                .collect::<Vec<_>>()
                .join("\n")
        )
    })
}

/// Compiles a document with the usual header.
fn compiled(body: &str) -> CompiledPolicy {
    unwrapped(load(&one_file(&format!("{HEAD}{body}")), "policy.yaml"))
}

/// Returns the messages about a document with the usual header, one line each.
fn messages(body: &str) -> Vec<String> {
    let problems = match load(&one_file(&format!("{HEAD}{body}")), "policy.yaml") {
        Ok(compiled) => compiled.problems,
        Err(problems) => problems,
    };
    problems.iter().map(ToString::to_string).collect()
}

/// Returns the options of a URL after the request stage as JSON.
fn options(policy: &Policy, url: &str) -> Json {
    let facts = CaseFacts::for_url(url).unwrap();
    let (trail, _) = policy.decide(&facts.facts());
    policy.options_json(&trail)
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
cases:
  - { url: "http://intra.example.com/cgi-bin/x", expect: reject, rule: no-cgi, reason: rule, logged: true }
  - { url: "http://intra.example.com/a", content_type: text/html, expect: allow, options: { priority: normal } }
  - { url: "https://intra.example.com/", tunnel: true, expect: undecided }
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
fn the_policies_of_the_documentation_load_and_their_cases_pass() {
    let files = MemoryFileSystem::new()
        .with_file("p/policy.yaml", EXAMPLE)
        .with_file(
            "p/lists/blocked.txt",
            "# bad\nevil.example\n\nWorse.example. # comment\n",
        );
    let acme = unwrapped(load(&files, "p/policy.yaml"));
    assert_eq!((acme.policy.name(), acme.cases.len()), ("acme", 3));
    cases_pass(&acme);
    let bench = unwrapped(load(&one_file(BENCH), "policy.yaml"));
    assert_eq!(bench.policy.rules().len(), 6);
    assert_eq!(unwrapped(load_builtin()).policy.name(), "builtin");
}

fn cases_pass(compiled: &CompiledPolicy) {
    for case in &compiled.cases {
        let (trail, decision) = case.facts.with_facts(|facts| compiled.policy.decide(facts));
        let intent = decision
            .rejects()
            .then(|| compiled.policy.refusal(&trail, &decision).intent);
        let answer = CaseRefusal {
            intent,
            ..CaseRefusal::default()
        };
        let mismatches = case.mismatches(&compiled.policy, &trail, &decision, &answer);
        assert_eq!(mismatches, [], "{}", case.place);
    }
}

fn starter_policy() -> CompiledPolicy {
    let text = |name: &str| std::fs::read_to_string(format!("config/{name}")).unwrap();
    let files = one_file(&text("policy.yaml"))
        .with_file("lists/browser-noise.txt", text("lists/browser-noise.txt"));
    unwrapped(load(&files, "policy.yaml"))
}

/// Each entry of the list is a host in canonical form, in once, and refused whole: a browser's request through a tunnel
/// as well. Without the rule's line none is.
#[test]
fn the_starter_policy_refuses_what_browsers_call_by_themselves() {
    let list = std::fs::read_to_string("config/lists/browser-noise.txt").unwrap();
    let hosts: Vec<&str> = list
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let distinct: std::collections::BTreeSet<&str> = hosts.iter().copied().collect();
    assert!(
        hosts.len() > 40 && distinct.len() == hosts.len(),
        "{hosts:?}"
    );
    let starter = starter_policy().policy;
    for host in hosts {
        let target = UrlTarget::parse(&format!("http://{host}/")).unwrap();
        assert_eq!(target.host(), host);
        let authority = format!("{host}:443");
        let tunnel = HostTarget::parse_authority(&authority).unwrap();
        for facts in [Facts::for_url(&target), Facts::for_tunnel(&tunnel)] {
            let (_, decision) = starter.decide(&facts);
            let Cause::Rule(rule) = decision.cause else {
                panic!("{host}: {decision:?}")
            };
            assert_eq!(starter.rule_id(rule), Some("browser-noise"), "{host}");
            assert!(matches!(decision.verdict, Verdict::Reject(_)), "{host}");
        }
    }
    let text = std::fs::read_to_string("config/policy.yaml").unwrap();
    let deleted: Vec<&str> = text
        .lines()
        .filter(|line| !line.contains("browser-noise"))
        .collect();
    assert_eq!(text.lines().count() - deleted.len(), 4);
    let without = unwrapped(load(&one_file(&deleted.join("\n")), "policy.yaml"));
    let target = UrlTarget::parse("http://update.googleapis.com/").unwrap();
    let (_, decision) = without.policy.decide(&Facts::for_url(&target));
    assert_eq!(decision.verdict, Verdict::Admit);
}

#[test]
fn the_starter_policy_has_no_problems() {
    let starter = starter_policy();
    let found: Vec<String> = starter.problems.iter().map(Problem::render).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(starter.cases.len() >= 15);
    cases_pass(&starter);
    let ids: Vec<&str> = starter
        .policy
        .rules()
        .iter()
        .map(|r| r.id.as_str())
        .collect();
    fn covered(starter: &CompiledPolicy, id: &&str) -> bool {
        starter
            .cases
            .iter()
            .any(|c| c.expect.rule.as_deref() == Some(*id))
    }
    let without: Vec<_> = ids.iter().filter(|id| !covered(&starter, id)).collect();
    assert_eq!(
        without,
        [&"too-large", &"slowly", &"intranet"],
        "rules that no case names"
    );
}

#[test]
fn a_failed_case_reports_the_differences() {
    let body = "rules:\n  - { id: a, forbid: { ext: gif }, log: true }\n\
                cases:\n  - { url: 'http://h/a.gif', expect: { verdict: allow, status: 451, code: 760, rule: b }, logged: false }\n";
    let lines = messages(body);
    assert!(
        lines
            .iter()
            .any(|l| l.contains("unknown key; found `logged`")),
        "{lines:?}"
    );
    let body = body
        .replace(", logged: false }", " }")
        .replace("rule: b", "rule: a, logged: false, stage: response");
    let c = compiled(&body.replace("code: 760", "intent: gone, options: { max_depth: 3 }"));
    let case = &c.cases[0];
    let (trail, decision) = c.policy.decide(&case.facts.facts());
    let answer = CaseRefusal {
        status: Some(403),
        ..CaseRefusal::default()
    };
    let found: Vec<String> = case
        .mismatches(&c.policy, &trail, &decision, &answer)
        .iter()
        .map(|m| format!("{} {} {}", m.key, m.expected, m.actual))
        .collect();
    assert_eq!(
        found,
        [
            "expect allow reject",
            "stage response request",
            "status 451 403",
            "logged false true",
            "intent gone none",
            "options.max_depth 3 none"
        ]
    );
}

#[test]
fn rules_are_a_flat_list_with_parents_before_children() {
    let c = compiled(
        "rules:
  - id: a
    rules:
      - { forbid: { ext: gif } }
      - id: b
        when: { host: h }
        rules: [{ id: c, forbid: { ext: png } }]
  - { forbid: { ext: jpg } }
  - { id: d, about: why, forbid: { ext: ico } }
",
    );
    let shown: Vec<_> = c
        .policy
        .rules()
        .iter()
        .map(|r| (r.id.as_str(), r.parent.map(|p| p.0), r.end.0))
        .collect();
    assert_eq!(
        shown,
        [
            ("a", None, 4),
            ("rules.1.1", Some(0), 2),
            ("b", Some(0), 4),
            ("c", Some(2), 4),
            ("rules.2", None, 5),
            ("d", None, 6)
        ]
    );
    assert_eq!(c.policy.rules()[5].about.as_deref(), Some("why"));
    let advice: Vec<_> = c
        .problems
        .iter()
        .filter(|p| p.severity == Severity::Advice)
        .collect();
    assert_eq!(advice.len(), 1, "one for all rules without an id");
}

/// Formats a rule's earliest stage, stage, content clause and active stages: `request response c
/// request,response`.
fn stages_of(rule: &Rule) -> String {
    let active: Vec<&str> = PolicyStage::ALL
        .into_iter()
        .filter(|s| rule.active_stages.contains(*s))
        .map(PolicyStage::as_str)
        .collect();
    let content = if rule.content_only { " content" } else { "" };
    format!(
        "{} {}{content} [{}]",
        rule.earliest_stage.as_str(),
        rule.stage.as_str(),
        active.join(",")
    )
}

#[test]
fn stages_follow_from_facts_and_from_surrounding_groups() {
    const HOST: &str = "when: { host: h }, then: allow";
    const TYPE: &str = "when: { content_type: a/b }, then: disallow";
    for (rules, expected) in [
        (format!("[{{ id: x, {HOST} }}]"), "request request [request]"),
        (format!("[{{ id: x, {TYPE} }}]"), "request response content [response]"),
        (format!("[{{ id: x, stage: response, {HOST} }}]"), "response response [response]"),
        ("[{ id: x, forbid: { address: 10.0.0.0/8 } }]".into(), "request destination [destination]"),
        ("[{ id: x, forbid: { content_type: a/b } }]".into(), "request response content [response]"),
        // Decided early where the host decides.
        (
            "[{ id: x, forbid: { host: h, content_type: a/b } }]".into(),
            "request response content [request,destination,response]",
        ),
        ("[{ id: x, forbid: { status: 404, size: 3 } }]".into(), "request response [response]"),
        ("[{ id: x, forbid: { header.a: b, size: 3 } }]".into(), "request response [response]"),
        ("[{ id: x, forbid: { meta_robots: b } }]".into(), "request document content [response,document]"),
        // Within a group: its facts count, and its explicit stage is a floor.
        (
            "[{ when: { content_type: a/b }, rules: [{ id: x, forbid: { ext: gif } }] }]".into(),
            "request response [response]",
        ),
        (
            "[{ when: { host: h }, rules: [{ id: x, forbid: { ext: gif } }] }]".into(),
            "request request [request]",
        ),
        (
            "[{ stage: destination, rules: [{ id: x, forbid: { ext: gif } }] }]".into(),
            "destination destination [destination]",
        ),
        // A status named around it lifts the content clause.
        (
            "[{ when: { status: 404 }, rules: [{ id: x, forbid: { content_type: a/b } }] }]".into(),
            "request response [response]",
        ),
        // A group is active where a rule in it is.
        (
            "[{ id: x, rules: [{ id: y, forbid: { content_type: a/b } }] }]".into(),
            "request request [request,response]",
        ),
        (
            "[{ id: x, when: { host: h }, rules: [{ id: y, enabled: false, forbid: { content_type: a/b } }] }]"
                .into(),
            "request request [request]",
        ),
        // In `match: first` all run at the list's stage, those that name no fact as well.
        (
            format!("[{{ match: first, rules: [{{ {TYPE} }}, {{ id: x, forbid: {{ always: true }} }}] }}]"),
            "response response content [response]",
        ),
        (
            format!("[{{ match: first, rules: [{{ {TYPE} }}, {{ rules: [{{ id: x, forbid: {{ ext: a }} }}] }}] }}]"),
            "response response [response]",
        ),
        (
            "[{ match: first, rules: [{ forbid: { status: 404 } }, { id: x, forbid: { content_type: a/b } }] }]"
                .into(),
            "response response content [response]",
        ),
        (
            format!("[{{ match: first, stage: response, rules: [{{ {TYPE} }}, {{ id: x, {HOST} }}] }}]"),
            "response response [response]",
        ),
        (format!("[{{ id: x, enabled: false, {TYPE} }}]"), "request response content []"),
        (
            format!("[{{ mode: shadow, rules: [{{ id: x, {TYPE} }}] }}]"),
            "request response content [response]",
        ),
    ] {
        let c = compiled(&format!("rules: {rules}\n"));
        let rule = c.policy.rules().iter().find(|r| r.id.as_str() == "x").unwrap();
        assert_eq!(stages_of(rule), expected, "{rules}");
    }
}

#[test]
fn match_first_keeps_the_stage_of_its_children() {
    let c = compiled(
        "rules:\n  - { id: x, match: first, rules: [{ when: { content_type: a/b }, then: allow }, { then: disallow }] }\n",
    );
    let crawlgate::policy::rule::RuleBody::Group(group) = &c.policy.rules()[0].body else {
        panic!()
    };
    assert_eq!(group.order, ChildOrder::First(PolicyStage::Response));
    assert!(c.policy.is_active_at(PolicyStage::Response));
    assert!(!c.policy.is_active_at(PolicyStage::Destination));
}

#[test]
fn surrounding_rules_determine_the_mode() {
    let c = compiled(
        "rules:
  - { id: a, enabled: false, rules: [{ id: b, mode: shadow, rules: [{ id: c }] }] }
  - { id: d, mode: shadow, rules: [{ id: e }, { id: f, enabled: false }] }
  - { id: g }
",
    );
    let modes: Vec<EnforcementMode> = c.policy.rules().iter().map(|r| r.mode).collect();
    use EnforcementMode::{Disabled, Enforce, Shadow};
    assert_eq!(
        modes,
        [
            Disabled, Disabled, Disabled, Shadow, Shadow, Disabled, Enforce
        ]
    );
}

#[test]
fn then_expands_to_assignments() {
    for (then, expected) in [
        ("allow", json!(["allow", true, true, false])),
        ("disallow", json!(["disallow", true, true, false])),
        ("disallow-log", json!(["disallow-log", true, true, false])),
        ("download", json!(["allow", true, true, false])),
        ("index-and-follow", json!(["allow", true, true, false])),
        ("exclude", json!(["disallow-log", true, true, false])),
        ("ignore", json!(["disallow", false, false, false])),
        ("exclude-but-scan", json!(["allow", false, true, true])),
        ("follow-only", json!(["allow", false, true, false])),
        ("download-no-scan", json!(["allow", true, false, false])),
        ("index-only", json!(["allow", true, false, false])),
        ("index", json!(["allow", true, true, false])),
        ("follow", json!(["allow", true, true, false])),
        ("no-index", json!(["disallow", false, true, false])),
        ("no-follow", json!(["disallow", true, false, false])),
    ] {
        let text = format!(
            "policy: 1\nname: t\noptions: {{ disposition: disallow }}\nrules:\n  - {{ id: a, then: {then} }}\n"
        );
        let c = unwrapped(load(&one_file(&text), "policy.yaml"));
        let all = options(&c.policy, "http://h/");
        let found = json!([
            all["disposition"],
            all["index"],
            all["follow"],
            all["html_only"]
        ]);
        assert_eq!(found, expected, "{then}");
    }
}

#[test]
fn every_key_of_a_map_is_an_option_and_null_resets_it() {
    let c = compiled(
        "rules:
  - { id: a, set: { politeness: { delay: 5s, adaptive: { factor: 2, min: 1s } }, meta: { team: a, x: 1 } } }
  - { id: b, when: { under: /b }, set: { politeness: { concurrency: 7 }, meta: { x: null } } }
  - { id: c, when: { under: /b/c }, set: { politeness: { delay: null, adaptive: none } } }
  - { id: d, when: { under: /d }, set: { politeness: null, meta: { team: d } } }
  - { id: e, when: { under: /e }, set: { meta: null } }
  - { id: f, when: { under: /e/f }, set: { meta: { LATE: f } } }
",
    );
    let a = options(&c.policy, "http://h/");
    assert_eq!(a["politeness"]["delay"], "5s");
    assert_eq!(a["politeness"]["concurrency"], 2);
    assert_eq!(
        a["politeness"]["adaptive"],
        json!({ "factor": 2.0, "min": "1s", "max": null })
    );
    assert_eq!(a["meta"], json!({ "team": "a", "x": "1", "late": null }));
    let b = options(&c.policy, "http://h/b/c");
    assert_eq!(
        (&b["politeness"]["delay"], &b["politeness"]["concurrency"]),
        (&json!("1s"), &json!(7))
    );
    assert_eq!(
        b["politeness"]["adaptive"],
        json!({ "factor": null, "min": null, "max": null })
    );
    assert_eq!(b["meta"], json!({ "team": "a", "x": null, "late": null }));
    let f = options(&c.policy, "http://h/e/f");
    assert_eq!(f["meta"], json!({ "team": null, "x": null, "late": "f" }));
    let d = options(&c.policy, "http://h/d");
    assert_eq!(
        (&d["politeness"]["delay"], &d["meta"]["team"]),
        (&json!("1s"), &json!("d"))
    );
}

#[test]
fn every_option_takes_the_values_of_the_documentation() {
    let c = compiled(
        "rules:
  - id: all
    set:
      disposition: disallow-log
      reject: keep
      reject_status: 304
      record: host
      html_only: true
      max_depth: none
      max_body: 10MiB
      tunnel_undecided: allow
      tls: intercept
      index: false
      follow: false
      enforce_follow: header
      enforce_index: header
      priority: -2
      source: news
      meta: { team: x }
      robots: { obey: false, agent: bot, on_unreachable: deny, crawl_delay_cap: 10m, usage: [] }
      politeness:
        { key: address, delay: 1.5s, rate: 30/m, burst: 3, concurrency: 4, max_hold: 20s, overflow: refuse,
          jitter: 1.0..2.5, adaptive: { factor: 1.5, min: 1s, max: 30s }, order: strict,
          embeds: { delay: 100ms, concurrency: 6 }, per_address: { delay: 1s, concurrency: 2 },
          bytes_per_second: 1MiB, request_rate: ignore,
          schedule: [{ days: [sat, sun], hours: \"22:00-06:00\", tz: UTC, delay: 500ms }] }
      recrawl: { min_interval: 7d, after_error: 1h }
      unmodified: tag
      duplicate: tag
      noncanonical: pass
      noindex: tag
      max_buffer: 2MiB
      timeouts: { connect: 1s, connect_total: 2s, response_head: 3s, body_idle: 4s, request: 5m }
      verify: skip
      http2: client
      strip_params: [sid, utm_source]
      replace: [{ regex: a, with: b }]
      traps: none
      upstream: none
      upgrade: deny
      request_headers: { set: { X-Team: a }, remove: [Cookie] }
",
    );
    let all = options(&c.policy, "http://h/");
    for (path, expected) in [
        ("/reject_status", json!(304)),
        ("/max_body", json!("10MiB")),
        ("/priority", json!("highest")),
        ("/politeness/rate", json!("30/m")),
        ("/politeness/delay", json!("1500ms")),
        ("/politeness/jitter", json!("1.0..2.5")),
        ("/politeness/schedule/0/hours", json!("22:00-06:00")),
        ("/robots/crawl_delay_cap", json!("10m")),
        ("/recrawl/min_interval", json!("7d")),
        ("/strip_params", json!(["sid", "utm_source"])),
        ("/replace/0/with", json!("b")),
        (
            "/request_headers",
            json!({ "set": { "x-team": "a" }, "remove": ["Cookie"] }),
        ),
    ] {
        assert_eq!(all.pointer(path), Some(&expected), "{path}");
    }
    let warnings = c
        .problems
        .iter()
        .filter(|p| p.severity == Severity::Warning);
    let reported: Vec<String> = warnings.map(ToString::to_string).collect();
    assert_eq!(
        reported.len(),
        1,
        "one for `verify: skip`: {}",
        reported.join("\n")
    );
}

#[test]
fn all_mistakes_are_reported_in_one_run() {
    let lines = messages(
        "lists: { l: { kind: domains, items: ['a b'] } }
rules:
  - { id: a, forbid: { path: { regex: '(' }, ext: [x/y] } }
  - { id: a, when: { hots: h }, then: alow, log: true }
  - { id: c, forbid: { in: m }, stag: request }
cases:
  - { url: nonsense, expect: maybe, rule: z }
",
    );
    for expected in [
        "not a host",
        "unclosed group",
        "not a file name extension",
        "duplicate id",
        "did you mean `host`",
        "did you mean `allow`",
        "found `log`",
        "no list with this name",
        "did you mean `stage`",
        "not an absolute URL",
        "found `maybe`",
    ] {
        assert_eq!(
            lines.iter().filter(|l| l.contains(expected)).count(),
            1,
            "{expected}: {}",
            lines.join("\n")
        );
    }
    assert_eq!(lines.len(), 11, "{}", lines.join("\n"));
}

#[test]
fn a_directory_is_one_document() {
    let files = MemoryFileSystem::new()
        .with_file("p/10-head.yaml", HEAD)
        .with_file("p/20-rules.yaml", "rules:\n  - { id: a, forbid: { in: l } }\n  - { forbid: { ext: gif } }\n")
        .with_file(
            "p/30-more.yaml",
            "lists: { l: { kind: domains, file: lists/l.txt } }\nrules:\n  - { forbid: { ext: png } }\n",
        )
        .with_file("p/.hidden.yaml", "nonsense")
        .with_file("p/notes.txt", "nonsense")
        .with_file("p/late.yml", "nonsense")
        .with_file("p/lists/l.txt", "foo.com\r\n");
    let c = unwrapped(load(&files, "p/"));
    let ids: Vec<&str> = c.policy.rules().iter().map(|r| r.id.as_str()).collect();
    assert_eq!(ids, ["a", "rules.2", "rules.3"]);
    assert!(
        c.problems
            .iter()
            .any(|p| p.found.as_deref() == Some("late.yml"))
    );
    let facts = CaseFacts::for_url("http://a.foo.com/").unwrap();
    assert!(c.policy.decide(&facts.facts()).1.rejects());

    let twice = files.clone().with_file(
        "p/40.yaml",
        "name: other\nrules:\n  - { id: a, forbid: { ext: ico } }\n",
    );
    let lines: Vec<String> = load(&twice, "p")
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        lines
            .iter()
            .any(|l| l
                .starts_with("p/40.yaml:1:1: error: only one file of a policy may have this key")),
        "{lines:?}"
    );
    assert!(
        lines
            .iter()
            .any(|l| l.contains("p/40.yaml:3:11") && l.contains("p/20-rules.yaml:2:11")),
        "{lines:?}"
    );

    let headless = MemoryFileSystem::new().with_file("p/a.yaml", "rules: []\n");
    let lines: Vec<String> = load(&headless, "p")
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        lines[0].contains("no file of the policy contains `policy: 1`"),
        "{lines:?}"
    );
    assert!(lines[0].contains("a.yaml"), "{lines:?}");
    let missing: Vec<String> = load(&headless, "q")
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        missing,
        ["q: error: the policy cannot be read: no such file; found `q`"]
    );
}

#[test]
fn the_revision_covers_files_and_lists() {
    let text = format!(
        "{HEAD}lists: {{ l: {{ kind: domains, file: l.txt }} }}\nrules:\n  - {{ id: a, forbid: {{ in: l }} }}\n"
    );
    fn revision(path: &str, text: &str, list: &str) -> String {
        let directory = path
            .rsplit_once('/')
            .map_or(String::new(), |(d, _)| format!("{d}/"));
        let files = MemoryFileSystem::new()
            .with_file(path, text)
            .with_file(&format!("{directory}l.txt"), list);
        unwrapped(load(&files, path)).policy.revision().to_owned()
    }
    let first = revision("policy.yaml", &text, "a.com\n");
    assert!(first.len() == 8, "{first}");
    assert!(first.bytes().all(|b| b.is_ascii_hexdigit()), "{first}");
    assert_eq!(
        first,
        revision("etc/crawl/policy.yaml", &text, "a.com\n"),
        "wherever it lies"
    );
    assert_ne!(first, revision("policy.yaml", &text, "b.com\n"));
    assert_ne!(
        first,
        revision("policy.yaml", &format!("{text}# x\n"), "a.com\n")
    );
    assert_ne!(first, revision("other.yaml", &text, "a.com\n"));
}

#[test]
fn unusual_list_files_are_read_and_invalid_ones_are_reported() {
    let body =
        "lists: { l: { kind: domains, file: l.txt } }\nrules:\n  - { id: a, forbid: { in: l } }\n";
    for (bytes, expected) in [
        (
            b"\x1f\x8b\x08\x00".to_vec(),
            "the file cannot be decompressed: ",
        ),
        (b"a.com\nb\xff.com\n".to_vec(), "line 2 is not UTF-8"),
        (
            b"a.com\n http://x/ \n".to_vec(),
            "l.txt:2:2: error: a URL, not a host",
        ),
    ] {
        let files = one_file(&format!("{HEAD}{body}")).with_file("l.txt", bytes);
        let lines: Vec<String> = load(&files, "policy.yaml")
            .unwrap_err()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert!(lines.len() == 1 && lines[0].contains(expected), "{lines:?}");
    }
    let files = one_file(&format!("{HEAD}{body}"))
        .with_file("l.txt", b"\xef\xbb\xbf# x\r\n\r\n a.com # y\r\n".to_vec());
    let c = unwrapped(load(&files, "policy.yaml"));
    assert!(
        c.policy
            .decide(&CaseFacts::for_url("http://a.com/").unwrap().facts())
            .1
            .rejects()
    );
    let many: String = (0..100).map(|n| format!("http://{n}/\n")).collect();
    let files = one_file(&format!("{HEAD}{body}")).with_file("l.txt", many);
    let problems = load(&files, "policy.yaml").unwrap_err();
    assert_eq!(problems.len(), 21, "twenty, and how many more");
    for path in [
        "/etc/passwd",
        "../l.txt",
        "a/../../l.txt",
        "",
        "./l.txt",
        "a//l.txt",
        "a\\l.txt",
        "C:/l.txt",
    ] {
        let lines = messages(&body.replace("l.txt", &format!("{path:?}")));
        assert!(
            lines[0].contains("must be inside the policy's directory"),
            "{path}: {lines:?}"
        );
    }
}

#[test]
fn options_of_the_connection_depend_on_the_host_alone() {
    let set = "set: { tls: tunnel }";
    for (rules, refused) in [
        (format!("[{{ id: x, {set} }}]"), false),
        (
            format!(
                "[{{ id: x, when: {{ domain: h, port: 443, scheme: https, crawler: c }}, {set} }}]"
            ),
            false,
        ),
        (format!("[{{ id: x, when: {{ in: l }}, {set} }}]"), false),
        (
            format!("[{{ id: x, when: {{ method: GET }}, {set} }}]"),
            true,
        ),
        (
            format!("[{{ id: x, when: {{ address: 10.0.0.0/8 }}, {set} }}]"),
            true,
        ),
        (
            format!(
                "[{{ when: {{ under: /a }}, rules: [{{ id: x, when: {{ host: h }}, {set} }}] }}]"
            ),
            true,
        ),
        (
            format!(
                "[{{ match: first, rules: [{{ forbid: {{ host: h }} }}, {{ id: x, {set} }}] }}]"
            ),
            false,
        ),
        (
            format!(
                "[{{ match: first, rules: [{{ forbid: {{ ext: a }} }}, {{ id: x, {set} }}] }}]"
            ),
            true,
        ),
        (
            format!(
                "[{{ match: first, rules: [{{ forbid: {{ ext: a }} }}, {{ rules: [{{ id: x, {set} }}] }}] }}]"
            ),
            true,
        ),
        (
            format!(
                "[{{ match: first, rules: [{{ id: x, when: {{ host: h }}, {set} }}, {{ forbid: {{ ext: a }} }}] }}]"
            ),
            false,
        ),
    ] {
        let lines = messages(&format!(
            "lists: {{ l: {{ kind: hosts, items: [h] }} }}\nrules: {rules}\n"
        ));
        let found = lines
            .iter()
            .any(|l| l.contains("error: rule x: `tls` takes effect when only"));
        assert_eq!(found, refused, "{rules}: {lines:?}");
    }
}

#[test]
fn nesting_is_deep_but_bounded() {
    fn nots(n: usize) -> String {
        format!("{}{{ host: h }}{}", "{ not: ".repeat(n), " }".repeat(n))
    }
    let rules =
        |n: usize, inner: &str| format!("{}{inner}{}", "{ rules: [".repeat(n), "] }".repeat(n));
    let c = compiled(&format!("rules: [{{ id: x, forbid: {} }}]\n", nots(32)));
    fn rejects(c: &CompiledPolicy, url: &str) -> bool {
        c.policy
            .decide(&CaseFacts::for_url(url).unwrap().facts())
            .1
            .rejects()
    }
    assert!(rejects(&c, "http://h/") && !rejects(&c, "http://i/"));
    let c = compiled(&format!(
        "rules: [{}]\n",
        rules(20, "{ forbid: { ext: gif } }")
    ));
    assert_eq!(
        c.policy.rules().last().map(|r| r.id.as_str()),
        Some(&*format!("rules{}", ".1".repeat(21)))
    );
    for (text, expected) in [
        (nots(33), "conditions are nested more than 32 levels deep"),
        (nots(70), "nested more than 64 levels deep"),
    ] {
        let lines = messages(&format!("rules: [{{ id: x, forbid: {text} }}]\n"));
        assert!(lines.len() == 1 && lines[0].contains(expected), "{lines:?}");
    }
    let lines = messages(&format!(
        "rules: [{}]\n",
        rules(26, "{ forbid: { ext: gif } }")
    ));
    assert!(
        lines
            .iter()
            .any(|l| l.contains("rules are nested more than 24 levels deep")),
        "{lines:?}"
    );
}

#[test]
fn invalid_rules_can_be_disabled_and_are_counted() {
    let body = "on_invalid_rule: disable
rules:
  - { id: a, forbid: { path: { regex: '(' } } }
  - { id: b, when: { address: 10.0.0.0/99 }, rules: [{ id: c, forbid: { ext: gif } }] }
  - { id: d, forbid: { depth: '[5:3]' } }
  - { id: e, forbid: { ext: png } }
";
    let c = compiled(body);
    assert_eq!(c.policy.disabled_rules(), 3);
    let live: Vec<&str> = c
        .policy
        .rules()
        .iter()
        .filter(|r| r.mode == EnforcementMode::Enforce)
        .map(|r| r.id.as_str())
        .collect();
    assert_eq!(live, ["e"]);
    assert_eq!(
        c.problems
            .iter()
            .filter(|p| p.message.contains("are disabled"))
            .count(),
        3
    );
    let lines = messages(&format!("{body}  - {{ id: f, forbid: {{ hots: h }} }}\n"));
    assert!(
        lines
            .iter()
            .any(|l| l.contains("error: rule f: unknown field")),
        "any other error still refuses"
    );
}

/// Thousands of rules and big lists load fast enough for a reload.
#[test]
fn big_policies_load() {
    let mut text = format!(
        "{HEAD}lists:\n  a: {{ kind: domains, file: a.txt }}\n  b: {{ kind: url_prefixes, file: b.txt }}\nrules:\n"
    );
    text.push_str("  - { id: in-a, forbid: { in: a } }\n  - { id: in-b, forbid: { in: b } }\n");
    for n in 0..30_000 {
        text.push_str(&format!(
            "  - {{ id: r{n}, forbid: {{ domain: d{n}.example.com, path: /p{n} }}, log: true }}\n"
        ));
    }
    let domains: String = (0..100_000)
        .map(|n| format!("host{n}.example.org\n"))
        .collect();
    let prefixes: String = (0..100_000)
        .map(|n| format!("http://host{n}.example.net/x/\n"))
        .collect();
    let files = one_file(&text)
        .with_file("a.txt", domains)
        .with_file("b.txt", prefixes);
    let clock = Clock::system();
    let start = clock.now();
    let c = unwrapped(load(&files, "policy.yaml"));
    let took = clock.now() - start;
    println!("30,002 rules and 2 lists of 100,000 items: {took:?}");
    assert_eq!(c.policy.rules().len(), 30_002);
    for (url, rule) in [
        ("http://x.host99999.example.org/", "in-a"),
        ("http://host77777.example.net/x/y", "in-b"),
        ("http://d29999.example.com/p29999", "r29999"),
    ] {
        let facts = CaseFacts::for_url(url).unwrap();
        let (trail, decision) = c.policy.decide(&facts.facts());
        let trail: &Trail = &trail;
        assert!(decision.rejects(), "{url}");
        assert_eq!(
            trail
                .matched_rules()
                .first()
                .and_then(|r| c.policy.rule_id(*r)),
            Some(rule),
            "{url}"
        );
    }
    // Generous: this is a debug build on a shared machine.
    assert!(took.as_secs() < 60, "{took:?}");
}
