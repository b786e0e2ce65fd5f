//! Rules that wait for the document: the proxy does not read documents yet, so it cannot run under them.

use crate::policy::field::Field;
use crate::policy::rule::PolicyStage;
use crate::policy::source::tree::{SourceBody, SourceFilter};
use crate::vocab::problem::{Place, Problem, Severity};
use crate::vocab::problems::Problems;

use super::Purpose;
use super::drafts::{Draft, Drafts, condition_of};

const HELP: &str = "response headers can be judged: `content_type`, `header.NAME`, `meta_robots`";

/// Says of each rule that only a document can decide that the proxy does not read documents.
pub(super) fn unread(drafts: &Drafts<'_>, purpose: Purpose, problems: &mut Problems) {
    for draft in &drafts.all {
        for (place, what) in asks(draft) {
            let message = format!("{what} is not in this version: documents are not read yet");
            let problem = not_enforced(Problem::error(place, message).help(HELP), purpose);
            problems.push(problem.in_rule(Some(draft.source.name())));
        }
    }
}

/// What the proxy does not do is an error where it would serve, and a warning where facts are given.
pub(super) fn not_enforced(problem: Problem, purpose: Purpose) -> Problem {
    match purpose {
        Purpose::Serve => problem,
        Purpose::Study => Problem { severity: Severity::Warning, ..problem },
    }
}

fn asks<'d>(draft: &'d Draft<'_>) -> Vec<(&'d Place, String)> {
    let mut found = Vec::new();
    if let Some(stage) = draft.source.stage.as_ref().filter(|stage| stage.value == PolicyStage::Document) {
        found.push((&stage.place, "`stage: document`".to_owned()));
    }
    if let SourceBody::Filter(SourceFilter { soft_error: Some(soft), .. }) = &draft.source.body {
        found.push((&soft.place, "`as`".to_owned()));
    }
    let Some(condition) = condition_of(draft.source) else { return found };
    condition.each_atom(&mut |atom| {
        if matches!(atom.field, Some(Field::Title | Field::BodyPrefix)) {
            found.push((&atom.place, format!("`{}`", atom.word)));
        }
    });
    found
}
