use std::fmt;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::model::disposition::Disposition;
use crate::model::intent::Intent;
use crate::model::units::{format_duration, format_size};

#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// `none`, and the default of options that have no other.
    None,
    Bool(bool),
    Integer(i64),
    Decimal(f64),
    /// One of a closed set of words.
    Word(&'static str),
    Text(Box<str>),
    Duration(Duration),
    /// A size in bytes.
    Size(u64),
    /// A number of requests in a period: `5/s`.
    Rate {
        count: u32,
        per: Duration,
    },
    /// `1.0..1.5`.
    Range(f64, f64),
    /// Several values; an assignment replaces all of them.
    List(Box<[OptionValue]>),
    /// A list item with keys.
    Map(Box<[(Box<str>, OptionValue)]>),
    Disposition(Disposition),
    /// The value of `reject`.
    Intent(Intent),
}

impl OptionValue {
    /// Returns the word of an option with a closed set of words.
    pub fn as_word(&self) -> Option<&'static str> {
        if let Self::Word(word) = self {
            Some(word)
        } else {
            None
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self {
            Some(text)
        } else {
            None
        }
    }

    pub(crate) fn as_duration(&self) -> Option<Duration> {
        if let Self::Duration(duration) = self {
            Some(*duration)
        } else {
            None
        }
    }

    /// Returns the items of a list; empty for other values.
    pub(crate) fn items(&self) -> &[Self] {
        if let Self::List(items) = self {
            items
        } else {
            &[]
        }
    }

    /// Returns the value of a key, if this is a map that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(entries) = self else {
            return None;
        };
        entries
            .iter()
            .find(|(known, _)| **known == *key)
            .map(|(_, value)| value)
    }

    /// Returns the JSON representation of the value: durations, sizes, rates and ranges are text.
    pub fn to_json(&self) -> Json {
        match self {
            Self::None => Json::Null,
            Self::Bool(value) => json!(value),
            Self::Integer(value) => json!(value),
            Self::Decimal(value) => json!(value),
            Self::Word(word) => json!(word),
            Self::Text(text) => json!(text),
            Self::Duration(value) => json!(format_duration(*value)),
            Self::Size(bytes) => json!(format_size(*bytes)),
            Self::Rate { count, per } => json!(format_rate(*count, *per)),
            Self::Range(from, to) => json!(format!("{from:?}..{to:?}")),
            Self::List(values) => values.iter().map(Self::to_json).collect(),
            Self::Map(entries) => entries
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_json()))
                .collect(),
            Self::Disposition(value) => json!(value.as_str()),
            Self::Intent(value) => json!(value.as_str()),
        }
    }
}

/// Writes the value as in a policy, and an unset one as `none`.
impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = self.to_json();
        if json.is_null() {
            return f.write_str("none");
        }
        match json.as_str() {
            Some(text) => f.write_str(text),
            None => json.fmt(f),
        }
    }
}

fn format_rate(count: u32, per: Duration) -> String {
    let unit = format_duration(per);
    format!("{count}/{}", unit.strip_prefix('1').unwrap_or(&unit))
}
