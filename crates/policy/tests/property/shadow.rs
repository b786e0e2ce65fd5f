//! Shadow rules do not change decisions, and their own decisions are those of the policy in which
//! they are enforced.

use std::collections::BTreeSet;

use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use crawlgate_policy::internal::policy::decide::{Cause, Decision};
use crawlgate_policy::internal::policy::fact::{Fact, Facts};
use crawlgate_policy::internal::policy::rule::{PolicyStage, RuleIndex};
use crawlgate_policy::internal::policy::shadow::ShadowDecisions;
use crawlgate_policy::internal::policy::trail::Trail;
use crawlgate_policy::load;
use serde_json::{Value as Json, json};

use super::generate::Generator;

const POLICIES: u64 = 1_000;

fn compiled(document: &Json) -> Option<Policy> {
    Some(load(&document.to_string()).ok()?.policy)
}

/// Changes every rule of a tree; `None` removes it.
fn map_rules(rules: &Json, change: &mut dyn FnMut(&Json) -> Option<Json>) -> Json {
    let mut list = Vec::new();
    for rule in rules.as_array().unwrap() {
        let Some(mut rule) = change(rule) else {
            continue;
        };
        if let Some(inner) = rule.get("rules").cloned() {
            rule["rules"] = map_rules(&inner, change);
        }
        list.push(rule);
    }
    Json::Array(list)
}

fn with_rules(document: &Json, change: &mut dyn FnMut(&Json) -> Option<Json>) -> Json {
    let mut other = document.clone();
    other["rules"] = map_rules(&document["rules"], change);
    other
}

fn id(rule: &Json) -> &str {
    rule["id"].as_str().unwrap()
}

fn in_shadow(rule: &Json) -> bool {
    rule.get("mode").is_some()
}

/// Returns the policy in which one shadow rule is enforced, without the other shadow rules.
fn enforcing_only(document: &Json, root: &str) -> Json {
    with_rules(document, &mut |rule| {
        let mut rule = rule.clone();
        if id(&rule) == root {
            remove_mode(&mut rule);
        }
        (!in_shadow(&rule)).then_some(rule)
    })
}

/// Enforces a rule and the shadow rules in it.
fn remove_mode(rule: &mut Json) {
    rule.as_object_mut().unwrap().remove("mode");
    if let Some(rules) = rule.get_mut("rules").and_then(Json::as_array_mut) {
        rules.iter_mut().for_each(remove_mode);
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
    let destination_facts = Facts {
        response: Fact::Unknown,
        document: Fact::Unknown,
        ..*facts
    };
    let request_facts = Facts {
        address: Fact::Unknown,
        ..destination_facts
    };
    let response_facts = Facts {
        document: Fact::Unknown,
        ..*facts
    };
    let (trail, decision) = policy.decide_request(&request_facts);
    let shadows = ShadowDecisions::for_request(policy, &request_facts);
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
            .decide_addresses(policy, &request_facts, &[address], &evaluated.trail);
        evaluated.decision = policy.decide_stage(
            &mut evaluated.trail,
            PolicyStage::Destination,
            &destination_facts,
        );
        evaluated.last = PolicyStage::Destination;
    }
    if until >= PolicyStage::Response && !evaluated.decision.rejects() {
        evaluated.shadows.decide_stage(
            policy,
            PolicyStage::Response,
            &response_facts,
            &evaluated.trail,
        );
        evaluated.decision =
            policy.decide_stage(&mut evaluated.trail, PolicyStage::Response, &response_facts);
        evaluated.last = PolicyStage::Response;
    }
    evaluated
}

/// The numbers of tested policies and decisions.
#[derive(Debug, Default)]
struct ShadowCoverage {
    policies: u32,
    invalid: u32,
    shadows: u32,
    rejecting: u32,
    admitting: u32,
}

/// A policy with shadow rules, the policy without them, and for each shadow rule the policy in
/// which it is enforced.
struct Policies {
    policy: Policy,
    without: Policy,
    enforced: Vec<(RuleIndex, Policy)>,
    document: Json,
}

impl Policies {
    /// Returns `None` if a shadow rule would change its neighbours in a `match: first` list, which
    /// is an error.
    fn new(document: Json) -> Option<Self> {
        let absent = with_rules(&document, &mut |rule| {
            (!in_shadow(rule)).then(|| rule.clone())
        });
        let policy = compiled(&document)?;
        let without = compiled(&absent)?;
        let enforced = policy.shadow_rules().iter().map(|root| {
            let enforced = enforcing_only(&document, policy.rule_id(*root).unwrap());
            (
                *root,
                compiled(&enforced).unwrap_or_else(|| panic!("{enforced:#}")),
            )
        });
        Some(Self {
            enforced: enforced.collect(),
            policy,
            without,
            document,
        })
    }

    fn check(&self, facts: &Facts<'_>, coverage: &mut ShadowCoverage) {
        let policy = &self.policy;
        let evaluated = evaluate(policy, facts, PolicyStage::Response);
        let without = evaluate(&self.without, facts, PolicyStage::Response);
        assert_eq!(
            comparable(policy, &evaluated.decision),
            comparable(&self.without, &without.decision),
            "{:#}\n{facts:#?}",
            self.document
        );
        assert_eq!(
            policy.options_json(&evaluated.trail),
            self.without.options_json(&without.trail),
            "{:#}\n{facts:#?}",
            self.document
        );
        for (root, enforced) in &self.enforced {
            let expected = evaluate(enforced, facts, evaluated.last);
            let shadow = evaluated.shadows.iter().find(|shadow| shadow.root == *root);
            let (trail, decision) = shadow
                .map_or((&evaluated.trail, &evaluated.decision), |shadow| {
                    (shadow.trail(), &shadow.decision)
                });
            let actual = (
                comparable(policy, decision),
                policy.options_json(trail),
                matched_ids(policy, trail),
            );
            let expected = (
                comparable(enforced, &expected.decision),
                enforced.options_json(&expected.trail),
                matched_ids(enforced, &expected.trail),
            );
            assert_eq!(
                actual,
                expected,
                "{:?} in shadow\n{:#}\n{facts:#?}",
                policy.rule_id(*root),
                self.document
            );
            coverage.shadows += 1;
            coverage.rejecting += u32::from(decision.rejects() && !evaluated.decision.rejects());
            coverage.admitting += u32::from(!decision.rejects() && evaluated.decision.rejects());
        }
    }
}

fn matched_ids<'p>(policy: &'p Policy, trail: &Trail) -> BTreeSet<Option<&'p str>> {
    trail
        .matched_rules()
        .iter()
        .map(|rule| policy.rule_id(*rule))
        .collect()
}

#[test]
fn shadow_rules_change_nothing_and_decide_as_if_enforced() {
    let mut generator = Generator::new(5);
    let mut coverage = ShadowCoverage::default();
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
        let Some(policies) = Policies::new(document) else {
            coverage.invalid += 1;
            continue;
        };
        coverage.policies += 1;
        for _ in 0..2 {
            let world = generator.world().to_json();
            let facts = CaseFacts::from_json(world.as_object().unwrap()).unwrap();
            facts.with_facts(|facts| policies.check(facts, &mut coverage));
        }
    }
    println!("{coverage:?}");
    assert!(
        coverage.policies > 700 && coverage.shadows > 1_300,
        "{coverage:?}"
    );
    assert!(
        coverage.rejecting > 40 && coverage.admitting > 15,
        "{coverage:?}"
    );
}
