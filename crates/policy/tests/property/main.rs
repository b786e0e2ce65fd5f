//! Random policies and facts against an oracle that follows docs/policy/reference.md.
//!
//! `tests/mutants/run` applies defects to the evaluator, each of which must make these tests fail.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a panic, in a helper too, is a failure of the test"
)]

mod exact;
mod generate;
mod hosts;
mod index;
mod laws;
mod lint;
mod model;
mod oracle;
mod reload;
mod shadow;

use std::collections::BTreeMap;

use crawlgate_policy::internal::model::reason::Reason;
use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use crawlgate_policy::internal::policy::decide::{Cause, Decision, Verdict};
use crawlgate_policy::internal::policy::explain::RuleExplanation;
use crawlgate_policy::internal::policy::trail::Trail;
use crawlgate_policy::{ValidPolicy, load};
use serde_json::{Value as Json, json};

use generate::{Generator, Spread};
use model::{GeneratedFacts, GeneratedRule};

/// The number of policies for each test; `POLICIES=100000 cargo test --release` sets another.
fn policies() -> u64 {
    std::env::var("POLICIES")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(10_000)
}

fn valid_policy(document: &Json) -> ValidPolicy {
    load(&document.to_string()).unwrap_or_else(|error| panic!("{document:#}\n{error}"))
}

/// Compiles a policy with an index of each list, however short.
fn compiled(document: &Json) -> Policy {
    valid_policy(document).policy.with_lists_indexed_from(1)
}

fn decide(policy: &Policy, facts: &Json) -> (Trail, Decision) {
    let facts =
        CaseFacts::from_json(facts.as_object().unwrap()).unwrap_or_else(|e| panic!("{facts}: {e}"));
    facts.with_facts(|facts| policy.decide(facts))
}

/// Returns the decision in the oracle's form.
fn to_oracle_decision(
    policy: &Policy,
    (trail, decision): &(Trail, Decision),
) -> oracle::OracleDecision {
    let options = policy.options_json(trail);
    oracle::OracleDecision {
        rejects: decision.rejects(),
        stage: model::STAGES
            .iter()
            .position(|s| *s == decision.stage.as_str())
            .unwrap(),
        cause: match decision.cause {
            Cause::Rule(rule) => policy.rule_id(rule).map(str::to_owned),
            Cause::Default => None,
        },
        logged: decision.logged,
        options: ["disposition", "html_only", "max_depth"]
            .into_iter()
            .map(|name| (name.to_owned(), options[name].clone()))
            .filter(|(_, value)| !value.is_null())
            .collect(),
    }
}

/// Adds the built-in defaults of unset options, which the oracle does not know.
fn with_defaults(mut decision: oracle::OracleDecision) -> oracle::OracleDecision {
    decision
        .options
        .entry("html_only".into())
        .or_insert(json!(false));
    decision
}

#[test]
fn decisions_equal_the_oracles() {
    let mut generator = Generator::whole(1);
    let mut rejected = 0_u64;
    let mut early = 0_u64;
    for _ in 0..policies() {
        let generated = generator.generate_policy();
        let document = generated.to_json();
        let rules = generated.all();
        let policy = compiled(&document);
        for _ in 0..4 {
            let world = generator.world();
            let evaluation = decide(&policy, &world.to_json());
            let actual = to_oracle_decision(&policy, &evaluation);
            let expected = with_defaults(oracle::decide(&generated, &world));
            assert_eq!(
                with_defaults(actual.clone()),
                expected,
                "{}\n{world:#?}\n{document}",
                describe(&policy, &world.to_json())
            );
            rejected += u64::from(actual.rejects);
            early += u64::from(actual.rejects && is_early(&rules, &actual));
        }
    }
    report(&generator.spread, rejected, early);
}

/// Formats the policy with the outcome of each rule.
fn describe(policy: &Policy, facts: &Json) -> String {
    let facts = CaseFacts::from_json(facts.as_object().unwrap()).unwrap();
    let (trail, _) = facts.with_facts(|facts| policy.decide_every_rule(facts));
    policy
        .explain_rules(&trail)
        .map(|explanation| describe_rule(&explanation))
        .collect()
}

fn describe_rule(explanation: &RuleExplanation<'_>) -> String {
    format!(
        "{:indent$}{:?} {} {:?}\n",
        "",
        explanation.status,
        explanation.rule.id,
        explanation.rule.stage,
        indent = 2 * explanation.depth
    )
}

/// Returns `true` for a rejection that was decided before every fact was known: at the request
/// stage, by a filter that names later facts.
fn is_early(rules: &[GeneratedRule], decision: &oracle::OracleDecision) -> bool {
    decision
        .cause
        .as_deref()
        .and_then(|id| stage_of(rules, id, 0))
        .is_some_and(|stage| decision.stage < stage)
}

/// Returns the stage at which all facts of a rule and of the groups around it are known.
fn stage_of(rules: &[GeneratedRule], id: &str, above: usize) -> Option<usize> {
    rules.iter().find_map(|rule| {
        let own = rule
            .cond()
            .and_then(model::GeneratedCondition::stage)
            .unwrap_or(0)
            .max(above);
        if rule.id == id {
            Some(own)
        } else {
            stage_of(rule.children(), id, own)
        }
    })
}

fn report(spread: &Spread, rejected: u64, early: u64) {
    println!(
        "{rejected} rejections, {early} of them early ({}%)",
        early * 100 / rejected
    );
    for (element, count) in spread {
        println!("{count:>8}  {element}");
    }
    for (element, count) in spread {
        assert!(*count >= 1_000, "{element} only {count} times");
    }
    assert!(early * 5 >= rejected, "{early} early of {rejected}");
}

/// An early decision in three-valued logic equals the decision in two-valued logic when all facts
/// are known.
#[test]
fn an_early_answer_never_contradicts_the_full_one() {
    let mut generator = Generator::whole(2);
    let mut checked = 0;
    for _ in 0..policies() {
        let generated = generator.generate_policy();
        let document = generated.to_json();
        let rules = generated.all();
        let policy = compiled(&document);
        let world = generator.world();
        let request = GeneratedFacts {
            address: None,
            response: None,
            document: None,
            ..world.clone()
        };
        let (_, early) = decide(&policy, &request.to_json());
        let (Verdict::Reject(_), Cause::Rule(rule)) = (early.verdict, early.cause) else {
            continue;
        };
        let id = policy.rule_id(rule).unwrap();
        for _ in 0..8 {
            let GeneratedFacts {
                address,
                response,
                document: page,
                ..
            } = generator.world();
            let full = GeneratedFacts {
                address,
                response,
                document: page,
                ..world.clone()
            };
            if let Some(hits) = oracle::hits_in_full(&rules, id, &full) {
                checked += 1;
                assert!(
                    hits,
                    "{id} rejected early and does not hit with all facts\n{document:#}\n{full:#?}"
                );
            }
            let (_, later) = decide(&policy, &full.to_json());
            assert_eq!(later, early, "{document:#}\n{full:#?}");
        }
    }
    println!("{checked} early rejections checked with all facts");
    assert!(checked > 5_000);
}

/// A disabled rule has no effect on its list, its siblings or their stages.
#[test]
fn a_disabled_rule_equals_an_absent_one() {
    let mut generator = Generator::whole(4);
    let mut differing = 0;
    for _ in 0..policies() / 3 {
        let generated = generator.generate_policy();
        let document = generated.to_json();
        let without_disabled = generated.without_disabled().to_json();
        if without_disabled == document {
            continue;
        }
        differing += 1;
        let policy = compiled(&document);
        let pruned = compiled(&without_disabled);
        for _ in 0..4 {
            let world = generator.world();
            let facts = world.to_json();
            let with = to_oracle_decision(&policy, &decide(&policy, &facts));
            let without = to_oracle_decision(&pruned, &decide(&pruned, &facts));
            assert_eq!(with, without, "{document:#}\n{world:#?}");
        }
    }
    assert!(differing > 300, "{differing}");
}

/// The verdict on a tunnel that is admitted or rejected holds for every URL of its host; otherwise
/// it is undecided.
#[test]
fn a_tunnels_verdict_holds_for_every_url_of_its_host() {
    let mut generator = Generator::whole(3);
    let mut verdicts: BTreeMap<&str, u32> = BTreeMap::new();
    for _ in 0..policies() {
        let document = generator.generate_policy().to_json();
        let policy = compiled(&document);
        let world = generator.world();
        let facts = json!({ "url": format!("https://{}/", world.host), "tunnel": true, "crawler": world.crawler });
        let (_, decision) = decide(&policy, &facts);
        let expected = match decision.verdict {
            Verdict::Admit => Some(false),
            Verdict::Reject(_) => Some(true),
            Verdict::Undecided => None,
        };
        *verdicts
            .entry(["admit", "reject", "undecided"][expected.map_or(2, usize::from)])
            .or_default() += 1;
        let Some(rejects) = expected else { continue };
        for _ in 0..8 {
            let inner = GeneratedFacts {
                crawler: world.crawler.clone(),
                ..generator.world_on("https", &world.host, 443)
            };
            let (_, inside) = decide(&policy, &inner.to_json());
            // A tunnel has no depth, and `max_depth` has no effect without one.
            if inside.reason() == Reason::TooDeep {
                continue;
            }
            assert_eq!(
                inside.rejects(),
                rejects,
                "tunnel: {decision:?}\n{document:#}\n{inner:#?}"
            );
        }
    }
    println!("tunnels: {verdicts:?}");
    assert!(
        verdicts.values().all(|count| *count > 40) && verdicts.len() == 3,
        "{verdicts:?}"
    );
}
