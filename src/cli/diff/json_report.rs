//! The comparison as one JSON object.

use serde_json::{Map, Value as Json, json};

use crate::policy::compare::{self, PolicyChangeKind, PolicyDiff};
use crate::policy::exact::ExactDifference;

use super::DiffReport;
use super::change::{ChangeGroupKey, DecisionChange, DiffOutcome, Difference};
use super::summary::{ChangeGroup, DiffSubjectSummary};

/// Converts a report, with all changed URLs.
pub(super) fn to_json(report: &DiffReport<'_>, examples: usize) -> Json {
    let invalid_lines = report
        .invalid_lines
        .iter()
        .map(|invalid| json!({ "line": invalid.line, "error": invalid.error }));
    let by_rule = report
        .summary
        .kinds
        .iter()
        .flat_map(|kind| &kind.groups)
        .map(|group| group_json(group, examples));
    json!({
        "old": report.old.policy.name_and_revision(),
        "new": report.new.policy.name_and_revision(),
        "urls": report.url_count,
        "requests": report.request_count,
        "changed": report.changes.len(),
        "changed_requests": report.summary.request_count(),
        "left_out": report.left_out.map(|left_out| json!({
            "without_url": left_out.without_url,
            "beyond_limit": left_out.beyond_limit,
        })),
        "unread": invalid_lines.collect::<Vec<_>>(),
        "by_rule": by_rule.collect::<Vec<_>>(),
        "by_host": report.summary.hosts.iter().map(|host| subject_json("host", host)).collect::<Vec<_>>(),
        "by_crawler": report.summary.crawlers.iter().map(|crawler| subject_json("crawler", crawler)).collect::<Vec<_>>(),
        "changes": report.changes.iter().map(change_json).collect::<Vec<_>>(),
        "structure": report.structure.as_ref().map(structure_json),
        "exact": report.exact.as_ref().map(|exact| exact_json(exact, examples)),
    })
}

fn exact_json(exact: &ExactDifference<ChangeGroupKey<'_>>, examples: usize) -> Json {
    let answer = if exact.is_equivalent() {
        "proved"
    } else if exact.examples.is_empty() {
        "undecided"
    } else {
        "refuted"
    };
    let by_rule = exact.examples.iter().map(|(key, found)| {
        let mut group = key_json(key);
        let found = found.iter().take(examples);
        let found = found.map(|example| json!({ "url": example.url, "facts": example.details }));
        group.insert("examples".to_owned(), found.collect());
        group
    });
    let undecided = exact.undecided.iter().map(|change| {
        json!({
            "name": change.name,
            "changes_decisions": change.changes_decisions,
            "new_access": change.verdicts.new_access,
            "new_refusal": change.verdicts.new_refusal,
            "reason": change.reason,
        })
    });
    json!({
        "answer": answer,
        "by_rule": by_rule.collect::<Vec<_>>(),
        "undecided": undecided.collect::<Vec<_>>(),
    })
}

fn group_json(group: &ChangeGroup<'_>, examples: usize) -> Map<String, Json> {
    let mut json = key_json(&group.key);
    let urls = group.urls.iter().take(examples);
    json.insert("count".to_owned(), group.count.into());
    json.insert("examples".to_owned(), urls.map(|(url, _)| *url).collect());
    json
}

fn key_json(key: &ChangeGroupKey<'_>) -> Map<String, Json> {
    let fields = [
        ("change", key.kind.headline().into()),
        ("old_rule", key.old_rule.into()),
        ("new_rule", key.new_rule.into()),
        ("differences", differences_json(&key.differences)),
    ];
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}

fn subject_json(key: &str, subject: &DiffSubjectSummary<'_>) -> Json {
    let kinds: Map<String, Json> = subject
        .kinds
        .iter()
        .map(|(kind, count)| (kind.headline(), (*count).into()))
        .collect();
    json!({ key: subject.name, "count": subject.count, "changes": kinds })
}

fn change_json(change: &DecisionChange<'_, '_>) -> Json {
    json!({
        "url": change.facts.url(),
        "crawler": change.facts.crawler(),
        "requests": change.count,
        "change": change.kind.headline(),
        "old": outcome_json(&change.old),
        "new": outcome_json(&change.new),
        "differences": differences_json(&change.differences),
    })
}

fn outcome_json(outcome: &DiffOutcome<'_>) -> Json {
    json!({
        "verdict": outcome.verdict,
        "reason": outcome.reason,
        "rule": outcome.rule,
        "status": outcome.answer.status,
    })
}

fn differences_json(differences: &[Difference]) -> Json {
    differences
        .iter()
        .map(|difference| {
            json!({ "key": difference.key, "old": difference.old, "new": difference.new })
        })
        .collect()
}

fn structure_json(structure: &PolicyDiff) -> Json {
    json!({
        "rules": structure_changes_json(&structure.rules),
        "options": structure_changes_json(&structure.options),
        "lists": structure_changes_json(&structure.lists),
    })
}

fn structure_changes_json(changes: &[compare::PolicyChange]) -> Json {
    changes.iter().map(structure_change_json).collect()
}

fn structure_change_json(change: &compare::PolicyChange) -> Json {
    let name = &change.name;
    match &change.kind {
        PolicyChangeKind::Added(text) => json!({ "name": name, "change": "added", "new": text }),
        PolicyChangeKind::Removed(text) => {
            json!({ "name": name, "change": "removed", "old": text })
        }
        PolicyChangeKind::Moved => json!({ "name": name, "change": "moved" }),
        PolicyChangeKind::Changed(aspects) => {
            let parts: Vec<Json> = aspects
                .iter()
                .map(|aspect| json!({ "part": aspect.name, "old": aspect.old, "new": aspect.new }))
                .collect();
            json!({ "name": name, "change": "changed", "parts": parts })
        }
    }
}
