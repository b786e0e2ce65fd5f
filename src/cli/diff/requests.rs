//! The requests to compare: the lines of a file, the URLs of the ledger, or the cases of the policies.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde_json::Value as Json;

use crate::cli::Exit;
use crate::cli::args::LedgerSourceArgs;
use crate::cli::ledger::report_error;
use crate::cli::ledger::source::LedgerSource;
use crate::model::profile::Profile;
use crate::policy::cases::{Case, CaseFacts};

use super::super::decide;
use super::logged::LeftOutLines;

/// The requests to compare.
#[derive(Default)]
pub(super) struct DiffRequests {
    pub(super) requests: Vec<DiffRequest>,
    pub(super) invalid_lines: Vec<InvalidDiffLine>,
    /// The lines of the log that are not compared; `None` if the requests are not those of a log.
    pub(super) left_out: Option<LeftOutLines>,
}

/// A request to compare.
pub(super) struct DiffRequest {
    pub(super) facts: CaseFacts,
    /// The profile of a case.
    pub(super) profile: Option<Profile>,
    /// The number of times that it was made: its weight in the report.
    pub(super) count: usize,
}

impl DiffRequest {
    fn once(facts: CaseFacts, profile: Option<Profile>) -> Self {
        Self {
            facts,
            profile,
            count: 1,
        }
    }
}

/// A line that could not be read.
pub(super) struct InvalidDiffLine {
    /// The line number, starting at 1.
    pub(super) line: usize,
    pub(super) error: String,
}

/// Reads the lines of a file, or of standard input for `-`. Skips empty lines.
pub(super) fn read_requests(path: &Path) -> Result<DiffRequests, String> {
    read_lines(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn read_lines(path: &Path) -> io::Result<DiffRequests> {
    let input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path)?)
    };
    let mut requests = DiffRequests::default();
    for (line, number) in BufReader::new(input).split(b'\n').zip(1..) {
        let line = line?;
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        match decide::parse_facts(line) {
            Ok(facts) => requests.requests.push(DiffRequest::once(facts, None)),
            Err(error) => requests.invalid_lines.push(InvalidDiffLine {
                line: number,
                error,
            }),
        }
    }
    Ok(requests)
}

/// Reads the URLs that the ledger knows, as their crawlers requested them.
pub(super) fn from_ledger(args: &LedgerSourceArgs) -> Result<DiffRequests, Exit> {
    let source = LedgerSource::open(args)?;
    let mut requests = DiffRequests::default();
    let mut number = 0;
    let result = source.for_each_record(|document, _| {
        number += 1;
        if document.get("known") != Some(&Json::Bool(true)) {
            return;
        }
        let facts = ["url", "crawler", "depth", "address", "known"]
            .into_iter()
            .filter_map(|key| Some((key.to_owned(), document.get(key)?.clone())))
            .collect();
        match CaseFacts::from_json(&facts) {
            Ok(facts) => requests.requests.push(DiffRequest::once(facts, None)),
            Err(error) => requests.invalid_lines.push(InvalidDiffLine {
                line: number,
                error,
            }),
        }
    });
    result.map_err(|error| report_error(&error))?;
    Ok(requests)
}

/// Returns the requests of the cases of both policies, each request once.
pub(super) fn from_cases(old: &[Case], new: &[Case]) -> DiffRequests {
    let mut seen = BTreeSet::new();
    let requests = old
        .iter()
        .chain(new)
        .filter(|case| seen.insert(format!("{:?} {:?}", case.facts, case.profile)))
        .map(|case| DiffRequest::once(case.facts.clone(), Some(case.profile)))
        .collect();
    DiffRequests {
        requests,
        ..DiffRequests::default()
    }
}
