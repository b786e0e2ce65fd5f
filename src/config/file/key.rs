//! Keys of the configuration file. Each is one row of a table, which states its name, its description and its value;
//! the reader and the JSON Schema are derived from it.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::metrics::log::SampleRate;
use crate::model::units::{format_duration, format_size};
use crate::model::words::Word;
use crate::yaml::Node;
use crate::yaml::read::{self, MapReader};

use super::ReadContext;
use super::json_schema::{
    boolean_schema, duration_schema, enum_schema, size_schema, text_schema, variable_schema,
};

/// A key of a mapping whose values are stored in a `T`.
pub(super) struct ConfigKey<T: 'static> {
    name: &'static str,
    /// The description that editors show.
    about: &'static str,
    required: bool,
    value: &'static dyn ConfigValue<T>,
}

impl<T> ConfigKey<T> {
    /// Creates the row of a key that may be omitted.
    pub(super) const fn new(
        name: &'static str,
        about: &'static str,
        value: &'static dyn ConfigValue<T>,
    ) -> Self {
        Self {
            name,
            about,
            required: false,
            value,
        }
    }

    /// Creates the row of a key that must not be omitted.
    pub(super) const fn required(
        name: &'static str,
        about: &'static str,
        value: &'static dyn ConfigValue<T>,
    ) -> Self {
        Self {
            name,
            about,
            required: true,
            value,
        }
    }

    /// Creates the row of a key that has no effect in this version yet.
    pub(super) const fn unsupported(name: &'static str, value: &'static UnsupportedValue) -> Self {
        Self::new(name, "Not in this version.", value)
    }
}

/// The value of a key: how it is read and described.
pub(super) trait ConfigValue<T>: Sync {
    /// Reads the value into `target`, or reports the problem.
    fn read(&self, node: &Node, target: &mut T, context: &mut ReadContext<'_>);

    /// Returns the JSON Schema of the value; `defaults` has the default.
    fn schema(&self, defaults: &mut T) -> Json;
}

/// Reads the keys of a mapping, in the order of their rows, and reports every other key.
pub(super) fn read_keys<T>(
    keys: &[ConfigKey<T>],
    mut map: MapReader<'_>,
    target: &mut T,
    context: &mut ReadContext<'_>,
) {
    for key in keys {
        let node = if key.required {
            map.require(key.name, context.problems)
        } else {
            map.take(key.name)
        };
        if let Some(node) = node {
            key.value.read(node, target, context);
        }
    }
    map.finish(context.problems);
}

/// Returns the JSON Schema of a mapping with these keys and no others.
pub(super) fn object_schema<T>(about: &str, keys: &[ConfigKey<T>], defaults: &mut T) -> Json {
    let mut schema = Map::new();
    if !about.is_empty() {
        schema.insert("description".to_owned(), about.into());
    }
    let mut properties = Map::new();
    let mut required = Vec::new();
    for key in keys {
        let mut property = Map::new();
        property.insert("description".to_owned(), key.about.into());
        if let Json::Object(value) = key.value.schema(defaults) {
            property.extend(value);
        }
        properties.insert(key.name.to_owned(), property.into());
        if key.required {
            required.push(key.name);
        }
    }
    schema.insert("type".to_owned(), "object".into());
    schema.insert("additionalProperties".to_owned(), false.into());
    schema.insert("properties".to_owned(), properties.into());
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    schema.into()
}

/// A group of keys: a mapping whose values are stored in the same `T`.
pub(super) struct KeyGroup<T: 'static> {
    /// The full name, as in `logs.rotate`.
    pub(super) path: &'static str,
    pub(super) keys: &'static [ConfigKey<T>],
    /// If set, a group without a value (`limits:`) is accepted and changes nothing.
    pub(super) may_be_empty: bool,
}

impl<T> KeyGroup<T> {
    /// A group of the top level.
    pub(super) const fn section(path: &'static str, keys: &'static [ConfigKey<T>]) -> Self {
        Self {
            path,
            keys,
            may_be_empty: true,
        }
    }
}

impl<T> ConfigValue<T> for KeyGroup<T> {
    fn read(&self, node: &Node, target: &mut T, context: &mut ReadContext<'_>) {
        if self.may_be_empty && node.is_null() {
            return;
        }
        let mut problems = Problems::new();
        if let Some(map) = MapReader::open(node, &format!("`{}`", self.path), &mut problems) {
            return read_keys(self.keys, map, target, context);
        }
        let keys: Vec<&str> = self.keys.iter().map(|key| key.name).collect();
        let help = format!("its keys are {}", keys.join(", "));
        for problem in problems.into_vec() {
            context.problems.push(problem.with_help(help.as_str()));
        }
    }

    fn schema(&self, defaults: &mut T) -> Json {
        let mut schema = object_schema("", self.keys, defaults);
        if self.may_be_empty
            && let Some(schema) = schema.as_object_mut()
        {
            schema.insert("type".to_owned(), json!(["object", "null"]));
        }
        schema
    }
}

/// `true` or `false`, which selects one of two settings.
pub(super) struct SwitchValue<T, V> {
    pub(super) on: V,
    pub(super) off: V,
    pub(super) place: fn(&mut T) -> &mut V,
    /// A warning to report if the value is `false`.
    pub(super) warning_if_off: Option<&'static str>,
}

impl<T> SwitchValue<T, bool> {
    /// A setting that is itself `true` or `false`.
    pub(super) const fn new(field: fn(&mut T) -> &mut bool) -> Self {
        Self {
            on: true,
            off: false,
            place: field,
            warning_if_off: None,
        }
    }
}

impl<T, V: Copy + PartialEq + Sync> ConfigValue<T> for SwitchValue<T, V> {
    fn read(&self, node: &Node, target: &mut T, context: &mut ReadContext<'_>) {
        let Some(on) = read::boolean(node, context.problems) else {
            return;
        };
        *(self.place)(target) = if on { self.on } else { self.off };
        if let Some(warning) = self.warning_if_off.filter(|_| !on) {
            context
                .problems
                .push(Problem::warning(&node.place, warning));
        }
    }

    fn schema(&self, defaults: &mut T) -> Json {
        boolean_schema(*(self.place)(defaults) == self.on)
    }
}

/// One of a fixed set of words.
pub(super) struct WordValue<T, V>(pub(super) fn(&mut T) -> &mut V);

impl<T, V: Word> ConfigValue<T> for WordValue<T, V> {
    fn read(&self, node: &Node, target: &mut T, context: &mut ReadContext<'_>) {
        set_if_some((self.0)(target), read::enum_word(node, context.problems));
    }

    fn schema(&self, defaults: &mut T) -> Json {
        let words: Vec<&str> = V::ALL.iter().map(|value| value.as_str()).collect();
        enum_schema(&words, (self.0)(defaults).as_str())
    }
}

/// Reads one of some words, and returns its value.
pub(super) fn read_word<V: Copy>(
    node: &Node,
    words: &[(&'static str, V)],
    problems: &mut Problems,
) -> Option<V> {
    let allowed: Vec<&'static str> = words.iter().map(|(word, _)| *word).collect();
    read::word(
        node,
        &allowed,
        |text| words.iter().find(|(word, _)| *word == text),
        problems,
    )
    .map(|(_, value)| *value)
}

/// A whole number: its range and its place.
pub(super) struct CountValue<T, N>(
    pub(super) RangeInclusive<i64>,
    pub(super) fn(&mut T) -> &mut N,
);

impl<T, N: Copy + Serialize + TryFrom<i64>> ConfigValue<T> for CountValue<T, N> {
    fn read(&self, node: &Node, target: &mut T, context: &mut ReadContext<'_>) {
        let Self(range, place) = self;
        let count = read::integer(node, range.clone(), context.problems);
        let count = count.and_then(|count| N::try_from(count).ok());
        set_if_some(place(target), count);
    }

    fn schema(&self, defaults: &mut T) -> Json {
        let Self(range, place) = self;
        json!({
            "anyOf": [
                { "type": "integer", "minimum": range.start(), "maximum": range.end() },
                variable_schema(),
            ],
            "default": *place(defaults),
        })
    }
}

/// A size in bytes: its range and its place.
pub(super) struct SizeValue<T, N>(
    pub(super) RangeInclusive<u64>,
    pub(super) fn(&mut T) -> &mut N,
);

impl<T, N: Copy + TryFrom<u64> + TryInto<u64>> ConfigValue<T> for SizeValue<T, N> {
    fn read(&self, node: &Node, target: &mut T, context: &mut ReadContext<'_>) {
        let Self(range, place) = self;
        let size = read_size(node, range, "", context.problems);
        let size = size.and_then(|size| N::try_from(size).ok());
        set_if_some(place(target), size);
    }

    fn schema(&self, defaults: &mut T) -> Json {
        let default = (*(self.1)(defaults)).try_into().unwrap_or(u64::MAX);
        json!({ "anyOf": [size_schema(), variable_schema()], "default": format_size(default) })
    }
}

/// Reads a size within a range; `alternative` is appended to the range in the message.
pub(super) fn read_size(
    node: &Node,
    range: &RangeInclusive<u64>,
    alternative: &str,
    problems: &mut Problems,
) -> Option<u64> {
    let size = read::size(node, problems)?;
    if range.contains(&size) {
        return Some(size);
    }
    let least = format_size(*range.start());
    let most = format_size(*range.end());
    problems.push(read::wrong_type(
        node,
        &format!("a size from {least} to {most}{alternative} is needed here"),
    ));
    None
}

/// A duration: its range and its places. Some durations bound more than one part.
pub(super) struct TimeValue<T>(
    pub(super) RangeInclusive<Duration>,
    pub(super) fn(&mut T) -> Vec<&mut Duration>,
);

impl<T> ConfigValue<T> for TimeValue<T> {
    fn read(&self, node: &Node, target: &mut T, context: &mut ReadContext<'_>) {
        let Some(duration) = read::duration(node, context.problems) else {
            return;
        };
        let Self(range, places) = self;
        if !range.contains(&duration) {
            let least = format_duration(*range.start());
            let most = format_duration(*range.end());
            context.problems.push(read::wrong_type(
                node,
                &format!("a duration from {least} to {most} is needed here"),
            ));
            return;
        }
        for place in places(target) {
            *place = duration;
        }
    }

    fn schema(&self, defaults: &mut T) -> Json {
        let default = (self.1)(defaults)
            .first()
            .map(|time| format_duration(**time));
        json!({ "anyOf": [duration_schema(), variable_schema()], "default": default })
    }
}

/// A share of requests, from 0 to 1.
pub(super) struct ShareValue<T>(pub(super) fn(&mut T) -> &mut SampleRate);

impl<T> ConfigValue<T> for ShareValue<T> {
    fn read(&self, node: &Node, target: &mut T, context: &mut ReadContext<'_>) {
        let share = read::decimal(node, 0.0..=1.0, context.problems);
        set_if_some((self.0)(target), share.and_then(SampleRate::new));
    }

    fn schema(&self, defaults: &mut T) -> Json {
        json!({
            "anyOf": [{ "type": "number", "minimum": 0, "maximum": 1 }, variable_schema()],
            "default": (self.0)(defaults).as_f64(),
        })
    }
}

/// The path of a file or directory. A relative path starts at the directory of the configuration file.
pub(super) struct PathValue<T>(pub(super) fn(&mut T, PathBuf));

impl<T> ConfigValue<T> for PathValue<T> {
    fn read(&self, node: &Node, target: &mut T, context: &mut ReadContext<'_>) {
        if let Some(path) = read::spelling(node, context.problems) {
            (self.0)(target, context.base.resolve(path));
        }
    }

    fn schema(&self, _: &mut T) -> Json {
        text_schema()
    }
}

/// The path of a file, or `none`.
pub(super) struct PathOrNoneValue<T>(pub(super) fn(&mut T) -> &mut Option<PathBuf>);

impl<T> ConfigValue<T> for PathOrNoneValue<T> {
    fn read(&self, node: &Node, target: &mut T, context: &mut ReadContext<'_>) {
        if let Some(path) = read::spelling(node, context.problems) {
            *(self.0)(target) = (path != "none").then(|| context.base.resolve(path));
        }
    }

    fn schema(&self, _: &mut T) -> Json {
        text_schema()
    }
}

/// A scalar with a syntax of its own.
pub(super) struct ParsedValue<T, V> {
    pub(super) parse: fn(&str) -> Result<V, String>,
    pub(super) store: fn(&mut T, V),
    pub(super) schema: fn(&mut T) -> Json,
}

impl<T, V> ConfigValue<T> for ParsedValue<T, V> {
    fn read(&self, node: &Node, target: &mut T, context: &mut ReadContext<'_>) {
        if let Some(value) = parse_scalar(node, self.parse, context.problems) {
            (self.store)(target, value);
        }
    }

    fn schema(&self, defaults: &mut T) -> Json {
        (self.schema)(defaults)
    }
}

/// A value of a kind that only one key has: the functions that read it and return its schema.
pub(super) struct CustomValue<T>(
    pub(super) fn(&Node, &mut T, &mut ReadContext<'_>),
    pub(super) fn(&mut T) -> Json,
);

impl<T> ConfigValue<T> for CustomValue<T> {
    fn read(&self, node: &Node, target: &mut T, context: &mut ReadContext<'_>) {
        (self.0)(node, target, context);
    }

    fn schema(&self, defaults: &mut T) -> Json {
        (self.1)(defaults)
    }
}

/// A key that has no effect in this version yet. A setting that does nothing must not be accepted silently, so every
/// value is an error.
pub(super) struct UnsupportedValue {
    /// The full name of the key.
    pub(super) path: &'static str,
}

impl UnsupportedValue {
    /// A key that must be omitted.
    pub(super) const fn new(path: &'static str) -> Self {
        Self { path }
    }
}

impl<T> ConfigValue<T> for UnsupportedValue {
    fn read(&self, node: &Node, _: &mut T, context: &mut ReadContext<'_>) {
        let problem = Problem::error(
            &node.place,
            format!("`{}` is not in this version", self.path),
        );
        // The value is not quoted: it may be a secret.
        let problem = problem.with_help("leave it out");
        context.problems.push(problem);
    }

    fn schema(&self, _: &mut T) -> Json {
        json!({ "not": {} })
    }
}

/// Replaces a default by the value that was read, if it could be read.
pub(super) fn set_if_some<V>(target: &mut V, value: Option<V>) {
    if let Some(value) = value {
        *target = value;
    }
}

/// Reads a scalar with a syntax of its own.
pub(super) fn parse_scalar<V>(
    node: &Node,
    parse: impl Fn(&str) -> Result<V, String>,
    problems: &mut Problems,
) -> Option<V> {
    let text = read::spelling(node, problems)?;
    match parse(text) {
        Ok(value) => Some(value),
        Err(message) => {
            problems.push(read::wrong_type(node, &message));
            None
        }
    }
}

/// Reads one scalar, or a list of them; scalars with a mistake are left out.
pub(super) fn parse_scalars<V>(
    node: &Node,
    parse: impl Fn(&str) -> Result<V, String>,
    problems: &mut Problems,
) -> Vec<V> {
    read::one_or_many(node)
        .iter()
        .filter_map(|item| parse_scalar(item, &parse, problems))
        .collect()
}
