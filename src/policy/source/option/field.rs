//! Options that become header fields or time-outs: the keys of open maps, and checks of what a row's shape cannot say.

use crate::policy::options::Value;
use crate::policy::options::fields::{mistake_in_key, mistake_in_name, mistake_in_value};
use crate::policy::options::schema::OpenMap;
use crate::policy::source::tree::SourceOption;
use crate::vocab::problem::Problem;
use crate::vocab::problems::Problems;
use crate::yaml::read::{self, wrong_type};
use crate::yaml::{Entry, Node};

/// A key of an open map: text, or `null` for nothing. Names of fields are told apart without their capitals.
pub(super) fn read(entry: &Entry, map: &OpenMap, problems: &mut Problems) -> Option<SourceOption> {
    let key = &*entry.key.text;
    if let Some(mistake) = mistake_in_key(map.path, key) {
        problems.push(Problem::error(&entry.key.place, mistake).found(key));
        return None;
    }
    let path = format!("{}.{}", map.path, key.to_ascii_lowercase());
    let value = if entry.value.is_null() {
        Value::None
    } else {
        let text = read::spelling(&entry.value, problems)?;
        if let Some(mistake) = mistake_in_value(&path, text) {
            problems.push(wrong_type(&entry.value, mistake));
            return None;
        }
        Value::Text(text.into())
    };
    Some(SourceOption {
        place: entry.key.place.clone(),
        path: path.into(),
        value,
    })
}

/// The value of an option with a row, unless something is wrong with it that its shape does not say.
pub(super) fn checked(
    path: &str,
    value: Value,
    node: &Node,
    problems: &mut Problems,
) -> Option<Value> {
    if path == "request_headers.remove" {
        return names(value, node, problems);
    }
    let mistake = match (path, &value) {
        ("source", Value::Text(text)) if text.is_empty() => Some("a name is needed here"),
        ("source", Value::Text(text)) => mistake_in_value(path, text),
        ("politeness.per_address.concurrency", Value::Integer(0)) => {
            Some("nothing goes if no request may; write at least 1, or none")
        }
        ("politeness.bytes_per_second", Value::Size(0)) => {
            Some("nothing goes if no byte may; write at least 1B, or none")
        }
        ("budget.hosts", Value::Integer(10_001..)) => Some("at most 10000 hosts can be told apart"),
        (_, Value::Duration(time)) if time.is_zero() && path.starts_with("timeouts.") => {
            Some("nothing is done in no time; write at least 1ms, or none")
        }
        _ => None,
    };
    let Some(mistake) = mistake else {
        return Some(value);
    };
    problems.push(wrong_type(node, mistake));
    None
}

/// Names of fields, each of which may be removed.
fn names(value: Value, node: &Node, problems: &mut Problems) -> Option<Value> {
    let before = problems.len();
    for item in read::one_or_many(node) {
        if let Some(mistake) = item.spelling().and_then(mistake_in_name) {
            problems.push(wrong_type(item, mistake));
        }
    }
    (problems.len() == before).then_some(value)
}
