//! Random policies and facts against an oracle that follows docs/policy/reference.md.
//!
//! `tests/mutants/run` breaks the evaluator in several ways, and each must make these tests fail.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that panics has failed, its helpers too"
)]

mod generate;
mod laws;
mod lint;
mod model;
mod oracle;
mod shadow;

use std::collections::BTreeMap;

use crawlgate_policy::internal::model::reason::Reason;
use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use crawlgate_policy::internal::policy::compile;
use crawlgate_policy::internal::policy::decide::{Cause, Decision, Verdict};
use crawlgate_policy::internal::policy::source::MemoryFileSystem;
use crawlgate_policy::internal::policy::trail::Trail;
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

fn compiled(document: &Json) -> Policy {
    let files = MemoryFileSystem::new().with_file("policy.yaml", document.to_string());
    match compile::load(&files, "policy.yaml") {
        Ok(compiled) => compiled.policy,
        Err(problems) => {
            panic!(
                "{document:#}\n{}",
                problems
                    .iter()
                    .map(|p| format!("{p}\n"))
                    .collect::<String>()
            )
        }
    }
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
    let of =
        |name: &str| Some((name.to_owned(), options[name].clone())).filter(|(_, v)| !v.is_null());
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
            .filter_map(of)
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
        let made = generator.generate_policy();
        let document = made.to_json();
        let rules = made.all();
        let policy = compiled(&document);
        for _ in 0..4 {
            let world = generator.world();
            let judged = decide(&policy, &world.to_json());
            let ours = to_oracle_decision(&policy, &judged);
            let theirs = with_defaults(oracle::decide(&made, &world));
            assert_eq!(
                with_defaults(ours.clone()),
                theirs,
                "{}\n{world:#?}\n{document}",
                shown(&policy, &judged.0)
            );
            rejected += u64::from(ours.rejects);
            early += u64::from(ours.rejects && is_early(&rules, &ours));
        }
    }
    report(&generator.spread, rejected, early);
}

/// Formats the policy with the outcome of each rule.
fn shown(policy: &Policy, trail: &Trail) -> String {
    let line = |line: crawlgate_policy::internal::policy::explain::RuleExplanation<'_>| {
        format!(
            "{:indent$}{:?} {} {:?}\n",
            "",
            line.status,
            line.rule.id,
            line.rule.stage,
            indent = 2 * line.depth
        )
    };
    policy.explain_rules(trail).map(line).collect()
}

/// Returns `true` for a rejection that was decided before every fact was known: at the request
/// stage, by a filter that names later facts.
fn is_early(rules: &[GeneratedRule], decision: &oracle::OracleDecision) -> bool {
    let stage = |id: &str| stage_of(rules, id, 0);
    decision
        .cause
        .as_deref()
        .and_then(stage)
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
    for (what, count) in spread {
        println!("{count:>8}  {what}");
    }
    for (what, count) in spread {
        assert!(*count >= 1_000, "{what} only {count} times");
    }
    assert!(early * 5 >= rejected, "{early} early of {rejected}");
}

/// An early decision in three-valued logic equals the one in two-valued logic when everything is
/// known.
#[test]
fn an_early_answer_never_contradicts_the_full_one() {
    let mut generator = Generator::whole(2);
    let mut checked = 0;
    for _ in 0..policies() {
        let made = generator.generate_policy();
        let document = made.to_json();
        let rules = made.all();
        let policy = compiled(&document);
        let world = generator.world();
        let asked = GeneratedFacts {
            address: None,
            response: None,
            document: None,
            ..world.clone()
        };
        let decision = decide(&policy, &asked.to_json());
        let (Verdict::Reject(_), Cause::Rule(rule)) = (decision.1.verdict, decision.1.cause) else {
            continue;
        };
        let id = policy.rule_id(rule).unwrap();
        for _ in 0..8 {
            let GeneratedFacts {
                address,
                response,
                document: seen,
                ..
            } = generator.world();
            let full = GeneratedFacts {
                address,
                response,
                document: seen,
                ..world.clone()
            };
            if let Some(hits) = oracle::hits_in_full(&rules, id, &full) {
                checked += 1;
                assert!(
                    hits,
                    "{id} rejected early and does not hit in full\n{document:#}\n{full:#?}"
                );
            }
            let again = decide(&policy, &full.to_json());
            assert_eq!(again.1, decision.1, "{document:#}\n{full:#?}");
        }
    }
    println!("{checked} early rejections checked in full");
    assert!(checked > 5_000);
}

/// A disabled rule has no effect: neither on its list nor on its siblings nor on their stages.
#[test]
fn a_disabled_rule_equals_an_absent_one() {
    let mut generator = Generator::whole(4);
    let mut differing = 0;
    for _ in 0..policies() / 3 {
        let made = generator.generate_policy();
        let without = made.without_disabled();
        if without.all().len() == made.all().len() && without.to_json() == made.to_json() {
            continue;
        }
        differing += 1;
        let policy = compiled(&made.to_json());
        let pruned = compiled(&without.to_json());
        for _ in 0..4 {
            let world = generator.world();
            let (with, without) = (
                decide(&policy, &world.to_json()),
                decide(&pruned, &world.to_json()),
            );
            let (with, without) = (
                to_oracle_decision(&policy, &with),
                to_oracle_decision(&pruned, &without),
            );
            assert_eq!(with, without, "{:#}\n{world:#?}", made.to_json());
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
        let seen = generator.world();
        let facts = json!({ "url": format!("https://{}/", seen.host), "tunnel": true, "crawler": seen.crawler });
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
                crawler: seen.crawler.clone(),
                ..generator.world_on("https", &seen.host, 443)
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
