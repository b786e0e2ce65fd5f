//! Changes by what they are, by rule, and by host, the commonest first.

use std::collections::BTreeMap;

use super::change::{DecisionChange, DecisionChangeKind, Difference};

/// All changes in short.
pub(super) struct DiffSummary<'a> {
    /// By kind, each by rule.
    pub(super) kinds: Vec<DiffKindSummary<'a>>,
    /// By host.
    pub(super) hosts: Vec<DiffHostSummary<'a>>,
}

/// The changes of one kind.
pub(super) struct DiffKindSummary<'a> {
    /// The kind.
    pub(super) kind: DecisionChangeKind,
    /// How many there are.
    pub(super) count: usize,
    /// By the rules that decided, and by what differs where the verdict does not.
    pub(super) groups: Vec<ChangeGroup<'a>>,
}

/// Changes that have one cause.
pub(super) struct ChangeGroup<'a> {
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
pub(super) struct DiffHostSummary<'a> {
    /// The host.
    pub(super) host: &'a str,
    /// How many there are.
    pub(super) count: usize,
    /// How many of each kind.
    pub(super) kinds: BTreeMap<DecisionChangeKind, usize>,
}

/// What makes changes one group.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ChangeGroupKey<'a> {
    old_rule: Option<&'a str>,
    new_rule: Option<&'a str>,
    differences: Vec<Difference>,
}

impl<'a> DiffSummary<'a> {
    /// Counts changes.
    pub(super) fn from_changes(changes: &[DecisionChange<'a>]) -> Self {
        let mut kinds: BTreeMap<DecisionChangeKind, BTreeMap<ChangeGroupKey<'a>, Vec<&'a str>>> =
            BTreeMap::new();
        let mut hosts: BTreeMap<&'a str, BTreeMap<DecisionChangeKind, usize>> = BTreeMap::new();
        for change in changes {
            kinds
                .entry(change.kind)
                .or_default()
                .entry(group_key(change))
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

fn group_key<'a>(change: &DecisionChange<'a>) -> ChangeGroupKey<'a> {
    let told = |key: &str| matches!(key, "verdict" | "rule");
    // Of another verdict the rules say all; that status and intent differ too is no news.
    let differences = match change.kind {
        DecisionChangeKind::Verdict(..) => Vec::new(),
        DecisionChangeKind::Refusal | DecisionChangeKind::Options | DecisionChangeKind::Rule => {
            change
                .differences
                .iter()
                .filter(|difference| !told(&difference.key))
                .cloned()
                .collect()
        }
    };
    ChangeGroupKey {
        old_rule: change.old.rule,
        new_rule: change.new.rule,
        differences,
    }
}

fn summarize_kind<'a>(
    kind: DecisionChangeKind,
    groups: BTreeMap<ChangeGroupKey<'a>, Vec<&'a str>>,
) -> DiffKindSummary<'a> {
    let mut groups: Vec<ChangeGroup<'a>> = groups
        .into_iter()
        .map(
            |(
                ChangeGroupKey {
                    old_rule,
                    new_rule,
                    differences,
                },
                urls,
            )| ChangeGroup {
                old_rule,
                new_rule,
                differences,
                count: urls.len(),
                urls,
            },
        )
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    DiffKindSummary {
        kind,
        count: groups.iter().map(|group| group.count).sum(),
        groups,
    }
}
