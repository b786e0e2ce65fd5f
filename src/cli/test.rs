//! `crawlgate test`: runs the cases of policies, those in them and those in files of their own, and says what they
//! reach.

mod junit;
mod plan;
mod report;

use crate::config::settings::PolicyOrigin;
use crate::gate::trial::Trial;
use crate::policy::Policy;
use crate::policy::cases::{Case, Mismatch};
use crate::policy::compile;
use crate::policy::coverage::{Coverage, Share};
use crate::vocab::problem::Place;
use crate::vocab::problems::Problems;

use super::Exit;
use super::args::{TestArgs, TestFormat};
use super::open;
use super::out;
use super::paint::Paint;
use plan::{Own, Suite};

/// Runs the command.
pub(super) fn run(args: &TestArgs) -> Exit {
    let suites = match plan::of(&args.paths) {
        Ok(suites) => suites,
        Err(exit) => return exit,
    };
    let mut runs = Vec::with_capacity(suites.len());
    for suite in suites {
        match Run::of(suite) {
            Ok(run) => runs.push(run),
            Err(exit) => return exit,
        }
    }
    let asked = Asked {
        coverage: args.coverage || args.threshold.is_some(),
        threshold: args.threshold,
    };
    let passed = runs
        .iter()
        .all(|run| run.failed() == 0 && !asked.is_missed_by(run));
    let exit = if passed {
        Exit::Success
    } else {
        Exit::Negative
    };
    let text = match args.format {
        TestFormat::Text => report::in_text(&runs, asked, Paint::for_stdout()),
        TestFormat::Json => format!("{:#}\n", report::in_json(&runs, asked)),
        TestFormat::Junit => junit::of(&runs, asked),
    };
    out::write(&text, exit)
}

/// What is asked beside whether the cases pass.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Asked {
    /// Whether coverage is shown.
    coverage: bool,
    /// The least share of branches that must be reached, in hundredths.
    threshold: Option<f64>,
}

impl Asked {
    fn is_missed_by(self, run: &Run) -> bool {
        self.threshold
            .is_some_and(|least| run.branches().percent() < least)
    }
}

/// The cases of one policy, each with what is wrong with it.
struct Run {
    /// Where the policy is.
    shown: String,
    policy: Policy,
    places: Vec<Place>,
    cases: Vec<(Case, Vec<Mismatch>)>,
    coverage: Coverage,
}

impl Run {
    fn of(suite: Suite) -> Result<Self, Exit> {
        let compiled = open::compiled(&suite.origin)?;
        let policy = compiled.policy;
        let mut cases = match suite.own {
            Own::Run => compiled.cases,
            Own::Leave => Vec::new(),
        };
        let mut problems = Problems::new();
        for file in suite.files {
            compile::check_cases(&policy, &file.cases, &mut problems);
            cases.extend(file.cases);
        }
        if problems.has_errors() {
            return Err(open::refused(&problems.into_vec()));
        }
        let mut coverage = Coverage::new(&policy);
        let cases = cases.into_iter().map(|case| {
            let trial = Trial::new(&policy, &case.facts, case.profile);
            coverage.add(&trial.trail);
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
            shown,
            places: compiled.places,
            cases,
            coverage,
            policy,
        })
    }

    fn failed(&self) -> usize {
        self.cases
            .iter()
            .filter(|(_, mismatches)| !mismatches.is_empty())
            .count()
    }

    fn name(&self) -> String {
        format!("{}@{}", self.policy.name(), self.policy.revision())
    }

    fn branches(&self) -> Share {
        self.coverage.by_branch(&self.policy)
    }
}
