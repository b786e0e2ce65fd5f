//! Conditions in the JSON Schema: fields, shortcuts and the kinds of test that fit them.

use serde_json::{Map, Value as Json, json};

use crate::policy::field::{Field, ValueType};
use crate::policy::source::condition::keywords::{
    BOOLEAN, COUNT_KINDS, FAMILIES, FIELDS, SHORTCUTS, TEXT_KINDS, is_url_part,
};

use super::{about, described, reference};

/// `condition`, and the tests that it is made of.
pub(super) fn definitions() -> Map<String, Json> {
    let all = [
        ("condition", condition()),
        ("range", range()),
        (
            "ranges",
            json!({ "anyOf": [
            reference("range"),
            { "type": "array", "minItems": 1, "items": reference("range") },
        ] }),
        ),
        ("test_text", text_test(CountTests::LengthOnly)),
        ("test_url", text_test(CountTests::All)),
        (
            "test_number",
            json!({ "anyOf": [
            reference("ranges"),
            tests([("exact".to_owned(), reference("ranges"))].into_iter().collect()),
            tests([("in".to_owned(), reference("texts"))].into_iter().collect()),
        ] }),
        ),
        (
            "test_address",
            json!({ "anyOf": [
            reference("texts"),
            tests([("cidr".to_owned(), reference("texts")), ("in".to_owned(), reference("texts"))].into_iter().collect()),
        ] }),
        ),
    ];
    all.map(|(name, schema)| (name.to_owned(), schema))
        .into_iter()
        .collect()
}

fn condition() -> Json {
    let mut keys: Map<String, Json> = Map::new();
    for word in BOOLEAN {
        keys.insert(
            word.to_owned(),
            described(about::boolean(word), &boolean_schema(word)),
        );
    }
    for (word, ..) in &SHORTCUTS {
        keys.insert(
            (*word).to_owned(),
            described(about::field(word), &reference("texts")),
        );
    }
    keys.insert(
        "in".to_owned(),
        described(
            "Membership in a list; the field follows from its kind.",
            &reference("texts"),
        ),
    );
    for (word, field) in &FIELDS {
        keys.insert(
            (*word).to_owned(),
            described(about::field(word), &test_schema(field)),
        );
    }
    let families = FAMILIES.iter().filter_map(|family| {
        let (head, _) = family.split_once('.')?;
        Some((
            format!("^{head}\\..+$"),
            described(about::field(family), &reference("test_text")),
        ))
    });
    json!({
        "description": "Several keys are all required. A list of values means any of them.",
        "type": "object",
        "minProperties": 1,
        "additionalProperties": false,
        "properties": keys,
        "patternProperties": families.collect::<Map<_, _>>(),
    })
}

fn boolean_schema(word: &str) -> Json {
    match word {
        "all" | "any" => json!({ "type": "array", "minItems": 1, "items": reference("condition") }),
        "always" => json!({ "const": true }),
        _ => reference("condition"),
    }
}

fn test_schema(field: &Field) -> Json {
    match field.value_type() {
        ValueType::Number => reference("test_number"),
        ValueType::Address => reference("test_address"),
        ValueType::Text if is_url_part(field) => reference("test_url"),
        ValueType::Text => reference("test_text"),
    }
}

/// Which kinds that count fit a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CountTests {
    LengthOnly,
    All,
}

fn text_test(counts: CountTests) -> Json {
    let mut keys: Map<String, Json> = Map::new();
    for (word, _) in TEXT_KINDS {
        keys.insert(
            word.to_owned(),
            described(about::kind(word), &reference("texts")),
        );
    }
    for (word, _) in COUNT_KINDS
        .into_iter()
        .filter(|(word, _)| counts == CountTests::All || *word == "length")
    {
        keys.insert(
            word.to_owned(),
            described(about::kind(word), &reference("ranges")),
        );
    }
    keys.insert(
        "in".to_owned(),
        described(about::kind("in"), &reference("texts")),
    );
    keys.insert(
        "case".to_owned(),
        json!({ "description": "Letters are equal in either case.", "const": "ignore" }),
    );
    keys.insert(
        "norm".to_owned(),
        json!({
            "description": "Compares with escapes in upper case, and those of unreserved characters decoded.",
            "type": "boolean",
        }),
    );
    json!({ "anyOf": [reference("texts"), tests(keys)] })
}

/// A mapping of kinds, all of which must hold.
fn tests(kinds: Map<String, Json>) -> Json {
    json!({ "type": "object", "minProperties": 1, "additionalProperties": false, "properties": kinds })
}

/// `404`, `5xx`, `"[30:]"`, `10MiB`, `{min, max}`.
fn range() -> Json {
    json!({ "anyOf": [
        { "type": "integer", "minimum": 0 },
        { "type": "string", "pattern": "^(\\[.*:.*\\]|[0-9][0-9A-Za-z]*)$" },
        {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": false,
            "properties": { "min": reference("text"), "max": reference("text") },
        },
    ] })
}
