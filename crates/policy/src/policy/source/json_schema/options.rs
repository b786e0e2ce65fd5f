//! Options in the JSON Schema: the table of options as nested maps.

use serde_json::{Map, Value as Json, json};

use crate::model::disposition::Disposition;
use crate::model::intent::Intent;
use crate::model::week::DAY_NAMES;
use crate::policy::options::schema::{self, OptionDefault, OptionShape, OptionSpec, OptionSupport};

use super::{about, described};

/// All options.
pub(super) fn schema() -> Json {
    map("")
}

/// The schema of one option where it stands alone.
pub(super) fn option_schema(path: &str) -> Json {
    schema::find_spec(path).map_or(Json::Bool(false), |(_, spec)| option(spec))
}

fn map(path: &str) -> Json {
    let mut keys: Map<String, Json> = Map::new();
    for key in schema::keys_in(path) {
        let below = if path.is_empty() {
            key.to_owned()
        } else {
            format!("{path}.{key}")
        };
        keys.insert(key.to_owned(), option_or_map(&below));
    }
    json!({ "type": "object", "additionalProperties": false, "properties": keys })
}

fn option_or_map(path: &str) -> Json {
    if let Some((_, spec)) = schema::find_spec(path) {
        return option(spec);
    }
    let map = match schema::find_open_map(path) {
        Some(_) => {
            json!({ "type": "object", "additionalProperties": { "type": ["string", "number", "boolean", "null"] } })
        }
        None => map(path),
    };
    described(
        about::option(path),
        &json!({ "anyOf": [map, { "enum": [null, "none"] }] }),
    )
}

fn option(spec: &OptionSpec) -> Json {
    let later = if spec.support == OptionSupport::Supported {
        ""
    } else {
        " Not, or not wholly, in effect in this version."
    };
    let mut all = described(
        &format!("{}{later}", about::option(spec.path)),
        &shape(spec.shape),
    );
    let default = spec.default.to_value().to_json();
    if let (Some(all), false) = (
        all.as_object_mut(),
        matches!(spec.default, OptionDefault::Required),
    ) {
        all.insert(
            "default".to_owned(),
            if default.is_null() {
                "none".into()
            } else {
                default
            },
        );
    }
    all
}

fn shape(shape: OptionShape) -> Json {
    match shape {
        OptionShape::Disposition => json!({ "enum": Disposition::ALL.map(Disposition::as_str) }),
        OptionShape::Intent => optional(&[words(&Intent::ALL.map(Intent::as_str))]),
        OptionShape::RejectStatus => optional(&[
            json!({ "type": "integer", "minimum": 200, "maximum": 599, "not": { "const": 407 } }),
            none(),
        ]),
        OptionShape::Word(all) => optional(&[words(all)]),
        OptionShape::WordOrNone(all) => optional(&[words(all), none()]),
        OptionShape::Priority => optional(&[
            words(&["highest", "higher", "normal", "lower", "lowest"]),
            json!({ "type": "integer", "minimum": -2, "maximum": 2 }),
        ]),
        OptionShape::Bool => optional(&[json!({ "type": "boolean" })]),
        OptionShape::AtLeast(least) => optional(&[json!({ "type": "integer", "minimum": least })]),
        OptionShape::CountOrNone => optional(&[json!({ "type": "integer", "minimum": 0 }), none()]),
        OptionShape::DecimalOrNone(from, to) => optional(&[
            json!({ "type": "number", "minimum": from, "maximum": to }),
            none(),
        ]),
        OptionShape::Duration => optional(&[duration()]),
        OptionShape::DurationOrNone => optional(&[duration(), none()]),
        OptionShape::Size => optional(&[size()]),
        OptionShape::SizeOrNone => optional(&[size(), none()]),
        OptionShape::RateOrNone => optional(&[rate(), none()]),
        OptionShape::FactorsOrNone => optional(&[
            json!({ "type": "string", "pattern": "^[0-9.]+\\.\\.[0-9.]+$" }),
            none(),
        ]),
        OptionShape::TextOrNone => optional(&[text()]),
        OptionShape::Names | OptionShape::Uses => optional(&[text(), names()]),
        OptionShape::WordsOrNone(all) => {
            let list = json!({ "type": "array", "items": words(all) });
            optional(&[words(all), list, none()])
        }
        OptionShape::StripParams => optional(&[
            text(),
            names(),
            closed(
                &["names"],
                json!({ "names": { "anyOf": [text(), names()] }, "rewrite": { "type": "boolean" } }),
            ),
        ]),
        OptionShape::Replace => {
            let keys = json!({ "regex": text(), "with": text(), "rewrite": { "type": "boolean" } });
            optional(&[json!({ "type": "array", "items": closed(&["regex", "with"], keys) })])
        }
        OptionShape::Schedule => optional(&[json!({ "type": "array", "items": time_window() })]),
    }
}

/// One of these, or `null` for the default.
fn optional(shapes: &[Json]) -> Json {
    let all: Vec<Json> = shapes
        .iter()
        .cloned()
        .chain([json!({ "type": "null" })])
        .collect();
    json!({ "anyOf": all })
}

fn words(all: &[&str]) -> Json {
    json!({ "enum": all })
}

fn none() -> Json {
    json!({ "const": "none" })
}

fn text() -> Json {
    json!({ "type": ["string", "number", "boolean"] })
}

fn names() -> Json {
    json!({ "type": "array", "items": text() })
}

/// `250ms`, `1.5s`, `10m`, `24h`, `7d`.
fn duration() -> Json {
    json!({ "type": "string", "pattern": "^[0-9][0-9.]*(ms|s|m|h|d)$" })
}

/// `512B`, `64KiB`, `10MiB`, `1GiB`.
fn size() -> Json {
    json!({ "type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB)$" })
}

/// `5/s`, `30/m`.
fn rate() -> Json {
    json!({ "type": "string", "pattern": "^[0-9]+/(ms|s|m|h|d)$" })
}

fn closed(required: &[&str], keys: Json) -> Json {
    json!({ "type": "object", "additionalProperties": false, "required": required, "properties": keys })
}

fn time_window() -> Json {
    let days = words(&DAY_NAMES);
    let keys = json!({
        "days": { "anyOf": [days, { "type": "array", "items": days }] },
        "hours": { "type": "string", "pattern": "^[0-9]{2}:[0-9]{2}-[0-9]{2}:[0-9]{2}$" },
        "tz": { "type": "string", "pattern": "^(UTC|[+-](0[0-9]|1[0-4]):[0-5][0-9])$" },
        "delay": duration(),
        "rate": { "anyOf": [rate(), none()] },
        "concurrency": { "type": "integer", "minimum": 1 },
    });
    closed(&[], keys)
}
