//! A decision written as a case passes under the policy that made it, whatever its facts.

use crawlgate::diagnostics::problem::Problem;
use crawlgate::model::profile::Profile;
use crawlgate::pipeline::offline_evaluation::{OfflineEvaluation, run_case};
use crawlgate::policy::cases::CaseFacts;
use crawlgate::policy::compile::{self, CompiledPolicy};
use crawlgate::policy::source::MemoryFileSystem;
use crawlgate::report::case;
use fastrand::Rng;
use serde_json::{Value as Json, json};

use crate::property::generate::Generator;

const POLICIES: usize = 300;
/// Characters with a meaning in YAML or JSON.
const ODD: [&str; 28] = [
    "a",
    "Z",
    "0",
    " ",
    "  ",
    "\"",
    "'",
    "\\",
    ": ",
    " #",
    "- ",
    "{",
    "}",
    "[",
    ",",
    "&",
    "*",
    "!",
    "|",
    "%",
    "@",
    "\n",
    "\t",
    "\0",
    "\u{7f}",
    "\u{85}\u{2028}\u{feff}",
    "é",
    "\u{1f600}\u{202e}",
];

fn load(document: &Json, cases: &str) -> Result<CompiledPolicy, Vec<Problem>> {
    let head = document
        .as_object()
        .unwrap()
        .iter()
        .map(|(key, value)| format!("{key}: {value}\n"));
    let text = format!("{}cases:\n{cases}", head.collect::<String>());
    let cases = if cases.is_empty() {
        text.replace("cases:\n", "")
    } else {
        text
    };
    compile::load(
        &MemoryFileSystem::new().with_file("p.yaml", cases),
        "p.yaml",
    )
}

#[test]
fn cases_pass_under_the_policy_that_they_were_made_by() {
    let mut generator = Generator::whole(7);
    for _ in 0..POLICIES {
        let document = generator.generate_policy().to_json();
        let Ok(policy) = load(&document, "") else {
            panic!("{document}")
        };
        let mut cases = String::new();
        for _ in 0..4 {
            let mut given = generator.world().to_json();
            oddities(&mut given, &mut generator.rng);
            let profile = Profile::ALL.get(generator.rng.usize(..20)).copied();
            let given = given.as_object().unwrap();
            let facts = CaseFacts::from_json(given).unwrap();
            let trial =
                OfflineEvaluation::new(&policy.policy, &facts, profile.unwrap_or(Profile::Generic));
            cases.push_str(&case::to_yaml(&trial, given, profile));
        }
        let again = load(&document, &cases);
        let again = again.unwrap_or_else(|problems| panic!("{problems:#?}\n{cases}\n{document}"));
        for case in &again.cases {
            let passed = run_case(&again.policy, case);
            assert!(
                passed.is_ok(),
                "{:#?}\n{cases}\n{document}",
                passed.unwrap_err().mismatches
            );
        }
    }
}

/// Texts that look like other types, in facts that accept any text.
fn oddities(facts: &mut Json, rng: &mut Rng) {
    fn odd(rng: &mut Rng) -> String {
        (0..rng.usize(1..6))
            .map(|_| ODD[rng.usize(..ODD.len())])
            .collect::<String>()
    }
    if rng.bool() {
        facts["referer"] = odd(rng).into();
    }
    if rng.u8(..4) == 0 {
        facts["crawler"] = odd(rng).into();
    }
    if !facts["status"].is_null() && rng.bool() {
        let long = "x".repeat(if rng.u8(..10) == 0 { 2_000 } else { 0 });
        facts["headers"] = json!({ odd(rng) + &long: odd(rng), "x-a": [odd(rng), "1"], "<<": "z" });
        facts["size"] = u64::MAX.into();
    }
}
