//! Options: what a policy assigns to a URL besides its verdict (policy.md section 5).
//!
//! In an option that is a map each key is an option of its own, so a policy has a flat table of *slots*
//! (`disposition`, `politeness.delay`, `meta.team` …). A rule assigns values to slots; while a request is judged
//! only the rule that last assigned each slot is kept, which is also what explain shows.

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

/// The place of an option in an [`OptionTable`].
///
/// The options of [`schema`] come first and in its order, so that their slots are constants; keys of open maps
/// (`meta.*`) follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OptionSlot(pub u16);

/// One assignment of a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The option.
    pub slot: OptionSlot,
    /// Its value; `null` in a policy has become the option's default.
    pub value: OptionValue,
}

/// Every option of a policy with its value before the first rule runs.
#[derive(Debug)]
pub struct OptionTable {
    /// In the order of their slots.
    pub entries: Box<[OptionEntry]>,
    /// For each slot its seat among those that rules assign: only they need memory while a request is judged.
    assigned_indexes: Box<[Option<u16>]>,
    assigned_count: u16,
}

/// One option.
#[derive(Debug)]
pub struct OptionEntry {
    /// Its path: `politeness.delay`.
    pub path: Box<str>,
    /// The value before the first rule.
    pub base: OptionValue,
    /// Who set that value.
    pub set_by: OptionSetter,
}

impl OptionTable {
    /// A table of every option, in the order of their slots, for these rules.
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

    /// How many options rules assign.
    pub fn assigned_count(&self) -> usize {
        usize::from(self.assigned_count)
    }

    /// The seat of an option that a rule assigns.
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

/// Who set an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OptionSetter {
    /// Nobody: it is the built-in default.
    BuiltIn,
    /// The document's `options`.
    Document,
    /// The `options` of the crawler's space.
    Space(SpaceIndex),
    /// A rule.
    Rule(RuleIndex),
}
