//! Every policy that the repository shows, with its cases: the shipped ones, those in which the five systems are said
//! (`tests/policies/README.md`), and the examples of the documentation.
//!
//! What a policy means is tested elsewhere; here the texts are held to what they claim.

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

/// The systems whose texts are held here.
const SYSTEMS: [&str; 5] = ["velocity", "webcopy", "exalead", "omnifind", "norconex"];

/// Compiles a policy to be studied: also what the proxy does not enforce yet is judged.
fn compiled(files: &dyn FileSystem, path: &str) -> Result<CompiledPolicy, String> {
    load(files, path).map_err(|problems| said(&problems))
}

fn compiled_file(path: &Path) -> Result<CompiledPolicy, String> {
    compiled(&PolicyFiles::for_policy(path), path.to_str().unwrap())
}

/// What is said of a policy, one problem after another.
fn said(problems: &[Problem]) -> String {
    problems
        .iter()
        .map(|problem| problem.render() + "\n")
        .collect()
}

/// In what the cases of a policy fail, one line a case.
fn failing(compiled: &CompiledPolicy) -> Vec<String> {
    let failures = compiled
        .cases
        .iter()
        .filter_map(|case| run_case(&compiled.policy, case).err());
    let line = |m: &crawlgate::policy::cases::Mismatch| {
        format!("{}: {} not {}", m.key, m.actual, m.expected)
    };
    failures
        .map(|failure| {
            let differences: Vec<String> = failure.mismatches.iter().map(line).collect();
            format!(
                "{} {}: {}",
                failure.case.place,
                failure.case.facts.url(),
                differences.join("; ")
            )
        })
        .collect()
}

/// The files of a directory that end in this, in order.
fn files(directory: &str, ending: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = paths
        .filter(|p| p.extension().is_some_and(|e| e == ending))
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

/// The worked examples, one a system.
fn worked_examples() -> Vec<PathBuf> {
    files("config/policies", "yaml")
}

/// Whether the policy is one that must be refused.
fn is_refused(path: &Path) -> bool {
    path.with_extension("expect").exists()
}

#[test]
fn every_policy_passes_its_cases() {
    let of_systems = SYSTEMS
        .iter()
        .flat_map(|system| policies_of(system))
        .filter(|path| !is_refused(path));
    let (mut policies, mut cases, mut wrong) = (0, 0, vec![]);
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
            Err(said) => wrong.push(said),
        }
    }
    println!("{policies} policies, {cases} cases");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A policy with a file `.expect` beside it is refused, and every line of that file is said.
#[test]
fn what_a_system_refuses_is_refused() {
    for path in SYSTEMS
        .iter()
        .flat_map(|system| policies_of(system))
        .filter(|path| is_refused(path))
    {
        let Err(said) = compiled_file(&path) else {
            panic!("{} is accepted", path.display())
        };
        let expected = fs::read_to_string(path.with_extension("expect")).unwrap();
        for line in expected.lines() {
            assert!(
                said.contains(line),
                "{}: not said: {line}\n{said}",
                path.display()
            );
        }
    }
}

/// What is shipped as an example is more than a text to study: the proxy runs under it, and nothing is said against it
/// but that this version leaves something of it without effect.
#[test]
fn the_shipped_policies_can_be_served() {
    for path in shipped().chain(worked_examples()) {
        let loaded = load(&PolicyFiles::for_policy(&path), path.to_str().unwrap());
        let compiled = loaded.unwrap_or_else(|problems| panic!("{}", said(&problems)));
        let doubts = compiled
            .problems
            .into_iter()
            .filter(|problem| !problem.message.contains("in this version"));
        let doubts: Vec<Problem> = doubts.collect();
        assert!(doubts.is_empty(), "{}", said(&doubts));
    }
}

/// Five folders, five worked examples, five pages: none is missing, and there is no other.
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
    let stem = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let examples: Vec<String> = worked_examples().iter().map(stem).collect();
    assert_eq!(examples, systems);
    let pages: Vec<String> = files("docs/policy", "md").iter().map(stem).collect();
    assert!(
        systems.iter().all(|system| pages.contains(system)),
        "{pages:?}"
    );
}
