//! A policy that takes over parts of the previous one equals one that is loaded for the first time,
//! and rules on one line each mean the same as in any other layout.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use crawlgate_policy::internal::diagnostics::problem::Problem;
use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use crawlgate_policy::internal::policy::compile::{self, CompiledPolicy};
use crawlgate_policy::internal::policy::condition::{Atom, Condition};
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
    all.push(compiled.policy.name_and_revision());
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

/// A text that is edited: the lines before the rules, one text for each rule, and the lines after them.
#[derive(Clone)]
struct EditedText {
    before: Vec<String>,
    indent: usize,
    rules: Vec<String>,
    after: Vec<String>,
}

impl EditedText {
    /// Writes a policy, each rule in one of several layouts.
    fn new(document: &Json, random: &mut fastrand::Rng) -> Self {
        let mut text = Self {
            before: Vec::new(),
            indent: random.usize(..3),
            rules: Vec::new(),
            after: Vec::new(),
        };
        for (key, value) in document.as_object().unwrap() {
            if let (Json::Array(rules), "rules") = (value, key.as_str()) {
                text.rules = rules
                    .iter()
                    .map(|rule| text.write_rule(rule, random))
                    .collect();
            } else if random.bool() {
                text.before.push(format!("{key}: {value}"));
            } else {
                text.after.push(format!("{key}: {value}"));
            }
        }
        text
    }

    fn write_rule(&self, rule: &Json, random: &mut fastrand::Rng) -> String {
        let indent = " ".repeat(self.indent);
        let entries = rule.as_object().unwrap();
        match random.u8(..4) {
            0 => format!("{indent}- {rule}\n"),
            1 => format!("{indent}-   {}  # a rule\n\n", to_braces(rule)),
            // In flow style lines may break anywhere.
            2 => format!(
                "{indent}- {}\n",
                to_braces(rule).replace(", ", &format!(",\n{indent}   "))
            ),
            _ => {
                let lines: Vec<String> = entries
                    .iter()
                    .map(|(key, value)| format!("{key}: {}", to_braces(value)))
                    .collect();
                format!(
                    "{indent}- {}\n# the next\n",
                    lines.join(&format!("\n{indent}  "))
                )
            }
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.before {
            text.push_str(&format!("{line}\n"));
        }
        text.push_str(if self.rules.is_empty() {
            "rules: []\n"
        } else {
            "rules:\n"
        });
        self.rules.iter().for_each(|rule| text.push_str(rule));
        text.push_str(&self.after.join("\n"));
        text
    }

    /// Changes the text in one place.
    fn edit(&mut self, other: &Json, number: usize, random: &mut fastrand::Rng) {
        if self.rules.is_empty() {
            return;
        }
        let at = random.usize(..self.rules.len());
        let to = random.usize(..=self.rules.len());
        let indent = " ".repeat(self.indent);
        let another = match other["rules"].as_array().and_then(|rules| rules.first()) {
            Some(rule) => self.write_rule(rule, random),
            None => {
                format!("{indent}- {{ id: other{number}, forbid: {{ host: other.example }} }}\n")
            }
        };
        match random.u8(..17) {
            0 => drop(self.rules.remove(at)),
            1 => self.rules[at] = another,
            2 => self.rules.insert(to, another),
            3 => {
                let moved = self.rules.remove(at);
                self.rules.insert(to.min(self.rules.len()), moved);
            }
            // Rules without an id are named by their positions.
            4 => self.rules.insert(to, format!("{indent}- forbid: {{ host: nameless.example }}\n")),
            // Twice the same id.
            5 => self.rules.insert(to, self.rules[at].clone()),
            6 => self.rules.insert(0, format!("{indent}# a comment\n")),
            7 => self.rules[at].push_str("\n   # another\n\n"),
            8 => self.rules.insert(to, format!("{indent}- &a {{ forbid: {{ host: a{number}.example }} }}\n")),
            9 => self.rules.insert(to, format!("{indent}- *a\n")),
            // Lines that look like rules.
            10 => self.rules.insert(
                to,
                format!("{indent}- forbid: {{ host: b.example }}\n{indent}  about: \"x\n\n{indent}   - y\n{indent}   \"\n"),
            ),
            11 => self.rules.insert(
                to,
                format!("{indent}- about: |\n{indent}    x\n\n{indent}    - y\n{indent}  forbid: {{ host: c.example }}\n"),
            ),
            12 => self.rules.insert(
                to,
                format!("{indent}- {{ forbid: {{ host: d.example }}, about: 'x\n{indent}- y' }}\n"),
            ),
            13 => self.before.push(format!("# {number}")),
            14 => self.before.retain(|line| !line.starts_with('#')),
            15 => self.edit_lists(),
            _ => self.after.insert(
                0,
                format!("cases: [{{ url: 'http://x{number}.example/', expect: {{ rule: nobody }} }}]"),
            ),
        }
    }
}

impl EditedText {
    /// Adds a list before all others, or removes it.
    fn edit_lists(&mut self) {
        let mut lines = self.before.iter_mut().chain(&mut self.after);
        let Some(line) = lines.find(|line| line.starts_with("lists: ")) else {
            return;
        };
        let mut lists: Json = serde_json::from_str(line.trim_start_matches("lists: ")).unwrap();
        let lists_by_name = lists.as_object_mut().unwrap();
        if lists_by_name.remove("aaa").is_none() {
            let list = serde_json::json!({ "kind": "hosts", "items": ["a.example"] });
            lists_by_name.insert("aaa".to_owned(), list);
        }
        *line = format!("lists: {lists}");
    }
}

fn first_atom(condition: &Condition) -> Option<&Arc<Atom>> {
    match condition {
        Condition::Always => None,
        Condition::All(parts) | Condition::Any(parts) => parts.iter().find_map(first_atom),
        Condition::Not(part) => first_atom(part),
        Condition::Atom(atom) => Some(atom),
    }
}

/// Returns the number of rules of which a test is that of the other policy.
fn count_taken_over(policy: &Policy, previous: &Policy) -> usize {
    let atoms = |policy: &Policy| -> BTreeMap<String, *const Atom> {
        let rules = policy.rules().iter();
        let atoms = rules.filter_map(|rule| {
            let atom = first_atom(rule.condition()?)?;
            Some((rule.id.to_string(), Arc::as_ptr(atom)))
        });
        atoms.collect()
    };
    let before = atoms(previous);
    let now = atoms(policy);
    now.iter()
        .filter(|(id, atom)| before.get(*id) == Some(*atom))
        .count()
}

#[test]
fn a_chain_of_reloads_equals_loads() {
    let mut generator = Generator::whole(23);
    let mut random = fastrand::Rng::with_seed(23);
    let (mut valid, mut taken_over) = (0, 0);
    for _ in 0..policies() / 40 {
        let document = generator.generate_policy().to_json();
        let mut edited = EditedText::new(&document, &mut random);
        let mut active = load(&edited.text(), None).ok();
        for number in 0..6 {
            let last = edited.clone();
            let other = generator.generate_policy().to_json();
            for _ in 0..=random.usize(..2) {
                edited.edit(&other, number, &mut random);
            }
            let text = edited.text();
            let requests: Vec<Json> = (0..4).map(|_| generator.world().to_json()).collect();
            let first = load(&text, None);
            let again = load(&text, active.as_ref().map(|active| &active.policy));
            let exactly = |problem: &Problem| problem.render();
            assert_eq!(
                shown(&again, &requests, exactly),
                shown(&first, &requests, exactly),
                "{}\n---\n{text}",
                last.text()
            );
            if let (Ok(again), Ok(first)) = (&again, &first) {
                assert_eq!(again.rule_places, first.rule_places, "{text}");
                assert_eq!(again.named_crawlers, first.named_crawlers, "{text}");
                assert_eq!(
                    debug(&again.policy.rules()),
                    debug(&first.policy.rules()),
                    "{text}"
                );
                valid += 1;
            }
            match again {
                Ok(again) => {
                    if let Some(active) = &active {
                        taken_over += count_taken_over(&again.policy, &active.policy);
                    }
                    active = Some(again);
                }
                // Most mistakes stay in the text.
                Err(_) => edited = last,
            }
        }
    }
    println!("{valid} valid reloads took over {taken_over} rules");
    assert!(valid > policies() / 20 && taken_over as u64 > policies() / 20);
}
