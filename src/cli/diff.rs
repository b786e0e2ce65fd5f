//! `crawlgate diff`: reports which decisions differ between two policies, by rule and by host.

mod change;
mod json_report;
mod logged;
mod markdown_report;
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
use crate::policy::exact::ExactDifference;

use super::Exit;
use super::args::{DiffArgs, DiffFormat, FailOn};
use super::console;
use super::inputs;
use super::text::{self, group_digits, pluralize};
use crate::console::ConsoleColors;
use change::{ChangeGroupKey, DecisionChange, DecisionChangeKind, OptionPairs};
use logged::LeftOutLines;
use requests::{DiffRequests, InvalidDiffLine};
use summary::DiffSummary;

pub(super) fn run(args: &DiffArgs) -> Result<Exit, Exit> {
    // The errors of both are reported.
    let (old, new) = (compile_policy(&args.old), compile_policy(&args.new));
    let (old, new) = (old?, new?);
    let requests = match &args.urls {
        Some(path) => {
            requests::read_requests(path).map_err(|error| console::report_invalid(&error))
        }
        None if args.ledger => requests::from_ledger(&args.source),
        None if args.reads_log() => logged::from_log(args),
        None => Ok(requests::from_cases(&old.cases, &new.cases)),
    }?;
    let report = DiffReport::new(args, &old.policy, &new.policy, &requests);
    let text = match args.format {
        DiffFormat::Text => text_report::render(
            &report,
            args.examples,
            ConsoleColors::for_stdout(),
            text::output_width(),
        ),
        DiffFormat::Json => format!("{:#}\n", json_report::to_json(&report, args.examples)),
        DiffFormat::Markdown => markdown_report::render(&report, args.examples),
        DiffFormat::Github => markdown_report::render_annotations(&report),
    };
    Ok(console::print(&text, report.exit()))
}

fn compile_policy(path: &Path) -> Result<CompiledPolicy, Exit> {
    inputs::compile_policy(&PolicyOrigin::Path(path.to_owned()))
}

/// The differences between two policies.
struct DiffReport<'a> {
    old: DiffSide<'a>,
    new: DiffSide<'a>,
    /// The number of different requests that are compared.
    url_count: usize,
    /// The number of times that they were made.
    request_count: usize,
    /// The lines of the log that are not compared; `None` without a log.
    left_out: Option<LeftOutLines>,
    invalid_lines: &'a [InvalidDiffLine],
    changes: Vec<DecisionChange<'a, 'a>>,
    summary: DiffSummary<'a>,
    /// The differences between the rules, options and lists; `None` if the user names the requests.
    structure: Option<PolicyDiff>,
    /// The differences between the decisions about all URLs; `None` if the user names the requests.
    exact: Option<ExactDifference<ChangeGroupKey<'a>>>,
    fail_on: &'a [FailOn],
}

/// One of the two policies.
struct DiffSide<'a> {
    policy: &'a Policy,
    path: &'a PathBuf,
}

/// The policies whose decisions are compared.
struct ComparedPolicies<'p> {
    old: &'p Policy,
    new: &'p Policy,
    options: OptionPairs<'p>,
}

impl<'p> ComparedPolicies<'p> {
    /// Compares the decisions on a request.
    fn compare<'f>(
        &self,
        facts: &'f CaseFacts,
        profile: Profile,
    ) -> Option<DecisionChange<'f, 'p>> {
        let before = OfflineEvaluation::new(self.old, facts, profile);
        let after = OfflineEvaluation::new(self.new, facts, profile);
        DecisionChange::between(facts, &before, &after, &self.options)
    }
}

impl<'a> DiffReport<'a> {
    fn new(
        args: &'a DiffArgs,
        old: &'a Policy,
        new: &'a Policy,
        requests: &'a DiffRequests,
    ) -> Self {
        let policies = ComparedPolicies {
            old,
            new,
            options: OptionPairs::new(old, new),
        };
        let changes: Vec<DecisionChange<'_, '_>> = requests
            .requests
            .iter()
            .filter_map(|request| {
                let profile = request.profile.unwrap_or(args.profile);
                Some(DecisionChange {
                    count: request.count,
                    ..policies.compare(&request.facts, profile)?
                })
            })
            .collect();
        let compares_all = args.urls.is_none() && !args.ledger && !args.reads_log();
        let exact = compares_all.then(|| {
            ExactDifference::between(old, new, &|facts| {
                Some(policies.compare(facts, args.profile)?.group_key())
            })
        });
        Self {
            old: DiffSide {
                policy: old,
                path: &args.old,
            },
            new: DiffSide {
                policy: new,
                path: &args.new,
            },
            url_count: requests.requests.len(),
            request_count: requests.requests.iter().map(|request| request.count).sum(),
            left_out: requests.left_out,
            invalid_lines: &requests.invalid_lines,
            summary: DiffSummary::from_changes(&changes),
            changes,
            structure: compares_all.then(|| PolicyDiff::between(old, new)),
            exact,
            fail_on: &args.fail_on,
        }
    }

    /// Returns the numbers of compared requests and of changed decisions, as a sentence.
    fn headline(&self) -> String {
        let noun = if self.structure.is_some() {
            "case"
        } else {
            "URL"
        };
        let mut compared = pluralize(self.url_count, noun);
        if self.left_out.is_some() {
            compared = format!("{compared} in {}", pluralize(self.request_count, "request"));
        }
        let changes = match (self.url_count, self.changes.len()) {
            (0, _) => return format!("no {noun}s to compare"),
            (_, 0) => "no decision changes".to_owned(),
            (_, 1) => "1 decision changes".to_owned(),
            (_, n) => format!("{} decisions change", group_digits(n)),
        };
        match self.left_out {
            Some(_) if !self.changes.is_empty() => {
                let requests = pluralize(self.summary.request_count(), "request");
                format!("{compared}: {changes}, about {requests}")
            }
            Some(_) | None => format!("{compared}: {changes}"),
        }
    }

    /// Returns sentences about lines of the log that are not compared.
    fn left_out_notes(&self) -> Vec<String> {
        let Some(left_out) = self.left_out else {
            return Vec::new();
        };
        let mut notes = Vec::new();
        if left_out.without_url > 0 {
            let lines = pluralize(left_out.without_url, "line");
            notes.push(format!("{lines} without a URL left out: tunnels, and URLs that `record` or `logs.query` hides"));
        }
        if left_out.beyond_limit > 0 {
            let lines = pluralize(left_out.beyond_limit, "line");
            notes.push(format!(
                "{lines} left out: the log has too many different URLs; choose a later --since"
            ));
        }
        notes
    }

    /// Returns `true` if a change of a verdict is known, or not ruled out.
    fn may_have(&self, kind: FailOn) -> bool {
        let exact = self.exact.as_ref().map(ExactDifference::possible_verdicts);
        let (new_verdict, is_possible) = match kind {
            FailOn::NewAccess => ("allow", exact.is_some_and(|exact| exact.new_access)),
            FailOn::NewRefusal => ("reject", exact.is_some_and(|exact| exact.new_refusal)),
        };
        let among_requests = self.summary.kinds.iter().any(|summary| {
            matches!(summary.kind, DecisionChangeKind::Verdict(_, new) if new == new_verdict)
        });
        among_requests || is_possible
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
