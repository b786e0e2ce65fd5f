//! The findings of lint on random policies are true, and lint finds what it should.
//!
//! The evaluator is the oracle: a rule that lint reports as dead is never a cause, and without it
//! no decision changes.

use std::collections::BTreeMap;

use crawlgate_policy::internal::diagnostics::problem::Severity;
use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use crawlgate_policy::internal::policy::compile::{CompiledPolicy, load};
use crawlgate_policy::internal::policy::decide::{Cause, Decision};
use crawlgate_policy::internal::policy::source::MemoryFileSystem;
use serde_json::{Value as Json, json};

use crate::generate::Generator;
use crate::model::GeneratedFacts;

/// Each policy is compiled once more for every dead rule.
const POLICIES: u32 = 600;

fn compiled(document: &Json) -> CompiledPolicy {
    let files = MemoryFileSystem::new().with_file("p.yaml", document.to_string());
    load(&files, "p.yaml").unwrap_or_else(|problems| {
        panic!(
            "{document:#}\n{}",
            problems
                .iter()
                .map(|p| format!("{p}\n"))
                .collect::<String>()
        )
    })
}

/// Returns the rules that lint reports as dead, each with a short reason.
fn dead(compiled: &CompiledPolicy) -> Vec<(String, &'static str)> {
    const REASONS: [(&str, &str); 6] = [
        ("its condition cannot hold", "contradiction"),
        (
            "contradicts those of the rules around it",
            "against parents",
        ),
        ("stops before it is reached", "after a stop"),
        ("always matches first", "after a sibling"),
        ("filters everything that it matches", "filtered"),
        ("overwrites all its options", "overwritten"),
    ];
    let claims = compiled
        .problems
        .iter()
        .filter(|p| p.message.starts_with("can never decide"));
    let read = |p: &crawlgate_policy::internal::diagnostics::problem::Problem| {
        let reason = REASONS.iter().find(|(text, _)| p.message.contains(text));
        (
            p.rule.as_ref().unwrap().as_str().to_owned(),
            reason.unwrap_or_else(|| panic!("{p}")).1,
        )
    };
    claims.map(read).collect()
}

/// Returns the rules of a document without one of them.
fn without(rules: &Json, id: &str) -> Json {
    let kept = rules
        .as_array()
        .unwrap()
        .iter()
        .filter(|rule| rule["id"] != id);
    let nested = |rule: &Json| {
        let mut rule = rule.clone();
        if rule.get("rules").is_some() {
            rule["rules"] = without(&rule["rules"], id);
            // An empty list has no order.
            if rule["rules"].as_array().unwrap().is_empty() {
                rule.as_object_mut().unwrap().remove("match");
            }
        }
        rule
    };
    Json::Array(kept.map(nested).collect())
}

/// A decision, the id of its cause, and its response.
type NamedDecision = (String, Option<String>, String);

fn decide(policy: &Policy, facts: &Json) -> NamedDecision {
    let facts = CaseFacts::from_json(facts.as_object().unwrap()).unwrap();
    let (trail, decision) = facts.with_facts(|facts| policy.decide(facts));
    let refusing = decision
        .rejects()
        .then(|| policy.refusal(&trail, &decision));
    (
        format!(
            "{:?}",
            Decision {
                cause: Cause::Default,
                ..decision
            }
        ),
        cause(policy, decision),
        format!("{refusing:?}"),
    )
}

fn cause(policy: &Policy, decision: Decision) -> Option<String> {
    match decision.cause {
        Cause::Rule(rule) => policy.rule_id(rule).map(str::to_owned),
        Cause::Default => None,
    }
}

/// Returns the facts of a request up to the request, destination and response stages.
fn prefixes(world: &GeneratedFacts) -> [Json; 3] {
    let asked = GeneratedFacts {
        address: None,
        response: None,
        ..world.clone()
    };
    let connected = GeneratedFacts {
        response: None,
        ..world.clone()
    };
    [asked.to_json(), connected.to_json(), world.to_json()]
}

/// Relates random rules to each other: some copy the condition of another, or are in a list with
/// it.
fn related(generator: &mut Generator, rules: &mut Vec<Json>, name: &str) {
    let count = generator.rng.usize(0..4);
    for at in 0..count {
        let Some(model) = generator.rng.choice(rules.iter()).cloned() else {
            return;
        };
        let condition = ["forbid", "require", "when", "unless"]
            .iter()
            .find_map(|kind| model.get(*kind))
            .cloned();
        let Some(condition) = condition else { continue };
        let narrower = json!({ "all": [condition, { "path": "/old" }] });
        let condition = if generator.rng.bool() {
            condition
        } else {
            narrower
        };
        let id = format!("{name}{at}");
        let place = generator.rng.usize(0..=rules.len());
        rules.insert(
            place,
            match generator.rng.u8(0..6) {
                0 => json!({ "id": id, "forbid": condition }),
                1 => json!({ "id": id, "require": condition }),
                2 => json!({ "id": id, "when": condition, "then": "allow" }),
                3 => json!({ "id": id, "when": condition, "then": "disallow-log", "stop": true }),
                4 => json!({ "id": id, "when": condition, "rules": [
                    { "id": format!("{id}-in"), "when": { "host": "a.test" }, "then": "disallow" },
                    { "id": format!("{id}-too"), "forbid": { "host": "b.test" } },
                ] }),
                _ => json!({ "id": id, "match": "first", "rules": [
                    { "id": format!("{id}-a"), "when": condition, "then": "allow" },
                    { "id": format!("{id}-b"), "forbid": { "all": [condition, { "method": "GET" }] } },
                ] }),
            },
        );
    }
}

/// Generates a document with related rules, every other time also in two spaces.
fn document(generator: &mut Generator) -> Json {
    let (mut document, ..) = generator.policy();
    let mut rules = document["rules"].as_array().unwrap().clone();
    related(generator, &mut rules, "copy");
    document["rules"] = Json::Array(rules.clone());
    if generator.rng.bool() {
        let mut space = |name: &str, crawlers: &[&str]| {
            let (own, ..) = generator.policy();
            let mut own = own["rules"].as_array().unwrap().clone();
            // Copies of the document's rules in a space may be dead.
            own.truncate(2);
            let mut all = [rules.clone(), own].concat();
            related(generator, &mut all, name);
            let known: Vec<&Json> = rules.iter().map(|rule| &rule["id"]).collect();
            all.retain(|rule| !known.contains(&&rule["id"]));
            let mut space = json!({ "name": name, "rules": all });
            if !crawlers.is_empty() {
                space["crawlers"] = json!(crawlers);
            }
            if generator.rng.u8(0..4) == 0 {
                space["options"] = json!({ "disposition": "allow" });
            }
            space
        };
        document["spaces"] = json!([space("news", &["news-bot"]), space("others", &[])]);
    }
    document
}

/// Returns the document without one of its rules.
fn less(document: &Json, id: &str) -> Json {
    let mut less = document.clone();
    less["rules"] = without(&document["rules"], id);
    for space in less
        .get_mut("spaces")
        .and_then(Json::as_array_mut)
        .into_iter()
        .flatten()
    {
        space["rules"] = without(&space["rules"], id);
    }
    less
}

#[test]
fn what_is_called_dead_never_decides_and_is_not_missed() {
    let mut generator = Generator::new(11);
    let mut found: BTreeMap<&str, u32> = BTreeMap::new();
    let mut compared = 0;
    for _ in 0..POLICIES {
        let document = document(&mut generator);
        let policy = compiled(&document);
        for (id, reason) in dead(&policy) {
            *found.entry(reason).or_default() += 1;
            let less = compiled(&less(&document, &id));
            for facts in (0..12).flat_map(|_| prefixes(&generator.world())) {
                let (with, without) =
                    (decide(&policy.policy, &facts), decide(&less.policy, &facts));
                assert_ne!(
                    with.1.as_deref(),
                    Some(&*id),
                    "{reason}: {facts}\n{document:#}"
                );
                assert_eq!(with, without, "{reason}: {id}\n{facts}\n{document:#}");
                compared += 1;
            }
        }
    }
    println!("{found:?}, {compared} decisions compared");
    assert!(
        found.len() == 6 && found.values().all(|count| *count >= 20),
        "{found:?}"
    );
}

/// A rule that allows without effect is refused wherever it applies.
#[test]
fn what_is_allowed_in_vain_is_refused() {
    let mut generator = Generator::new(12);
    let mut found = 0;
    let mut refused = 0;
    for _ in 0..POLICIES {
        let document = document(&mut generator);
        let policy = compiled(&document);
        let vain = policy
            .problems
            .iter()
            .filter(|p| p.message.starts_with("allows without effect"));
        for id in vain.map(|p| p.rule.clone().unwrap()) {
            found += 1;
            for facts in (0..12).map(|_| generator.world().to_json()) {
                let (_, cause, _) = decide(&policy.policy, &facts);
                assert_ne!(cause.as_deref(), Some(id.as_str()), "{facts}\n{document:#}");
                refused += 1;
            }
        }
    }
    println!("{found} rules allow in vain, {refused} decisions");
    assert!(found >= 10, "{found}");
}

/// A reported overlap of two spaces names a URL that both allow.
#[test]
fn overlaps_of_spaces_have_a_witness() {
    let findings = |news: &str, shop: &str| {
        let text = format!(
            "policy: 1\nname: t\noptions: {{ disposition: disallow }}\nspaces:\n\
             - {{ name: news, crawlers: [news-bot], rules: {news} }}\n- {{ name: shop, rules: {shop} }}\n"
        );
        let files = MemoryFileSystem::new().with_file("p", text);
        let problems = load(&files, "p")
            .unwrap_or_else(|p| panic!("{p:?}"))
            .problems;
        let overlaps = problems.into_iter().find(|p| p.message.contains("overlap"));
        overlaps.map(|p| (p.rule.unwrap().as_str().to_owned(), p.message))
    };
    let news = "[{ id: n, when: { domain: example.com }, then: allow }]";
    for (shop, witness) in [
        (
            "[{ id: s, when: { host: shop.example.com }, then: allow }]",
            Some("http://shop.example.com/"),
        ),
        (
            "[{ id: s, when: { domain: example.com, under: /shop }, then: allow }]",
            Some("http://example.com/shop"),
        ),
        (
            "[{ id: s, when: { host: shop.example.org }, then: allow }]",
            None,
        ),
        (
            "[{ id: f, forbid: { domain: example.com } }, { id: s, when: { ext: html }, then: allow }]",
            None,
        ),
    ] {
        let found = findings(news, shop);
        assert_eq!(found.is_some(), witness.is_some(), "{shop}: {found:?}");
        if let (Some((rule, message)), Some(witness)) = (found, witness) {
            assert!(
                rule == "s" && message.contains("`news` and `shop`") && message.contains(witness),
                "{message}"
            );
        }
    }
    // What the document allows is common to all spaces.
    let text = "policy: 1\nname: t\noptions: { disposition: disallow }\nrules: [{ id: d, then: allow }]\n\
                spaces: [{ name: a, crawlers: [x], rules: [] }, { name: b, rules: [] }]\n";
    let compiled = load(&MemoryFileSystem::new().with_file("p", text), "p").unwrap();
    assert!(
        !compiled
            .problems
            .iter()
            .any(|p| p.message.contains("overlap"))
    );
}

fn findings(rules: &str) -> Vec<String> {
    let text = format!(
        "policy: 1\nname: t\noptions: {{ disposition: allow }}\n\
         lists: {{ l: {{ kind: domains, items: [foo.com] }} }}\nrules: {rules}\n"
    );
    let files = MemoryFileSystem::new().with_file("p", text);
    let problems = load(&files, "p")
        .unwrap_or_else(|p| panic!("{p:?}"))
        .problems;
    let doubts = problems
        .iter()
        .filter(|p| p.severity == Severity::Warning && p.message.contains(" decide"));
    doubts
        .map(|p| format!("{}: {}", p.rule.as_ref().unwrap().as_str(), p.message))
        .collect()
}

#[test]
fn what_is_found_and_what_is_left_alone() {
    const STOP: &str =
        "{ id: s, when: { domain: foo.com }, set: { politeness: { delay: 2s } }, stop: true }";
    const FORBID: &str = "{ id: f, forbid: { domain: foo.com } }";
    for (rules, expected) in [
        // A filter after a wider one; no finding for a filter that logs or differs.
        (format!("[{FORBID}, {{ id: x, forbid: {{ host: a.foo.com, ext: gif }} }}]"), Some("rule `f`")),
        (format!("[{FORBID}, {{ id: x, forbid: {{ url_prefix: 'http://foo.com/old/' }} }}]"), Some("http://foo.com/old/")),
        (format!("[{FORBID}, {{ id: x, forbid: {{ in: l }}, log: true }}]"), None),
        (format!("[{FORBID}, {{ id: x, forbid: {{ domain: com }} }}]"), None),
        ("[{ id: x, forbid: { host: foo.com } }, { id: f, forbid: { domain: foo.com } }]".into(), None),
        // An exception that comes too late: a filter is final.
        (format!("[{FORBID}, {{ id: x, when: {{ host: www.foo.com }}, then: allow }}]"), Some("filters everything")),
        (format!("[{FORBID}, {{ id: x, when: {{ host: www.foo.com }}, set: {{ reject: gone }} }}]"), None),
        // After a stop.
        (format!("[{STOP}, {{ id: x, forbid: {{ host: a.foo.com }} }}]"), Some("stops before")),
        (format!("[{STOP}, {{ id: x, forbid: {{ host: a.foo.com, status: 404 }} }}]"), None),
        (format!("[{STOP}, {{ id: x, forbid: {{ host: bar.com }} }}]"), None),
        (format!("[{{ id: x, forbid: {{ host: a.foo.com }} }}, {STOP}]"), None),
        ("[{ id: s, then: allow, stop: true }, { id: x, forbid: { ext: gif } }]".into(), Some("stops before")),
        // After a sibling in `match: first`.
        (
            "[{ id: g, match: first, rules: [{ id: w, when: { domain: foo.com }, then: allow }, \
              { id: x, forbid: { host: a.foo.com } }] }]"
                .into(),
            Some("always matches first"),
        ),
        // Options that are overwritten.
        (
            "[{ id: x, when: { host: a.foo.com }, then: disallow }, { id: w, when: { domain: foo.com }, then: allow }]"
                .into(),
            Some("overwrites all its options"),
        ),
        (
            "[{ id: w, when: { domain: foo.com }, then: allow }, { id: x, when: { host: a.foo.com }, then: disallow }]"
                .into(),
            None,
        ),
        // Contradictions.
        ("[{ id: x, forbid: { not: { always: true } } }]".into(), Some("cannot hold")),
        ("[{ id: x, require: { always: true } }]".into(), Some("cannot hold")),
        ("[{ id: x, forbid: { all: [{ host: a.com }, { domain: b.com }] } }]".into(), Some("cannot hold")),
        ("[{ id: x, forbid: { path: /a, not: { path: / } } }]".into(), Some("cannot hold")),
        ("[{ id: x, forbid: { all: [{ param.a: 1 }, { param.a: 2 }] } }]".into(), None),
        (
            "[{ id: g, when: { domain: foo.com }, rules: [{ id: x, forbid: { host: bar.com } }] }]".into(),
            Some("around it"),
        ),
        (
            "[{ id: g, unless: { domain: foo.com }, rules: [{ id: x, forbid: { host: a.foo.com } }] }]".into(),
            Some("around it"),
        ),
        // Rules that are not enforced are neither dead nor a cause.
        (format!("[{{ id: f, enabled: false, forbid: {{ domain: foo.com }} }}, {FORBID}]").replacen("id: f", "id: g", 1), None),
    ] {
        let findings = findings(&rules);
        match expected {
            None => assert_eq!(findings, [""; 0], "{rules}"),
            Some(text) => {
                assert!(findings.len() == 1 && findings[0].starts_with("x: ") && findings[0].contains(text), "{rules}: {findings:?}");
            }
        }
    }
}
