//! Broken policies: each file in `tests/broken` has one mistake, and the `.expect` file next to it has
//! the messages that `check` must print.
//!
//! `UPDATE_EXPECT=1 cargo test --test it broken` updates the messages; read every changed line before
//! you commit.

use std::fs;
use std::path::{Path, PathBuf};

use crawlgate::config::policy::CaseProblems;
use crawlgate::diagnostics::problem::Problem;
use crawlgate::policy::compile::load;
use crawlgate::policy::source::MemoryFileSystem;

/// Returns all messages about a policy, errors and warnings.
fn messages(path: &Path) -> String {
    let name = path.file_name().unwrap().to_str().unwrap();
    let files = MemoryFileSystem::new().with_file(name, fs::read(path).unwrap());
    let problems = match load(&files, name) {
        Ok(compiled) => compiled.problems,
        Err(problems) => {
            assert!(
                problems.iter().any(|p| p.is_error()),
                "{name} is refused without an error"
            );
            problems
        }
    };
    problems.iter().map(|p| p.render() + "\n").collect()
}

fn policies() -> Vec<PathBuf> {
    let files = fs::read_dir("tests/broken")
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut policies: Vec<PathBuf> = files
        .filter(|p| p.extension().is_some_and(|e| e == "yaml"))
        .collect();
    policies.sort();
    policies
}

#[test]
fn every_mistake_has_the_expected_message() {
    let policies = policies();
    assert!(policies.len() >= 45, "{} broken policies", policies.len());
    let mut wrong = vec![];
    for policy in &policies {
        let expect = policy.with_extension("expect");
        let found = messages(policy);
        assert!(!found.is_empty(), "no messages about {}", policy.display());
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&expect, &found).unwrap();
        }
        let expected = fs::read_to_string(&expect).unwrap_or_default();
        if found != expected {
            wrong.push(format!(
                "{}\n{found}--- expected\n{expected}",
                policy.display()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every message names a location, and most of them suggest a fix.
#[test]
fn messages_have_locations_and_mostly_help() {
    let mut all = 0;
    let mut placed = 0;
    let mut helpful = 0;
    for policy in policies() {
        let found = messages(&policy);
        let first = found.lines().next().unwrap();
        all += 1;
        placed += usize::from(
            first
                .split(':')
                .nth(2)
                .is_some_and(|column| column.parse::<u32>().is_ok()),
        );
        helpful += usize::from(
            ["= help: ", "did you mean", "; allowed: ", "; write "]
                .iter()
                .any(|h| found.contains(h)),
        );
    }
    println!("{all} broken policies: {placed} with line and column, {helpful} with help");
    assert!(placed * 10 >= all * 9, "{placed} of {all}");
    assert!(helpful * 2 >= all, "{helpful} of {all}");
}

/// A mutated policy is accepted or rejected, with locations that exist, and nothing panics.
#[test]
fn mutated_policies_never_panic() {
    let sources: Vec<String> = [PathBuf::from("config/policy.yaml")]
        .into_iter()
        .chain(policies())
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let list = fs::read_to_string("config/lists/browser-noise.txt").unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let mut accepted = 0;
    let mut refused = 0;
    for _ in 0..4_000 {
        // Half of them start from a policy that is right, since most of what is done to a broken one shows nothing.
        let source = if random.bool() {
            &sources[0]
        } else {
            random.choice(&sources).unwrap()
        };
        let text = mutated(source, &mut random);
        let files = MemoryFileSystem::new()
            .with_file("p.yaml", text.as_bytes())
            .with_file("lists/browser-noise.txt", list.as_bytes());
        let problems = match load(&files, "p.yaml") {
            Ok(compiled) => {
                accepted += 1;
                compiled.problems
            }
            Err(problems) => {
                refused += 1;
                assert!(problems.iter().any(|p| p.is_error()), "{text}");
                problems
            }
        };
        for problem in problems {
            let line = problem.location.line as usize;
            assert!(line <= text.split('\n').count(), "{problem} in\n{text}");
            assert!(!problem.render().is_empty());
        }
    }
    println!("{accepted} accepted, {refused} refused");
    assert!(accepted > 100, "{accepted} accepted, {refused} refused");
    assert!(refused > 1_000, "{accepted} accepted, {refused} refused");
}

/// Returns the text after one to four small changes.
fn mutated(source: &str, random: &mut fastrand::Rng) -> String {
    const BITS: [&str; 16] = [
        "{", "}", "[", "]", ":", "\"", "'", "\n", "  ", "é", "(", "\\", "*", "&a ", "null", "- ",
    ];
    let mut text: Vec<char> = source.chars().collect();
    for _ in 0..random.usize(1..5) {
        let at = random.usize(0..text.len().max(1));
        let end = (at + random.usize(0..6)).min(text.len());
        match random.u8(0..4) {
            0 => drop(text.drain(at.min(end)..end)),
            1 => drop(text.splice(at..at, random.choice(BITS).unwrap().chars())),
            2 => drop(text.splice(at..end, random.choice(BITS).unwrap().chars())),
            _ => {
                let copied: Vec<char> = text[at.min(end)..end].to_vec();
                let to = random.usize(0..text.len().max(1));
                text.splice(to..to, copied);
            }
        }
    }
    text.into_iter().collect()
}

/// A policy of 200 lines with a different mistake on each line marked `# FAULT: MESSAGE`, with `|`
/// between parts of the message.
#[test]
fn one_run_finds_every_kind_of_mistake() {
    let text = fs::read_to_string("tests/check/faults.yaml").unwrap();
    let faults: Vec<(u32, &str)> = text
        .lines()
        .zip(1..)
        .filter_map(|(line, number)| Some((number, line.split_once("# FAULT: ")?.1)))
        .collect();
    assert!(faults.len() >= 15, "{} faults", faults.len());
    assert!(text.lines().count() >= 195, "{} faults", faults.len());
    let problems = problems_of("faults.yaml", &text);
    for (line, expected) in &faults {
        let there = problems
            .iter()
            .filter(|p| p.location.line == *line)
            .map(ToString::to_string);
        fn fits(expected: &str, found: &str) -> bool {
            expected.split('|').all(|part| found.contains(part))
        }
        assert!(
            there.clone().any(|found| fits(expected, &found)),
            "line {line}: {expected}: {:?}",
            there.collect::<Vec<_>>()
        );
    }
    fn marked(faults: &[(u32, &str)], p: &&Problem) -> bool {
        faults.iter().any(|(line, _)| p.location.line == *line)
    }
    let others: Vec<String> = problems
        .iter()
        .filter(|p| !marked(&faults, p))
        .map(ToString::to_string)
        .collect();
    assert_eq!(others, [""; 0], "beside what is marked");
}

/// A policy without the mistakes has no messages, and its cases pass.
#[test]
fn the_corrected_policy_has_no_messages() {
    let twin = fs::read_to_string("tests/check/clean.yaml").unwrap();
    assert_eq!(problems_of("clean.yaml", &twin), []);
    let faults = fs::read_to_string("tests/check/faults.yaml").unwrap();
    let differing = twin
        .lines()
        .zip(faults.lines())
        .filter(|(clean, faulty)| clean != faulty)
        .count();
    assert!(
        twin.lines().count() == faults.lines().count(),
        "{differing} lines differ"
    );
    assert!(differing < 30, "{differing} lines differ");
}

fn problems_of(name: &str, text: &str) -> Vec<Problem> {
    match load(&MemoryFileSystem::new().with_file(name, text), name) {
        Ok(compiled) => {
            let failing = CaseProblems::new(&compiled).failures;
            compiled.problems.into_iter().chain(failing).collect()
        }
        Err(problems) => problems,
    }
}
