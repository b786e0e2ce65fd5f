//! Options: the settings that a policy assigns to a URL besides its verdict
//! (docs/policy/reference.md, "Options").
//!
//! Each key of a map of options is an option, so a policy has a flat table of *slots*
//! (`disposition`, `politeness.delay`, `meta.team` …). Rules assign values to slots. During an
//! evaluation only the last rule that assigned each slot is recorded, which is also what `explain`
//! shows.

pub mod budget;
pub mod checks;
pub mod header_fields;
pub mod politeness;
pub mod prepared;
pub mod recrawl;
pub mod robots;
pub mod schema;
pub mod timeouts;
pub mod url_rewrite;
mod value;

pub use value::OptionValue;

use super::rule::{Rule, RuleBody, RuleIndex};
use super::space::SpaceIndex;

/// The index of an option in an [`OptionTable`].
///
/// The options of [`schema`] come first, in its order, so that their slots are constants; the keys
/// of open maps (`meta.*`) follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OptionSlot(pub u16);

/// An assignment of a rule or a space.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    pub slot: OptionSlot,
    /// The value; `null` in a policy has been replaced by the option's default.
    pub value: OptionValue,
}

/// Every option of a policy with its value before the first rule.
#[derive(Debug)]
pub struct OptionTable {
    /// The options, indexed by slot.
    pub entries: Box<[OptionEntry]>,
    /// For each slot its index among the options that rules assign: an evaluation needs memory only
    /// for those.
    assigned_indexes: Box<[Option<u16>]>,
    assigned_count: u16,
}

#[derive(Debug)]
pub struct OptionEntry {
    /// The path: `politeness.delay`.
    pub path: Box<str>,
    /// The value before the first rule.
    pub base: OptionValue,
    /// The origin of that value.
    pub set_by: OptionSetter,
}

impl OptionTable {
    /// Creates a table of all options, indexed by slot, for these rules.
    pub fn new(entries: Vec<OptionEntry>, rules: &[Rule]) -> Self {
        let mut table = Self {
            assigned_indexes: vec![None; entries.len()].into(),
            entries: entries.into(),
            assigned_count: 0,
        };
        for rule in rules {
            let RuleBody::Group(group) = &rule.body else {
                continue;
            };
            for assignment in &group.assignments {
                table.assign_index(assignment.slot);
            }
        }
        table
    }

    /// Returns the number of options that rules assign.
    pub fn assigned_count(&self) -> usize {
        usize::from(self.assigned_count)
    }

    /// Returns the index of an option among those that rules assign.
    pub fn assigned_index(&self, slot: OptionSlot) -> Option<usize> {
        self.assigned_indexes
            .get(usize::from(slot.0))
            .copied()
            .flatten()
            .map(usize::from)
    }

    fn assign_index(&mut self, slot: OptionSlot) {
        if let Some(seat @ None) = self.assigned_indexes.get_mut(usize::from(slot.0)) {
            *seat = Some(self.assigned_count);
            self.assigned_count += 1;
        }
    }
}

/// The origin of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OptionSetter {
    /// The built-in default.
    BuiltIn,
    /// The document's `options`.
    Document,
    /// The `options` of the crawler's space.
    Space(SpaceIndex),
    /// A rule.
    Rule(RuleIndex),
}
