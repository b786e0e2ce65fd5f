//! The reader of options: flattens maps to paths, and gives values the types of the schema.

mod header_field;
pub(super) mod json_schema;
mod value;

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::policy::options::OptionValue;
use crate::policy::options::schema;
use crate::yaml::read::{self, unknown_key};
use crate::yaml::{MappingEntry, Node};

use super::tree::SourceOption;

/// Reads a map of options; each key of a nested map is an option.
pub(super) fn read_options(node: &Node, problems: &mut Problems) -> Vec<SourceOption> {
    let mut all = Vec::new();
    read_map(node, "", &mut all, problems);
    all
}

fn read_map(node: &Node, path: &str, all: &mut Vec<SourceOption>, problems: &mut Problems) {
    let subject = if path.is_empty() {
        "the value of `set` and `options`".into()
    } else {
        format!("`{path}`")
    };
    let presets = schema::preset_names(path);
    let first = all.len();
    let mut preset = Vec::new();
    for entry in read::entries(node, &subject, problems) {
        if !presets.is_empty() && *entry.key.text == *schema::PRESET_KEY {
            preset = read_preset(&entry.value, path, &presets, problems);
        } else {
            read_option(entry, path, all, problems);
        }
    }
    let own = all.get(first..).unwrap_or_default();
    preset.retain(|option| own.iter().all(|own| own.path != option.path));
    all.extend(preset);
}

/// Reads the name of a preset: the options that it sets.
fn read_preset(
    node: &Node,
    map_path: &str,
    names: &[&'static str],
    problems: &mut Problems,
) -> Vec<SourceOption> {
    let Some(name) = read::fixed_word(node, names, problems) else {
        return Vec::new();
    };
    schema::preset_values(map_path, name)
        .map(|(path, value)| source_option(&node.place, path, value))
        .collect()
}

pub(super) fn read_option(
    entry: &MappingEntry,
    map_path: &str,
    all: &mut Vec<SourceOption>,
    problems: &mut Problems,
) {
    let key = &*entry.key.text;
    let path = if map_path.is_empty() {
        key.to_owned()
    } else {
        format!("{map_path}.{key}")
    };
    if let Some(open) = schema::find_open_map(map_path) {
        return all.extend(
            header_field::read_open_key(entry, open, problems)
                .filter(|read| check_unique(read, entry, all, problems)),
        );
    }
    if let Some((_, spec)) = schema::find_spec(&path) {
        let value = value::read_value(&entry.value, spec, problems);
        let value = value
            .and_then(|value| header_field::check_value(spec.path, value, &entry.value, problems));
        all.extend(value.map(|value| source_option(&entry.key.place, path, value)));
        return;
    }
    let is_map =
        schema::find_open_map(&path).is_some() || schema::specs_below(&path).next().is_some();
    if !is_map || key.contains('.') {
        let mut keys = schema::keys_in(map_path);
        if !schema::preset_names(map_path).is_empty() {
            keys.insert(0, schema::PRESET_KEY);
        }
        return problems.push(unknown_key(&entry.key, &keys));
    }
    let presets = schema::preset_names(&path);
    if !presets.is_empty() && entry.value.spelling().is_some() {
        return all.extend(read_preset(&entry.value, &path, &presets, problems));
    }
    if !resets_map(&entry.value, &path) {
        return read_map(&entry.value, &path, all, problems);
    }
    let keys = schema::specs_below(&path);
    all.extend(
        keys.map(|spec| source_option(&entry.key.place, spec.path, spec.shape.default_value())),
    );
    // The keys of open maps are known only after the whole policy has been read.
    all.extend(
        schema::open_maps_in(&path)
            .map(|open| source_option(&entry.key.place, open.path, OptionValue::None)),
    );
}

/// Rejects header names that differ only in case: which of them wins would depend on chance.
fn check_unique(
    read: &SourceOption,
    entry: &MappingEntry,
    all: &[SourceOption],
    problems: &mut Problems,
) -> bool {
    let is_duplicate = all.iter().any(|other| other.path == read.path);
    if is_duplicate {
        let message = "this header is already set here with different capitalisation";
        problems.push(Problem::error(&entry.key.place, message).with_found(&*entry.key.text));
    }
    !is_duplicate
}

/// Returns `true` if the value resets every key of a map to its default: `null` always does, `none`
/// only if all defaults are `none`.
fn resets_map(node: &Node, path: &str) -> bool {
    let none_by_default =
        schema::specs_below(path).all(|spec| spec.shape.default_value() == OptionValue::None);
    node.is_null() || (none_by_default && node.spelling() == Some("none"))
}

fn source_option(
    place: &SourceLocation,
    path: impl Into<Box<str>>,
    value: OptionValue,
) -> SourceOption {
    SourceOption {
        place: place.clone(),
        path: path.into(),
        value,
    }
}

/// Reads the value of a single option outside a map, such as `reject` of a filter.
pub(super) fn read_option_value(
    node: &Node,
    path: &str,
    problems: &mut Problems,
) -> Option<OptionValue> {
    schema::find_spec(path).and_then(|(_, spec)| value::read_value(node, spec, problems))
}
