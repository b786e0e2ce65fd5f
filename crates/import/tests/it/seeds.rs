//! Support of the tests of Velocity, WebCopy, CloudView and OmniFind.

use std::fs;
use std::path::{Path, PathBuf};

use crawlgate_import::{Import, ReportList, System, import};
use crawlgate_policy::MemoryFileSystem;
use crawlgate_policy::internal::policy::cases::ExpectedVerdict;
use crawlgate_policy::internal::policy::compile;
use crawlgate_policy::internal::policy::decide::Cause;

use super::support::{Directory, compiled, read_command};

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Imports a source of `tests/import`.
pub(super) fn import_fixture(system: System, name: &str) -> Import {
    let directory = root().join("tests/import").join(system.name()).join(name);
    let words = fs::read_to_string(directory.join("command")).unwrap();
    let files = Directory(directory);
    import(system, &read_command(&files, &words)).unwrap()
}

/// Compares an imported policy with the cases of a worked example. Those that name one of the skipped rules are about
/// something that the system's configuration cannot say.
pub(super) fn check_worked_example(imported: &Import, system: System, skipped: &[&str]) {
    let path = root().join(format!("config/policies/{}.yaml", system.name()));
    let text = fs::read(path).unwrap();
    let files = MemoryFileSystem::new().with_file("policy.yaml", text);
    let example = compile::load(&files, "policy.yaml").unwrap();
    let policy = compiled(imported);
    let mut compared = 0;
    for case in &example.cases {
        let facts = case.facts.facts();
        let (_, expected) = example.policy.decide_every_rule(&facts);
        let cause = format!("{:?} {:?}", case.expect, expected.reason());
        if skipped.iter().any(|skipped| cause.contains(skipped)) {
            continue;
        }
        let (trail, decision) = policy.decide_every_rule(&facts);
        assert_eq!(
            decision.rejects(),
            case.expect.verdict == ExpectedVerdict::Reject,
            "{case:?}\n{}",
            imported.files["policy.yaml"]
        );
        if let Some(code) = case.expect.code {
            let refusal = policy.refusal(&trail, &decision);
            assert_eq!(refusal.code, Some(code), "{case:?}");
        }
        compared += 1;
    }
    assert!(compared >= 8, "{compared}");
}

/// Compares an imported policy with the worked example that it was made of, on the requests of all policies in
/// `tests/policies`, and returns their number. Those that one of the skipped rules of the example decides are about
/// something that the system's configuration cannot say.
pub(super) fn check_requests_of_policies(
    imported: &Import,
    system: System,
    skipped: &[&str],
) -> usize {
    let policy = compiled(imported);
    let example = root().join(format!("config/policies/{}.yaml", system.name()));
    let example = load_policy(&example).unwrap().policy;
    let directory = root().join("tests/policies").join(system.name());
    let paths = fs::read_dir(directory)
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut compared = 0;
    for path in paths.filter(|path| path.extension().is_some_and(|it| it == "yaml")) {
        // Some policies there must be refused.
        for case in load_policy(&path).into_iter().flat_map(|it| it.cases) {
            let facts = case.facts.facts();
            let (_, expected) = example.decide_every_rule(&facts);
            if let Cause::Rule(rule) = expected.cause
                && skipped.contains(&example.rule(rule).unwrap().id.as_str())
            {
                continue;
            }
            let (_, decision) = policy.decide_every_rule(&facts);
            assert_eq!(
                decision.rejects(),
                expected.rejects(),
                "{}: {case:?}\n{expected:?}",
                path.display()
            );
            compared += 1;
        }
    }
    compared
}

fn load_policy(path: &Path) -> Option<compile::CompiledPolicy> {
    let text = fs::read(path).unwrap();
    let files = MemoryFileSystem::new().with_file("policy.yaml", text);
    compile::load(&files, "policy.yaml").ok()
}

/// Returns the reasons why parts are not converted, each with the way in which the policy fails without it.
pub(super) fn not_converted(imported: &Import) -> Vec<String> {
    let parts = imported.report.list(ReportList::NotConverted);
    let sentences = parts.map(|part| format!("{} {:?}", part.text, part.outcome().unwrap()));
    sentences.collect()
}

/// Returns the number of elements and attributes of a document, counted without a parser of XML.
pub(super) fn count_xml_parts(text: &str) -> usize {
    let mut count = 0;
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        rest = &rest[at..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = &comment[comment.find("-->").unwrap() + 3..];
            continue;
        }
        let end = rest.find('>').unwrap();
        let tag = &rest[..end];
        rest = &rest[end..];
        if tag.starts_with("</") || tag.starts_with("<?") {
            continue;
        }
        count += 1;
        // Outside of quotes each `=` is that of an attribute; declarations of namespaces are none.
        for (at, piece) in tag.split('"').enumerate() {
            let name = piece.trim().trim_end_matches('=').trim();
            let is_attribute = at % 2 == 0 && piece.trim_end().ends_with('=');
            let name = name.rsplit(char::is_whitespace).next().unwrap();
            let declares = name == "xmlns" || name.starts_with("xmlns:");
            count += usize::from(is_attribute && !declares);
        }
    }
    count
}

/// Takes each piece between two marks out of a text, and returns what is left.
pub(super) fn without_each(text: &str, begin: &str, end: &str) -> Vec<String> {
    let mut results = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find(begin) {
        let start = from + at;
        let stop = start + text[start..].find(end).unwrap() + end.len();
        results.push(format!("{}{}", &text[..start], &text[stop..]));
        from = stop;
    }
    results
}

/// Values that a host, a path or a URL cannot be, or that have a meaning elsewhere.
const STRANGE: [&str; 22] = [
    "a b",
    "a..b",
    ".a.test",
    "a.test.",
    "-",
    "*",
    "**",
    "a_b.test",
    "bücher.test",
    "xn--bcher-kva.test",
    "[::1]",
    "1.2.3",
    "256.1.1.1",
    "a:80",
    "%zz",
    "a%2Fb",
    "http://",
    "http:///a",
    "http://a b/",
    "https://a.test:443/",
    "http://a.test:99999/",
    "{x: [y]} # z",
];

/// Imports each strange value. It is converted, or named; the policy is never invalid.
pub(super) fn check_strange_values(system: System, text: impl Fn(&str) -> String) {
    let mut failed = Vec::new();
    for value in STRANGE {
        let text = text(value);
        let files = MemoryFileSystem::new().with_file("source", text.as_bytes());
        let input = crawlgate_import::ImportInput::new(&files, ["source"]);
        match import(system, &input) {
            Ok(imported) if imported.divergences.is_empty() => {}
            Ok(imported) => failed.push(format!("{text}: {:?}", imported.divergences)),
            Err(error @ crawlgate_import::ImportError::Defect(_)) => {
                failed.push(format!("{text}: {error}"));
            }
            Err(_) => {}
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
