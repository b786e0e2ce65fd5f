//! Opens policies: reads their files, compiles them and runs their cases.

use crate::diagnostics::problem::{Problem, Severity};
use crate::model::crawler::Crawler;
use crate::pipeline::crawlers::CrawlerRegistration;
use crate::pipeline::offline_evaluation::{CaseFailure, run_case};
use crate::policy::Policy;
use crate::policy::cases::{CaseAssertion, Mismatch};
use crate::policy::compile::{self, CompiledPolicy};
use crate::policy::exact::{VerdictAnswer, VerdictFinder};
use crate::policy::source::tree::LocatedText;

use super::policy_files::PolicyFiles;
use super::settings::PolicyOrigin;
use super::watch::{PathStamps, RecordingFiles};

/// Reads and compiles a policy.
///
/// # Errors
/// Returns every problem of the policy, warnings included, if one of them is an error.
pub fn open(origin: &PolicyOrigin) -> Result<CompiledPolicy, Vec<Problem>> {
    match origin {
        PolicyOrigin::BuiltIn => compile::load_builtin(),
        PolicyOrigin::Path(path) => {
            compile::load(&PolicyFiles::for_command(path), &path.to_string_lossy())
        }
    }
}

/// Opens a policy for use by a proxy: its cases must pass too.
///
/// # Errors
/// Returns the problems of [`open`], and an error for each failing case.
pub fn open_and_test(origin: &PolicyOrigin) -> Result<CompiledPolicy, Vec<Problem>> {
    open(origin).and_then(check_cases)
}

/// Runs the cases. A policy with a failing case is refused.
fn check_cases(mut compiled: CompiledPolicy) -> Result<CompiledPolicy, Vec<Problem>> {
    let mut cases = CaseProblems::new(&compiled);
    if !cases.failures.is_empty() {
        compiled.problems.append(&mut cases.failures);
        return Err(compiled.problems);
    }
    compiled.problems.append(&mut cases.undecided);
    Ok(compiled)
}

/// Opens a policy like [`open_and_test`], for a running proxy: only from regular files, and with a time limit. Takes
/// over what has not changed since `previous`. Also returns the state of its files, to detect later changes.
pub fn open_and_test_watched(
    origin: &PolicyOrigin,
    previous: Option<&Policy>,
) -> (Result<CompiledPolicy, Vec<Problem>>, PathStamps) {
    match origin {
        PolicyOrigin::BuiltIn => (open_and_test(origin), PathStamps::default()),
        PolicyOrigin::Path(path) => {
            let files = RecordingFiles::new(PolicyFiles::for_proxy(path));
            let compiled = compile::load_again(&files, &path.to_string_lossy(), previous);
            (compiled.and_then(check_cases), files.into_stamps())
        }
    }
}

/// Returns a warning for each rule that can never act. They are errors of `check` and of a reload, but an upgrade of
/// the proxy must not prevent its start.
pub fn inert_rule_warnings(compiled: &CompiledPolicy) -> Vec<Problem> {
    let warning = |problem: &Problem| Problem {
        severity: Severity::Warning,
        ..problem.clone()
    };
    compiled.inert_rules.iter().map(warning).collect()
}

/// Returns a warning for each crawler that a policy names and the configuration does not define: its rules never apply.
pub fn unknown_crawlers(named: &[LocatedText], known: &[CrawlerRegistration]) -> Vec<Problem> {
    let known: Vec<&str> = known
        .iter()
        .map(|known| known.crawler.as_str())
        .chain([Crawler::ANONYMOUS])
        .collect();
    named
        .iter()
        .filter(|name| !known.contains(&&*name.value))
        .map(|name| unknown_crawler(name, &known))
        .collect()
}

fn unknown_crawler(name: &LocatedText, known: &[&str]) -> Problem {
    let problem = Problem::warning(
        &name.place,
        "the configuration defines no crawler of this name",
    )
    .with_found(&*name.value)
    .with_allowed_words(known.iter().copied());
    // The names are not a closed set: the configuration can define others.
    let help = problem
        .help
        .as_ref()
        .map(|help| help.replacen("allowed: ", "known: ", 1));
    Problem { help, ..problem }
}

/// The problems of the cases of a policy.
pub struct CaseProblems {
    /// An error for each case that fails, and for each assertion that is refuted.
    pub failures: Vec<Problem>,
    /// A warning for each assertion that is not decided: the limits of the analysis must not prevent an urgent change.
    pub undecided: Vec<Problem>,
    /// The number of assertions that are proved.
    pub proved: usize,
    /// The number of assertions that are refuted.
    pub refuted: usize,
}

impl CaseProblems {
    /// Runs the cases and checks the assertions of a policy.
    pub fn new(compiled: &CompiledPolicy) -> Self {
        let policy = &compiled.policy;
        let failures = compiled.cases.iter();
        let failures = failures.filter_map(|case| run_case(policy, case).err());
        let mut problems = Self {
            failures: failures.map(|failure| case_problem(&failure)).collect(),
            undecided: Vec::new(),
            proved: 0,
            refuted: 0,
        };
        for (assertion, answer) in check_assertions(policy, &compiled.assertions) {
            match &answer {
                VerdictAnswer::Never => problems.proved += 1,
                VerdictAnswer::Found(_) => {
                    problems.refuted += 1;
                    let problem = assertion_problem(assertion, &answer);
                    problems.failures.push(problem);
                }
                VerdictAnswer::Undecided(_) => {
                    problems.undecided.push(Problem {
                        severity: Severity::Warning,
                        ..assertion_problem(assertion, &answer).with_help(UNDECIDED_HELP)
                    });
                }
            }
        }
        compiled.texts.add_excerpts(&mut problems.failures);
        compiled.texts.add_excerpts(&mut problems.undecided);
        problems
    }
}

const UNDECIDED_HELP: &str = "assert less, or test single URLs; --strict makes this an error";

/// Checks assertions. [`VerdictAnswer::Never`] proves one, [`VerdictAnswer::Found`] refutes it.
pub fn check_assertions<'a>(
    policy: &Policy,
    assertions: &'a [CaseAssertion],
) -> Vec<(&'a CaseAssertion, VerdictAnswer)> {
    if assertions.is_empty() {
        return Vec::new();
    }
    let mut finder = VerdictFinder::new(policy);
    let answers = assertions
        .iter()
        .map(|assertion| (assertion, finder.find(&assertion.query(policy))));
    answers.collect()
}

fn assertion_problem(assertion: &CaseAssertion, answer: &VerdictAnswer) -> Problem {
    let message = format!(
        "the assertion \"{assertion}\" is {}",
        describe_answer(answer)
    );
    Problem::error(&assertion.place, message)
}

/// Formats the answer to an assertion: `refuted by http://intra.example/a`.
pub fn describe_answer(answer: &VerdictAnswer) -> String {
    match answer {
        VerdictAnswer::Never => "proved".to_owned(),
        VerdictAnswer::Found(example) => {
            format!("refuted by {}{}", example.url, example.describe_details())
        }
        VerdictAnswer::Undecided(reason) => format!("not decided: {reason}"),
    }
}

fn case_problem(failure: &CaseFailure<'_>) -> Problem {
    let differences: Vec<String> = failure.mismatches.iter().map(describe_mismatch).collect();
    let message = format!(
        "the case of {} fails: {}",
        failure.case.facts.url(),
        differences.join(", ")
    );
    Problem::error(&failure.case.place, message)
}

/// Formats a mismatch: `rule: expected no-cgi, found none`.
pub fn describe_mismatch(mismatch: &Mismatch) -> String {
    format!(
        "{}: expected {}, found {}",
        mismatch.key, mismatch.expected, mismatch.actual
    )
}
