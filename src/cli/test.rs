//! `crawlgate test`: runs the cases of policies, those in them and those in files of their own, and says what they
//! reach.

mod junit;
mod plan;
mod report;

use crate::config::settings::PolicyOrigin;
use crate::diagnostics::problem::SourceLocation;
use crate::diagnostics::problems::Problems;
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::policy::Policy;
use crate::policy::cases::{Case, Mismatch};
use crate::policy::compile;
use crate::policy::coverage::{Coverage, CoverageRatio};

use super::Exit;
use super::args::{TestArgs, TestFormat};
use super::color::ConsoleColors;
use super::console;
use super::inputs;
use plan::{OwnCases, TestSuite};

/// Runs the command.
pub(super) fn run(args: &TestArgs) -> Exit {
    let suites = match plan::plan_suites(&args.paths) {
        Ok(suites) => suites,
        Err(exit) => return exit,
    };
    let mut runs = Vec::with_capacity(suites.len());
    for suite in suites {
        match PolicyTestRun::execute(suite) {
            Ok(run) => runs.push(run),
            Err(exit) => return exit,
        }
    }
    let asked = CoverageOptions {
        coverage: args.coverage || args.threshold.is_some(),
        threshold: args.threshold,
    };
    let passed = runs
        .iter()
        .all(|run| run.failed_count() == 0 && !asked.is_missed_by(run));
    let exit = if passed {
        Exit::Success
    } else {
        Exit::Negative
    };
    let text = match args.format {
        TestFormat::Text => report::render_text(&runs, asked, ConsoleColors::for_stdout()),
        TestFormat::Json => format!("{:#}\n", report::to_json(&runs, asked)),
        TestFormat::Junit => junit::render(&runs, asked),
    };
    console::print(&text, exit)
}

/// What is asked beside whether the cases pass.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CoverageOptions {
    /// Whether coverage is shown.
    coverage: bool,
    /// The least share of branches that must be reached, in hundredths.
    threshold: Option<f64>,
}

impl CoverageOptions {
    fn is_missed_by(self, run: &PolicyTestRun) -> bool {
        self.threshold
            .is_some_and(|least| run.branch_coverage().percent() < least)
    }
}

/// The cases of one policy, each with what is wrong with it.
struct PolicyTestRun {
    /// Where the policy is.
    location: String,
    policy: Policy,
    places: Vec<SourceLocation>,
    cases: Vec<(Case, Vec<Mismatch>)>,
    coverage: Coverage,
}

impl PolicyTestRun {
    fn execute(suite: TestSuite) -> Result<Self, Exit> {
        let compiled = inputs::compile_policy(&suite.origin)?;
        let policy = compiled.policy;
        let mut cases = match suite.own_cases {
            OwnCases::Run => compiled.cases,
            OwnCases::Skip => Vec::new(),
        };
        let mut problems = Problems::new();
        for file in suite.files {
            compile::check_cases(&policy, &file.cases, &mut problems);
            cases.extend(file.cases);
        }
        if problems.has_errors() {
            return Err(inputs::report_errors(&problems.into_vec()));
        }
        let mut coverage = Coverage::new(&policy);
        let cases = cases.into_iter().map(|case| {
            let trial = OfflineEvaluation::new(&policy, &case.facts, case.profile);
            coverage.record(&trial.trail);
            let mismatches =
                case.mismatches(&policy, &trial.trail, &trial.decision, &trial.answer());
            (case, mismatches)
        });
        let cases = cases.collect();
        let shown = match suite.origin {
            PolicyOrigin::Path(path) => path.display().to_string(),
            PolicyOrigin::BuiltIn => "the built-in policy".to_owned(),
        };
        Ok(Self {
            location: shown,
            places: compiled.rule_places,
            cases,
            coverage,
            policy,
        })
    }

    fn failed_count(&self) -> usize {
        self.cases
            .iter()
            .filter(|(_, mismatches)| !mismatches.is_empty())
            .count()
    }

    fn name(&self) -> String {
        format!("{}@{}", self.policy.name(), self.policy.revision())
    }

    fn branch_coverage(&self) -> CoverageRatio {
        self.coverage.branch_ratio(&self.policy)
    }
}
