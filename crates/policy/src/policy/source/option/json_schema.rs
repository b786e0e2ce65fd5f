//! The JSON Schema of options: the table of options as nested maps.

use serde_json::{Map, Value as Json, json};

use crate::model::disposition::Disposition;
use crate::model::intent::Intent;
use crate::model::week::DAY_NAMES;
use crate::policy::options::politeness;
use crate::policy::options::schema::{self, OptionShape, OptionSpec, OptionSupport};
use crate::policy::source::json_schema::described;

/// Returns the schema of a map of all options.
pub(crate) fn all_options() -> Json {
    map("")
}

/// Returns the schema of a single option outside a map.
pub(crate) fn named_option(path: &str) -> Json {
    schema::find_spec(path).map_or(Json::Bool(false), |(_, spec)| option(spec))
}

/// Returns the schemas of the options that make up the pace of a host, by their keys. They have no
/// defaults of their own.
pub(crate) fn pace_options() -> Map<String, Json> {
    let options = politeness::pace_keys().map(|key| {
        let mut schema = option_or_map(&format!("{}.{key}", politeness::MAP));
        remove_defaults(&mut schema);
        (key.to_owned(), schema)
    });
    options.collect()
}

fn remove_defaults(schema: &mut Json) {
    match schema {
        Json::Object(entries) => {
            entries.remove("default");
            entries.values_mut().for_each(remove_defaults);
        }
        Json::Array(items) => items.iter_mut().for_each(remove_defaults),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
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
    let presets = schema::preset_names(path);
    if !presets.is_empty() {
        let description =
            "Values for all keys of this map; those that are given as well override them.";
        keys.insert(
            schema::PRESET_KEY.to_owned(),
            described(description, &words(&presets)),
        );
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
        schema::description(path),
        &json!({ "anyOf": [map, words_in_place_of_map(path)] }),
    )
}

/// Returns the words in place of a map: its presets, and those that reset it.
fn words_in_place_of_map(path: &str) -> Json {
    let mut all = vec![Json::Null];
    let presets = schema::preset_names(path);
    if presets.is_empty() {
        all.push("none".into());
    }
    all.extend(presets.into_iter().map(Json::from));
    json!({ "enum": all })
}

fn option(spec: &OptionSpec) -> Json {
    let restriction = if spec.support == OptionSupport::Supported {
        ""
    } else {
        " Not, or only partly, in effect in this version."
    };
    let description = format!("{}{restriction}", spec.description);
    if let OptionShape::Disposition = spec.shape {
        let values = json!({ "enum": Disposition::ALL.map(Disposition::as_str) });
        return described(&description, &values);
    }
    let mut default = spec.shape.default_value().to_json();
    if default.is_null() {
        default = "none".into();
    }
    let values = json!({ "anyOf": values(spec.shape), "default": default });
    described(&description, &values)
}

/// Returns the alternative forms of a value.
fn values(shape: OptionShape) -> Vec<Json> {
    let mut all = match shape {
        OptionShape::Disposition => vec![words(&Disposition::ALL.map(Disposition::as_str))],
        OptionShape::Intent => vec![words(&Intent::ALL.map(Intent::as_str))],
        OptionShape::RejectStatus => vec![
            json!({ "type": "integer", "minimum": 200, "maximum": 599, "not": { "const": 407 } }),
        ],
        OptionShape::Word(all, _) | OptionShape::WordOrNone(all) => vec![words(all)],
        OptionShape::Priority => vec![
            words(&["highest", "higher", "normal", "lower", "lowest"]),
            json!({ "type": "integer", "minimum": -2, "maximum": 2 }),
        ],
        OptionShape::Bool(_) => vec![json!({ "type": "boolean" })],
        OptionShape::AtLeast { min, .. } => vec![json!({ "type": "integer", "minimum": min })],
        OptionShape::CountOrNone => vec![json!({ "type": "integer", "minimum": 0 })],
        OptionShape::DecimalOrNone(from, to) => {
            vec![json!({ "type": "number", "minimum": from, "maximum": to })]
        }
        OptionShape::Duration(_) | OptionShape::DurationOrNone => vec![duration()],
        OptionShape::Size(_) | OptionShape::SizeOrNone => vec![size()],
        OptionShape::RateOrNone => vec![rate()],
        OptionShape::FactorsOrNone(..) => {
            vec![json!({ "type": "string", "pattern": "^[0-9.]+\\.\\.[0-9.]+$" })]
        }
        OptionShape::TextOrNone => vec![text()],
        OptionShape::Names | OptionShape::Uses => vec![text(), names()],
        OptionShape::WordsOrNone(all) => {
            vec![words(all), json!({ "type": "array", "items": words(all) })]
        }
        OptionShape::StripParams => {
            let keys = json!({ "names": { "anyOf": [text(), names()] }, "rewrite": { "type": "boolean" } });
            vec![text(), names(), closed(&["names"], keys)]
        }
        OptionShape::Replace => {
            let keys = json!({ "regex": text(), "with": text(), "rewrite": { "type": "boolean" } });
            vec![json!({ "type": "array", "items": closed(&["regex", "with"], keys) })]
        }
        OptionShape::Schedule => vec![json!({ "type": "array", "items": time_window() })],
    };
    // Text includes `none`.
    if shape.allows_none() && !matches!(shape, OptionShape::TextOrNone) {
        all.push(none());
    }
    all.push(json!({ "type": "null" }));
    all
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
