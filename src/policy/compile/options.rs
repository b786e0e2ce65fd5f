//! Options: the table of a policy, what rules assign, and what this version does not do with them.

use std::collections::BTreeMap;

use crate::policy::options::schema::{self, Acts, Effect, OpenMap, Spec};
use crate::policy::options::{Assignment, OptionEntry, OptionTable, SetBy, Slot, Value};
use crate::policy::rule::Rule;
use crate::policy::source::tree::{
    At, Source, SourceBody, SourceGroup, SourceOption, SourceRule, Then,
};
use crate::policy::source::without_disposition;
use crate::vocab::disposition::Disposition;
use crate::vocab::problem::{Place, Problem};
use crate::vocab::problems::Problems;

use super::keys;
use super::stages::Placing;

/// The options of a policy while it is compiled.
pub(super) struct Options {
    entries: Vec<OptionEntry>,
    /// The keys of open maps.
    open: BTreeMap<Box<str>, Slot>,
    /// Options without effect, by the first part of their paths.
    idle: BTreeMap<Box<str>, Idle>,
}

const UNVERIFIED: &str = "`verify: skip`: what origins show of themselves is not verified here, and answers may come \
                          from anybody";

/// Where an option without effect is set.
struct Idle {
    first: Place,
    places: usize,
    keys: Vec<Box<str>>,
}

impl Options {
    /// The table with the defaults and what the document's `options` assign.
    pub(super) fn of_document(source: &Source, problems: &mut Problems) -> Self {
        let entries = schema::SPECS.iter().map(|spec| OptionEntry {
            path: spec.path.into(),
            base: spec.default.value(),
            set_by: SetBy::BuiltIn,
        });
        let (entries, open, idle) = (entries.collect(), BTreeMap::new(), BTreeMap::new());
        let mut options = Self {
            entries,
            open,
            idle,
        };
        options.note_open_of(source, problems);
        for option in source
            .options
            .iter()
            .filter(|option| schema::open_map(&option.path).is_none())
        {
            let Some(slot) = options.slot(option, problems) else {
                continue;
            };
            if let Some(entry) = options.entries.get_mut(usize::from(slot.0)) {
                entry.base = option.value.clone();
                entry.set_by = SetBy::Document;
            }
        }
        // Whoever read the source has reported this already, with the rest that is wrong.
        let given = source
            .options
            .iter()
            .any(|option| *option.path == *"disposition");
        if !given && !problems.has_errors() {
            problems.push(without_disposition(&source.options_place));
        }
        options
    }

    /// What the options of a space assign.
    pub(super) fn of_space(
        &mut self,
        given: &[SourceOption],
        problems: &mut Problems,
    ) -> Box<[Assignment]> {
        let mut all = Vec::new();
        for option in given {
            if let Some(map) = schema::open_map(&option.path) {
                all.extend(self.keys_of(map).map(|slot| Assignment {
                    slot,
                    value: Value::None,
                }));
                continue;
            }
            let slot = self.slot(option, problems);
            all.extend(slot.map(|slot| Assignment {
                slot,
                value: option.value.clone(),
            }));
        }
        all.into()
    }

    /// What a group assigns: first what `then` stands for, then `set`.
    pub(super) fn assignments(
        &mut self,
        group: &SourceGroup,
        placing: &Placing,
        problems: &mut Problems,
    ) -> Box<[Assignment]> {
        let mut all: Vec<Assignment> = Vec::new();
        if let Some(then) = &group.then {
            for option in expand(then) {
                let slot = self.slot(&option, problems);
                all.extend(slot.map(|slot| Assignment {
                    slot,
                    value: option.value,
                }));
            }
        }
        let by_then = all.len();
        for option in &group.set {
            if let Some(map) = schema::open_map(&option.path) {
                all.extend(self.keys_of(map).map(|slot| Assignment {
                    slot,
                    value: Value::None,
                }));
                continue;
            }
            let Some(slot) = self.slot(option, problems) else {
                continue;
            };
            if all
                .get(..by_then)
                .unwrap_or(&[])
                .iter()
                .any(|assignment| assignment.slot == slot)
            {
                let problem = Problem::error(&option.place, "`then` assigns this option too")
                    .found(&*option.path);
                problems.push(problem.help("leave one of them out"));
            }
            check_stage(option, placing, problems);
            all.push(Assignment {
                slot,
                value: option.value.clone(),
            });
        }
        all.into()
    }

    /// Warns once for each option without effect.
    pub(super) fn report(&mut self, problems: &mut Problems) {
        for (head, idle) in std::mem::take(&mut self.idle) {
            let keys: Vec<&str> = idle
                .keys
                .iter()
                .filter_map(|key| key.strip_prefix(&*head)?.strip_prefix('.'))
                .collect();
            let keys = if keys.is_empty() {
                String::new()
            } else {
                format!(" ({})", keys.join(", "))
            };
            let places = if idle.places == 1 {
                "once".into()
            } else {
                format!("{} times", idle.places)
            };
            let message =
                format!("`{head}`{keys} has no effect yet in this version; it is set {places}");
            problems.push(Problem::warning(&idle.first, message));
        }
    }

    /// The finished table.
    pub(super) fn into_table(self, rules: &[Rule]) -> OptionTable {
        OptionTable::new(self.entries, rules)
    }

    /// The slot of an option, after a look at what this version does with it.
    fn slot(&mut self, option: &SourceOption, problems: &mut Problems) -> Option<Slot> {
        if schema::open_key(&option.path).is_some() {
            return self.open.get(&option.path).copied();
        }
        let Some((slot, spec)) = schema::find(&option.path) else {
            let problem = Problem::error(&option.place, "no such option").found(&*option.path);
            problems.push(problem.near(schema::SPECS.iter().map(|spec| spec.path)));
            return None;
        };
        self.check_effect(option, spec, problems);
        keys::check(option, problems);
        if slot == schema::VERIFY && option.value == Value::Word("skip") {
            problems.push(Problem::warning(&option.place, UNVERIFIED));
        }
        Some(slot)
    }

    fn note_open_of(&mut self, source: &Source, problems: &mut Problems) {
        self.note_open(&source.options, problems);
        self.note_open_in(&source.rules, problems);
        for space in &source.spaces {
            self.note_open(&space.options, problems);
            self.note_open_in(&space.rules, problems);
        }
    }

    /// Gives every key of an open map in these rules a slot, before any of them is compiled: `null` for the whole map
    /// takes them all back.
    fn note_open_in(&mut self, rules: &[SourceRule], problems: &mut Problems) {
        for rule in rules {
            if let SourceBody::Group(group) = &rule.body {
                let before = problems.enter(Some(rule.name().clone()));
                self.note_open(&group.set, problems);
                problems.enter(before);
                self.note_open_in(&group.rules, problems);
            }
        }
    }

    fn note_open(&mut self, options: &[SourceOption], problems: &mut Problems) {
        for option in options {
            let Some((map, _)) = schema::open_key(&option.path) else {
                continue;
            };
            if self.open.contains_key(&option.path) {
                continue;
            }
            let place = u16::try_from(self.entries.len())
                .ok()
                .filter(|_| self.keys_of(map).count() < map.most);
            let Some(place) = place else {
                let message = format!("more than {} different keys of `{}`", map.most, map.path);
                problems.push(Problem::error(&option.place, message));
                continue;
            };
            self.entries.push(OptionEntry {
                path: option.path.clone(),
                base: Value::None,
                set_by: SetBy::BuiltIn,
            });
            self.open.insert(option.path.clone(), Slot(place));
        }
    }

    fn keys_of(&self, map: &'static OpenMap) -> impl Iterator<Item = Slot> {
        let of_map =
            |path: &str| schema::open_key(path).is_some_and(|(open, _)| open.path == map.path);
        self.open
            .iter()
            .filter(move |(path, _)| of_map(path))
            .map(|(_, slot)| *slot)
    }

    fn check_effect(
        &mut self,
        option: &SourceOption,
        spec: &'static Spec,
        problems: &mut Problems,
    ) {
        let counted = match spec.effect {
            Effect::Works => return,
            Effect::NotYet => None,
            Effect::NotYetExcept(counted) => Some(counted),
        };
        let default = spec.default.value();
        if counted.is_some_and(|counted| counted.holds(&option.value, &default)) {
            let message = format!(
                "`{}` is not in this version, and leaving it out could let something through",
                spec.path
            );
            let problem = Problem::error(&option.place, message);
            return problems
                .push(problem.found(option.value.to_json().to_string().trim_matches('"')));
        }
        if counted.is_none() || option.value != default {
            self.note_idle(option, spec.path.split('.').next().unwrap_or(spec.path));
        }
    }

    fn note_idle(&mut self, option: &SourceOption, head: &str) {
        let idle = self.idle.entry(head.into()).or_insert_with(|| Idle {
            first: option.place.clone(),
            places: 0,
            keys: Vec::new(),
        });
        idle.places += 1;
        if !idle.keys.contains(&option.path) {
            idle.keys.push(option.path.clone());
        }
    }
}

/// Whether an option that a rule sets still acts when the rule runs.
fn check_stage(option: &SourceOption, placing: &Placing, problems: &mut Problems) {
    let row = schema::find(&option.path).map(|(_, spec)| (spec.path, spec.acts));
    let open = || schema::open_key(&option.path).map(|(map, _)| (map.path, map.acts));
    let Some((path, acts)) = row.or_else(open) else {
        return;
    };
    match acts {
        Acts::Connect if !placing.connects => {
            let message = format!(
                "`{path}` acts before more than scheme, host, port and crawler is known; this rule, or one \
                 that stops before it, depends on other facts"
            );
            problems.push(Problem::error(&option.place, message));
        }
        Acts::Until(stage) if placing.early.stage > stage => {
            let (acts, runs) = (stage.as_str(), placing.early.stage.as_str());
            let message = format!(
                "`{path}` acts at the {acts} stage, and the rule runs only at the {runs} stage"
            );
            problems.push(Problem::warning(&option.place, message));
        }
        Acts::Connect | Acts::Until(_) => {}
    }
}

/// What `then` stands for (policy.md section 2).
fn expand(then: &At<Then>) -> Vec<SourceOption> {
    use Disposition::{Allow, Disallow, DisallowLog};
    let option = |path: &str, value| SourceOption {
        place: then.place.clone(),
        path: path.into(),
        value,
    };
    let disposition = |disposition| option("disposition", Value::Disposition(disposition));
    let flag = |path, on| option(path, Value::Bool(on));
    let fetched = |index, follow, html_only| {
        let flags = [
            flag("index", index),
            flag("follow", follow),
            flag("html_only", html_only),
        ];
        [disposition(Allow)].into_iter().chain(flags).collect()
    };
    match then.value {
        Then::Allow => vec![disposition(Allow)],
        Then::Disallow => vec![disposition(Disallow)],
        Then::DisallowLog | Then::Exclude => vec![disposition(DisallowLog)],
        Then::Download => fetched(true, true, false),
        Then::Ignore => vec![
            disposition(Disallow),
            flag("index", false),
            flag("follow", false),
        ],
        Then::ExcludeButScan => fetched(false, true, true),
        Then::FollowOnly => fetched(false, true, false),
        Then::DownloadNoScan => fetched(true, false, false),
        Then::Index => vec![flag("index", true), disposition(Allow)],
        Then::Follow => vec![flag("follow", true), disposition(Allow)],
        Then::NoIndex => vec![flag("index", false)],
        Then::NoFollow => vec![flag("follow", false)],
    }
}
