//! `crawlgate ledger`: lists, counts, exports, sweeps and forgets the URLs of the ledger.

mod forget;
mod rows;
pub(in crate::cli) mod source;
mod sweep;

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;

use serde_json::Value as Json;

use crate::clock::Clock;
use crate::ledger::filter::LedgerFilter;
use crate::report::url_filter;

use super::Exit;
use super::admin_client::{get_array, get_u64};
use super::args::{
    LedgerCommand, LedgerExportArgs, LedgerExportFormat, LedgerFilterArgs, LedgerListArgs,
    LedgerRowFormat, LedgerSourceArgs, LedgerStatsArgs, OutputFormat,
};
use super::console::{self, report_cannot_run, report_invalid};
use super::progress::ProgressBar;
use super::text::sanitize_text;
use rows::{LedgerRowWriter, text_cell};
use source::{LedgerSource, LedgerSourceError};

/// The size of the output buffer.
const BUFFER: usize = 64 << 10;

pub(super) fn run(command: &LedgerCommand) -> Result<Exit, Exit> {
    match command {
        LedgerCommand::List(args) => list(args),
        LedgerCommand::Stats(args) => show_stats(args),
        LedgerCommand::Export(args) => export(args),
        LedgerCommand::Sweep(args) => sweep::run(args),
        LedgerCommand::Forget(args) => forget::run(args),
    }
}

fn list(args: &LedgerListArgs) -> Result<Exit, Exit> {
    let output = BufWriter::with_capacity(BUFFER, io::stdout().lock());
    let rows = LedgerRowWriter::new(output, args.format).with_titles(io::stdout().is_terminal());
    let (source, filter) = open_source(&args.source, &args.filter)?;
    write_records(&source, &filter, args.limit.0, rows, None)
}

fn export(args: &LedgerExportArgs) -> Result<Exit, Exit> {
    let (source, filter) = open_source(&args.source, &args.filter)?;
    let output: Box<dyn Write> = match &args.output {
        None => Box::new(io::stdout().lock()),
        Some(path) => {
            // The file is private, as the ledger is: URLs may contain secrets.
            let file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path);
            Box::new(file.map_err(|error| {
                report_invalid(&format!("--output {}: {error}", path.display()))
            })?)
        }
    };
    let output = BufWriter::with_capacity(BUFFER, output);
    let format = match args.format {
        LedgerExportFormat::Ndjson => LedgerRowFormat::Ndjson,
        LedgerExportFormat::Csv => LedgerRowFormat::Csv,
    };
    let rows = LedgerRowWriter::new(output, format);
    let total = source
        .stats()
        .ok()
        .and_then(|stats| stats.get("urls").and_then(Json::as_u64));
    write_records(&source, &filter, usize::MAX, rows, total)
}

/// Parses the filters, then opens the ledger.
fn open_source(
    source_args: &LedgerSourceArgs,
    filter_args: &LedgerFilterArgs,
) -> Result<(LedgerSource, LedgerFilterInput), Exit> {
    let pairs = filter_args.to_pairs(Clock::system().wall_time());
    let mut parsed = LedgerFilter::default();
    for (key, value) in &pairs {
        url_filter::set(&mut parsed, key, value)
            .map_err(|error| report_invalid(&format!("--{key}: {error}")))?;
    }
    Ok((
        LedgerSource::open(source_args)?,
        LedgerFilterInput { pairs, parsed },
    ))
}

/// Filters as text for the admin API, and parsed for the files.
#[derive(Default)]
struct LedgerFilterInput {
    pairs: Vec<(&'static str, String)>,
    parsed: LedgerFilter,
}

fn write_records<W: Write>(
    source: &LedgerSource,
    filter: &LedgerFilterInput,
    limit: usize,
    mut rows: LedgerRowWriter<W>,
    total: Option<u64>,
) -> Result<Exit, Exit> {
    let mut remaining = limit;
    let mut after = None;
    let mut progress = ProgressBar::new("URLs");
    loop {
        let page = source
            .read_page(filter, after.as_deref(), remaining)
            .map_err(|error| report_error(&error))?;
        remaining = remaining.saturating_sub(page.urls.len());
        page.urls
            .iter()
            .try_for_each(|url| rows.write_row(url))
            .map_err(|error| console::report_io_error(&error))?;
        after = page.next;
        if after.is_none() || remaining == 0 {
            break;
        }
        if let Some(total) = total {
            progress.update(rows.count(), total);
        }
    }
    drop(progress);
    rows.finish()
        .map(|()| Exit::Success)
        .map_err(|error| console::report_io_error(&error))
}

fn show_stats(args: &LedgerStatsArgs) -> Result<Exit, Exit> {
    let document = LedgerSource::open(&args.source)?
        .stats()
        .map_err(|error| report_error(&error))?;
    let text = match args.format {
        OutputFormat::Json => format!("{document:#}\n"),
        OutputFormat::Text => stats_text(&document),
    };
    Ok(console::print(&text, Exit::Success))
}

/// Reports an error. A request that the proxy rejects as invalid is wrong usage; any other error means that the ledger
/// cannot be read.
pub(super) fn report_error(error: &LedgerSourceError) -> Exit {
    match error {
        LedgerSourceError::Usage(message) => report_invalid(message),
        LedgerSourceError::Other(message) => report_cannot_run(message),
    }
}

fn stats_text(stats: &Json) -> String {
    let mut text = format!("{:>14}  URLs\n", get_u64(stats, "urls"));
    let by_status = stats.get("by_status").and_then(Json::as_object);
    let mut counts: Vec<(&String, u64)> = by_status
        .into_iter()
        .flatten()
        .map(|(status, count)| (status, count.as_u64().unwrap_or(0)))
        .collect();
    counts.sort_by_key(|(status, count)| (std::cmp::Reverse(*count), *status));
    for (status, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        let _ = writeln!(text, "{count:>14}    {status}");
    }
    let by_code = stats.get("by_code").and_then(Json::as_object);
    for (code, count) in by_code.into_iter().flatten() {
        let count = count.as_u64().unwrap_or(0);
        let _ = writeln!(text, "{count:>14}    with code {code}");
    }
    for (key, label) in [
        ("last_event", "events were emitted"),
        ("queue", "changes wait to be written"),
        ("waits", "requests waited for space in the write queue"),
        ("dropped", "observations were dropped"),
        ("failures", "commits failed"),
        ("bytes", "bytes on disk"),
    ] {
        let _ = writeln!(text, "{:>14}  {label}", get_u64(stats, key));
    }
    let pending: u64 = stats
        .get("pending_removals")
        .and_then(Json::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(_, count)| count.as_u64())
        .sum();
    if pending > 0 {
        let _ = writeln!(text, "{pending:>14}  removals are not ordered yet");
    }
    for held in get_array(stats, "held_removals") {
        let _ = writeln!(
            text,
            "{:>14}    of them are held: {} (crawlgate ledger sweep --confirm)",
            get_u64(held, "held"),
            sanitize_text(text_cell(held, "cause"))
        );
    }
    if let Some(sweep) = stats.get("sweep").filter(|sweep| !sweep.is_null()) {
        text.push_str(&sweep::sweep_text(sweep));
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::ledger::transition::ErrorTolerance;
    use crate::store::ledger::Ledger;

    use super::*;

    /// A closed ledger fails in the same way as one on a broken disk.
    #[test]
    fn a_ledger_that_cannot_be_read_is_an_error() {
        let ledger = Ledger::in_memory(ErrorTolerance {
            temporary_errors: 5,
        });
        let source = LedgerSource::Files(ledger.clone());
        let filter = LedgerFilterInput {
            pairs: vec![],
            parsed: LedgerFilter::default(),
        };
        let write = || {
            let mut output = vec![];
            let rows = LedgerRowWriter::new(&mut output, LedgerRowFormat::Json);
            let exit = write_records(&source, &filter, usize::MAX, rows, None);
            (exit, String::from_utf8(output).unwrap())
        };
        assert_eq!(write(), (Ok(Exit::Success), "[]\n".to_owned()));
        ledger.close();
        assert_eq!(
            write(),
            (Err(Exit::CannotRun), String::new()),
            "no complete list"
        );
        let Err(LedgerSourceError::Other(message)) = source.read_page(&filter, None, 1) else {
            panic!("the ledger is readable")
        };
        assert!(message.contains("can no longer be read"), "{message}");
    }
}
