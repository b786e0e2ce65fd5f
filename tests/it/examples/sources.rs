//! The comments of policies that name the sentences from which the cases are derived.

use std::fs;
use std::path::Path;

use super::{SYSTEMS, is_refused};

/// A sentence of the documentation of a system, named in a comment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Source {
    pub(super) system: String,
    /// The line in the text of the system.
    pub(super) line: u32,
    /// The first words of the sentence.
    pub(super) words: String,
}

/// The comments of a policy.
#[derive(Debug, Default)]
pub(super) struct Comments {
    /// The sources, each with its line in the policy.
    pub(super) all: Vec<(u32, Source)>,
    /// The comments that are not well-formed.
    pub(super) malformed: Vec<String>,
}

impl Source {
    /// Parses a comment such as `omnifind L22 "If a URL from"`; `None` if it is not well-formed.
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
    /// Reads the comments of a policy. A comment that starts with the name of a system names a source.
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

    /// Returns the sources of a line of the policy, which are in the nearest block of comments above it.
    pub(super) fn above(&self, text: &str, line: u32) -> Vec<&Source> {
        let lines: Vec<&str> = text.lines().collect();
        let Some((nearest, _)) = self.all.iter().rev().find(|(number, _)| *number < line) else {
            return vec![];
        };
        let first = (1..=*nearest)
            .rev()
            .take_while(|number| lines[*number as usize - 1].trim_start().starts_with('#'))
            .last()
            .unwrap_or(*nearest);
        self.all
            .iter()
            .filter(|(number, _)| (first..=*nearest).contains(number))
            .map(|(_, source)| source)
            .collect()
    }
}

/// Each case is below a source, and each source is above a case.
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
        let unused = comments
            .all
            .iter()
            .filter(|(line, _)| !cases.contains(&next_content(&text, *line)));
        wrong.extend(unused.map(|(line, _)| format!("{}:{line}: no case below", path.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the first line after this one that is neither empty nor a comment.
fn next_content(text: &str, line: u32) -> u32 {
    text.lines()
        .zip(1..)
        .skip(line as usize)
        .find(|(text, _)| !text.trim().is_empty() && !text.trim_start().starts_with('#'))
        .map_or(0, |(_, number)| number)
}
