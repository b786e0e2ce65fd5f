//! YAML with locations: a parser that produces a tree of [`Node`]s, and readers that report every
//! mistake.
//!
//! No other module uses the YAML crate.

mod item_texts;
mod mistake;
mod node;
mod parse;
pub mod read;

pub use item_texts::{ItemText, ItemTexts};
pub use node::{MappingEntry, MappingKey, Node, YamlValue};
pub use parse::{MAX_NODES, parse};
