//! The reader of test cases.

use serde_json::{Map, Value as Json, json};

use crate::diagnostics::problems::Problems;
use crate::model::intent::Intent;
use crate::model::profile::Profile;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::policy::cases::{
    Case, CaseAssertion, CaseFacts, Expectation, ExpectedVerdict, FACT_KEYS,
};
use crate::policy::fact::UsagePreference;
use crate::policy::field::Field;
use crate::yaml::read::{self, MapReader, wrong_type};
use crate::yaml::{Node, YamlValue};

use super::assertion::{self, is_assertion, read_assertion};
use super::condition::keywords;
use super::json_schema::described;
use super::key::{Key, properties};
use super::option::read_options;

const PROFILE: Key = Key::schema(
    "profile",
    profile_schema,
    "The profile by which the case is answered.",
);
const EXPECT: Key = Key::schema(
    "expect",
    expect_schema,
    "The verdict, or a mapping of it and further expectations; only there the status of the refusal can be given.",
);

const VERDICT: Key = Key::schema("verdict", verdict_schema, "The verdict.");
const STATUS: Key = Key::schema("status", status_schema, "The status of the refusal.");
const STAGE: Key = Key::schema("stage", stage_schema, "The stage that decides.");
const RULE: Key = Key::definition("rule", "text", "The rule that decides.");
const REASON: Key = Key::schema("reason", reason_schema, "The reason.");
const CODE: Key = Key::schema("code", code_schema, "The code of the refusal.");
const LOGGED: Key = Key::schema("logged", bool_schema, "If true, the URL is recorded.");
const INTENT: Key = Key::schema("intent", intent_schema, "The meaning of the refusal.");
const OPTIONS: Key = Key::definition("options", "options", "Options and their values.");

/// The expectations besides the verdict, which may be in the case itself or in `expect`.
const EXPECTATIONS: [&Key; 7] = [&STAGE, &RULE, &REASON, &CODE, &LOGGED, &INTENT, &OPTIONS];

/// Returns the JSON Schema of an item of `cases`.
pub(super) fn json_schema() -> Json {
    json!({ "anyOf": [request_schema(), assertion::json_schema()] })
}

/// Returns the JSON Schema of the case of one request.
fn request_schema() -> Json {
    let mut keys: Map<String, Json> = FACT_KEYS
        .iter()
        .map(|key| {
            let (description, values) = fact_schema(key);
            ((*key).to_owned(), described(description, &values))
        })
        .collect();
    keys.extend(properties([&PROFILE, &EXPECT]));
    keys.extend(properties(EXPECTATIONS));
    json!({
        "description": "The facts of one request, and the expected decision.",
        "type": "object",
        "additionalProperties": false,
        "required": ["url", EXPECT.name],
        "properties": keys,
    })
}

fn profile_schema() -> Json {
    json!({ "enum": Profile::ALL.map(Profile::as_str), "default": "generic" })
}

fn expect_schema() -> Json {
    let mut keys = properties(EXPECTATIONS);
    keys.extend(properties([&VERDICT, &STATUS]));
    json!({
        "anyOf": [
            verdict_schema(),
            { "type": "object", "additionalProperties": false, "required": [VERDICT.name], "properties": keys },
        ],
    })
}

fn verdict_schema() -> Json {
    json!({ "enum": ExpectedVerdict::ALL.map(ExpectedVerdict::as_str) })
}

fn status_schema() -> Json {
    json!({ "type": "integer", "minimum": 200, "maximum": 599 })
}

fn stage_schema() -> Json {
    json!({ "enum": Stage::ALL.map(Stage::as_str) })
}

fn reason_schema() -> Json {
    json!({ "enum": Reason::ALL.map(Reason::as_str).to_vec() })
}

fn code_schema() -> Json {
    json!({ "type": "integer", "minimum": 100, "maximum": 9999 })
}

fn bool_schema() -> Json {
    json!({ "type": "boolean" })
}

fn intent_schema() -> Json {
    json!({ "enum": Intent::ALL.map(Intent::as_str) })
}

/// Returns the description and the JSON Schema of a fact.
fn fact_schema(key: &str) -> (&'static str, Json) {
    let (description, values) = match key {
        "url" => {
            return (
                "The URL, as a crawler would request it.",
                json!({ "type": "string" }),
            );
        }
        "tunnel" => (
            "If true, the request is a CONNECT to the URL's host and port.",
            bool_schema(),
        ),
        "known" => ("If true, the URL is in the ledger.", bool_schema()),
        "year" => (
            "The year, for the trap calendar; by default 2026.",
            json!({ "type": "integer", "minimum": 1970, "maximum": 9999 }),
        ),
        "status" => (
            "The status of the origin's response; 200 if another fact of the response is given.",
            json!({ "type": "integer", "minimum": 100, "maximum": 999 }),
        ),
        "headers" => (
            "Header fields of the response.",
            json!({
                "type": "object",
                "additionalProperties": { "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] },
            }),
        ),
        "usage" => (
            "The site's preferences for uses.",
            json!({
                "type": "object",
                "additionalProperties": { "enum": UsagePreference::ALL.map(UsagePreference::as_str) },
            }),
        ),
        field => (
            keywords::fixed_field(field).map_or("", Field::description),
            field_fact_schema(field),
        ),
    };
    (
        description,
        json!({ "anyOf": [values, { "type": "null" }] }),
    )
}

/// Returns the JSON Schema of a fact that is the value of a field.
fn field_fact_schema(field: &str) -> Json {
    match field {
        "depth" | "size" => json!({ "type": "integer", "minimum": 0 }),
        "dest" => json!({ "enum": ["navigation", "embed"] }),
        _ => json!({ "type": "string" }),
    }
}

/// Reads the items of `cases`; those with errors, which were reported, are left out.
pub(super) fn read_cases(node: &Node, problems: &mut Problems) -> (Vec<Case>, Vec<CaseAssertion>) {
    let mut cases = Vec::new();
    let mut assertions = Vec::new();
    for item in read::items(node, "`cases`", problems) {
        if is_assertion(item) {
            assertions.extend(read_assertion(item, problems));
        } else {
            cases.extend(read_case(item, problems));
        }
    }
    (cases, assertions)
}

fn read_case(node: &Node, problems: &mut Problems) -> Option<Case> {
    let before = problems.len();
    let mut map = MapReader::open(node, "a case", problems)?;
    let facts = map
        .require("url", problems)
        .and_then(|url| read_facts(url, &mut map, problems));
    let profile = map
        .take(PROFILE.name)
        .and_then(|node| read::enum_word(node, problems));
    let expect = map
        .require(EXPECT.name, problems)
        .and_then(|node| read_expect(node, &mut map, problems));
    map.finish(problems);
    let case = Case {
        place: node.place.clone(),
        facts: facts?,
        profile: profile.unwrap_or(Profile::Generic),
        expect: expect?,
    };
    (problems.len() == before).then_some(case)
}

fn read_facts(url: &Node, map: &mut MapReader<'_>, problems: &mut Problems) -> Option<CaseFacts> {
    let mut facts = match CaseFacts::for_url(read::spelling(url, problems)?) {
        Ok(facts) => facts,
        Err(error) => {
            problems.push(wrong_type(url, &error.to_string()));
            // Read the other keys as well, so that they are not reported as unknown.
            CaseFacts::for_url("http://unreadable.invalid/").ok()?
        }
    };
    for key in FACT_KEYS.into_iter().filter(|key| *key != "url") {
        let Some(node) = map.take(key).filter(|node| !node.is_null()) else {
            continue;
        };
        if let Err(error) = facts.set(key, &to_json(node)) {
            problems.push(wrong_type(node, &error));
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
        let found = read::enum_word(node, problems);
        let expect = read_expectations(found.unwrap_or(ExpectedVerdict::Allow), case, problems);
        return found.and(Some(expect));
    };
    let mut map = MapReader::open(node, "`expect`", problems)?;
    let found = map
        .require(VERDICT.name, problems)
        .and_then(|node| read::enum_word(node, problems));
    let status = map
        .take(STATUS.name)
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
    Expectation {
        verdict,
        stage: map
            .take(STAGE.name)
            .and_then(|n| read::enum_word(n, problems)),
        rule: map
            .take(RULE.name)
            .and_then(|n| read::spelling(n, problems))
            .map(Into::into),
        reason: map
            .take(REASON.name)
            .and_then(|n| read::enum_word(n, problems)),
        code: map
            .take(CODE.name)
            .and_then(|n| read_u16(n, 100..=9999, problems)),
        status: None,
        logged: map
            .take(LOGGED.name)
            .and_then(|n| read::boolean(n, problems)),
        intent: map
            .take(INTENT.name)
            .and_then(|n| read::enum_word(n, problems)),
        options: map
            .take(OPTIONS.name)
            .map(|n| read_expected_options(n, problems))
            .unwrap_or_default(),
    }
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
