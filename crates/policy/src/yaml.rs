//! YAML with locations: a parser that produces a tree of [`Node`]s, and readers that report every
//! mistake.
//!
//! No other module uses the YAML crates.

mod item_texts;
mod mistake;
mod node;
mod parse;
pub mod read;
mod simple;

pub use item_texts::{CountedNode, ItemText, ItemTexts};
pub use node::{MappingEntry, MappingKey, Node, YamlValue};
pub use parse::{MAX_NODES, parse, parse_beside};
