//! From where the policy is to the policy: reads its files, compiles it, runs its cases.

use crate::diagnostics::problem::Problem;
use crate::model::crawler::Crawler;
use crate::pipeline::crawlers::CrawlerRegistration;
use crate::pipeline::offline_evaluation::{CaseFailure, run_case};
use crate::policy::Policy;
use crate::policy::cases::{Case, Mismatch};
use crate::policy::compile::{self, CompiledPolicy};
use crate::policy::source::tree::LocatedText;

use super::policy_files::PolicyFiles;
use super::settings::PolicyOrigin;
use super::watch::{PathStamps, RecordingFiles};

/// Reads and compiles a policy.
///
/// # Errors
/// Everything that is wrong with it, warnings included.
pub fn open(origin: &PolicyOrigin) -> Result<CompiledPolicy, Vec<Problem>> {
    match origin {
        PolicyOrigin::BuiltIn => compile::load_builtin(),
        PolicyOrigin::Path(path) => {
            compile::load(&PolicyFiles::for_policy(path), &path.to_string_lossy())
        }
    }
}

/// Opens a policy to run under: its cases must pass too.
///
/// # Errors
/// As [`open`], and each failing case.
pub fn open_and_test(origin: &PolicyOrigin) -> Result<CompiledPolicy, Vec<Problem>> {
    open(origin).and_then(check_cases)
}

/// Runs the cases; a failing one refuses the policy.
fn check_cases(mut compiled: CompiledPolicy) -> Result<CompiledPolicy, Vec<Problem>> {
    let mut failures = failing_cases(&compiled.policy, &compiled.cases);
    compiled.texts.add_excerpts(&mut failures);
    if failures.is_empty() {
        return Ok(compiled);
    }
    compiled.problems.extend(failures);
    Err(compiled.problems)
}

/// As [`open_and_test`], and from where it was read: to see later whether that has changed.
pub fn open_and_test_watched(
    origin: &PolicyOrigin,
) -> (Result<CompiledPolicy, Vec<Problem>>, PathStamps) {
    match origin {
        PolicyOrigin::BuiltIn => (open_and_test(origin), PathStamps::default()),
        PolicyOrigin::Path(path) => {
            let files = RecordingFiles::new(PolicyFiles::for_policy(path));
            let compiled = compile::load(&files, &path.to_string_lossy());
            (compiled.and_then(check_cases), files.into_stamps())
        }
    }
}

/// A warning for each crawler that a policy names and the configuration does not: its rules never apply.
pub fn unknown_crawlers(named: &[LocatedText], known: &[CrawlerRegistration]) -> Vec<Problem> {
    let names = || {
        known
            .iter()
            .map(|known| known.crawler.as_str())
            .chain([Crawler::ANONYMOUS])
    };
    let unknown = named
        .iter()
        .filter(|name| !names().any(|known| *known == *name.value));
    unknown.map(|name| unknown_crawler(name, names())).collect()
}

fn unknown_crawler<'n>(name: &LocatedText, known: impl Iterator<Item = &'n str>) -> Problem {
    let problem = Problem::warning(
        &name.place,
        "the configuration knows no crawler of this name",
    );
    let problem = problem.with_found(&*name.value).with_allowed_words(known);
    // They are no closed set: the configuration may get another.
    let help = problem
        .help
        .as_ref()
        .map(|help| help.replacen("allowed: ", "known: ", 1));
    Problem { help, ..problem }
}

/// Each failing case as an error at its place.
pub fn failing_cases(policy: &Policy, cases: &[Case]) -> Vec<Problem> {
    let failures = cases.iter().filter_map(|case| run_case(policy, case).err());
    failures.map(|failure| case_problem(&failure)).collect()
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

/// `rule: expected no-cgi, found none`.
pub fn describe_mismatch(mismatch: &Mismatch) -> String {
    format!(
        "{}: expected {}, found {}",
        mismatch.key, mismatch.expected, mismatch.actual
    )
}
