//! The comments in which policies name the sentences that their cases come from.

use std::fs;
use std::path::Path;

use super::{SYSTEMS, is_refused};

/// A sentence of a system's text, named in a comment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Source {
    /// The system.
    pub(super) system: String,
    /// The line in the system's text.
    pub(super) line: u32,
    /// The sentence's first words.
    pub(super) words: String,
}

/// The comments of a policy.
#[derive(Debug, Default)]
pub(super) struct Comments {
    /// Each comment with its line in the policy.
    pub(super) all: Vec<(u32, Source)>,
    /// What is wrong with their form.
    pub(super) malformed: Vec<String>,
}

impl Source {
    /// Reads `omnifind L22 "If a URL from"`; none if it is not well-formed.
    fn parse(comment: &str) -> Option<Self> {
        let (system, rest) = comment.split_once(" L")?;
        let (line, words) = rest.split_once(" \"")?;
        let words = words.strip_suffix('"')?;
        let is_fine = SYSTEMS.contains(&system)
            && !words.contains('"')
            && words.trim() == words
            && !words.is_empty();
        let line = line.parse().ok()?;
        is_fine.then(|| Self {
            system: system.into(),
            line,
            words: words.into(),
        })
    }
}

impl Comments {
    /// Reads the comments of a policy. A comment that begins with the name of a system names a source.
    pub(super) fn of(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let mut comments = Self::default();
        for (line, number) in text.lines().zip(1..) {
            let Some((before, comment)) = line.split_once("# ") else {
                continue;
            };
            let first = comment.split(' ').next().unwrap_or_default();
            if !SYSTEMS.contains(&first) {
                continue;
            }
            match Source::parse(comment).filter(|_| before.trim().is_empty()) {
                Some(source) => comments.all.push((number, source)),
                None => comments
                    .malformed
                    .push(format!("{}:{number}: {line}", path.display())),
            }
        }
        comments
    }

    /// The sources of what stands at this line of the policy: the nearest block of comments above it that names any.
    pub(super) fn above(&self, text: &str, line: u32) -> Vec<&Source> {
        let lines: Vec<&str> = text.lines().collect();
        let is_comment = |number: u32| lines[number as usize - 1].trim_start().starts_with('#');
        let Some((nearest, _)) = self.all.iter().rev().find(|(number, _)| *number < line) else {
            return vec![];
        };
        let first = (1..=*nearest)
            .rev()
            .take_while(|number| is_comment(*number))
            .last()
            .unwrap_or(*nearest);
        let block = self
            .all
            .iter()
            .filter(|(number, _)| (first..=*nearest).contains(number));
        block.map(|(_, source)| source).collect()
    }
}

/// Every case stands below a source, and every source above a case.
#[test]
fn every_case_names_its_source() {
    let mut wrong = vec![];
    for path in SYSTEMS.iter().flat_map(|system| super::policies_of(system)) {
        let comments = Comments::of(&path);
        wrong.extend(comments.malformed.iter().cloned());
        let text = fs::read_to_string(&path).unwrap();
        if is_refused(&path) {
            wrong.extend(
                comments
                    .all
                    .is_empty()
                    .then(|| format!("{}: no source", path.display())),
            );
            continue;
        }
        let Ok(compiled) = super::compiled_file(&path) else {
            continue;
        };
        let cases: Vec<u32> = compiled.cases.iter().map(|case| case.place.line).collect();
        let without = cases
            .iter()
            .filter(|line| comments.above(&text, **line).is_empty());
        wrong.extend(
            without.map(|line| format!("{}:{line}: a case without a source", path.display())),
        );
        let idle = comments
            .all
            .iter()
            .filter(|(line, _)| !cases.contains(&next_content(&text, *line)));
        wrong.extend(idle.map(|(line, _)| format!("{}:{line}: no case below", path.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The first line behind this one that holds more than a comment.
fn next_content(text: &str, line: u32) -> u32 {
    let behind = text.lines().zip(1..).skip(line as usize);
    let mut content =
        behind.filter(|(text, _)| !text.trim().is_empty() && !text.trim_start().starts_with('#'));
    content.next().map_or(0, |(_, number)| number)
}
