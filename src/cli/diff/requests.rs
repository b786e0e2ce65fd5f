//! What the two policies are asked: lines of a file, or the cases that they bring.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::model::profile::Profile;
use crate::policy::cases::{Case, CaseFacts};

use super::super::decide;

/// The questions.
#[derive(Default)]
pub(super) struct DiffRequests {
    /// Facts, and the profile by which they are to be answered if that is given.
    pub(super) facts: Vec<(CaseFacts, Option<Profile>)>,
    /// Lines that are no question.
    pub(super) invalid_lines: Vec<InvalidDiffLine>,
}

/// A line that could not be read.
pub(super) struct InvalidDiffLine {
    /// Its number, from 1.
    pub(super) line: usize,
    /// What is wrong with it.
    pub(super) error: String,
}

/// Reads lines of a file; `-` is standard input. Empty lines say nothing. The error is for people.
pub(super) fn read_requests(path: &Path) -> Result<DiffRequests, String> {
    let told = |error: io::Error| format!("{}: {error}", path.display());
    let input: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(path).map_err(told)?),
    };
    let mut asked = DiffRequests::default();
    for (line, number) in BufReader::new(input).split(b'\n').zip(1..) {
        let line = line.map_err(told)?;
        let line = line.trim_ascii();
        match decide::parse_facts(line) {
            _ if line.is_empty() => {}
            Ok(facts) => asked.facts.push((facts, None)),
            Err(error) => asked.invalid_lines.push(InvalidDiffLine {
                line: number,
                error,
            }),
        }
    }
    Ok(asked)
}

/// The cases of both policies, each question once.
pub(super) fn from_cases(old: &[Case], new: &[Case]) -> DiffRequests {
    let mut seen = BTreeSet::new();
    let cases = old
        .iter()
        .chain(new)
        .filter(|case| seen.insert(format!("{:?} {:?}", case.facts, case.profile)));
    DiffRequests {
        facts: cases
            .map(|case| (case.facts.clone(), Some(case.profile)))
            .collect(),
        invalid_lines: Vec::new(),
    }
}
