//! The JSON Schema of the configuration (draft 2020-12), for editors.

use serde_json::{Map, Value as Json, json};

use crate::config::settings::Settings;

use super::KEYS;
use super::key::object_schema;

/// Returns the schema of a configuration file.
pub fn json_schema() -> Json {
    let variable = json!({
        "description": "A value that contains ${VARIABLE}, an environment variable.",
        "type": "string",
        "pattern": "\\$\\{",
    });
    let root = object_schema(
        "Settings of crawlgate for operators, apart from the policy.",
        KEYS,
        &mut Settings::default(),
    );
    let mut schema = Map::new();
    schema.insert(
        "$schema".to_owned(),
        "https://json-schema.org/draft/2020-12/schema".into(),
    );
    schema.insert("title".to_owned(), "crawlgate configuration".into());
    if let Json::Object(root) = root {
        schema.extend(root);
    }
    schema.insert("patternProperties".to_owned(), json!({ "^x-": true }));
    schema.insert("$defs".to_owned(), json!({ "variable": variable }));
    schema.into()
}

pub(super) fn one_or_many_schema(schema: &Json) -> Json {
    json!({ "anyOf": [schema, { "type": "array", "items": schema }] })
}

pub(super) fn variable_schema() -> Json {
    json!({ "$ref": "#/$defs/variable" })
}

pub(super) fn text_schema() -> Json {
    json!({ "type": ["string", "number", "boolean"] })
}

/// Returns the schema of an IP address and a port.
pub(super) fn address_schema() -> Json {
    json!({ "type": "string", "pattern": "^(.*\\$\\{.*|.+:[0-9]+)$" })
}

pub(super) fn boolean_schema(default: bool) -> Json {
    json!({ "anyOf": [{ "type": "boolean" }, variable_schema()], "default": default })
}

pub(super) fn enum_schema(words: &[&str], default: &str) -> Json {
    json!({ "anyOf": [{ "enum": words }, variable_schema()], "default": default })
}

pub(super) fn duration_schema() -> Json {
    json!({ "type": "string", "pattern": "^[0-9][0-9.]*(ms|s|m|h|d)$" })
}

pub(super) fn size_schema() -> Json {
    json!({ "type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB)$" })
}
