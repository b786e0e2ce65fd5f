//! Shadow rules change nothing, and their decisions are those of the policy in which they are
//! enforced.

use std::collections::BTreeSet;

use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use crawlgate_policy::internal::policy::compile;
use crawlgate_policy::internal::policy::decide::{Cause, Decision};
use crawlgate_policy::internal::policy::fact::{Fact, Facts};
use crawlgate_policy::internal::policy::rule::{PolicyStage, RuleIndex};
use crawlgate_policy::internal::policy::shadow::ShadowDecisions;
use crawlgate_policy::internal::policy::source::MemoryFileSystem;
use crawlgate_policy::internal::policy::trail::Trail;
use serde_json::{Value as Json, json};

use super::generate::Generator;

const POLICIES: u64 = 1_000;

fn compiled(document: &Json) -> Option<Policy> {
    let files = MemoryFileSystem::new().with_file("policy.yaml", document.to_string());
    compile::load(&files, "policy.yaml")
        .ok()
        .map(|compiled| compiled.policy)
}

/// Changes every rule of a tree; `None` removes it.
fn changed(rules: &Json, change: &mut dyn FnMut(&Json) -> Option<Json>) -> Json {
    let rule = |rule: &Json| {
        let mut rule = change(rule)?;
        if let Some(inner) = rule.get("rules").cloned() {
            rule["rules"] = changed(&inner, change);
        }
        Some(rule)
    };
    rules.as_array().unwrap().iter().filter_map(rule).collect()
}

fn with_rules(document: &Json, change: &mut dyn FnMut(&Json) -> Option<Json>) -> Json {
    let mut other = document.clone();
    other["rules"] = changed(&document["rules"], change);
    other
}

fn id(rule: &Json) -> &str {
    rule["id"].as_str().unwrap()
}

fn in_shadow(rule: &Json) -> bool {
    rule.get("mode").is_some()
}

/// Returns the policy in which one shadow rule is enforced, without the other shadow rules.
fn live_besides(document: &Json, root: &str) -> Json {
    with_rules(document, &mut |rule| {
        let mut rule = rule.clone();
        if id(&rule) == root {
            strip(&mut rule);
        }
        (!in_shadow(&rule)).then_some(rule)
    })
}

/// Enforces the shadow rules in it, too.
fn strip(rule: &mut Json) {
    rule.as_object_mut().unwrap().remove("mode");
    if let Some(rules) = rule.get_mut("rules").and_then(Json::as_array_mut) {
        rules.iter_mut().for_each(strip);
    }
}

/// Returns a decision in a form that can be compared between policies.
fn comparable(policy: &Policy, decision: &Decision) -> Json {
    let cause = match decision.cause {
        Cause::Rule(rule) => policy.rule_id(rule),
        Cause::Default => None,
    };
    json!([
        decision.rejects(),
        decision.reason().as_str(),
        decision.stage.as_str(),
        cause,
        decision.logged
    ])
}

/// A request as the proxy evaluates it: stage by stage until the first rejection.
struct EvaluatedRequest {
    trail: Trail,
    decision: Decision,
    shadows: ShadowDecisions,
    last: PolicyStage,
}

/// Evaluates a request up to and including the stage `until`.
fn evaluate(policy: &Policy, facts: &Facts<'_>, until: PolicyStage) -> EvaluatedRequest {
    let connected = Facts {
        response: Fact::Unknown,
        document: Fact::Unknown,
        ..*facts
    };
    let asked = Facts {
        address: Fact::Unknown,
        ..connected
    };
    let answered = Facts {
        document: Fact::Unknown,
        ..*facts
    };
    let (trail, decision) = policy.decide_request(&asked);
    let shadows = ShadowDecisions::for_request(policy, &asked);
    let mut evaluated = EvaluatedRequest {
        trail,
        decision,
        shadows,
        last: PolicyStage::Request,
    };
    let Fact::Known(Some(address)) = facts.address else {
        panic!("no address")
    };
    if until >= PolicyStage::Destination && !evaluated.decision.rejects() {
        evaluated
            .shadows
            .decide_addresses(policy, &asked, &[address], &evaluated.trail);
        evaluated.decision =
            policy.decide_stage(&mut evaluated.trail, PolicyStage::Destination, &connected);
        evaluated.last = PolicyStage::Destination;
    }
    if until >= PolicyStage::Response && !evaluated.decision.rejects() {
        evaluated
            .shadows
            .decide_stage(policy, PolicyStage::Response, &answered, &evaluated.trail);
        evaluated.decision =
            policy.decide_stage(&mut evaluated.trail, PolicyStage::Response, &answered);
        evaluated.last = PolicyStage::Response;
    }
    evaluated
}

/// Counts of what was tested.
#[derive(Debug, Default)]
struct Seen {
    policies: u32,
    refused: u32,
    shadows: u32,
    refusing: u32,
    admitting: u32,
}

/// A policy with shadow rules, the one without them, and for each of them the one in which it is
/// enforced.
struct Policies {
    policy: Policy,
    without: Policy,
    besides: Vec<(RuleIndex, Policy)>,
    document: Json,
}

impl Policies {
    /// `None` if a shadow rule would change its neighbours in a `match: first` list, which is an
    /// error.
    fn of(document: Json) -> Option<Self> {
        let absent = with_rules(&document, &mut |rule| {
            (!in_shadow(rule)).then(|| rule.clone())
        });
        let policy = compiled(&document)?;
        let without = compiled(&absent)?;
        let besides = policy.shadow_rules().iter().map(|root| {
            let besides = live_besides(&document, policy.rule_id(*root).unwrap());
            (
                *root,
                compiled(&besides).unwrap_or_else(|| panic!("{besides:#}")),
            )
        });
        Some(Self {
            besides: besides.collect(),
            policy,
            without,
            document,
        })
    }

    fn check(&self, facts: &Facts<'_>, seen: &mut Seen) {
        let policy = &self.policy;
        let evaluated = evaluate(policy, facts, PolicyStage::Response);
        let without = evaluate(&self.without, facts, PolicyStage::Response);
        let shown = || format!("{:#}\n{facts:#?}", self.document);
        assert_eq!(
            comparable(policy, &evaluated.decision),
            comparable(&self.without, &without.decision),
            "{}",
            shown()
        );
        assert_eq!(
            policy.options_json(&evaluated.trail),
            self.without.options_json(&without.trail),
            "{}",
            shown()
        );
        for (root, besides) in &self.besides {
            let expected = evaluate(besides, facts, evaluated.last);
            let shadow = evaluated.shadows.iter().find(|shadow| shadow.root == *root);
            let (trail, decision) = shadow
                .map_or((&evaluated.trail, &evaluated.decision), |shadow| {
                    (shadow.trail(), &shadow.decision)
                });
            let shown = || format!("{:?} in shadow\n{}", policy.rule_id(*root), shown());
            assert_eq!(
                comparable(policy, decision),
                comparable(besides, &expected.decision),
                "{}",
                shown()
            );
            assert_eq!(
                policy.options_json(trail),
                besides.options_json(&expected.trail),
                "{}",
                shown()
            );
            assert_eq!(
                matched(policy, trail),
                matched(besides, &expected.trail),
                "{}",
                shown()
            );
            seen.shadows += 1;
            seen.refusing += u32::from(decision.rejects() && !evaluated.decision.rejects());
            seen.admitting += u32::from(!decision.rejects() && evaluated.decision.rejects());
        }
    }
}

fn matched<'p>(policy: &'p Policy, trail: &Trail) -> BTreeSet<Option<&'p str>> {
    trail
        .matched_rules()
        .iter()
        .map(|rule| policy.rule_id(*rule))
        .collect()
}

#[test]
fn rules_in_shadow_change_nothing_and_say_what_they_would() {
    let mut generator = Generator::new(5);
    let mut seen = Seen::default();
    for _ in 0..POLICIES {
        let (plain, ..) = generator.policy();
        let rng = &mut generator.rng;
        let document = with_rules(&plain, &mut |rule| {
            let mut rule = rule.clone();
            if rng.u32(0..4) == 0 {
                rule["mode"] = json!("shadow");
            }
            Some(rule)
        });
        let Some(policies) = Policies::of(document) else {
            seen.refused += 1;
            continue;
        };
        seen.policies += 1;
        for _ in 0..2 {
            let world = generator.world().to_json();
            let facts = CaseFacts::from_json(world.as_object().unwrap()).unwrap();
            facts.with_facts(|facts| policies.check(facts, &mut seen));
        }
    }
    println!("{seen:?}");
    assert!(seen.policies > 700 && seen.shadows > 1_300, "{seen:?}");
    assert!(seen.refusing > 40 && seen.admitting > 15, "{seen:?}");
}
