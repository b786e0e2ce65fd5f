//! The tree: values with the places at which they are written.

use crate::diagnostics::problem::SourceLocation;

/// A value and where it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where it begins.
    pub place: SourceLocation,
    /// What it is.
    pub value: YamlValue,
}

/// What a node is.
///
/// Scalars without quotes keep their spelling: `1.10` is a number in one place and text in another, and only the
/// reader knows which.
#[derive(Clone, Debug, PartialEq)]
pub enum YamlValue {
    /// Nothing, `null` or `~`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number, and how it is written.
    Int(i64, Box<str>),
    /// Any other number, and how it is written.
    Float(f64, Box<str>),
    /// Text.
    Text(Box<str>),
    /// `[…]` or lines with `-`.
    Sequence(Vec<Node>),
    /// `{…}` or lines with keys; no key stands twice.
    Mapping(Vec<MappingEntry>),
}

/// A key of a mapping with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct MappingEntry {
    /// The key.
    pub key: MappingKey,
    /// Its value.
    pub value: Node,
}

/// The key of a mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct MappingKey {
    /// Where it begins.
    pub place: SourceLocation,
    /// Its text.
    pub text: Box<str>,
}

impl Node {
    /// What the node is, in the words of a message.
    pub fn kind_name(&self) -> &'static str {
        match &self.value {
            YamlValue::Null => "nothing",
            YamlValue::Bool(_) => "true or false",
            YamlValue::Int(..) | YamlValue::Float(..) => "a number",
            YamlValue::Text(_) => "text",
            YamlValue::Sequence(_) => "a list",
            YamlValue::Mapping(_) => "a mapping",
        }
    }

    /// A scalar as it is written, without quotes; `None` for nothing, lists and mappings.
    pub fn spelling(&self) -> Option<&str> {
        match &self.value {
            YamlValue::Bool(true) => Some("true"),
            YamlValue::Bool(false) => Some("false"),
            YamlValue::Int(_, text) | YamlValue::Float(_, text) | YamlValue::Text(text) => {
                Some(text)
            }
            YamlValue::Null | YamlValue::Sequence(_) | YamlValue::Mapping(_) => None,
        }
    }

    /// What to quote in a message: the scalar, or what kind of thing it is.
    pub fn display_text(&self) -> &str {
        self.spelling().unwrap_or(match self.value {
            YamlValue::Sequence(_) => "[…]",
            YamlValue::Mapping(_) => "{…}",
            YamlValue::Null
            | YamlValue::Bool(_)
            | YamlValue::Int(..)
            | YamlValue::Float(..)
            | YamlValue::Text(_) => "null",
        })
    }

    /// Whether it is nothing, `null` or `~`.
    pub fn is_null(&self) -> bool {
        self.value == YamlValue::Null
    }

    /// The value of a key, if the node is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        let YamlValue::Mapping(entries) = &self.value else {
            return None;
        };
        entries
            .iter()
            .find(|e| *e.key.text == *key)
            .map(|e| &e.value)
    }
}
