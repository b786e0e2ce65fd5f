//! The tree: values with their locations.

use std::sync::Arc;

use crate::diagnostics::problem::SourceLocation;

/// A value and its location.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The location of its first character.
    pub place: SourceLocation,
    pub value: YamlValue,
}

/// The value of a node.
///
/// Scalars without quotes keep their spelling: `1.10` may be a number or text, depending on the
/// key.
#[derive(Clone, Debug, PartialEq)]
pub enum YamlValue {
    /// An empty value, `null` or `~`.
    Null,
    Bool(bool),
    /// An integer, and its spelling.
    Int(i64, Box<str>),
    /// Any other number, and its spelling.
    Float(f64, Box<str>),
    Text(Box<str>),
    /// `[…]`, or lines that begin with `-`.
    Sequence(Vec<Node>),
    /// `{…}`, or lines with keys. Keys are unique.
    Mapping(Vec<MappingEntry>),
}

/// A key of a mapping with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct MappingEntry {
    pub key: MappingKey,
    pub value: Node,
}

#[derive(Clone, Debug, PartialEq)]
pub struct MappingKey {
    pub place: SourceLocation,
    /// The key. Equal keys of a text share it.
    pub text: Arc<str>,
}

impl Node {
    /// Returns the type of the value as messages name it.
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

    /// Returns the spelling of a scalar, without quotes; `None` for null, sequences and mappings.
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

    /// Returns the text to quote in a message: the scalar, or a placeholder for its type.
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

    pub fn is_null(&self) -> bool {
        self.value == YamlValue::Null
    }

    /// Returns the value of a key, if the node is a mapping that has the key.
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
