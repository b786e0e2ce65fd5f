//! Checks of option values beyond their shape, and the keys of open maps.

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

/// Reads a key of an open map: text, or `null` to remove it. Field names are compared without
/// regard to case.
pub(super) fn read_open_key(
    entry: &MappingEntry,
    map: &OpenMap,
    problems: &mut Problems,
) -> Option<SourceOption> {
    let key = &*entry.key.text;
    if let Some(reason) = invalid_key_reason(map.path, key) {
        problems.push(Problem::error(&entry.key.place, reason).with_found(key));
        return None;
    }
    let path = format!("{}.{}", map.path, key.to_ascii_lowercase());
    let value = if entry.value.is_null() {
        OptionValue::None
    } else {
        let text = read::spelling(&entry.value, problems)?;
        if let Some(reason) = invalid_value_reason(&path, text) {
            problems.push(wrong_type(&entry.value, reason));
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

/// Returns the value of an option unless it is invalid for a reason that its shape does not
/// express.
pub(super) fn check_value(
    path: &str,
    value: OptionValue,
    node: &Node,
    problems: &mut Problems,
) -> Option<OptionValue> {
    if path == "request_headers.remove" {
        return check_names(value, node, problems);
    }
    let reason = match (path, &value) {
        ("source", OptionValue::Text(text)) if text.is_empty() => Some("expected a name"),
        ("source", OptionValue::Text(text)) => invalid_value_reason(path, text),
        ("politeness.per_address.concurrency", OptionValue::Integer(0)) => {
            Some("a limit of 0 would stop every request; write at least 1, or none")
        }
        ("politeness.bytes_per_second", OptionValue::Size(0)) => {
            Some("a limit of 0 would stop every request; write at least 1B, or none")
        }
        ("budget.hosts", OptionValue::Integer(10_001..)) => {
            Some("at most 10000 hosts can be counted")
        }
        (_, OptionValue::Duration(time)) if time.is_zero() && path.starts_with("timeouts.") => {
            Some("a timeout of 0 would end every request; write at least 1ms, or none")
        }
        _ => None,
    };
    let Some(reason) = reason else {
        return Some(value);
    };
    problems.push(wrong_type(node, reason));
    None
}

/// Checks the names of `request_headers.remove`.
fn check_names(value: OptionValue, node: &Node, problems: &mut Problems) -> Option<OptionValue> {
    let before = problems.len();
    for item in read::one_or_many(node) {
        if let Some(reason) = item.spelling().and_then(invalid_name_reason) {
            problems.push(wrong_type(item, reason));
        }
    }
    (problems.len() == before).then_some(value)
}
