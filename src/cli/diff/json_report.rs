//! The comparison as one JSON object.

use serde_json::{Map, Value as Json, json};

use crate::policy::compare::{self, PolicyChangeKind, PolicyDiff};
use crate::policy::exact::ExactDifference;

use super::DiffReport;
use super::change::{DecisionChange, DiffOutcome, Difference};
use super::summary::{ChangeGroup, DiffHostSummary, DiffKindSummary};

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
        .flat_map(|kind| groups_json(kind, examples));
    json!({
        "old": report.old.name(),
        "new": report.new.name(),
        "urls": report.request_count,
        "changed": report.changes.len(),
        "unread": invalid_lines.collect::<Vec<_>>(),
        "by_rule": by_rule.collect::<Vec<_>>(),
        "by_host": report.summary.hosts.iter().map(host_json).collect::<Vec<_>>(),
        "changes": report.changes.iter().map(change_json).collect::<Vec<_>>(),
        "structure": report.structure.as_ref().map(structure_json),
        "exact": report.exact.as_ref().map(exact_json),
    })
}

fn exact_json(exact: &ExactDifference) -> Json {
    let answer = if exact.is_equivalent() {
        "proved"
    } else if exact.examples.is_empty() {
        "undecided"
    } else {
        "refuted"
    };
    let examples = exact.examples.iter().flat_map(|(kind, examples)| {
        examples.iter().map(|example| {
            json!({ "change": kind.as_str(), "url": example.url, "facts": example.details })
        })
    });
    let undecided = exact
        .undecided
        .iter()
        .map(|(change, reason)| json!({ "change": change, "reason": reason }));
    json!({
        "answer": answer,
        "examples": examples.collect::<Vec<_>>(),
        "undecided": undecided.collect::<Vec<_>>(),
    })
}

fn groups_json(kind: &DiffKindSummary<'_>, examples: usize) -> impl Iterator<Item = Json> {
    kind.groups
        .iter()
        .map(move |group| group_json(kind, group, examples))
}

fn group_json(kind: &DiffKindSummary<'_>, group: &ChangeGroup<'_>, examples: usize) -> Json {
    json!({
        "change": kind.kind.headline(),
        "old_rule": group.old_rule,
        "new_rule": group.new_rule,
        "differences": differences_json(&group.differences),
        "count": group.count,
        "examples": group.urls.iter().take(examples).collect::<Vec<_>>(),
    })
}

fn host_json(host: &DiffHostSummary<'_>) -> Json {
    let kinds: Map<String, Json> = host
        .kinds
        .iter()
        .map(|(kind, count)| (kind.headline(), (*count).into()))
        .collect();
    json!({ "host": host.host, "count": host.count, "changes": kinds })
}

fn change_json(change: &DecisionChange<'_>) -> Json {
    json!({
        "url": change.facts.url(),
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
