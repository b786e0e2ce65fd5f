//! From where the policy is to the policy: reads its files, compiles it, runs its cases.

use crate::gate::crawlers::Registration;
use crate::gate::trial::{Failure, run_case};
use crate::policy::Policy;
use crate::policy::cases::{Case, Mismatch};
use crate::policy::compile::{self, Compiled};
use crate::policy::source::tree::Text;
use crate::vocab::crawler::Crawler;
use crate::vocab::problem::Problem;

use super::disk::PolicyFiles;
use super::settings::PolicyOrigin;
use super::watch::{Footprint, WatchedFiles};

/// Reads and compiles a policy.
///
/// # Errors
/// Everything that is wrong with it, warnings included.
pub fn open(origin: &PolicyOrigin) -> Result<Compiled, Vec<Problem>> {
    match origin {
        PolicyOrigin::BuiltIn => compile::builtin(),
        PolicyOrigin::Path(path) => compile::load(&PolicyFiles::of(path), &path.to_string_lossy()),
    }
}

/// Opens a policy to run under: its cases must pass too.
///
/// # Errors
/// As [`open`], and each failing case.
pub fn accept(origin: &PolicyOrigin) -> Result<Compiled, Vec<Problem>> {
    open(origin).and_then(with_cases)
}

/// Runs the cases; a failing one refuses the policy.
fn with_cases(mut compiled: Compiled) -> Result<Compiled, Vec<Problem>> {
    let mut failures = failing_cases(&compiled.policy, &compiled.cases);
    compiled.texts.show(&mut failures);
    if failures.is_empty() {
        return Ok(compiled);
    }
    compiled.problems.extend(failures);
    Err(compiled.problems)
}

/// As [`accept`], and from where it was read: to see later whether that has changed.
pub fn accept_noting(origin: &PolicyOrigin) -> (Result<Compiled, Vec<Problem>>, Footprint) {
    match origin {
        PolicyOrigin::BuiltIn => (accept(origin), Footprint::default()),
        PolicyOrigin::Path(path) => {
            let files = WatchedFiles::new(PolicyFiles::of(path));
            let compiled = compile::load(&files, &path.to_string_lossy());
            (compiled.and_then(with_cases), files.into_footprint())
        }
    }
}

/// A warning for each crawler that a policy names and the configuration does not: its rules never apply.
pub fn unknown_crawlers(named: &[Text], known: &[Registration]) -> Vec<Problem> {
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

fn unknown_crawler<'n>(name: &Text, known: impl Iterator<Item = &'n str>) -> Problem {
    let problem = Problem::warning(
        &name.place,
        "the configuration knows no crawler of this name",
    );
    let problem = problem.found(&*name.value).allowed(known);
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
    failures.map(|failure| problem(&failure)).collect()
}

fn problem(failure: &Failure<'_>) -> Problem {
    let differences: Vec<String> = failure.mismatches.iter().map(difference).collect();
    let message = format!(
        "the case of {} fails: {}",
        failure.case.facts.url(),
        differences.join(", ")
    );
    Problem::error(&failure.case.place, message)
}

/// `rule: expected no-cgi, found none`.
pub fn difference(mismatch: &Mismatch) -> String {
    format!(
        "{}: expected {}, found {}",
        mismatch.key, mismatch.expected, mismatch.found
    )
}
