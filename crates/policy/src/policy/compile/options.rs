//! Compiles options: the table of the policy, the assignments of rules, and warnings about options
//! that have no effect.

use std::collections::BTreeMap;

use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::model::disposition::Disposition;
use crate::policy::options::schema::{self, OpenMap, OptionDeadline, OptionSpec, OptionSupport};
use crate::policy::options::{
    Assignment, OptionEntry, OptionIndex, OptionSetter, OptionTable, OptionValue,
};
use crate::policy::rule::Rule;
use crate::policy::source::missing_disposition;
use crate::policy::source::tree::{
    Located, SourceGroup, SourceOption, SourcePolicy, SourceRule, SourceRuleBody, ThenAction,
};

use super::replacements;
use super::stages::RulePlacement;

/// The options of a policy during compilation.
pub(super) struct OptionCompiler {
    entries: Vec<OptionEntry>,
    /// The indexes of the keys of open maps.
    open_indexes: BTreeMap<Box<str>, OptionIndex>,
}

const UNVERIFIED: &str = "`verify: skip`: certificates of origins are not verified, so responses may \
                          come from anyone";

impl OptionCompiler {
    /// Creates the table from the defaults and the document's `options`.
    pub(super) fn from_document(source: &SourcePolicy, problems: &mut Problems) -> Self {
        let entries = schema::SPECS
            .iter()
            .map(|spec| OptionEntry::built_in(spec.path, spec.shape.default_value()));
        let mut options = Self {
            entries: entries.collect(),
            open_indexes: BTreeMap::new(),
        };
        options.register_all_open_keys(source, problems);
        for option in source
            .options
            .iter()
            .filter(|option| schema::find_open_map(&option.path).is_none())
        {
            let Some(index) = options.resolve_index(option, problems) else {
                continue;
            };
            if let Some(entry) = options.entries.get_mut(usize::from(index.0)) {
                entry.base = option.value.clone();
                entry.set_by = OptionSetter::Document;
            }
        }
        // The reader reports this for texts; a source that was built otherwise is checked here.
        let expanded = source
            .options
            .iter()
            .any(|option| *option.path == *"disposition");
        if !expanded && !problems.has_errors() {
            problems.push(missing_disposition(&source.options_place));
        }
        options
    }

    pub(super) fn space_assignments(
        &mut self,
        options: &[SourceOption],
        problems: &mut Problems,
    ) -> Box<[Assignment]> {
        let mut all = Vec::new();
        for option in options {
            if let Some(map) = schema::find_open_map(&option.path) {
                all.extend(self.open_map_indexes(map).map(|index| Assignment {
                    index,
                    value: OptionValue::None,
                }));
                continue;
            }
            let index = self.resolve_index(option, problems);
            all.extend(index.map(|index| Assignment {
                index,
                value: option.value.clone(),
            }));
        }
        all.into()
    }

    /// Returns the assignments of a group: first those that `then` implies, then `set`.
    pub(super) fn assignments(
        &mut self,
        group: &SourceGroup,
        placement: &RulePlacement,
        problems: &mut Problems,
    ) -> Box<[Assignment]> {
        let mut all: Vec<Assignment> = Vec::new();
        if let Some(then) = &group.then {
            for option in expand_then(then) {
                let index = self.resolve_index(&option, problems);
                all.extend(index.map(|index| Assignment {
                    index,
                    value: option.value,
                }));
            }
        }
        let by_then = all.len();
        for option in &group.set {
            if let Some(map) = schema::find_open_map(&option.path) {
                all.extend(self.open_map_indexes(map).map(|index| Assignment {
                    index,
                    value: OptionValue::None,
                }));
                continue;
            }
            let Some(index) = self.resolve_index(option, problems) else {
                continue;
            };
            if all
                .get(..by_then)
                .unwrap_or(&[])
                .iter()
                .any(|assignment| assignment.index == index)
            {
                let problem = Problem::error(&option.place, "`then` already assigns this option")
                    .with_found(&*option.path);
                problems.push(problem.with_help("remove one of them"));
            }
            match option_timing(option, placement, problems) {
                OptionTiming::InTime => all.push(Assignment {
                    index,
                    value: option.value.clone(),
                }),
                OptionTiming::TooLate => {}
            }
        }
        all.into()
    }

    pub(super) fn into_table(self, rules: &[Rule]) -> OptionTable {
        OptionTable::new(self.entries, rules)
    }

    /// Returns the index of an option, and reports problems with its value.
    fn resolve_index(
        &mut self,
        option: &SourceOption,
        problems: &mut Problems,
    ) -> Option<OptionIndex> {
        if schema::split_open_key(&option.path).is_some() {
            return self.open_indexes.get(&option.path).copied();
        }
        let Some((index, spec)) = schema::find_spec(&option.path) else {
            let problem = Problem::error(&option.place, "unknown option").with_found(&*option.path);
            problems.push(problem.with_suggestion_from(schema::SPECS.iter().map(|spec| spec.path)));
            return None;
        };
        Self::check_effect(option, spec, problems);
        replacements::check_replacements(option, problems);
        if index == schema::VERIFY && option.value == OptionValue::Word("skip") {
            problems.push(Problem::warning(&option.place, UNVERIFIED));
        }
        Some(index)
    }

    fn register_all_open_keys(&mut self, source: &SourcePolicy, problems: &mut Problems) {
        self.register_open_keys(&source.options, problems);
        self.register_open_keys_of_rules(&source.rules, problems);
        for space in &source.spaces {
            self.register_open_keys(&space.options, problems);
            self.register_open_keys_of_rules(&space.rules, problems);
        }
    }

    /// Registers every key of an open map in these rules before any rule is compiled: `null` for a
    /// whole map resets all of its keys.
    fn register_open_keys_of_rules(&mut self, rules: &[SourceRule], problems: &mut Problems) {
        for rule in rules {
            if let SourceRuleBody::Group(group) = &rule.body {
                let before = problems.enter_rule(Some(rule.name().clone()));
                self.register_open_keys(&group.set, problems);
                problems.enter_rule(before);
                self.register_open_keys_of_rules(&group.rules, problems);
            }
        }
    }

    fn register_open_keys(&mut self, options: &[SourceOption], problems: &mut Problems) {
        for option in options {
            let Some((map, _)) = schema::split_open_key(&option.path) else {
                continue;
            };
            if self.open_indexes.contains_key(&option.path) {
                continue;
            }
            let next_index = u16::try_from(self.entries.len())
                .ok()
                .filter(|_| self.open_map_indexes(map).count() < map.max_keys);
            let Some(next_index) = next_index else {
                let message = format!(
                    "more than {} different keys of `{}`",
                    map.max_keys, map.path
                );
                problems.push(Problem::error(&option.place, message));
                continue;
            };
            self.entries
                .push(OptionEntry::built_in(&option.path, OptionValue::None));
            self.open_indexes
                .insert(option.path.clone(), OptionIndex(next_index));
        }
    }

    fn open_map_indexes(&self, map: &'static OpenMap) -> impl Iterator<Item = OptionIndex> {
        self.open_indexes
            .iter()
            .filter(move |(path, _)| {
                schema::split_open_key(path).is_some_and(|(open, _)| open.path == map.path)
            })
            .map(|(_, index)| *index)
    }

    fn check_effect(option: &SourceOption, spec: &'static OptionSpec, problems: &mut Problems) {
        let OptionSupport::IgnoredExcept(values) = spec.support else {
            return;
        };
        if values.contains(&option.value, &spec.shape.default_value()) {
            let message = format!(
                "`{}` is not supported in this version, and ignoring it could allow what it is meant to stop",
                spec.path
            );
            let problem = Problem::error(&option.place, message);
            problems.push(problem.with_found(option.value.to_json().to_string().trim_matches('"')));
        }
    }
}

/// The time at which a rule sets an option.
enum OptionTiming {
    InTime,
    /// The option has taken effect. It keeps its value, which decisions and `explain` show.
    TooLate,
}

/// Determines whether a rule sets an option before it takes effect, and reports one that does not.
fn option_timing(
    option: &SourceOption,
    placement: &RulePlacement,
    problems: &mut Problems,
) -> OptionTiming {
    let (path, deadline) = if let Some((_, spec)) = schema::find_spec(&option.path) {
        (spec.path, spec.deadline)
    } else if let Some((map, _)) = schema::split_open_key(&option.path) {
        (map.path, map.deadline)
    } else {
        return OptionTiming::InTime;
    };
    match deadline {
        OptionDeadline::Connect if !placement.host_only => {
            let message = format!(
                "`{path}` takes effect when only scheme, host, port and crawler are known, but this rule, or one \
                 that stops before it, depends on other facts"
            );
            problems.push(Problem::error(&option.place, message));
            OptionTiming::TooLate
        }
        OptionDeadline::Until(stage) if placement.with_headers.latest > stage => {
            let message = format!(
                "`{path}` takes effect at the {} stage, but the rule runs only at the {} stage",
                stage.as_str(),
                placement.with_headers.latest.as_str()
            );
            problems.push(Problem::warning(&option.place, message));
            OptionTiming::TooLate
        }
        OptionDeadline::Connect | OptionDeadline::Until(_) => OptionTiming::InTime,
    }
}

/// Returns the options that `then` sets (docs/policy/reference.md, "Rules").
fn expand_then(then: &Located<ThenAction>) -> Vec<SourceOption> {
    use Disposition::{Allow, Disallow, DisallowLog};
    let values = match then.value {
        ThenAction::Allow => vec![disposition(Allow)],
        ThenAction::Disallow => vec![disposition(Disallow)],
        ThenAction::DisallowLog | ThenAction::Exclude => vec![disposition(DisallowLog)],
        ThenAction::Download => fetch(true, true, false),
        ThenAction::Ignore => vec![
            disposition(Disallow),
            flag("index", false),
            flag("follow", false),
        ],
        ThenAction::ExcludeButScan => fetch(false, true, true),
        ThenAction::FollowOnly => fetch(false, true, false),
        ThenAction::DownloadNoScan => fetch(true, false, false),
        ThenAction::Index => vec![flag("index", true), disposition(Allow)],
        ThenAction::Follow => vec![flag("follow", true), disposition(Allow)],
        ThenAction::NoIndex => vec![flag("index", false)],
        ThenAction::NoFollow => vec![flag("follow", false)],
    };
    values
        .into_iter()
        .map(|(path, value)| SourceOption {
            place: then.place.clone(),
            path: path.into(),
            value,
        })
        .collect()
}

fn fetch(index: bool, follow: bool, html_only: bool) -> Vec<(&'static str, OptionValue)> {
    vec![
        disposition(Disposition::Allow),
        flag("index", index),
        flag("follow", follow),
        flag("html_only", html_only),
    ]
}

fn disposition(disposition: Disposition) -> (&'static str, OptionValue) {
    ("disposition", OptionValue::Disposition(disposition))
}

fn flag(path: &'static str, on: bool) -> (&'static str, OptionValue) {
    (path, OptionValue::Bool(on))
}
