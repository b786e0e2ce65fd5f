//! `crawlgate decisions`: reads the decision log: shows it, follows it, sifts it, sums it up.
//!
//! One pass, whatever its size, in bounded memory. What is in a line is `docs/decision-log.md`'s business.

mod files;
mod follow;
mod lines;
mod reading;
mod shown;
pub mod since;
mod summary;

use std::fmt::Display;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::clock::Clock;
use crate::config::load::Overrides;
use crate::config::settings::{LogFormat, LogTarget};

use super::Exit;
use super::args::{DecisionsArgs, Format, SummaryBy};
use super::open;
use super::out::{self, complain, warn};
use super::paint::Paint;
use files::Place;
use follow::{Start, Until};
use lines::Lines;
use reading::{Ending, Reading, Sink};
use shown::{ForPeople, ForPrograms};
use summary::Summary;

/// What is written at once.
const BUFFER: usize = 64 << 10;

/// Runs the command.
pub(super) fn run(args: &DecisionsArgs) -> Exit {
    let place = match place(args) {
        Ok(place) => place,
        Err(exit) => return exit,
    };
    if let Place::File(path) = &place
        && let Err(error) = std::fs::metadata(path)
    {
        return complain(&missing(path, &error));
    }
    let output = BufWriter::with_capacity(BUFFER, io::stdout().lock());
    match (args.summary, args.format) {
        (Some(by), format) => sum_up(args, &place, by, format),
        (None, Format::Text) => show(args, &place, ForPeople::new(output, Paint::for_stdout())),
        (None, Format::Json) => show(args, &place, ForPrograms(output)),
    }
}

/// Where the log is: what `--log` says, else what the configuration does.
fn place(args: &DecisionsArgs) -> Result<Place, Exit> {
    if let Some(named) = &args.log {
        return match named == Path::new("-") {
            true if args.all => Err(complain(
                &"--all: beside standard input (--log -) no rotated files are",
            )),
            true => Ok(Place::Stdin),
            false => Ok(Place::File(named.clone())),
        };
    }
    let overrides = Overrides {
        config: args.config.clone(),
        ..Overrides::default()
    };
    let logs = open::settings(&overrides)?.settings.logs;
    let cure = "set it to a file, or name a log with --log FILE (--log - is standard input)";
    let path = match logs.decisions {
        LogTarget::File(path) => path,
        LogTarget::Stderr => {
            return Err(complain(&format!(
                "logs.decisions is stderr, which cannot be read: {cure}"
            )));
        }
        LogTarget::Stdout => {
            return Err(complain(&format!(
                "logs.decisions is stdout, which cannot be read: {cure}"
            )));
        }
        LogTarget::Nowhere => {
            return Err(complain(&format!(
                "logs.decisions is none, so there is no log: {cure}"
            )));
        }
    };
    match logs.format {
        LogFormat::Json => Ok(Place::File(path)),
        LogFormat::Squid => Err(complain(&format!(
            "logs.format is squid, which lacks what this command shows: set it to json, or name a log with --log FILE ({} \
             is for tools that read Squid's access.log)",
            path.display()
        ))),
    }
}

fn missing(path: &Path, error: &dyn Display) -> String {
    format!(
        "the decision log {} cannot be read: {error}; the proxy makes it when it starts with this file as logs.decisions, \
         --log FILE names another",
        path.display()
    )
}

fn show<S: Sink>(args: &DecisionsArgs, place: &Place, sink: S) -> Exit {
    let mut reading = reading(args, sink);
    let done = read(args, place, &mut reading).and_then(|()| reading.sink.pause());
    ended(&reading, done)
}

fn sum_up(args: &DecisionsArgs, place: &Place, by: SummaryBy, format: Format) -> Exit {
    let mut reading = reading(args, Summary::new(by));
    let done = read(args, place, &mut reading).and_then(|()| {
        let limit = args.limit.0;
        let text = match format {
            Format::Text => reading.sink.text(limit, Paint::for_stdout()),
            Format::Json => format!("{:#}\n", reading.sink.json(limit)),
        };
        io::stdout().lock().write_all(text.as_bytes())
    });
    ended(&reading, done)
}

fn reading<'a, S: Sink>(args: &'a DecisionsArgs, sink: S) -> Reading<'a, S> {
    let now = Clock::system().wall();
    Reading::new(sink, &args.filters, args.since.map(|since| since.text(now)))
}

fn read<S: Sink>(
    args: &DecisionsArgs,
    place: &Place,
    reading: &mut Reading<'_, S>,
) -> io::Result<()> {
    let path = match place {
        Place::Stdin => {
            reading.begin("standard input");
            return reading.rest(&mut Lines::new(io::stdin().lock()), Ending::Final);
        }
        Place::File(path) => path,
    };
    let until = if args.follow {
        Until::Forever
    } else {
        Until::End
    };
    let start = match until {
        _ if args.all => Start::Oldest,
        Until::Forever if args.since.is_none() => Start::Tail,
        Until::Forever | Until::End => Start::Beginning,
    };
    follow::read(path, start, until, reading)
}

/// A line that cannot be read makes the answer a negative one, as for `decide`.
fn ended<S: Sink>(reading: &Reading<'_, S>, done: io::Result<()>) -> Exit {
    if let Err(error) = done {
        return out::failed(&error);
    }
    match reading.unread() {
        None => Exit::Success,
        Some(words) => {
            warn(&words);
            Exit::Negative
        }
    }
}
