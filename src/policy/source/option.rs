//! Options as they are written: maps become paths, values get the types of the schema.

mod field;
mod value;

use crate::policy::options::Value;
use crate::policy::options::schema;
use crate::vocab::problem::{Place, Problem};
use crate::vocab::problems::Problems;
use crate::yaml::read::{self, unknown_key};
use crate::yaml::{Entry, Node};

use super::tree::SourceOption;

/// Reads a map of options; each key of a map in it is an option of its own.
pub(super) fn read_options(node: &Node, problems: &mut Problems) -> Vec<SourceOption> {
    let mut all = Vec::new();
    map(node, "", &mut all, problems);
    all
}

fn map(node: &Node, path: &str, all: &mut Vec<SourceOption>, problems: &mut Problems) {
    let what = if path.is_empty() {
        "the value of `set` and `options`".into()
    } else {
        format!("`{path}`")
    };
    for entry in read::entries(node, &what, problems) {
        option(entry, path, all, problems);
    }
}

fn option(entry: &Entry, map_path: &str, all: &mut Vec<SourceOption>, problems: &mut Problems) {
    let key = &*entry.key.text;
    let path = if map_path.is_empty() {
        key.to_owned()
    } else {
        format!("{map_path}.{key}")
    };
    if let Some(open) = schema::open_map(map_path) {
        return all.extend(
            field::read(entry, open, problems).filter(|read| is_new(read, entry, all, problems)),
        );
    }
    if let Some((_, spec)) = schema::find(&path) {
        let value = value::read(&entry.value, spec, problems);
        let value =
            value.and_then(|value| field::checked(spec.path, value, &entry.value, problems));
        all.extend(value.map(|value| assignment(&entry.key.place, path, value)));
        return;
    }
    let is_map = schema::open_map(&path).is_some() || schema::below(&path).next().is_some();
    if !is_map || key.contains('.') {
        return problems.push(unknown_key(&entry.key, &schema::keys_in(map_path)));
    }
    if !resets(&entry.value, &path) {
        return map(&entry.value, &path, all, problems);
    }
    let keys = schema::below(&path);
    all.extend(keys.map(|spec| assignment(&entry.key.place, spec.path, spec.default.value())));
    // Which keys they have is known only when all of the policy has been read.
    all.extend(
        schema::open_in(&path).map(|open| assignment(&entry.key.place, open.path, Value::None)),
    );
}

/// Names of fields that differ in capitals only are one name: which of them counts would be chance.
fn is_new(
    read: &SourceOption,
    entry: &Entry,
    all: &[SourceOption],
    problems: &mut Problems,
) -> bool {
    let taken = all.iter().any(|other| other.path == read.path);
    if taken {
        let message = "this field stands here already, in other letters";
        problems.push(Problem::error(&entry.key.place, message).found(&*entry.key.text));
    }
    !taken
}

/// `null` takes every key of a map back to its default, and so does `none` where the default is that there is none.
fn resets(node: &Node, path: &str) -> bool {
    let none_by_default = schema::below(path).all(|spec| spec.default.value() == Value::None);
    node.is_null() || (none_by_default && node.spelling() == Some("none"))
}

fn assignment(place: &Place, path: impl Into<Box<str>>, value: Value) -> SourceOption {
    SourceOption {
        place: place.clone(),
        path: path.into(),
        value,
    }
}

/// The value of one option where it stands alone, such as `reject` of a filter.
pub(super) fn one_value(node: &Node, path: &str, problems: &mut Problems) -> Option<Value> {
    schema::find(path).and_then(|(_, spec)| value::read(node, spec, problems))
}
