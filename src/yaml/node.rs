//! The tree: values with the places at which they are written.

use crate::vocab::problem::Place;

/// A value and where it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where it begins.
    pub place: Place,
    /// What it is.
    pub value: Value,
}

/// What a node is.
///
/// Scalars without quotes keep their spelling: `1.10` is a number in one place and text in another, and only the
/// reader knows which.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
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
    Mapping(Vec<Entry>),
}

/// A key of a mapping with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// Its value.
    pub value: Node,
}

/// The key of a mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Where it begins.
    pub place: Place,
    /// Its text.
    pub text: Box<str>,
}

impl Node {
    /// What the node is, in the words of a message.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Int(..) | Value::Float(..) => "a number",
            Value::Text(_) => "text",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
        }
    }

    /// A scalar as it is written, without quotes; `None` for nothing, lists and mappings.
    pub fn spelling(&self) -> Option<&str> {
        match &self.value {
            Value::Bool(true) => Some("true"),
            Value::Bool(false) => Some("false"),
            Value::Int(_, text) | Value::Float(_, text) | Value::Text(text) => Some(text),
            Value::Null | Value::Sequence(_) | Value::Mapping(_) => None,
        }
    }

    /// What to quote in a message: the scalar, or what kind of thing it is.
    pub fn shown(&self) -> &str {
        self.spelling().unwrap_or(match self.value {
            Value::Sequence(_) => "[…]",
            Value::Mapping(_) => "{…}",
            Value::Null | Value::Bool(_) | Value::Int(..) | Value::Float(..) | Value::Text(_) => {
                "null"
            }
        })
    }

    /// Whether it is nothing, `null` or `~`.
    pub fn is_null(&self) -> bool {
        self.value == Value::Null
    }

    /// The value of a key, if the node is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        let Value::Mapping(entries) = &self.value else {
            return None;
        };
        entries
            .iter()
            .find(|e| *e.key.text == *key)
            .map(|e| &e.value)
    }
}
