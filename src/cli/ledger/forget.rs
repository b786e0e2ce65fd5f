//! `crawlgate ledger forget`: deletes records in the running proxy or in the files.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use serde_json::{Map, Value as Json, json};

use crate::cli::Exit;
use crate::cli::args::{LedgerForgetArgs, OutputFormat};
use crate::cli::console::{self, report_invalid, report_io_error};
use crate::ledger::filter::LedgerFilter;
use crate::urls::target::UrlTarget;

use super::report_error;
use super::source::LedgerSource;

/// The number of records that are deleted without a question.
const UNASKED_COUNT: u64 = 10;

/// The records to delete: as text for the admin API, and parsed for the files.
#[derive(Debug)]
pub(super) struct ForgetSelection {
    pub(super) keys: Map<String, Json>,
    pub(super) filter: LedgerFilter,
}

/// The effect of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForgetMode {
    /// Records are counted.
    DryRun,
    Delete,
}

pub(super) fn run(args: &LedgerForgetArgs) -> Result<Exit, Exit> {
    let selection = parse_selection(args).map_err(|error| report_invalid(&error))?;
    let source = LedgerSource::open(&args.source)?;
    let run = |mode| {
        source
            .forget(&selection, mode)
            .map_err(|error| report_error(&error))
    };
    let found = run(ForgetMode::DryRun)?;
    if args.dry_run {
        return Ok(print_result(args, found));
    }
    if found > UNASKED_COUNT && !args.yes {
        confirm(found)?;
    }
    Ok(print_result(args, run(ForgetMode::Delete)?))
}

fn parse_selection(args: &LedgerForgetArgs) -> Result<ForgetSelection, String> {
    let mut selection = ForgetSelection {
        keys: Map::new(),
        filter: LedgerFilter::default(),
    };
    if let Some(url) = &args.subject.url {
        let target = UrlTarget::parse(url)
            .map_err(|_| format!("{url}: write a whole URL, such as http://www.example.com/a"))?;
        selection.filter.set_url(target.as_str());
        selection.keys.insert("url".into(), target.as_str().into());
    }
    for (key, value) in [
        ("host", &args.subject.host),
        ("prefix", &args.subject.prefix),
        ("crawler", &args.crawler),
    ] {
        let Some(value) = value else { continue };
        if value.is_empty() {
            return Err(format!("--{key} is empty"));
        }
        selection
            .filter
            .set(key, value)
            .map_err(|error| format!("--{key}: {error}"))?;
        selection.keys.insert(key.into(), value.as_str().into());
    }
    Ok(selection)
}

/// Asks on the terminal whether many records are to be deleted.
fn confirm(count: u64) -> Result<(), Exit> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(report_invalid(&format!(
            "{count} records match: add --yes to delete them"
        )));
    }
    let answer = ask(&format!("Delete {count} records? [y/N] "));
    match answer.map_err(|error| report_io_error(&error))?.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(console::print("nothing was deleted\n", Exit::Negative)),
    }
}

fn ask(question: &str) -> io::Result<String> {
    eprint!("{question}");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(answer)
}

fn print_result(args: &LedgerForgetArgs, count: u64) -> Exit {
    let text = match (args.format, args.dry_run) {
        (OutputFormat::Json, dry_run) => {
            format!("{:#}\n", json!({ "dry_run": dry_run, "urls": count }))
        }
        (OutputFormat::Text, true) => format!("{count} records would be deleted\n"),
        (OutputFormat::Text, false) => format!("{count} records were deleted\n"),
    };
    console::print(&text, Exit::Success)
}
