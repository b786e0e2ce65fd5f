//! The changes by kind, by rule, by host and by crawler, the most frequent first.

use std::collections::BTreeMap;

use crate::cli::text::group_digits;

use super::change::{ChangeGroupKey, DecisionChange, DecisionChangeKind};

/// A summary of all changes.
pub(super) struct DiffSummary<'a> {
    pub(super) kinds: Vec<DiffKindSummary<'a>>,
    pub(super) hosts: Vec<DiffSubjectSummary<'a>>,
    pub(super) crawlers: Vec<DiffSubjectSummary<'a>>,
}

/// The changes of one kind.
pub(super) struct DiffKindSummary<'a> {
    pub(super) kind: DecisionChangeKind,
    /// The number of requests whose decision changes.
    pub(super) count: usize,
    /// The changes by the rules that decide, and by the differences if the verdict does not change.
    pub(super) groups: Vec<ChangeGroup<'a>>,
}

/// Changes of the same kind and with the same cause.
pub(super) struct ChangeGroup<'a> {
    pub(super) key: ChangeGroupKey<'a>,
    /// The number of requests whose decision changes.
    pub(super) count: usize,
    /// The URLs with the number of their requests: the most frequent first, else in the order of the input.
    pub(super) urls: Vec<(&'a str, usize)>,
}

/// The changes of one host or crawler.
pub(super) struct DiffSubjectSummary<'a> {
    pub(super) name: &'a str,
    /// The number of requests whose decision changes.
    pub(super) count: usize,
    /// The number of these requests by the kind of the change.
    pub(super) kinds: BTreeMap<DecisionChangeKind, usize>,
}

impl<'a> DiffSummary<'a> {
    pub(super) fn from_changes(changes: &[DecisionChange<'a, 'a>]) -> Self {
        let mut kinds: BTreeMap<DecisionChangeKind, UrlsByCause<'a>> = BTreeMap::new();
        for change in changes {
            kinds
                .entry(change.kind)
                .or_default()
                .entry(change.group_key())
                .or_default()
                .push((change.facts.url(), change.count));
        }
        Self {
            kinds: kinds
                .into_iter()
                .map(|(kind, groups)| summarize_kind(kind, groups))
                .collect(),
            hosts: summarize_by(changes, DecisionChange::host),
            crawlers: summarize_by(changes, |change| change.facts.crawler()),
        }
    }

    /// The number of requests whose decision changes.
    pub(super) fn request_count(&self) -> usize {
        self.kinds.iter().map(|kind| kind.count).sum()
    }
}

impl DiffSubjectSummary<'_> {
    /// Returns `allow -> reject 3, reject -> allow 1`.
    pub(super) fn describe_kinds(&self) -> String {
        let kinds: Vec<String> = self
            .kinds
            .iter()
            .map(|(kind, count)| format!("{} {}", kind.headline(), group_digits(*count)))
            .collect();
        kinds.join(", ")
    }
}

type UrlsByCause<'a> = BTreeMap<ChangeGroupKey<'a>, Vec<(&'a str, usize)>>;

fn summarize_by<'a>(
    changes: &[DecisionChange<'a, 'a>],
    subject: impl Fn(&DecisionChange<'a, 'a>) -> &'a str,
) -> Vec<DiffSubjectSummary<'a>> {
    let mut subjects: BTreeMap<&'a str, BTreeMap<DecisionChangeKind, usize>> = BTreeMap::new();
    for change in changes {
        *subjects
            .entry(subject(change))
            .or_default()
            .entry(change.kind)
            .or_default() += change.count;
    }
    let mut subjects: Vec<DiffSubjectSummary<'a>> = subjects
        .into_iter()
        .map(|(name, kinds)| DiffSubjectSummary {
            name,
            count: kinds.values().sum(),
            kinds,
        })
        .collect();
    subjects.sort_by_key(|subject| std::cmp::Reverse(subject.count));
    subjects
}

fn summarize_kind(kind: DecisionChangeKind, groups: UrlsByCause<'_>) -> DiffKindSummary<'_> {
    let mut groups: Vec<ChangeGroup<'_>> = groups
        .into_iter()
        .map(|(key, mut urls)| {
            urls.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            ChangeGroup {
                key,
                count: urls.iter().map(|(_, count)| count).sum(),
                urls,
            }
        })
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    DiffKindSummary {
        kind,
        count: groups.iter().map(|group| group.count).sum(),
        groups,
    }
}
