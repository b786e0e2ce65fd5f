//! The JSON Schema of policies (draft 2020-12), for editors, built from the tables of the reader.
//!
//! It describes the keys, their places and their values. What a schema cannot express, such as the
//! existence of a list or the syntax of a pattern, is left to `check`. Descriptions are plain text.

use serde_json::{Map, Value as Json, json};

use super::{case, condition, document, host_pace, option, rule, space};

/// The pattern of the names of policies and spaces.
pub(super) const SLUG_PATTERN: &str = "^[a-z0-9][a-z0-9-]{0,63}$";

/// Returns the schema of a policy file, of a part of a policy in a directory, and of a case file.
pub fn json_schema() -> Json {
    let mut definitions = json!({
        "text": { "type": ["string", "number", "boolean"] },
        "texts": { "anyOf": [
            reference("text"),
            { "type": "array", "minItems": 1, "items": reference("text") },
        ] },
        "rules": { "type": "array", "items": reference("rule") },
        "rule": rule::json_schema(),
        "list": document::list_json_schema(),
        "space": space::json_schema(),
        "host_pace": host_pace::json_schema(),
        "options": option::json_schema::all_options(),
    });
    if let Some(definitions) = definitions.as_object_mut() {
        definitions.extend(condition::json_schema::definitions());
        definitions.insert("case".to_owned(), case::json_schema());
    }
    document::json_schema(&definitions)
}

/// Returns a reference to a definition.
pub(super) fn reference(name: &str) -> Json {
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// Returns the schema with a description in front.
pub(super) fn described(description: &str, schema: &Json) -> Json {
    let mut all = Map::new();
    all.insert("description".to_owned(), description.into());
    all.extend(schema.as_object().cloned().unwrap_or_default());
    all.into()
}
