//! `GET /api/v1/policy/diff`: what has changed since the policy that was in force before: rules, options, lists, lines.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value as Json, json};
use similar::{ChangeTag, TextDiff};

use crate::clock::Rfc3339;
use crate::pipeline::policy_source::{PolicySource, PolicySourceFile, PreviousPolicy};
use crate::policy::Policy;
use crate::policy::compare::{AspectChange, PolicyChange, PolicyChangeKind};

use super::api_request::run_blocking;
use super::policy_api::PolicyApi;
use super::response::{self, problem};

/// Lines that stay the same around those that do not.
const CONTEXT_LINES: usize = 3;
/// The most lines of all files.
const MAX_LINES: usize = 5_000;
/// The longest line that is shown whole, in characters.
const MAX_LINE_CHARS: usize = 1_000;
/// The most changes of rules, options and lists each.
const MAX_CHANGES: usize = 5_000;
/// How long the shortest difference of one file is looked for; what is left then is shown as replaced.
const DIFF_TIMEOUT: Duration = Duration::from_millis(100);

impl PolicyApi {
    /// 404 if no other policy has been in force since the start.
    pub(super) async fn show_diff(&self) -> Response<Full<Bytes>> {
        let snapshot = self.active_policy.load();
        if snapshot.source.previous.is_none() {
            return problem(
                StatusCode::NOT_FOUND,
                "no other policy has been in force since the start",
            );
        }
        let compare = move || {
            let written = &snapshot.source;
            written
                .previous
                .as_ref()
                .map(|before| document(before, &snapshot.policy, written))
        };
        match run_blocking(compare).await.flatten() {
            Some(document) => response::json(StatusCode::OK, &document),
            None => response::internal_error(),
        }
    }
}

fn document(before: &PreviousPolicy, policy: &Policy, written: &PolicySource) -> Json {
    let structure = &before.structure;
    let most = [&structure.rules, &structure.options, &structure.lists]
        .map(Vec::len)
        .into_iter()
        .max();
    let (files, cut) = diff_files(&before.files, &written.files);
    let all = |changes: &[PolicyChange], name: &str| {
        changes
            .iter()
            .take(MAX_CHANGES)
            .map(|change| change_to_json(change, name))
            .collect::<Vec<_>>()
    };
    json!({
        "before": revision_to_json(&before.name, &before.revision, before.loaded_at),
        "after": revision_to_json(policy.name(), policy.revision(), written.loaded_at),
        "rules": all(&structure.rules, "id"),
        "options": all(&structure.options, "option"),
        "lists": all(&structure.lists, "list"),
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

/// A change with what it concerns under this name.
fn change_to_json(change: &PolicyChange, name: &str) -> Json {
    let (kind, before, after) = match &change.kind {
        PolicyChangeKind::Added(is) => ("added", None, Some(is.clone())),
        PolicyChangeKind::Removed(was) => ("removed", Some(was.clone()), None),
        PolicyChangeKind::Moved => ("moved", None, None),
        PolicyChangeKind::Changed(aspects) => {
            let sides = [
                describe_side(aspects, |aspect| &aspect.old),
                describe_side(aspects, |aspect| &aspect.new),
            ];
            let [was, is] = sides.map(|side| Some(side).filter(|side| !side.is_empty()));
            ("changed", was, is)
        }
    };
    json!({ name: change.name, "change": kind, "before": before, "after": after })
}

/// One side of what differs: the condition as it stands, everything else by its name.
fn describe_side(aspects: &[AspectChange], side: impl Fn(&AspectChange) -> &str) -> String {
    let one = |aspect: &AspectChange| {
        let words = Some(side(aspect))
            .filter(|words| !words.is_empty())
            .unwrap_or("none");
        match aspect.name {
            "" | "condition" => words.to_owned(),
            name => format!("{name}: {words}"),
        }
    };
    aspects.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// The files that differ, those that are gone last; and whether anything of them is left out.
fn diff_files(before: &[PolicySourceFile], after: &[PolicySourceFile]) -> (Vec<Json>, bool) {
    let same_path = |path: &str, files: &'_ [PolicySourceFile]| {
        files.iter().position(|file| *file.path == *path)
    };
    let now = after.iter().map(|file| {
        (
            same_path(&file.path, before).and_then(|at| before.get(at)),
            Some(file),
        )
    });
    let gone = before
        .iter()
        .filter(|file| same_path(&file.path, after).is_none())
        .map(|file| (Some(file), None));
    let mut room = MAX_LINES;
    let mut any_cut = false;
    let differ = now.chain(gone).filter(|(was, is)| match (was, is) {
        (Some(was), Some(is)) => !was.has_same_text(is),
        (_, _) => true,
    });
    let shown = differ.map(|(was, is)| {
        let path = is.or(was).map(|file| &*file.path);
        let (lines, cut) = diff_file_lines(was, is, &mut room);
        any_cut |= cut;
        json!({ "path": path, "lines": lines, "cut": cut })
    });
    (shown.collect(), any_cut)
}

/// The lines of a file that differ, and whether some are missing: its text was not kept, or there are too many.
fn diff_file_lines(
    was: Option<&PolicySourceFile>,
    is: Option<&PolicySourceFile>,
    room: &mut usize,
) -> (Vec<Json>, bool) {
    let (Some(old), Some(new)) = (file_text(was), file_text(is)) else {
        return (Vec::new(), true);
    };
    if *room == 0 {
        return (Vec::new(), true);
    }
    let diff = TextDiff::configure()
        .timeout(DIFF_TIMEOUT)
        .diff_lines(old, new);
    let groups = diff.grouped_ops(CONTEXT_LINES);
    let mut all = groups.iter().flatten().flat_map(|op| diff.iter_changes(op));
    let lines: Vec<Json> = all
        .by_ref()
        .take(*room)
        .map(|change| {
            let number = |index: Option<usize>| index.map(|index| index + 1);
            let kind = match change.tag() {
                ChangeTag::Equal => "same",
                ChangeTag::Delete => "removed",
                ChangeTag::Insert => "added",
            };
            let (before, after) = (number(change.old_index()), number(change.new_index()));
            json!({ "kind": kind, "before": before, "after": after, "text": shorten_line(change.value()) })
        })
        .collect();
    *room -= lines.len();
    let cut = all.next().is_some();
    (lines, cut)
}

/// The text of a file, if it was kept; nothing of one that is not there.
fn file_text(file: Option<&PolicySourceFile>) -> Option<&str> {
    match file {
        Some(file) => file.text.as_deref(),
        None => Some(""),
    }
}

/// A line without its end; the beginning of a long one.
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
