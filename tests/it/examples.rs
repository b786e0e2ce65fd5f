//! The policies of the repository with their cases: the shipped policies, the translations of the five systems
//! (`tests/policies/README.md`), and the examples of the documentation.
//!
//! The meaning of the language is tested elsewhere; these tests check that the policies do what their texts claim.

mod coverage;
mod fences;
mod flips;
mod reference;
mod sentences;
mod sources;
mod status_words;

use std::fs;
use std::path::{Path, PathBuf};

use crawlgate::config::policy_files::PolicyFiles;
use crawlgate::diagnostics::problem::Problem;
use crawlgate::pipeline::offline_evaluation::run_case;
use crawlgate::policy::compile::{CompiledPolicy, load};
use crawlgate::policy::source::FileSystem;

/// The systems whose rules are translated into policies.
const SYSTEMS: [&str; 5] = ["velocity", "webcopy", "exalead", "omnifind", "norconex"];

/// Compiles a policy, including options that the proxy does not enforce.
fn compiled(files: &dyn FileSystem, path: &str) -> Result<CompiledPolicy, String> {
    load(files, path).map_err(|problems| render(&problems))
}

fn compiled_file(path: &Path) -> Result<CompiledPolicy, String> {
    compiled(&PolicyFiles::for_command(path), path.to_str().unwrap())
}

/// Renders the problems of a policy.
fn render(problems: &[Problem]) -> String {
    problems
        .iter()
        .map(|problem| problem.render() + "\n")
        .collect()
}

/// Returns a line for each failing case of a policy.
fn failing(compiled: &CompiledPolicy) -> Vec<String> {
    let failures = compiled
        .cases
        .iter()
        .filter_map(|case| run_case(&compiled.policy, case).err());
    failures
        .map(|failure| {
            let differences: Vec<String> = failure
                .mismatches
                .iter()
                .map(|m| format!("{}: {} not {}", m.key, m.actual, m.expected))
                .collect();
            format!(
                "{} {}: {}",
                failure.case.place,
                failure.case.facts.url(),
                differences.join("; ")
            )
        })
        .collect()
}

/// Returns the files of a directory with this extension, sorted.
fn files(directory: &str, extension: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    files.sort();
    files
}

/// The policies of a system.
fn policies_of(system: &str) -> Vec<PathBuf> {
    files(&format!("tests/policies/{system}"), "yaml")
}

/// The policies in `config` itself.
fn shipped() -> impl Iterator<Item = PathBuf> {
    files("config", "yaml")
        .into_iter()
        .filter(|path| !path.ends_with("crawlgate.yaml"))
}

/// The worked examples, one for each system.
fn worked_examples() -> Vec<PathBuf> {
    files("config/policies", "yaml")
}

/// Returns `true` if the policy must be refused.
fn is_refused(path: &Path) -> bool {
    path.with_extension("expect").exists()
}

#[test]
fn every_policy_passes_its_cases() {
    let of_systems = SYSTEMS
        .iter()
        .flat_map(|system| policies_of(system))
        .filter(|path| !is_refused(path));
    let mut policies = 0;
    let mut cases = 0;
    let mut wrong = vec![];
    for path in shipped().chain(worked_examples()).chain(of_systems) {
        policies += 1;
        match compiled_file(&path) {
            Ok(compiled) if compiled.cases.is_empty() => {
                wrong.push(format!("{}: no cases", path.display()))
            }
            Ok(compiled) => {
                cases += compiled.cases.len();
                wrong.extend(failing(&compiled));
            }
            Err(errors) => wrong.push(errors),
        }
    }
    println!("{policies} policies, {cases} cases");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A policy with a file `.expect` next to it is refused, and each line of that file is part of the errors.
#[test]
fn policies_that_a_system_refuses_are_refused() {
    for path in SYSTEMS
        .iter()
        .flat_map(|system| policies_of(system))
        .filter(|path| is_refused(path))
    {
        let Err(errors) = compiled_file(&path) else {
            panic!("{} is accepted", path.display())
        };
        let expected = fs::read_to_string(path.with_extension("expect")).unwrap();
        for line in expected.lines() {
            assert!(
                errors.contains(line),
                "{}: missing: {line}\n{errors}",
                path.display()
            );
        }
    }
}

/// The proxy can run with each shipped policy, without problems other than options that this version does not apply.
#[test]
fn the_shipped_policies_can_be_served() {
    for path in shipped().chain(worked_examples()) {
        let loaded = load(&PolicyFiles::for_command(&path), path.to_str().unwrap());
        let compiled = loaded.unwrap_or_else(|problems| panic!("{}", render(&problems)));
        let problems: Vec<Problem> = compiled
            .problems
            .into_iter()
            .filter(|problem| !problem.message.contains("in this version"))
            .collect();
        assert!(problems.is_empty(), "{}", render(&problems));
    }
}

/// Each of the five systems has a folder of policies, a worked example and a page.
#[test]
fn each_system_has_its_policies_its_example_and_its_page() {
    let mut systems = SYSTEMS.map(String::from);
    systems.sort();
    let folders = fs::read_dir("tests/policies")
        .unwrap()
        .map(Result::unwrap)
        .filter(|e| e.path().is_dir());
    let mut folders: Vec<String> = folders
        .map(|e| e.file_name().into_string().unwrap())
        .collect();
    folders.sort();
    assert_eq!(folders, systems);
    fn stem(path: &Path) -> String {
        path.file_stem().unwrap().to_str().unwrap().to_owned()
    }
    let examples: Vec<String> = worked_examples().iter().map(|path| stem(path)).collect();
    assert_eq!(examples, systems);
    let pages: Vec<String> = files("docs/policy", "md")
        .iter()
        .map(|path| stem(path))
        .collect();
    assert!(
        systems.iter().all(|system| pages.contains(system)),
        "{pages:?}"
    );
}
