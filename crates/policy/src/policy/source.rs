//! The source of a policy: its text as a tree of rules, conditions and options, before compilation.
//!
//! The tree records what was written, with the location of every value. Names are checked, meaning
//! is not. Importers of other formats can build the same tree. Only this module depends on YAML.

mod assertion;
mod case;
mod case_file;
mod condition;
mod document;
mod file_set;
pub mod files;
mod host_pace;
mod json_schema;
mod key;
pub(crate) mod list_file;
mod option;
mod policy_reader;
mod rule;
pub(crate) mod rule_texts;
mod space;
pub mod tree;

pub use case_file::{CaseFile, FileKind, read_case_file};
pub(crate) use document::missing_disposition;
pub use file_set::{PolicyFileDigests, PolicyFileSet, PolicyFileSetError};
pub use files::{FileError, FileSystem, MemoryFileSystem};
pub use json_schema::json_schema;
pub use policy_reader::read_policy;

use crate::diagnostics::problems::Problems;
use crate::yaml::{Node, read};

use tree::{Located, LocatedText};

/// Reads any scalar as text, as it is spelled.
fn read_text(node: &Node, problems: &mut Problems) -> Option<LocatedText> {
    let value = read::spelling(node, problems)?.into();
    Some(Located {
        place: node.place.clone(),
        value,
    })
}
