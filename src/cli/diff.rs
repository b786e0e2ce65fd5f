//! `crawlgate diff`: whose decision changes from one policy to another, by rule and by host.

mod change;
mod json_report;
mod requests;
mod summary;
mod text_report;

use std::path::{Path, PathBuf};

use crate::config::settings::PolicyOrigin;
use crate::model::profile::Profile;
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::policy::Policy;
use crate::policy::cases::CaseFacts;
use crate::policy::compare::PolicyDiff;
use crate::policy::compile::CompiledPolicy;

use super::Exit;
use super::args::{DiffArgs, OutputFormat};
use super::color::{self, ConsoleColors};
use super::console;
use super::inputs;
use change::{DecisionChange, OptionPairs};
use requests::{DiffRequests, InvalidDiffLine};
use summary::DiffSummary;

/// Runs the command.
pub(super) fn run(args: &DiffArgs) -> Exit {
    let (old, new) = match (compile_policy(&args.old), compile_policy(&args.new)) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(exit), _) | (_, Err(exit)) => return exit,
    };
    let asked = match &args.urls {
        Some(path) => requests::read_requests(path),
        None => Ok(requests::from_cases(&old.cases, &new.cases)),
    };
    let asked = match asked {
        Ok(asked) => asked,
        Err(mistake) => return console::report_invalid(&mistake),
    };
    let report = DiffReport::new(args, &old.policy, &new.policy, &asked);
    let text = match args.format {
        OutputFormat::Text => text_report::render(
            &report,
            args.examples,
            ConsoleColors::for_stdout(),
            color::output_width(),
        ),
        OutputFormat::Json => format!("{:#}\n", json_report::to_json(&report, args.examples)),
    };
    console::print(&text, report.exit())
}

fn compile_policy(path: &Path) -> Result<CompiledPolicy, Exit> {
    inputs::compile_policy(&PolicyOrigin::Path(path.to_owned()))
}

/// Everything that differs.
struct DiffReport<'a> {
    old: DiffSide<'a>,
    new: DiffSide<'a>,
    request_count: usize,
    invalid_lines: &'a [InvalidDiffLine],
    changes: Vec<DecisionChange<'a>>,
    summary: DiffSummary<'a>,
    /// How the policies differ as they are written; only where no URLs were given.
    structure: Option<PolicyDiff>,
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
        let judge = |(facts, profile): &'a (CaseFacts, Option<Profile>)| {
            let profile = profile.unwrap_or(args.profile);
            let (was, is) = (
                OfflineEvaluation::new(old, facts, profile),
                OfflineEvaluation::new(new, facts, profile),
            );
            DecisionChange::between(facts, &was, &is, &options)
        };
        let changes: Vec<DecisionChange<'_>> = requests.facts.iter().filter_map(judge).collect();
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
            structure: args.urls.is_none().then(|| PolicyDiff::between(old, new)),
        }
    }

    fn exit(&self) -> Exit {
        let rewritten = self
            .structure
            .as_ref()
            .is_some_and(|structure| !structure.is_empty());
        match (
            self.invalid_lines.is_empty(),
            self.changes.is_empty() && !rewritten,
        ) {
            (false, _) => Exit::Invalid,
            (true, true) => Exit::Success,
            (true, false) => Exit::Negative,
        }
    }
}
