//! The JSON Schema of conditions: fields, shortcuts and the kinds of test that they accept.

use serde_json::{Map, Value as Json, json};

use crate::policy::field::{FIXED_FIELDS, Field, ValueType};
use crate::policy::pattern::CountTestKind;
use crate::policy::source::json_schema::{described, reference};

use super::keywords::{BOOLEAN, COUNT_KINDS, IN, SHORTCUTS, TEXT_KINDS};

/// Returns the definition `condition` and those that it refers to.
pub(crate) fn definitions() -> Map<String, Json> {
    let ranges = json!({ "anyOf": [
        reference("range"),
        { "type": "array", "minItems": 1, "items": reference("range") },
    ] });
    let number_test = json!({ "anyOf": [
        reference("ranges"),
        tests([("exact", reference("ranges"))]),
        tests([("in", reference("texts"))]),
    ] });
    let address_test = json!({ "anyOf": [
        reference("texts"),
        tests([("cidr", reference("texts")), ("in", reference("texts"))]),
    ] });
    [
        ("condition", condition()),
        ("range", range()),
        ("ranges", ranges),
        ("test_text", text_test(|kind| kind == CountTestKind::Length)),
        ("test_url", text_test(|_| true)),
        ("test_number", number_test),
        ("test_address", address_test),
    ]
    .into_iter()
    .map(|(name, schema)| (name.to_owned(), schema))
    .collect()
}

fn condition() -> Json {
    let mut keys: Map<String, Json> = Map::new();
    for (word, description) in BOOLEAN {
        keys.insert(
            word.to_owned(),
            described(description, &boolean_schema(word)),
        );
    }
    for (word, _, _, description) in &SHORTCUTS {
        keys.insert(
            (*word).to_owned(),
            described(description, &reference("texts")),
        );
    }
    let (word, description) = IN;
    keys.insert(word.to_owned(), described(description, &reference("texts")));
    for field in &FIXED_FIELDS {
        keys.insert(
            field.keyword().to_owned(),
            described(field.description(), &test_schema(field)),
        );
    }
    let families: Map<String, Json> = Field::families()
        .iter()
        .filter_map(|field| {
            let (head, _) = field.keyword().split_once('.')?;
            Some((
                format!("^{head}\\..+$"),
                described(field.description(), &reference("test_text")),
            ))
        })
        .collect();
    json!({
        "description": "Several keys are all required. A list of values means any of them.",
        "type": "object",
        "minProperties": 1,
        "additionalProperties": false,
        "properties": keys,
        "patternProperties": families,
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
        ValueType::Text if field.has_path_or_query() => reference("test_url"),
        ValueType::Text => reference("test_text"),
    }
}

/// Returns the schema of a test on text with these kinds of count.
fn text_test(accepts: impl Fn(CountTestKind) -> bool) -> Json {
    let texts = TEXT_KINDS
        .iter()
        .map(|(word, _, description)| (*word, described(description, &reference("texts"))));
    let counts = COUNT_KINDS
        .iter()
        .filter(|(_, kind, _)| accepts(*kind))
        .map(|(word, _, description)| (*word, described(description, &reference("ranges"))));
    let membership = described("Membership in a list.", &reference("texts"));
    let case = json!({ "description": "Ignores the case of letters.", "const": "ignore" });
    let norm = json!({
        "description": "Compares with escapes in upper case, and with those of unreserved characters decoded.",
        "type": "boolean",
    });
    let others = [("in", membership), ("case", case), ("norm", norm)];
    json!({ "anyOf": [reference("texts"), tests(texts.chain(counts).chain(others))] })
}

/// Returns the schema of a mapping of kinds of test, all of which must hold.
fn tests(kinds: impl IntoIterator<Item = (&'static str, Json)>) -> Json {
    let keys: Map<String, Json> = kinds
        .into_iter()
        .map(|(kind, schema)| (kind.to_owned(), schema))
        .collect();
    json!({ "type": "object", "minProperties": 1, "additionalProperties": false, "properties": keys })
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
