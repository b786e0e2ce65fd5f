//! A policy that takes over parts of the previous one equals one that is loaded for the first time,
//! and rules on one line each mean the same as in any other layout.

use std::fmt::Debug;

use crawlgate_policy::internal::diagnostics::problem::Problem;
use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use crawlgate_policy::internal::policy::compile::{self, CompiledPolicy};
use crawlgate_policy::internal::policy::source::MemoryFileSystem;
use serde_json::Value as Json;

use super::generate::Generator;
use super::{describe, policies};

/// Formats a value as YAML in braces. Names are written without quotes.
fn to_braces(value: &Json) -> String {
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase());
    match value {
        Json::Object(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{key}: {}", to_braces(value)))
                .collect();
            format!("{{ {} }}", entries.join(", "))
        }
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(to_braces).collect();
            format!("[{}]", items.join(", "))
        }
        Json::String(text) if is_plain(text) && !text.is_empty() && text != "null" => text.clone(),
        Json::String(text) => format!("'{}'", text.replace('\'', "''")),
        Json::Null | Json::Bool(_) | Json::Number(_) => value.to_string(),
    }
}

/// Formats a policy with one rule a line.
fn to_lines(document: &Json) -> String {
    let mut text = String::new();
    for (key, value) in document.as_object().unwrap() {
        if let Json::Array(rules) = value
            && key == "rules"
        {
            text.push_str("rules:\n");
            for rule in rules {
                text.push_str(&format!("  - {}\n", to_braces(rule)));
            }
        } else {
            text.push_str(&format!("{key}: {value}\n"));
        }
    }
    text
}

fn load(text: &str, previous: Option<&Policy>) -> Result<CompiledPolicy, Vec<Problem>> {
    let files = MemoryFileSystem::new().with_file("p", text);
    compile::load_again(&files, "p", previous)
}

/// Everything that a policy shows of itself and of its decisions.
fn shown(
    loaded: &Result<CompiledPolicy, Vec<Problem>>,
    requests: &[Json],
    of_problem: impl Fn(&Problem) -> String + Copy,
) -> Vec<String> {
    let compiled = match loaded {
        Ok(compiled) => compiled,
        Err(problems) => return problems.iter().map(of_problem).collect(),
    };
    let mut all: Vec<String> = compiled.problems.iter().map(of_problem).collect();
    all.extend(compiled.inert_rules.iter().map(of_problem));
    for facts in requests {
        let case = CaseFacts::from_json(facts.as_object().unwrap()).unwrap();
        let decided = case.with_facts(|facts| {
            let (trail, decision) = compiled.policy.decide(facts);
            let options = compiled.policy.options_json(&trail);
            debug(&(decision, trail.matched_rules(), options))
        });
        all.push(decided);
        all.push(describe(&compiled.policy, facts));
    }
    all
}

fn debug(value: &impl Debug) -> String {
    format!("{value:?}")
}

/// Changes one rule: removes it, doubles it under another name, or replaces it by one of another policy.
fn edit(document: &Json, other: &Json, generator: &mut Generator, number: usize) -> Json {
    let mut edited = document.clone();
    let Some(rules) = edited["rules"]
        .as_array_mut()
        .filter(|rules| !rules.is_empty())
    else {
        return other.clone();
    };
    let at = number % rules.len();
    match number % 3 {
        0 => {
            rules.remove(at);
        }
        1 => {
            let mut copy = rules[at].clone();
            copy["id"] = generator.id().into();
            rules.insert(at, copy);
        }
        _ => {
            if let Some(rule) = other["rules"].as_array().and_then(|rules| rules.first()) {
                rules[at] = rule.clone();
            }
        }
    }
    edited
}

#[test]
fn a_reload_equals_a_load() {
    let mut generator = Generator::whole(22);
    let (mut valid, mut changed) = (0, 0);
    for number in 0..policies() / 10 {
        let before = generator.generate_policy().to_json();
        let other = generator.generate_policy().to_json();
        let number = usize::try_from(number).unwrap();
        let after = edit(&before, &other, &mut generator, number);
        let requests: Vec<Json> = (0..8).map(|_| generator.world().to_json()).collect();

        let old = load(&to_lines(&before), None);
        let previous = old.as_ref().ok().map(|old| &old.policy);
        let text = to_lines(&after);
        let first = load(&text, None);
        let again = load(&text, previous);
        let exactly = |problem: &Problem| problem.render();
        let shown_first = shown(&first, &requests, exactly);
        assert_eq!(shown(&again, &requests, exactly), shown_first, "{text}");
        changed += u32::from(shown(&old, &requests, exactly) != shown_first);
        valid += u32::from(first.is_ok());

        // One line has other places.
        let without_place = |problem: &Problem| debug(&(problem.severity, &problem.rule));
        let in_one_line = load(&after.to_string(), None);
        assert_eq!(
            shown(&in_one_line, &requests, without_place).len(),
            shown(&first, &requests, without_place).len(),
            "{text}"
        );
        if let (Ok(first), Ok(in_one_line)) = (&first, &in_one_line) {
            let decisions = |compiled: &CompiledPolicy| -> Vec<String> {
                requests
                    .iter()
                    .map(|facts| describe(&compiled.policy, facts))
                    .collect()
            };
            assert_eq!(decisions(first), decisions(in_one_line), "{text}");
        }
    }
    println!("{valid} valid policies, {changed} of the changes have an effect");
    assert!(u64::from(valid) > policies() / 20 && u64::from(changed) > policies() / 50);
}
