//! `crawlgate decisions`: shows, follows, filters and summarizes the decision log.
//!
//! The command reads a log of any size in one pass and in bounded memory. `docs/decision-log.md` describes the fields of
//! a line.

mod follow;
mod line_reader;
mod log_files;
mod lost;
mod lost_report;
mod reader;
pub(in crate::cli) mod since;
mod summary;
mod writers;

use std::fmt::Display;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::clock::Clock;
use crate::config::load::Overrides;
use crate::metrics::log::{LogDestination, LogLineFormat, SampleRate};

use super::Exit;
use super::args::{DecisionsArgs, OutputFormat, SummaryBy};
use super::console::{self, report_invalid, warn};
use super::inputs;
use super::ledger::source::LedgerSource;
use crate::console::ConsoleColors;
use follow::{FollowStart, FollowUntil};
use line_reader::LogLineReader;
use log_files::LogInput;
use lost::LostRequests;
use lost_report::LostReport;
use reader::{DecisionConsumer, DecisionLogReader, LogInputEnd};
use summary::DecisionSummary;
use writers::{DecisionLineWriter, DecisionTextWriter};

/// The size of the output buffer.
const BUFFER: usize = 64 << 10;

pub(super) fn run(args: &DecisionsArgs) -> Exit {
    let input = match log_input(args) {
        Ok(input) => input,
        Err(exit) => return exit,
    };
    if let LogInput::File(path) = &input
        && let Err(error) = std::fs::metadata(path)
    {
        return report_invalid(&missing_log_message(path, &error));
    }
    let output = BufWriter::with_capacity(BUFFER, io::stdout().lock());
    if args.lost {
        return list_lost(args, &input);
    }
    match (args.summary, args.format) {
        (Some(by), format) => summarize(args, &input, by, format),
        (None, OutputFormat::Text) => show(
            args,
            &input,
            DecisionTextWriter::new(output, ConsoleColors::for_stdout()),
        ),
        (None, OutputFormat::Json) => show(args, &input, DecisionLineWriter(output)),
    }
}

/// Returns the log of `--log`, or else of the configuration.
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
    let logs = inputs::load_config(args.config.as_deref())?.logs;
    let problem = match (logs.destination, logs.format) {
        (LogDestination::Path(path), LogLineFormat::Json) => return Ok(LogInput::File(path)),
        (LogDestination::Path(path), LogLineFormat::Squid) => {
            return Err(report_invalid(&format!(
                "logs.format is squid, which lacks fields that this command shows: set it to json, or name a log with \
                 --log FILE ({} is for tools that read Squid's access.log)",
                path.display()
            )));
        }
        (LogDestination::Stderr, _) => "logs.decisions is stderr, which cannot be read",
        (LogDestination::Stdout, _) => "logs.decisions is stdout, which cannot be read",
        (LogDestination::None, _) => "logs.decisions is none, so there is no log",
    };
    Err(report_invalid(&format!(
        "{problem}: set it to a file, or name a log with --log FILE (--log - is standard input)"
    )))
}

fn missing_log_message(path: &Path, error: &dyn Display) -> String {
    format!(
        "the decision log {} cannot be read: {error}; the proxy creates it when it starts with this file as \
         logs.decisions, --log FILE names another",
        path.display()
    )
}

fn show<S: DecisionConsumer>(args: &DecisionsArgs, input: &LogInput, consumer: S) -> Exit {
    let mut reader = new_reader(args, consumer);
    let result = read_log(args, input, &mut reader).and_then(|()| reader.consumer.flush());
    exit_after(&reader, result)
}

fn summarize(args: &DecisionsArgs, input: &LogInput, by: SummaryBy, format: OutputFormat) -> Exit {
    let mut reader = new_reader(args, DecisionSummary::new(by));
    let result = read_log(args, input, &mut reader).and_then(|()| {
        let limit = args.limit.0;
        let text = match format {
            OutputFormat::Text => reader.consumer.to_text(limit, ConsoleColors::for_stdout()),
            OutputFormat::Json => format!("{:#}\n", reader.consumer.to_json(limit)),
        };
        io::stdout().lock().write_all(text.as_bytes())
    });
    exit_after(&reader, result)
}

fn list_lost(args: &DecisionsArgs, input: &LogInput) -> Exit {
    let now = Clock::system().wall_time();
    let since = args.since.map(|since| since.to_timestamp(now));
    // A filter must not hide a later answer.
    let mut reader = DecisionLogReader::new(LostRequests::new(&args.filters), &[], since);
    let result = read_log(args, input, &mut reader);
    let mut ledger = None;
    let mut logs_all = true;
    if result.is_ok() && args.log.is_none() && !reader.consumer.is_empty() {
        let overrides = Overrides {
            config: args.config.clone(),
            ..Overrides::default()
        };
        let settings = inputs::load_settings_quietly(&overrides).ok();
        logs_all = settings
            .as_ref()
            .is_none_or(|settings| settings.logs.allow_sample == SampleRate::ALL);
        ledger = settings.as_ref().and_then(LedgerSource::find);
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
    args: &'a DecisionsArgs,
    consumer: S,
) -> DecisionLogReader<'a, S> {
    let now = Clock::system().wall_time();
    DecisionLogReader::new(
        consumer,
        &args.filters,
        args.since.map(|since| since.to_timestamp(now)),
    )
}

fn read_log<S: DecisionConsumer>(
    args: &DecisionsArgs,
    input: &LogInput,
    reader: &mut DecisionLogReader<'_, S>,
) -> io::Result<()> {
    let path = match input {
        LogInput::Stdin => {
            reader.begin_file("standard input");
            return reader.read_rest(
                &mut LogLineReader::new(io::stdin().lock()),
                LogInputEnd::Final,
            );
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
    follow::read(path, start, end, reader)
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
