//! `crawlgate diff`: reports which decisions differ between two policies, by rule and by host.

mod change;
mod json_report;
mod requests;
mod summary;
mod text_report;

use std::path::{Path, PathBuf};

use crate::config::settings::PolicyOrigin;
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::policy::Policy;
use crate::policy::compare::PolicyDiff;
use crate::policy::compile::CompiledPolicy;
use crate::policy::exact::{DifferenceKind, ExactDifference};

use super::Exit;
use super::args::{DiffArgs, FailOn, OutputFormat};
use super::console;
use super::{inputs, text};
use crate::console::ConsoleColors;
use change::{DecisionChange, OptionPairs};
use requests::{DiffRequests, InvalidDiffLine};
use summary::DiffSummary;

pub(super) fn run(args: &DiffArgs) -> Exit {
    let (old, new) = match (compile_policy(&args.old), compile_policy(&args.new)) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(exit), _) | (_, Err(exit)) => return exit,
    };
    let requests = match &args.urls {
        Some(path) => {
            requests::read_requests(path).map_err(|error| console::report_invalid(&error))
        }
        None if args.ledger => requests::from_ledger(&args.source),
        None => Ok(requests::from_cases(&old.cases, &new.cases)),
    };
    let requests = match requests {
        Ok(requests) => requests,
        Err(exit) => return exit,
    };
    let report = DiffReport::new(args, &old.policy, &new.policy, &requests);
    let text = match args.format {
        OutputFormat::Text => text_report::render(
            &report,
            args.examples,
            ConsoleColors::for_stdout(),
            text::output_width(),
        ),
        OutputFormat::Json => format!("{:#}\n", json_report::to_json(&report, args.examples)),
    };
    console::print(&text, report.exit())
}

fn compile_policy(path: &Path) -> Result<CompiledPolicy, Exit> {
    inputs::compile_policy(&PolicyOrigin::Path(path.to_owned()))
}

/// The differences between two policies.
struct DiffReport<'a> {
    old: DiffSide<'a>,
    new: DiffSide<'a>,
    request_count: usize,
    invalid_lines: &'a [InvalidDiffLine],
    changes: Vec<DecisionChange<'a>>,
    summary: DiffSummary<'a>,
    /// The differences between the rules, options and lists; `None` with `--urls` or `--ledger`.
    structure: Option<PolicyDiff>,
    /// The requests that the policies decide differently, as far as analysis finds them; `None` with `--urls` or
    /// `--ledger`.
    exact: Option<ExactDifference>,
    fail_on: &'a [FailOn],
}

/// One of the two policies.
struct DiffSide<'a> {
    policy: &'a Policy,
    path: &'a PathBuf,
}

impl DiffSide<'_> {
    fn name(&self) -> String {
        format!("{}@{}", self.policy.name(), self.policy.revision())
    }
}

impl<'a> DiffReport<'a> {
    fn new(
        args: &'a DiffArgs,
        old: &'a Policy,
        new: &'a Policy,
        requests: &'a DiffRequests,
    ) -> Self {
        let options = OptionPairs::new(old, new);
        let mut changes: Vec<DecisionChange<'_>> = Vec::new();
        for (facts, profile) in &requests.facts {
            let profile = profile.unwrap_or(args.profile);
            let before = OfflineEvaluation::new(old, facts, profile);
            let after = OfflineEvaluation::new(new, facts, profile);
            changes.extend(DecisionChange::between(facts, &before, &after, &options));
        }
        Self {
            old: DiffSide {
                policy: old,
                path: &args.old,
            },
            new: DiffSide {
                policy: new,
                path: &args.new,
            },
            request_count: requests.facts.len(),
            invalid_lines: &requests.invalid_lines,
            summary: DiffSummary::from_changes(&changes),
            changes,
            structure: (args.urls.is_none() && !args.ledger).then(|| PolicyDiff::between(old, new)),
            exact: (args.urls.is_none() && !args.ledger)
                .then(|| ExactDifference::between(old, new)),
            fail_on: &args.fail_on,
        }
    }

    /// Returns `true` if a difference is known, or not ruled out.
    fn may_have(&self, kind: FailOn) -> bool {
        let (searched, outcomes) = match kind {
            FailOn::NewAccess => (DifferenceKind::NewAccess, "allow"),
            FailOn::NewRefusal => (DifferenceKind::NewRefusal, "reject"),
        };
        let among_requests = self.summary.kinds.iter().any(|summary| {
            matches!(summary.kind, change::DecisionChangeKind::Verdict(_, new) if new == outcomes)
        });
        among_requests
            || self.exact.as_ref().is_some_and(|exact| {
                exact.examples.contains_key(&searched) || !exact.undecided.is_empty()
            })
    }

    fn exit(&self) -> Exit {
        let same_structure = self.structure.as_ref().is_none_or(PolicyDiff::is_empty);
        if !self.invalid_lines.is_empty() {
            Exit::Invalid
        } else if !self.fail_on.is_empty() {
            if self.fail_on.iter().any(|kind| self.may_have(*kind)) {
                Exit::Negative
            } else {
                Exit::Success
            }
        } else if self.changes.is_empty() && same_structure {
            Exit::Success
        } else {
            Exit::Negative
        }
    }
}
