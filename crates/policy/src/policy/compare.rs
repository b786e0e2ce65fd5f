//! How two policies differ as they are written, whatever they decide: rules, the document's options, lists.
//!
//! Rules are the same if they have the same id; one without an id has its position for it.

use std::collections::BTreeMap;

use super::Policy;
use super::options::{OptionSetter, OptionValue};
use super::rule::{ChildOrder, EnforcementMode, Rule, RuleBody};

/// What became of one rule, option or list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyChange {
    /// The rule's id, the option's path, the list's name.
    pub name: String,
    /// What became of it.
    pub kind: PolicyChangeKind,
}

/// The ways in which policies differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyChangeKind {
    /// Only the new policy has it; what it is.
    Added(String),
    /// Only the old policy has it; what it was.
    Removed(String),
    /// Both have it, and these parts of it differ; of a list none is named if its items do.
    Changed(Vec<AspectChange>),
    /// Both have it, among others in another order.
    Moved,
}

/// A part that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AspectChange {
    /// Its name: `condition`, `does`, `inside`; empty where there is only one.
    pub name: &'static str,
    /// As it was.
    pub old: String,
    /// As it is.
    pub new: String,
}

/// All differences between two policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyDiff {
    /// Rules, in the order of the new policy, removed ones at the end.
    pub rules: Vec<PolicyChange>,
    /// The document's options.
    pub options: Vec<PolicyChange>,
    /// Lists.
    pub lists: Vec<PolicyChange>,
}

impl PolicyDiff {
    /// Compares two policies.
    pub fn between(old: &Policy, new: &Policy) -> Self {
        Self {
            rules: diff_rules(old, new),
            options: diff_options(old, new),
            lists: diff_lists(old, new),
        }
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.options.is_empty() && self.lists.is_empty()
    }
}

fn diff_rules(old: &Policy, new: &Policy) -> Vec<PolicyChange> {
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
    let in_order = longest_increasing_subsequence(&common);
    let mut changes = Vec::new();
    for (at, rule) in new.rules.iter().enumerate() {
        let kind = match before
            .get(rule.id.as_str())
            .and_then(|at| old.rules.get(*at))
        {
            None => PolicyChangeKind::Added(rule_text(new, rule)),
            Some(was) => match diff_aspects(old, was, new, rule) {
                aspects if !aspects.is_empty() => PolicyChangeKind::Changed(aspects),
                _ if !in_order.contains(&at) => PolicyChangeKind::Moved,
                _ => continue,
            },
        };
        changes.push(PolicyChange {
            name: rule.id.to_string(),
            kind,
        });
    }
    let gone = old
        .rules
        .iter()
        .filter(|rule| !after.contains_key(rule.id.as_str()));
    changes.extend(gone.map(|rule| PolicyChange {
        name: rule.id.to_string(),
        kind: PolicyChangeKind::Removed(rule_text(old, rule)),
    }));
    changes
}

/// One of the longest runs of numbers that rise, not necessarily side by side: the rest has moved.
fn longest_increasing_subsequence(numbers: &[usize]) -> Vec<usize> {
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
fn rule_aspects(policy: &Policy, rule: &Rule) -> [(&'static str, String); 6] {
    let inside = rule
        .parent
        .and_then(|parent| policy.rule_id(parent))
        .unwrap_or("");
    let mode = match rule.mode {
        EnforcementMode::Enforce => "",
        EnforcementMode::Shadow => "shadow",
        EnforcementMode::Disabled => "disabled",
    };
    [
        ("condition", condition_text(policy, rule)),
        ("does", effect_text(policy, rule)),
        ("inside", inside.to_owned()),
        ("stage", rule.stage.as_str().to_owned()),
        ("mode", mode.to_owned()),
        ("about", rule.about.as_deref().unwrap_or("").to_owned()),
    ]
}

fn diff_aspects(old: &Policy, was: &Rule, new: &Policy, is: &Rule) -> Vec<AspectChange> {
    let pairs = rule_aspects(old, was)
        .into_iter()
        .zip(rule_aspects(new, is));
    let differ = pairs.filter(|((_, old), (_, new))| old != new);
    differ
        .map(|((name, old), (_, new))| AspectChange { name, old, new })
        .collect()
}

fn rule_text(policy: &Policy, rule: &Rule) -> String {
    let (condition, does) = (condition_text(policy, rule), effect_text(policy, rule));
    if does.is_empty() {
        condition
    } else {
        format!("{condition}: {does}")
    }
}

fn condition_text(policy: &Policy, rule: &Rule) -> String {
    match (rule.condition_key(), policy.describe_condition(rule)) {
        (Some(key), Some(condition)) => format!("{key} {condition}"),
        (_, _) => "always".to_owned(),
    }
}

pub(super) fn effect_text(policy: &Policy, rule: &Rule) -> String {
    let mut all: Vec<String> = Vec::new();
    match &rule.body {
        RuleBody::Group(group) => {
            let assigned = group.assignments.iter();
            all.extend(
                assigned
                    .map(|a| format!("{} {}", policy.option_path(a.slot), value_text(&a.value))),
            );
            all.extend((group.order != ChildOrder::All).then(|| "match first".to_owned()));
            all.extend(group.stop.then(|| "stop".to_owned()));
        }
        RuleBody::Filter(filter) => {
            all.extend(filter.log.then(|| "log".to_owned()));
            all.extend(
                filter
                    .reject_intent
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

fn diff_options(old: &Policy, new: &Policy) -> Vec<PolicyChange> {
    let set = |policy: &Policy| -> BTreeMap<String, String> {
        let entries = policy
            .options
            .entries
            .iter()
            .filter(|entry| entry.set_by == OptionSetter::Document);
        let of_document = entries.map(|entry| (entry.path.to_string(), value_text(&entry.base)));
        of_document.chain(space_options(policy)).collect()
    };
    diff_maps(&set(old), &set(new))
}

/// Who is in which space, and the options of each.
fn space_options(policy: &Policy) -> Vec<(String, String)> {
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
            all.push((path, value_text(&given.value)));
        }
    }
    all
}

fn diff_lists(old: &Policy, new: &Policy) -> Vec<PolicyChange> {
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
    let mut changes = diff_maps(&words(old, &before), &words(new, &after));
    for (name, at) in &after {
        let pair = before
            .get(name)
            .and_then(|was| old.lists.get(*was))
            .zip(new.lists.get(*at));
        if pair.is_some_and(|(was, is)| was.kind == is.kind && was.items != is.items) {
            changes.push(PolicyChange {
                name: name.clone(),
                kind: PolicyChangeKind::Changed(Vec::new()),
            });
        }
    }
    changes
}

fn diff_maps(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Vec<PolicyChange> {
    let mut changes = Vec::new();
    for (name, is) in new {
        let kind = match old.get(name) {
            None => PolicyChangeKind::Added(is.clone()),
            Some(was) if was != is => PolicyChangeKind::Changed(vec![AspectChange {
                name: "",
                old: was.clone(),
                new: is.clone(),
            }]),
            Some(_) => continue,
        };
        changes.push(PolicyChange {
            name: name.clone(),
            kind,
        });
    }
    let gone = old.iter().filter(|(name, _)| !new.contains_key(*name));
    changes.extend(gone.map(|(name, was)| PolicyChange {
        name: name.clone(),
        kind: PolicyChangeKind::Removed(was.clone()),
    }));
    changes
}

fn value_text(value: &OptionValue) -> String {
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
    use crate::policy::source::MemoryFileSystem;

    fn policy(body: &str) -> Policy {
        let text = format!("policy: 1\nname: p\noptions: {{ disposition: allow{body}");
        compile::load(&MemoryFileSystem::new().with_file("p", text), "p")
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
            assert_eq!(
                longest_increasing_subsequence(numbers).len(),
                stay,
                "{numbers:?}"
            );
        }
        assert_eq!(longest_increasing_subsequence(&[5, 1, 9, 2]), [2, 1]);
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
        let structure = PolicyDiff::between(&old, &new);
        let aspect = |name, old: &str, new: &str| AspectChange {
            name,
            old: old.into(),
            new: new.into(),
        };
        let change = |name: &str, kind| PolicyChange {
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
                change("d", PolicyChangeKind::Moved),
                change("a", PolicyChangeKind::Changed(changed)),
                change("e", PolicyChangeKind::Added("forbid host exact e".into())),
                change(
                    "c",
                    PolicyChangeKind::Removed("when host exact c: disposition allow".into())
                ),
            ]
        );
        let depth = PolicyChangeKind::Changed(vec![aspect("", "3", "4")]);
        assert_eq!(structure.options, [change("max_depth", depth)]);
        assert_eq!(structure.lists.len(), 1);
        assert!(PolicyDiff::between(&old, &old).is_empty());
    }
}
