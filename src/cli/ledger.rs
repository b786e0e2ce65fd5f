//! `crawlgate ledger`: the URLs that are remembered, shown, counted, exported and swept.

mod rows;
mod source;
mod sweep;

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;

use serde_json::Value as Json;

use crate::ledger::filter::LedgerFilter;

use super::Exit;
use super::args::{
    LedgerCommand, LedgerExportArgs, LedgerExportFormat, LedgerFilterArgs, LedgerListArgs,
    LedgerListFormat, LedgerSourceArgs, LedgerStatsArgs, OutputFormat,
};
use super::console::{self, report_cannot_run, report_invalid};
use super::progress::ProgressBar;
use rows::LedgerRowWriter;
use source::{LedgerSource, LedgerSourceError};

/// What is written at once.
const BUFFER: usize = 64 << 10;

/// Runs the command.
pub(super) fn run(command: &LedgerCommand) -> Exit {
    let done = match command {
        LedgerCommand::List(args) => list(args),
        LedgerCommand::Stats(args) => show_stats(args),
        LedgerCommand::Export(args) => export(args),
        LedgerCommand::Sweep(args) => sweep::run(args),
    };
    done.unwrap_or_else(|exit| exit)
}

fn list(args: &LedgerListArgs) -> Result<Exit, Exit> {
    let output = BufWriter::with_capacity(BUFFER, io::stdout().lock());
    let rows = match args.format {
        LedgerListFormat::Text => LedgerRowWriter::text(output),
        LedgerListFormat::Json => LedgerRowWriter::json_array(output),
        LedgerListFormat::Ndjson => LedgerRowWriter::ndjson(output),
        LedgerListFormat::Csv => LedgerRowWriter::csv(output),
    };
    let (source, sought) = open_source(&args.source, &args.filter)?;
    Ok(write_records(&source, &sought, args.limit.0, rows, None))
}

fn export(args: &LedgerExportArgs) -> Result<Exit, Exit> {
    let (source, sought) = open_source(&args.source, &args.filter)?;
    let output: Box<dyn Write> = match &args.output {
        None => Box::new(io::stdout().lock()),
        Some(path) => {
            // As the ledger's own file: URLs may hold secrets.
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
    let rows = match args.format {
        LedgerExportFormat::Ndjson => LedgerRowWriter::ndjson(output),
        LedgerExportFormat::Csv => LedgerRowWriter::csv(output),
    };
    let total = source
        .stats()
        .ok()
        .and_then(|stats| stats.get("urls").and_then(Json::as_u64));
    let exit = write_records(&source, &sought, usize::MAX, rows, total);
    Ok(exit)
}

/// Filters are read before anybody is asked.
fn open_source(
    source_args: &LedgerSourceArgs,
    filter_args: &LedgerFilterArgs,
) -> Result<(LedgerSource, LedgerFilterInput), Exit> {
    let said = filter_args.to_pairs();
    let mut sought = LedgerFilter::default();
    for (key, value) in &said {
        sought
            .set(key, value)
            .map_err(|error| report_invalid(&format!("--{key}: {error}")))?;
    }
    Ok((
        LedgerSource::open(source_args)?,
        LedgerFilterInput {
            pairs: said,
            parsed: sought,
        },
    ))
}

/// Filters in both their forms.
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
) -> Exit {
    let (mut left, mut after, mut bar) = (limit, None, ProgressBar::new("URLs"));
    loop {
        let page = match source.read_page(filter, after.as_deref(), left) {
            Ok(page) => page,
            Err(failure) => return report_failure(&failure),
        };
        left = left.saturating_sub(page.urls.len());
        if let Err(error) = page.urls.iter().try_for_each(|url| rows.write_row(url)) {
            return console::report_io_error(&error);
        }
        after = page.next;
        if after.is_none() || left == 0 {
            break;
        }
        if let Some(total) = total {
            bar.update(rows.count(), total);
        }
    }
    drop(bar);
    match rows.finish() {
        Ok(()) => Exit::Success,
        Err(error) => console::report_io_error(&error),
    }
}

fn show_stats(args: &LedgerStatsArgs) -> Result<Exit, Exit> {
    let document = LedgerSource::open(&args.source)?
        .stats()
        .map_err(|failure| report_failure(&failure))?;
    let text = match args.format {
        OutputFormat::Json => format!("{document:#}\n"),
        OutputFormat::Text => stats_text(&document),
    };
    Ok(console::print(&text, Exit::Success))
}

/// What the proxy does not understand is wrong usage; everything else is that there is nothing to show.
fn report_failure(failure: &LedgerSourceError) -> Exit {
    match failure {
        LedgerSourceError::Usage(words) => report_invalid(words),
        LedgerSourceError::Other(words) => report_cannot_run(words),
    }
}

fn stats_text(stats: &Json) -> String {
    let mut text = format!("{:>14}  URLs\n", get_u64(stats, "urls"));
    let by_status = stats.get("by_status").and_then(Json::as_object);
    let mut counts: Vec<(&String, u64)> = by_status
        .into_iter()
        .flatten()
        .map(|(word, count)| (word, count.as_u64().unwrap_or(0)))
        .collect();
    counts.sort_by_key(|(word, count)| (std::cmp::Reverse(*count), *word));
    for (word, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        let _ = writeln!(text, "{count:>14}    {word}");
    }
    for (key, words) in [
        ("last_event", "events were told"),
        ("queue", "changes wait to be written"),
        ("waits", "times a request waited for room"),
        ("dropped", "looks were dropped"),
        ("failures", "commits failed"),
        ("bytes", "bytes on the disk"),
    ] {
        let _ = writeln!(text, "{:>14}  {words}", get_u64(stats, key));
    }
    if let Some(sweep) = stats.get("sweep").filter(|sweep| !sweep.is_null()) {
        text.push_str(&sweep::sweep_text(sweep));
    }
    text
}

fn get_u64(document: &Json, key: &str) -> u64 {
    document.get(key).and_then(Json::as_u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use crate::ledger::transition::ErrorTolerance;
    use crate::store::ledger::Ledger;

    use super::*;

    /// A ledger that is closed reads as one whose disk fails does.
    #[test]
    fn what_cannot_be_read_ends_in_a_failure_and_not_quietly() {
        let ledger = Ledger::in_memory(ErrorTolerance {
            temporary_errors: 5,
        });
        let source = LedgerSource::Files(ledger.clone());
        let sought = LedgerFilterInput {
            pairs: vec![],
            parsed: LedgerFilter::default(),
        };
        let written = || {
            let mut output = vec![];
            let exit = write_records(
                &source,
                &sought,
                usize::MAX,
                LedgerRowWriter::json_array(&mut output),
                None,
            );
            (exit, String::from_utf8(output).unwrap())
        };
        assert_eq!(written(), (Exit::Success, "[]\n".to_owned()));
        ledger.close();
        assert_eq!(written(), (Exit::CannotRun, String::new()), "no whole list");
        let Err(LedgerSourceError::Other(words)) = source.read_page(&sought, None, 1) else {
            panic!("it is read")
        };
        assert!(words.contains("can no longer be read"), "{words}");
    }
}
