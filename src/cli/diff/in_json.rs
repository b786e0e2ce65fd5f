//! The comparison as one JSON object.

use serde_json::{Map, Value as Json, json};

use crate::policy::compare::{self, ChangeKind, Structure};

use super::Report;
use super::change::{Change, Difference, Outcome};
use super::summary::{Group, OfHost, OfKind};

/// All of it, every changed URL included.
pub(super) fn of(report: &Report<'_>, examples: usize) -> Json {
    let unread = report
        .unread
        .iter()
        .map(|unread| json!({ "line": unread.line, "error": unread.error }));
    let by_rule = report
        .summary
        .kinds
        .iter()
        .flat_map(|kind| groups(kind, examples));
    json!({
        "old": report.old.name(),
        "new": report.new.name(),
        "urls": report.asked,
        "changed": report.changes.len(),
        "unread": unread.collect::<Vec<_>>(),
        "by_rule": by_rule.collect::<Vec<_>>(),
        "by_host": report.summary.hosts.iter().map(host).collect::<Vec<_>>(),
        "changes": report.changes.iter().map(change).collect::<Vec<_>>(),
        "structure": report.structure.as_ref().map(structure),
    })
}

fn groups(kind: &OfKind<'_>, examples: usize) -> impl Iterator<Item = Json> {
    kind.groups
        .iter()
        .map(move |group| of_group(kind, group, examples))
}

fn of_group(kind: &OfKind<'_>, group: &Group<'_>, examples: usize) -> Json {
    json!({
        "change": kind.kind.in_words(),
        "old_rule": group.old_rule,
        "new_rule": group.new_rule,
        "differences": differences(&group.differences),
        "count": group.count,
        "examples": group.urls.iter().take(examples).collect::<Vec<_>>(),
    })
}

fn host(host: &OfHost<'_>) -> Json {
    let kinds: Map<String, Json> = host
        .kinds
        .iter()
        .map(|(kind, count)| (kind.in_words(), (*count).into()))
        .collect();
    json!({ "host": host.host, "count": host.count, "changes": kinds })
}

fn change(change: &Change<'_>) -> Json {
    json!({
        "url": change.facts.url(),
        "change": change.kind.in_words(),
        "old": outcome(&change.old),
        "new": outcome(&change.new),
        "differences": differences(&change.differences),
    })
}

fn outcome(outcome: &Outcome<'_>) -> Json {
    json!({
        "verdict": outcome.verdict,
        "reason": outcome.reason,
        "rule": outcome.rule,
        "status": outcome.answer.status,
    })
}

fn differences(all: &[Difference]) -> Json {
    all.iter()
        .map(|one| json!({ "key": one.key, "old": one.old, "new": one.new }))
        .collect()
}

fn structure(structure: &Structure) -> Json {
    let all = |changes: &[compare::Change]| changes.iter().map(of_structure).collect::<Vec<_>>();
    json!({
        "rules": all(&structure.rules),
        "options": all(&structure.options),
        "lists": all(&structure.lists),
    })
}

fn of_structure(change: &compare::Change) -> Json {
    let name = &change.name;
    match &change.kind {
        ChangeKind::Added(words) => json!({ "name": name, "change": "added", "new": words }),
        ChangeKind::Removed(words) => json!({ "name": name, "change": "removed", "old": words }),
        ChangeKind::Moved => json!({ "name": name, "change": "moved" }),
        ChangeKind::Changed(aspects) => {
            let one = |a: &compare::Aspect| json!({ "part": a.name, "old": a.old, "new": a.new });
            let parts: Vec<Json> = aspects.iter().map(one).collect();
            json!({ "name": name, "change": "changed", "parts": parts })
        }
    }
}
