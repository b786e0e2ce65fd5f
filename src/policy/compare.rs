//! How two policies differ as they are written, whatever they decide: rules, the document's options, lists.
//!
//! Rules are the same if they have the same id; one without an id has its position for it.

use std::collections::BTreeMap;

use super::Policy;
use super::options::{SetBy, Value};
use super::rule::{ChildOrder, Mode, Rule, RuleBody};

/// What became of one rule, option or list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The rule's id, the option's path, the list's name.
    pub name: String,
    /// What became of it.
    pub kind: ChangeKind,
}

/// The ways in which policies differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// Only the new policy has it; what it is.
    Added(String),
    /// Only the old policy has it; what it was.
    Removed(String),
    /// Both have it, and these parts of it differ; of a list none is named if its items do.
    Changed(Vec<Aspect>),
    /// Both have it, among others in another order.
    Moved,
}

/// A part that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aspect {
    /// Its name: `condition`, `does`, `inside`; empty where there is only one.
    pub name: &'static str,
    /// As it was.
    pub old: String,
    /// As it is.
    pub new: String,
}

/// All differences between two policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Structure {
    /// Rules, in the order of the new policy, removed ones at the end.
    pub rules: Vec<Change>,
    /// The document's options.
    pub options: Vec<Change>,
    /// Lists.
    pub lists: Vec<Change>,
}

impl Structure {
    /// Compares two policies.
    pub fn of(old: &Policy, new: &Policy) -> Self {
        Self {
            rules: rules(old, new),
            options: options(old, new),
            lists: lists(old, new),
        }
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.options.is_empty() && self.lists.is_empty()
    }
}

fn rules(old: &Policy, new: &Policy) -> Vec<Change> {
    let place = |policy: &Policy| -> BTreeMap<String, usize> {
        policy
            .rules
            .iter()
            .enumerate()
            .map(|(at, rule)| (rule.id.to_string(), at))
            .collect()
    };
    let (before, after) = (place(old), place(new));
    let common: Vec<usize> = old
        .rules
        .iter()
        .filter_map(|rule| after.get(rule.id.as_str()).copied())
        .collect();
    let in_order = longest_rise(&common);
    let mut changes = Vec::new();
    for (at, rule) in new.rules.iter().enumerate() {
        let kind = match before
            .get(rule.id.as_str())
            .and_then(|at| old.rules.get(*at))
        {
            None => ChangeKind::Added(in_words(new, rule)),
            Some(was) => match differences(old, was, new, rule) {
                aspects if !aspects.is_empty() => ChangeKind::Changed(aspects),
                _ if !in_order.contains(&at) => ChangeKind::Moved,
                _ => continue,
            },
        };
        changes.push(Change {
            name: rule.id.to_string(),
            kind,
        });
    }
    let gone = old
        .rules
        .iter()
        .filter(|rule| !after.contains_key(rule.id.as_str()));
    changes.extend(gone.map(|rule| Change {
        name: rule.id.to_string(),
        kind: ChangeKind::Removed(in_words(old, rule)),
    }));
    changes
}

/// One of the longest runs of numbers that rise, not necessarily side by side: the rest has moved.
fn longest_rise(numbers: &[usize]) -> Vec<usize> {
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(numbers.len());
    let number = |at: &usize| numbers.get(*at).copied().unwrap_or(0);
    for (at, value) in numbers.iter().enumerate() {
        let length = ends.partition_point(|end| number(end) < *value);
        before.push(
            length
                .checked_sub(1)
                .and_then(|last| ends.get(last).copied()),
        );
        ends.truncate(ends.len().max(length));
        match ends.get_mut(length) {
            Some(end) => *end = at,
            None => ends.push(at),
        }
    }
    let back = |at: &usize| before.get(*at).copied().flatten();
    std::iter::successors(ends.last().copied(), back)
        .map(|at| number(&at))
        .collect()
}

/// What makes a rule what it is, each part by its name.
fn aspects(policy: &Policy, rule: &Rule) -> [(&'static str, String); 6] {
    let inside = rule
        .parent
        .and_then(|parent| policy.rule_id(parent))
        .unwrap_or("");
    let mode = match rule.mode {
        Mode::Enforce => "",
        Mode::Shadow => "shadow",
        Mode::Disabled => "disabled",
    };
    [
        ("condition", condition(policy, rule)),
        ("does", does(policy, rule)),
        ("inside", inside.to_owned()),
        ("stage", rule.stage.as_str().to_owned()),
        ("mode", mode.to_owned()),
        ("about", rule.about.as_deref().unwrap_or("").to_owned()),
    ]
}

fn differences(old: &Policy, was: &Rule, new: &Policy, is: &Rule) -> Vec<Aspect> {
    let pairs = aspects(old, was).into_iter().zip(aspects(new, is));
    let differ = pairs.filter(|((_, old), (_, new))| old != new);
    differ
        .map(|((name, old), (_, new))| Aspect { name, old, new })
        .collect()
}

fn in_words(policy: &Policy, rule: &Rule) -> String {
    let (condition, does) = (condition(policy, rule), does(policy, rule));
    if does.is_empty() {
        condition
    } else {
        format!("{condition}: {does}")
    }
}

fn condition(policy: &Policy, rule: &Rule) -> String {
    match (rule.key(), policy.condition_in_words(rule)) {
        (Some(key), Some(condition)) => format!("{key} {condition}"),
        (_, _) => "always".to_owned(),
    }
}

pub(super) fn does(policy: &Policy, rule: &Rule) -> String {
    let mut all: Vec<String> = Vec::new();
    match &rule.body {
        RuleBody::Group(group) => {
            let assigned = group.assign.iter();
            all.extend(
                assigned.map(|a| format!("{} {}", policy.option_path(a.slot), shown(&a.value))),
            );
            all.extend((group.order != ChildOrder::All).then(|| "match first".to_owned()));
            all.extend(group.stop.then(|| "stop".to_owned()));
        }
        RuleBody::Filter(filter) => {
            all.extend(filter.log.then(|| "log".to_owned()));
            all.extend(
                filter
                    .reject
                    .map(|intent| format!("reject {}", intent.as_str())),
            );
            all.extend(
                filter
                    .reject_status
                    .map(|status| format!("reject_status {status}")),
            );
            all.extend(filter.soft_error.map(|status| format!("as {status}")));
        }
    }
    all.join(", ")
}

fn options(old: &Policy, new: &Policy) -> Vec<Change> {
    let set = |policy: &Policy| -> BTreeMap<String, String> {
        let entries = policy
            .options
            .entries
            .iter()
            .filter(|entry| entry.set_by == SetBy::Document);
        let of_document = entries.map(|entry| (entry.path.to_string(), shown(&entry.base)));
        of_document.chain(of_spaces(policy)).collect()
    };
    compared(&set(old), &set(new))
}

/// Who is in which space, and the options of each.
fn of_spaces(policy: &Policy) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for space in policy.spaces.all() {
        let crawlers: Vec<&str> = space.crawlers.iter().map(|crawler| &**crawler).collect();
        let who = if crawlers.is_empty() {
            "all others".to_owned()
        } else {
            crawlers.join(", ")
        };
        all.push((format!("spaces.{}.crawlers", space.name), who));
        for given in &space.options {
            let path = format!(
                "spaces.{}.options.{}",
                space.name,
                policy.option_path(given.slot)
            );
            all.push((path, shown(&given.value)));
        }
    }
    all
}

fn lists(old: &Policy, new: &Policy) -> Vec<Change> {
    let named = |policy: &Policy| -> BTreeMap<String, usize> {
        policy
            .lists
            .iter()
            .enumerate()
            .rev()
            .map(|(at, list)| (list.name.to_string(), at))
            .collect()
    };
    let (before, after) = (named(old), named(new));
    let words = |policy: &Policy, names: &BTreeMap<String, usize>| -> BTreeMap<String, String> {
        let list = |at: usize| policy.lists.get(at);
        let kind = |at: usize| list(at).map_or(String::new(), |list| list.kind.as_str().to_owned());
        names
            .iter()
            .map(|(name, at)| (name.clone(), kind(*at)))
            .collect()
    };
    let mut changes = compared(&words(old, &before), &words(new, &after));
    for (name, at) in &after {
        let pair = before
            .get(name)
            .and_then(|was| old.lists.get(*was))
            .zip(new.lists.get(*at));
        if pair.is_some_and(|(was, is)| was.kind == is.kind && was.items != is.items) {
            changes.push(Change {
                name: name.clone(),
                kind: ChangeKind::Changed(Vec::new()),
            });
        }
    }
    changes
}

fn compared(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Vec<Change> {
    let mut changes = Vec::new();
    for (name, is) in new {
        let kind = match old.get(name) {
            None => ChangeKind::Added(is.clone()),
            Some(was) if was != is => ChangeKind::Changed(vec![Aspect {
                name: "",
                old: was.clone(),
                new: is.clone(),
            }]),
            Some(_) => continue,
        };
        changes.push(Change {
            name: name.clone(),
            kind,
        });
    }
    let gone = old.iter().filter(|(name, _)| !new.contains_key(*name));
    changes.extend(gone.map(|(name, was)| Change {
        name: name.clone(),
        kind: ChangeKind::Removed(was.clone()),
    }));
    changes
}

fn shown(value: &Value) -> String {
    let json = value.to_json();
    if json.is_null() {
        return "none".to_owned();
    }
    json.as_str()
        .map_or_else(|| json.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::compile;
    use crate::policy::source::MemoryFiles;

    fn policy(body: &str) -> Policy {
        let text = format!("policy: 1\nname: p\noptions: {{ disposition: allow{body}");
        compile::load(&MemoryFiles::new().with("p", text), "p")
            .unwrap()
            .policy
    }

    #[test]
    fn the_longest_run_stays_where_it_is() {
        for (numbers, stay) in [
            (&[0, 1, 2][..], 3),
            (&[2, 0, 1], 2),
            (&[], 0),
            (&[3, 2, 1], 1),
            (&[0, 4, 1, 2, 3], 4),
        ] {
            assert_eq!(longest_rise(numbers).len(), stay, "{numbers:?}");
        }
        assert_eq!(longest_rise(&[5, 1, 9, 2]), [2, 1]);
    }

    #[test]
    fn rules_options_and_lists() {
        let old = policy(
            ", max_depth: 3 }\nlists: { l: { kind: hosts, items: [a] } }\nrules:\n  - { id: a, forbid: { under: /a } }\n  \
             - { id: b, forbid: { in: l } }\n  - { id: c, when: { host: c }, then: allow }\n  - { id: d, forbid: { ext: d } }\n",
        );
        let new = policy(
            ", max_depth: 4 }\nlists: { l: { kind: hosts, items: [a, b] } }\nrules:\n  - { id: d, forbid: { ext: d } }\n  \
             - { id: a, forbid: { under: /b }, log: true }\n  - { id: b, forbid: { in: l } }\n  - { id: e, forbid: { host: e } }\n",
        );
        let structure = Structure::of(&old, &new);
        let aspect = |name, old: &str, new: &str| Aspect {
            name,
            old: old.into(),
            new: new.into(),
        };
        let change = |name: &str, kind| Change {
            name: name.into(),
            kind,
        };
        let changed = vec![
            aspect("condition", "forbid path under /a", "forbid path under /b"),
            aspect("does", "", "log"),
        ];
        assert_eq!(
            structure.rules,
            [
                change("d", ChangeKind::Moved),
                change("a", ChangeKind::Changed(changed)),
                change("e", ChangeKind::Added("forbid host exact e".into())),
                change(
                    "c",
                    ChangeKind::Removed("when host exact c: disposition allow".into())
                ),
            ]
        );
        let depth = ChangeKind::Changed(vec![aspect("", "3", "4")]);
        assert_eq!(structure.options, [change("max_depth", depth)]);
        assert_eq!(structure.lists.len(), 1);
        assert!(Structure::of(&old, &old).is_empty());
    }
}
