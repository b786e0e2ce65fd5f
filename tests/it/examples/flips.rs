//! The cases of a worked example notice when the sense of any one rule is turned round.

use std::path::Path;
use std::sync::Arc;

use crawlgate::diagnostics::problem::SourceLocation;
use crawlgate::diagnostics::problems::Problems;
use crawlgate::policy::source::MemoryFileSystem;
use crawlgate::yaml::{Node, YamlValue, parse};

use super::{compiled, compiled_file, failing, worked_examples};

/// A key of a rule and the one that says the opposite.
const OPPOSITES: [(&str, &str); 4] = [
    ("when", "unless"),
    ("unless", "when"),
    ("forbid", "require"),
    ("require", "forbid"),
];

/// Where a rule's sense is written, and what the opposite is.
struct Sense {
    place: SourceLocation,
    word: &'static str,
    opposite: &'static str,
}

/// The senses of all rules of a document, those of spaces and of the global space too.
fn senses(document: &Node) -> Vec<Sense> {
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

fn collect(rules: Option<&Node>, found: &mut Vec<Sense>) {
    for rule in items(rules) {
        let YamlValue::Mapping(entries) = &rule.value else {
            continue;
        };
        for entry in entries {
            let opposite = OPPOSITES.iter().find(|(word, _)| *word == &*entry.key.text);
            let sense = |&(word, opposite): &(_, _)| Sense {
                place: entry.key.place.clone(),
                word,
                opposite,
            };
            found.extend(opposite.map(sense));
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

/// The text with one sense turned round.
fn flipped(text: &str, sense: &Sense) -> String {
    let (line, column) = (
        sense.place.line as usize - 1,
        sense.place.column as usize - 1,
    );
    let mut lines: Vec<String> = text.split('\n').map(String::from).collect();
    let (before, rest): (String, String) = (
        lines[line].chars().take(column).collect(),
        lines[line].chars().skip(column).collect(),
    );
    let after = rest
        .strip_prefix(sense.word)
        .expect("the word stands at its place");
    lines[line] = format!("{before}{}{after}", sense.opposite);
    lines.join("\n")
}

/// The places at which turning the sense round goes unnoticed.
fn unnoticed(path: &Path) -> Vec<SourceLocation> {
    let text = std::fs::read_to_string(path).unwrap();
    let document = parse(&Arc::from("policy.yaml"), &text, &mut Problems::new()).unwrap();
    let senses = senses(&document);
    let compiled_rules = compiled_file(path).unwrap().policy.rules().len();
    assert!(
        senses.len() * 2 > compiled_rules,
        "{}: {} senses",
        path.display(),
        senses.len()
    );
    let goes_unnoticed = |sense: &&Sense| {
        let files = MemoryFileSystem::new().with_file("policy.yaml", flipped(&text, sense));
        let changed = compiled(&files, "policy.yaml")
            .unwrap_or_else(|said| panic!("{}: {said}", path.display()));
        failing(&changed).is_empty()
    };
    senses
        .iter()
        .filter(goes_unnoticed)
        .map(|sense| sense.place.clone())
        .collect()
}

#[test]
fn turning_any_rule_of_a_worked_example_round_fails_a_case() {
    for path in worked_examples() {
        let places: Vec<String> = unnoticed(&path).iter().map(ToString::to_string).collect();
        assert!(
            places.is_empty(),
            "{}: no case notices {}",
            path.display(),
            places.join(", ")
        );
    }
}
