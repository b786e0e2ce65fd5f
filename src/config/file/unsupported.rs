//! Keys of the contract whose effect this version does not have yet.
//!
//! They may stand in a file with their default, which is what this version does anyway. Any other value is an
//! error: a setting that silently does nothing is worse than none.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::model::units;
use crate::yaml::read::{self, MapReader};
use crate::yaml::{Node, YamlValue, parse};

/// Stands for "no value": the key is an alternative to others.
const ABSENT: &str = "(absent)";
/// Stands for "any value": the key belongs to something that does nothing yet.
const ANY_VALUE: &str = "(any)";

/// Group, key, and the value that it may have.
const UNSUPPORTED_KEYS: [(&str, &str, &str); 8] = [
    ("listen", "tls", ABSENT),
    ("listen", "proxy_protocol", ABSENT),
    ("policy", "url", ABSENT),
    ("policy", "poll", ABSENT),
    ("policy", "verify_key", ABSENT),
    ("egress", "parents", "{}"),
    ("store", "kind", "embedded"),
    ("store", "url", ABSENT),
];

/// Reports the keys of a group that are not built yet and do not have their default.
pub(super) fn check(map: &mut MapReader<'_>, group: &str, problems: &mut Problems) {
    for (_, key, default) in UNSUPPORTED_KEYS.iter().filter(|(g, ..)| *g == group) {
        if let Some(node) = map.take(key) {
            let path = if group.is_empty() {
                (*key).to_owned()
            } else {
                format!("{group}.{key}")
            };
            compare_with_default(node, &parse_default(default), &path, problems);
        }
    }
}

/// The keys of a group that are not built yet, each with the JSON Schema of the only value that it may have.
pub(super) fn schemas(group: &str) -> impl Iterator<Item = (&'static str, Json)> {
    let rows = UNSUPPORTED_KEYS.iter().filter(move |(g, ..)| *g == group);
    rows.map(|(_, key, default)| (*key, only_value_schema(&parse_default(default))))
}

fn only_value_schema(node: &Node) -> Json {
    match &node.value {
        YamlValue::Text(text) if **text == *ANY_VALUE => json!({}),
        YamlValue::Text(text) if **text == *ABSENT => {
            json!({ "description": "Not in this version.", "not": {} })
        }
        YamlValue::Text(text) => json!({ "const": text, "description": NO_EFFECT_YET }),
        YamlValue::Int(number, _) => json!({ "const": number, "description": NO_EFFECT_YET }),
        YamlValue::Bool(value) => json!({ "const": value, "description": NO_EFFECT_YET }),
        YamlValue::Mapping(entries) => {
            let keys = entries
                .iter()
                .map(|e| (e.key.text.to_string(), only_value_schema(&e.value)));
            let keys: Map<String, Json> = keys.collect();
            json!({ "description": NO_EFFECT_YET, "type": "object", "additionalProperties": false, "properties": keys })
        }
        YamlValue::Null | YamlValue::Float(..) | YamlValue::Sequence(_) => {
            json!({ "description": NO_EFFECT_YET })
        }
    }
}

const NO_EFFECT_YET: &str = "Has no effect yet, and no value but this one.";

/// The tree of a value of the table; a test makes sure that each has one.
fn parse_default(text: &str) -> Node {
    let file: Arc<str> = Arc::from("");
    let nothing = || Node {
        place: SourceLocation::for_file(&file),
        value: YamlValue::Null,
    };
    parse(&file, text, &mut Problems::new()).unwrap_or_else(nothing)
}

fn compare_with_default(node: &Node, default: &Node, path: &str, problems: &mut Problems) {
    if default.spelling() == Some(ANY_VALUE) {
        return;
    }
    if let (YamlValue::Mapping(given), YamlValue::Mapping(known)) = (&node.value, &default.value)
        && !known.is_empty()
    {
        let names: Vec<&str> = known.iter().map(|e| &*e.key.text).collect();
        for entry in given {
            match default.get(&entry.key.text) {
                Some(default) => {
                    compare_with_default(
                        &entry.value,
                        default,
                        &format!("{path}.{}", entry.key.text),
                        problems,
                    );
                }
                None => problems.push(read::unknown_key(&entry.key, &names)),
            }
        }
        return;
    }
    if !is_same_value(node, default) {
        problems.push(unsupported_value(node, default, path));
    }
}

fn unsupported_value(node: &Node, default: &Node, path: &str) -> Problem {
    let problem = Problem::error(&node.place, format!("`{path}` is not in this version"));
    // The value of a key that cannot be set at all may be a secret.
    match default.spelling() {
        Some(ABSENT) => problem.with_help("leave it out"),
        Some(word) => problem
            .with_found(node.display_text())
            .with_help(format!("leave it at `{word}`")),
        None => problem.with_help("leave it out"),
    }
}

/// Whether two values mean the same: `1m` and `60s` do, and the order of a list does not matter here.
fn is_same_value(node: &Node, default: &Node) -> bool {
    match (&node.value, &default.value) {
        (YamlValue::Sequence(a), YamlValue::Sequence(b)) => spellings(a) == spellings(b),
        (YamlValue::Mapping(a), YamlValue::Mapping(b)) => a.is_empty() && b.is_empty(),
        _ => match (node.spelling(), default.spelling()) {
            (Some(a), Some(b)) => is_same_text(a, b),
            _ => false,
        },
    }
}

fn spellings(items: &[Node]) -> BTreeSet<&str> {
    items.iter().map(Node::display_text).collect()
}

fn is_same_text(a: &str, b: &str) -> bool {
    let as_duration = units::parse_duration(a).is_some_and(|d| units::parse_duration(b) == Some(d));
    let as_size = units::parse_size(a).is_some_and(|s| units::parse_size(b) == Some(s));
    a == b || as_duration || as_size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_yaml() {
        for (_, key, default) in UNSUPPORTED_KEYS {
            let mut problems = Problems::new();
            assert!(
                parse(&"table".into(), default, &mut problems).is_some(),
                "{key}"
            );
            assert!(problems.is_empty(), "{key}");
        }
    }

    #[test]
    fn equal_values_may_be_written_differently() {
        for (a, b, equal) in [
            ("60s", "1m", true),
            ("256MiB", "262144KiB", true),
            ("[80, 443]", "[443, 80]", true),
            ("[80]", "[443, 80]", false),
            ("{}", "{}", true),
            ("{a: b}", "{}", false),
            ("none", "none", true),
            ("60s", "60", false),
            ("~", "none", false),
        ] {
            assert_eq!(
                is_same_value(&parse_default(a), &parse_default(b)),
                equal,
                "{a} {b}"
            );
        }
    }
}
