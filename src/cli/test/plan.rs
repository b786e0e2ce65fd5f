//! Which policies and which cases the paths of a command line mean.
//!
//! A path is a policy, a case file, or a directory. A directory whose files make one policy is that policy; of any
//! other each policy and each case file in it counts. What is below it counts as well. Case files that name the same
//! policy are run with it.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::config::settings::PolicyOrigin;
use crate::policy::source::{CaseFile, FileKind, read_case_file};
use crate::vocab::problem::{Place, Problem};
use crate::vocab::problems::Problems;

use super::super::open;
use super::super::out::complain;
use super::Exit;

/// A policy and the cases to run under it.
pub(super) struct Suite {
    /// The policy.
    pub(super) origin: PolicyOrigin,
    /// Whether the cases in it are run.
    pub(super) own: Own,
    /// Cases beside those in it.
    pub(super) files: Vec<CaseFile>,
}

/// What becomes of the cases in a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// They are run.
    Run,
    /// Only a case file was named.
    Leave,
}

/// The suites that paths mean; without one, the policy that `run` would use.
pub(super) fn of(paths: &[PathBuf]) -> Result<Vec<Suite>, Exit> {
    if paths.is_empty() {
        let origin = open::origin(None)?;
        return Ok(vec![Suite {
            origin,
            own: Own::Run,
            files: Vec::new(),
        }]);
    }
    let mut plan = Plan::default();
    for path in paths {
        if path.is_dir() {
            plan.named_directory(path)?
        } else {
            plan.file(path)
        }
    }
    if plan.problems.has_errors() {
        return Err(open::refused(&plan.problems.into_vec()));
    }
    Ok(plan.suites)
}

#[derive(Default)]
struct Plan {
    suites: Vec<Suite>,
    problems: Problems,
}

impl Plan {
    /// What is no case file is a policy, and if it is neither, opening it will say why.
    fn file(&mut self, path: &Path) {
        match text_and_kind(path) {
            (Some(text), FileKind::Cases) => self.cases(path, &text),
            (_, _) => self.policy(path),
        }
    }

    fn named_directory(&mut self, path: &Path) -> Result<(), Exit> {
        let before = self.suites.len();
        self.directory(path);
        if self.suites.len() == before && !self.problems.has_errors() {
            return Err(complain(&format!(
                "{}: no policy and no case file is in it",
                path.display()
            )));
        }
        Ok(())
    }

    fn directory(&mut self, path: &Path) {
        let (files, directories) = entries(path);
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
            self.policy(path);
        } else {
            for (file, text, kind) in &kinds {
                match kind {
                    FileKind::Policy => self.policy(file),
                    FileKind::Cases => self.cases(file, text.as_deref().unwrap_or_default()),
                    FileKind::Part => self.problems.push(stray(file)),
                    FileKind::Other => {}
                }
            }
        }
        directories
            .iter()
            .for_each(|directory| self.directory(directory));
    }

    fn policy(&mut self, path: &Path) {
        self.suite(path).own = Own::Run;
    }

    fn cases(&mut self, path: &Path, text: &str) {
        let name: Arc<str> = path.display().to_string().into();
        let Some(file) = read_case_file(&name, text, &mut self.problems) else {
            return;
        };
        let policy = path
            .parent()
            .unwrap_or(Path::new(""))
            .join(&*file.policy.value);
        let policy = plain(&policy);
        if !policy.exists() {
            let problem = Problem::error(&file.policy.place, "there is no such policy");
            return self.problems.push(
                problem
                    .found(&*file.policy.value)
                    .help("write a path relative to this file"),
            );
        }
        self.suite(&policy).files.push(file);
    }

    /// The suite of a policy, new if there is none.
    fn suite(&mut self, path: &Path) -> &mut Suite {
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let same = |suite: &Suite| matches!(&suite.origin, PolicyOrigin::Path(known) if real(known) == real(path));
        let at = self
            .suites
            .iter()
            .position(same)
            .unwrap_or(self.suites.len());
        if at == self.suites.len() {
            let origin = PolicyOrigin::Path(path.to_owned());
            self.suites.push(Suite {
                origin,
                own: Own::Leave,
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
        .map_or(FileKind::Other, |text| FileKind::of(&name, text));
    (text, kind)
}

/// The YAML files in a directory and the directories in it, both in the order of their names.
fn entries(path: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
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

fn stray(path: &Path) -> Problem {
    let place = Place::of_file(&path.display().to_string().into());
    let message = "neither a policy (`policy: 1`) nor a case file (`policy: PATH` and `cases`)";
    Problem::error(&place, message).help("a policy of several files needs a directory of its own")
}

/// A path without `x/..`, if that leads to the same file.
fn plain(path: &Path) -> PathBuf {
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
