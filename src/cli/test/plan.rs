//! The plan of a test run: the policies and cases that the paths of the command line name.
//!
//! A path is a policy, a case file, or a directory. A directory whose files form one policy is that policy; any other
//! directory means each policy and each case file in it. Subdirectories are included. Case files that name the same
//! policy are run with it.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::config::policy;
use crate::config::settings::PolicyOrigin;
use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::policy::source::{CaseFile, FileKind, read_case_file};

use super::super::console::report_invalid;
use super::super::inputs;
use super::Exit;

/// A policy and the cases to run under it.
pub(super) struct TestSuite {
    pub(super) origin: PolicyOrigin,
    pub(super) own_cases: OwnCases,
    /// Case files for the policy.
    pub(super) files: Vec<CaseFile>,
}

/// The handling of the cases in the policy itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnCases {
    /// Run them.
    Run,
    /// Skip them, since only a case file was named.
    Skip,
}

/// Plans the suites for the paths, or for the policy that `run` would use if there are none. The built-in policy has
/// no cases: a run of them would pass in any wrong directory.
pub(super) fn plan_suites(paths: &[PathBuf]) -> Result<Vec<TestSuite>, Exit> {
    if paths.is_empty() {
        let origin = inputs::policy_origin(None)?;
        if origin == PolicyOrigin::BuiltIn {
            return Err(report_invalid(
                &"there is no policy to test: name one, or run the command where config/crawlgate.yaml or \
                 config/policy.yaml is, or set $CRAWLGATE_CONFIG",
            ));
        }
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
    /// Adds a file. A file that is not a case file is added as a policy; if it is neither, compiling it reports why.
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
                "{}: the directory contains no policy and no case file",
                path.display()
            )));
        }
        Ok(())
    }

    fn add_directory(&mut self, path: &Path) {
        if policy::is_kept(path) {
            return self.add_policy(path);
        }
        let (files, directories) = list_directory(path);
        let files: Vec<(PathBuf, Option<String>, FileKind)> = files
            .into_iter()
            .map(|file| {
                let (text, kind) = text_and_kind(&file);
                (file, text, kind)
            })
            .collect();
        if is_one_policy(files.iter().map(|(.., kind)| *kind)) {
            self.add_policy(path);
        } else {
            for (file, text, kind) in &files {
                match kind {
                    FileKind::Policy => self.add_policy(file),
                    FileKind::Cases => self.add_cases(file, text.as_deref().unwrap_or_default()),
                    FileKind::Part => self.problems.push(stray_file_problem(file)),
                    FileKind::Other => {}
                }
            }
        }
        for directory in &directories {
            self.add_directory(directory);
        }
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

    /// Returns the suite of a policy, and creates it if it does not exist.
    fn suite_for(&mut self, path: &Path) -> &mut TestSuite {
        let real = real_path(path);
        let index = self
            .suites
            .iter()
            .position(|suite| match &suite.origin {
                PolicyOrigin::Path(path) => real_path(path) == real,
                PolicyOrigin::BuiltIn => false,
            })
            .unwrap_or(self.suites.len());
        if index == self.suites.len() {
            self.suites.push(TestSuite {
                origin: PolicyOrigin::Path(path.to_owned()),
                own_cases: OwnCases::Skip,
                files: Vec::new(),
            });
        }
        #[allow(
            clippy::indexing_slicing,
            reason = "the suite was found at this index, or has just been added there"
        )]
        &mut self.suites[index]
    }
}

fn real_path(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns `true` if the files of a directory form one policy: a policy, at least one part of it, and no case files.
fn is_one_policy(kinds: impl Iterator<Item = FileKind>) -> bool {
    let mut policies = 0;
    let mut parts = 0;
    for kind in kinds {
        match kind {
            FileKind::Policy => policies += 1,
            FileKind::Part => parts += 1,
            FileKind::Cases => return false,
            FileKind::Other => {}
        }
    }
    policies == 1 && parts > 0
}

fn text_and_kind(path: &Path) -> (Option<String>, FileKind) {
    let text = fs::read_to_string(path).ok();
    let name: Arc<str> = path.display().to_string().into();
    let kind = text
        .as_deref()
        .map_or(FileKind::Other, |text| FileKind::from_text(&name, text));
    (text, kind)
}

/// Returns the YAML files and the subdirectories of a directory, both sorted by name.
fn list_directory(path: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(path)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    let (directories, mut files): (Vec<PathBuf>, Vec<PathBuf>) =
        entries.into_iter().partition(|path| path.is_dir());
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "yaml")
    });
    (files, directories)
}

fn stray_file_problem(path: &Path) -> Problem {
    let location = SourceLocation::for_file(&path.display().to_string().into());
    let message = "neither a policy (`policy: 1`) nor a case file (`policy: PATH` and `cases`)";
    Problem::error(&location, message).with_help(
        "put the files of one policy into a directory without other policies or case files",
    )
}

/// Returns a path without `x/..`, if that is the same file.
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
