//! `Crawl-Status` uses the status words of the Norconex chart: each case has the status that its source names.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crawlgate::diagnostics::problems::Problems;
use crawlgate::model::reason::Reason;
use crawlgate::policy::cases::FACT_KEYS;
use crawlgate::yaml::{Node, YamlValue, parse};
use serde_json::{Map, Value as Json};

use super::sources::Comments;
use super::{is_refused, policies_of};
use crate::support::command::crawlgate;

/// Statuses of responses of the origin, which have no reason.
const OF_ORIGINS: [&str; 2] = ["REJECTED_NOTFOUND", "REJECTED_BAD_STATUS"];
/// Statuses that need a ledger.
const OF_THE_LEDGER: [&str; 3] = [
    "REJECTED_PREMATURE",
    "REJECTED_UNMODIFIED",
    "REJECTED_DUPLICATE",
];

/// Returns the cases of a policy as YAML.
fn cases(path: &Path) -> Vec<Node> {
    let text = fs::read_to_string(path).unwrap();
    let document = parse(
        &Arc::from("policy.yaml"),
        text.as_str(),
        &mut Problems::new(),
    )
    .unwrap();
    let Some(Node {
        value: YamlValue::Sequence(cases),
        ..
    }) = document.get("cases")
    else {
        panic!("no cases")
    };
    cases.clone()
}

/// Returns the facts of a case in the format of `decide`.
fn facts(case: &Node) -> Json {
    let facts = FACT_KEYS
        .iter()
        .filter_map(|key| Some((String::from(*key), json(case.get(key)?))));
    Json::Object(facts.collect::<Map<_, _>>())
}

fn json(node: &Node) -> Json {
    match &node.value {
        YamlValue::Null => Json::Null,
        YamlValue::Bool(value) => Json::from(*value),
        YamlValue::Int(number, _) => Json::from(*number),
        YamlValue::Float(number, _) => Json::from(*number),
        YamlValue::Text(text) => Json::from(&**text),
        YamlValue::Sequence(items) => items.iter().map(json).collect(),
        YamlValue::Mapping(entries) => entries
            .iter()
            .map(|e| (e.key.text.to_string(), json(&e.value)))
            .collect(),
    }
}

/// Returns the `Crawl-Status` of each case.
fn statuses(path: &Path, cases: &[Node]) -> Vec<String> {
    let input: String = cases
        .iter()
        .map(|case| format!("{}\n", facts(case)))
        .collect();
    let output = crawlgate(
        Path::new("."),
        &["decide", "--policy", path.to_str().unwrap()],
        input,
    );
    assert_eq!(output.code, 0, "{}: {}", path.display(), output.stderr);
    output
        .stdout
        .lines()
        .map(|line| {
            let decision: Json = serde_json::from_str(line).unwrap();
            decision["crawl_status"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[test]
fn a_case_has_the_status_word_of_its_source() {
    let mut checked = 0;
    for path in policies_of("norconex")
        .into_iter()
        .filter(|path| !is_refused(path))
    {
        let cases = cases(&path);
        let comments = Comments::of(&path);
        let text = fs::read_to_string(&path).unwrap();
        for (case, status) in cases.iter().zip(statuses(&path, &cases)) {
            let sources = comments.above(&text, case.place.line);
            let words = sources
                .iter()
                .map(|source| source.words.split(" #").next().unwrap_or_default());
            for word in words.filter(|word| word.starts_with("REJECTED_")) {
                assert_eq!(status, word, "{}:{}", path.display(), case.place.line);
                checked += 1;
            }
        }
    }
    assert!(checked >= 20, "{checked} status words");
}

#[test]
fn every_status_word_of_the_chart_is_known() {
    let index = fs::read_to_string("tests/policies/norconex/sentences.tsv").unwrap();
    fn known(word: &str) -> bool {
        Reason::ALL
            .iter()
            .any(|reason| reason.row().crawl_status.as_str() == word)
            || OF_ORIGINS.contains(&word)
            || OF_THE_LEDGER.contains(&word)
    }
    let words = index
        .lines()
        .filter_map(|line| line.split('\t').nth(1))
        .filter(|word| word.starts_with("REJECTED_"));
    let words: Vec<&str> = words.filter_map(|word| word.split(" #").next()).collect();
    assert!(words.len() >= 20, "{words:?}");
    let unknown: Vec<&&str> = words.iter().filter(|word| !known(word)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
