//! Broken policies: one mistake a file in `tests/broken`, and beside it what `check` must say of it.
//!
//! `UPDATE_EXPECT=1 cargo test --test it broken` writes the messages anew; read every changed line before you commit.

use std::fs;
use std::path::{Path, PathBuf};

use crawlgate::policy::compile::load;
use crawlgate::policy::source::MemoryFiles;

/// Everything that is said of a policy, errors and warnings alike.
fn said(path: &Path) -> String {
    let name = path.file_name().unwrap().to_str().unwrap();
    let files = MemoryFiles::new().with(name, fs::read(path).unwrap());
    let problems = match load(&files, name) {
        Ok(compiled) => compiled.problems,
        Err(problems) => {
            assert!(problems.iter().any(|p| p.is_error()), "{name} is refused without an error");
            problems
        }
    };
    problems.iter().map(|p| p.rendered() + "\n").collect()
}

fn policies() -> Vec<PathBuf> {
    let files = fs::read_dir("tests/broken").unwrap().map(|entry| entry.unwrap().path());
    let mut policies: Vec<PathBuf> = files.filter(|p| p.extension().is_some_and(|e| e == "yaml")).collect();
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
            wrong.push(format!("{}\n{said}--- expected\n{expected}", policy.display()));
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
        placed += usize::from(first.split(':').nth(2).is_some_and(|column| column.parse::<u32>().is_ok()));
        helpful += usize::from(
            ["; allowed: ", "; write ", "; written ", "did you mean", "; it ", "; use "]
                .iter()
                .any(|h| first.contains(h)),
        );
    }
    println!("{all} broken policies: {placed} with line and column, {helpful} with help");
    assert!(placed * 10 >= all * 9, "{placed} of {all}");
    assert!(helpful * 2 >= all, "{helpful} of {all}");
}
