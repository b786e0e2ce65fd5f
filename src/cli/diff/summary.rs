//! Changes by what they are, by rule, and by host, the commonest first.

use std::collections::BTreeMap;

use super::change::{Change, Difference, Kind};

/// All changes in short.
pub(super) struct Summary<'a> {
    /// By kind, each by rule.
    pub(super) kinds: Vec<OfKind<'a>>,
    /// By host.
    pub(super) hosts: Vec<OfHost<'a>>,
}

/// The changes of one kind.
pub(super) struct OfKind<'a> {
    /// The kind.
    pub(super) kind: Kind,
    /// How many there are.
    pub(super) count: usize,
    /// By the rules that decided, and by what differs where the verdict does not.
    pub(super) groups: Vec<Group<'a>>,
}

/// Changes that have one cause.
pub(super) struct Group<'a> {
    /// The rule that decided before; `None` for the default.
    pub(super) old_rule: Option<&'a str>,
    /// The rule that decides now.
    pub(super) new_rule: Option<&'a str>,
    /// What differs beside verdict and rule.
    pub(super) differences: Vec<Difference>,
    /// How many there are.
    pub(super) count: usize,
    /// Their URLs, in the order in which they were asked.
    pub(super) urls: Vec<&'a str>,
}

/// The changes of one host.
pub(super) struct OfHost<'a> {
    /// The host.
    pub(super) host: &'a str,
    /// How many there are.
    pub(super) count: usize,
    /// How many of each kind.
    pub(super) kinds: BTreeMap<Kind, usize>,
}

/// What makes changes one group.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key<'a> {
    old_rule: Option<&'a str>,
    new_rule: Option<&'a str>,
    differences: Vec<Difference>,
}

impl<'a> Summary<'a> {
    /// Counts changes.
    pub(super) fn of(changes: &[Change<'a>]) -> Self {
        let mut kinds: BTreeMap<Kind, BTreeMap<Key<'a>, Vec<&'a str>>> = BTreeMap::new();
        let mut hosts: BTreeMap<&'a str, BTreeMap<Kind, usize>> = BTreeMap::new();
        for change in changes {
            kinds
                .entry(change.kind)
                .or_default()
                .entry(key(change))
                .or_default()
                .push(change.facts.url());
            *hosts
                .entry(change.host())
                .or_default()
                .entry(change.kind)
                .or_default() += 1;
        }
        let mut hosts: Vec<OfHost<'a>> = hosts
            .into_iter()
            .map(|(host, kinds)| OfHost {
                host,
                count: kinds.values().sum(),
                kinds,
            })
            .collect();
        hosts.sort_by_key(|host| std::cmp::Reverse(host.count));
        Self {
            kinds: kinds
                .into_iter()
                .map(|(kind, groups)| of_kind(kind, groups))
                .collect(),
            hosts,
        }
    }
}

fn key<'a>(change: &Change<'a>) -> Key<'a> {
    let told = |key: &str| matches!(key, "verdict" | "rule");
    // Of another verdict the rules say all; that status and intent differ too is no news.
    let differences = match change.kind {
        Kind::Verdict(..) => Vec::new(),
        Kind::Refusal | Kind::Options | Kind::Rule => change
            .differences
            .iter()
            .filter(|difference| !told(&difference.key))
            .cloned()
            .collect(),
    };
    Key {
        old_rule: change.old.rule,
        new_rule: change.new.rule,
        differences,
    }
}

fn of_kind<'a>(kind: Kind, groups: BTreeMap<Key<'a>, Vec<&'a str>>) -> OfKind<'a> {
    let mut groups: Vec<Group<'a>> = groups
        .into_iter()
        .map(
            |(
                Key {
                    old_rule,
                    new_rule,
                    differences,
                },
                urls,
            )| Group {
                old_rule,
                new_rule,
                differences,
                count: urls.len(),
                urls,
            },
        )
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    OfKind {
        kind,
        count: groups.iter().map(|group| group.count).sum(),
        groups,
    }
}
