//! `crawlgate decisions`: reads the decision log: shows it, follows it, sifts it, sums it up.
//!
//! One pass, whatever its size, in bounded memory. What is in a line is `docs/decision-log.md`'s business.

mod follow;
mod line_reader;
mod log_files;
mod reader;
pub mod since;
mod summary;
mod writers;

use std::fmt::Display;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::clock::Clock;
use crate::config::load::Overrides;
use crate::metrics::log::{LogDestination, LogLineFormat};

use super::Exit;
use super::args::{DecisionsArgs, OutputFormat, SummaryBy};
use super::color::ConsoleColors;
use super::console::{self, report_invalid, warn};
use super::inputs;
use follow::{FollowStart, FollowUntil};
use line_reader::LogLineReader;
use log_files::LogInput;
use reader::{DecisionConsumer, DecisionLogReader, LogInputEnd};
use summary::DecisionSummary;
use writers::{DecisionLineWriter, DecisionTextWriter};

/// What is written at once.
const BUFFER: usize = 64 << 10;

/// Runs the command.
pub(super) fn run(args: &DecisionsArgs) -> Exit {
    let place = match log_input(args) {
        Ok(place) => place,
        Err(exit) => return exit,
    };
    if let LogInput::File(path) = &place
        && let Err(error) = std::fs::metadata(path)
    {
        return report_invalid(&missing_log_message(path, &error));
    }
    let output = BufWriter::with_capacity(BUFFER, io::stdout().lock());
    match (args.summary, args.format) {
        (Some(by), format) => summarize(args, &place, by, format),
        (None, OutputFormat::Text) => show(
            args,
            &place,
            DecisionTextWriter::new(output, ConsoleColors::for_stdout()),
        ),
        (None, OutputFormat::Json) => show(args, &place, DecisionLineWriter(output)),
    }
}

/// Where the log is: what `--log` says, else what the configuration does.
fn log_input(args: &DecisionsArgs) -> Result<LogInput, Exit> {
    if let Some(named) = &args.log {
        return match named == Path::new("-") {
            true if args.all => Err(report_invalid(
                &"--all: beside standard input (--log -) no rotated files are",
            )),
            true => Ok(LogInput::Stdin),
            false => Ok(LogInput::File(named.clone())),
        };
    }
    let overrides = Overrides {
        config: args.config.clone(),
        ..Overrides::default()
    };
    let logs = inputs::load_settings(&overrides)?.settings.logs;
    let cure = "set it to a file, or name a log with --log FILE (--log - is standard input)";
    let path = match logs.destination {
        LogDestination::Path(path) => path,
        LogDestination::Stderr => {
            return Err(report_invalid(&format!(
                "logs.decisions is stderr, which cannot be read: {cure}"
            )));
        }
        LogDestination::Stdout => {
            return Err(report_invalid(&format!(
                "logs.decisions is stdout, which cannot be read: {cure}"
            )));
        }
        LogDestination::None => {
            return Err(report_invalid(&format!(
                "logs.decisions is none, so there is no log: {cure}"
            )));
        }
    };
    match logs.format {
        LogLineFormat::Json => Ok(LogInput::File(path)),
        LogLineFormat::Squid => Err(report_invalid(&format!(
            "logs.format is squid, which lacks what this command shows: set it to json, or name a log with --log FILE ({} \
             is for tools that read Squid's access.log)",
            path.display()
        ))),
    }
}

fn missing_log_message(path: &Path, error: &dyn Display) -> String {
    format!(
        "the decision log {} cannot be read: {error}; the proxy makes it when it starts with this file as logs.decisions, \
         --log FILE names another",
        path.display()
    )
}

fn show<S: DecisionConsumer>(args: &DecisionsArgs, input: &LogInput, sink: S) -> Exit {
    let mut reading = new_reader(args, sink);
    let done = read_log(args, input, &mut reading).and_then(|()| reading.consumer.flush());
    exit_after(&reading, done)
}

fn summarize(args: &DecisionsArgs, input: &LogInput, by: SummaryBy, format: OutputFormat) -> Exit {
    let mut reading = new_reader(args, DecisionSummary::new(by));
    let done = read_log(args, input, &mut reading).and_then(|()| {
        let limit = args.limit.0;
        let text = match format {
            OutputFormat::Text => reading.consumer.to_text(limit, ConsoleColors::for_stdout()),
            OutputFormat::Json => format!("{:#}\n", reading.consumer.to_json(limit)),
        };
        io::stdout().lock().write_all(text.as_bytes())
    });
    exit_after(&reading, done)
}

fn new_reader<'a, S: DecisionConsumer>(
    args: &'a DecisionsArgs,
    sink: S,
) -> DecisionLogReader<'a, S> {
    let now = Clock::system().wall_time();
    DecisionLogReader::new(
        sink,
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
    let until = if args.follow {
        FollowUntil::Forever
    } else {
        FollowUntil::End
    };
    let start = match until {
        _ if args.all => FollowStart::Oldest,
        FollowUntil::Forever if args.since.is_none() => FollowStart::Tail,
        FollowUntil::Forever | FollowUntil::End => FollowStart::Beginning,
    };
    follow::read(path, start, until, reader)
}

/// A line that cannot be read makes the answer a negative one, as for `decide`.
fn exit_after<S: DecisionConsumer>(
    reader: &DecisionLogReader<'_, S>,
    done: io::Result<()>,
) -> Exit {
    if let Err(error) = done {
        return console::report_io_error(&error);
    }
    match reader.unreadable_summary() {
        None => Exit::Success,
        Some(words) => {
            warn(&words);
            Exit::Negative
        }
    }
}
