//! Every sentence of the documentation of the five systems has a case, or a reason why it has none.
//!
//! The texts are not in the repository; `sentences.tsv` is their index. The ignored test compares the index with the
//! texts, which are the files `SYSTEM.txt` in the directory `SEED_TEXTS`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::SYSTEMS;
use super::sources::{Comments, Source};

/// The index of one text.
struct Index {
    system: &'static str,
    /// The number of lines of the text.
    lines: u32,
    /// The numbers of the empty lines.
    blank: BTreeSet<u32>,
    rows: Vec<SentenceRow>,
}

struct SentenceRow {
    line: u32,
    words: String,
    kind: SentenceKind,
}

/// The kind of proof for a sentence.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SentenceKind {
    /// A case of a policy.
    Case,
    /// A test with a ledger, which `wire.md` names.
    Wire,
    /// No proof, for a reason that `unused.md` names.
    Unused,
}

impl Index {
    fn read(system: &'static str) -> Self {
        let path = format!("tests/policies/{system}/sentences.tsv");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut lines = text.lines();
        let mut header = |key: &str| {
            let line = lines.next().unwrap_or_default();
            line.strip_prefix(key)
                .unwrap_or_else(|| panic!("{path}: {line} is not {key}"))
                .trim()
                .to_owned()
        };
        let count = header("# lines:").parse().unwrap();
        let blank = header("# blank:")
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        Self {
            system,
            lines: count,
            blank,
            rows: lines.map(|line| SentenceRow::parse(&path, line)).collect(),
        }
    }

    fn find(&self, line: u32, words: &str) -> Option<&SentenceRow> {
        self.rows
            .iter()
            .find(|row| row.line == line && row.words == words)
    }

    /// Returns the errors of the index itself.
    fn faults(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let mut wrong: Vec<String> = self
            .rows
            .iter()
            .filter(|row| !seen.insert((row.line, &row.words)))
            .map(|row| format!("{} L{} {}: twice", self.system, row.line, row.words))
            .collect();
        if !self.rows.is_sorted_by_key(|row| row.line) {
            wrong.push(format!("{}: not in the order of the text", self.system));
        }
        let listed: BTreeSet<u32> = self
            .rows
            .iter()
            .map(|row| row.line)
            .chain(self.blank.iter().copied())
            .collect();
        if listed != (1..=self.lines).collect() {
            wrong.push(format!(
                "{}: the lines are {listed:?}, of {}",
                self.system, self.lines
            ));
        }
        wrong
    }
}

impl SentenceRow {
    fn parse(path: &str, line: &str) -> Self {
        let columns: Vec<&str> = line.split('\t').collect();
        let [number, words, kind] = columns.as_slice() else {
            panic!("{path}: {line}")
        };
        let kind = match *kind {
            "case" => SentenceKind::Case,
            "wire" => SentenceKind::Wire,
            "unused" => SentenceKind::Unused,
            _ => panic!("{path}: {line}"),
        };
        assert!(!words.contains('"'), "{path}: {line}");
        Self {
            line: number.parse().unwrap(),
            words: (*words).to_owned(),
            kind,
        }
    }
}

fn indexes() -> Vec<Index> {
    SYSTEMS
        .iter()
        .filter(|system: &&&str| Path::new("tests/policies").join(system).exists())
        .map(|system| Index::read(system))
        .collect()
}

/// Returns the sources that the policies of a system name.
fn named(system: &str) -> Vec<Source> {
    let comments = super::policies_of(system)
        .into_iter()
        .map(|path| Comments::of(&path));
    comments
        .flat_map(|comments| comments.all)
        .map(|(_, source)| source)
        .collect()
}

#[test]
fn the_indexes_are_complete() {
    let wrong: Vec<String> = indexes().iter().flat_map(Index::faults).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_sentence_about_crawled_urls_has_a_case() {
    let mut wrong = vec![];
    for index in indexes() {
        let named = named(index.system);
        for row in index
            .rows
            .iter()
            .filter(|row| row.kind == SentenceKind::Case)
        {
            let has = named
                .iter()
                .any(|source| source.line == row.line && source.words == row.words);
            wrong.extend(
                (!has)
                    .then(|| format!("{} L{} \"{}\": no case", index.system, row.line, row.words)),
            );
        }
        for source in named {
            let known = source.system == index.system
                && index
                    .find(source.line, &source.words)
                    .is_some_and(|row| row.kind == SentenceKind::Case);
            wrong.extend((!known).then(|| format!("{source:?}: not a sentence with cases")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `unused.md` lists exactly the sentences without a case, in the order of the text, each with a reason; `wire.md` lists
/// those that tests with a ledger prove.
#[test]
fn every_other_sentence_has_a_reason() {
    for index in indexes() {
        for (file, kind) in [
            ("unused.md", SentenceKind::Unused),
            ("wire.md", SentenceKind::Wire),
        ] {
            let path = format!("tests/policies/{}/{file}", index.system);
            let text = fs::read_to_string(&path).unwrap_or_default();
            let listed: Vec<(u32, String)> = text
                .lines()
                .filter(|line| line.starts_with("- "))
                .map(|line| unused(&path, line))
                .collect();
            let of_kind = index.rows.iter().filter(|row| row.kind == kind);
            let expected: Vec<(u32, String)> =
                of_kind.map(|row| (row.line, row.words.clone())).collect();
            assert_eq!(listed, expected, "{path}");
        }
    }
}

/// Each line of a `wire.md` names an existing test, as `module::file::name` in `tests/it` or in `src`.
#[test]
fn the_tests_that_prove_sentences_exist() {
    let mut named = 0;
    for index in indexes() {
        let path = format!("tests/policies/{}/wire.md", index.system);
        let text = fs::read_to_string(&path).unwrap_or_default();
        for line in text.lines().filter(|line| line.starts_with("- ")) {
            let tests: Vec<&str> = line.split('`').filter(|part| part.contains("::")).collect();
            assert!(!tests.is_empty(), "{path}: {line}");
            assert!(tests.iter().all(|test| is_a_test(test)), "{path}: {line}");
            named += tests.len();
        }
    }
    assert!(named > 20, "{named}");
}

fn is_a_test(name: &str) -> bool {
    let Some((module, function)) = name.rsplit_once("::") else {
        return false;
    };
    let file = module.replace("::", "/");
    let texts = ["tests/it", "src", "crates/policy/src"]
        .iter()
        .filter_map(|root| fs::read_to_string(format!("{root}/{file}.rs")).ok());
    texts
        .into_iter()
        .any(|text| text.contains(&format!("fn {function}()")))
}

/// Parses a line such as `- L3 "You can configure": introduction.`
fn unused(path: &str, line: &str) -> (u32, String) {
    let parts = line.strip_prefix("- L").and_then(|rest| {
        let (number, rest) = rest.split_once(" \"")?;
        let (words, reason) = rest.split_once("\": ")?;
        (reason.trim().len() > 5).then_some((number.parse().ok()?, words.to_owned()))
    });
    parts.unwrap_or_else(|| panic!("{path}: {line}"))
}

/// The words of the index occur in the text as often as the index says.
#[test]
#[ignore = "needs the texts: SEED_TEXTS=DIRECTORY"]
fn the_indexes_are_those_of_the_texts() {
    let directory = std::env::var("SEED_TEXTS").expect("SEED_TEXTS names the directory");
    for index in indexes() {
        let text = fs::read_to_string(Path::new(&directory).join(format!("{}.txt", index.system)))
            .unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), index.lines as usize, "{}", index.system);
        let blank: BTreeSet<u32> = lines
            .iter()
            .zip(1..)
            .filter(|(line, _)| line.trim().is_empty())
            .map(|(_, number)| number)
            .collect();
        assert_eq!(blank, index.blank, "{}", index.system);
        for row in &index.rows {
            let (words, count) = row.words.split_once(" #").unwrap_or((&row.words, "1"));
            let found = lines[row.line as usize - 1].matches(words).count();
            assert!(
                found >= count.parse().unwrap(),
                "{} L{} {}",
                index.system,
                row.line,
                row.words
            );
        }
    }
}
