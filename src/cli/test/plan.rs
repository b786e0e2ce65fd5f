//! Which policies and which cases the paths of a command line mean.
//!
//! A path is a policy, a case file, or a directory. A directory whose files make one policy is that policy; of any
//! other each policy and each case file in it counts. What is below it counts as well. Case files that name the same
//! policy are run with it.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::config::settings::PolicyOrigin;
use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::policy::source::{CaseFile, FileKind, read_case_file};

use super::super::console::report_invalid;
use super::super::inputs;
use super::Exit;

/// A policy and the cases to run under it.
pub(super) struct TestSuite {
    /// The policy.
    pub(super) origin: PolicyOrigin,
    /// Whether the cases in it are run.
    pub(super) own_cases: OwnCases,
    /// Cases beside those in it.
    pub(super) files: Vec<CaseFile>,
}

/// What becomes of the cases in a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnCases {
    /// They are run.
    Run,
    /// Only a case file was named.
    Skip,
}

/// The suites that paths mean; without one, the policy that `run` would use.
pub(super) fn plan_suites(paths: &[PathBuf]) -> Result<Vec<TestSuite>, Exit> {
    if paths.is_empty() {
        let origin = inputs::policy_origin(None)?;
        return Ok(vec![TestSuite {
            origin,
            own_cases: OwnCases::Run,
            files: Vec::new(),
        }]);
    }
    let mut plan = TestPlanBuilder::default();
    for path in paths {
        if path.is_dir() {
            plan.add_named_directory(path)?
        } else {
            plan.add_file(path)
        }
    }
    if plan.problems.has_errors() {
        return Err(inputs::report_errors(&plan.problems.into_vec()));
    }
    Ok(plan.suites)
}

#[derive(Default)]
struct TestPlanBuilder {
    suites: Vec<TestSuite>,
    problems: Problems,
}

impl TestPlanBuilder {
    /// What is no case file is a policy, and if it is neither, opening it will say why.
    fn add_file(&mut self, path: &Path) {
        match text_and_kind(path) {
            (Some(text), FileKind::Cases) => self.add_cases(path, &text),
            (_, _) => self.add_policy(path),
        }
    }

    fn add_named_directory(&mut self, path: &Path) -> Result<(), Exit> {
        let before = self.suites.len();
        self.add_directory(path);
        if self.suites.len() == before && !self.problems.has_errors() {
            return Err(report_invalid(&format!(
                "{}: no policy and no case file is in it",
                path.display()
            )));
        }
        Ok(())
    }

    fn add_directory(&mut self, path: &Path) {
        let (files, directories) = list_directory(path);
        let kinds: Vec<(PathBuf, Option<String>, FileKind)> = files
            .into_iter()
            .map(|file| {
                let (text, kind) = text_and_kind(&file);
                (file, text, kind)
            })
            .collect();
        let count = |kind| kinds.iter().filter(|(.., k)| *k == kind).count();
        let whole = count(FileKind::Policy) == 1 && count(FileKind::Cases) == 0;
        if whole && count(FileKind::Part) > 0 {
            self.add_policy(path);
        } else {
            for (file, text, kind) in &kinds {
                match kind {
                    FileKind::Policy => self.add_policy(file),
                    FileKind::Cases => self.add_cases(file, text.as_deref().unwrap_or_default()),
                    FileKind::Part => self.problems.push(stray_file_problem(file)),
                    FileKind::Other => {}
                }
            }
        }
        directories
            .iter()
            .for_each(|directory| self.add_directory(directory));
    }

    fn add_policy(&mut self, path: &Path) {
        self.suite_for(path).own_cases = OwnCases::Run;
    }

    fn add_cases(&mut self, path: &Path, text: &str) {
        let name: Arc<str> = path.display().to_string().into();
        let Some(file) = read_case_file(&name, text, &mut self.problems) else {
            return;
        };
        let policy = path
            .parent()
            .unwrap_or(Path::new(""))
            .join(&*file.policy.value);
        let policy = simplify_path(&policy);
        if !policy.exists() {
            let problem = Problem::error(&file.policy.place, "there is no such policy");
            return self.problems.push(
                problem
                    .with_found(&*file.policy.value)
                    .with_help("write a path relative to this file"),
            );
        }
        self.suite_for(&policy).files.push(file);
    }

    /// The suite of a policy, new if there is none.
    fn suite_for(&mut self, path: &Path) -> &mut TestSuite {
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let same = |suite: &TestSuite| matches!(&suite.origin, PolicyOrigin::Path(known) if real(known) == real(path));
        let at = self
            .suites
            .iter()
            .position(same)
            .unwrap_or(self.suites.len());
        if at == self.suites.len() {
            let origin = PolicyOrigin::Path(path.to_owned());
            self.suites.push(TestSuite {
                origin,
                own_cases: OwnCases::Skip,
                files: Vec::new(),
            });
        }
        #[allow(
            clippy::indexing_slicing,
            reason = "it was found there, or has just been put there"
        )]
        &mut self.suites[at]
    }
}

fn text_and_kind(path: &Path) -> (Option<String>, FileKind) {
    let text = fs::read_to_string(path).ok();
    let name: Arc<str> = path.display().to_string().into();
    let kind = text
        .as_deref()
        .map_or(FileKind::Other, |text| FileKind::from_text(&name, text));
    (text, kind)
}

/// The YAML files in a directory and the directories in it, both in the order of their names.
fn list_directory(path: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let entries = fs::read_dir(path)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let shown = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    let mut all: Vec<PathBuf> = shown.map(|entry| entry.path()).collect();
    all.sort();
    let (directories, files): (Vec<PathBuf>, Vec<PathBuf>) =
        all.into_iter().partition(|path| path.is_dir());
    (
        files
            .into_iter()
            .filter(|file| file.extension().is_some_and(|e| e == "yaml"))
            .collect(),
        directories,
    )
}

fn stray_file_problem(path: &Path) -> Problem {
    let place = SourceLocation::for_file(&path.display().to_string().into());
    let message = "neither a policy (`policy: 1`) nor a case file (`policy: PATH` and `cases`)";
    Problem::error(&place, message)
        .with_help("a policy of several files needs a directory of its own")
}

/// A path without `x/..`, if that leads to the same file.
fn simplify_path(path: &Path) -> PathBuf {
    let mut short = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir
                if matches!(short.components().next_back(), Some(Component::Normal(_))) =>
            {
                short.pop();
            }
            Component::CurDir => {}
            Component::ParentDir
            | Component::Normal(_)
            | Component::RootDir
            | Component::Prefix(_) => {
                short.push(part);
            }
        }
    }
    if short.as_os_str().is_empty() {
        short.push(".");
    }
    let same = fs::canonicalize(&short)
        .ok()
        .zip(fs::canonicalize(path).ok())
        .is_some_and(|(a, b)| a == b);
    if same { short } else { path.to_owned() }
}
