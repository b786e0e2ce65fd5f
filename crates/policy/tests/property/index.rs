//! Decisions by the index equal those by every rule.

use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use crawlgate_policy::internal::policy::decide::Decision;
use crawlgate_policy::internal::policy::options::OptionSetter;
use crawlgate_policy::internal::policy::rule::RuleIndex;
use crawlgate_policy::internal::policy::trail::Trail;
use serde_json::Value as Json;

use super::generate::Generator;
use super::{compiled, policies};

/// The result of an evaluation.
#[derive(Debug, PartialEq)]
struct Effect {
    decision: Decision,
    matched: Vec<RuleIndex>,
    options: Vec<(Json, OptionSetter)>,
}

impl Effect {
    fn new(policy: &Policy, (trail, decision): &(Trail, Decision)) -> Self {
        Self {
            decision: *decision,
            matched: trail.matched_rules().to_vec(),
            options: policy
                .explain_options(trail)
                .map(|option| (option.value.to_json(), option.set_by))
                .collect(),
        }
    }
}

/// The numbers of rules that were evaluated.
#[derive(Debug, Default)]
struct Evaluated {
    pairs: u64,
    with_index: usize,
    every: usize,
}

impl Evaluated {
    fn compare(&mut self, policy: &Policy, document: &Json, facts: &Json) {
        let case = CaseFacts::from_json(facts.as_object().unwrap()).unwrap();
        case.with_facts(|request| {
            let indexed = policy.decide(request);
            let plain = policy.decide_every_rule(request);
            assert_eq!(
                Effect::new(policy, &indexed),
                Effect::new(policy, &plain),
                "{document:#}\n{facts:#}"
            );
            self.pairs += 1;
            self.with_index += indexed.0.evaluated_rule_count();
            self.every += plain.0.evaluated_rule_count();
        });
    }
}

/// URLs are made of the words of the rules, so that conditions hold about as often as not; some have
/// another host.
#[test]
fn decisions_by_the_index_equal_those_by_every_rule() {
    let mut evaluated = Evaluated::default();
    let mut generators = [Generator::whole(5), Generator::requests(6)];
    for round in 0..policies() / 4 {
        let generator = &mut generators[usize::from(round % 2 == 1)];
        let document = generator.generate_policy().to_json();
        let policy = compiled(&document);
        for _ in 0..10 {
            let elsewhere = generator.world_on("https", "c.example", 443);
            for world in [generator.world(), elsewhere] {
                evaluated.compare(&policy, &document, &world.to_json());
            }
        }
    }
    println!("{evaluated:?}");
    assert!(
        evaluated.with_index * 10 < evaluated.every * 9,
        "the index rules out too little"
    );
}
