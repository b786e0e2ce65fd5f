//! `crawlgate test`: runs the cases of policies and of case files, and reports their coverage.

mod annotations;
mod junit;
mod plan;
mod report;

use crate::config::policy::check_assertions;
use crate::config::settings::PolicyOrigin;
use crate::diagnostics::problem::SourceLocation;
use crate::diagnostics::problems::Problems;
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::policy::Policy;
use crate::policy::cases::{Case, CaseAssertion, Mismatch};
use crate::policy::compile;
use crate::policy::coverage::{Coverage, CoverageRatio};
use crate::policy::exact::VerdictAnswer;

use super::Exit;
use super::args::{TestArgs, TestFormat};
use super::console;
use super::inputs;
use crate::console::ConsoleColors;
use plan::{OwnCases, TestSuite};

pub(super) fn run(args: &TestArgs) -> Result<Exit, Exit> {
    let runs = plan::plan_suites(&args.paths)?
        .into_iter()
        .map(PolicyTestRun::execute)
        .collect::<Result<Vec<_>, _>>()?;
    let coverage = CoverageOptions {
        coverage: args.coverage || args.threshold.is_some(),
        threshold: args.threshold,
    };
    let passed = runs
        .iter()
        .all(|run| run.is_passed(args.strict) && !coverage.is_missed_by(run));
    let exit = if passed {
        Exit::Success
    } else {
        Exit::Negative
    };
    let text = match args.format {
        TestFormat::Text => report::render_text(&runs, coverage, ConsoleColors::for_stdout()),
        TestFormat::Json => format!("{:#}\n", report::to_json(&runs, coverage)),
        TestFormat::Junit => junit::render(&runs, coverage, args.strict),
        TestFormat::Github => annotations::render(&runs, coverage, args.strict),
    };
    Ok(console::print(&text, exit))
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct CoverageOptions {
    /// If set, the report shows the coverage.
    coverage: bool,
    /// The minimum share of covered branches in percent.
    threshold: Option<f64>,
}

impl CoverageOptions {
    fn is_missed_by(self, run: &PolicyTestRun) -> bool {
        self.threshold
            .is_some_and(|threshold| run.branch_coverage().percent() < threshold)
    }
}

/// The results of the cases of one policy.
struct PolicyTestRun {
    /// The path of the policy.
    location: String,
    policy: Policy,
    /// The locations of the rules.
    places: Vec<SourceLocation>,
    /// The cases, each with its mismatches.
    cases: Vec<(Case, Vec<Mismatch>)>,
    /// The assertions, each with its answer.
    assertions: Vec<(CaseAssertion, VerdictAnswer)>,
    coverage: Coverage,
}

impl PolicyTestRun {
    fn execute(suite: TestSuite) -> Result<Self, Exit> {
        let compiled = inputs::compile_policy(&suite.origin)?;
        let policy = compiled.policy;
        let (mut cases, mut assertions) = match suite.own_cases {
            OwnCases::Run => (compiled.cases, compiled.assertions),
            OwnCases::Skip => (Vec::new(), Vec::new()),
        };
        let mut problems = Problems::new();
        for file in suite.files {
            compile::check_cases(&policy, &file, &mut problems);
            cases.extend(file.cases);
            assertions.extend(file.assertions);
        }
        if problems.has_errors() {
            return Err(inputs::report_errors(&problems.into_vec()));
        }
        let mut coverage = Coverage::new(&policy);
        let mut results = Vec::with_capacity(cases.len());
        for case in cases {
            let evaluation = OfflineEvaluation::of_every_rule(&policy, &case.facts, case.profile);
            coverage.record(&evaluation.trail);
            let mismatches = case.mismatches(
                &policy,
                &evaluation.trail,
                &evaluation.decision,
                &evaluation.answer(),
            );
            results.push((case, mismatches));
        }
        let assertions = check_assertions(&policy, &assertions)
            .into_iter()
            .map(|(assertion, answer)| (assertion.clone(), answer))
            .collect();
        let location = match suite.origin {
            PolicyOrigin::Path(path) => path.display().to_string(),
            PolicyOrigin::BuiltIn => "the built-in policy".to_owned(),
        };
        Ok(Self {
            location,
            places: compiled.rule_places,
            cases: results,
            assertions,
            coverage,
            policy,
        })
    }

    /// The number of cases that fail, and of assertions that are refuted.
    fn failed_count(&self) -> usize {
        let cases = self.cases.iter();
        let failed = cases.filter(|(_, mismatches)| !mismatches.is_empty());
        let refuted = self.count_answers(|answer| matches!(answer, VerdictAnswer::Found(_)));
        failed.count() + refuted
    }

    fn undecided_count(&self) -> usize {
        self.count_answers(|answer| matches!(answer, VerdictAnswer::Undecided(_)))
    }

    fn passed_count(&self) -> usize {
        self.cases.len() + self.assertions.len() - self.failed_count() - self.undecided_count()
    }

    fn count_answers(&self, is_counted: fn(&VerdictAnswer) -> bool) -> usize {
        let answers = self.assertions.iter();
        answers.filter(|(_, answer)| is_counted(answer)).count()
    }

    fn is_passed(&self, strict: bool) -> bool {
        self.failed_count() == 0 && !(strict && self.undecided_count() > 0)
    }

    fn branch_coverage(&self) -> CoverageRatio {
        self.coverage.branch_ratio(&self.policy)
    }
}
