//! The changes by kind, by rule and by host, the most frequent first.

use std::collections::BTreeMap;

use super::change::{ChangeGroupKey, DecisionChange, DecisionChangeKind};

/// A summary of all changes.
pub(super) struct DiffSummary<'a> {
    pub(super) kinds: Vec<DiffKindSummary<'a>>,
    pub(super) hosts: Vec<DiffHostSummary<'a>>,
}

/// The changes of one kind.
pub(super) struct DiffKindSummary<'a> {
    pub(super) kind: DecisionChangeKind,
    /// The number of changes.
    pub(super) count: usize,
    /// The changes by the rules that decide, and by the differences if the verdict does not change.
    pub(super) groups: Vec<ChangeGroup<'a>>,
}

/// Changes of the same kind and with the same cause.
pub(super) struct ChangeGroup<'a> {
    pub(super) key: ChangeGroupKey<'a>,
    /// The number of changes.
    pub(super) count: usize,
    /// The URLs, in the order of the input.
    pub(super) urls: Vec<&'a str>,
}

/// The changes of one host.
pub(super) struct DiffHostSummary<'a> {
    pub(super) host: &'a str,
    /// The number of changes.
    pub(super) count: usize,
    /// The number of changes of each kind.
    pub(super) kinds: BTreeMap<DecisionChangeKind, usize>,
}

impl<'a> DiffSummary<'a> {
    pub(super) fn from_changes(changes: &[DecisionChange<'a, 'a>]) -> Self {
        let mut kinds: BTreeMap<DecisionChangeKind, BTreeMap<ChangeGroupKey<'a>, Vec<&'a str>>> =
            BTreeMap::new();
        let mut hosts: BTreeMap<&'a str, BTreeMap<DecisionChangeKind, usize>> = BTreeMap::new();
        for change in changes {
            kinds
                .entry(change.kind)
                .or_default()
                .entry(change.group_key())
                .or_default()
                .push(change.facts.url());
            *hosts
                .entry(change.host())
                .or_default()
                .entry(change.kind)
                .or_default() += 1;
        }
        let mut hosts: Vec<DiffHostSummary<'a>> = hosts
            .into_iter()
            .map(|(host, kinds)| DiffHostSummary {
                host,
                count: kinds.values().sum(),
                kinds,
            })
            .collect();
        hosts.sort_by_key(|host| std::cmp::Reverse(host.count));
        Self {
            kinds: kinds
                .into_iter()
                .map(|(kind, groups)| summarize_kind(kind, groups))
                .collect(),
            hosts,
        }
    }
}

fn summarize_kind<'a>(
    kind: DecisionChangeKind,
    groups: BTreeMap<ChangeGroupKey<'a>, Vec<&'a str>>,
) -> DiffKindSummary<'a> {
    let mut groups: Vec<ChangeGroup<'a>> = groups
        .into_iter()
        .map(|(key, urls)| ChangeGroup {
            key,
            count: urls.len(),
            urls,
        })
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    DiffKindSummary {
        kind,
        count: groups.iter().map(|group| group.count).sum(),
        groups,
    }
}
