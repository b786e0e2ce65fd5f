//! Options: what a policy assigns to a URL besides its verdict (policy.md section 5).
//!
//! In an option that is a map each key is an option of its own, so a policy has a flat table of *slots*
//! (`disposition`, `politeness.delay`, `meta.team` …). A rule assigns values to slots; while a request is judged
//! only the rule that last assigned each slot is kept, which is also what explain shows.

pub mod schema;
mod value;

pub use value::Value;

use super::rule::RuleIndex;

/// The place of an option in an [`OptionTable`].
///
/// The options of [`schema`] come first and in its order, so that their slots are constants; keys of open maps
/// (`meta.*`) follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

/// One assignment of a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The option.
    pub slot: Slot,
    /// Its value; `null` in a policy has become the option's default.
    pub value: Value,
}

/// Every option of a policy with its value before the first rule runs.
#[derive(Debug)]
pub struct OptionTable {
    /// In the order of their slots.
    pub entries: Box<[OptionEntry]>,
}

/// One option.
#[derive(Debug)]
pub struct OptionEntry {
    /// Its path: `politeness.delay`.
    pub path: Box<str>,
    /// The value before the first rule.
    pub base: Value,
    /// Who set that value.
    pub set_by: SetBy,
}

impl OptionTable {
    /// A table of every option, in the order of their slots.
    pub fn new(entries: Vec<OptionEntry>) -> Self {
        Self { entries: entries.into() }
    }
}

/// Who set an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetBy {
    /// Nobody: it is the built-in default.
    BuiltIn,
    /// The document's `options`.
    Document,
    /// A rule.
    Rule(RuleIndex),
}
