//! YAML with places: text to a tree of [`Node`]s, and readers that report every mistake in it.
//!
//! The only module that names the YAML crate. Only the policy's source and the configuration file use it; neither
//! knows which crate parses.

mod node;
mod parse;
pub mod read;

pub use node::{MappingEntry, MappingKey, Node, YamlValue};
pub use parse::parse;
