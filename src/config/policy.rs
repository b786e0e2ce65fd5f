//! Opens policies: reads their files, compiles them and runs their cases.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use crate::diagnostics::problem::{Problem, Severity, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::model::crawler::Crawler;
use crate::pipeline::crawlers::CrawlerRegistration;
use crate::pipeline::offline_evaluation::{CaseFailure, run_case};
use crate::policy::Policy;
use crate::policy::cases::{CaseAssertion, Mismatch};
use crate::policy::compile::{self, CompiledPolicy};
use crate::policy::exact::{VerdictAnswer, VerdictFinder};
use crate::policy::options::OptionSetter;
use crate::policy::source::tree::LocatedText;
use crate::policy::source::{self, PolicyFileSet, PolicyFileSetError};
use crate::store::policies::kept_policy_path;

use super::captured_files::CapturingFiles;
use super::policy_files::PolicyFiles;
use super::settings::{ParentConfig, PolicyOrigin};
use super::watch::{PathStamps, RecordingFiles};

/// Returns the location of a policy as a whole.
pub fn location(origin: &PolicyOrigin) -> SourceLocation {
    let name = match origin {
        PolicyOrigin::Path(path) => path.display().to_string(),
        PolicyOrigin::BuiltIn => "the built-in policy".to_owned(),
    };
    SourceLocation::for_file(&Arc::from(name.as_str()))
}

/// Returns `true` for the directory of a policy that a proxy has kept: `policies/REVISION` under `store.path`.
pub fn is_kept(path: &Path) -> bool {
    kept_policy_path(path).is_some()
}

/// Returns the path of the files of a policy that a command names: a file, a directory of `*.yaml` files, or the directory
/// of a policy that a proxy has kept.
fn named_path(path: &Path) -> Cow<'_, Path> {
    kept_policy_path(path).map_or(Cow::Borrowed(path), Cow::Owned)
}

/// Reads and compiles a policy for a command, which may name one that a proxy has kept.
///
/// # Errors
/// Returns every problem of the policy, warnings included, if one of them is an error.
pub fn open(origin: &PolicyOrigin) -> Result<CompiledPolicy, Vec<Problem>> {
    match origin {
        PolicyOrigin::BuiltIn => compile::load_builtin(),
        PolicyOrigin::Path(path) => {
            let path = named_path(path);
            compile::load(&PolicyFiles::for_command(&path), &path.to_string_lossy())
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

/// A policy that was opened for a running proxy.
#[derive(Debug)]
pub struct WatchedPolicy {
    /// The policy, or its problems as in [`open_and_test`].
    pub result: Result<CompiledPolicy, Vec<Problem>>,
    /// The state of its files, to detect later changes.
    pub stamps: PathStamps,
    /// Its files; `None` for the built-in policy, and if they are too large to be kept.
    pub files: Option<PolicyFileSet>,
}

/// Opens a policy like [`open_and_test`], for a running proxy: only from regular files, and with a time limit. Takes
/// over what has not changed since `previous`.
pub fn open_and_test_watched(origin: &PolicyOrigin, previous: Option<&Policy>) -> WatchedPolicy {
    match origin {
        PolicyOrigin::BuiltIn => WatchedPolicy {
            result: open_and_test(origin),
            stamps: PathStamps::default(),
            files: None,
        },
        PolicyOrigin::Path(path) => {
            let files = RecordingFiles::new(PolicyFiles::for_proxy(path));
            let captured = CapturingFiles::new(&files);
            let path = path.to_string_lossy();
            let compiled = compile::load_again(&captured, &path, previous);
            WatchedPolicy {
                result: compiled.and_then(check_cases),
                files: captured.into_set(&path).ok(),
                stamps: files.into_stamps(),
            }
        }
    }
}

/// Opens a policy for a command like [`open`], and also returns its files, to send them to a proxy.
///
/// # Errors
/// Returns the problems of [`open_and_test`], or the reason why the files cannot be sent.
pub fn open_and_capture(
    path: &Path,
) -> Result<(CompiledPolicy, PolicyFileSet), OpenAndCaptureError> {
    let path = named_path(path);
    let files = PolicyFiles::for_command(&path);
    let captured = CapturingFiles::new(&files);
    let name = path.to_string_lossy();
    let compiled = compile::load(&captured, &name)
        .and_then(check_cases)
        .map_err(OpenAndCaptureError::Problems)?;
    let set = captured
        .into_set(&name)
        .map_err(OpenAndCaptureError::Files)?;
    Ok((compiled, set))
}

/// The reason why a policy or its files cannot be read.
#[derive(Debug)]
pub enum OpenAndCaptureError {
    /// The problems of the policy.
    Problems(Vec<Problem>),
    /// The reason why its files are no set.
    Files(PolicyFileSetError),
}

/// Opens a policy like [`open_and_test`], from files in memory, all of which it must use.
///
/// # Errors
/// Returns the problems of [`open_and_test`], and an error for a file that is not part of the policy.
pub fn open_set_and_test(
    files: &PolicyFileSet,
    previous: Option<&Policy>,
) -> Result<CompiledPolicy, Vec<Problem>> {
    let compiled = compile::load_again(files, files.root_path(), previous).and_then(check_cases)?;
    let read: Vec<&str> = compiled.texts.iter().map(|(name, _)| &**name).collect();
    match files.first_unread(&read) {
        Some(path) => Err(vec![Problem::error(
            &SourceLocation::for_file(&path.into()),
            "this file is not part of the policy: neither a list nor a `*.yaml` file of its directory",
        )]),
        None => Ok(compiled),
    }
}

/// Returns the present files of a policy on disk, without compiling it; `None` if they are not a policy that could be
/// kept.
pub(super) fn read_present_files(path: &Path) -> Option<PolicyFileSet> {
    let files = PolicyFiles::for_proxy(path);
    let captured = CapturingFiles::new(&files);
    let path = path.to_string_lossy();
    source::read_policy(&captured, &path, None, &mut Problems::new())?;
    captured.into_set(&path).ok()
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

/// Returns an error for each parent proxy that a policy names (option `upstream`) and the configuration does not define.
/// `location` is the policy's.
pub fn unknown_parents(
    compiled: &CompiledPolicy,
    location: &SourceLocation,
    known: &[ParentConfig],
) -> Vec<Problem> {
    let policy = &compiled.policy;
    let known = || known.iter().map(|parent| parent.name.as_str());
    policy
        .parent_proxies()
        .filter(|(_, name)| !known().any(|known| known == *name))
        .map(|(setter, name)| {
            let (place, rule) = match setter {
                OptionSetter::Rule(rule) => (
                    compiled.rule_places.get(rule.0 as usize),
                    policy.rules().get(rule.0 as usize),
                ),
                OptionSetter::BuiltIn
                | OptionSetter::Document
                | OptionSetter::Space(_)
                | OptionSetter::Host(_) => (None, None),
            };
            let message = "the configuration defines no parent proxy of this name (egress.parents)";
            Problem::error(place.unwrap_or(location), message)
                .with_found(name)
                .with_allowed_words(known())
                .with_rule(rule.map(|rule| &rule.id))
        })
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
