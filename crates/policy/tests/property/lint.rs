//! The findings of lint on random policies are true, and lint finds the expected problems.
//!
//! The evaluator is the oracle: a rule that lint reports as dead is never a cause, and its removal
//! does not change a decision.

use std::collections::BTreeMap;

use crawlgate_policy::internal::diagnostics::problem::{Problem, Severity};
use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use crawlgate_policy::{ValidPolicy, load};

use crawlgate_policy::internal::policy::decide::{Cause, Decision};
use crawlgate_policy::internal::policy::trail::Trail;
use serde_json::{Value as Json, json};

use crate::generate::Generator;
use crate::model::{GeneratedFacts, with_lists};
use crate::valid_policy;

/// The number of policies. Each is compiled again for every dead rule.
const POLICIES: u32 = 600;

/// Returns the ids of the rules that lint reports as dead, each with a short reason.
pub(super) fn dead_rules(compiled: &ValidPolicy) -> Vec<(String, &'static str)> {
    compiled
        .warnings
        .iter()
        .filter(|p| p.message.starts_with("can never decide"))
        .map(|p| (rule_id(p).to_owned(), dead_reason(p)))
        .collect()
}

pub(super) fn rule_id(problem: &Problem) -> &str {
    problem.rule.as_ref().unwrap().as_str()
}

fn dead_reason(problem: &Problem) -> &'static str {
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
    let reason = REASONS
        .iter()
        .find(|(text, _)| problem.message.contains(text));
    reason.unwrap_or_else(|| panic!("{problem}")).1
}

/// Removes a rule from a list and from the groups in it.
fn remove_rule(rules: &mut Json, id: &str) {
    let rules = rules.as_array_mut().unwrap();
    rules.retain(|rule| rule["id"] != id);
    for rule in rules {
        let Some(inner) = rule.get_mut("rules") else {
            continue;
        };
        remove_rule(inner, id);
        // `match` is not allowed for an empty list.
        if inner.as_array().unwrap().is_empty() {
            rule.as_object_mut().unwrap().remove("match");
        }
    }
}

/// A decision, the id of its cause, and its response.
pub(super) type NamedDecision = (String, Option<String>, String);

pub(super) fn decide(policy: &Policy, facts: &Json) -> NamedDecision {
    let facts = CaseFacts::from_json(facts.as_object().unwrap()).unwrap();
    let (trail, decision) = facts.with_facts(|facts| policy.decide(facts));
    name_decision(policy, &trail, decision)
}

pub(super) fn name_decision(policy: &Policy, trail: &Trail, decision: Decision) -> NamedDecision {
    let refusal = decision.rejects().then(|| policy.refusal(trail, &decision));
    (
        format!(
            "{:?}",
            Decision {
                cause: Cause::Default,
                ..decision
            }
        ),
        cause(policy, decision),
        format!("{refusal:?}"),
    )
}

fn cause(policy: &Policy, decision: Decision) -> Option<String> {
    match decision.cause {
        Cause::Rule(rule) => policy.rule_id(rule).map(str::to_owned),
        Cause::Default => None,
    }
}

/// Returns the facts known at the request, destination and response stages.
pub(super) fn facts_by_stage(world: &GeneratedFacts) -> [Json; 3] {
    let request = GeneratedFacts {
        address: None,
        response: None,
        ..world.clone()
    };
    let destination = GeneratedFacts {
        response: None,
        ..world.clone()
    };
    [request.to_json(), destination.to_json(), world.to_json()]
}

/// Adds rules that are related to others: they have the condition of another rule, or are in a
/// list with it.
fn add_related_rules(generator: &mut Generator, rules: &mut Vec<Json>, name: &str) {
    let count = generator.rng.usize(0..4);
    for at in 0..count {
        let Some(original) = generator.rng.choice(rules.iter()).cloned() else {
            return;
        };
        let condition = ["forbid", "require", "when", "unless"]
            .iter()
            .find_map(|kind| original.get(*kind))
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

/// Generates a document with related rules. Half of the documents also have two spaces.
pub(super) fn random_document(generator: &mut Generator) -> Json {
    let (mut document, ..) = generator.policy();
    let mut rules = document["rules"].as_array().unwrap().clone();
    add_related_rules(generator, &mut rules, "copy");
    document["rules"] = Json::Array(rules.clone());
    if generator.rng.bool() {
        let news = random_space(generator, &rules, "news", &["news-bot"]);
        let others = random_space(generator, &rules, "others", &[]);
        document["spaces"] = json!([news, others]);
    }
    with_lists(document)
}

/// Generates a space, some of whose rules are related to the rules of the document.
fn random_space(
    generator: &mut Generator,
    document_rules: &[Json],
    name: &str,
    crawlers: &[&str],
) -> Json {
    let (policy, ..) = generator.policy();
    let mut rules = policy["rules"].as_array().unwrap().clone();
    // Copies of the document's rules in a space may be dead.
    rules.truncate(2);
    let mut rules = [document_rules.to_vec(), rules].concat();
    add_related_rules(generator, &mut rules, name);
    let document_ids: Vec<&Json> = document_rules.iter().map(|rule| &rule["id"]).collect();
    rules.retain(|rule| !document_ids.contains(&&rule["id"]));
    let mut space = json!({ "name": name, "rules": rules });
    if !crawlers.is_empty() {
        space["crawlers"] = json!(crawlers);
    }
    if generator.rng.u8(0..4) == 0 {
        space["options"] = json!({ "disposition": "allow" });
    }
    space
}

/// Returns the document without one of its rules.
pub(super) fn without_rule(document: &Json, id: &str) -> Json {
    let mut shorter = document.clone();
    remove_rule(&mut shorter["rules"], id);
    for space in shorter
        .get_mut("spaces")
        .and_then(Json::as_array_mut)
        .into_iter()
        .flatten()
    {
        remove_rule(&mut space["rules"], id);
    }
    shorter
}

#[test]
fn dead_rules_never_decide_and_are_not_missed() {
    let mut generator = Generator::new(11);
    let mut reasons: BTreeMap<&str, u32> = BTreeMap::new();
    let mut compared = 0;
    for _ in 0..POLICIES {
        let document = random_document(&mut generator);
        let policy = valid_policy(&document);
        for (id, reason) in dead_rules(&policy) {
            *reasons.entry(reason).or_default() += 1;
            let shorter = valid_policy(&without_rule(&document, &id));
            for facts in (0..12).flat_map(|_| facts_by_stage(&generator.world())) {
                let with = decide(&policy.policy, &facts);
                let without = decide(&shorter.policy, &facts);
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
    println!("{reasons:?}, {compared} decisions compared");
    assert!(
        reasons.len() == 6 && reasons.values().all(|count| *count >= 20),
        "{reasons:?}"
    );
}

/// A rule that lint reports as allowing without effect is never the cause of a decision.
#[test]
fn rules_that_allow_without_effect_never_decide() {
    let mut generator = Generator::new(12);
    let mut reported = 0;
    let mut decisions = 0;
    for _ in 0..POLICIES {
        let document = random_document(&mut generator);
        let policy = valid_policy(&document);
        let ineffective = policy
            .warnings
            .iter()
            .filter(|p| p.message.starts_with("allows without effect"));
        for id in ineffective.map(rule_id) {
            reported += 1;
            for facts in (0..12).map(|_| generator.world().to_json()) {
                let (_, cause, _) = decide(&policy.policy, &facts);
                assert_ne!(cause.as_deref(), Some(id), "{facts}\n{document:#}");
                decisions += 1;
            }
        }
    }
    println!("{reported} rules allow without effect, {decisions} decisions checked");
    assert!(reported >= 10, "{reported}");
}

/// Returns the overlap that lint reports for two spaces with these rules.
fn space_overlap(news: &str, shop: &str) -> Option<Problem> {
    let text = format!(
        "policy: 1\nname: t\noptions: {{ disposition: disallow }}\nspaces:\n\
         - {{ name: news, crawlers: [news-bot], rules: {news} }}\n- {{ name: shop, rules: {shop} }}\n"
    );
    let problems = load(&text).unwrap_or_else(|p| panic!("{p:?}")).warnings;
    problems.into_iter().find(|p| p.message.contains("overlap"))
}

/// A reported overlap of two spaces names a URL that both allow.
#[test]
fn overlaps_of_spaces_have_a_witness() {
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
        let overlap = space_overlap(news, shop);
        assert_eq!(overlap.is_some(), witness.is_some(), "{shop}: {overlap:?}");
        if let (Some(problem), Some(witness)) = (overlap, witness) {
            let message = &problem.message;
            assert!(
                rule_id(&problem) == "s"
                    && message.contains("`news` and `shop`")
                    && message.contains(witness),
                "{message}"
            );
        }
    }
    // A URL that the document's own rules allow is no overlap of spaces.
    let text = "policy: 1\nname: t\noptions: { disposition: disallow }\nrules: [{ id: d, then: allow }]\n\
                spaces: [{ name: a, crawlers: [x], rules: [] }, { name: b, rules: [] }]\n";
    let compiled = load(text).unwrap();
    assert!(
        !compiled
            .warnings
            .iter()
            .any(|p| p.message.contains("overlap"))
    );
}

fn findings(rules: &str) -> Vec<String> {
    let text = format!(
        "policy: 1\nname: t\noptions: {{ disposition: allow }}\n\
         lists: {{ l: {{ kind: domains, items: [foo.com] }} }}\nrules: {rules}\n"
    );
    let problems = load(&text).unwrap_or_else(|p| panic!("{p:?}")).warnings;
    problems
        .iter()
        .filter(|p| p.severity == Severity::Warning && p.message.contains(" decide"))
        .map(|p| format!("{}: {}", rule_id(p), p.message))
        .collect()
}

#[test]
fn rules_with_and_without_findings() {
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
        // An exception after a filter, which is final.
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
