//! Arbitrary bytes as the files of a policy: they are a policy, or are refused with problems.

use std::collections::BTreeMap;

use crawlgate::diagnostics::problem::{Problem, SourceLocation};
use crawlgate::policy::compile::{self, CompiledPolicy};
use crawlgate::policy::coverage::Coverage;
use crawlgate::policy::source::MemoryFileSystem;

/// The parts of the input, each after a NUL: the policy, and lists that it may name.
const FILES: [&str; 4] = [
    "policy.yaml",
    "lists/one.txt",
    "lists/two.txt",
    "lists/three.gz",
];

/// Reads and compiles the input, and runs its cases.
pub(crate) fn run(input: &[u8]) {
    let parts = FILES
        .into_iter()
        .zip(input.splitn(FILES.len(), |byte| *byte == 0));
    let files: BTreeMap<&str, &[u8]> = parts.collect();
    let given = files
        .iter()
        .fold(MemoryFileSystem::new(), |given, (path, bytes)| {
            given.with_file(path, *bytes)
        });
    if let Some(compiled) = compiled(&given, &files) {
        ask(&compiled);
    }
}

fn compiled(given: &MemoryFileSystem, files: &BTreeMap<&str, &[u8]>) -> Option<CompiledPolicy> {
    let (compiled, problems) = match compile::load(given, FILES[0]) {
        Ok(compiled) => {
            assert!(
                !compiled.problems.iter().any(Problem::is_error),
                "a policy with errors"
            );
            assert_eq!(compiled.rule_places.len(), compiled.policy.rules().len());
            compiled
                .rule_places
                .iter()
                .for_each(|place| check_place(place, files));
            let problems = compiled.problems.clone();
            (Some(compiled), problems)
        }
        Err(problems) => {
            assert!(
                problems.iter().any(Problem::is_error),
                "refused without an error"
            );
            (None, problems)
        }
    };
    for problem in &problems {
        check_place(&problem.location, files);
        // The first problems suffice to test rendering.
        assert!(!problem.message.is_empty());
    }
    for problem in problems.iter().take(20) {
        let output = problem.to_string();
        assert!(!output.contains(|c: char| c.is_control()), "{output:?}");
        assert!(problem.to_json().is_object());
        assert!(!problem.render().is_empty());
    }
    compiled
}

/// A location is a file as a whole, or an existing line and column.
fn check_place(place: &SourceLocation, files: &BTreeMap<&str, &[u8]>) {
    let Some(bytes) = files.get(&*place.file) else {
        panic!("{place} is in no file of the policy")
    };
    if place.line == 0 {
        return assert_eq!(place.column, 0, "{place}");
    }
    // A compressed list has more lines than its bytes.
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // In YAML a carriage return ends a line, in lists it does not.
    let unix = text.replace("\r\n", "\n");
    fn holds(unix: &str, place: &SourceLocation, ends: &[char]) -> bool {
        let line = unix.split(ends).nth(place.line as usize - 1);
        line.is_some_and(|line| place.column as usize <= line.chars().count() + 1)
    }
    assert!(
        holds(&unix, place, &['\n']) || holds(&unix, place, &['\n', '\r']),
        "{place} is outside {text:?}"
    );
}

/// Runs the tools on a valid policy.
fn ask(compiled: &CompiledPolicy) {
    let policy = &compiled.policy;
    for case in compiled.cases.iter().take(20) {
        let facts = case.facts.facts();
        let (trail, decision) = policy.decide(&facts);
        let lines: Vec<_> = policy.explain_rules(&trail).take(200).collect();
        assert_eq!(lines.len(), policy.rules().len().min(200));
        assert!(policy.options_json(&trail).is_object());
        assert_eq!(
            decision,
            policy.decide(&facts).1,
            "the same facts, another decision"
        );
    }
    let share = Coverage::from_cases(policy, &compiled.cases[..compiled.cases.len().min(20)])
        .rule_ratio(policy);
    assert!(share.reached <= share.total);
}
