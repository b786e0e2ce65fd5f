//! The comparison as one JSON object.

use serde_json::{Map, Value as Json, json};

use crate::policy::compare::{self, PolicyChangeKind, PolicyDiff};

use super::DiffReport;
use super::change::{DecisionChange, DiffOutcome, Difference};
use super::summary::{ChangeGroup, DiffHostSummary, DiffKindSummary};

/// All of it, every changed URL included.
pub(super) fn to_json(report: &DiffReport<'_>, examples: usize) -> Json {
    let unread = report
        .invalid_lines
        .iter()
        .map(|unread| json!({ "line": unread.line, "error": unread.error }));
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
        "unread": unread.collect::<Vec<_>>(),
        "by_rule": by_rule.collect::<Vec<_>>(),
        "by_host": report.summary.hosts.iter().map(host_json).collect::<Vec<_>>(),
        "changes": report.changes.iter().map(change_json).collect::<Vec<_>>(),
        "structure": report.structure.as_ref().map(structure_json),
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

fn differences_json(all: &[Difference]) -> Json {
    all.iter()
        .map(|one| json!({ "key": one.key, "old": one.old, "new": one.new }))
        .collect()
}

fn structure_json(structure: &PolicyDiff) -> Json {
    let all = |changes: &[compare::PolicyChange]| {
        changes
            .iter()
            .map(structure_change_json)
            .collect::<Vec<_>>()
    };
    json!({
        "rules": all(&structure.rules),
        "options": all(&structure.options),
        "lists": all(&structure.lists),
    })
}

fn structure_change_json(change: &compare::PolicyChange) -> Json {
    let name = &change.name;
    match &change.kind {
        PolicyChangeKind::Added(words) => json!({ "name": name, "change": "added", "new": words }),
        PolicyChangeKind::Removed(words) => {
            json!({ "name": name, "change": "removed", "old": words })
        }
        PolicyChangeKind::Moved => json!({ "name": name, "change": "moved" }),
        PolicyChangeKind::Changed(aspects) => {
            let one =
                |a: &compare::AspectChange| json!({ "part": a.name, "old": a.old, "new": a.new });
            let parts: Vec<Json> = aspects.iter().map(one).collect();
            json!({ "name": name, "change": "changed", "parts": parts })
        }
    }
}
