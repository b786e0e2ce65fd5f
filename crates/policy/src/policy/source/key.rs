//! Descriptors of the keys of mappings. The reader takes name, words and default from them, the JSON
//! Schema all of it.

use serde_json::{Map, Value as Json, json};

use crate::diagnostics::problems::Problems;
use crate::yaml::read::{self, MapReader};

use super::json_schema::{described, reference};
use super::option;

/// A key of a mapping.
pub(super) struct Key {
    pub(super) name: &'static str,
    /// The description in the JSON Schema: one sentence.
    description: &'static str,
    shape: KeyShape,
}

/// The values of a key.
enum KeyShape {
    Flag {
        default: bool,
    },
    Words {
        words: &'static [&'static str],
        default: Option<&'static str>,
    },
    /// A definition of the JSON Schema: `condition`.
    Definition(&'static str),
    /// A list of values of a definition.
    List(&'static str),
    /// The option of the same name, with its description.
    Option,
    /// Values with a schema of their own.
    Schema(fn() -> Json),
}

impl Key {
    pub(super) const fn flag(name: &'static str, default: bool, description: &'static str) -> Self {
        Self::new(name, KeyShape::Flag { default }, description)
    }

    pub(super) const fn words(
        name: &'static str,
        words: &'static [&'static str],
        default: Option<&'static str>,
        description: &'static str,
    ) -> Self {
        Self::new(name, KeyShape::Words { words, default }, description)
    }

    pub(super) const fn definition(
        name: &'static str,
        definition: &'static str,
        description: &'static str,
    ) -> Self {
        Self::new(name, KeyShape::Definition(definition), description)
    }

    pub(super) const fn list(
        name: &'static str,
        definition: &'static str,
        description: &'static str,
    ) -> Self {
        Self::new(name, KeyShape::List(definition), description)
    }

    pub(super) const fn option(name: &'static str) -> Self {
        Self::new(name, KeyShape::Option, "")
    }

    pub(super) const fn schema(
        name: &'static str,
        schema: fn() -> Json,
        description: &'static str,
    ) -> Self {
        Self::new(name, KeyShape::Schema(schema), description)
    }

    const fn new(name: &'static str, shape: KeyShape, description: &'static str) -> Self {
        Self {
            name,
            description,
            shape,
        }
    }

    /// Reads a flag; returns the default if it is missing or invalid.
    pub(super) fn read_flag(&self, map: &mut MapReader<'_>, problems: &mut Problems) -> bool {
        let KeyShape::Flag { default } = self.shape else {
            return false;
        };
        map.take(self.name)
            .and_then(|node| read::boolean(node, problems))
            .unwrap_or(default)
    }

    /// Reads one of the key's words.
    pub(super) fn read_word(
        &self,
        map: &mut MapReader<'_>,
        problems: &mut Problems,
    ) -> Option<&'static str> {
        let KeyShape::Words { words, .. } = self.shape else {
            return None;
        };
        let node = map.take(self.name)?;
        read::fixed_word(node, words, problems)
    }

    fn json_schema(&self) -> Json {
        let values = match self.shape {
            KeyShape::Flag { default } => json!({ "type": "boolean", "default": default }),
            KeyShape::Words {
                words,
                default: Some(default),
            } => json!({ "enum": words, "default": default }),
            KeyShape::Words {
                words,
                default: None,
            } => json!({ "enum": words }),
            KeyShape::Definition(name) => reference(name),
            KeyShape::List(name) => json!({ "type": "array", "items": reference(name) }),
            KeyShape::Option => return option::json_schema::named_option(self.name),
            KeyShape::Schema(schema) => schema(),
        };
        described(self.description, &values)
    }
}

/// The `properties` of a mapping in the JSON Schema.
pub(super) fn properties<'k>(keys: impl IntoIterator<Item = &'k Key>) -> Map<String, Json> {
    keys.into_iter()
        .map(|key| (key.name.to_owned(), key.json_schema()))
        .collect()
}
