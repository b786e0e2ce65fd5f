//! The cases of a worked example fail if the condition of any one rule is negated.

use std::path::Path;
use std::sync::Arc;

use crawlgate::diagnostics::problem::SourceLocation;
use crawlgate::diagnostics::problems::Problems;
use crawlgate::policy::source::MemoryFileSystem;
use crawlgate::yaml::{Node, YamlValue, parse};

use super::{compiled, compiled_file, failing, worked_examples};

/// The keys of conditions, each with its opposite.
const OPPOSITES: [(&str, &str); 4] = [
    ("when", "unless"),
    ("unless", "when"),
    ("forbid", "require"),
    ("require", "forbid"),
];

/// The key of a condition in the text of a policy.
struct ConditionKey {
    place: SourceLocation,
    word: &'static str,
    opposite: &'static str,
}

/// Returns the condition keys of all rules of a document, including those of spaces and of the global space.
fn condition_keys(document: &Node) -> Vec<ConditionKey> {
    let mut found = vec![];
    collect(document.get("rules"), &mut found);
    for space in items(document.get("spaces")) {
        collect(space.get("rules"), &mut found);
    }
    collect(
        document
            .get("global_space")
            .and_then(|global| global.get("rules")),
        &mut found,
    );
    found
}

fn collect(rules: Option<&Node>, found: &mut Vec<ConditionKey>) {
    for rule in items(rules) {
        let YamlValue::Mapping(entries) = &rule.value else {
            continue;
        };
        for entry in entries {
            for (word, opposite) in OPPOSITES {
                if word == &*entry.key.text {
                    found.push(ConditionKey {
                        place: entry.key.place.clone(),
                        word,
                        opposite,
                    });
                }
            }
        }
        collect(rule.get("rules"), found);
    }
}

fn items(node: Option<&Node>) -> &[Node] {
    match node.map(|node| &node.value) {
        Some(YamlValue::Sequence(items)) => items,
        _ => &[],
    }
}

/// Replaces a condition key with its opposite.
fn negated(text: &str, key: &ConditionKey) -> String {
    let line = key.place.line as usize - 1;
    let column = key.place.column as usize - 1;
    let mut lines: Vec<String> = text.split('\n').map(String::from).collect();
    let before: String = lines[line].chars().take(column).collect();
    let rest: String = lines[line].chars().skip(column).collect();
    let after = rest
        .strip_prefix(key.word)
        .expect("the key is at its location");
    lines[line] = format!("{before}{}{after}", key.opposite);
    lines.join("\n")
}

/// Returns the locations of the conditions that can be negated without a failing case.
fn undetected_negations(path: &Path) -> Vec<SourceLocation> {
    let text = std::fs::read_to_string(path).unwrap();
    let document = parse(
        &Arc::from("policy.yaml"),
        text.as_str(),
        &mut Problems::new(),
    )
    .unwrap();
    let keys = condition_keys(&document);
    let compiled_rules = compiled_file(path).unwrap().policy.rules().len();
    assert!(
        keys.len() * 2 > compiled_rules,
        "{}: {} conditions",
        path.display(),
        keys.len()
    );
    let mut undetected = vec![];
    for key in keys {
        let files = MemoryFileSystem::new().with_file("policy.yaml", negated(&text, &key));
        let changed = compiled(&files, "policy.yaml")
            .unwrap_or_else(|errors| panic!("{}: {errors}", path.display()));
        if failing(&changed).is_empty() {
            undetected.push(key.place);
        }
    }
    undetected
}

#[test]
fn negating_any_condition_of_a_worked_example_fails_a_case() {
    for path in worked_examples() {
        let places: Vec<String> = undetected_negations(&path)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert!(
            places.is_empty(),
            "{}: no case fails if these conditions are negated: {}",
            path.display(),
            places.join(", ")
        );
    }
}
