//! `crawlgate decisions`: shows, follows, filters and summarizes the decision log.
//!
//! The command reads a log of any size in one pass and in bounded memory, or the latest decisions of the running proxy.
//! `docs/decision-log.md` describes the fields of a line.

mod follow;
pub(in crate::cli) mod last;
mod line_reader;
mod log_files;
mod lost;
mod lost_report;
pub(in crate::cli) mod reader;
pub(in crate::cli) mod since;
mod summary;
pub(in crate::cli) mod writers;

use std::fmt::Display;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::clock::Clock;
use crate::metrics::log::filter::LogFilter;
use crate::metrics::log::{LogDestination, LogLineFormat, LogSettings, SampleRate};

use super::Exit;
use super::admin_client::get_str;
use super::args::{DecisionsArgs, OutputFormat, RowLimit, SummaryBy};
use super::console::{self, note, report_invalid, warn};
use super::ledger::source::LedgerSource;
use super::running_proxy::RunningProxy;
use crate::console::ConsoleColors;
use follow::{FollowStart, FollowUntil};
use last::LastDecisions;
use line_reader::LogLineReader;
use log_files::{LogInput, files_oldest_first};
use lost::LostRequests;
use lost_report::LostReport;
use reader::{DecisionConsumer, DecisionLogReader, LogInputEnd};
use summary::DecisionSummary;
use writers::{DecisionLineWriter, DecisionTextWriter};

/// The size of the output buffer.
const BUFFER: usize = 64 << 10;
/// The rows of a summary, unless `--limit` is given.
const DEFAULT_SUMMARY_ROWS: RowLimit = RowLimit(20);

pub(super) fn run(args: &DecisionsArgs) -> Result<Exit, Exit> {
    let input = log_input(args)?;
    if let LogInput::File(path) = &input
        && let Err(error) = follow::check_exists(path)
    {
        return Err(report_invalid(&missing_log_message(path, &error)));
    }
    let filters = args.all_filters();
    let output = BufWriter::with_capacity(BUFFER, io::stdout().lock());
    if args.lost {
        return Ok(list_lost(args, &filters, input));
    }
    Ok(match (args.summary, args.format) {
        (Some(by), format) => summarize(args, &filters, input, by, format),
        (None, OutputFormat::Text) => {
            let writer = DecisionTextWriter::new(output, ConsoleColors::for_stdout());
            show(args, &filters, input, writer)
        }
        (None, OutputFormat::Json) => show(args, &filters, input, DecisionLineWriter(output)),
    })
}

/// Returns the log of `--log`; else the file of the configuration, if there is one; else the latest decisions of the
/// running proxy, which is the only source if `--admin` names it.
fn log_input(args: &DecisionsArgs) -> Result<LogInput, Exit> {
    if let Some(path) = &args.log {
        if path != Path::new("-") {
            return Ok(LogInput::File(path.clone()));
        }
        if args.all {
            return Err(report_invalid(
                &"--all: standard input (--log -) has no rotated files",
            ));
        }
        return Ok(LogInput::Stdin);
    }
    let (proxy, settings) = RunningProxy::find_with_settings(&args.proxy)?;
    let file = settings
        .logs
        .readable_file()
        .filter(|_| args.proxy.admin.is_none());
    if let Some(path) = file.filter(|path| path.exists()) {
        return Ok(LogInput::File(path.to_owned()));
    }
    match proxy.open_stream(&recent_decisions_path(args)) {
        Ok(stream) => {
            let reach = match memory_only_note(&proxy) {
                Some(reach) => format!(": {reach}"),
                None => String::new(),
            };
            note(&format!("the latest decisions of {proxy}{reach}"));
            Ok(LogInput::Proxy(stream))
        }
        Err(error) => Err(report_invalid(&match file {
            Some(path) => missing_log_message(path, &error),
            None => no_file_message(&settings.logs, &error),
        })),
    }
}

/// Returns a note that the running proxy writes its decisions to no file, so that those in memory are all there are.
pub(in crate::cli) fn memory_only_note(proxy: &RunningProxy) -> Option<String> {
    let status = proxy.get("/api/v1/status").ok()?;
    let destination = get_str(&status, "decision_log");
    matches!(destination, "auto" | "stderr" | "stdout" | "none").then(|| {
        format!(
            "it keeps them in memory only, since its start at {}. Set `logs.decisions` to a file to keep them longer",
            get_str(&status, "started_at")
        )
    })
}

/// Returns the path of the decisions that the proxy has in memory, at most 10,000.
fn recent_decisions_path(args: &DecisionsArgs) -> String {
    let recent = match args.follow && args.since.is_none() && !args.all {
        true => 10,
        false => 10_000,
    };
    format!("/api/v1/decisions?recent={recent}&follow={}", args.follow)
}

fn no_file_message(logs: &LogSettings, error: &dyn Display) -> String {
    let reason = match (&logs.destination, logs.format) {
        (LogDestination::Path(path), LogLineFormat::Squid) => format!(
            "logs.format is squid, which lacks fields that this command shows ({} is for tools that read Squid's \
             access.log)",
            path.display()
        ),
        (destination, LogLineFormat::Json | LogLineFormat::Squid) => {
            format!("logs.decisions is {destination:?}, which cannot be read")
        }
    };
    format!("{reason}, and {error}; --log FILE names a log, --log - is standard input")
}

fn missing_log_message(path: &Path, error: &dyn Display) -> String {
    format!(
        "the decision log {} cannot be read: {error}; the proxy creates it when it starts with this file as \
         logs.decisions, --log FILE names another",
        path.display()
    )
}

fn show<S: DecisionConsumer>(
    args: &DecisionsArgs,
    filters: &[LogFilter],
    input: LogInput,
    consumer: S,
) -> Exit {
    match args.limit {
        Some(limit) if limit != RowLimit::ALL => {
            let mut reader = new_reader(args, filters, LastDecisions::new(consumer, limit.0));
            let file = input.file();
            let result = read_log(args, input, &mut reader).and_then(|()| reader.consumer.finish());
            note_missing(args, &reader, file.as_deref());
            exit_after(&reader, result)
        }
        Some(_) | None => {
            let mut reader = new_reader(args, filters, consumer);
            let file = input.file();
            let result = read_log(args, input, &mut reader).and_then(|()| reader.consumer.flush());
            note_missing(args, &reader, file.as_deref());
            exit_after(&reader, result)
        }
    }
}

fn summarize(
    args: &DecisionsArgs,
    filters: &[LogFilter],
    input: LogInput,
    by: SummaryBy,
    format: OutputFormat,
) -> Exit {
    let mut reader = new_reader(args, filters, DecisionSummary::new(by));
    let file = input.file();
    let result = read_log(args, input, &mut reader).and_then(|()| {
        let limit = args.limit.unwrap_or(DEFAULT_SUMMARY_ROWS).0;
        let text = match format {
            OutputFormat::Text => reader.consumer.to_text(limit, ConsoleColors::for_stdout()),
            OutputFormat::Json => format!("{:#}\n", reader.consumer.to_json(limit)),
        };
        io::stdout().lock().write_all(text.as_bytes())
    });
    note_missing(args, &reader, file.as_deref());
    exit_after(&reader, result)
}

/// Notes on standard error that no decision was found, and that the file begins after `--since`.
fn note_missing<S: DecisionConsumer>(
    args: &DecisionsArgs,
    reader: &DecisionLogReader<'_, S>,
    file: Option<&Path>,
) {
    let unread = file
        .filter(|file| !args.all && files_oldest_first(file).is_ok_and(|files| files.len() > 1));
    if let (Some(begins), Some(file)) = (reader.late_beginning(), unread) {
        note(&format!(
            "{} begins at {begins}, after --since: --all also reads its rotated files",
            file.display()
        ));
    }
    let Some(nothing) = reader.nothing_found() else {
        return;
    };
    note(&nothing);
    if let Some(hidden) = reader.hidden_urls() {
        note(&hidden);
    }
    // With --since, rotated files matter only if the log begins later, which the note before reports.
    if unread.is_some() && args.since.is_none() {
        note(&"there are rotated files, which --all also reads");
    }
}

fn list_lost(args: &DecisionsArgs, filters: &[LogFilter], input: LogInput) -> Exit {
    let now = Clock::system().wall_time();
    let since = args.since.map(|since| since.to_timestamp(now));
    // A filter must not hide a later answer.
    let mut reader = DecisionLogReader::new(LostRequests::new(filters), &[], since);
    let result = read_log(args, input, &mut reader);
    let mut ledger = None;
    let mut logs_all = true;
    if result.is_ok() && args.log.is_none() && !reader.consumer.is_empty() {
        let found = RunningProxy::find_with_settings(&args.proxy).ok();
        logs_all = found
            .as_ref()
            .is_none_or(|(_, settings)| settings.logs.allow_sample == SampleRate::ALL);
        ledger = found.and_then(|(proxy, settings)| LedgerSource::find(&proxy, &settings));
        if let Some(ledger) = &ledger {
            reader.consumer.remove_answered(ledger);
        }
    }
    let report = LostReport::new(&reader.consumer, ledger.is_some(), logs_all);
    let result = result.and_then(|()| {
        let text = match args.format {
            OutputFormat::Text => report.to_text(ConsoleColors::for_stdout()),
            OutputFormat::Json => format!("{:#}\n", report.to_json()),
        };
        io::stdout().lock().write_all(text.as_bytes())
    });
    exit_after(&reader, result)
}

fn new_reader<'a, S: DecisionConsumer>(
    args: &DecisionsArgs,
    filters: &'a [LogFilter],
    consumer: S,
) -> DecisionLogReader<'a, S> {
    let now = Clock::system().wall_time();
    let since = args.since.map(|since| since.to_timestamp(now));
    let mut reader = DecisionLogReader::new(consumer, filters, since);
    reader.set_until(args.until.map(|until| until.to_timestamp(now)));
    reader
}

fn read_log<S: DecisionConsumer>(
    args: &DecisionsArgs,
    input: LogInput,
    reader: &mut DecisionLogReader<'_, S>,
) -> io::Result<()> {
    let path = match input {
        LogInput::Stdin => return read_stdin(reader),
        LogInput::Proxy(stream) => {
            reader.begin_file("the proxy");
            if args.follow {
                reader.set_endless();
            }
            return reader.read_rest(&mut LogLineReader::new(stream), LogInputEnd::Final);
        }
        LogInput::File(path) => path,
    };
    let end = if args.follow {
        FollowUntil::Forever
    } else {
        FollowUntil::End
    };
    let start = match end {
        _ if args.all || args.lost => FollowStart::Oldest,
        FollowUntil::Forever if args.since.is_none() => FollowStart::Tail,
        FollowUntil::Forever | FollowUntil::End => FollowStart::Beginning,
    };
    follow::read(&path, start, end, reader)
}

/// Reads the rotated files of a log, the oldest first, then the log itself; `-` is standard input.
pub(in crate::cli) fn read_whole_log<S: DecisionConsumer>(
    path: &Path,
    reader: &mut DecisionLogReader<'_, S>,
) -> io::Result<()> {
    if path == Path::new("-") {
        return read_stdin(reader);
    }
    follow::read(path, FollowStart::Oldest, FollowUntil::End, reader)
}

fn read_stdin<S: DecisionConsumer>(reader: &mut DecisionLogReader<'_, S>) -> io::Result<()> {
    reader.begin_file("standard input");
    let mut lines = LogLineReader::new(io::stdin().lock());
    reader.read_rest(&mut lines, LogInputEnd::Final)
}

/// Returns the exit code. A line that cannot be read makes the result negative, as for `decide`.
fn exit_after<S: DecisionConsumer>(
    reader: &DecisionLogReader<'_, S>,
    result: io::Result<()>,
) -> Exit {
    if let Err(error) = result {
        return console::report_io_error(&error);
    }
    match reader.unreadable_summary() {
        None => Exit::Success,
        Some(summary) => {
            warn(&summary);
            Exit::Negative
        }
    }
}
