//! Options that become header fields or time-outs: the keys of open maps, and checks of what a row's shape cannot say.

use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::policy::options::OptionValue;
use crate::policy::options::header_fields::{
    invalid_key_reason, invalid_name_reason, invalid_value_reason,
};
use crate::policy::options::schema::OpenMap;
use crate::policy::source::tree::SourceOption;
use crate::yaml::read::{self, wrong_type};
use crate::yaml::{MappingEntry, Node};

/// A key of an open map: text, or `null` for nothing. Names of fields are told apart without their capitals.
pub(super) fn read_open_key(
    entry: &MappingEntry,
    map: &OpenMap,
    problems: &mut Problems,
) -> Option<SourceOption> {
    let key = &*entry.key.text;
    if let Some(mistake) = invalid_key_reason(map.path, key) {
        problems.push(Problem::error(&entry.key.place, mistake).with_found(key));
        return None;
    }
    let path = format!("{}.{}", map.path, key.to_ascii_lowercase());
    let value = if entry.value.is_null() {
        OptionValue::None
    } else {
        let text = read::spelling(&entry.value, problems)?;
        if let Some(mistake) = invalid_value_reason(&path, text) {
            problems.push(wrong_type(&entry.value, mistake));
            return None;
        }
        OptionValue::Text(text.into())
    };
    Some(SourceOption {
        place: entry.key.place.clone(),
        path: path.into(),
        value,
    })
}

/// The value of an option with a row, unless something is wrong with it that its shape does not say.
pub(super) fn check_value(
    path: &str,
    value: OptionValue,
    node: &Node,
    problems: &mut Problems,
) -> Option<OptionValue> {
    if path == "request_headers.remove" {
        return check_names(value, node, problems);
    }
    let mistake = match (path, &value) {
        ("source", OptionValue::Text(text)) if text.is_empty() => Some("a name is needed here"),
        ("source", OptionValue::Text(text)) => invalid_value_reason(path, text),
        ("politeness.per_address.concurrency", OptionValue::Integer(0)) => {
            Some("nothing goes if no request may; write at least 1, or none")
        }
        ("politeness.bytes_per_second", OptionValue::Size(0)) => {
            Some("nothing goes if no byte may; write at least 1B, or none")
        }
        ("budget.hosts", OptionValue::Integer(10_001..)) => {
            Some("at most 10000 hosts can be told apart")
        }
        (_, OptionValue::Duration(time)) if time.is_zero() && path.starts_with("timeouts.") => {
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
fn check_names(value: OptionValue, node: &Node, problems: &mut Problems) -> Option<OptionValue> {
    let before = problems.len();
    for item in read::one_or_many(node) {
        if let Some(mistake) = item.spelling().and_then(invalid_name_reason) {
            problems.push(wrong_type(item, mistake));
        }
    }
    (problems.len() == before).then_some(value)
}
