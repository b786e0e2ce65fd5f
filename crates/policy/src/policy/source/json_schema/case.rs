//! Cases in the JSON Schema.

use serde_json::{Map, Value as Json, json};

use crate::model::intent::Intent;
use crate::model::profile::Profile;
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::policy::cases::{ExpectedVerdict, FACT_KEYS};
use crate::policy::fact::UsagePreference;

use super::{about, described, reference};

/// `case` and `expect`.
pub(super) fn definitions() -> Map<String, Json> {
    [("case".to_owned(), case())].into_iter().collect()
}

fn case() -> Json {
    let facts = FACT_KEYS
        .iter()
        .map(|key| ((*key).to_owned(), described(about::fact(key), &fact(key))));
    let mut keys: Map<String, Json> = facts.collect();
    keys.insert(
        "profile".to_owned(),
        json!({
            "description": "The profile by which the case is answered.",
            "enum": Profile::ALL.map(Profile::as_str),
            "default": "generic",
        }),
    );
    keys.insert("expect".to_owned(), expect());
    keys.extend(expectations());
    json!({
        "description": "Facts of one request, and what is expected of it.",
        "type": "object",
        "additionalProperties": false,
        "required": ["url", "expect"],
        "properties": keys,
    })
}

fn expect() -> Json {
    let verdicts = json!({ "enum": ExpectedVerdict::ALL.map(ExpectedVerdict::as_str) });
    let mut keys = expectations();
    keys.insert("verdict".to_owned(), described("The verdict.", &verdicts));
    keys.insert(
        "status".to_owned(),
        json!({
            "description": "The status of the refusal.", "type": "integer", "minimum": 200, "maximum": 599,
        }),
    );
    json!({
        "description": "The verdict, or a mapping with it and what else is expected; only there can the status of the refusal be given.",
        "anyOf": [
            verdicts,
            { "type": "object", "additionalProperties": false, "required": ["verdict"], "properties": keys },
        ],
    })
}

fn expectations() -> Map<String, Json> {
    let all = [
        (
            "stage",
            json!({ "description": "The stage that ends it.", "enum": Stage::ALL.map(Stage::as_str) }),
        ),
        (
            "rule",
            described("The rule that decides.", &reference("text")),
        ),
        (
            "reason",
            json!({ "description": "The reason.", "enum": Reason::ALL.map(Reason::as_str).to_vec() }),
        ),
        (
            "code",
            json!({ "description": "The code of the refusal.", "type": "integer", "minimum": 100, "maximum": 9999 }),
        ),
        (
            "logged",
            json!({ "description": "Whether a record of the URL is kept.", "type": "boolean" }),
        ),
        (
            "intent",
            json!({ "description": "The meaning of the refusal.", "enum": Intent::ALL.map(Intent::as_str) }),
        ),
        (
            "options",
            described("Options and their values.", &reference("options")),
        ),
    ];
    all.map(|(key, schema)| (key.to_owned(), schema))
        .into_iter()
        .collect()
}

fn fact(key: &str) -> Json {
    let or_null = |schema: Json| json!({ "anyOf": [schema, { "type": "null" }] });
    match key {
        "url" => json!({ "type": "string" }),
        "depth" | "size" => or_null(json!({ "type": "integer", "minimum": 0 })),
        "year" => or_null(json!({ "type": "integer", "minimum": 1970, "maximum": 9999 })),
        "status" => or_null(json!({ "type": "integer", "minimum": 100, "maximum": 999 })),
        "tunnel" | "known" => or_null(json!({ "type": "boolean" })),
        "dest" => or_null(json!({ "enum": ["navigation", "embed"] })),
        "headers" => or_null(json!({
            "type": "object",
            "additionalProperties": { "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] },
        })),
        "usage" => or_null(json!({
            "type": "object",
            "additionalProperties": { "enum": UsagePreference::ALL.map(UsagePreference::as_str) },
        })),
        _ => or_null(json!({ "type": "string" })),
    }
}
