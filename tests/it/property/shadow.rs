//! Rules in shadow: they change nothing, and what they say is what the policy would say in which they are live.

use std::collections::BTreeSet;

use crawlgate::policy::Policy;
use crawlgate::policy::cases::CaseFacts;
use crawlgate::policy::compile::{self, Purpose};
use crawlgate::policy::decide::{Cause, Decision};
use crawlgate::policy::fact::{Fact, Facts};
use crawlgate::policy::rule::{PolicyStage, RuleIndex};
use crawlgate::policy::shadow::Shadows;
use crawlgate::policy::source::MemoryFiles;
use crawlgate::policy::trail::Trail;
use serde_json::{Value as Json, json};

use super::generate::Generator;

const POLICIES: u64 = 2_000;

fn compiled(document: &Json) -> Option<Policy> {
    let files = MemoryFiles::new().with("policy.yaml", document.to_string());
    compile::load(&files, "policy.yaml", Purpose::Serve).ok().map(|compiled| compiled.policy)
}

/// Every rule of a tree, by a change to it; `None` removes it.
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

/// The policy in which one rule in shadow is live besides, and the others in shadow are absent.
fn live_besides(document: &Json, root: &str) -> Json {
    with_rules(document, &mut |rule| {
        let mut rule = rule.clone();
        if id(&rule) == root {
            strip(&mut rule);
        }
        (!in_shadow(&rule)).then_some(rule)
    })
}

/// What stands in it in shadow is live with it.
fn strip(rule: &mut Json) {
    rule.as_object_mut().unwrap().remove("mode");
    if let Some(rules) = rule.get_mut("rules").and_then(Json::as_array_mut) {
        rules.iter_mut().for_each(strip);
    }
}

/// What a decision says, in words that two policies share.
fn said(policy: &Policy, decision: &Decision) -> Json {
    let cause = match decision.cause {
        Cause::Rule(rule) => policy.rule_id(rule),
        Cause::Default => None,
    };
    json!([decision.rejects(), decision.reason().as_str(), decision.stage.as_str(), cause, decision.logged])
}

/// A request under a policy, as the proxy judges it: stage by stage until the first rejection.
struct Judged {
    trail: Trail,
    decision: Decision,
    shadows: Shadows,
    last: PolicyStage,
}

/// `until` is the last stage that is run.
fn judge(policy: &Policy, facts: &Facts<'_>, until: PolicyStage) -> Judged {
    let connected = Facts { response: Fact::Unknown, document: Fact::Unknown, ..*facts };
    let asked = Facts { address: Fact::Unknown, ..connected };
    let answered = Facts { document: Fact::Unknown, ..*facts };
    let (trail, decision) = policy.request(&asked);
    let shadows = Shadows::of_request(policy, &asked);
    let mut judged = Judged { trail, decision, shadows, last: PolicyStage::Request };
    let Fact::Known(Some(address)) = facts.address else { panic!("no address") };
    if until >= PolicyStage::Destination && !judged.decision.rejects() {
        judged.shadows.addresses(policy, &asked, &[address], &judged.trail);
        judged.decision = policy.stage(&mut judged.trail, PolicyStage::Destination, &connected);
        judged.last = PolicyStage::Destination;
    }
    if until >= PolicyStage::Response && !judged.decision.rejects() {
        judged.shadows.stage(policy, PolicyStage::Response, &answered, &judged.trail);
        judged.decision = policy.stage(&mut judged.trail, PolicyStage::Response, &answered);
        judged.last = PolicyStage::Response;
    }
    judged
}

#[test]
fn rules_in_shadow_change_nothing_and_say_what_they_would() {
    let mut generator = Generator::new(5);
    let (mut policies, mut refused, mut roots, mut differing, mut admitting) =
        (0_u32, 0_u32, 0_u32, 0_u32, 0_u32);
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
        let absent = with_rules(&document, &mut |rule| (!in_shadow(rule)).then(|| rule.clone()));
        // A rule that would move its neighbours in a `match: first` list cannot be in shadow.
        let (Some(policy), Some(live)) = (compiled(&document), compiled(&absent)) else {
            refused += 1;
            continue;
        };
        policies += 1;
        let variants: Vec<(RuleIndex, Policy)> = policy
            .shadows()
            .iter()
            .map(|root| {
                let besides = live_besides(&document, policy.rule_id(*root).unwrap());
                (*root, compiled(&besides).unwrap_or_else(|| panic!("{besides:#}")))
            })
            .collect();
        for _ in 0..2 {
            let world = generator.world().to_json();
            let facts = CaseFacts::from_json(world.as_object().unwrap()).unwrap();
            facts.with_facts(|facts| {
                let judged = judge(&policy, facts, PolicyStage::Response);
                let without = judge(&live, facts, PolicyStage::Response);
                assert_eq!(
                    said(&policy, &judged.decision),
                    said(&live, &without.decision),
                    "{document:#}\n{world:#}"
                );
                assert_eq!(
                    policy.options_json(&judged.trail),
                    live.options_json(&without.trail),
                    "{document:#}"
                );
                for (root, besides) in &variants {
                    let expected = judge(besides, facts, judged.last);
                    let shadow = judged.shadows.iter().find(|shadow| shadow.root == *root);
                    let decision = shadow.map_or(&judged.decision, |shadow| &shadow.decision);
                    let name = policy.rule_id(*root);
                    assert_eq!(
                        said(&policy, decision),
                        said(besides, &expected.decision),
                        "{name:?} in shadow\n{document:#}\n{world:#}"
                    );
                    if let Some(shadow) = shadow {
                        let options = policy.options_json(shadow.trail());
                        assert_eq!(options, besides.options_json(&expected.trail), "{name:?}\n{document:#}");
                        let matched: BTreeSet<_> =
                            shadow.trail().matched().iter().map(|at| policy.rule_id(*at)).collect();
                        let wanted: BTreeSet<_> =
                            expected.trail.matched().iter().map(|at| besides.rule_id(*at)).collect();
                        assert_eq!(matched, wanted, "{name:?}\n{document:#}");
                    }
                    roots += 1;
                    differing += u32::from(decision.rejects() && !judged.decision.rejects());
                    admitting += u32::from(!decision.rejects() && judged.decision.rejects());
                }
            });
        }
    }
    println!(
        "{policies} policies ({refused} refused), {roots} shadows: {differing} refuse, {admitting} admit"
    );
    assert!(policies > 1_500 && roots > 3_000, "{policies} {roots}");
    assert!(differing > 100 && admitting > 40, "{differing} {admitting}");
}
