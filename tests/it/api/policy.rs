//! `GET /api/v1/policy` and `/api/v1/policy/diff`.

use std::time::Duration;

use crawlgate::admin::health::Readiness;
use serde_json::{Value as Json, json};

use super::ApiBench;

const BEFORE: &str = "policy: 1
name: acme
options: { disposition: allow, max_depth: 3 }
rules:
  - { id: a, forbid: { under: /a } }
  - { id: b, forbid: { under: /b } }
  - { id: c, when: { host: c.example }, then: disallow }
";
const AFTER: &str = "policy: 1
name: acme
options: { disposition: allow, max_depth: 4 }
rules:
  - id: outer
    about: only here
    unless: { host: www.example }
    rules:
      - { id: inner, forbid: { content_type: video/mp4 } }
  - { id: b, forbid: { under: /b } }
  - { id: a, forbid: { under: /A/ }, log: true }
  - { id: off, enabled: false, forbid: { ext: zip } }
  - { id: tried, mode: shadow, when: { under: /t }, then: disallow, stop: true }
spaces:
  - { name: news, crawlers: [news], options: { max_depth: 1 }, rules: [{ id: short, forbid: { under: /long } }] }
";

/// The parts of a rule that identify it.
fn part(rule: &Json, keys: &[&str]) -> Json {
    keys.iter().map(|key| rule[*key].clone()).collect()
}

#[tokio::test]
async fn each_rule_has_a_sentence_and_a_location() {
    let bench = ApiBench::new(AFTER).await;
    let (status, output) = bench.ask("GET /api/v1/policy", b"").await;
    assert_eq!(status, 200, "{output}");
    assert_eq!(
        (&output["name"], &output["disposition"]),
        (&"acme".into(), &"allow".into())
    );
    assert_eq!(output["loaded_at"], "2026-01-01T00:00:00.000Z");
    assert_eq!(
        (&output["files"], &output["previous"]),
        (&json!(["p.yaml"]), &Json::Null)
    );
    assert_eq!(
        (&output["disabled"], &output["last_reload"]),
        (&json!(["off"]), &Json::Null)
    );
    let keys = [
        "id", "kind", "key", "depth", "parent", "stage", "mode", "file", "line",
    ];
    let rules: Vec<Json> = output["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| part(rule, &keys))
        .collect();
    assert_eq!(
        json!(rules),
        json!([
            [
                "outer", "group", "unless", 0, null, "request", "enforce", "p.yaml", 5
            ],
            [
                "inner", "filter", "forbid", 1, "outer", "response", "enforce", "p.yaml", 9
            ],
            [
                "b", "filter", "forbid", 0, null, "request", "enforce", "p.yaml", 10
            ],
            [
                "a", "filter", "forbid", 0, null, "request", "enforce", "p.yaml", 11
            ],
            [
                "off", "filter", "forbid", 0, null, "request", "disabled", "p.yaml", 12
            ],
            [
                "tried", "group", "when", 0, null, "request", "shadow", "p.yaml", 13
            ],
            [
                "short", "filter", "forbid", 0, null, "request", "enforce", "p.yaml", 15
            ]
        ])
    );
    let words = ["about", "condition", "effect", "matched", "last_match"];
    assert_eq!(
        part(&output["rules"][0], &words),
        json!(["only here", "host exact www.example", null, 0, null])
    );
    assert_eq!(
        part(&output["rules"][3], &words),
        json!([null, "path under /A", "log", 0, null])
    );
    assert_eq!(output["rules"][5]["effect"], "disposition disallow, stop");
    assert_eq!(
        output["spaces"],
        json!([{ "name": "news", "crawlers": ["news"], "rules": 1, "options": { "max_depth": 1 } }])
    );
}

#[tokio::test]
async fn the_difference_is_by_rule_by_option_and_by_line() {
    let bench = ApiBench::with(AFTER, Some(BEFORE), Readiness::new(Vec::new)).await;
    let (_, policy) = bench.ask("GET /api/v1/policy", b"").await;
    let (status, output) = bench.ask("GET /api/v1/policy/diff", b"").await;
    assert_eq!(status, 200, "{output}");
    assert_eq!(
        part(&output["after"], &["name", "revision", "loaded_at"]),
        part(&policy, &["name", "revision", "loaded_at"])
    );
    assert_eq!(
        part(&output["before"], &["name", "revision"]),
        part(&policy["previous"], &["name", "revision"])
    );
    let rules = output["rules"].as_array().unwrap();
    let of = |id: &str| rules.iter().find(|rule| rule["id"] == id).unwrap();
    let keys = ["change", "before", "after"];
    assert_eq!(
        part(of("outer"), &keys),
        json!(["added", null, "unless host exact www.example"])
    );
    assert_eq!(
        part(of("c"), &keys),
        json!([
            "removed",
            "when host exact c.example: disposition disallow",
            null
        ])
    );
    let a = json!([
        "changed",
        "forbid path under /a; does: none",
        "forbid path under /A; does: log"
    ]);
    assert_eq!(part(of("a"), &keys), a);
    assert!(
        rules.iter().all(|rule| rule["id"] != "b"),
        "it stands where it stood: {rules:#?}"
    );
    let options = output["options"].as_array().unwrap();
    assert!(options.contains(
        &json!({ "option": "max_depth", "change": "changed", "before": "3", "after": "4" })
    ));
    let lines = output["files"][0]["lines"].as_array().unwrap();
    assert_eq!(
        lines[0],
        json!({ "kind": "same", "before": 1, "after": 1, "text": "policy: 1" })
    );
    for (kind, before, after, text) in [
        (
            "removed",
            json!(3),
            Json::Null,
            "options: { disposition: allow, max_depth: 3 }",
        ),
        (
            "added",
            Json::Null,
            json!(3),
            "options: { disposition: allow, max_depth: 4 }",
        ),
        (
            "removed",
            json!(7),
            Json::Null,
            "  - { id: c, when: { host: c.example }, then: disallow }",
        ),
    ] {
        let line = json!({ "kind": kind, "before": before, "after": after, "text": text });
        assert!(lines.contains(&line), "{line}\n{lines:#?}");
    }
    assert_eq!(
        (&output["files"][0]["path"], &output["cut"]),
        (&"p.yaml".into(), &false.into())
    );
}

#[tokio::test]
async fn without_a_policy_before_there_is_no_difference() {
    let (status, output) = ApiBench::new(AFTER)
        .await
        .ask("GET /api/v1/policy/diff", b"")
        .await;
    assert_eq!((status, &output["status"]), (404, &404.into()));
}

#[tokio::test]
async fn long_values_are_cut() {
    fn rules(count: usize) -> impl Iterator<Item = String> {
        (0..count).map(|n| format!("  - {{ id: r{n}, forbid: {{ under: /{n} }} }}\n"))
    }
    let head = "policy: 1\nname: acme\noptions: { disposition: allow }\nrules:\n";
    let before = format!("{head}{}", rules(1).collect::<String>());
    let after = rules(7_000).collect::<String>();
    let bench = ApiBench::with(
        &format!("{head}{after}"),
        Some(&before),
        Readiness::new(Vec::new),
    )
    .await;
    let (_, output) = bench.ask("GET /api/v1/policy/diff", b"").await;
    assert_eq!(output["files"][0]["lines"].as_array().unwrap().len(), 5_000);
    assert_eq!(output["rules"].as_array().unwrap().len(), 5_000);
    assert_eq!(
        (&output["cut"], &output["files"][0]["cut"]),
        (&true.into(), &true.into())
    );

    let long = format!(
        "{head}{}# {}\n",
        rules(1).collect::<String>(),
        "x".repeat(1 << 20)
    );
    let bench = ApiBench::with(&long, Some(&before), Readiness::new(Vec::new)).await;
    let (_, output) = bench.ask("GET /api/v1/policy/diff", b"").await;
    assert_eq!(
        output["files"],
        json!([{ "path": "p.yaml", "lines": [], "cut": true }])
    );
}

/// A policy with this number of rules: `r0` and so on.
fn large(count: usize) -> String {
    let rules: String = (0..count)
        .map(|n| format!("  - {{ id: r{n}, about: Site {n}, forbid: {{ under: /dir{n} }} }}\n"))
        .collect();
    format!("policy: 1\nname: acme\noptions: {{ disposition: allow }}\nrules:\n{rules}")
}

fn ids(output: &Json) -> Vec<&str> {
    let rules = output["rules"].as_array().unwrap().iter();
    rules.map(|rule| rule["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_large_policy_is_read_in_parts() {
    let bench = ApiBench::new(&large(5_000)).await;
    let (_, output) = bench.ask("GET /api/v1/policy", b"").await;
    assert_eq!(ids(&output).len(), 2_000, "the answer stays bounded");
    assert_eq!(output["rules_total"], 5_000);
    let mut all = Vec::new();
    for offset in (0..6_000).step_by(1_000) {
        let line = format!("GET /api/v1/policy/rules?limit=1000&offset={offset}");
        let (status, output) = bench.ask(&line, b"").await;
        assert_eq!((status, &output["total"]), (200, &5_000.into()));
        assert_eq!(output["groups"]["all"], 5_000);
        all.extend(ids(&output).into_iter().map(str::to_owned));
    }
    let expected: Vec<String> = (0..5_000).map(|n| format!("r{n}")).collect();
    assert_eq!(all, expected);
}

#[tokio::test]
async fn every_rule_of_a_large_policy_has_its_counts() {
    let bench = ApiBench::new(&large(5_000)).await;
    for (rule, times) in [(4_999, 2), (17, 3), (3_000, 1), (2_500, 2)] {
        bench.refuse(rule, times);
    }
    let (_, output) = bench
        .ask("GET /api/v1/policy/rules?sort=matched&limit=5", b"")
        .await;
    assert_eq!(ids(&output), ["r17", "r2500", "r4999", "r3000", "r0"]);
    let keys = ["matched", "allowed", "rejected", "decided", "last_match"];
    let at = "2026-01-01T00:00:00.000Z";
    assert_eq!(part(&output["rules"][2], &keys), json!([2, 0, 2, 2, at]));
    assert_eq!(part(&output["rules"][4], &keys), json!([0, 0, 0, 0, null]));
    let groups = json!({ "all": 5_000, "never_matched": 4_996, "rejecting": 4, "shadow": 0, "disabled": 0,
        "not_counted": 0 });
    assert_eq!(output["groups"], groups);
    bench.manual_clock.advance(Duration::from_secs(10));
    bench.refuse(4_000, 1);
    for (query, expected) in [
        ("sort=last_match&limit=2", ["r4000", "r17"]),
        ("sort=decided&limit=2", ["r17", "r2500"]),
        ("sort=rejected&limit=2&offset=3", ["r3000", "r4000"]),
        ("sort=allowed&limit=2", ["r0", "r1"]),
        ("group=rejecting&limit=2&offset=1", ["r2500", "r3000"]),
        ("sort=last_hour&limit=2", ["r17", "r2500"]),
        ("sort=matched&order=asc&limit=2", ["r0", "r1"]),
        ("sort=position&order=desc&limit=2", ["r4999", "r4998"]),
        ("sort=id&limit=2", ["r0", "r1"]),
        ("sort=id&order=desc&limit=2", ["r999", "r998"]),
        ("sort=shadow&limit=2", ["r0", "r1"]),
        ("group=never_matched&limit=2&offset=16", ["r16", "r18"]),
    ] {
        let line = format!("GET /api/v1/policy/rules?{query}");
        let (_, output) = bench.ask(&line, b"").await;
        assert_eq!(ids(&output), expected, "{query}");
    }
    let line = "GET /api/v1/policy/rules?sort=last_hour&limit=1";
    let (_, output) = bench.ask(line, b"").await;
    let trend = json!([3, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3]]);
    assert_eq!(part(&output["rules"][0], &["last_hour", "trend"]), trend);
}

#[tokio::test]
async fn rules_are_found_by_id_description_file_and_condition() {
    let bench = ApiBench::new(AFTER).await;
    for (query, expected) in [
        ("search=INNER", &["inner"][..]),
        ("search=Only+HERE", &["outer"]),
        ("search=www.example", &["outer"]),
        ("search=video%2Fmp4&sort=matched", &["inner"]),
        ("search=p.yaml&offset=5", &["tried", "short"]),
        ("search=none+of+them", &[]),
        ("group=disabled", &["off"]),
        ("group=shadow", &["tried"]),
        ("group=shadow&search=outer", &[]),
    ] {
        let line = format!("GET /api/v1/policy/rules?{query}");
        let (_, output) = bench.ask(&line, b"").await;
        assert_eq!(ids(&output), expected, "{query}");
    }
    let (_, output) = bench
        .ask("GET /api/v1/policy/rules?limit=2&offset=1", b"")
        .await;
    let keys = ["id", "depth", "parent"];
    let rules = output["rules"].as_array().unwrap().iter();
    let rules: Vec<Json> = rules.map(|rule| part(rule, &keys)).collect();
    assert_eq!(json!(rules), json!([["inner", 1, "outer"], ["b", 0, null]]));
}

#[tokio::test]
async fn without_metrics_no_rule_is_called_unused() {
    let bench = ApiBench::uncounted(&large(3)).await;
    let (_, output) = bench.ask("GET /api/v1/policy/rules", b"").await;
    assert_eq!(output["groups"]["never_matched"], 0);
    assert_eq!(output["groups"]["not_counted"], 3);
    assert_eq!(output["rules"][0]["matched"], Json::Null);
}
