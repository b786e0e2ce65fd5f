//! `crawlgate ledger`: the URLs that are remembered, shown, counted, exported and swept.

mod rows;
mod source;
mod sweep;

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;

use serde_json::Value as Json;

use crate::ledger::sought::Sought;

use super::Exit;
use super::args::{
    ExportFormat, Format, LedgerCommand, LedgerExportArgs, LedgerListArgs, LedgerStatsArgs,
    ListFormat, PlaceArgs, SoughtArgs,
};
use super::out::{self, complain, say_and_fail};
use super::progress::Bar;
use rows::Rows;
use source::{Failure, Source};

/// What is written at once.
const BUFFER: usize = 64 << 10;

/// Runs the command.
pub(super) fn run(command: &LedgerCommand) -> Exit {
    let done = match command {
        LedgerCommand::List(args) => list(args),
        LedgerCommand::Stats(args) => stats(args),
        LedgerCommand::Export(args) => export(args),
        LedgerCommand::Sweep(args) => sweep::run(args),
    };
    done.unwrap_or_else(|exit| exit)
}

fn list(args: &LedgerListArgs) -> Result<Exit, Exit> {
    let output = BufWriter::with_capacity(BUFFER, io::stdout().lock());
    let rows = match args.format {
        ListFormat::Text => Rows::for_people(output),
        ListFormat::Json => Rows::array(output),
        ListFormat::Ndjson => Rows::lines(output),
        ListFormat::Csv => Rows::csv(output),
    };
    let (source, sought) = opened(&args.place, &args.sought)?;
    Ok(write(&source, &sought, args.limit.0, rows, None))
}

fn export(args: &LedgerExportArgs) -> Result<Exit, Exit> {
    let (source, sought) = opened(&args.place, &args.sought)?;
    let output: Box<dyn Write> = match &args.output {
        None => Box::new(io::stdout().lock()),
        Some(path) => {
            // As the ledger's own file: URLs may hold secrets.
            let file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path);
            Box::new(
                file.map_err(|error| complain(&format!("--output {}: {error}", path.display())))?,
            )
        }
    };
    let output = BufWriter::with_capacity(BUFFER, output);
    let rows = match args.format {
        ExportFormat::Ndjson => Rows::lines(output),
        ExportFormat::Csv => Rows::csv(output),
    };
    let total = source
        .stats()
        .ok()
        .and_then(|stats| stats.get("urls").and_then(Json::as_u64));
    let exit = write(&source, &sought, usize::MAX, rows, total);
    Ok(exit)
}

/// Filters are read before anybody is asked.
fn opened(place: &PlaceArgs, sought: &SoughtArgs) -> Result<(Source, SoughtIn), Exit> {
    let said = sought.said();
    let mut sought = Sought::default();
    for (key, value) in &said {
        sought
            .set(key, value)
            .map_err(|error| complain(&format!("--{key}: {error}")))?;
    }
    Ok((Source::open(place)?, SoughtIn { said, sought }))
}

/// Filters in both their forms.
struct SoughtIn {
    said: Vec<(&'static str, String)>,
    sought: Sought,
}

fn write<W: Write>(
    source: &Source,
    sought: &SoughtIn,
    limit: usize,
    mut rows: Rows<W>,
    total: Option<u64>,
) -> Exit {
    let (mut left, mut after, mut bar) = (limit, None, Bar::new("URLs"));
    loop {
        let page = match source.page(sought, after.as_deref(), left) {
            Ok(page) => page,
            Err(failure) => return failed(&failure),
        };
        left = left.saturating_sub(page.urls.len());
        if let Err(error) = page.urls.iter().try_for_each(|url| rows.take(url)) {
            return out::failed(&error);
        }
        after = page.next;
        if after.is_none() || left == 0 {
            break;
        }
        if let Some(total) = total {
            bar.at(rows.count(), total);
        }
    }
    drop(bar);
    match rows.end() {
        Ok(()) => Exit::Success,
        Err(error) => out::failed(&error),
    }
}

fn stats(args: &LedgerStatsArgs) -> Result<Exit, Exit> {
    let document = Source::open(&args.place)?
        .stats()
        .map_err(|failure| failed(&failure))?;
    let text = match args.format {
        Format::Json => format!("{document:#}\n"),
        Format::Text => counted(&document),
    };
    Ok(out::write(&text, Exit::Success))
}

/// What the proxy does not understand is wrong usage; everything else is that there is nothing to show.
fn failed(failure: &Failure) -> Exit {
    match failure {
        Failure::Usage(words) => complain(words),
        Failure::Other(words) => say_and_fail(words),
    }
}

fn counted(stats: &Json) -> String {
    let mut text = format!("{:>14}  URLs\n", number(stats, "urls"));
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
        let _ = writeln!(text, "{:>14}  {words}", number(stats, key));
    }
    if let Some(sweep) = stats.get("sweep").filter(|sweep| !sweep.is_null()) {
        text.push_str(&sweep::told(sweep));
    }
    text
}

fn number(document: &Json, key: &str) -> u64 {
    document.get(key).and_then(Json::as_u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use crate::ledger::transition::Tolerance;
    use crate::store::ledger::Ledger;

    use super::*;

    /// A ledger that is closed reads as one whose disk fails does.
    #[test]
    fn what_cannot_be_read_ends_in_a_failure_and_not_quietly() {
        let ledger = Ledger::in_memory(Tolerance {
            temporary_errors: 5,
        });
        let source = Source::Files(ledger.clone());
        let sought = SoughtIn {
            said: vec![],
            sought: Sought::default(),
        };
        let written = || {
            let mut output = vec![];
            let exit = write(&source, &sought, usize::MAX, Rows::array(&mut output), None);
            (exit, String::from_utf8(output).unwrap())
        };
        assert_eq!(written(), (Exit::Success, "[]\n".to_owned()));
        ledger.close();
        assert_eq!(written(), (Exit::CannotRun, String::new()), "no whole list");
        let Err(Failure::Other(words)) = source.page(&sought, None, 1) else {
            panic!("it is read")
        };
        assert!(words.contains("can no longer be read"), "{words}");
    }
}
