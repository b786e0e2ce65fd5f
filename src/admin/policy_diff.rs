//! `GET /api/v1/policy/diff`: the changes since the previously active policy, in rules, options, lists and lines.

use std::time::{Duration, SystemTime};

use http::StatusCode;
use serde_json::{Value as Json, json};
use similar::{ChangeTag, TextDiff};

use crate::clock::Rfc3339;
use crate::pipeline::policy_source::{PolicySource, PolicySourceFile, PreviousPolicy};
use crate::policy::Policy;
use crate::policy::compare::{AspectChange, PolicyChange, PolicyChangeKind};

use super::api_request::{ApiError, ApiResult, run_blocking};
use super::policy_api::PolicyApi;
use super::response::{self, problem};

/// Unchanged lines around each change.
const CONTEXT_LINES: usize = 3;
/// The most lines of all files.
const MAX_LINES: usize = 5_000;
/// The longest line that is not shortened, in characters.
const MAX_LINE_CHARS: usize = 1_000;
/// The most changes of rules, options and lists each.
const MAX_CHANGES: usize = 5_000;
/// The time limit for finding the shortest difference of one file. After it, the rest of the file counts as replaced.
const DIFF_TIMEOUT: Duration = Duration::from_millis(100);

impl PolicyApi {
    /// Returns the changes, or 404 if no other policy has been active since the start.
    pub(super) async fn show_diff(&self) -> ApiResult {
        let snapshot = self.active_policy.load();
        if snapshot.source.previous.is_none() {
            return Ok(problem(
                StatusCode::NOT_FOUND,
                "no other policy has been active since the start",
            ));
        }
        let document = run_blocking(move || {
            let previous = snapshot.source.previous.as_ref()?;
            Some(document(previous, &snapshot.policy, &snapshot.source))
        });
        let document = document.await?.ok_or(ApiError::Internal)?;
        Ok(response::json(StatusCode::OK, &document))
    }
}

fn document(before: &PreviousPolicy, policy: &Policy, source: &PolicySource) -> Json {
    let structure = &before.structure;
    let most = [&structure.rules, &structure.options, &structure.lists]
        .map(Vec::len)
        .into_iter()
        .max();
    let (files, cut) = diff_files(&before.files, &source.files);
    json!({
        "before": revision_to_json(&before.name, &before.revision, before.loaded_at),
        "after": revision_to_json(policy.name(), policy.revision(), source.loaded_at),
        "rules": changes_to_json(&structure.rules, "id"),
        "options": changes_to_json(&structure.options, "option"),
        "lists": changes_to_json(&structure.lists, "list"),
        "files": files,
        "cut": cut || most > Some(MAX_CHANGES),
    })
}

fn revision_to_json(name: &str, revision: &str, loaded_at: Option<SystemTime>) -> Json {
    json!({
        "name": name,
        "revision": revision,
        "loaded_at": loaded_at.map(|at| Rfc3339(at).to_string()),
    })
}

fn changes_to_json(changes: &[PolicyChange], key: &str) -> Vec<Json> {
    changes
        .iter()
        .take(MAX_CHANGES)
        .map(|change| change_to_json(change, key))
        .collect()
}

/// Returns a change, with the name of the changed part under `key`.
fn change_to_json(change: &PolicyChange, key: &str) -> Json {
    let (kind, before, after) = match &change.kind {
        PolicyChangeKind::Added(new) => ("added", None, Some(new.clone())),
        PolicyChangeKind::Removed(old) => ("removed", Some(old.clone()), None),
        PolicyChangeKind::Moved => ("moved", None, None),
        PolicyChangeKind::Changed(aspects) => {
            let old = describe_side(aspects, |aspect| &aspect.old);
            let new = describe_side(aspects, |aspect| &aspect.new);
            (
                "changed",
                Some(old).filter(|old| !old.is_empty()),
                Some(new).filter(|new| !new.is_empty()),
            )
        }
    };
    json!({ key: change.name, "change": kind, "before": before, "after": after })
}

/// Returns the old or the new side of the changed aspects: the condition as it is, and the others after their names.
fn describe_side(aspects: &[AspectChange], side: impl Fn(&AspectChange) -> &str) -> String {
    let mut described = Vec::with_capacity(aspects.len());
    for aspect in aspects {
        let text = match side(aspect) {
            "" => "none",
            text => text,
        };
        described.push(match aspect.name {
            "" | "condition" => text.to_owned(),
            name => format!("{name}: {text}"),
        });
    }
    described.join("; ")
}

/// Returns the files that differ, removed ones last, and `true` if any line is left out.
fn diff_files(before: &[PolicySourceFile], after: &[PolicySourceFile]) -> (Vec<Json>, bool) {
    let present = after
        .iter()
        .map(|file| (find_file(before, &file.path), Some(file)));
    let removed = before
        .iter()
        .filter(|file| find_file(after, &file.path).is_none())
        .map(|file| (Some(file), None));
    let mut lines_left = MAX_LINES;
    let mut any_cut = false;
    let mut files = Vec::new();
    for (old, new) in present.chain(removed) {
        if let (Some(old), Some(new)) = (old, new)
            && old.has_same_text(new)
        {
            continue;
        }
        let path = new.or(old).map(|file| &*file.path);
        let (lines, cut) = diff_file_lines(old, new, &mut lines_left);
        any_cut |= cut;
        files.push(json!({ "path": path, "lines": lines, "cut": cut }));
    }
    (files, any_cut)
}

fn find_file<'f>(files: &'f [PolicySourceFile], path: &str) -> Option<&'f PolicySourceFile> {
    files.iter().find(|file| *file.path == *path)
}

/// Returns the lines of a file that differ, and `true` if lines are missing because the text was not stored or there are
/// too many.
fn diff_file_lines(
    old: Option<&PolicySourceFile>,
    new: Option<&PolicySourceFile>,
    lines_left: &mut usize,
) -> (Vec<Json>, bool) {
    let (Some(old), Some(new)) = (file_text(old), file_text(new)) else {
        return (Vec::new(), true);
    };
    if *lines_left == 0 {
        return (Vec::new(), true);
    }
    let diff = TextDiff::configure()
        .timeout(DIFF_TIMEOUT)
        .diff_lines(old, new);
    let groups = diff.grouped_ops(CONTEXT_LINES);
    let mut changes = groups.iter().flatten().flat_map(|op| diff.iter_changes(op));
    let lines: Vec<Json> = changes
        .by_ref()
        .take(*lines_left)
        .map(|change| {
            let kind = match change.tag() {
                ChangeTag::Equal => "same",
                ChangeTag::Delete => "removed",
                ChangeTag::Insert => "added",
            };
            json!({
                "kind": kind,
                "before": change.old_index().map(|index| index + 1),
                "after": change.new_index().map(|index| index + 1),
                "text": shorten_line(change.value()),
            })
        })
        .collect();
    *lines_left -= lines.len();
    let cut = changes.next().is_some();
    (lines, cut)
}

/// Returns the text of a file, if it was stored; empty for a file that does not exist.
fn file_text(file: Option<&PolicySourceFile>) -> Option<&str> {
    match file {
        Some(file) => file.text.as_deref(),
        None => Some(""),
    }
}

/// Returns a line without its end, shortened if it is long.
fn shorten_line(text: &str) -> String {
    let text = text.trim_end_matches(['\r', '\n']);
    match text.char_indices().nth(MAX_LINE_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_and_ends_left_out() {
        assert_eq!(shorten_line("a: 1\r\n"), "a: 1");
        assert_eq!(
            shorten_line(&"ü".repeat(MAX_LINE_CHARS)).chars().count(),
            MAX_LINE_CHARS
        );
        assert_eq!(
            shorten_line(&"ü".repeat(MAX_LINE_CHARS + 1)),
            format!("{}…", "ü".repeat(MAX_LINE_CHARS))
        );
    }
}
