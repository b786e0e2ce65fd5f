//! The reader of test cases.

use serde_json::Value as Json;

use crate::diagnostics::problems::Problems;
use crate::model::intent::Intent;
use crate::model::profile::Profile;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::policy::cases::{Case, CaseFacts, Expectation, ExpectedVerdict, FACT_KEYS};
use crate::yaml::read::{self, MapReader, wrong_type};
use crate::yaml::{Node, YamlValue};

use super::option::read_options;

/// Reads a case; `None` if it has errors, which were reported.
pub(super) fn read_case(node: &Node, problems: &mut Problems) -> Option<Case> {
    let before = problems.len();
    let mut map = MapReader::open(node, "a case", problems)?;
    let facts = map
        .require("url", problems)
        .and_then(|url| read_facts(url, &mut map, problems));
    let profile = map.take("profile").and_then(|node| {
        read::word(
            node,
            &Profile::ALL.map(Profile::as_str),
            Profile::from_word,
            problems,
        )
    });
    let expect = map
        .require("expect", problems)
        .and_then(|node| read_expect(node, &mut map, problems));
    map.finish(problems);
    let (facts, expect) = (facts?, expect?);
    let profile = profile.unwrap_or(Profile::Generic);
    (problems.len() == before).then(|| Case {
        place: node.place.clone(),
        facts,
        profile,
        expect,
    })
}

fn read_facts(url: &Node, map: &mut MapReader<'_>, problems: &mut Problems) -> Option<CaseFacts> {
    let mut facts = match CaseFacts::for_url(read::spelling(url, problems)?) {
        Ok(facts) => facts,
        Err(mistake) => {
            problems.push(wrong_type(url, &format!("not a URL: {mistake}")));
            // Read the other keys as well, so that they are not reported as unknown.
            CaseFacts::for_url("http://unreadable.invalid/").ok()?
        }
    };
    for key in FACT_KEYS.into_iter().filter(|key| *key != "url") {
        let Some(node) = map.take(key).filter(|node| !node.is_null()) else {
            continue;
        };
        if let Err(mistake) = facts.set(key, &to_json(node)) {
            problems.push(wrong_type(node, &mistake));
        }
    }
    Some(facts)
}

/// Converts a node to JSON, so that cases and the lines of `decide` share one reader.
fn to_json(node: &Node) -> Json {
    match &node.value {
        YamlValue::Null => Json::Null,
        YamlValue::Bool(value) => Json::Bool(*value),
        YamlValue::Int(number, _) => Json::from(*number),
        YamlValue::Float(number, _) => Json::from(*number),
        YamlValue::Text(text) => Json::from(&**text),
        YamlValue::Sequence(items) => items.iter().map(to_json).collect(),
        YamlValue::Mapping(entries) => entries
            .iter()
            .map(|e| (e.key.text.to_string(), to_json(&e.value)))
            .collect(),
    }
}

/// Reads the expectation: a verdict, with further keys in the case itself, or a mapping of all.
/// Only the mapping can give the status of the response: in the case itself, `status` is the
/// origin's.
fn read_expect(
    node: &Node,
    case: &mut MapReader<'_>,
    problems: &mut Problems,
) -> Option<Expectation> {
    let YamlValue::Mapping(_) = node.value else {
        let found = read_verdict(node, problems);
        let expect = read_expectations(found.unwrap_or(ExpectedVerdict::Allow), case, problems);
        return found.and(Some(expect));
    };
    let mut map = MapReader::open(node, "`expect`", problems)?;
    let found = map
        .require("verdict", problems)
        .and_then(|node| read_verdict(node, problems));
    let status = map
        .take("status")
        .and_then(|node| read_u16(node, 200..=599, problems));
    let expect = read_expectations(found.unwrap_or(ExpectedVerdict::Allow), &mut map, problems);
    map.finish(problems);
    found.map(|_| Expectation { status, ..expect })
}

fn read_expectations(
    verdict: ExpectedVerdict,
    map: &mut MapReader<'_>,
    problems: &mut Problems,
) -> Expectation {
    let stages = Stage::ALL.map(Stage::as_str);
    let stage_of = |word: &str| Stage::ALL.into_iter().find(|s| s.as_str() == word);
    let reasons = Reason::ALL.map(Reason::as_str);
    let reason_of = |word: &str| Reason::ALL.into_iter().find(|r| r.as_str() == word);
    let intents = Intent::ALL.map(Intent::as_str);
    Expectation {
        verdict,
        stage: map
            .take("stage")
            .and_then(|n| read::word(n, &stages, stage_of, problems)),
        rule: map
            .take("rule")
            .and_then(|n| read::spelling(n, problems))
            .map(Into::into),
        reason: map
            .take("reason")
            .and_then(|n| read::word(n, &reasons, reason_of, problems)),
        code: map
            .take("code")
            .and_then(|n| read_u16(n, 100..=9999, problems)),
        status: None,
        logged: map.take("logged").and_then(|n| read::boolean(n, problems)),
        intent: map
            .take("intent")
            .and_then(|n| read::word(n, &intents, Intent::from_word, problems)),
        options: map
            .take("options")
            .map(|n| read_expected_options(n, problems))
            .unwrap_or_default(),
    }
}

fn read_verdict(node: &Node, problems: &mut Problems) -> Option<ExpectedVerdict> {
    let words = ExpectedVerdict::ALL.map(ExpectedVerdict::as_str);
    read::word(node, &words, ExpectedVerdict::from_word, problems)
}

fn read_u16(
    node: &Node,
    range: std::ops::RangeInclusive<i64>,
    problems: &mut Problems,
) -> Option<u16> {
    read::integer(node, range, problems).and_then(|n| u16::try_from(n).ok())
}

fn read_expected_options(
    node: &Node,
    problems: &mut Problems,
) -> Vec<(Box<str>, crate::policy::options::OptionValue)> {
    read_options(node, problems)
        .into_iter()
        .map(|option| (option.path, option.value))
        .collect()
}
