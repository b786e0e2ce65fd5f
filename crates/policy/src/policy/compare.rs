//! Differences between the texts of two policies, regardless of their decisions: rules, the
//! document's options, lists.
//!
//! Rules are matched by id; the position serves as the id of a rule without one.

use std::collections::{BTreeMap, HashMap};

use super::Policy;
use super::list::PolicyList;
use super::options::OptionSetter;
use super::rule::{ChildOrder, EnforcementMode, Rule, RuleBody};

/// A change of one rule, option or list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyChange {
    /// The id of the rule, the path of the option or the name of the list.
    pub name: String,
    pub kind: PolicyChangeKind,
}

/// The kinds of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyChangeKind {
    /// Only the new policy has it; with its text.
    Added(String),
    /// Only the old policy has it; with its text.
    Removed(String),
    /// Both policies have it, and these parts differ. For a list whose items differ, the parts are
    /// empty.
    Changed(Vec<AspectChange>),
    /// Both policies have it, but in another order relative to the others.
    Moved,
}

/// A part that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AspectChange {
    /// The name of the part: `condition`, `does`, `inside`; empty if there is only one.
    pub name: &'static str,
    /// The text in the old policy.
    pub old: String,
    /// The text in the new policy.
    pub new: String,
}

/// All differences between two policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyDiff {
    /// Rules, in the order of the new policy, with removed ones at the end.
    pub rules: Vec<PolicyChange>,
    /// The options of the document and of spaces, and the entries of `hosts`.
    pub options: Vec<PolicyChange>,
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

    /// Returns `true` if there are no differences.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.options.is_empty() && self.lists.is_empty()
    }
}

fn diff_rules(old: &Policy, new: &Policy) -> Vec<PolicyChange> {
    let before = rule_indices(old);
    let after = rule_indices(new);
    let common: Vec<usize> = old
        .rules
        .iter()
        .filter_map(|rule| after.get(rule.id.as_str()).copied())
        .collect();
    let mut is_in_order = vec![false; new.rules.len()];
    for at in longest_increasing_subsequence(&common) {
        if let Some(is_in_order) = is_in_order.get_mut(at) {
            *is_in_order = true;
        }
    }
    let mut changes = Vec::new();
    for (rule, is_in_order) in new.rules.iter().zip(is_in_order) {
        let kind = match before
            .get(rule.id.as_str())
            .and_then(|at| old.rules.get(*at))
        {
            None => PolicyChangeKind::Added(rule_text(new, rule)),
            Some(old_rule) if is_surely_unchanged([old, new], [old_rule, rule]) => {
                if is_in_order {
                    continue;
                }
                PolicyChangeKind::Moved
            }
            Some(old_rule) => match diff_aspects(old, old_rule, new, rule) {
                aspects if !aspects.is_empty() => PolicyChangeKind::Changed(aspects),
                _ if !is_in_order => PolicyChangeKind::Moved,
                _ => continue,
            },
        };
        changes.push(PolicyChange {
            name: rule.id.to_string(),
            kind,
        });
    }
    let removed = old
        .rules
        .iter()
        .filter(|rule| !after.contains_key(rule.id.as_str()));
    changes.extend(removed.map(|rule| PolicyChange {
        name: rule.id.to_string(),
        kind: PolicyChangeKind::Removed(rule_text(old, rule)),
    }));
    changes
}

/// Returns `true` if no part of a rule differs. Most rules of a reloaded policy are the same, so this takes far
/// less time than a comparison of texts. Returns `false` in doubt.
fn is_surely_unchanged(policies: [&Policy; 2], [old, new]: [&Rule; 2]) -> bool {
    let has_same_condition = match (old.condition(), new.condition()) {
        (Some(old), Some(new)) => old.shares_atoms_with(new),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    let has_same_effect = match (&old.body, &new.body) {
        (RuleBody::Filter(old), RuleBody::Filter(new)) => {
            old.log == new.log
                && old.reject_intent == new.reject_intent
                && old.reject_status == new.reject_status
                && old.soft_error == new.soft_error
        }
        // The options of a policy have their own numbers.
        (RuleBody::Group(_), RuleBody::Group(_)) => {
            let [old_policy, new_policy] = policies;
            effect_text(old_policy, old) == effect_text(new_policy, new)
        }
        (RuleBody::Filter(_), RuleBody::Group(_)) | (RuleBody::Group(_), RuleBody::Filter(_)) => {
            false
        }
    };
    has_same_condition
        && has_same_effect
        && old.condition_key() == new.condition_key()
        && old.stage == new.stage
        && old.mode == new.mode
        && old.about == new.about
        && old.parent.is_none()
        && new.parent.is_none()
}

fn rule_indices(policy: &Policy) -> HashMap<&str, usize> {
    policy
        .rules
        .iter()
        .enumerate()
        .map(|(at, rule)| (rule.id.as_str(), at))
        .collect()
}

/// Returns a longest increasing subsequence. The numbers that are not in it have moved.
fn longest_increasing_subsequence(numbers: &[usize]) -> Vec<usize> {
    // The value and index of the least end of a subsequence of each length.
    let mut ends: Vec<(usize, usize)> = Vec::new();
    let mut predecessors: Vec<Option<usize>> = Vec::with_capacity(numbers.len());
    for (at, value) in numbers.iter().enumerate() {
        let length = ends.partition_point(|(end, _)| end < value);
        let predecessor = length.checked_sub(1).and_then(|last| ends.get(last));
        predecessors.push(predecessor.map(|(_, index)| *index));
        match ends.get_mut(length) {
            Some(end) => *end = (*value, at),
            None => ends.push((*value, at)),
        }
    }
    let last = ends.last().map(|(_, index)| *index);
    std::iter::successors(last, |at| predecessors.get(*at).copied().flatten())
        .filter_map(|at| numbers.get(at).copied())
        .collect()
}

/// Returns the comparable parts of a rule with their names.
pub(super) fn rule_aspects(policy: &Policy, rule: &Rule) -> [(&'static str, String); 6] {
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

fn diff_aspects(old: &Policy, old_rule: &Rule, new: &Policy, new_rule: &Rule) -> Vec<AspectChange> {
    rule_aspects(old, old_rule)
        .into_iter()
        .zip(rule_aspects(new, new_rule))
        .filter(|((_, old), (_, new))| old != new)
        .map(|((name, old), (_, new))| AspectChange { name, old, new })
        .collect()
}

fn rule_text(policy: &Policy, rule: &Rule) -> String {
    let condition = condition_text(policy, rule);
    let effect = effect_text(policy, rule);
    if effect.is_empty() {
        condition
    } else {
        format!("{condition}: {effect}")
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
            all.extend(
                group
                    .assignments
                    .iter()
                    .map(|a| format!("{} {}", policy.option_path(a.index), a.value)),
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
    diff_maps(&explicit_options(old), &explicit_options(new))
}

fn explicit_options(policy: &Policy) -> BTreeMap<String, String> {
    policy
        .options
        .entries
        .iter()
        .filter(|entry| entry.set_by == OptionSetter::Document)
        .map(|entry| (entry.path.to_string(), entry.base.to_string()))
        .chain(space_options(policy))
        .chain(host_paces(policy))
        .collect()
}

/// Returns the crawlers and the options of each space.
fn space_options(policy: &Policy) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for space in policy.spaces.all() {
        let crawlers: Vec<&str> = space.crawlers.iter().map(|crawler| &**crawler).collect();
        let crawlers = if crawlers.is_empty() {
            "all others".to_owned()
        } else {
            crawlers.join(", ")
        };
        all.push((format!("spaces.{}.crawlers", space.name), crawlers));
        for option in &space.options {
            let path = format!(
                "spaces.{}.options.{}",
                space.name,
                policy.option_path(option.index)
            );
            all.push((path, option.value.to_string()));
        }
    }
    all
}

/// The beginning of the names of the entries of `hosts` among the options.
const HOSTS_PREFIX: &str = "hosts.";

impl PolicyChange {
    /// Returns `true` if an entry of `hosts` differs.
    pub(super) fn is_of_hosts(&self) -> bool {
        self.name.starts_with(HOSTS_PREFIX)
    }
}

/// Returns the options of each entry of `hosts`.
fn host_paces(policy: &Policy) -> impl Iterator<Item = (String, String)> {
    policy.host_paces.entries().iter().map(|entry| {
        let options: Vec<String> = entry
            .options
            .iter()
            .map(|option| format!("{} {}", policy.option_path(option.index), option.value))
            .collect();
        (format!("{HOSTS_PREFIX}{}", entry.hosts), options.join(", "))
    })
}

fn diff_lists(old: &Policy, new: &Policy) -> Vec<PolicyChange> {
    let before = lists_by_name(old);
    let after = lists_by_name(new);
    let mut changes = diff_maps(&list_kinds(&before), &list_kinds(&after));
    for (name, new) in &after {
        let old = before.get(name);
        if old.is_some_and(|old| old.kind == new.kind && old.items != new.items) {
            changes.push(PolicyChange {
                name: (*name).to_owned(),
                kind: PolicyChangeKind::Changed(Vec::new()),
            });
        }
    }
    changes
}

/// Returns the lists of a policy, including the seeds of its spaces. The first list with a name is the effective one.
fn lists_by_name(policy: &Policy) -> BTreeMap<&str, &PolicyList> {
    let seeds = policy.spaces.all().iter();
    policy
        .lists
        .iter()
        .rev()
        .chain(seeds.filter_map(|space| space.seeds.as_ref()))
        .map(|list| (&*list.name, list))
        .collect()
}

fn list_kinds(lists: &BTreeMap<&str, &PolicyList>) -> BTreeMap<String, String> {
    lists
        .iter()
        .map(|(name, list)| ((*name).to_owned(), list.kind.as_str().to_owned()))
        .collect()
}

fn diff_maps(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Vec<PolicyChange> {
    let mut changes = Vec::new();
    for (name, new_text) in new {
        let kind = match old.get(name) {
            None => PolicyChangeKind::Added(new_text.clone()),
            Some(old_text) if old_text != new_text => {
                PolicyChangeKind::Changed(vec![AspectChange {
                    name: "",
                    old: old_text.clone(),
                    new: new_text.clone(),
                }])
            }
            Some(_) => continue,
        };
        changes.push(PolicyChange {
            name: name.clone(),
            kind,
        });
    }
    let removed = old.iter().filter(|(name, _)| !new.contains_key(*name));
    changes.extend(removed.map(|(name, text)| PolicyChange {
        name: name.clone(),
        kind: PolicyChangeKind::Removed(text.clone()),
    }));
    changes
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
        fn aspect(name: &'static str, old: &str, new: &str) -> AspectChange {
            AspectChange {
                name,
                old: old.into(),
                new: new.into(),
            }
        }
        fn change(name: &str, kind: PolicyChangeKind) -> PolicyChange {
            PolicyChange {
                name: name.into(),
                kind,
            }
        }
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

    /// Returns a random rule with this id, of few kinds, so that equal ones are frequent.
    fn random_rule(random: &mut fastrand::Rng, id: &str) -> String {
        let condition = random
            .choice([
                "domain: a.example",
                "path: { regex: '^/a+$' }",
                "all: [{ host: b.example }, { not: { ext: gif } }]",
                "in: l",
            ])
            .unwrap_or("");
        let body = random
            .choice([
                "forbid: { C }",
                "forbid: { C }, log: true",
                "forbid: { C }, about: text",
                "forbid: { C }, mode: shadow",
                "require: { C }",
                "when: { C }, then: allow",
                "when: { C }, set: { max_depth: 2 }, stop: true",
                "unless: { C }, set: { max_depth: 3 }",
                "when: { C }, rules: [{ forbid: { host: c.example } }]",
            ])
            .unwrap_or("");
        format!("  - {{ id: {id}, {} }}\n", body.replace('C', condition))
    }

    /// A reload takes over unchanged rules, whose parts are then not compared.
    #[test]
    fn a_reload_differs_in_what_a_load_differs() {
        let mut random = fastrand::Rng::with_seed(21);
        let mut rules: Vec<String> = (0..20)
            .map(|n| random_rule(&mut random, &format!("r{n}")))
            .collect();
        let load = |rules: &[String], list: &str, previous: Option<&Policy>| {
            let text = format!(
                "policy: 1\nname: p\noptions: {{ disposition: allow }}\n\
                 lists: {{ l: {{ kind: hosts, items: [{list}] }} }}\nrules:\n{}",
                rules.concat()
            );
            let files = MemoryFileSystem::new().with_file("p", text);
            compile::load_again(&files, "p", previous).unwrap().policy
        };
        let mut old = load(&rules, "a", None);
        for step in 0..200 {
            for change in 0..random.usize(0..3) {
                let at = random.usize(..rules.len());
                match random.u8(..4) {
                    0 => {
                        let rule = rules.remove(at);
                        rules.insert(random.usize(..=rules.len()), rule);
                    }
                    1 => {
                        rules[at] = random_rule(&mut random, &format!("n{step}-{change}"));
                    }
                    _ => {
                        let id = rules[at].split(['{', ',']).nth(1).unwrap();
                        let id = id.trim().strip_prefix("id: ").unwrap().to_owned();
                        rules[at] = random_rule(&mut random, &id);
                    }
                }
            }
            let list = if random.bool() { "a" } else { "a, b" };
            let reloaded = load(&rules, list, Some(&old));
            let loaded = load(&rules, list, None);
            assert_eq!(
                PolicyDiff::between(&old, &reloaded),
                PolicyDiff::between(&old, &loaded)
            );
            old = reloaded;
        }
    }
}
