//! Options: the settings that a policy assigns to a URL besides its verdict
//! (docs/policy/reference.md, "Options").
//!
//! Each key of a map of options is an option, so a policy has a flat table of options
//! (`disposition`, `politeness.delay`, `meta.team` …). Rules assign values to them. During an
//! evaluation only the last rule that assigned each option is recorded, which is also what `explain`
//! shows.

pub mod budget;
pub mod checks;
pub mod depth;
pub mod header_fields;
pub mod politeness;
pub mod prepared;
pub mod recrawl;
pub mod removal;
pub mod robots;
pub mod schema;
pub mod timeouts;
pub mod url_rewrite;
mod value;

pub use value::OptionValue;

use super::Policy;
use super::host_pace::{HostPaceIndex, HostPaceTable};
use super::rule::{Rule, RuleBody, RuleIndex};
use super::space::{SpaceIndex, Spaces};
use checks::CheckAction;

/// The index of an option in an [`OptionTable`].
///
/// The options of [`schema`] come first, in its order, so that their indexes are constants; the keys
/// of open maps (`meta.*`) follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OptionIndex(pub u16);

/// An assignment of a rule or a space.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    pub index: OptionIndex,
    /// The value; `null` in a policy has been replaced by the option's default.
    pub value: OptionValue,
}

/// Every option of a policy with its value before the first rule.
#[derive(Debug)]
pub struct OptionTable {
    /// The options, by [`OptionIndex`].
    pub entries: Box<[OptionEntry]>,
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
    /// The index among the options that rules assign: an evaluation needs memory only for those.
    assigned: Option<u16>,
}

impl OptionEntry {
    /// Creates the entry of an option with its built-in default.
    pub fn built_in(path: &str, default: OptionValue) -> Self {
        Self {
            path: path.into(),
            base: default,
            set_by: OptionSetter::BuiltIn,
            assigned: None,
        }
    }

    /// Returns the index among the options that rules assign.
    pub fn assigned_index(&self) -> Option<usize> {
        self.assigned.map(usize::from)
    }
}

impl OptionTable {
    /// Creates a table of all options for these rules.
    pub fn new(entries: Vec<OptionEntry>, rules: &[Rule]) -> Self {
        let mut table = Self {
            entries: entries.into(),
            assigned_count: 0,
        };
        for rule in rules {
            let RuleBody::Group(group) = &rule.body else {
                continue;
            };
            for assignment in &group.assignments {
                table.assign_index(assignment.index);
            }
        }
        table
    }

    /// Returns the number of options that rules assign.
    pub fn assigned_count(&self) -> usize {
        usize::from(self.assigned_count)
    }

    /// Returns the option with this index.
    pub fn get(&self, index: OptionIndex) -> Option<&OptionEntry> {
        self.entries.get(usize::from(index.0))
    }

    fn assign_index(&mut self, index: OptionIndex) {
        if let Some(OptionEntry {
            assigned: assigned @ None,
            ..
        }) = self.entries.get_mut(usize::from(index.0))
        {
            *assigned = Some(self.assigned_count);
            self.assigned_count += 1;
        }
    }
}

/// The origin of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OptionSetter {
    /// The built-in default.
    BuiltIn,
    Document,
    /// The `options` of the crawler's space.
    Space(SpaceIndex),
    Rule(RuleIndex),
    /// An entry of `hosts`.
    Host(HostPaceIndex),
}

/// The parts of a policy that assign values to options.
#[derive(Clone, Copy)]
pub(crate) struct OptionSources<'a> {
    pub(crate) options: &'a OptionTable,
    pub(crate) spaces: &'a Spaces,
    pub(crate) rules: &'a [Rule],
    pub(crate) host_paces: &'a HostPaceTable,
}

impl<'a> OptionSources<'a> {
    /// Returns every value that an option can have, each with its origin.
    pub(crate) fn possible_values(
        self,
        index: OptionIndex,
    ) -> impl Iterator<Item = (OptionSetter, &'a OptionValue)> {
        let base = self
            .options
            .get(index)
            .map(|entry| (entry.set_by, &entry.base));
        let spaces = (0..)
            .map(|at| OptionSetter::Space(SpaceIndex(at)))
            .zip(self.spaces.all())
            .filter_map(move |(setter, space)| Some((setter, space.value(index)?)));
        let rules = (0..)
            .map(|at| OptionSetter::Rule(RuleIndex(at)))
            .zip(self.rules)
            .filter_map(move |(setter, rule)| Some((setter, rule.assigned_value(index)?)));
        let hosts = (0..)
            .map(HostPaceIndex)
            .zip(self.host_paces.entries())
            .filter_map(move |(entry, _)| {
                let value = self.host_paces.value(entry, index)?;
                Some((OptionSetter::Host(entry), value))
            });
        base.into_iter().chain(spaces).chain(rules).chain(hosts)
    }

    /// Returns `true` if an option can have a value other than `none`.
    pub(crate) fn ever_sets(self, index: OptionIndex) -> bool {
        self.possible_values(index)
            .any(|(_, value)| *value != OptionValue::None)
    }

    /// Returns `true` if the policy assigns a value to an option.
    pub(crate) fn is_assigned(self, index: OptionIndex) -> bool {
        self.possible_values(index)
            .any(|(setter, _)| setter != OptionSetter::BuiltIn)
    }

    /// Returns `true` if a check can be set to anything but `pass`.
    pub(crate) fn ever_checks(self, index: OptionIndex) -> bool {
        self.possible_values(index).any(|(_, value)| {
            value
                .as_word()
                .is_some_and(|word| CheckAction::from_word(word) != CheckAction::Pass)
        })
    }

    /// Returns `true` if a check can pass on only the links of a document.
    pub(crate) fn ever_gives_links(self) -> bool {
        [schema::NOINDEX, schema::DUPLICATE]
            .into_iter()
            .flat_map(|index| self.possible_values(index))
            .any(|(_, value)| *value == OptionValue::Word(schema::LINKS_WORD))
    }
}

impl Rule {
    /// Returns the value that the rule assigns to an option.
    pub(crate) fn assigned_value(&self, index: OptionIndex) -> Option<&OptionValue> {
        let RuleBody::Group(group) = &self.body else {
            return None;
        };
        // If a rule assigns an option twice, the last assignment wins.
        group
            .assignments
            .iter()
            .rev()
            .find(|assignment| assignment.index == index)
            .map(|assignment| &assignment.value)
    }
}

impl Policy {
    pub(crate) fn option_sources(&self) -> OptionSources<'_> {
        OptionSources {
            options: &self.options,
            spaces: &self.spaces,
            rules: &self.rules,
            host_paces: &self.host_paces,
        }
    }

    /// Returns the parent proxies that the option `upstream` names anywhere.
    pub fn parent_proxies(&self) -> impl Iterator<Item = (OptionSetter, &str)> {
        let values = self.possible_values(schema::UPSTREAM);
        values.filter_map(|(setter, value)| {
            let OptionValue::Text(name) = value else {
                return None;
            };
            Some((setter, &**name))
        })
    }

    /// The name of an origin in explanations: the id of a rule, or the place of the options.
    pub fn setter_name(&self, setter: OptionSetter) -> &str {
        match setter {
            OptionSetter::BuiltIn => "built-in",
            OptionSetter::Document => "options",
            OptionSetter::Space(space) => self.space_options_path(space),
            OptionSetter::Rule(rule) => self.rule_id(rule).unwrap_or(""),
            OptionSetter::Host(entry) => self.host_pace_label(entry),
        }
    }

    /// Returns every value that an option can have, each with its origin.
    pub fn possible_values(
        &self,
        index: OptionIndex,
    ) -> impl Iterator<Item = (OptionSetter, &OptionValue)> {
        self.option_sources().possible_values(index)
    }

    /// Returns `true` if the policy can set this check to anything but `pass`. Otherwise no
    /// response needs it.
    pub fn ever_checks(&self, index: OptionIndex) -> bool {
        self.option_sources().ever_checks(index)
    }

    /// Returns `true` if the policy can pass on only the links of a document, by `noindex: links` or
    /// `duplicate: links`.
    pub fn ever_gives_links(&self) -> bool {
        self.option_sources().ever_gives_links()
    }

    /// Returns the keys of an open map that the policy uses, with their indexes.
    pub fn open_map_keys(&self, map: &'static str) -> impl Iterator<Item = (OptionIndex, &str)> {
        (0..)
            .map(OptionIndex)
            .zip(&self.options.entries)
            .filter_map(move |(index, entry)| {
                let (open, key) = schema::split_open_key(&entry.path)?;
                (open.path == map).then_some((index, key))
            })
    }
}
