//! Broken policies: one mistake a file in `tests/broken`, and beside it what `check` must say of it.
//!
//! `UPDATE_EXPECT=1 cargo test --test it broken` writes the messages anew; read every changed line before you commit.

use std::fs;
use std::path::{Path, PathBuf};

use crawlgate::config::policy::failing_cases;
use crawlgate::diagnostics::problem::Problem;
use crawlgate::policy::compile::load;
use crawlgate::policy::source::MemoryFileSystem;

/// Everything that is said of a policy, errors and warnings alike.
fn said(path: &Path) -> String {
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
fn every_mistake_is_said_as_expected() {
    let policies = policies();
    assert!(policies.len() >= 45, "{} broken policies", policies.len());
    let mut wrong = vec![];
    for policy in &policies {
        let expect = policy.with_extension("expect");
        let said = said(policy);
        assert!(!said.is_empty(), "nothing is said of {}", policy.display());
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&expect, &said).unwrap();
        }
        let expected = fs::read_to_string(&expect).unwrap_or_default();
        if said != expected {
            wrong.push(format!(
                "{}\n{said}--- expected\n{expected}",
                policy.display()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Messages are for people: they name a place, and most of them say what to write instead.
#[test]
fn messages_have_places_and_mostly_help() {
    let (mut all, mut placed, mut helpful) = (0, 0, 0);
    for policy in policies() {
        let said = said(&policy);
        let first = said.lines().next().unwrap();
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
                .any(|h| said.contains(h)),
        );
    }
    println!("{all} broken policies: {placed} with line and column, {helpful} with help");
    assert!(placed * 10 >= all * 9, "{placed} of {all}");
    assert!(helpful * 2 >= all, "{helpful} of {all}");
}

/// Whatever is done to a policy, it is refused or accepted, with places that exist, and nothing panics.
#[test]
fn mutilated_policies_never_panic() {
    let sources: Vec<String> = [PathBuf::from("config/policy.yaml")]
        .into_iter()
        .chain(policies())
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let mut random = fastrand::Rng::with_seed(7);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..4_000 {
        // Half of them start from a policy that is right, since most of what is done to a broken one shows nothing.
        let source = if random.bool() {
            &sources[0]
        } else {
            random.choice(&sources).unwrap()
        };
        let text = mutilated(source, &mut random);
        let files = MemoryFileSystem::new().with_file("p.yaml", text.as_bytes());
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
    assert!(
        accepted > 100 && refused > 1_000,
        "{accepted} accepted, {refused} refused"
    );
}

/// The text after one to four small accidents.
fn mutilated(source: &str, random: &mut fastrand::Rng) -> String {
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

/// A policy of 200 lines with a mistake of another kind on each marked line, `# FAULT: what is said`, `|` between two
/// things that are.
#[test]
fn every_kind_of_mistake_is_found_in_one_run() {
    let text = fs::read_to_string("tests/check/faults.yaml").unwrap();
    let faults: Vec<(u32, &str)> = text
        .lines()
        .zip(1..)
        .filter_map(|(line, number)| Some((number, line.split_once("# FAULT: ")?.1)))
        .collect();
    assert!(
        faults.len() >= 15 && text.lines().count() >= 195,
        "{} faults",
        faults.len()
    );
    let problems = problems_of("faults.yaml", &text);
    for (line, expected) in &faults {
        let there = problems
            .iter()
            .filter(|p| p.location.line == *line)
            .map(ToString::to_string);
        let fits = |said: &String| expected.split('|').all(|part| said.contains(part));
        assert!(
            there.clone().any(|said| fits(&said)),
            "line {line}: {expected}: {:?}",
            there.collect::<Vec<_>>()
        );
    }
    let marked = |p: &&Problem| faults.iter().any(|(line, _)| p.location.line == *line);
    let others: Vec<String> = problems
        .iter()
        .filter(|p| !marked(p))
        .map(ToString::to_string)
        .collect();
    assert_eq!(others, [""; 0], "beside what is marked");
}

/// The same policy without the mistakes: nothing is said of it, and its cases pass.
#[test]
fn of_its_clean_twin_nothing_is_said() {
    let twin = fs::read_to_string("tests/check/clean.yaml").unwrap();
    assert_eq!(problems_of("clean.yaml", &twin), []);
    let faults = fs::read_to_string("tests/check/faults.yaml").unwrap();
    let differing = twin
        .lines()
        .zip(faults.lines())
        .filter(|(clean, faulty)| clean != faulty)
        .count();
    assert!(
        twin.lines().count() == faults.lines().count() && differing < 30,
        "{differing} lines differ"
    );
}

fn problems_of(name: &str, text: &str) -> Vec<Problem> {
    match load(&MemoryFileSystem::new().with_file(name, text), name) {
        Ok(compiled) => {
            let failing = failing_cases(&compiled.policy, &compiled.cases);
            compiled.problems.into_iter().chain(failing).collect()
        }
        Err(problems) => problems,
    }
}
